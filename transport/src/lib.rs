//! Reliable RPC over unreliable packets.

pub mod app;
pub mod backend;
pub mod buf;
pub mod config;
mod congestion;
pub mod endpoint;
pub mod event_loop;
pub mod prng;
mod rpc;
pub mod session;
pub mod stats;
pub mod time;
mod timing_wheel;
pub mod wire;
pub mod worker;

pub use app::{
    App, Completion, Cx, Refused, RefusedReason, Reply, Request, RequestId, ResponseHandle,
    RpcError, Stale,
};
pub use config::{Config, ConfigError, CongestionConfig};
pub use endpoint::{Endpoint, Transmit};
pub use event_loop::{EventLoop, LoopStats};
pub use session::{
    ConnectError, ConnectParams, ConnectRefused, DownReason, Event, Identity, PeerInfo, SessionId,
};
pub use stats::{Drops, EndpointStats, RttHistogram, SessionStats};
pub use worker::{WithWorkers, WorkerStats};

#[cfg(test)]
mod tests;
