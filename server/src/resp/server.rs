//! Sockets of Redis clients: accepted, read, written and closed, as the connections' states require.
//!
//! The kernel reports readiness once for each change (edge-triggered), so this module remembers the readiness of each
//! socket. A blocked connection gets no turn until its socket or the group has something new.

mod client;
mod listeners;
mod memory;
mod reports;
mod seats;
mod sockets;
mod tagged;

use std::cell::RefCell;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use mio::Token;
use mio::net::TcpStream;
use trine_keys::KeyRing;
use trine_kvstore::{Position, Response};
use trine_resp::{
    Broker, Classes, Connection, Environment, Failure as CallFailure, Limits, NotKnown, Submit,
};
use trine_transport::slab::Key;
use trine_transport::time::{Duration, Instant};

use self::client::Client;
use self::reports::{RateLimit, Topic};
use self::seats::Seats;
use self::sockets::{Sockets, key_of};
pub(super) use self::tagged::Task;
use self::tagged::{Begin, Tagged};
use super::checker::{Checked, Checker};
use super::info::{KEEPALIVE_IDLE, SharedStats, Stats, View};
use super::passwords::Passwords;
use super::stream::Stream;
use crate::tls::Tls;
use trine_base::failure::{Failure, Trouble};

const LISTENER: Token = Token(usize::MAX);
/// A password was compared.
const CHECKED: Token = Token(usize::MAX - 1);
/// The bytes of one read from a socket.
const READ_BYTES: usize = 64 * 1024;
/// How often one connection reads and writes in one turn, before other connections get theirs.
const ROUNDS_MAX: usize = 8;
/// The interval of two checks. One looks for slow readers. The other retries accepting after the system had no
/// descriptor left.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// A client that has not agreed on the keys of TLS by then is disconnected.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Clients whose handshakes go on in one turn: each costs as much time as hundreds of commands.
const HANDSHAKES_PER_TURN: usize = 4;
/// Room for some hundred users; a longer list is asked for again.
const USERS_BYTES: usize = 16 * 1024;
/// How many questions for a sign of life stay unanswered before a connection ends. They take as long as the time before them.
const KEEPALIVE_PROBES: u32 = 3;
/// The bit of a tag whose call asks for the group's users, because a client has named one. Keys leave it free.
const ASKS_USERS: u64 = 1 << 63;
/// The tag of a call that asks for the group's users, because this server tells some of them what the group does not check.
/// No key has it.
const CHECKS_USERS: u64 = u64::MAX;

/// The server's options.
pub(super) struct Options {
    pub(super) limits: Limits,
    pub(super) password: Option<Vec<u8>>,
    /// Whether clients have to say who they are.
    pub(super) requires_auth: bool,
    /// The group's key file, by which users' keys are known.
    pub(super) ring: Arc<KeyRing>,
    /// The passwords of users, until their thread has them.
    pub(super) passwords: Option<Passwords>,
    pub(super) tls: Option<Tls>,
    pub(super) clients_max: usize,
    /// Events of keys that subscribers are told.
    pub(super) notify: Classes,
    pub(super) slow_reader: Duration,
    /// Bytes that all connections together may hold.
    pub(super) memory: usize,
}

pub(super) struct Server {
    sockets: Sockets,
    options: Options,
    /// Compares passwords, if users have any.
    checker: Option<Checker>,
    seats: Seats,
    /// Who tracks keys, and who subscribes.
    broker: RefCell<Broker>,
    /// The group is asked for its users.
    checks_users: bool,
    scratch: Box<[u8]>,
    /// As of the last poll.
    now: Instant,
    checks: Checks,
    reports: RateLimit,
    stats: Stats,
    shared: SharedStats,
}

/// What is done now and then.
#[derive(Default)]
struct Checks {
    /// When it is done next.
    at: Instant,
    /// Accepting stopped while connections were still waiting.
    accept_again: bool,
    rates: Rates,
}

