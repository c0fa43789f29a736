//! Which connection belongs to a session of a peer; looked up for each packet that may use one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::route::VerbsRoute;

/// A peer's queue pair and a session index.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct ConnectionKey {
    gid: [u8; 16],
    lid: u16,
    queue_pair: u32,
    session: u16,
}

/// Numbers of connections by peer and session.
#[derive(Default)]
pub(super) struct ConnectionIndex(HashMap<ConnectionKey, u16, BuildHasherDefault<KeyHasher>>);

impl ConnectionIndex {
    /// Room for so many: it takes no further memory.
    pub(super) fn with_capacity(names: usize) -> Self {
        // Removed entries keep their places for a while.
        Self(HashMap::with_capacity_and_hasher(
            2 * names,
            BuildHasherDefault::default(),
        ))
    }

    #[inline]
    pub(super) fn get(&self, route: &VerbsRoute, session: u16) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&name(route, session)).copied().map(usize::from)
    }

    pub(super) fn insert(&mut self, route: &VerbsRoute, session: u16, number: usize) {
        self.0.insert(name(route, session), number as u16);
    }

    /// Removes the name if it is still this connection's.
    pub(super) fn remove(&mut self, route: &VerbsRoute, session: u16, number: usize) {
        let name = name(route, session);
        if self.0.get(&name) == Some(&(number as u16)) {
            self.0.remove(&name);
        }
    }
}

fn name(route: &VerbsRoute, session: u16) -> ConnectionKey {
    ConnectionKey {
        gid: route.gid,
        lid: route.lid,
        queue_pair: route.queue_pair,
        session,
    }
}

/// Cheap, and without a secret: a peer that makes names collide slows down at most the few connections that there are.
#[derive(Default)]
pub(super) struct KeyHasher(u64);

impl KeyHasher {
    #[inline]
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for KeyHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.add(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u16(&mut self, word: u16) {
        self.add(word.into());
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.add(word.into());
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.add(word as u64);
    }
}
