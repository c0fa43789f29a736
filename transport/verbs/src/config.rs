//! The limits of this crate.

use trine_transport::time::Duration;

/// Queue pairs of one endpoint at most: so many numbers fit into an announcement.
pub const QUEUE_PAIRS_MAX: usize = 8;

/// Slots of a request region: the packets that the client of a session may have unanswered. So where nothing is lost, no
/// slot is written before its packet was read.
pub const SLOTS: usize = 8;
/// The longest packet that is written into a slot: as long as one that the work request itself carries.
pub const SLOT_PACKET_MAX: usize = 256;
/// The longest packet that a server leaves in a slot for its client to fetch (path rfp).
pub const ANSWER_PACKET_MAX: usize = 1_008;
/// Connections of one endpoint in each direction. A server looks at one cache line of each in every poll.
pub const CONNECTIONS_MAX: usize = 256;
/// Terms of CONNECTs that wait for the ACCEPT; of more, the oldest are forgotten, and their sessions use datagrams alone.
pub const WISHES_MAX: usize = 64;

/// A server looks at all slots of a connection this long after its last packet ...
pub const SCAN_FIRST: Duration = Duration::from_micros(200);
/// ... and, as nothing comes, after twice the pause before, up to this.
pub const SCAN_PAUSE_MAX: Duration = Duration::from_millis(10);

/// A client that has had no answer for so long since a write sends the next packet as a datagram. That wakes a server that
/// sleeps, and makes one look that has missed a slot.
pub const UNANSWERED: Duration = Duration::from_millis(5);
/// Answers in a row that came only after such a datagram: then the connection rests.
pub const STRIKES_MAX: u8 = 3;
/// How long it rests the first time; twice as long each further time.
pub const REST_FIRST: Duration = Duration::from_millis(200);
/// Doublings of that rest.
pub const RESTS_MAX: u32 = 6;

/// The sizes of a session's last answers, which say how many bytes its client fetches at first.
pub const SIZES_KEPT: usize = 64;
/// Of these, the first READ is to cover all but so many.
pub const SIZES_UNCOVERED: usize = 3;
/// Answers from one look at the sizes to the next.
pub const SIZES_INTERVAL: u32 = 16;
/// After a READ that found no answer a client pauses for so long, twice as long after each further one ...
pub const FETCH_PAUSE_FIRST: Duration = Duration::from_micros(1);
/// ... up to this.
pub const FETCH_PAUSE_MAX: Duration = Duration::from_micros(64);
/// READs in a row that found no answer: then the client wants its answers as datagrams, and may sleep.
pub const FETCH_MISSES_MAX: u32 = 16;
/// The same after a READ that takes so long.
pub const FETCH_TIME_MAX: Duration = Duration::from_millis(5);
/// It fetches again after so many answers in a row ...
pub const FAST_ANSWERS: u32 = 8;
/// ... that came within this time.
pub const FAST_ANSWER: Duration = Duration::from_millis(1);

/// A connection without a packet for so long is given back. Live sessions send a keepalive long before.
pub const IDLE_MAX: Duration = Duration::from_secs(20);
/// From one connection that is made ready for another session to the next: the calls take some 100 us.
pub const RENEWAL_PAUSE: Duration = Duration::from_millis(2);

const _: () = assert!(
    SLOTS.is_power_of_two(),
    "slots follow from the low bits of a sequence"
);
