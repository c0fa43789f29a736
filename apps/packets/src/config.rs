//! Limits and defaults of the packet applications.

use std::ops::RangeInclusive;

/// Packets that take turns at memory: the batch sizes that are compiled.
pub const BATCHES: [usize; 5] = [1, 4, 8, 16, 32];
/// Fewer hide less latency, more hide no more.
pub const BATCH_DEFAULT: usize = 16;
/// Frames that one call takes from a port.
pub const BURST: usize = trine_dpdk::config::BURST;
/// Ports that an application sends to.
pub const OUT_PORTS_MAX: usize = 8;
/// Threads of an application.
pub const CORES_MAX: usize = 16;
/// The longest frame of an Ethernet port with the usual MTU.
pub const FRAME_BYTES_MAX: usize = 1_514;

/// Next hops of a forwarding table: their number goes into 15 bits.
pub const HOPS_MAX: u16 = 0x7ffe;
/// Next hops of the generated tables.
pub const HOPS_GENERATED: u16 = 256;
/// Groups of 256 entries for IPv4 prefixes longer than 24 bits: their number goes into 15 bits.
pub const LONG_GROUPS_MAX: usize = 1 << 15;
/// Groups of 256 entries for IPv6 prefixes: 4 GiB.
pub const IPV6_GROUPS_MAX: usize = 1 << 22;
/// Displacements of one insertion into a cuckoo table before it counts as full.
pub const KICKS_MAX: usize = 2_000;
/// Components of a name that take part in a lookup. A longer name is looked up by its first ones.
pub const NAME_COMPONENTS_MAX: usize = 8;
/// Bytes of a name prefix in the table.
pub const NAME_BYTES_MAX: usize = 1_024;
/// Bytes of all name prefixes of a table.
pub const NAMES_BYTES_MAX: usize = 1 << 34;
/// States of the pattern automaton, a KiB each.
pub const STATES_MAX: usize = 1 << 20;
/// States near the root are in the cache nearly always: a lookup does not wait for them.
pub const STATES_NEAR: u32 = 1_024;
/// Bytes of a pattern.
pub const PATTERN_BYTES: RangeInclusive<usize> = 1..=256;

/// Packets that a check runs unless it is told otherwise.
pub const CHECK_PACKETS_DEFAULT: u64 = 1_000_000;
/// Different packets that a generator prepares; it sends them over and over, each time with a new number.
pub const SAMPLES: usize = 1 << 14;
/// Packets of a generator's queue that are under way: fewer than a port has descriptors, so that none is lost.
pub const WINDOW_DEFAULT: usize = 256;
/// See [`WINDOW_DEFAULT`].
pub const WINDOW_MAX: usize = 512;
/// A packet that has not come back after this time, while nothing else came either, is lost.
pub const PATIENCE_NS: u64 = 10_000_000_000;
/// Empty polls in a row after which a thread lets others run. On a processor of its own that costs next to nothing.
pub const EMPTY_POLLS: u32 = 256;
/// How long the ports of a run may take to come up.
pub const LINK_SECONDS: u64 = 30;
