//! Sockets of Redis clients: accepted, read, written and closed, as the connections' states require.
//!
//! The kernel reports readiness once for each change (edge-triggered), so this module remembers the readiness of each
//! socket. A blocked connection gets no turn until its socket or the group has something new.

mod listeners;
mod memory;
mod tagged;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use std::sync::Arc;

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use trine_keys::KeyRing;
use trine_kvstore::{Position, Response};
use trine_resp::{
    Broker, Classes, Connection, Environment, Failure as CallFailure, Limits, NotKnown, Submit,
};
use trine_transport::time::{Duration, Instant};

use self::tagged::{Begin, Tagged};
use super::auth::Claim;
use super::checker::{Checked, Checker};
use super::info::{KEEPALIVE_IDLE, SharedStats, Stats, View};
use super::passwords::Passwords;
use super::stream::Stream;
use crate::tls::Tls;
use trine_base::failure::{Failure, Trouble};

const LISTENER: Token = Token(usize::MAX);
/// A password was compared.
const CHECKED: Token = Token(usize::MAX - 1);
/// The most events taken in one poll.
const EVENTS_MAX: usize = 1024;
/// The bytes of one read from a socket.
const READ_BYTES: usize = 64 * 1024;
/// How often one connection reads and writes in one turn, before other connections get theirs.
const ROUNDS_MAX: usize = 8;
/// The interval of two checks. One looks for slow readers. The other retries accepting after the system had no
/// descriptor left.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The limits in time and bytes for data from a client that broke the protocol. Closing the connection earlier would
/// reset it, and the client would lose the error message.
const DRAIN_TIME: Duration = Duration::from_secs(2);
const DRAIN_BYTES_MAX: usize = 64 << 20;
/// A client that has not agreed on the keys of TLS by then is disconnected.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Clients whose handshakes go on in one turn: each costs as much time as hundreds of commands.
const HANDSHAKES_PER_TURN: usize = 4;
/// Room for some hundred users; a longer list is asked for again.
const USERS_BYTES: usize = 16 * 1024;
/// How many questions for a sign of life stay unanswered before a connection ends. They take as long as the time before them.
const KEEPALIVE_PROBES: u32 = 3;
/// The least time between two lines of the log about the same: each attempt of an attacker would make one.
const REPORT_PAUSE: Duration = Duration::from_secs(60);
/// A tag holds the slot's generation in the bits above its index.
const GENERATION_SHIFT: u32 = 32;
/// The bit of a tag whose call asks for the group's users, because a client has named one. No index is as large.
const ASKS_USERS: u64 = 1 << 31;
/// The tag of a call that asks for the group's users, because this server tells some of them what the group does not check.
/// No slot has it.
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
    poll: Poll,
    events: Events,
    listener: TcpListener,
    address: SocketAddr,
    options: Options,
    /// Compares passwords, if users have any.
    checker: Option<Checker>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// The slots of the connections, by their numbers.
    ids: BTreeMap<u64, usize>,
    /// Who tracks keys, and who subscribes.
    broker: RefCell<Broker>,
    /// The group is asked for its users.
    checks_users: bool,
    /// Slots with something to do.
    dirty: Vec<usize>,
    /// Empty: the memory of the list that takes the place of `dirty` while that is processed.
    spare: Vec<usize>,
    scratch: Box<[u8]>,
    /// As of the last poll.
    now: Instant,
    check_at: Instant,
    /// Accepting stopped while connections were still waiting.
    accept_again: bool,
    /// Bytes that all connections together hold, each as of its last turn.
    held: usize,
    /// No earlier than this are closed connections written to the log again.
    report_memory_at: Instant,
    /// No earlier than this is another attack written to the log.
    report_attack_at: Instant,
    /// No earlier than this is another wrong password written to the log.
    report_auth_at: Instant,
    /// No earlier than this is another void password written to the log.
    report_void_at: Instant,
    /// No earlier than this is another failure of TLS written to the log.
    report_tls_at: Instant,
    /// No earlier than this are forgotten changes written to the log again.
    report_gap_at: Instant,
    stats: Stats,
    rates: Rates,
    shared: SharedStats,
}

/// A slot for a connection; its number stays when the connection goes.
#[derive(Default)]
struct Slot {
    generation: u32,
    client: Option<Client>,
}

