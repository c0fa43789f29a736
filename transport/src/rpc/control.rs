//! Packets of no request that wait to be sent.

use crate::wire::{Body, Header, Seed};

/// A packet of a handshake, a teardown, a keepalive or a probe.
pub(crate) struct Control<R> {
    pub(super) route: R,
    pub(super) header: Header,
    pub(super) seed: Seed,
    pub(super) body: Option<Body>,
}
