//! Open connections of the metrics endpoint, and which of them makes room for a new one.
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
    connections: Mutex<Vec<OpenConnection>>,
    /// A slot was given back, or may be taken away from its connection.
    freed: Condvar,
}

struct OpenConnection {
    stream: Arc<TcpStream>,
    stage: ConnectionStage,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum ConnectionStage {
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
pub(super) struct ConnectionSlot {
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
    ) -> Option<ConnectionSlot> {
        // The displaced connection's thread gives its slot back, so that there are never more threads than slots.
        let (mut connections, _) = self
            .freed
            .wait_timeout_while(self.lock(), patience, |connections| make_room(connections))
            .unwrap_or_else(PoisonError::into_inner);
        if connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        let is_known = |one: &OpenConnection| Arc::ptr_eq(&one.stream, stream);
        assert!(
            !connections.iter().any(is_known),
            "a connection has one slot"
        );
        connections.push(OpenConnection {
            stream: Arc::clone(stream),
            stage: ConnectionStage::Asking,
        });
        Some(ConnectionSlot {
            slots: Arc::clone(self),
            stream: Arc::clone(stream),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OpenConnection>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a new connection has to wait for a slot. If so, one that is not being answered is on its way out.
fn make_room(connections: &mut [OpenConnection]) -> bool {
    assert!(
        connections.len() <= CONNECTIONS_MAX,
        "each connection has a slot"
    );
    if connections.len() < CONNECTIONS_MAX {
        return false;
    }
    if connections
        .iter()
        .any(|one| one.stage == ConnectionStage::Displaced)
    {
        return true;
    }
    let oldest = connections
        .iter_mut()
        .find(|one| matches!(one.stage, ConnectionStage::Asking | ConnectionStage::Told));
    let Some(oldest) = oldest else {
        return false;
    };
    oldest.stage = ConnectionStage::Displaced;
    // Its thread waits for bytes, and this ends the wait. The peer may have ended it already.
    let _ = oldest.stream.shutdown(Shutdown::Both);
    true
}

impl ConnectionSlot {
    /// The request is whole: until it is answered, the connection makes room for no other. False if it has made room already.
    pub(super) fn begin_answer(&self) -> bool {
        self.enter(ConnectionStage::Answering)
    }

    /// The answer is sent, or there will be none. From now on the connection makes room again.
    pub(super) fn end_answer(&self) {
        self.enter(ConnectionStage::Told);
        self.slots.freed.notify_all();
    }

    fn enter(&self, stage: ConnectionStage) -> bool {
        let mut connections = self.slots.lock();
        let own = connections
            .iter_mut()
            .find(|one| Arc::ptr_eq(&one.stream, &self.stream));
        match own {
            Some(own) if own.stage != ConnectionStage::Displaced => {
                own.stage = stage;
                true
            }
            _ => false,
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots
            .lock()
            .retain(|one| !Arc::ptr_eq(&one.stream, &self.stream));
        self.slots.freed.notify_all();
    }
}