pub(super) struct Client {
    pub(super) stream: Stream,
    pub(super) connection: Connection,
    peer: IpAddr,
    readable: bool,
    writable: bool,
    /// The peer's end was reported, so a short read may not be the last one.
    peer_ended: bool,
    queued: bool,
    /// Errors of the connection that the counters already include.
    errors_counted: u64,
    /// The same of wrong passwords and keys.
    auth_failures_counted: u64,
    /// Which user the client says it is, while the group is asked.
    claim: Option<Claim>,
    /// The user whose password the client has given, before the group is asked.
    verified: Option<Claim>,
    /// As which user the client has come last.
    came_as: Option<Claim>,
    /// Bytes of the connection that [`Server::held`] includes.
    held: usize,
    /// The time since which the client has read none of its waiting replies.
    blocked_since: Option<Instant>,
    /// The time by which the keys of TLS have to be agreed on.
    handshake_until: Option<Instant>,
    /// The client has its last reply; its further data is discarded.
    drain: Option<Drain>,
}

/// The remaining limits for a client that broke the protocol.
struct Drain {
    until: Instant,
    bytes_left: usize,
}

impl Client {
    /// Tells the client that no more replies follow, and lets it finish sending.
    fn begin_drain(&mut self, now: Instant) {
        // The next read notices a client that has gone.
        let _ = self.stream.end_writing();
        self.readable = true;
        self.drain = Some(Drain {
            until: now + DRAIN_TIME,
            bytes_left: DRAIN_BYTES_MAX,
        });
    }

    /// Error replies since the last call.
    fn take_errors(&mut self) -> u64 {
        let all = self.connection.errors();
        all - std::mem::replace(&mut self.errors_counted, all)
    }

    /// Wrong passwords and keys since the last call.
    fn take_auth_failures(&mut self) -> u64 {
        let all = self.connection.auth_failures();
        all - std::mem::replace(&mut self.auth_failures_counted, all)
    }
}

