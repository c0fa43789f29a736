//! What a program is: its release, the commit that it was built from, and the versions that it understands.

use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::release::Release;

/// What one program is, and what it understands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Program {
    /// Its release.
    pub release: Release,
    /// The commit that it was built from, or `unknown`.
    pub commit: String,
    /// The newest state-machine version that its release understands.
    pub state_version: u8,
    /// The newest message version that it reads.
    pub message_version: u8,
}

static COMMIT: OnceLock<&'static str> = OnceLock::new();

impl Program {
    /// Says from which commit this program was built. The first call counts.
    pub fn set_commit(commit: &'static str) {
        let _ = COMMIT.set(commit);
    }

    /// This program. Its commit is unknown until [`Program::set_commit`].
    #[must_use]
    pub fn this() -> Self {
        Self {
            release: Release::THIS,
            commit: COMMIT.get().copied().unwrap_or("unknown").to_owned(),
            state_version: trine_kvstore::command::STATE_VERSION,
            message_version: crate::message::MESSAGE_VERSION,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} (commit {}, state version {}, message version {})",
            self.release, self.commit, self.state_version, self.message_version
        )
    }
}
