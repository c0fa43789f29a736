//! The handshake: Noise NNpsk0 (noiseprotocol.org, revision 34), by the crate `snow`.
//!
//! ```text
//!   -> psk, e, payload        rejected without a Diffie-Hellman if the key is wrong
//!   <- e, ee, payload
//! ```
//! Each end draws a new ephemeral key. So a key that is stolen later opens no recorded packet.

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::csprng::Csprng;
use crate::packet_keys::{Opener, Sealer};
use crate::psk::Psk;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Bytes of a message besides its payload: an ephemeral public key and a tag.
pub const MESSAGE_OVERHEAD: usize = 32 + 16;
/// The longest prologue.
pub const PROLOGUE_BYTES_MAX: usize = 256;

/// The other end does not hold the same key, or the message was made for another handshake.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct HandshakeFailed;

/// The client's half of a handshake whose first message is made.
pub struct Initiator(Box<HandshakeState>);

impl Initiator {
    /// Writes the first message, with this payload, to the front of `out`. Returns its length.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than payload and [`MESSAGE_OVERHEAD`].
    pub fn begin(
        psk: &Psk,
        prologue: &[u8],
        rng: &mut Csprng,
        payload: &[u8],
        out: &mut [u8],
    ) -> (Self, usize) {
        let mut state = state(psk, prologue, rng, |builder| builder.build_initiator());
        let written = state.write_message(payload, out);
        (Self(state), written.expect("the caller made room"))
    }

    /// Reads the server's message. Returns the keys, and the length of the payload at the front of `payload`.
    ///
    /// # Errors
    ///
    /// [`HandshakeFailed`], if the message is none of a holder of the key that has read ours. The next one may be.
    pub fn finish(
        &mut self,
        message: &[u8],
        payload: &mut [u8],
    ) -> Result<(SessionKeys, usize), HandshakeFailed> {
        let len = self.0.read_message(message, payload);
        let len = len.map_err(|_| HandshakeFailed)?;
        let (ours, theirs) = self.0.dangerously_get_raw_split();
        let keys = SessionKeys {
            send: ours,
            receive: theirs,
        };
        Ok((keys, len))
    }
}

/// The server's half of a handshake whose first message is read.
pub struct Responder(Box<HandshakeState>);

impl Responder {
    /// Reads a client's first message. Returns the length of the payload at the front of `payload`. Costs no
    /// Diffie-Hellman.
    ///
    /// # Errors
    ///
    /// [`HandshakeFailed`], if its sender does not hold the key, or means another prologue.
    pub fn read(
        psk: &Psk,
        prologue: &[u8],
        rng: &mut Csprng,
        message: &[u8],
        payload: &mut [u8],
    ) -> Result<(Self, usize), HandshakeFailed> {
        let mut state = state(psk, prologue, rng, |builder| builder.build_responder());
        let len = state.read_message(message, payload);
        let len = len.map_err(|_| HandshakeFailed)?;
        Ok((Self(state), len))
    }

    /// Writes the answer, with this payload, to the front of `out`. Returns the keys and the length. Costs two
    /// multiplications on the curve.
    ///
    /// # Errors
    ///
    /// [`HandshakeFailed`], if the client's ephemeral key is no good point.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than payload and [`MESSAGE_OVERHEAD`].
    pub fn answer(
        mut self,
        payload: &[u8],
        out: &mut [u8],
    ) -> Result<(SessionKeys, usize), HandshakeFailed> {
        assert!(
            out.len() >= payload.len() + MESSAGE_OVERHEAD,
            "no room for the answer of a handshake"
        );
        let len = self.0.write_message(payload, out);
        let len = len.map_err(|_| HandshakeFailed)?;
        let (theirs, ours) = self.0.dangerously_get_raw_split();
        let keys = SessionKeys {
            send: ours,
            receive: theirs,
        };
        Ok((keys, len))
    }
}

/// The result of a handshake: a secret for each direction.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct SessionKeys {
    send: [u8; 32],
    receive: [u8; 32],
}

