//! Message memory: a pool of frames in registered regions, and the handles that own them.
//!
//! # Who owns a buffer
//!
//! | moment | owner | who may write it | who may read it |
//! |---|---|---|---|
//! | after [`Pool::alloc`] | the caller's [`MsgBuf`] | the caller | the caller |
//! | request enqueued | the endpoint's slot | nobody, until the response is complete | transmit batches, as [`BodyRef`]s |
//! | response enqueued | the endpoint's slot | nobody, until the next request of the slot | transmit batches, as [`BodyRef`]s |
//! | response buffer of a request in flight | the endpoint's slot | the endpoint, packet by packet | nobody |
//! | in a [`TxBatch`](crate::backend::TxBatch) | still the slot; the batch holds a `BodyRef` | nobody | the backend |
//! | posted to hardware that reads memory itself | still the slot | nobody before `Backend::flush` if it was a retransmission | the device |
//! | handed back by a completion | the application | the application | the application |
//! | dropped | the pool, once the last `BodyRef` is gone too | the next `alloc` | - |
//!
//! A `MsgBuf` is the only writer. A `BodyRef` keeps the memory alive and readable; writing to a
//! `MsgBuf` while one exists is a bug in this crate and panics.
//!
//! # Layout of a block
//!
//! As in figure 2 of the paper: data is contiguous, and the first packet's header room lies
//! directly in front of it. A DMA backend writes the header there ([`HeaderRoom`]), and so sends a
//! message's first packet as one segment; the verbs backend does. The header rooms of later packets
//! lie after the data's full capacity.
//!
//! ```text
//! 0        16                64                     64 + capacity
//! | links  | first header    | data                 | later headers ... |
//! | 16     | HEADER_ROOM 48  | capacity             | LATER_HEADER_ROOM each |
//! ```
//!
//! # Checking the unsafe code
//!
//! Miri is not always to be had; AddressSanitizer and ThreadSanitizer are (the latter for this
//! module only: it does not see the standard library's mutexes):
//!
//! ```text
//! RUSTFLAGS=-Zsanitizer=address RUSTC_BOOTSTRAP=1 \
//!     cargo test -p trine-transport --target x86_64-unknown-linux-gnu --lib buf
//! RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" RUSTC_BOOTSTRAP=1 \
//!     cargo test -p trine-transport --target x86_64-unknown-linux-gnu --lib buf
//! ```
#![allow(unsafe_code)]

mod blocks;
mod header_room;
mod msg_buf;
mod pool;
mod region;

pub use header_room::HeaderRoom;
pub use msg_buf::{BodyRef, CapacityExceeded, MsgBuf};
pub use pool::{ClassStats, Pool, PoolConfig, PoolStats};
pub use region::{HeapRegions, Region, RegionAllocator};

/// The largest message, in bytes of data (the paper's 8 MB).
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// Bytes in front of the data that a backend may fill with the first packet's header.
pub const HEADER_ROOM: usize = 48;

/// Bytes after the data for the header of each later packet.
pub const LATER_HEADER_ROOM: usize = 32;

/// Later header rooms are counted for packets that carry at least this much data.
const PACKET_DATA_MIN: usize = 960;

#[cfg(test)]
mod tests;