impl Server {
    /// Listens at `address`.
    pub(super) fn open(address: SocketAddr, mut options: Options) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            let message = format!("cannot serve the Redis protocol at {address}: {error}");
            Failure::usage(message, "choose another port with --resp")
                .with_trouble(Trouble::of(&error))
        };
        let sockets = Sockets::open(address).map_err(cannot)?;
        let start = |passwords| Checker::start(passwords, sockets.waker()?);
        let checker = options.passwords.take().map(start).transpose();
        Ok(Self {
            checker: checker.map_err(cannot)?,
            sockets,
            seats: Seats::new(options.clients_max),
            broker: RefCell::new(Broker::new(options.notify)),
            options,
            checks_users: false,
            scratch: vec![0; READ_BYTES].into(),
            now: Instant::ZERO,
            checks: Checks::default(),
            reports: RateLimit::default(),
            stats: Stats::new(unix_ms()),
            shared: SharedStats::default(),
        })
    }

    /// The address on which it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.sockets.address()
    }

    /// A descriptor that is readable when [`Server::poll`] would find something.
    pub(super) fn descriptor(&self) -> Result<OwnedFd, Failure> {
        self.sockets
            .descriptor()
            .map_err(|error| Failure::usage(format!("no descriptor is left: {error}"), ""))
    }

    /// Whether connections wait for their next turn.
    pub(super) fn has_work(&self) -> bool {
        self.seats.has_work()
    }

    /// The latest time at which [`Server::work`] has to run.
    pub(super) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let waits = |client: &Client| client.has_deadline() || listeners::is_checked(client);
        let mut clients = self.seats.iter();
        let needed = self.checks.accept_again || clients.any(|(_, client)| waits(client));
        needed.then(|| self.checks.at.max(now))
    }

    /// Records the events at the sockets, without waiting.
    pub(super) fn poll(&mut self, now: Instant) {
        self.now = now;
        let Some(events) = self.sockets.poll() else {
            return;
        };
        for event in &events {
            match event.token() {
                LISTENER => self.accept(),
                CHECKED => self.take_checked(),
                token => {
                    let key = key_of(token);
                    if let Some(client) = self.seats.get_mut(key) {
                        client.readiness.note(event);
                        self.seats.mark(key);
                    }
                }
            }
        }
        self.sockets.give_back(events);
    }

    /// Passwords were compared. Connections that have gone meanwhile are not told.
    fn take_checked(&mut self) {
        while let Some(Checked { tag, claim, .. }) = self.checker.as_mut().and_then(Checker::take) {
            let key = Key::from_u64(tag);
            if let Some(client) = self.seats.get_mut(key) {
                match claim {
                    Some(claim) => client.claims.verified = Some(claim),
                    None => client.connection.on_known(Err(NotKnown::Wrong)),
                }
            }
            self.seats.mark(key);
        }
    }

    fn accept(&mut self) {
        self.checks.accept_again = false;
        loop {
            match self.sockets.accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // No descriptor is left, or the client has gone. Waiting connections are accepted later.
                Err(_) => {
                    self.stats.accept_errors += 1;
                    self.checks.accept_again = true;
                    return;
                }
            }
        }
    }

    fn admit(&mut self, mut socket: TcpStream, peer: SocketAddr) {
        self.stats.accepted += 1;
        if self.seats.is_full() {
            self.stats.turned_away += 1;
            // A client that cannot take even this much loses nothing by the missing message.
            if self.options.tls.is_none() {
                let _ = socket.write(b"-ERR max number of clients reached\r\n");
            }
            return;
        }
        // Replies leave at once. If the system does not support that, they leave a little later.
        let _ = socket.set_nodelay(true);
        // Without it, a client whose machine has gone would be noticed late, or never.
        let _ = keep_alive(&socket);
        let Ok(stream) = Stream::new(socket, self.options.tls.as_ref()) else {
            self.stats.accept_errors += 1;
            return;
        };
        let handshake_until = stream.is_handshaking().then(|| self.now + HANDSHAKE_TIME);
        let connection = Connection::new(
            self.stats.accepted,
            peer.to_string(),
            self.options.requires_auth,
            unix_ms(),
        );
        let client = Client::new(stream, connection, peer.ip(), handshake_until);
        let key = self.seats.insert(client);
        let seated = self.seats.get_mut(key).expect("it was just seated");
        let socket = seated.stream.socket_mut();
        if self.sockets.register(socket, key).is_err() {
            self.stats.accept_errors += 1;
            if let Some(client) = self.seats.take(key) {
                self.seats.remove(key, &client);
            }
            return;
        }
        self.stats.connected += 1;
        self.seats.mark(key);
    }

    /// The call of a connection has ended. Connections that have gone meanwhile get no answer.
    /// `seen`: what the answer has seen of the store; of a session its client id.
    pub(super) fn on_answer(
        &mut self,
        tag: u64,
        seen: Position,
        result: Result<Response<'_>, CallFailure>,
    ) {
        if tag == CHECKS_USERS {
            return self.on_users(result);
        }
        let key = Key::from_u64(tag & !ASKS_USERS);
        let Some(client) = self.seats.get_mut(key) else {
            return;
        };
        match client.claims.asked.take_if(|_| tag & ASKS_USERS != 0) {
            Some(claim) => {
                if let Some(why) = claim.void_password(&result)
                    && self.reports.allows(Topic::VoidPassword, self.now)
                {
                    tracing::warn!(why, "a Redis client has given a password that is void");
                }
                // The file may have been read again meanwhile.
                let known = match self.checker.as_ref().is_none_or(|all| all.counts(&claim)) {
                    true => claim.check(result),
                    false => Err(NotKnown::Wrong),
                };
                client.claims.came_as = known.is_ok().then_some(claim);
                client.connection.on_known(known);
            }
            None => client.connection.on_answer(seen, result),
        }
        let id = client.connection.id();
        self.seats.count_at(key);
        self.tell(|broker, clients| broker.on_answer(id, seen, clients));
        self.seats.mark(key);
    }

    /// Lets every connection continue that can; `begin` takes their calls.
    pub(super) fn work(&mut self, now: Instant, begin: &mut Begin<'_>) {
        if now >= self.checks.at {
            self.check(now);
            self.ask_for_users(begin);
        }
        let (unix_ms, ring) = (unix_ms(), Arc::clone(&self.options.ring));
        let mut checker = self.checker.take();
        let mut handshakes = HANDSHAKES_PER_TURN;
        let mut dirty = self.seats.take_dirty();
        for key in dirty.drain(..) {
            let Some(mut client) = self.seats.take(key) else {
                continue;
            };
            if client.stream.is_handshaking() {
                if handshakes == 0 {
                    // Clients that are known go on meanwhile.
                    self.seats.postpone(key, client);
                    continue;
                }
                handshakes -= 1;
            }
            client.queued = false;
            let mut submit = Tagged {
                tag: key.to_u64(),
                peer: client.peer,
                begin,
                ring: &ring,
                checker: checker.as_mut(),
                claim: None,
            };
            submit.go_on(&mut client);
            let mut state = match client.deadlines.drain {
                Some(_) => drain(&mut client, &mut self.scratch),
                None => self.drive(&mut client, unix_ms, now, &mut submit),
            };
            if let Some(claim) = submit.claim {
                client.claims.asked = Some(claim);
            }
            self.seats.count(&mut client);
            if matches!(state, TurnOutcome::Over)
                && client.connection.is_broken()
                && client.deadlines.drain.is_none()
            {
                self.stats.protocol_errors += 1;
                client.begin_drain(now);
                state = TurnOutcome::GoesOn;
            }
            if matches!(state, TurnOutcome::Over) && client.connection.is_attack() {
                self.on_attack(now, &client);
            }
            match state {
                TurnOutcome::Over => self.close(key, client),
                TurnOutcome::Rests => self.seats.put_back(key, client),
                TurnOutcome::GoesOn => {
                    self.seats.put_back(key, client);
                    self.seats.mark(key);
                }
            }
            self.relieve_within_turn(now);
        }
        self.seats.give_back(dirty);
        self.checker = checker;
        self.end_turn(now);
    }

    /// Brings what all connections hold back to its limits, and publishes the counters.
    fn end_turn(&mut self, now: Instant) {
        self.trim();
        if self.seats.held() > self.options.memory {
            // What clients were told without asking has grown.
            self.relieve(now);
        }
        self.stats.held = self.seats.held();
        self.stats.broker = self.broker.borrow().counts();
        self.shared.set(self.stats);
    }

    /// Reads the passwords of users again. Who has come by one that is not in the file any more is disconnected.
    pub(super) fn read_passwords_again(&mut self) {
        let Some(mut checker) = self.checker.take() else {
            return;
        };
        match checker.read_again() {
            Ok(users) => {
                let is_void = |client: &mut Client| {
                    let came_as = client.claims.came_as.as_ref();
                    came_as.is_some_and(|claim| !checker.counts(claim))
                };
                let disconnected = self.close_all(is_void);
                tracing::warn!(users, disconnected, "read the passwords of users again");
            }
            Err(failure) => {
                let why = failure.in_one_line();
                tracing::error!(why, "the passwords of users stay as they were");
            }
        }
        self.checker = Some(checker);
    }

    /// Closes the connections that `are_meant`. Returns how many these are.
    fn close_all(&mut self, are_meant: impl Fn(&mut Client) -> bool) -> usize {
        let mut closed = 0;
        for key in self.seats.keys() {
            if self.seats.get_mut(key).is_some_and(&are_meant)
                && let Some(client) = self.seats.take(key)
            {
                self.close(key, client);
                closed += 1;
            }
        }
        closed
    }

    /// The counters for other threads.
    pub(super) fn shared(&self) -> SharedStats {
        self.shared.clone()
    }

    fn drive(
        &mut self,
        client: &mut Client,
        unix_ms: i64,
        now: Instant,
        submit: &mut dyn Submit,
    ) -> TurnOutcome {
        let before = client.connection.commands();
        let limits = memory::limits_now(&self.options, self.seats.held());
        let mut state = TurnOutcome::GoesOn;
        for _ in 0..ROUNDS_MAX {
            if self.read(client, &limits).is_err() {
                self.note_tls_error(now, client);
                state = TurnOutcome::Over;
                break;
            }
            if !client.stream.is_handshaking() {
                client.deadlines.handshake_until = None;
            }
            let view = View {
                clients: &|each| self.others(each),
                address: self.sockets.address(),
                stats: &self.stats,
                shared: &self.shared,
                limits: &self.options.limits,
                clients_max: self.options.clients_max,
                clients_memory: self.options.memory,
                unix_ms,
            };
            let environment = Environment {
                limits: &limits,
                password: self.options.password.as_deref(),
                requires_auth: self.options.requires_auth,
                unix_ms,
                host: &view,
                broker: &self.broker,
            };
            client.connection.advance(&environment, submit);
            let clogged = client.connection.is_clogged(&limits);
            let written = write(client, now, &mut self.stats);
            let is_over = client.connection.is_over() && !client.stream.has_pending();
            if written.is_err() || is_over {
                state = TurnOutcome::Over;
                break;
            }
            // Commands that waited for room for replies continue at once, because no socket event reports the written
            // replies.
            let cleared = clogged && !client.connection.is_clogged(&limits);
            let reads_on = client.readiness.readable && client.connection.wants_bytes(&limits);
            if !reads_on && !cleared {
                state = TurnOutcome::Rests;
                break;
            }
        }
        self.stats.commands += client.connection.commands() - before;
        self.stats.errors += client.take_errors();
        let auth_failures = client.take_auth_failures();
        if auth_failures > 0 {
            self.on_auth_failures(now, client, auth_failures);
        }
        let (hits, misses) = client.connection.take_lookups();
        self.stats.hits += hits;
        self.stats.misses += misses;
        state
    }

    /// Reads while the connection wants more.
    fn read(&mut self, client: &mut Client, limits: &Limits) -> io::Result<()> {
        while client.readiness.readable && client.connection.wants_bytes(limits) {
            match client.stream.read(&mut self.scratch) {
                Ok(0) => {
                    client.readiness.readable = false;
                    client.connection.on_end();
                }
                Ok(count) => {
                    self.stats.bytes_in += count as u64;
                    client.connection.on_bytes(&self.scratch[..count]);
                    // A short read means that the socket is empty, unless its end is still to be read.
                    client.readiness.readable = count == self.scratch.len()
                        || client.readiness.peer_ended
                        || !client.stream.is_plain();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    client.readiness.readable = false
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Counts and reports a client that spoke HTTP, with the words of Redis.
    fn on_attack(&mut self, now: Instant, client: &Client) {
        self.stats.attacks += 1;
        if !self.reports.allows(Topic::Attack, now) {
            return;
        }
        tracing::warn!(
            peer = client.connection.peer(),
            attempts = self.stats.attacks,
            "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to the Redis \
             port. This is likely due to an attacker attempting to use Cross Protocol Scripting. Connection aborted."
        );
    }

    /// Counts and reports a client with which no keys could be agreed on.
    fn note_tls_error(&mut self, now: Instant, client: &mut Client) {
        let Some(error) = client.stream.take_tls_error() else {
            return;
        };
        self.stats.tls_failures += 1;
        if !self.reports.allows(Topic::Tls, now) {
            return;
        }
        tracing::warn!(
            peer = client.connection.peer(),
            attempts = self.stats.tls_failures,
            %error,
            "TLS with a Redis client has failed"
        );
    }

    /// Counts wrong passwords and keys, and reports the first of a while.
    fn on_auth_failures(&mut self, now: Instant, client: &Client, count: u64) {
        self.stats.auth_failures += count;
        if !self.reports.allows(Topic::Authentication, now) {
            return;
        }
        tracing::warn!(
            peer = client.connection.peer(),
            attempts = self.stats.auth_failures,
            "a Redis client sent a wrong password, or a key that is not valid in this group"
        );
    }

    fn others(&self, each: &mut dyn FnMut(&Connection)) {
        self.seats
            .iter()
            .for_each(|(_, client)| each(&client.connection));
    }

    fn close(&mut self, key: Key, mut client: Client) {
        // Closing with unread bytes would make the system discard the last reply. Bytes that arrive later can still
        // have that effect.
        let _ = client.stream.end_writing();
        for _ in 0..ROUNDS_MAX {
            if !matches!(client.stream.discard(&mut self.scratch), Ok(1..)) {
                break;
            }
        }
        self.sockets.deregister(client.stream.socket_mut());
        self.tell(|broker, clients| broker.on_end(&mut client.connection, clients));
        self.stats.cut_off += u64::from(client.connection.is_cut_off());
        self.seats.remove(key, &client);
        self.stats.connected -= 1;
    }

    /// Disconnects slow readers, and clients that broke the protocol and still send.
    fn check(&mut self, now: Instant) {
        self.checks.at = now + CHECK_EVERY;
        self.checks.rates.sample(now, &mut self.stats);
        if self.checks.accept_again {
            self.accept();
        }
        for key in self.seats.keys() {
            let Some(client) = self.seats.get_mut(key) else {
                continue;
            };
            let deadlines = &client.deadlines;
            let too_slow = deadlines
                .blocked_since
                .is_some_and(|since| now.saturating_since(since) >= self.options.slow_reader);
            let spent = deadlines.drain.as_ref();
            let spent = spent.is_some_and(|drain| now >= drain.until);
            let half_open = deadlines.handshake_until.is_some_and(|until| now >= until);
            if (too_slow || spent || half_open)
                && let Some(client) = self.seats.take(key)
            {
                self.stats.tls_failures += u64::from(half_open);
                self.stats.slow_readers += u64::from(too_slow);
                self.close(key, client);
            }
        }
    }
}

/// The counters at the last check, from which the rates follow.
#[derive(Default)]
struct Rates {
    at: Instant,
    counted: [u64; 3],
}

impl Rates {
    fn sample(&mut self, now: Instant, stats: &mut Stats) {
        const KIB: u64 = 1024;
        let counted = [stats.commands, stats.bytes_in / KIB, stats.bytes_out / KIB];
        let milliseconds = (now.saturating_since(self.at).as_nanos() / 1_000_000).max(1);
        for (rate, (after, before)) in stats.rates.iter_mut().zip(counted.iter().zip(self.counted))
        {
            *rate = (after - before) * 1_000 / milliseconds;
        }
        *self = Self { at: now, counted };
    }
}

/// The fate of a connection after its turn.
enum TurnOutcome {
    Over,
    Rests,
    GoesOn,
}

/// Discards the data of a client that broke the protocol, until it ends or reaches its limit.
fn drain(client: &mut Client, scratch: &mut [u8]) -> TurnOutcome {
    for _ in 0..ROUNDS_MAX {
        let (true, Some(drain)) = (client.readiness.readable, &mut client.deadlines.drain) else {
            return TurnOutcome::Rests;
        };
        match client.stream.discard(scratch) {
            Ok(0) => return TurnOutcome::Over,
            Ok(count) if count >= drain.bytes_left => return TurnOutcome::Over,
            Ok(count) => drain.bytes_left -= count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                client.readiness.readable = false
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return TurnOutcome::Over,
        }
    }
    TurnOutcome::GoesOn
}

/// Writes as much as the socket takes.
fn write(client: &mut Client, now: Instant, stats: &mut Stats) -> io::Result<()> {
    while client.readiness.writable {
        let output = client.connection.output();
        if output.is_empty() && !client.stream.has_pending() {
            break;
        }
        let taken = match output.is_empty() {
            true => client.stream.flush().map(|()| None),
            false => client.stream.write(output).map(Some),
        };
        match taken {
            Ok(None) => client.deadlines.blocked_since = None,
            Ok(Some(0)) => return Err(ErrorKind::WriteZero.into()),
            Ok(Some(count)) => {
                stats.bytes_out += count as u64;
                client.connection.on_written(count);
                client.deadlines.blocked_since = None;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                client.readiness.writable = false
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if !client.connection.output().is_empty() || client.stream.has_pending() {
        client.deadlines.blocked_since.get_or_insert(now);
    }
    Ok(())
}

/// Lets the system ask idle clients for a sign of life, and end the connections of those that give none.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_IDLE / KEEPALIVE_PROBES)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests;
