//! The tests of the command from outside, as one program, because each further program has to be linked and waits for
//! the previous one. `tidy` has a separate step in the gate, and so has `redis` (`--test tidy`, `redis::`). `dpdk`
//! needs its feature.

mod backup;
mod bad_keys;
mod bench;
mod cache;
mod capture;
mod chaos;
mod common;
mod companion;
mod config;
mod debug;
mod disk;
mod end_to_end;
mod fork;
mod given_up;
mod hostile;
mod index;
mod interrupted;
mod key_changes;
mod keys;
mod limits;
mod member;
mod metrics;
mod names;
mod net;
mod observe;
mod ordered;
mod output;
mod packaging;
mod packet_sizes;
mod paths;
mod paused;
mod progress;
mod readme;
mod redis;
mod rejoin;
mod sequencer;
mod shell;
mod sim;
mod timing;
mod transfer;
mod up_kept;
mod up_key;
mod user;
mod watch;
