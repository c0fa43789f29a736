//! A sequencer as values without I/O: numbers that come once, and that grow.
//!
//! | file | answers |
//! |---|---|
//! | `wire.rs` | which messages do callers and servers exchange? |
//! | `supply.rs` | which numbers may the threads of a server give out, and until when? |
//! | `taker.rs` | how are the numbers of a turn's requests taken? |
//! | `dispatch.rs` | how does one thread answer? |
//! | `speculative/` | how are numbers given out by datagrams of four bytes? |
//! | `epoch.rs` | which numbers does a server have that keeps its state in a file? |
//! | `record.rs` | what does a group of replicas keep for a sequencer? |
//! | `tenure.rs` | when does a server write that record, and what may it do then? |
//!
//! `trine sequencer` (crate `trine-apps`) adds files, the group and the network. The simulator (`chaos/src/sim/numbers.rs`)
//! adds simulated ones.

pub mod config;
mod dispatch;
mod epoch;
mod record;
pub mod speculative;
mod supply;
mod taker;
mod tenure;
pub mod wire;

pub use self::dispatch::{Denial, Dispatch, Gate, Need};
pub use self::epoch::{BadEpoch, Block, block_of, next_epoch, read_epoch, write_epoch};
pub use self::record::{BadRecord, Record};
pub use self::supply::{Supply, Why};
pub use self::tenure::{Ask, Grant, GroupAnswer, Next, Refused, Tenure, Terms, Version};
