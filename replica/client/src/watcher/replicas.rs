//! The replicas that a stream may have, whose turn it is, and what they object to it.
//!
//! Invariant: there is a place for the objection of each replica.

use std::net::SocketAddr;

use trine_kvstore::Position;
use trine_transport::backend::Route;

use super::config::WatchError;
use super::objections::{Objection, Objections};

/// Addresses that a stream asks at, those that were added included.
const ADDRESSES_MAX: usize = 16;

pub(super) struct WatchReplicas<R> {
    routes: Vec<(SocketAddr, Option<R>)>,
    /// The one whose turn it is.
    at: usize,
    objections: Objections,
}

impl<R: Route> WatchReplicas<R> {
    /// `seed` says which one is first.
    pub(super) fn new(routes: Vec<(SocketAddr, Option<R>)>, seed: u64) -> Self {
        let count = routes.len().max(1);
        Self {
            routes,
            at: (seed % count as u64) as usize,
            objections: Objections::of(count),
        }
    }

    /// See [`WatchStream::add_address`](super::WatchStream::add_address).
    pub(super) fn add(&mut self, address: SocketAddr, route: Option<R>) {
        let count = self.routes.len();
        if self.routes.iter().any(|(known, _)| *known == address) {
            return;
        }
        if count < ADDRESSES_MAX {
            self.routes.push((address, route));
            self.objections.add_replica();
        } else {
            self.routes[(self.at + count - 1) % count] = (address, route);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.routes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The address of the one whose turn it is.
    pub(super) fn address(&self) -> SocketAddr {
        self.routes[self.at].0
    }

    /// And the route to it.
    pub(super) fn route(&self) -> Option<R> {
        self.routes[self.at].1
    }

    /// That one does not serve the stream, which has everything up to `known`: it is the next one's turn. Returns what the
    /// objections mean, if they are final.
    pub(super) fn object(&mut self, objection: Objection, known: Position) -> Option<WatchError> {
        let end = self.objections.add(self.at, objection, known);
        self.at = (self.at + 1) % self.routes.len();
        end
    }

    /// Whether every one was tried just as often as every other.
    pub(super) fn is_round(&self) -> bool {
        self.objections.is_round()
    }

    /// Whether every one was tried since the stream was served last.
    pub(super) fn are_all_tried(&self) -> bool {
        self.objections.is_late()
    }

    /// The stream is served.
    pub(super) fn forget_objections(&mut self) {
        self.objections.clear();
    }
}
