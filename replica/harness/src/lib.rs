//! A group of replicas in one thread on virtual time, joined by a bus that delays, loses and cuts.
//!
//! The bus keeps the transport's promises and no others. A request is handled at most once. Appends of one sender stay
//! in order. A request without an answer ends as failed, whether it was handled or not.

#![allow(missing_docs, reason = "tests say what they do with it")]

pub mod client;

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;

use trine_kvstore::command::STATE_VERSION;
use trine_protocol::message::{
    AdminCommand, AdminReply, AdminRequest, AdminStatus, ClusterId, Encode, Incarnation,
    JoinRequest, NodeId, ReplyToken, RunSecret, kind,
};
use trine_protocol::status::Role;
use trine_protocol::status::Status;
use trine_replica::rights::Caller;
use trine_replica::{Output, Replica, ReplicaConfig};
use trine_transport::Holder;
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

use client::Client;

/// The node id whose address all clients have.
const CLIENTS: u32 = 250;
/// The node id whose address the process of [`World::claim`] has.
pub const CLAIMANT: u32 = 9;

/// Address of a node.
pub fn address(node_id: u32) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node_id as u8], 7471))
}

/// The sender of a request, so that the answer finds its way back.
#[derive(Clone, Copy, Debug)]
enum Asker {
    Replica {
        node_id: u32,
        incarnation: u64,
        tag: u64,
    },
    Client {
        client: usize,
        attempt: u64,
    },
}

#[derive(Debug)]
enum Happening {
    Request {
        to: u32,
        expect: Option<Incarnation>,
        asker: Asker,
        kind: u8,
        bytes: Vec<u8>,
    },
    Answer {
        asker: Asker,
        bytes: Option<Vec<u8>>,
    },
    ClientWakes {
        client: usize,
        attempt: u64,
    },
}

struct Scheduled {
    at: Instant,
    order: u64,
    what: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    /// Reversed: the heap's greatest is the earliest.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// One node id, and the replica that has it at the moment.
pub struct Machine {
    pub replica: Option<Replica>,
    /// Counts the incarnations, so that messages for an earlier one get lost.
    incarnation: u64,
    /// A paused process: messages wait in the queue, and no turn is taken.
    pub paused: bool,
    paused_at: Instant,
    waiting: Vec<Happening>,
    /// Outgoing requests of the present incarnation that have not ended: tag and deadline.
    outstanding: BTreeMap<u64, Instant>,
    /// Incoming requests that are not answered yet.
    askers: BTreeMap<u64, Asker>,
    next_token: u64,
}

impl Machine {
    fn empty() -> Self {
        Self {
            replica: None,
            incarnation: 0,
            paused: false,
            paused_at: Instant::ZERO,
            waiting: Vec::new(),
            outstanding: BTreeMap::new(),
            askers: BTreeMap::new(),
            next_token: 0,
        }
    }
}

/// The whole world.
pub struct World {
    pub now: Instant,
    pub machines: BTreeMap<u32, Machine>,
    pub clients: Vec<Client>,
    pub config: ReplicaConfig,
    pub prng: Prng,
    pub pool: Pool,
    /// How often a packet has to be retransmitted, at 3 ms each time.
    pub loss: Ratio,
    pub delay: (Duration, Duration),
    /// Directed links that carry nothing.
    pub cut: BTreeSet<(u32, u32)>,
    /// Nodes whose answers to clients get lost.
    pub mute: BTreeSet<u32>,
    /// Answers to what was injected.
    pub heard_from_replicas: Vec<Vec<u8>>,
    /// What the sessions of all clients have proven.
    pub caller: Caller,
    queue: BinaryHeap<Scheduled>,
    next_order: u64,
    last_append: BTreeMap<(u32, u32), Instant>,
    /// Bytes of the largest append that was sent.
    pub largest_append: usize,
    /// A running hash of everything that was delivered.
    pub trace: u64,
    pub deliveries: u64,
    /// The address that operators name for the next replica with a node id, if not the node's own.
    pub newcomer: Option<SocketAddr>,
    /// The next answer for which it returns true gets lost.
    pub lose_answer: Option<fn(&[u8]) -> bool>,
}

impl World {
    /// `count` nodes without a replica.
    pub fn new(count: u32, config: ReplicaConfig, seed: u64) -> Self {
        Self {
            now: Instant::from_nanos(1_000_000_000),
            machines: (1..=count)
                .map(|number| (number, Machine::empty()))
                .collect(),
            clients: Vec::new(),
            config,
            prng: Prng::new(seed),
            pool: Pool::new(PoolConfig::default()),
            loss: "0%".parse().unwrap(),
            delay: (Duration::from_micros(20), Duration::from_micros(200)),
            cut: BTreeSet::new(),
            mute: BTreeSet::new(),
            heard_from_replicas: Vec::new(),
            caller: Caller::default(),
            queue: BinaryHeap::new(),
            next_order: 0,
            last_append: BTreeMap::new(),
            largest_append: 0,
            trace: 0,
            deliveries: 0,
            newcomer: None,
            lose_answer: None,
        }
    }