impl Server {
    /// Listens at `address`.
    pub(super) fn open(address: SocketAddr, mut options: Options) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            let message = format!("cannot serve the Redis protocol at {address}: {error}");
            Failure::usage(message, "choose another port with --resp")
                .with_trouble(Trouble::of(&error))
        };
        let mut listener = TcpListener::bind(address).map_err(cannot)?;
        let poll = Poll::new().map_err(cannot)?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)
            .map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let start = |passwords| {
            let waker = Waker::new(poll.registry(), CHECKED)?;
            Checker::start(passwords, waker)
        };
        let broker = RefCell::new(Broker::new(options.notify));
        let checker = options.passwords.take().map(start).transpose();
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            listener,
            address,
            options,
            checker: checker.map_err(cannot)?,
            slots: Vec::new(),
            free: Vec::new(),
            ids: BTreeMap::new(),
            broker,
            checks_users: false,
            dirty: Vec::new(),
            spare: Vec::new(),
            scratch: vec![0; READ_BYTES].into(),
            now: Instant::ZERO,
            check_at: Instant::ZERO,
            accept_again: false,
            held: 0,
            report_memory_at: Instant::ZERO,
            report_attack_at: Instant::ZERO,
            report_auth_at: Instant::ZERO,
            report_void_at: Instant::ZERO,
            report_tls_at: Instant::ZERO,
            report_gap_at: Instant::ZERO,
            stats: Stats::new(unix_ms()),
            rates: Rates::default(),
            shared: SharedStats::default(),
        })
    }

    /// The address on which it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A descriptor that is readable when [`Server::poll`] would find something.
    pub(super) fn descriptor(&self) -> Result<OwnedFd, Failure> {
        let shared = self.poll.registry().as_fd().try_clone_to_owned();
        shared.map_err(|error| Failure::usage(format!("no descriptor is left: {error}"), ""))
    }

    /// Whether connections wait for their next turn.
    pub(super) fn has_work(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The latest time at which [`Server::work`] has to run.
    pub(super) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let waits = |slot: &Slot| {
            let client = slot.client.as_ref();
            client.is_some_and(|client| {
                client.blocked_since.is_some()
                    || client.drain.is_some()
                    || client.handshake_until.is_some()
                    || listeners::is_checked(client)
            })
        };
        let needed = self.accept_again || self.slots.iter().any(waits);
        needed.then(|| self.check_at.max(now))
    }

    /// Records the events at the sockets, without waiting.
    pub(super) fn poll(&mut self, now: Instant) {
        self.now = now;
        if self
            .poll
            .poll(&mut self.events, Some(std::time::Duration::ZERO))
            .is_err()
        {
            return; // Interrupted: the next turn polls again.
        }
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            match event.token() {
                LISTENER => self.accept(),
                CHECKED => self.take_checked(),
                Token(index) => self.note(index, event),
            }
        }
        self.events = events;
    }

    /// Passwords were compared. Connections that have gone meanwhile are not told.
    fn take_checked(&mut self) {
        while let Some(Checked { tag, claim, .. }) = self.checker.as_mut().and_then(Checker::take) {
            let index = tag as u32 as usize;
            let slot = &mut self.slots[index];
            if slot.generation != (tag >> GENERATION_SHIFT) as u32 {
                continue;
            }
            if let Some(client) = &mut slot.client {
                match claim {
                    Some(claim) => client.verified = Some(claim),
                    None => client.connection.on_known(Err(NotKnown::Wrong)),
                }
            }
            self.make_dirty(index);
        }
    }

    fn note(&mut self, index: usize, event: &Event) {
        let Some(client) = self
            .slots
            .get_mut(index)
            .and_then(|slot| slot.client.as_mut())
        else {
            return;
        };
        client.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        client.peer_ended |= event.is_read_closed() || event.is_error();
        client.writable |= event.is_writable();
        self.make_dirty(index);
    }

    fn make_dirty(&mut self, index: usize) {
        if let Some(client) = &mut self.slots[index].client
            && !client.queued
        {
            client.queued = true;
            self.dirty.push(index);
        }
    }

    fn accept(&mut self) {
        self.accept_again = false;
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // No descriptor is left, or the client has gone. Waiting connections are accepted later.
                Err(_) => {
                    self.stats.accept_errors += 1;
                    self.accept_again = true;
                    return;
                }
            }
        }
    }

    fn admit(&mut self, mut stream: TcpStream, peer: SocketAddr) {
        self.stats.accepted += 1;
        if self.stats.connected >= self.options.clients_max {
            self.stats.turned_away += 1;
            // A client that cannot take even this much loses nothing by the missing message.
            if self.options.tls.is_none() {
                let _ = stream.write(b"-ERR max number of clients reached\r\n");
            }
            return;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        // Replies leave at once. If the system does not support that, they leave a little later.
        let _ = stream.set_nodelay(true);
        // Without it, a client whose machine has gone would be noticed late, or never.
        let _ = keep_alive(&stream);
        let both = Interest::READABLE | Interest::WRITABLE;
        let registered = self
            .poll
            .registry()
            .register(&mut stream, Token(index), both);
        let opened = registered.and_then(|()| Stream::new(stream, self.options.tls.as_ref()));
        let Ok(stream) = opened else {
            self.stats.accept_errors += 1;
            self.free.push(index);
            return;
        };
        let handshake_until = stream.is_handshaking().then(|| self.now + HANDSHAKE_TIME);
        let connection = Connection::new(
            self.stats.accepted,
            peer.to_string(),
            self.options.requires_auth,
            unix_ms(),
        );
        self.slots[index].client = Some(Client {
            stream,
            connection,
            peer: peer.ip(),
            readable: true,
            writable: true,
            peer_ended: false,
            queued: false,
            errors_counted: 0,
            auth_failures_counted: 0,
            claim: None,
            verified: None,
            came_as: None,
            held: 0,
            blocked_since: None,
            handshake_until,
            drain: None,
        });
        self.ids.insert(self.stats.accepted, index);
        self.stats.connected += 1;
        self.make_dirty(index);
    }

    /// The call of a connection has ended. Connections that have gone meanwhile get no answer.
    /// `seen`: what the answer has seen of the store.
    pub(super) fn on_answer(
        &mut self,
        tag: u64,
        seen: Position,
        result: Result<Response<'_>, CallFailure>,
    ) {
        if tag == CHECKS_USERS {
            return self.on_users(result);
        }
        let generation = (tag >> GENERATION_SHIFT) as u32;
        let index = (tag & !ASKS_USERS) as u32 as usize;
        let slot = &mut self.slots[index];
        if slot.generation != generation {
            return;
        }
        if let Some(client) = &mut slot.client {
            match client.claim.take_if(|_| tag & ASKS_USERS != 0) {
                Some(claim) => {
                    if let Some(why) = claim.void_password(&result)
                        && self.now >= self.report_void_at
                    {
                        self.report_void_at = self.now + REPORT_PAUSE;
                        tracing::warn!(why, "a Redis client has given a password that is void");
                    }
                    // The file may have been read again meanwhile.
                    let known = match self.checker.as_ref().is_none_or(|all| all.counts(&claim)) {
                        true => claim.check(result),
                        false => Err(NotKnown::Wrong),
                    };
                    client.came_as = known.is_ok().then_some(claim);
                    client.connection.on_known(known);
                }
                None => client.connection.on_answer(result),
            }
            memory::count(client, &mut self.held);
            let id = client.connection.id();
            self.tell(|broker, clients| broker.on_answer(id, seen, clients));
        }
        self.make_dirty(index);
    }

    /// Lets every connection continue that can; `begin` takes their calls.
    pub(super) fn work(&mut self, now: Instant, begin: &mut Begin<'_>) {
        if now >= self.check_at {
            self.check(now);
            self.ask_for_users(begin);
        }
        let (unix_ms, ring) = (unix_ms(), Arc::clone(&self.options.ring));
        let mut checker = self.checker.take();
        let mut handshakes = HANDSHAKES_PER_TURN;
        let mut dirty = std::mem::replace(&mut self.dirty, std::mem::take(&mut self.spare));
        for index in dirty.drain(..) {
            let tag = u64::from(self.slots[index].generation) << GENERATION_SHIFT | index as u64;
            // The client leaves its slot for the turn, so that it can ask about the others.
            let Some(mut client) = self.slots[index].client.take() else {
                continue;
            };
            if client.stream.is_handshaking() {
                if handshakes == 0 {
                    // Clients that are known go on meanwhile. It stays marked as queued.
                    self.slots[index].client = Some(client);
                    self.dirty.push(index);
                    continue;
                }
                handshakes -= 1;
            }
            client.queued = false;
            let mut submit = Tagged {
                tag,
                peer: client.peer,
                begin,
                ring: &ring,
                checker: checker.as_mut(),
                claim: None,
            };
            submit.go_on(&mut client);
            let mut state = match client.drain {
                Some(_) => drain(&mut client, &mut self.scratch),
                None => self.drive(&mut client, unix_ms, now, &mut submit),
            };
            if let Some(claim) = submit.claim {
                client.claim = Some(claim);
            }
            memory::count(&mut client, &mut self.held);
            if matches!(state, State::Over)
                && client.connection.is_broken()
                && client.drain.is_none()
            {
                self.stats.protocol_errors += 1;
                client.begin_drain(now);
                state = State::GoesOn;
            }
            if matches!(state, State::Over) && client.connection.is_attack() {
                self.on_attack(now, &client);
            }
            match state {
                State::Over => self.close(index, client),
                State::Rests => self.slots[index].client = Some(client),
                State::GoesOn => {
                    self.slots[index].client = Some(client);
                    self.make_dirty(index);
                }
            }
            self.relieve_within_turn(now);
        }
        self.spare = dirty;
        self.checker = checker;
        self.end_turn(now);
    }

    /// Brings what all connections hold back to its limits, and publishes the counters.
    fn end_turn(&mut self, now: Instant) {
        self.trim();
        if self.held > self.options.memory {
            // What clients were told without asking has grown.
            self.relieve(now);
        }
        self.stats.held = self.held;
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
                    let came_as = client.came_as.as_ref();
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
        for index in 0..self.slots.len() {
            if let Some(client) = self.slots[index].client.take_if(|client| are_meant(client)) {
                self.dirty.retain(|dirty| *dirty != index);
                self.close(index, client);
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
    ) -> State {
        let before = client.connection.commands();
        let limits = memory::limits_now(&self.options, self.held);
        let mut state = State::GoesOn;
        for _ in 0..ROUNDS_MAX {
            if self.read(client, &limits).is_err() {
                self.note_tls_error(now, client);
                state = State::Over;
                break;
            }
            client.handshake_until = client
                .handshake_until
                .filter(|_| client.stream.is_handshaking());
            let view = View {
                clients: &|each| self.others(each),
                address: self.address,
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
                state = State::Over;
                break;
            }
            // Commands that waited for room for replies continue at once, because no socket event reports the written
            // replies.
            let cleared = clogged && !client.connection.is_clogged(&limits);
            let reads_on = client.readable && client.connection.wants_bytes(&limits);
            if !reads_on && !cleared {
                state = State::Rests;
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
        while client.readable && client.connection.wants_bytes(limits) {
            match client.stream.read(&mut self.scratch) {
                Ok(0) => {
                    client.readable = false;
                    client.connection.on_end();
                }
                Ok(count) => {
                    self.stats.bytes_in += count as u64;
                    client.connection.on_bytes(&self.scratch[..count]);
                    // A short read means that the socket is empty, unless its end is still to be read.
                    client.readable = count == self.scratch.len()
                        || client.peer_ended
                        || !client.stream.is_plain();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => client.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Counts and reports a client that spoke HTTP, with the words of Redis.
    fn on_attack(&mut self, now: Instant, client: &Client) {
        self.stats.attacks += 1;
        if now < self.report_attack_at {
            return;
        }
        self.report_attack_at = now + REPORT_PAUSE;
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
        if now < self.report_tls_at {
            return;
        }
        self.report_tls_at = now + REPORT_PAUSE;
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
        if now < self.report_auth_at {
            return;
        }
        self.report_auth_at = now + REPORT_PAUSE;
        tracing::warn!(
            peer = client.connection.peer(),
            attempts = self.stats.auth_failures,
            "a Redis client has given a wrong password, or a key that does not count in this group"
        );
    }

    fn others(&self, each: &mut dyn FnMut(&Connection)) {
        let clients = self.slots.iter().filter_map(|slot| slot.client.as_ref());
        clients.for_each(|client| each(&client.connection));
    }

    fn close(&mut self, index: usize, mut client: Client) {
        // Closing with unread bytes would make the system discard the last reply. Bytes that arrive later can still
        // have that effect.
        let _ = client.stream.end_writing();
        for _ in 0..ROUNDS_MAX {
            if !matches!(client.stream.discard(&mut self.scratch), Ok(1..)) {
                break;
            }
        }
        let _ = self.poll.registry().deregister(client.stream.socket_mut());
        self.tell(|broker, clients| broker.on_end(&mut client.connection, clients));
        self.ids.remove(&client.connection.id());
        self.stats.cut_off += u64::from(client.connection.is_cut_off());
        self.slots[index].generation = self.slots[index].generation.wrapping_add(1);
        self.free.push(index);
        self.held -= client.held;
        self.stats.connected -= 1;
    }

    /// Disconnects slow readers, and clients that broke the protocol and still send.
    fn check(&mut self, now: Instant) {
        self.check_at = now + CHECK_EVERY;
        self.rates.sample(now, &mut self.stats);
        if self.accept_again {
            self.accept();
        }
        for index in 0..self.slots.len() {
            let too_slow = |client: &Client| {
                let since = client.blocked_since;
                since.is_some_and(|since| now.saturating_since(since) >= self.options.slow_reader)
            };
            let spent = |client: &Client| {
                let drain = client.drain.as_ref();
                drain.is_some_and(|drain| now >= drain.until)
            };
            let half_open = |client: &Client| {
                let until = client.handshake_until;
                until.is_some_and(|until| now >= until)
            };
            let ends = |client: &mut Client| too_slow(client) || spent(client) || half_open(client);
            let slot = &mut self.slots[index].client;
            if let Some(client) = slot.take_if(ends) {
                self.stats.tls_failures += u64::from(half_open(&client));
                self.stats.slow_readers += u64::from(too_slow(&client));
                self.dirty.retain(|dirty| *dirty != index);
                self.close(index, client);
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
enum State {
    Over,
    Rests,
    GoesOn,
}

/// Discards the data of a client that broke the protocol, until it ends or reaches its limit.
fn drain(client: &mut Client, scratch: &mut [u8]) -> State {
    for _ in 0..ROUNDS_MAX {
        let (true, Some(drain)) = (client.readable, &mut client.drain) else {
            return State::Rests;
        };
        match client.stream.discard(scratch) {
            Ok(0) => return State::Over,
            Ok(count) if count >= drain.bytes_left => return State::Over,
            Ok(count) => drain.bytes_left -= count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => client.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return State::Over,
        }
    }
    State::GoesOn
}

/// Writes as much as the socket takes.
fn write(client: &mut Client, now: Instant, stats: &mut Stats) -> io::Result<()> {
    while client.writable {
        let output = client.connection.output();
        if output.is_empty() && !client.stream.has_pending() {
            break;
        }
        let taken = match output.is_empty() {
            true => client.stream.flush().map(|()| None),
            false => client.stream.write(output).map(Some),
        };
        match taken {
            Ok(None) => client.blocked_since = None,
            Ok(Some(0)) => return Err(ErrorKind::WriteZero.into()),
            Ok(Some(count)) => {
                stats.bytes_out += count as u64;
                client.connection.on_written(count);
                client.blocked_since = None;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => client.writable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if !client.connection.output().is_empty() || client.stream.has_pending() {
        client.blocked_since.get_or_insert(now);
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
