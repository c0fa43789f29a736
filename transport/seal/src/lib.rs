//! The cryptography of sealed sessions (PROTOCOL.md section 9), as values without I/O.
//!
//! ```text
//!   Initiator, Responder  -> SessionKeys        Noise NNpsk0, by the crate `snow`
//!   SessionKeys           -> Sealer, Opener     a key for each direction and epoch, AES-128-GCM by `aws-lc-rs`
//!   Opener                -> Window             which packets have come
//! ```
//! Nothing here knows packets, sessions or files. Random bytes come from a [`Csprng`] that the caller seeds.

mod cookie;
mod csprng;
mod handshake;
mod mac;
mod packet_keys;
mod psk;
mod reset;
mod window;

pub use cookie::{COOKIE_PROOF_BYTES, CookieKey};
pub use csprng::Csprng;
pub use handshake::{
    HandshakeFailed, Initiator, MESSAGE_OVERHEAD, PROLOGUE_BYTES_MAX, Responder, SessionKeys,
};
pub use packet_keys::{
    EPOCH_BITS, FAILURES_MAX, NotOpened, Opener, PACKETS_MAX, Sealer, TAG_BYTES,
};
pub use psk::Psk;
pub use reset::{RESET_MAC_BYTES, ResetKey};
pub use window::WINDOW_PACKETS;
