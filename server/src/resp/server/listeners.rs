//! Clients that are told of keys without asking: who they are, how they are reached, and whether they still may hear it.

use trine_kvstore::{Command, Response};
use trine_resp::{Broker, Call, Clients, Connection, Failure as CallFailure};
use trine_transport::slab::Key;

use super::client::Client;
use super::reports::Topic;
use super::seats::Seats;
use super::tagged::{Begin, Task};
use super::{CHECKS_USERS, Server, USERS_BYTES};

/// The connections of a server, by their numbers.
struct Present<'a> {
    seats: &'a mut Seats,
    /// A client that is told more beyond this is disconnected.
    held_max: usize,
}

impl Clients for Present<'_> {
    fn with(&mut self, client: u64, tell: &mut dyn FnMut(&mut Connection)) {
        let Some(key) = self.seats.find(client) else {
            return;
        };
        let Some(client) = self.seats.get_mut(key) else {
            return;
        };
        let before = client.connection.output_capacity();
        tell(&mut client.connection);
        let grown = client.connection.output_capacity();
        // The rest of its memory is counted in its turn.
        if grown > before && self.seats.grow(key, grown - before) > self.held_max {
            self.cut_off(key);
        }
        self.seats.mark(key);
    }
}

impl Present<'_> {
    fn cut_off(&mut self, key: Key) {
        if let Some(client) = self.seats.get_mut(key) {
            client.connection.cut_off();
        }
    }
}

/// Whether a client is a user of the group to whom this server tells something on its own account: it is told of keys, or
/// sees what other clients do.
pub(super) fn is_checked(client: &Client) -> bool {
    let identity = client.connection.identity();
    identity.is_some_and(|identity| identity.administers || client.connection.is_listening())
}

impl Server {
    /// Whether a client needs the stream of changes.
    pub(in super::super) fn needs_stream(&self) -> bool {
        self.broker.borrow().needs_stream()
    }

    /// Lets the broker tell clients something.
    pub(in super::super) fn tell(&mut self, tell: impl FnOnce(&mut Broker, &mut dyn Clients)) {
        let mut present = Present {
            seats: &mut self.seats,
            held_max: self.options.memory + self.options.memory / 2,
        };
        tell(&mut self.broker.borrow_mut(), &mut present);
    }

    /// Changes were forgotten before clients were told.
    pub(in super::super) fn note_gap(&mut self) {
        self.stats.gaps += 1;
        if !self.reports.allows(Topic::Gap, self.now) {
            return;
        }
        tracing::warn!(
            times = self.stats.gaps,
            "Redis clients that track keys must drop all of them, and subscribers miss events: \
             changes came faster than they were read; a larger --watch-history holds more of them"
        );
    }

    /// Brings the table of tracked keys back to its limits.
    pub(super) fn trim(&mut self) {
        if self.broker.borrow().is_beyond() {
            self.tell(|broker, clients| broker.trim(clients));
        }
    }

    /// Users whom the group does not check may have been removed meanwhile: the group is asked.
    pub(super) fn ask_for_users(&mut self, begin: &mut Begin<'_>) {
        let mut clients = self.seats.iter();
        if self.checks_users || !clients.any(|(_, client)| is_checked(client)) {
            return;
        }
        let call = Call {
            command: &Command::ListUsers,
            read_only: true,
            response_bytes: USERS_BYTES,
            for_user: None,
            numbered: None,
        };
        self.checks_users = begin(CHECKS_USERS, Task::Call(&call)).is_ok();
    }

    /// Who is not the user any more as whom it came is disconnected. Without an answer nothing is known.
    pub(super) fn on_users(&mut self, result: Result<Response<'_>, CallFailure>) {
        self.checks_users = false;
        let Ok(Response::Users(users)) = result else {
            return;
        };
        let is_gone = |client: &mut Client| {
            let identity = client.connection.identity().filter(|_| is_checked(client));
            identity.is_some_and(|identity| {
                !users.iter().any(|user| {
                    user.number == identity.on_behalf.number
                        && user.generation == identity.on_behalf.generation
                        && user.prefix == identity.prefix
                })
            })
        };
        let disconnected = self.close_all(is_gone);
        if disconnected > 0 {
            tracing::info!(
                disconnected,
                "Redis clients were told of keys, or of other clients, as users who were changed or removed"
            );
        }
    }
}
