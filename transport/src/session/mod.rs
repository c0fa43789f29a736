//! Sessions: one-to-one connections of two endpoints (PROTOCOL.md section 4).
//!
//! Requests of a session are in `rpc/`; here is how sessions come, stay and go.

mod accept;
mod api;
mod connect;
mod keepalive;
mod rtt;
mod secret;
mod state;
mod table;
mod teardown;
mod terms;
mod timers;

pub use api::{
    ConnectError, ConnectParams, ConnectRefused, DownReason, Event, Identity, PeerInfo, SessionId,
};
pub(crate) use rtt::{RtoLimits, Rtt};
pub(crate) use secret::Secret;
pub(crate) use state::{Input, State};
pub(crate) use table::{Handshake, Probing, Role, Session, SessionTable};
pub(crate) use terms::Terms;
