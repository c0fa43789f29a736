//! The keys of a group and of its users: what the files and texts look like, what is derived from what, and how a
//! connection says in clear which key it uses.
//!
//! ```text
//! ClusterKey  group id, member root, user root       a file that members and administrators have
//!    |-- Psk of a member     HKDF(member root, group id, "member")
//!    |-- Psk of an admin     HKDF(user root, group id, "admin")
//!    `-- UserKey             HKDF(user root, group id, "user", generation, name)      a text that a user has
//!           `-- Psk          HKDF(user key, "user session")
//! ```
//!
//! A [`KeyRing`] is the server's side: it finds the key that a [`KeyId`] names. [`Presented`] is the client's side. No
//! secret is ever part of an error or of a `Debug` text. Only `draw.rs` asks for randomness, and only `file.rs` and
//! `own_file.rs` touch files.

mod cluster;
pub mod config;
mod credential;
mod derive;
mod draw;
mod file;
mod fingerprint;
mod hex;
mod key_id;
mod name;
pub mod own_file;
mod presented;
mod ring;
mod role;
mod secret;
mod user;

pub use cluster::{ClusterKey, ClusterKeyError, NotNext, OutOfOrder, Rotation};
pub use credential::Credential;
pub use draw::DrawError;
pub use file::{Existing, FileError, LockedKeyFile, NewKeyFile};
pub use fingerprint::{Fingerprint, GroupId, Issuer};
pub use key_id::{KeyId, KeyIdError};
pub use name::{NameError, UserName};
pub use presented::{Presented, PresentedError};
pub use ring::KeyRing;
pub use role::{Role, RoleError};
pub use secret::{Psk, Secret};
pub use user::{UserKey, UserKeyError};
