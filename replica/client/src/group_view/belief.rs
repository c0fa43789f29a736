//! The client's belief about the leader.

use trine_protocol::message::ClusterId;
use trine_transport::time::Instant;

/// Marks the tag of a question about the leader; the rest is the peer's index.
pub(crate) const QUESTION_BIT: u64 = 1 << 63;

/// The client's belief about the leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leader {
    /// The peer that is taken for the leader.
    pub(crate) target: Option<usize>,
    /// The cluster of which a replica has last named a leader, and the highest term in which one of that cluster has. Terms of
    /// two clusters do not compare.
    pub(crate) named_in: (ClusterId, u64),
    /// Failed attempts in a row since the last real answer.
    pub(crate) streak: u32,
    /// Nothing is sent to the leader before this moment.
    pub(crate) resume_at: Instant,
    /// The others are not asked before this moment.
    pub(crate) ask_at: Instant,
    /// How often they were asked since the last real answer.
    pub(crate) asks: u32,
    /// The peer that was last chosen without a hint. The rotation continues from here, and not from the peer that has
    /// just been asked. So hints cannot keep the client away from some replica forever.
    pub(crate) last_guess: usize,
}

impl Leader {
    pub(crate) const fn new() -> Self {
        Self {
            target: None,
            named_in: (ClusterId::NONE, 0),
            streak: 0,
            resume_at: Instant::ZERO,
            ask_at: Instant::ZERO,
            asks: 0,
            last_guess: 0,
        }
    }
}