    /// A group of `count` replicas that serves.
    pub fn serving(count: u32, config: ReplicaConfig, seed: u64) -> Self {
        let mut world = Self::new(count, config, seed);
        for node_id in 1..=count {
            world.start(node_id, node_id == 1);
        }
        world.expect("a leader", Duration::from_secs(3), |world| {
            world.leader().is_some()
        });
        world
    }

    /// Adds a node that the group does not know yet.
    pub fn add_node(&mut self) -> u32 {
        let number = self.machines.len() as u32 + 1;
        self.machines.insert(number, Machine::empty());
        number
    }

    /// Adds a node whose replica is a learner, and waits until it has a state.
    pub fn add_learner(&mut self) -> u32 {
        let learner = self.add_node();
        let second = Duration::from_secs(1);
        self.admin(AdminCommand::Add { voter: false }, learner, second / 10);
        self.start(learner, false);
        let (status, text) = self.admin(AdminCommand::Add { voter: false }, learner, second * 5);
        assert_eq!(status, AdminStatus::Done, "{text}");
        self.expect("a state", second * 5, |world| {
            world.status(learner).applied > 0
        });
        learner
    }

    /// Starts the replica of a node, as a new incarnation.
    pub fn start(&mut self, number: u32, bootstrap: bool) {
        let incarnation = Incarnation(self.prng.next_u64().max(1));
        let peers = self
            .machines
            .keys()
            .map(|&node_id| (NodeId(node_id), address(node_id)))
            .collect();
        let config = ReplicaConfig {
            bootstrap,
            ..self.config
        };
        let seed = self.prng.next_u64();
        let replica = Replica::new(
            config,
            incarnation,
            NodeId(number),
            address(number),
            peers,
            self.pool.clone(),
            seed,
            self.now,
        )
        .unwrap();
        let replica = replica.with_secret(Some(secret_of(incarnation)));
        let machine = self.machines.get_mut(&number).unwrap();
        assert!(machine.replica.is_none());
        machine.replica = Some(replica);
        machine.incarnation += 1;
    }

    /// Ends a replica without notice: its memory is gone.
    pub fn kill(&mut self, number: u32) {
        let machine = self.machines.get_mut(&number).unwrap();
        machine.replica = None;
        machine.incarnation += 1;
        machine.paused = false;
        machine.waiting.clear();
        machine.outstanding.clear();
        let askers = std::mem::take(&mut machine.askers);
        for asker in askers.into_values() {
            self.fail_later(asker, Duration::from_millis(20));
        }
    }

    /// Tells a replica that the run of this incarnation has ended.
    pub fn tell_death(&mut self, to: u32, of: Incarnation) {
        let now = self.now;
        self.replica_mut(to).on_death_notice(now, &secret_of(of));
        self.turn(to);
    }

    pub fn pause(&mut self, number: u32) {
        let machine = self.machines.get_mut(&number).unwrap();
        machine.paused = true;
        machine.paused_at = self.now;
    }

    /// The process had just read its clock when it was stopped. It handles everything that has arrived meanwhile as if
    /// no time had passed, and reads the clock only then.
    pub fn resume(&mut self, number: u32) {
        let machine = self.machines.get_mut(&number).unwrap();
        machine.paused = false;
        let waiting = std::mem::take(&mut machine.waiting);
        let real = std::mem::replace(&mut self.now, machine.paused_at);
        for what in waiting {
            self.happen(what);
        }
        if let Some(replica) = &mut self.machines.get_mut(&number).unwrap().replica {
            replica.on_turn(self.now);
        }
        self.now = real;
        self.drain(number);
        self.turn(number);
    }

