//! One logical client: its session with the group and the operations that wait for it.

use std::collections::VecDeque;
use std::fmt;

use trine_transport::slab::Key;

use super::window::Window;

/// How far the client's session has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Registration {
    /// Nothing has been written yet: clients that only read never register.
    None,
    /// A registration is under way: this operation.
    Pending(Key),
    /// The session that the log gave.
    Done(NamedSession),
}

/// A session with the group: a client's own, or one that the caller keeps. Who knows both numbers, and is its user, can give
/// commands in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NamedSession {
    /// The client id: the position of the registration. For [`Clients::open_session`](crate::Clients::open_session), the
    /// position of its answer.
    pub client: u64,
    /// The number that was drawn for the registration; every write repeats it.
    pub number: u64,
}

/// Without the number, which is a secret.
impl fmt::Debug for NamedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut session = f.debug_struct("NamedSession");
        session
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Logical {
    pub(super) registration: Registration,
    /// Counts the sessions that this client has had.
    pub(super) epoch: u32,
    pub(super) window: Window,
    /// Operations that the caller has not got back yet.
    pub(super) in_flight: usize,
    /// Writes without a sequence, in the order of their submission. May name operations that are over.
    pub(super) waiting: VecDeque<Key>,
    /// Whether the last command was submitted, or the caller gave the client up: nothing more is taken.
    pub(super) closing: bool,
}

impl Logical {
    pub(super) fn new() -> Self {
        Self {
            registration: Registration::None,
            epoch: 0,
            window: Window::new(),
            in_flight: 0,
            waiting: VecDeque::new(),
            closing: false,
        }
    }

    /// The session is gone: the next write needs another one.
    pub(super) fn forget_session(&mut self) {
        self.registration = Registration::None;
        self.epoch = self.epoch.wrapping_add(1);
        self.window = Window::new();
    }
}
