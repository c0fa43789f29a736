//! Sessions: one-to-one connections of two endpoints.

mod api;

pub use api::{
    ConnectError, ConnectParams, ConnectRefused, DownReason, Event, Identity, PeerInfo, SessionId,
};
