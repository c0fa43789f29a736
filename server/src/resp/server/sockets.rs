//! The listening socket, and where sockets report what they are ready for.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use trine_transport::slab::Key;

use super::{CHECKED, LISTENER};

/// The most events taken in one poll.
const EVENTS_MAX: usize = 1024;

/// The sockets of a server.
pub(super) struct Sockets {
    poll: Poll,
    events: Events,
    listener: TcpListener,
    address: SocketAddr,
}

impl Sockets {
    /// Listens at `address`.
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let mut listener = TcpListener::bind(address)?;
        let poll = Poll::new()?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            address: listener.local_addr()?,
            listener,
        })
    }

    /// The address on which it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What wakes the server once a password was compared.
    pub(super) fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), CHECKED)
    }

    /// A descriptor that is readable when [`Sockets::poll`] would find something.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.poll.registry().as_fd().try_clone_to_owned()
    }

    /// Takes the events without waiting. [`Sockets::give_back`] takes them back. None if the system was interrupted: the
    /// next turn polls again.
    pub(super) fn poll(&mut self) -> Option<Events> {
        let polled = self
            .poll
            .poll(&mut self.events, Some(std::time::Duration::ZERO));
        polled.ok()?;
        Some(std::mem::replace(
            &mut self.events,
            Events::with_capacity(0),
        ))
    }

    /// Takes back the memory of events.
    pub(super) fn give_back(&mut self, events: Events) {
        self.events = events;
    }

    /// The next client that waits.
    pub(super) fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.listener.accept()
    }

    /// From now on a client's socket reports under its key.
    pub(super) fn register(&self, socket: &mut TcpStream, key: Key) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(socket, token(key), both)
    }

    /// A client's socket reports no more.
    pub(super) fn deregister(&self, socket: &mut TcpStream) {
        let _ = self.poll.registry().deregister(socket);
    }
}

/// The token of a client's socket.
fn token(key: Key) -> Token {
    Token(key.to_u64() as usize)
}

/// The client whose socket has this token.
pub(super) fn key_of(token: Token) -> Key {
    Key::from_u64(token.0 as u64)
}