    /// Cuts every link between the two sides.
    pub fn partition(&mut self, one: &[u32], other: &[u32]) {
        for &a in one {
            for &b in other {
                self.cut.insert((a, b));
                self.cut.insert((b, a));
            }
        }
    }

    pub fn isolate(&mut self, node_id: u32) {
        let others: Vec<u32> = self
            .machines
            .keys()
            .copied()
            .filter(|&other| other != node_id)
            .collect();
        self.partition(&[node_id], &others);
    }

    pub fn heal(&mut self) {
        self.cut.clear();
    }

    pub fn replica_mut(&mut self, node_id: u32) -> &mut Replica {
        let machine = self.machines.get_mut(&node_id).expect("a machine");
        machine.replica.as_mut().expect("a running replica")
    }

    pub fn replica(&self, node_id: u32) -> &Replica {
        self.machines[&node_id]
            .replica
            .as_ref()
            .expect("a running replica")
    }

    /// Requests of a replica that have not ended.
    pub fn outstanding(&self, node_id: u32) -> usize {
        self.machines[&node_id].outstanding.len()
    }

    pub fn status(&self, node_id: u32) -> Status {
        self.replica(node_id).status(self.now)
    }

    pub fn running(&self) -> Vec<u32> {
        self.machines
            .iter()
            .filter(|(_, machine)| machine.replica.is_some())
            .map(|(&number, _)| number)
            .collect()
    }

    /// The leader of the highest term, if it has applied an entry of that term.
    pub fn leader(&self) -> Option<u32> {
        let statuses = self
            .running()
            .into_iter()
            .map(|node_id| (node_id, self.status(node_id)));
        let leaders = statuses.filter(|(_, status)| status.role == Role::Leader);
        let (node_id, status) = leaders.max_by_key(|(_, status)| status.term)?;
        (status.applied == status.committed && status.log.last_index == status.committed)
            .then_some(node_id)
    }

    /// Runs until `end`, or until no event is left before it.
    pub fn run_until(&mut self, end: Instant) {
        while let Some(at) = self.next_event().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.step();
        }
        self.now = self.now.max(end);
    }

    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    /// Runs until `condition` holds; panics with the replicas' statuses if it does not hold in time.
    pub fn expect(
        &mut self,
        what: &str,
        within: Duration,
        mut condition: impl FnMut(&mut Self) -> bool,
    ) {
        let end = self.now + within;
        loop {
            if condition(self) {
                return;
            }
            match self.next_event().filter(|&at| at <= end) {
                Some(at) => {
                    self.now = self.now.max(at);
                    self.step();
                }
                None => break,
            }
        }
        let statuses: Vec<Status> = self
            .running()
            .into_iter()
            .map(|node_id| self.status(node_id))
            .collect();
        panic!("no {what} within {within:?}: {statuses:#?}");
    }

    fn next_event(&self) -> Option<Instant> {
        let queued = self.queue.peek().map(|scheduled| scheduled.at);
        let replicas = self
            .machines
            .values()
            .filter(|machine| !machine.paused)
            .flat_map(|machine| {
                let timeout = machine
                    .replica
                    .as_ref()
                    .and_then(|replica| replica.next_timeout());
                timeout
                    .into_iter()
                    .chain(machine.outstanding.values().min().copied())
            });
        replicas.chain(queued).min().map(|at| at.max(self.now))
    }

    /// Delivers everything that is due now, then takes a turn for each replica that it touched.
    fn step(&mut self) {
        let mut touched = BTreeSet::new();
        while self
            .queue
            .peek()
            .is_some_and(|scheduled| scheduled.at <= self.now)
        {
            let what = self.queue.pop().unwrap().what;
            touched.extend(self.happen(what));
        }
        for (&number, machine) in &self.machines {
            let due = |at: Instant| at <= self.now;
            let timeout = machine
                .replica
                .as_ref()
                .and_then(|replica| replica.next_timeout());
            if !machine.paused
                && (timeout.is_some_and(due) || machine.outstanding.values().copied().any(due))
            {
                touched.insert(number);
            }
        }
        for number in touched {
            self.turn(number);
        }
    }

