//! Which connections of the metrics endpoint are open, and which of them makes room for a new one?
//!
//! Anybody who reaches the port can connect and say nothing. Such a connection keeps its slot only until another one wants
//! it: a probe has to get in at any time.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Connections that are open at the same time, each with a thread.
pub(super) const CONNECTIONS_MAX: usize = 16;

/// The slots of the open connections.
#[derive(Default)]
pub(super) struct Slots {
    /// The oldest connection first, at most [`CONNECTIONS_MAX`] of them.
    held: Mutex<Vec<Held>>,
    /// A slot was given back, or may be taken away from its connection.
    freed: Condvar,
}

struct Held {
    stream: Arc<TcpStream>,
    stage: Stage,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Its request is not whole yet, and with TLS its handshake may not be either.
    Asking,
    /// Its request is being answered.
    Answering,
    /// It has its answer, and the peer has not hung up yet.
    Told,
    /// Its socket was shut down. Its thread is about to give the slot back.
    Displaced,
}

/// The slot of one connection. It is given back when the value is dropped.
pub(super) struct Slot {
    slots: Arc<Slots>,
    stream: Arc<TcpStream>,
}

impl Slots {
    /// A slot for this connection. If there is none, the oldest connection that is not being answered has to go, and its
    /// thread has `patience` to do so. `None` if all are being answered.
    pub(super) fn take(
        self: &Arc<Self>,
        stream: &Arc<TcpStream>,
        patience: Duration,
    ) -> Option<Slot> {
        // The displaced connection's thread gives its slot back, so that there are never more threads than slots.
        let (mut held, _) = self
            .freed
            .wait_timeout_while(self.lock(), patience, |held| make_room(held))
            .unwrap_or_else(PoisonError::into_inner);
        if held.len() >= CONNECTIONS_MAX {
            return None;
        }
        held.push(Held {
            stream: Arc::clone(stream),
            stage: Stage::Asking,
        });
        Some(Slot {
            slots: Arc::clone(self),
            stream: Arc::clone(stream),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a new connection has to wait for a slot. If so, one that is not being answered is on its way out.
fn make_room(held: &mut [Held]) -> bool {
    if held.len() < CONNECTIONS_MAX {
        return false;
    }
    if held.iter().any(|one| one.stage == Stage::Displaced) {
        return true;
    }
    let oldest = held
        .iter_mut()
        .find(|one| matches!(one.stage, Stage::Asking | Stage::Told));
    let Some(oldest) = oldest else {
        return false;
    };
    oldest.stage = Stage::Displaced;
    // Its thread waits for bytes, and this ends the wait. The peer may have ended it already.
    let _ = oldest.stream.shutdown(Shutdown::Both);
    true
}

impl Slot {
    /// The request is whole: until it is answered, the connection makes room for no other. False if it has made room already.
    pub(super) fn begin_answer(&self) -> bool {
        self.enter(Stage::Answering)
    }

    /// The answer is sent, or there will be none. From now on the connection makes room again.
    pub(super) fn end_answer(&self) {
        self.enter(Stage::Told);
        self.slots.freed.notify_all();
    }

    fn enter(&self, stage: Stage) -> bool {
        let mut held = self.slots.lock();
        let own = held
            .iter_mut()
            .find(|one| Arc::ptr_eq(&one.stream, &self.stream));
        match own {
            Some(own) if own.stage != Stage::Displaced => {
                own.stage = stage;
                true
            }
            _ => false,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots
            .lock()
            .retain(|one| !Arc::ptr_eq(&one.stream, &self.stream));
        self.slots.freed.notify_all();
    }
}
