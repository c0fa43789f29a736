//! The kinds of message that a replica knows.

use super::kind;

/// A set of message kinds: bit `kind % 8` of byte `kind / 8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownKinds(pub(super) [u8; 32]);

impl KnownKinds {
    /// Those that this release knows.
    pub const THIS: Self = Self::of(&[
        kind::CLIENT,
        kind::APPEND,
        kind::RAFT,
        kind::SNAPSHOT,
        kind::BOOTSTRAP,
        kind::JOIN,
        kind::STATUS,
        kind::ADMIN,
        kind::CLIENT_BATCH,
        kind::AGREE,
        kind::BACKUP,
        kind::WATCH,
        kind::LEADER_SECRET,
    ]);

    const fn of(kinds: &[u8]) -> Self {
        let mut bits = [0; 32];
        let mut index = 0;
        while index < kinds.len() {
            bits[kinds[index] as usize / 8] |= 1 << (kinds[index] % 8);
            index += 1;
        }
        Self(bits)
    }
}
