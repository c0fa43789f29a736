//! Settings of a client, and their limits.

use std::net::SocketAddr;

use trine_transport::time::Duration;

use trine_protocol::message::ClusterId;

/// Commands that one logical client may have unanswered. The state machine remembers as many replies a session.
pub const IN_FLIGHT_MAX: usize = 64;
/// Commands of all logical clients of one endpoint that may be unanswered.
pub const OPERATIONS_MAX: usize = 65_536;
/// Logical clients of one endpoint.
pub const LOGICAL_CLIENTS_MAX: usize = 65_536;
/// Replicas that a client remembers, those learnt from replies included.
pub const PEERS_MAX: usize = 64;
/// Room in a batch's response for the response to one write: also for one that is refused, with a sentence of
/// [`REFUSAL_TEXT_BYTES_MAX`](trine_protocol::message::REFUSAL_TEXT_BYTES_MAX).
pub(super) const WRITE_RESPONSE_BYTES: usize = 320;
const _: () = assert!(WRITE_RESPONSE_BYTES >= trine_protocol::message::REFUSAL_TEXT_BYTES_MAX + 64);
/// Bytes of the response to a batch, if it is of more than one operation. Operations whose responses need more go in
/// several messages: otherwise their common response would fit no message.
pub(super) const BATCH_RESPONSE_BYTES_MAX: usize = 256 << 10;
/// A response buffer grows up to this when a response does not fit.
pub const RESPONSE_BYTES_MAX: usize = 8 << 20;

const _: () = assert!(
    IN_FLIGHT_MAX <= 64,
    "the window of sequences is one 64-bit map"
);

/// So many times [`ClientConfig::suspect_after`] a client waits at most for a leader that was slow lately, and between two
/// questions for the leader.
pub(crate) const SUSPICIONS_MAX: u64 = 4;

/// Settings of a client endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientConfig {
    /// Replicas to begin with; one that answers is enough to find the others.
    pub peers: Vec<SocketAddr>,
    /// The cluster to talk to; [`ClusterId::NONE`] takes the first that answers, and from then on no other.
    pub cluster: ClusterId,
    /// How long an operation may take if its caller names no deadline.
    pub operation_timeout: Duration,
    /// How long a replica may take to answer one attempt before the attempt is given up and repeated.
    pub attempt_timeout: Duration,
    /// How long the leader may be silent before the other replicas are asked for the leader. If its answers had longer gaps
    /// lately, twice the longest of those counts, up to four times this.
    pub suspect_after: Duration,
    /// The first pause before asking again when there is no leader or the leader is busy; it doubles each time.
    pub pause_min: Duration,
    /// The longest such pause.
    pub pause_max: Duration,
    /// The first pause before connecting again to a replica that could not be reached; it doubles each time.
    pub reconnect_min: Duration,
    /// The longest such pause.
    pub reconnect_max: Duration,
    /// Requests in flight on the session to one replica; more wait in the session's queue.
    pub slots: u8,
    /// Requests that are ready together share a message of at most this size; the default fits one packet of the
    /// usual size, and zero sends each by itself.
    pub batch_bytes: usize,
    /// First size of a response buffer. A larger response costs a second attempt, with a larger buffer.
    pub response_bytes: usize,
    /// Room for responses under way that are larger than that. Operations for which it has no room wait for one of
    /// those; a response alone may be larger.
    pub large_response_bytes: usize,
    /// One in this many writes is timed, see [`Answer::timing`](super::Answer::timing): 1 times each, 0 none.
    pub time_every: u32,
}

impl ClientConfig {
    /// The defaults, with these replicas.
    #[must_use]
    pub fn new(peers: Vec<SocketAddr>) -> Self {
        Self {
            peers,
            cluster: ClusterId::NONE,
            operation_timeout: Duration::from_secs(5),
            attempt_timeout: Duration::from_secs(1),
            suspect_after: Duration::from_millis(15),
            pause_min: Duration::from_millis(2),
            pause_max: Duration::from_millis(50),
            reconnect_min: Duration::from_millis(10),
            reconnect_max: Duration::from_millis(500),
            slots: 64,
            batch_bytes: 1_400,
            response_bytes: 1_400,
            large_response_bytes: 8 << 20,
            time_every: 0,
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// Names the setting that cannot work.
    pub fn validate(&self) -> Result<(), ClientConfigError> {
        if self.peers.is_empty() || self.peers.len() > PEERS_MAX {
            return Err(ClientConfigError::Peers {
                count: self.peers.len(),
            });
        }
        if !(1..=64).contains(&self.slots) {
            return Err(ClientConfigError::Slots { slots: self.slots });
        }
        if !(64..=RESPONSE_BYTES_MAX).contains(&self.response_bytes) {
            return Err(ClientConfigError::ResponseBytes {
                bytes: self.response_bytes,
            });
        }
        let zero = Duration::from_nanos(0);
        if self.pause_min == zero || self.reconnect_min == zero || self.suspect_after == zero {
            return Err(ClientConfigError::Pause);
        }
        Ok(())
    }
}

/// A setting that cannot work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClientConfigError {
    /// No replica to begin with, or too many.
    #[error("{count} replicas named: name at least one and at most {PEERS_MAX}")]
    Peers {
        /// How many were named.
        count: usize,
    },
    /// A session has 1 to 64 slots.
    #[error("{slots} requests in flight: a session has 1 to 64 slots")]
    Slots {
        /// The value that was asked for.
        slots: u8,
    },
    /// A response buffer has to hold at least a reply without a value.
    #[error("response buffers of {bytes} bytes: at least 64, at most {RESPONSE_BYTES_MAX}")]
    ResponseBytes {
        /// The value that was asked for.
        bytes: usize,
    },
    /// Pauses without length would keep the processor busy.
    #[error("pauses must be longer than zero")]
    Pause,
}
