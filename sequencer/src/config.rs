//! Limits of the sequencer.

use trine_transport::time::Duration;

/// The most numbers of one request.
pub const COUNT_MAX: u32 = 65_536;

/// The low bits of a number, which count within an epoch of a server with a file.
pub const EPOCH_BITS: u32 = 40;
/// The last epoch. The numbers of the next one would not fit.
pub const EPOCH_MAX: u64 = (1 << (64 - EPOCH_BITS)) - 2;
/// With fewer numbers than this left of its epoch, a server takes the next one.
pub const EPOCH_LOW: u64 = 1 << 36;

/// The numbers that one write of the group reserves, unless an option says otherwise.
pub const BLOCK: u64 = 4_096;
/// The largest block.
pub const BLOCK_MAX: u64 = 1 << 32;

/// How long a server may give out numbers after a write of the group, unless an option says otherwise.
pub const LEASE: Duration = Duration::from_secs(1);
/// The shortest lease.
pub const LEASE_MIN: Duration = Duration::from_millis(50);
/// The longest lease. After the death of its holder no server gives out numbers for as long.
pub const LEASE_MAX: Duration = Duration::from_secs(60);
/// A lease of another server counts as over when this fraction of its length has passed on top of it. The clocks of both
/// may then run wrong by three in a hundred each.
pub const GUARD: u64 = 16;
/// A holder writes its record again after this fraction of its lease.
pub const RENEWALS: u64 = 4;
/// How long a server waits after a question to the group that had no answer.
pub const RETRY: Duration = Duration::from_millis(20);

/// Requests of four bytes that wait for numbers, in each thread. With one more the oldest is dropped.
pub const SPECULATIVE_WAITING_MAX: usize = 4_096;
/// How long a client waits for the answer to a request of four bytes before it asks from another endpoint. Twice as long
/// after each endpoint that brought nothing, up to [`SPECULATIVE_LATE_MAX`].
pub const SPECULATIVE_PATIENCE: Duration = Duration::from_millis(100);
/// A request that has waited for so long at a server is dropped, because its client has given up. A client keeps an
/// endpoint that it has given up for as long, so that no other gets its name meanwhile.
pub const SPECULATIVE_LATE_MAX: Duration = Duration::from_secs(1);
/// Endpoints that such a client has given up and keeps, at most. It opens no other until one of them is old enough.
pub const SPECULATIVE_EARLIER_WAYS: usize = 16;
/// Requests of such a client under way, at most: its endpoint has room for their answers.
pub const SPECULATIVE_WINDOW_MAX: usize = 256;
