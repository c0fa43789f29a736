//! Watches of a whole group: whom a replica serves that may know less than others, and whom a watcher asks.

use trine_client::{WatchConfig, WatchFrom, WatchStream, WatchTarget};
use trine_kvstore::history::{Change, Event};
use trine_kvstore::{Kind, Position};
use trine_protocol::endpoint_config;
use trine_protocol::message::{
    AdminCommand, AdminStatus, ClientReply, ClientStatus, ClusterId, Encode, EventWriter,
    WATCH_REPLY_BYTES, Watch, WatchReply, WatchRequest, Watched, kind,
};
use trine_replica::ReplicaConfig;
use trine_replica_harness::World;
use trine_transport::backend::{RingBackend, RingRoute};
use trine_transport::event_loop::EventLoop;
use trine_transport::time::Duration;
use trine_transport::{App, Completion, Cx, Identity, Reply, Request};

use crate::support::{ManualClock, address, mesh, route_of};

const SECOND: Duration = Duration::from_secs(1);

/// A request about one key, from this position on.
pub(crate) fn request(cluster: ClusterId, from: u64, key: &[u8]) -> Vec<u8> {
    let watched = Watched::Key(key);
    let request = WatchRequest {
        cluster,
        watcher: 5,
        from,
        part: 0,
        keys_only: false,
        prefer_follower: false,
        bytes_max: WATCH_REPLY_BYTES as u32,
        watches: vec![Watch { id: 1, watched }],
    };
    request.encode_to_vec()
}

/// Raft's learners never look for another leader. So one that was cut off went on naming its old leader, and kept its
/// watchers, who heard of nothing any more.
#[test]
fn a_learner_that_is_cut_off_sends_its_watchers_on() {
    let mut world = World::serving(3, ReplicaConfig::default(), 3);
    let learner = world.add_learner();
    let ask = |world: &mut World| {
        world.heard_from_replicas.clear();
        let from = world.status(learner).applied << 16;
        let cluster = world.replica(learner).cluster();
        world.inject(learner, kind::WATCH, &request(cluster, from, b"k"));
    };
    let is_sent_on = |world: &World| {
        let heard = world.heard_from_replicas.iter();
        heard.map(|bytes| WatchReply::decode(bytes)).any(|reply| {
            matches!(reply, Ok(WatchReply::Later { why, .. }) if why.contains("knows no leader"))
        })
    };
    ask(&mut world);
    world.run_for(SECOND * 4);
    assert!(!is_sent_on(&world), "it has a leader");
    world.isolate(learner);
    world.run_for(SECOND);
    assert!(!is_sent_on(&world), "it may only be slow");
    world.run_for(SECOND * 2);
    assert!(is_sent_on(&world));
    ask(&mut world);
    world.run_for(SECOND / 10);
    assert!(is_sent_on(&world), "it takes no new ones either");
    world.heal();
    world.run_for(SECOND);
    ask(&mut world);
    world.run_for(SECOND * 4);
    assert!(!is_sent_on(&world), "it has its leader again");
}

/// A leader of some seconds that stepped down took the time in which it led for a silence: it told its watchers that it
/// knows no leader, and for two seconds it took no new ones. Redis clients of that replica had no cache meanwhile.
#[test]
fn a_leader_that_steps_down_keeps_its_watchers_while_another_one_leads() {
    let mut world = World::serving(3, ReplicaConfig::default(), 4);
    world.run_for(SECOND * 4);
    let old = world.leader().expect("a leader");
    let next = old % 3 + 1;
    let ask = |world: &mut World| {
        let from = world.status(old).applied << 16;
        let cluster = world.replica(old).cluster();
        world.inject(old, kind::WATCH, &request(cluster, from, b"k"));
    };
    let is_sent_on = |world: &World| {
        let heard = world.heard_from_replicas.iter();
        heard
            .map(|bytes| WatchReply::decode(bytes))
            .any(|reply| matches!(reply, Ok(WatchReply::Later { .. })))
    };
    world.heard_from_replicas.clear();
    ask(&mut world);
    let limit = SECOND * 5;
    let (status, text) = world.admin(AdminCommand::TransferLeadership, next, limit);
    assert_eq!(status, AdminStatus::Done, "{text}");
    for _ in 0..40 {
        ask(&mut world);
        world.run_for(SECOND / 10);
        assert!(!is_sent_on(&world), "replica {next} leads");
    }
    // What it counts from then on is a silence.
    world.isolate(old);
    world.run_for(SECOND);
    assert!(!is_sent_on(&world), "it may only be slow");
    world.run_for(SECOND * 2);
    assert!(is_sent_on(&world), "it is cut off");
}

const CLUSTER: ClusterId = ClusterId(0xc1);

/// A replica that says where the group is, and serves watches or sends them on.
struct Scripted {
    leads: bool,
    /// Watch requests that came.
    asked: usize,
    seen: u64,
    /// Its answer to each watch, instead of one that is made for it.
    always: Option<Vec<u8>>,
}

