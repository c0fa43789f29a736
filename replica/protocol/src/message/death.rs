//! The proof that a leader's process has ended: a secret of that run, which is told then.
//!
//! A leader gives its followers the secret of its run. When its process has ended, another process of the same machine
//! tells them the secret in a notice. Who hears it need not wait for an election timeout.

use super::codec::{DecodeError, Encode, Writer};
use super::peer::{PEER_HEADER_SIZE, PeerHeader};

/// The kind of the transport's notice which says that a process has ended. Its body is the secret of that run.
pub const DEATH_NOTICE: u8 = 1;

/// The proof that a run of a process has ended: 16 random bytes, which no process tells while that run lasts.
#[derive(Clone, Copy)]
pub struct RunSecret(pub [u8; 16]);

impl RunSecret {
    /// Reads the body of a notice; nothing unless its length is right.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        body.try_into().ok().map(Self)
    }
}

impl std::fmt::Debug for RunSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunSecret(..)")
    }
}

impl PartialEq for RunSecret {
    /// In the same time whatever they are.
    fn eq(&self, other: &Self) -> bool {
        let bytes = self.0.iter().zip(&other.0);
        let differing = bytes.fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

/// The secret of a leader's run, for a member that follows it. The answer is empty once the member has it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LeaderSecret {
    /// Who says it, to whom.
    pub header: PeerHeader,
    /// The term that the sender leads.
    pub term: u64,
    /// The secret of the sender's run.
    pub secret: RunSecret,
}

impl LeaderSecret {
    /// Reads it.
    ///
    /// # Errors
    /// When its length or version is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (header, mut reader) = PeerHeader::decode_header(bytes)?;
        let term = reader.u64()?;
        let secret = RunSecret(reader.octets()?);
        reader.finish()?;
        Ok(Self {
            header,
            term,
            secret,
        })
    }
}

impl Encode for LeaderSecret {
    fn encoded_len(&self) -> usize {
        PEER_HEADER_SIZE + 24
    }

    fn encode(&self, out: &mut Writer<'_>) {
        self.header.encode_header(out);
        out.u64(self.term);
        out.bytes(&self.secret.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_a_notice_is_a_secret_and_nothing_else() {
        let secret = RunSecret(*b"0123456789abcdef");
        assert_eq!(RunSecret::read(b"0123456789abcdef"), Some(secret));
        assert_eq!(RunSecret::read(b"0123456789abcde"), None);
        assert_eq!(RunSecret::read(b"0123456789abcdef0"), None);
    }

    #[test]
    fn a_secret_that_differs_in_one_bit_is_another_and_none_is_shown() {
        let secret = RunSecret([7; 16]);
        for bit in 0..128 {
            let mut other = secret;
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert!(secret != other, "bit {bit}");
        }
        assert_eq!(format!("{secret:?}"), "RunSecret(..)");
    }
}
