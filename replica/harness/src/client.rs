//! A client that keeps asking until it has an answer, and judges every answer by
//! itself.

use trine_kvstore::checksum::command_checksum;
use trine_kvstore::{Command, Response};
use trine_protocol::message::{
    ClientReply, ClientRequest, ClientStatus, ClusterId, Encode, GroupId, NO_CHECK, Operation,
    check_of,
};
use trine_transport::time::{Duration, Instant};

use super::{World, address};

/// The request of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    Register,
    Put(Vec<u8>, Vec<u8>),
    Get(Vec<u8>),
    StaleGet(Vec<u8>),
    /// Linearizable, at the replica that is asked.
    HereGet(Vec<u8>),
    /// Any other write, encoded.
    Write(Vec<u8>),
}

impl Wish {
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Put(..) | Self::Write(_))
    }
}

/// The final answer to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub wish: Wish,
    pub status: ClientStatus,
    pub position: u64,
    /// Of a read: the value, if there is one, and its version.
    pub value: Option<(Vec<u8>, u64)>,
    pub asked: Instant,
    pub told: Instant,
    pub attempts: u64,
}

struct Asked {
    wish: Wish,
    sequence: u64,
    since: Instant,
    attempts: u64,
}

/// One client with at most one command under way.
pub struct Client {
    pub cluster: ClusterId,
    pub id: u64,
    /// The number that its session is registered with.
    pub nonce: u64,
    next_sequence: u64,
    target: u32,
    asked: Option<Asked>,
    attempt: u64,
    pub outcomes: Vec<Outcome>,
    /// Every status that any attempt got.
    pub heard: Vec<ClientStatus>,
    /// Whether a refusal ends the wish instead of a repeated request.
    pub gives_up: bool,
    pub patience: Duration,
}

impl Client {
    pub fn is_idle(&self) -> bool {
        self.asked.is_none()
    }

    fn request(&self, asked: &Asked) -> Vec<u8> {
        let mut command = Vec::new();
        let (operation, client) = match &asked.wish {
            Wish::Register => (Operation::Register, self.nonce),
            Wish::Put(key, value) => {
                Command::Put { key, value }.encode(&mut command);
                (Operation::Apply, self.id)
            }
            Wish::Get(key) => {
                Command::Get { key }.encode(&mut command);
                (Operation::ReadLinearizable, 0)
            }
            Wish::StaleGet(key) => {
                Command::Get { key }.encode(&mut command);
                (Operation::ReadStale, 0)
            }
            Wish::HereGet(key) => {
                Command::Get { key }.encode(&mut command);
                (Operation::ReadHere, 0)
            }
            Wish::Write(bytes) => {
                command.clone_from(bytes);
                (Operation::Apply, self.id)
            }
        };
        let (cluster, group) = (self.cluster, GroupId(0));
        let sequence = if asked.wish.is_write() {
            asked.sequence
        } else {
            0
        };
        ClientRequest {
            timed: false,
            operation,
            group,
            cluster,
            client,
            sequence,
            lowest_awaited: sequence,
            session_number: if asked.wish.is_write() { self.nonce } else { 0 },
            check: match operation {
                Operation::Apply => check_of(command_checksum(&command)),
                _ => NO_CHECK,
            },
            for_user: None,
            command: &command,
        }
        .encode_to_vec()
    }

    fn send(&mut self, world: &mut World, me: usize) {
        let Some(asked) = &mut self.asked else { return };
        asked.attempts += 1;
        self.attempt += 1;
        let asked = self.asked.as_ref().unwrap();
        let bytes = self.request(asked);
        world.client_sends(me, self.attempt, self.target, bytes, self.patience);
    }

    pub(super) fn on_answer(
        &mut self,
        world: &mut World,
        me: usize,
        attempt: u64,
        bytes: Option<&[u8]>,
    ) {
        if attempt != self.attempt || self.asked.is_none() {
            return;
        }
        let reply = bytes.and_then(|bytes| ClientReply::decode(bytes).ok());
        let Some(reply) = reply else {
            self.target = world.prng.in_range(1..=world.machines.len() as u64) as u32;
            return self.send(world, me);
        };
        self.heard.push(reply.status);
        let retried = matches!(
            reply.status,
            ClientStatus::NotLeader
                | ClientStatus::Busy
                | ClientStatus::ReplyShareTaken
                | ClientStatus::NoQuorum
                | ClientStatus::NotAttached
                | ClientStatus::LeadershipLost
        );
        if retried && !self.gives_up {
            return self.retry_elsewhere(world, me, &reply);
        }
        self.conclude(world.now, &reply);
    }

