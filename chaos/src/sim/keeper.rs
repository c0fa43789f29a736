//! The administrator of a simulated group's users: adds them, gives them other keys, and removes them, while everything
//! else goes on. It also reads what users wrote.

use super::Host;
use super::keys::GroupKeys;
use super::trust::Ledger;
use super::users::{PREFIXES, any_key};
use std::cell::RefCell;
use std::rc::Rc;
use trine_client::{ClientId, Clients, Finished, Mode, Submission};
use trine_keys::{Role, UserName};
use trine_kvstore::{Command, Response, Rights, StoreError, User};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

/// How many users there are at most at a time.
pub(crate) const USERS_MAX: usize = 3;
/// Longest pause between two changes.
const PAUSE_MAX_NS: u64 = 1_500_000_000;
/// Pause between two readings of a key.
const READ_EVERY: Duration = Duration::from_millis(40);
/// How long a command has. Then nobody knows what it did, and the user is removed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Tags of readings: above all numbers of changes.
const READ_TAG: u64 = 1 << 63;

/// What the administrator is doing.
#[derive(Clone)]
enum Change {
    Add {
        name: UserName,
        role: Role,
        prefix: &'static [u8],
    },
    Rotate {
        name: UserName,
        role: Role,
        prefix: Vec<u8>,
    },
    Remove {
        name: UserName,
    },
}

/// The administrator's machine, with the group's key file.
pub(crate) struct Keeper {
    pub(crate) clients: Clients<Host>,
    id: ClientId,
    ledger: Rc<RefCell<Ledger>>,
    prng: Prng,
    next_change: Instant,
    next_read: Instant,
    busy: Option<Change>,
    reading: Option<Vec<u8>>,
    /// Names that nobody knows the state of.
    to_remove: Vec<UserName>,
    /// Grants whose holders have not started yet.
    to_start: Vec<usize>,
    names: u32,
    /// Changes that were done.
    pub(crate) done: u64,
}

impl Keeper {
    /// None if its client library has no room, which does not happen.
    pub(crate) fn new(
        mut clients: Clients<Host>,
        ledger: Rc<RefCell<Ledger>>,
        prng: Prng,
        first: Instant,
    ) -> Option<Self> {
        let id = clients.open()?;
        Some(Self {
            clients,
            id,
            ledger,
            prng,
            next_change: first,
            next_read: first,
            busy: None,
            reading: None,
            to_remove: Vec::new(),
            to_start: Vec::new(),
            names: 0,
            done: 0,
        })
    }

    /// The next grant whose holder is to start.
    pub(crate) fn next_to_start(&mut self) -> Option<usize> {
        (!self.to_start.is_empty()).then(|| self.to_start.remove(0))
    }

    pub(crate) fn next_call(&self) -> Option<Instant> {
        let change = self.busy.is_none().then_some(self.next_change);
        let read = self.reading.is_none().then_some(self.next_read);
        [change, read].into_iter().flatten().min()
    }

    /// Calls what is due.
    pub(crate) fn call(&mut self, now: Instant, simulated: Instant) {
        if self.reading.is_none() && self.next_read <= simulated {
            self.next_read = simulated + READ_EVERY;
            self.read(now);
        }
        if self.busy.is_none() && self.next_change <= simulated {
            let pause = self.prng.below(PAUSE_MAX_NS);
            self.next_change = simulated + Duration::from_nanos(pause);
            self.change(now, simulated);
        }
    }

    fn read(&mut self, now: Instant) {
        let key = any_key(&mut self.prng);
        let submission = Submission {
            mode: Mode::Read,
            command: &Command::Get { key: &key },
            deadline: Some(now + PATIENCE),
            tag: READ_TAG,
        };
        if self.clients.submit(now, self.id, submission).is_ok() {
            self.reading = Some(key);
        }
    }

    fn change(&mut self, now: Instant, simulated: Instant) {
        let change = self.draw();
        let issuer = GroupKeys::issuer();
        let command = match &change {
            Change::Add { name, role, prefix } => Command::AddUser {
                issuer,
                name: *name,
                rights: Rights {
                    role: *role,
                    front: is_front(*name),
                    prefix,
                },
            },
            Change::Rotate { name, .. } => Command::RotateUser {
                issuer,
                name: *name,
            },
            Change::Remove { name } => Command::RemoveUser { name: *name },
        };
        if let Change::Rotate { name, .. } | Change::Remove { name } = change {
            self.ledger.borrow_mut().begin_to_revoke(name, simulated);
        }
        let submission = Submission {
            mode: Mode::Write,
            command: &command,
            deadline: Some(now + PATIENCE),
            tag: 0,
        };
        match self.clients.submit(now, self.id, submission) {
            Ok(()) => self.busy = Some(change),
            Err(_) => self.to_remove.extend(name_of(&change)),
        }
    }

