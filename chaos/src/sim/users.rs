//! The clients of users: each has a key of its own, and asks for what it may do and for what it may not.

use super::Host;
use super::trust::{AnswerRoute, Grant, Ledger, UserRequest};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use trine_client::{ClientId, Clients, Mode, Submission};
use trine_kvstore::{Command, ExecuteMode, List, Response};
use trine_protocol::message::ForUser;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

/// Mean pause between two calls of a user.
const PAUSE: Duration = Duration::from_millis(30);
/// How long a call has.
const PATIENCE: Duration = Duration::from_secs(5);
/// Calls that one user has open at most.
const OPEN_MAX: usize = 4;
/// How often a user with a prefix names a key that begins with it.
const OWN: Ratio = Ratio::percent(70);
/// How often a user calls in the session of another.
const THEFT: Ratio = Ratio::percent(4);
/// How often a front names another user.
const ACTING: Ratio = Ratio::percent(60);
/// Keys with one beginning.
const KEYS: u64 = 4;
/// What keys of users begin with, of which a user may have one as its prefix.
pub(crate) const PREFIXES: [&[u8]; 3] = [b"user/a", b"user/b", b"user/"];

/// A machine that has a user's key.
pub(crate) struct User {
    pub(crate) clients: Clients<Host>,
    id: ClientId,
    grant: usize,
    ledger: Rc<RefCell<Ledger>>,
    prng: Prng,
    next_call: Instant,
    /// By number; with the session of another user, if it is called there.
    open: BTreeMap<u64, Option<Theft>>,
}

/// A call in the session of another user.
#[derive(Copy, Clone)]
struct Theft {
    client: ClientId,
    session: (u64, u64),
}

/// A key of a user: one that anybody's rights may be asked about.
pub(crate) fn any_key(prng: &mut Prng) -> Vec<u8> {
    let prefix = PREFIXES[prng.below(PREFIXES.len() as u64) as usize];
    [prefix, format!("{}", prng.below(KEYS)).as_bytes()].concat()
}

impl User {
    /// None if its client library has no room, which does not happen.
    pub(crate) fn new(
        mut clients: Clients<Host>,
        grant: usize,
        ledger: Rc<RefCell<Ledger>>,
        prng: Prng,
        first_call: Instant,
    ) -> Option<Self> {
        let id = clients.open()?;
        Some(Self {
            clients,
            id,
            grant,
            ledger,
            prng,
            next_call: first_call,
            open: BTreeMap::new(),
        })
    }

    pub(crate) fn next_call(&self) -> Option<Instant> {
        (self.open.len() < OPEN_MAX).then_some(self.next_call)
    }