    fn retry_elsewhere(&mut self, world: &mut World, me: usize, reply: &ClientReply<'_>) {
        let machines = world.machines.len() as u32;
        self.target = match reply.leader {
            Some(leader) => (1..=machines)
                .find(|&node_id| address(node_id) == leader)
                .unwrap_or(1),
            None => world.prng.in_range(1..=u64::from(machines)) as u32,
        };
        if reply.leader.is_some() {
            return self.send(world, me);
        }
        // No leader: wait a little, as a client would.
        self.attempt += 1;
        world.wake_client(me, self.attempt, Duration::from_millis(5));
    }

    fn conclude(&mut self, now: Instant, reply: &ClientReply<'_>) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let mut value = None;
        if reply.status == ClientStatus::Ok {
            match (
                &asked.wish,
                (!reply.response.is_empty()).then(|| Response::decode(reply.response).unwrap()),
            ) {
                (Wish::Register, _) => {
                    self.id = reply.position;
                    self.cluster = reply.cluster;
                }
                (
                    _,
                    Some(Response::Value {
                        value: bytes,
                        version,
                    }),
                ) => value = Some((bytes.to_vec(), version.as_u64())),
                (Wish::Put(..), Some(response)) => {
                    assert!(
                        matches!(response, Response::Written { version } if version.as_u64() == reply.position)
                    );
                }
                (Wish::Write(_), Some(Response::Error(error))) => panic!("{error}"),
                (Wish::Write(_), _) => {}
                (_, response) => assert_eq!(response, Some(Response::NotFound)),
            }
        }
        self.outcomes.push(Outcome {
            wish: asked.wish,
            status: reply.status,
            position: reply.position,
            value,
            asked: asked.since,
            told: now,
            attempts: asked.attempts,
        });
    }
}

impl World {
    /// A client that first asks at `target`.
    pub fn add_client(&mut self, target: u32) -> usize {
        self.clients.push(Client {
            cluster: ClusterId::NONE,
            id: 0,
            nonce: self.prng.next_u64(),
            next_sequence: 1,
            target,
            asked: None,
            attempt: 0,
            outcomes: Vec::new(),
            heard: Vec::new(),
            gives_up: false,
            patience: Duration::from_millis(60),
        });
        self.clients.len() - 1
    }

    pub fn wake_client(&mut self, client: usize, attempt: u64, after: Duration) {
        let at = self.now + after;
        self.schedule(at, super::Happening::ClientWakes { client, attempt });
    }

    /// Starts a new wish of a client.
    pub fn ask(&mut self, client: usize, wish: Wish) {
        let mut clients = std::mem::take(&mut self.clients);
        let it = &mut clients[client];
        assert!(it.is_idle());
        let sequence = it.next_sequence;
        if wish.is_write() {
            it.next_sequence += 1;
        }
        it.asked = Some(Asked {
            wish,
            sequence,
            since: self.now,
            attempts: 0,
        });
        it.send(self, client);
        self.clients = clients;
    }

    /// The same at a certain replica.
    pub fn ask_at(&mut self, client: usize, node_id: u32, wish: Wish) {
        self.clients[client].target = node_id;
        self.ask(client, wish);
    }

    /// Begins and waits for the end.
    pub fn get_done(&mut self, client: usize, wish: Wish) -> Outcome {
        self.ask(client, wish);
        self.outcome(client)
    }

    /// Waits for the end of the present wish.
    pub fn outcome(&mut self, client: usize) -> Outcome {
        self.expect("an answer", Duration::from_secs(10), |world| {
            world.clients[client].is_idle()
        });
        self.clients[client].outcomes.last().unwrap().clone()
    }

    /// A client that has a session.
    pub fn registered_client(&mut self, target: u32) -> usize {
        let client = self.add_client(target);
        assert_eq!(
            self.get_done(client, Wish::Register).status,
            ClientStatus::Ok
        );
        client
    }

    pub fn put(&mut self, client: usize, key: &str, value: &str) -> Outcome {
        let outcome = self.get_done(client, Wish::Put(key.into(), value.into()));
        assert_eq!(
            outcome.status,
            ClientStatus::Ok,
            "{:?}",
            self.clients[client].heard
        );
        outcome
    }

    pub fn get(&mut self, client: usize, key: &str) -> Option<String> {
        let outcome = self.get_done(client, Wish::Get(key.into()));
        assert_eq!(outcome.status, ClientStatus::Ok);
        outcome
            .value
            .map(|(value, _)| String::from_utf8(value).unwrap())
    }
}
