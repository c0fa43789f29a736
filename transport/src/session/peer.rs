//! Data that all packets of a session share, on their way out and in.

use super::api::SessionId;
use super::terms::Terms;
use crate::time::Instant;
use crate::wire::{Packet, Seed};

/// Where the packets of a session go, and what is agreed about them.
#[derive(Copy, Clone)]
pub(crate) struct SessionPeer<R> {
    pub(crate) route: R,
    pub(crate) seed: Seed,
    /// The session's index at the peer.
    pub(crate) remote: u16,
    /// The session's index here.
    pub(crate) index: u16,
    pub(crate) terms: Terms,
}

/// A packet that belongs to a session: its route and checksum are right.
pub(crate) struct Received<'a> {
    pub(crate) now: Instant,
    /// When the network delivered it, as far as that is known.
    pub(crate) arrived_at: Instant,
    pub(crate) packet: &'a Packet<'a>,
    pub(crate) session: SessionId,
    pub(crate) terms: Terms,
    /// The network marked congestion on its way.
    pub(crate) ecn: bool,
}
