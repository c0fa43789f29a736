//! The client's belief about the leader.

use trine_protocol::message::ClusterId;
use trine_transport::time::Instant;

/// Marks the tag of a question about the leader; the rest is the peer's index.
pub(super) const QUESTION_BIT: u64 = 1 << 63;

/// The client's belief about the leader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leader {
    /// The peer that is taken for the leader.
    pub(super) target: Option<usize>,
    /// The cluster of which a replica has last named a leader, and the highest term in which one of that cluster has. Terms of
    /// two clusters do not compare.
    pub(super) named_in: (ClusterId, u64),
    /// Failed attempts in a row since the last real answer.
    pub(super) streak: u32,
    /// Nothing is sent to the leader before this moment.
    pub(super) resume_at: Instant,
    /// The others are not asked before this moment.
    pub(super) ask_at: Instant,
    /// How often they were asked since the last real answer.
    pub(super) asks: u32,
    /// The peer that was last chosen without a hint. The rotation continues from here, and not from the peer that has
    /// just been asked. So hints cannot keep the client away from some replica forever.
    pub(super) last_guess: usize,
}

impl Leader {
    pub(super) const fn new() -> Self {
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