impl SessionKeys {
    /// The half that seals what this end sends.
    #[must_use]
    pub fn sealer(&self) -> Sealer {
        Sealer::new(&self.send)
    }

    /// The half that opens what the other end sends.
    #[must_use]
    pub fn opener(&self) -> Opener {
        Opener::new(&self.receive)
    }
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKeys(..)")
    }
}

fn state(
    psk: &Psk,
    prologue: &[u8],
    rng: &mut Csprng,
    build: impl FnOnce(Builder<'_>) -> Result<HandshakeState, snow::Error>,
) -> Box<HandshakeState> {
    assert!(prologue.len() <= PROLOGUE_BYTES_MAX, "a long prologue");
    let mut seed = [0; 32];
    rng.fill(&mut seed);
    let params = PATTERN.parse().expect("a pattern of Noise");
    let builder = Builder::with_resolver(params, Box::new(Resolver(Csprng::new(seed))));
    seed.zeroize();
    let builder = builder
        .psk(0, psk.bytes())
        .and_then(|b| b.prologue(prologue));
    let state = builder.and_then(build);
    Box::new(state.expect("pattern, key and prologue are of the right form"))
}

/// The crate's primitives, with our random numbers.
struct Resolver(Csprng);

struct Draws(Csprng);

impl Random for Draws {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill(dest);
        Ok(())
    }
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Draws(self.0.clone())))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rng(seed: u8) -> Csprng {
        Csprng::new([seed; 32])
    }

    type Ends = (SessionKeys, SessionKeys);

    fn shake(client: &Psk, server: &Psk, prologues: [&[u8]; 2]) -> Result<Ends, HandshakeFailed> {
        let (mut first, mut second, mut payload) = ([0; 100], [0; 100], [0; 100]);
        let (mut initiator, len) =
            Initiator::begin(client, prologues[0], &mut rng(1), b"hello", &mut first);
        let (responder, got) = Responder::read(
            server,
            prologues[1],
            &mut rng(2),
            &first[..len],
            &mut payload,
        )?;
        assert_eq!(&payload[..got], b"hello");
        let (theirs, len) = responder.answer(b"welcome", &mut second)?;
        // A forged answer before the right one changes nothing.
        let mut forged = second;
        forged[40] ^= 1;
        assert!(initiator.finish(&forged[..len], &mut payload).is_err());
        let (ours, got) = initiator.finish(&second[..len], &mut payload)?;
        assert_eq!(&payload[..got], b"welcome");
        Ok((ours, theirs))
    }

    #[test]
    fn both_ends_get_the_same_keys() {
        let psk = Psk::new([7; 32]);
        let (client, server) = shake(&psk, &psk, [b"p", b"p"]).expect("the same key");
        assert_eq!(client.send, server.receive);
        assert_eq!(client.receive, server.send);
        assert_ne!(client.send, client.receive);
    }

    #[test]
    fn another_key_or_another_prologue_fails_at_the_first_message() {
        let psk = Psk::new([7; 32]);
        assert!(shake(&psk, &Psk::new([8; 32]), [b"p", b"p"]).is_err());
        assert!(shake(&psk, &psk, [b"p", b"q"]).is_err());
    }

    /// Two handshakes with one key share nothing: an ephemeral key is drawn for each.
    #[test]
    fn a_second_handshake_has_other_keys() {
        let psk = Psk::new([7; 32]);
        let mut rng = rng(1);
        let mut first = || {
            let mut out = [0; 64];
            let (_, len) = Initiator::begin(&psk, b"", &mut rng, b"", &mut out);
            out[..len].to_vec()
        };
        assert_ne!(first(), first());
    }

    #[test]
    fn no_message_of_any_length_panics() {
        let psk = Psk::new([7; 32]);
        for len in 0..80 {
            let (message, mut payload) = (vec![9; len], [0; 100]);
            assert!(Responder::read(&psk, b"", &mut rng(1), &message, &mut payload).is_err());
            let mut out = [0; 100];
            let (mut initiator, _) = Initiator::begin(&psk, b"", &mut rng(2), b"", &mut out);
            assert!(initiator.finish(&message, &mut payload).is_err());
        }
    }
}