    fn turn(&mut self, number: u32) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&number) else {
            return;
        };
        let Some(replica) = &mut machine.replica else {
            return;
        };
        let overdue: Vec<u64> = machine
            .outstanding
            .iter()
            .filter(|&(_, &deadline)| deadline <= now)
            .map(|(&tag, _)| tag)
            .collect();
        for tag in overdue {
            machine.outstanding.remove(&tag);
            replica.on_peer_reply(now, tag, None);
        }
        replica.on_turn(now);
        self.drain(number);
    }

    fn drain(&mut self, number: u32) {
        loop {
            let machine = self.machines.get_mut(&number).unwrap();
            let Some(output) = machine.replica.as_mut().and_then(Replica::poll_output) else {
                return;
            };
            match output {
                Output::Send {
                    to,
                    expect,
                    kind,
                    bytes,
                    tag,
                    timeout,
                    ..
                } => {
                    machine.outstanding.insert(tag, self.now + timeout);
                    let asker = Asker::Replica {
                        node_id: number,
                        incarnation: machine.incarnation,
                        tag,
                    };
                    self.carry_request(number, to, expect, asker, kind, bytes.to_vec());
                }
                Output::Reply { token, bytes } => {
                    let asker = machine
                        .askers
                        .remove(&token.0)
                        .expect("each token is answered once");
                    let bytes = Some(bytes.to_vec());
                    self.carry_answer(number, asker, bytes);
                }
            }
        }
    }

    fn carry_request(
        &mut self,
        from: u32,
        to: SocketAddr,
        expect: Option<Incarnation>,
        asker: Asker,
        kind: u8,
        bytes: Vec<u8>,
    ) {
        if kind == kind::APPEND {
            self.largest_append = self.largest_append.max(bytes.len());
        }
        let to = self
            .machines
            .keys()
            .copied()
            .find(|&node_id| address(node_id) == to);
        let Some(to) = to else {
            return self.fail_later(asker, Duration::from_millis(5));
        };
        let mut at = self.now + self.travel_time();
        if kind == kind::APPEND {
            let last = self.last_append.entry((from, to)).or_insert(at);
            at = at.max(*last);
            *last = at;
        }
        if !self.cut.contains(&(from, to)) {
            self.schedule(
                at,
                Happening::Request {
                    to,
                    expect,
                    asker,
                    kind,
                    bytes,
                },
            );
        }
    }

    fn carry_answer(&mut self, from: u32, asker: Asker, bytes: Option<Vec<u8>>) {
        let cut = match asker {
            Asker::Replica { node_id, .. } => self.cut.contains(&(from, node_id)),
            Asker::Client { .. } => self.mute.contains(&from),
        };
        if !cut {
            let at = self.now + self.travel_time();
            self.schedule(at, Happening::Answer { asker, bytes });
        }
    }

    fn travel_time(&mut self) -> Duration {
        let (least, most) = (self.delay.0.as_nanos(), self.delay.1.as_nanos());
        let mut time = self.prng.in_range(least..=most);
        while self.prng.chance(self.loss) {
            time += 3_000_000;
        }
        Duration::from_nanos(time)
    }

    fn fail_later(&mut self, asker: Asker, after: Duration) {
        let at = self.now + after;
        self.schedule(at, Happening::Answer { asker, bytes: None });
    }

    fn schedule(&mut self, at: Instant, what: Happening) {
        self.next_order += 1;
        self.queue.push(Scheduled {
            at,
            order: self.next_order,
            what,
        });
    }

    /// Plays one event and returns the node that needs a turn for it.
    fn happen(&mut self, what: Happening) -> Option<u32> {
        let concerned = match &what {
            Happening::Request { to, .. } => Some(*to),
            Happening::Answer {
                asker: Asker::Replica { node_id, .. },
                ..
            } => Some(*node_id),
            _ => None,
        };
        if let Some(machine) = concerned.and_then(|number| self.machines.get_mut(&number))
            && machine.paused
        {
            machine.waiting.push(what);
            return None;
        }
        match what {
            Happening::Request {
                to,
                expect,
                asker,
                kind,
                bytes,
            } => {
                self.note(u64::from(to), &bytes);
                self.deliver(to, expect, asker, address(CLIENTS), kind, &bytes);
            }
            Happening::Answer {
                asker:
                    Asker::Replica {
                        node_id,
                        incarnation,
                        tag,
                    },
                bytes,
            } => {
                self.note(
                    u64::from(node_id) << 32,
                    bytes.as_deref().unwrap_or_default(),
                );
                let lost = |bytes: &Vec<u8>| self.lose_answer.is_some_and(|lose| lose(bytes));
                let bytes = match bytes {
                    Some(bytes) if lost(&bytes) => {
                        self.lose_answer = None;
                        None
                    }
                    bytes => bytes,
                };
                let now = self.now;
                let at = self.machines.get_mut(&node_id).unwrap();
                if at.incarnation == incarnation && at.outstanding.remove(&tag).is_some() {
                    at.replica
                        .as_mut()
                        .unwrap()
                        .on_peer_reply(now, tag, bytes.as_deref());
                }
            }
            Happening::Answer {
                asker: Asker::Client { client, attempt },
                bytes,
            } => {
                self.note(1 << 48, bytes.as_deref().unwrap_or_default());
                self.client_hears(client, attempt, bytes);
            }
            Happening::ClientWakes { client, attempt } => self.client_hears(client, attempt, None),
        }
        concerned
    }

    fn deliver(
        &mut self,
        to: u32,
        expect: Option<Incarnation>,
        asker: Asker,
        from: SocketAddr,
        kind: u8,
        bytes: &[u8],
    ) {
        let now = self.now;
        let machine = self.machines.get_mut(&to).unwrap();
        let there = machine.replica.as_mut().filter(|replica| {
            expect.is_none_or(|incarnation| incarnation == replica.incarnation())
        });
        let Some(replica) = there else {
            return self.fail_later(asker, Duration::from_millis(2));
        };
        machine.next_token += 1;
        let token = ReplyToken(machine.next_token);
        machine.askers.insert(token.0, asker);
        let comes_from = |known: SocketAddr| match asker {
            Asker::Replica { node_id, .. } => known == address(node_id),
            Asker::Client { .. } => known == from,
        };
        match kind {
            kind::CLIENT => {
                replica.on_client_from(now, token, self.caller, bytes, &|| Holder::Shared);
            }
            kind::ADMIN => replica.on_admin(now, token, self.caller, bytes),
            kind::BACKUP => replica.on_backup(now, token, self.caller, bytes),
            kind::WATCH => replica.on_watch(now, token, self.caller, Holder::Shared, bytes),
            kind => replica.on_peer(now, token, kind, bytes, comes_from),
        }
    }

    fn note(&mut self, who: u64, bytes: &[u8]) {
        self.deliveries += 1;
        let words = [self.now.as_nanos(), who, bytes.len() as u64];
        for word in words
            .into_iter()
            .chain(bytes.iter().map(|&byte| u64::from(byte)))
        {
            self.trace = (self.trace.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    /// Hands a replica bytes that no replica has sent, as if they came from another replica's address.
    pub fn inject(&mut self, to: u32, kind: u8, bytes: &[u8]) {
        let other = self.machines.keys().find(|&&node_id| node_id != to);
        let from = address(*other.unwrap_or(&to));
        self.inject_from(from, to, kind, bytes);
    }

    /// The same from this address.
    pub fn inject_from(&mut self, from: SocketAddr, to: u32, kind: u8, bytes: &[u8]) {
        let asker = Asker::Client {
            client: usize::MAX,
            attempt: 0,
        };
        self.deliver(to, None, asker, from, kind, bytes);
        self.turn(to);
    }

    /// Gives an admin command to the leader until it is done or refused; returns the final answer.
    pub fn admin(
        &mut self,
        command: AdminCommand,
        node_id: u32,
        within: Duration,
    ) -> (AdminStatus, String) {
        let end = self.now + within;
        let meant = match command {
            AdminCommand::Remove | AdminCommand::Replace => self.holder(node_id),
            _ => Incarnation::NONE,
        };
        loop {
            let answer = self
                .leader()
                .and_then(|leader| self.admin_once(leader, command, node_id, meant));
            match answer {
                Some(answer @ (AdminStatus::Done | AdminStatus::Refused, _)) => return answer,
                Some(answer) if self.now >= end => return answer,
                _ => assert!(self.now < end, "nobody leads"),
            }
            self.run_for(Duration::from_millis(20));
        }
    }

    /// Gives an admin command to one replica once, and returns its answer of a millisecond later.
    pub fn admin_once(
        &mut self,
        to: u32,
        command: AdminCommand,
        node_id: u32,
        meant: Incarnation,
    ) -> Option<(AdminStatus, String)> {
        let request = AdminRequest {
            command,
            node_id: NodeId(node_id),
            incarnation: meant,
            cluster: ClusterId::NONE,
            address: matches!(command, AdminCommand::Add { .. } | AdminCommand::Replace)
                .then(|| self.newcomer.unwrap_or(address(node_id))),
        };
        self.heard_from_replicas.clear();
        self.inject(to, kind::ADMIN, &request.encode_to_vec());
        self.run_for(Duration::from_millis(1));
        let reply = self.heard_from_replicas.pop()?;
        let reply = AdminReply::decode(&reply).ok()?;
        Some((reply.status, reply.text.to_owned()))
    }

    /// Does this with sessions that have proven to be this caller's.
    pub fn as_caller<T>(&mut self, caller: Caller, act: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.caller, caller);
        let done = act(self);
        self.caller = before;
        done
    }

    /// A client's request to the leader from a session that has proven this, and the answer.
    pub fn say_as(&mut self, caller: Caller, request: &[u8]) -> Vec<u8> {
        let leader = self.leader().expect("somebody leads");
        self.say_at_as(leader, caller, request)
    }

    /// The same at a replica that need not lead.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn say_at_as(&mut self, node_id: u32, caller: Caller, request: &[u8]) -> Vec<u8> {
        self.say_kind_as(node_id, kind::CLIENT, caller, request)
    }

    /// The same with a message of any kind.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn say_kind_as(
        &mut self,
        node_id: u32,
        kind: u8,
        caller: Caller,
        request: &[u8],
    ) -> Vec<u8> {
        self.heard_from_replicas.clear();
        let before = std::mem::replace(&mut self.caller, caller);
        self.inject(node_id, kind, request);
        self.caller = before;
        self.expect("an answer", Duration::from_secs(1), |world| {
            !world.heard_from_replicas.is_empty()
        });
        self.heard_from_replicas.pop().expect("it was there")
    }

    /// A process that no replica knows asks every replica for a node id, from [`CLAIMANT`].
    pub fn claim(&mut self, node_id: u32) {
        let claim = JoinRequest {
            // Another version could be refused for that alone.
            state_version: STATE_VERSION,
            member: false,
            node_id: NodeId(node_id),
            incarnation: Incarnation(99),
            address: address(CLAIMANT),
            cluster: ClusterId::NONE,
        };
        for replica in self.running() {
            self.inject_from(
                address(CLAIMANT),
                replica,
                kind::JOIN,
                &claim.encode_to_vec(),
            );
        }
    }

    /// The voter with a node id, in the leader's configuration.
    pub fn holder(&self, node_id: u32) -> Incarnation {
        let members = self
            .leader()
            .map(|leader| self.replica(leader).discovery().members.0);
        let member = members
            .iter()
            .flatten()
            .find(|m| m.node_id == NodeId(node_id));
        member.map_or(Incarnation::NONE, |member| member.incarnation)
    }

    /// A client's attempt at a node; its end comes back through `World::client_hears`, in time or as a failure.
    pub fn client_sends(
        &mut self,
        client: usize,
        attempt: u64,
        to: u32,
        bytes: Vec<u8>,
        patience: Duration,
    ) {
        let asker = Asker::Client { client, attempt };
        let at = self.now + self.travel_time();
        self.schedule(
            at,
            Happening::Request {
                to,
                expect: None,
                asker,
                kind: kind::CLIENT,
                bytes,
            },
        );
        let wakes = self.now + patience;
        self.schedule(wakes, Happening::ClientWakes { client, attempt });
    }

    fn client_hears(&mut self, client: usize, attempt: u64, bytes: Option<Vec<u8>>) {
        if client == usize::MAX {
            self.heard_from_replicas.extend(bytes);
            return;
        }
        let mut clients = std::mem::take(&mut self.clients);
        clients[client].on_answer(self, client, attempt, bytes.as_deref());
        self.clients = clients;
    }
}

/// The secret of a run.
fn secret_of(incarnation: Incarnation) -> RunSecret {
    let mut secret = [0; 16];
    secret[..8].copy_from_slice(&incarnation.0.to_le_bytes());
    RunSecret(secret)
}

/// Quick timers, small limits: events that otherwise take a day happen in a second.
pub fn small() -> ReplicaConfig {
    ReplicaConfig {
        log_entries_max: 200,
        log_bytes_max: 1 << 20,
        snapshot_chunk_bytes: 2048,
        ..ReplicaConfig::default()
    }
}
