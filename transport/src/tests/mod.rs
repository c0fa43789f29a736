//! Tests of the core: endpoints on virtual time, joined by a network that can do harm.

mod answer_times;
mod basics;
mod budgets;
mod client_handlers;
mod delay;
mod header_checksums;
mod holds;
mod hostile;
mod incast;
mod mutations;
mod net;
mod pacing;
mod packet_sizes;
mod queue;
mod replays;
mod scale;
mod schedules;
mod script;
mod sealed;
mod sealed_handshake;
mod server_handlers;
mod shares;
mod transitions;
mod waits;