    fn draw(&mut self) -> Change {
        if let Some(name) = self.to_remove.pop() {
            return Change::Remove { name };
        }
        let ledger = self.ledger.borrow();
        let standing = ledger.standing();
        let prng = &mut self.prng;
        if standing.is_empty() || (standing.len() < USERS_MAX && prng.chance(Ratio::percent(60))) {
            self.names += 1;
            let name = format!("u{}", self.names);
            let name = UserName::new(name.as_bytes()).expect("a short name");
            let role = [Role::Read, Role::Write, Role::Write, Role::Admin];
            let role = role[prng.below(4) as usize];
            let prefix = match role {
                Role::Admin => b"",
                _ => [b"", PREFIXES[0], PREFIXES[1]][prng.below(3) as usize],
            };
            return Change::Add { name, role, prefix };
        }
        let grant = ledger.grant(standing[prng.below(standing.len() as u64) as usize]);
        let name = grant.name;
        match prng.chance(Ratio::percent(40)) {
            true => Change::Rotate {
                name,
                role: grant.role,
                prefix: grant.prefix.clone(),
            },
            false => Change::Remove { name },
        }
    }

    /// Takes in what is over.
    pub(crate) fn collect(&mut self, simulated: Instant) {
        while let Some(finished) = self.clients.poll_finished() {
            if finished.tag == READ_TAG {
                self.has_read(&finished);
            } else if let Some(change) = self.busy.take() {
                self.has_changed(change, &finished, simulated);
            }
        }
    }

    fn has_read(&mut self, finished: &Finished) {
        let key = self.reading.take().unwrap_or_default();
        let answer = finished.result.as_ref().ok();
        let response = answer.and_then(|answer| answer.response().ok());
        if let Some(Response::Value { value, .. }) = response {
            self.ledger.borrow_mut().read(&key, value);
        }
    }

    fn has_changed(&mut self, change: Change, finished: &Finished, simulated: Instant) {
        let answer = finished.result.as_ref().ok();
        let Some(response) = answer.and_then(|answer| answer.response().ok()) else {
            return self.to_remove.extend(name_of(&change));
        };
        let mut ledger = self.ledger.borrow_mut();
        match (&change, response) {
            (Change::Add { name, role, prefix }, Response::User(user)) => {
                let grant = give(&mut ledger, &user, *name, *role, prefix);
                self.to_start.push(grant);
                self.done += 1;
            }
            (Change::Rotate { name, role, prefix }, Response::User(user)) => {
                ledger.revoke(*name, user.generation, simulated);
                let grant = give(&mut ledger, &user, *name, *role, prefix);
                self.to_start.push(grant);
                self.done += 1;
            }
            // Another member may be too old to know users, or the room for replies is used up.
            (Change::Add { .. }, _) => {}
            (Change::Remove { name }, Response::Error(StoreError::UnknownUser)) => {
                ledger.revoke(*name, u32::MAX, simulated);
            }
            (Change::Remove { .. } | Change::Rotate { .. }, Response::Error(_)) => {
                drop(ledger);
                self.to_remove.extend(name_of(&change));
            }
            (Change::Remove { name }, _) => {
                ledger.revoke(*name, u32::MAX, simulated);
                self.done += 1;
            }
            (Change::Rotate { .. }, other) => {
                ledger.blame(format!("trust: a rotated user is answered with {other:?}"));
            }
        }
    }
}

/// Notes the key of a user. The group has given its number and its generation.
fn give(ledger: &mut Ledger, user: &User<'_>, name: UserName, role: Role, prefix: &[u8]) -> usize {
    let grant = ledger.add(name, user.generation, role, prefix);
    let given = ledger.grant_mut(grant);
    (given.number, given.is_front) = (user.number, is_front(name));
    grant
}

/// Every third user is a front. The name says it, so that it costs no random number: seeds mean what they meant.
fn is_front(name: UserName) -> bool {
    let number = name.as_str().trim_start_matches('u').parse::<u32>();
    number.is_ok_and(|number| number.is_multiple_of(3))
}

fn name_of(change: &Change) -> Option<UserName> {
    match change {
        Change::Add { name, .. } | Change::Rotate { name, .. } | Change::Remove { name } => {
            Some(*name)
        }
    }
}
