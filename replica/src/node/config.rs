//! Limits and settings of the glue between a replica and its endpoint.

use trine_transport::time::Duration;

/// Requests that wait for their answer from the replica; a client's request beyond is told to come back later.
pub const WAITING_REQUESTS_MAX: usize = 131_072;
/// Requests to peers whose end the transport owes.
pub(super) const REQUESTS_MAX: usize = 16_384;
/// Links to peers: two for each address that a member has or had.
pub(super) const LINKS_MAX: usize = 128;
/// Messages to one peer that wait until its session is established.
pub(super) const LINK_QUEUE_MAX: usize = 256;
/// Appends that arrived ahead of a missing one and wait for it, for each session. Raft has at most 64 with entries under
/// way to a follower, and empty ones beside them.
pub(super) const EARLY_APPENDS_MAX: usize = 256;
/// Bytes of such appends, for each session; a gap that costs more is given up, which raft repairs.
pub(super) const EARLY_BYTES_MAX: usize = 16 << 20;
/// The same over all sessions. A follower hears from one leader at a time, and a peer that claims to be another does not
/// take the memory.
pub(super) const EARLY_APPENDS_ALL_MAX: usize = 4096;
/// Bytes of appends that wait, over all sessions.
pub(super) const EARLY_BYTES_ALL_MAX: usize = 64 << 20;
/// How long an append waits for the missing one at most. Its sender gives that one up then and begins a new stream, unless an
/// answer told it that it had arrived.
pub(super) const EARLY_WAIT_MAX: Duration = Duration::from_secs(1);
/// Times in one turn that the replica's outputs are drained, because failing one of them may bring up others.
pub(super) const DRAINS_MAX: usize = 4;
/// Slots of a session for consensus.
pub(super) const RAFT_SLOTS: u8 = 32;
/// Slots of a session for bulk data.
pub(super) const BULK_SLOTS: u8 = 8;
/// The first pause before connecting again to a peer that could not be reached; it doubles each time.
pub(super) const RECONNECT_MIN: Duration = Duration::from_millis(5);
/// The longest such pause.
pub(super) const RECONNECT_MAX: Duration = Duration::from_millis(200);
/// A link over which nothing was sent for so long, and for an election timeout, is idle: a leader sends to each member
/// more often than that.
pub(super) const LINK_IDLE: Duration = Duration::from_secs(2);
/// Callers without a key that the status names.
pub(super) const UNSEALED_SHOWN_MAX: usize = 16;
/// Users whose sessions the status counts by name: those with most.
pub(super) const USERS_SHOWN_MAX: usize = 16;
/// How long one attempt to connect to a peer may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

const _: () = assert!(EARLY_APPENDS_MAX >= RAFT_SLOTS as usize);
const _: () = assert!(EARLY_APPENDS_MAX <= EARLY_APPENDS_ALL_MAX);
const _: () = assert!(EARLY_BYTES_MAX <= EARLY_BYTES_ALL_MAX);