impl App<RingRoute> for Scripted {
    fn on_request(&mut self, cx: &mut Cx<'_, RingRoute>, request: Request<'_>) -> Reply {
        let answer = match request.kind {
            kind::CLIENT => ClientReply {
                position: self.seen,
                ..ClientReply::refusal(ClientStatus::Ok, CLUSTER)
            }
            .encode_to_vec(),
            kind::WATCH if self.always.is_some() => {
                self.asked += 1;
                self.always.clone().unwrap_or_default()
            }
            kind::WATCH => {
                self.asked += 1;
                let asks = WatchRequest::decode(request.data).expect("a request");
                if self.leads && !asks.prefer_follower {
                    self.seen = asks.from + 1;
                    let events = EventWriter::default();
                    events.reply(self.seen, 0).encode_to_vec()
                } else {
                    let (pause_ms, why) = (0, "not here");
                    WatchReply::Later { pause_ms, why }.encode_to_vec()
                }
            }
            other => panic!("watchers send no requests of kind {other}"),
        };
        let mut bytes = cx.alloc(answer.len()).expect("room");
        bytes.copy_from_slice(&answer);
        Reply::Now(bytes)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, RingRoute>, _: u64, _: Completion) {
        unreachable!("scripted replicas ask nothing");
    }
}

/// Replicas 0 to 2, of which 0 leads, and a watcher.
struct Ring {
    clock: ManualClock,
    replicas: Vec<EventLoop<RingBackend, ManualClock, Scripted>>,
    watcher: EventLoop<RingBackend, ManualClock, WatchStream<RingRoute>>,
}

impl Ring {
    fn new() -> Self {
        let clock = ManualClock::new();
        let mut backends = mesh(4);
        let own = backends.pop().expect("four");
        let config = WatchConfig {
            addresses: (0..3).map(address).collect(),
            targets: vec![(1, WatchTarget::Key(b"k".to_vec()))],
            from: WatchFrom::Now,
            keys_only: false,
        };
        let identity = |incarnation| Identity {
            cluster: 0,
            incarnation,
        };
        let endpoint = endpoint_config();
        let stream = WatchStream::new(config, route_of(), 9);
        let watcher = EventLoop::new(own, clock.clone(), stream, endpoint, identity(9), 9);
        let replicas = (0..).zip(backends).map(|(number, backend)| {
            let replica = Scripted {
                leads: number == 0,
                asked: 0,
                seen: 1 << 16,
                always: None,
            };
            let (clock, who) = (clock.clone(), identity(number + 1));
            EventLoop::new(backend, clock, replica, endpoint_config(), who, number).expect("sound")
        });
        Self {
            replicas: replicas.collect(),
            watcher: watcher.expect("sound"),
            clock,
        }
    }

    /// Takes so many batches; returns how often followers were asked meanwhile.
    fn take(&mut self, batches: usize, step: Duration) -> usize {
        let before = self.of_followers();
        let mut taken = 0;
        for _ in 0..200_000 {
            self.clock.advance(step);
            self.watcher.turn().expect("rings work");
            for replica in &mut self.replicas {
                replica.turn().expect("rings work");
            }
            taken += usize::from(self.watcher.app_mut().take_batch().is_some());
            if taken == batches {
                return self.of_followers() - before;
            }
        }
        panic!("{taken} batches came");
    }

    fn of_followers(&self) -> usize {
        let followers = self.replicas[1..].iter();
        followers.map(|replica| replica.app().asked).sum()
    }
}

/// A watcher that only the leader can serve asked both followers before each batch, and paused after every round.
#[test]
fn a_stream_that_no_follower_serves_stays_with_the_leader_for_a_while() {
    let mut ring = Ring::new();
    let short = Duration::from_micros(20);
    let asked = ring.take(1, short);
    assert!(asked >= 2, "followers are asked first: {asked}");
    assert_eq!(ring.take(50, short), 0);
    // Followers may be able to by now.
    ring.clock.advance(Duration::from_secs(60));
    let asked = ring.take(2, short);
    assert!((2..=4).contains(&asked), "{asked}");
    assert_eq!(ring.take(50, short), 0);
}

/// How a watch ends to which each replica gives this answer; nothing if it goes on for two seconds.
fn end_of(answer: &[u8]) -> Option<String> {
    let mut ring = Ring::new();
    for replica in &mut ring.replicas {
        replica.app_mut().always = Some(answer.to_vec());
    }
    for _ in 0..2_000 {
        ring.clock.advance(Duration::from_millis(1));
        ring.watcher.turn().expect("rings work");
        for replica in &mut ring.replicas {
            replica.turn().expect("rings work");
        }
        if let Some(error) = ring.watcher.app().error() {
            return Some(error.to_string());
        }
    }
    assert!(ring.of_followers() > 6, "each is asked again and again");
    None
}

/// A watcher asked ten times a second for ever, and its caller never heard why nothing came.
#[test]
fn a_watch_whose_answers_cannot_be_read_fails() {
    let mut events = EventWriter::default();
    let event = Event {
        position: Position::from_u64(2 << 16),
        command: Kind::Put,
        change: Change::Removed { key: b"k" },
    };
    events.push(&event, &[1], false);
    let mut later_kind = events.reply(2 << 16, 0).encode_to_vec();
    later_kind[20] = 99;
    let mut later_status = WatchReply::Replaced.encode_to_vec();
    later_status[1] = 71;
    for answer in [later_kind, later_status, vec![1]] {
        let error = end_of(&answer).expect("it fails");
        assert!(error.contains("could not read the reply"), "{error}");
    }
    let refused = |status| ClientReply::refusal(status, CLUSTER).encode_to_vec();
    let error = end_of(&refused(ClientStatus::Malformed)).expect("it fails");
    assert!(error.contains("could not read the command"), "{error}");
}

#[test]
fn a_watch_outlives_answers_that_another_attempt_may_change() {
    let busy = ClientReply::refusal(ClientStatus::Busy, CLUSTER).encode_to_vec();
    for answer in [vec![], busy] {
        assert_eq!(end_of(&answer), None);
    }
}