    /// Calls what is due.
    pub(crate) fn call(&mut self, now: Instant, simulated: Instant) {
        if self.open.len() >= OPEN_MAX || self.next_call > simulated {
            return;
        }
        let pause = self.prng.below(PAUSE.as_nanos() * 2);
        self.next_call = simulated + Duration::from_nanos(pause);
        let theft = self.theft();
        let (ask, mode) = match theft {
            Some(_) => (UserRequest::Put(self.own_key()), Mode::Write),
            None => self.draw(),
        };
        let acting_for = match theft {
            Some(_) => None,
            None => self.named(),
        };
        let way = match mode {
            Mode::ReadStale => AnswerRoute::Stale,
            Mode::ReadFollower | Mode::ReadAnywhere => AnswerRoute::Here,
            Mode::Read | Mode::Write | Mode::WriteAndClose => AnswerRoute::Led,
        };
        let number =
            self.ledger
                .borrow_mut()
                .call(self.grant, acting_for, ask.clone(), way, simulated);
        let for_user = acting_for.map(|other| {
            let ledger = self.ledger.borrow();
            let Grant {
                number, generation, ..
            } = *ledger.grant(other);
            ForUser { number, generation }
        });
        let client = theft.map_or(self.id, |theft| theft.client);
        let submission = |command: &Command<'_>, clients: &mut Clients<Host>| {
            let submission = Submission {
                mode,
                command,
                deadline: Some(now + PATIENCE),
                tag: number as u64,
            };
            match for_user {
                Some(user) => clients.submit_for(now, client, user, submission).is_ok(),
                None => clients.submit(now, client, submission).is_ok(),
            }
        };
        let begun = with_command(&ask, number, |command| {
            submission(command, &mut self.clients)
        });
        if begun {
            self.open.insert(number as u64, theft);
        } else if let Some(theft) = theft {
            self.clients.close(theft.client);
        }
    }

    /// Whom a front names: another user, whatever that one may do.
    fn named(&mut self) -> Option<usize> {
        let ledger = self.ledger.borrow();
        if !ledger.grant(self.grant).is_front || !self.prng.chance(ACTING) {
            return None;
        }
        let others = ledger.others(self.grant);
        let place = self.prng.below(others.len().max(1) as u64) as usize;
        others.get(place).copied()
    }

    /// Now and then the session of another user, whose number this one has found out.
    fn theft(&mut self) -> Option<Theft> {
        if !self.prng.chance(THEFT) {
            return None;
        }
        let ledger = self.ledger.borrow();
        // A front may use sessions of users, and then acts for them.
        if ledger.grant(self.grant).is_front {
            return None;
        }
        let sessions = ledger.sessions_of_others(ledger.grant(self.grant).name);
        drop(ledger);
        let place = self.prng.below(sessions.len().max(1) as u64) as usize;
        let session = *sessions.get(place)?;
        let client = self.clients.open()?;
        self.clients.use_group_session(client, session);
        Some(Theft { client, session })
    }

    fn own_key(&mut self) -> Vec<u8> {
        let prefix = self.ledger.borrow().grant(self.grant).prefix.clone();
        [&prefix[..], b"user/own"].concat()
    }

    /// Mostly one that it may touch.
    fn key(&mut self) -> Vec<u8> {
        let ledger = self.ledger.borrow();
        let prefix = &ledger.grant(self.grant).prefix;
        match !prefix.is_empty() && self.prng.chance(OWN) {
            true => [prefix, format!("{}", self.prng.below(KEYS)).as_bytes()].concat(),
            false => any_key(&mut self.prng),
        }
    }

    fn draw(&mut self) -> (UserRequest, Mode) {
        let keys = [self.key(), self.key()];
        let [key, other] = keys;
        let prng = &mut self.prng;
        let read = match prng.below(10) {
            0 => Mode::ReadAnywhere,
            1 => Mode::ReadStale,
            2 => Mode::ReadFollower,
            _ => Mode::Read,
        };
        match prng.below(100) {
            0..45 => (UserRequest::Put(key), Mode::Write),
            45..75 => (UserRequest::Get(vec![key]), read),
            75..85 => (UserRequest::Get(vec![key, other]), read),
            85..92 => (UserRequest::Execute(key), Mode::Write),
            92..96 => (UserRequest::Count, read),
            _ => (UserRequest::Administrate, Mode::Write),
        }
    }

    /// Takes in what is over.
    pub(crate) fn collect(&mut self) {
        let mut ledger = self.ledger.borrow_mut();
        ledger.grant_mut(self.grant).session = self.clients.group_session(self.id);
        while let Some(finished) = self.clients.poll_finished() {
            let number = finished.tag as usize;
            let Some(theft) = self.open.remove(&finished.tag) else {
                continue;
            };
            let Ok(answer) = &finished.result else {
                if let Some(theft) = theft {
                    self.clients.close(theft.client);
                }
                continue;
            };
            let response = answer.response().expect("it was decoded once");
            judge(&mut ledger, number, &response);
            let Some(theft) = theft else {
                continue;
            };
            // One that was told "session expired" has registered one of its own by now.
            if self.clients.group_session(theft.client) == Some(theft.session)
                && !matches!(response, Response::Denied { .. })
            {
                let name = ledger.grant(self.grant).name;
                let session = theft.session.0;
                ledger.blame(format!(
                    "trust: call {number} of user {name} was answered in session {session} of somebody else"
                ));
            }
            self.clients.close(theft.client);
        }
    }
}

/// Compares an answer with the rules.
fn judge(ledger: &mut Ledger, number: usize, response: &Response<'_>) {
    let denied = match response {
        Response::Denied { reason } => Some(*reason),
        _ => None,
    };
    if let Some(reason) = denied {
        return ledger.deny(number, reason);
    }
    ledger.answer(number);
    let Some(UserRequest::Get(keys)) = ledger.ask_of(number) else {
        return;
    };
    match response {
        Response::Value { value, .. } => ledger.read(&keys[0], value),
        Response::List(list) => {
            for (key, response) in keys.iter().zip(list.iter()) {
                if let Response::Value { value, .. } = response {
                    ledger.read(key, value);
                }
            }
        }
        _ => {}
    }
}

/// Makes the command that is asked for. What is written is the call's number.
fn with_command<T>(ask: &UserRequest, number: usize, then: impl FnOnce(&Command<'_>) -> T) -> T {
    let value = number.to_string();
    let value = value.as_bytes();
    match ask {
        UserRequest::Put(key) => then(&Command::Put { key, value }),
        UserRequest::Get(keys) => match &keys[..] {
            [key] => then(&Command::Get { key }),
            keys => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                then(&Command::MultiGet {
                    keys: List::from(&keys[..]),
                })
            }
        },
        UserRequest::Execute(key) => {
            let operations = [Command::Put { key, value }];
            then(&Command::Execute {
                mode: ExecuteMode::AllOrNothing,
                conditions: List::from(&[]),
                operations: List::from(&operations),
            })
        }
        UserRequest::Count => then(&Command::Count),
        UserRequest::Administrate => then(&Command::SetMemory {
            memory_bytes: 1 << 30,
        }),
    }
}
