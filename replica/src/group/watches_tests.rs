//! Watch requests at one replica: who is answered when, with what, and who is refused.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use trine_keys::{Credential, Fingerprint, Issuer, Role, UserName};
use trine_kvstore::history::Change;
use trine_kvstore::{Command, KeyRange, List, Pair, Position, Rights};
use trine_protocol::message::{
    ClientReply, ClientRequest, ClientStatus, ClusterId, Incarnation, Member, MemberRole, Members,
    NodeId, Operation, ReplyToken, WATCH_REPLY_BYTES, WATCH_REPLY_BYTES_MIN, Watch, WatchReply,
    WatchRequest, Watched,
};
use trine_transport::Holder;
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::time::{Duration, Instant};

use super::Group;
use crate::bootstrap::Origin;
use crate::config::{ReplicaConfig, WATCH_ANSWERS_PER_TURN, WATCH_HISTORY_BYTES_MIN, WATCHERS_MAX};
use crate::outbox::Outbox;
use crate::output::Output;
use crate::rights::Caller;
use crate::state_machine::Genesis;

const CLUSTER: ClusterId = ClusterId(7);
const CLIENT: ReplyToken = ReplyToken(u64::MAX);

/// A group of one in memory.
struct Alone {
    group: Group,
    out: Outbox,
    now: Instant,
    client: (u64, u64),
    /// The answers to watch requests, by token.
    answers: BTreeMap<u64, Vec<u8>>,
    answered: Option<Vec<u8>>,
}

/// A group of one member.
pub(super) fn group_of_one(config: ReplicaConfig, now: Instant) -> Group {
    let own = Member {
        node_id: NodeId(1),
        role: MemberRole::Voter,
        incarnation: Incarnation(11),
        address: ([127, 0, 0, 1], 7471).into(),
    };
    let origin = Origin {
        cluster: CLUSTER,
        members: Members(vec![own]),
        genesis: Genesis::new(&config, [1, 2]),
    };
    Group::first_member(config, own, origin, 1, now)
}

/// An event, in words, and where it was.
type Told = (u64, String);

/// An answer with events.
#[derive(Debug)]
struct Events {
    seen: u64,
    part: u32,
    events: Vec<(Vec<u32>, Told)>,
}

impl Alone {
    fn new(history_bytes: usize) -> Self {
        let config = ReplicaConfig {
            watch_history_bytes: history_bytes,
            ordered: true,
            ..ReplicaConfig::default()
        };
        let now = Instant::ZERO;
        let mut group = group_of_one(config, now);
        group.campaign();
        let mut alone = Self {
            group,
            out: Outbox::new(Pool::new(PoolConfig::default())),
            now,
            client: (0, 0),
            answers: BTreeMap::new(),
            answered: None,
        };
        alone.turn();
        let number = 99;
        let register = ClientRequest {
            client: number,
            ..ClientRequest::bare(Operation::Register)
        };
        let position = alone.ask(&register);
        alone.client = (position, number);
        alone
    }

    fn turn(&mut self) {
        self.group.on_turn(self.now, &mut self.out);
        while let Some(output) = self.out.pop() {
            let Output::Reply { token, bytes } = output else {
                continue;
            };
            match token == CLIENT {
                true => self.answered = Some(bytes.to_vec()),
                false => drop(self.answers.insert(token.0, bytes.to_vec())),
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.turn();
    }

    /// Sends a command and returns its position.
    fn ask(&mut self, request: &ClientRequest<'_>) -> u64 {
        let (caller, holder) = (Caller::default(), || Holder::Shared);
        self.group
            .on_client(self.now, CLIENT, caller, request, &holder, &mut self.out);
        for _ in 0..4 {
            self.turn();
        }
        let bytes = self.answered.take().expect("an answer");
        let reply = ClientReply::decode(&bytes).expect("a reply");
        assert_eq!(reply.status, ClientStatus::Ok);
        reply.position
    }

    fn apply(&mut self, command: &Command<'_>) -> u64 {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let (client, session_number) = self.client;
        let sequence = self.now.as_nanos() + 1;
        self.now += Duration::from_nanos(1);
        self.ask(&ClientRequest {
            cluster: CLUSTER,
            client,
            sequence,
            lowest_awaited: sequence,
            session_number,
            command: &bytes,
            ..ClientRequest::bare(Operation::Apply)
        })
    }

    fn put(&mut self, key: &str, value: &str) -> u64 {
        self.apply(&Command::Put {
            key: key.as_bytes(),
            value: value.as_bytes(),
        })
    }

    fn applied(&self) -> u64 {
        let state = self.group.state.as_ref().expect("a member has a state");
        state.applied_position().as_u64()
    }

    fn arrive(&mut self, token: u64, caller: Caller, request: &WatchRequest<'_>) {
        let token = ReplyToken(token);
        let who = (caller, Holder::Shared);
        self.group
            .on_watch(self.now, token, who, request, &mut self.out);
    }

    fn watch_as(&mut self, token: u64, caller: Caller, request: &WatchRequest<'_>) {
        self.arrive(token, caller, request);
        self.turn();
    }

    fn watch(&mut self, token: u64, request: &WatchRequest<'_>) {
        self.watch_as(token, Caller::default(), request);
    }

    /// The answer to a request, in words.
    fn answer(&mut self, token: u64) -> Option<String> {
        let bytes = self.answers.remove(&token)?;
        let reply = WatchReply::decode(&bytes).expect("a reply");
        Some(format!("{reply:?}"))
    }

    fn events(&mut self, token: u64) -> Option<Events> {
        let bytes = self.answers.remove(&token)?;
        let reply = WatchReply::decode(&bytes).expect("a reply");
        let WatchReply::Events { seen, part, events } = reply else {
            panic!("{reply:?}");
        };
        let told = |event: trine_protocol::message::WatchEvent<'_>| {
            (event.ids, (event.position.as_u64(), words(event.change)))
        };
        let events = events.iter().map(told).collect();
        Some(Events { seen, part, events })
    }
}

fn words(change: Change<'_>) -> String {
    let text = String::from_utf8_lossy;
    match change {
        Change::Written { key, value, .. } => {
            format!("{}={}", text(key), text(value.unwrap_or(b"?")))
        }
        Change::Removed { key } => format!("{} removed", text(key)),
        Change::Expired { key } => format!("{} expired", text(key)),
        Change::Flushed => "flushed".to_owned(),
    }
}

fn prefix(id: u32, prefix: &str) -> Watch<'_> {
    Watch {
        id,
        watched: Watched::Range(KeyRange::Prefix(prefix.as_bytes())),
    }
}

fn key(id: u32, key: &str) -> Watch<'_> {
    Watch {
        id,
        watched: Watched::Key(key.as_bytes()),
    }
}

fn request<'a>(watcher: u64, from: u64, watches: &[Watch<'a>]) -> WatchRequest<'a> {
    WatchRequest {
        cluster: CLUSTER,
        watcher,
        from,
        part: 0,
        keys_only: false,
        prefer_follower: false,
        bytes_max: WATCH_REPLY_BYTES as u32,
        watches: watches.to_vec(),
    }
}

#[test]
fn a_request_is_held_until_something_happens_to_what_it_watches() {
    let mut alone = Alone::new(1 << 20);
    let from = alone.applied();
    alone.watch(1, &request(1, from, &[prefix(5, "a/"), key(6, "a/x")]));
    alone.put("b", "1");
    assert_eq!(alone.answer(1), None, "nobody watches that");
    let at = alone.put("a/x", "2");
    let events = alone.events(1).expect("it has happened");
    assert_eq!((events.seen, events.part), (at, 0));
    assert_eq!(events.events, [(vec![5, 6], (at, "a/x=2".to_owned()))]);
    // What happens while nothing is asked comes with the next answer.
    let again = alone.put("a/y", "3");
    let removed = alone.apply(&Command::Delete { key: b"a/x" });
    alone.watch(2, &request(1, at, &[prefix(5, "a/"), key(6, "a/x")]));
    let events = alone.events(2).expect("it has happened");
    assert_eq!(events.seen, removed);
    let expected = [
        (vec![5], (again, "a/y=3".to_owned())),
        (vec![5, 6], (removed, "a/x removed".to_owned())),
    ];
    assert_eq!(events.events, expected);
}

#[test]
fn an_idle_watch_is_answered_with_the_position_that_it_has_seen() {
    let mut alone = Alone::new(1 << 20);
    let from = alone.applied();
    alone.watch(1, &request(1, from, &[prefix(1, "a/")]));
    let at = alone.put("b", "1");
    alone.pass(Duration::from_secs(9));
    assert_eq!(alone.answer(1), None);
    alone.pass(Duration::from_secs(1));
    let events = alone.events(1).expect("the time is over");
    assert!(events.seen >= at && events.events.is_empty());
}

#[test]
fn a_flush_is_told_to_everybody_with_all_watches() {
    let mut alone = Alone::new(1 << 20);
    alone.put("c", "1");
    let from = alone.applied();
    alone.watch(1, &request(1, from, &[key(8, "a"), key(9, "b")]));
    let at = alone.apply(&Command::Flush);
    let expected = [(vec![8, 9], (at, "flushed".to_owned()))];
    assert_eq!(alone.events(1).unwrap().events, expected);
    alone.watch(2, &request(1, from, &[key(8, "a"), key(9, "b")]));
    assert_eq!(alone.events(2).unwrap().events, expected);
}

#[test]
fn a_position_of_the_future_and_one_that_is_forgotten_are_told() {
    let mut alone = Alone::new(WATCH_HISTORY_BYTES_MIN);
    let first = alone.put("a", "1");
    let future = Position::new(Position::from_u64(first).index() + 1_000, 0).as_u64();
    alone.watch(1, &request(1, future, &[key(1, "a")]));
    assert!(alone.answer(1).unwrap().starts_with("Future"));
    let value = "x".repeat(16_000);
    for _ in 0..80 {
        alone.put("b", &value);
    }
    alone.watch(2, &request(1, first, &[key(1, "a")]));
    let bytes = alone.answers.remove(&2).expect("an answer");
    let Ok(WatchReply::Compacted { oldest }) = WatchReply::decode(&bytes) else {
        panic!("the history has no room for so much");
    };
    assert!(oldest > first);
    alone.watch(3, &request(1, oldest, &[key(1, "a")]));
    assert_eq!(alone.answer(3), None, "everything behind it is there");
}

#[test]
fn a_replica_without_history_sends_watchers_elsewhere() {
    let mut alone = Alone::new(0);
    let from = alone.applied();
    alone.watch(1, &request(1, from, &[key(1, "a")]));
    assert!(alone.answer(1).unwrap().contains("--watch-history 0"));
}

#[test]
fn a_request_takes_the_place_of_the_earlier_one_of_its_watcher() {
    let mut alone = Alone::new(1 << 20);
    let from = alone.applied();
    alone.watch(1, &request(1, from, &[key(1, "a")]));
    alone.watch(2, &request(1, from, &[key(2, "a")]));
    assert_eq!(alone.answer(1).as_deref(), Some("Replaced"));
    let at = alone.put("a", "1");
    assert_eq!(
        alone.events(2).unwrap().events,
        [(vec![2], (at, "a=1".to_owned()))]
    );
}

/// Behind an answer what was watched stays in the index, and what happens meanwhile is noted.
#[test]
fn the_next_request_of_a_watcher_finds_what_has_happened_since_its_answer() {
    let mut alone = Alone::new(1 << 20);
    let from = alone.applied();
    let watches = [key(1, "a"), prefix(2, "b/")];
    alone.watch(1, &request(1, from, &watches));
    alone.put("a", "1");
    let seen = alone.events(1).expect("an event").seen;
    alone.put("c", "1");
    let at = (alone.put("b/1", "2"), alone.put("a", "3"));
    alone.watch(2, &request(1, seen, &watches));
    let answer = alone.events(2).expect("two events");
    let expected = [
        (vec![2], (at.0, "b/1=2".to_owned())),
        (vec![1], (at.1, "a=3".to_owned())),
    ];
    assert_eq!(answer.events, expected);
    // With nothing new it is held.
    alone.watch(3, &request(1, answer.seen, &watches));
    assert_eq!(alone.answer(3), None);
    let at = alone.put("a", "4");
    assert_eq!(
        alone.events(3).unwrap().events,
        [(vec![1], (at, "a=4".to_owned()))]
    );
    // Also when it comes late.
    let seen = alone.applied();
    alone.pass(Duration::from_secs(3));
    let at = alone.put("a", "5");
    alone.watch(4, &request(1, seen, &watches));
    assert_eq!(
        alone.events(4).unwrap().events,
        [(vec![1], (at, "a=5".to_owned()))]
    );
}

#[test]
fn a_watcher_that_asks_for_something_else_hears_of_that_alone() {
    let mut alone = Alone::new(1 << 20);
    let from = alone.applied();
    alone.watch(1, &request(1, from, &[key(1, "a")]));
    let first = alone.put("a", "1");
    let seen = alone.events(1).expect("an event").seen;
    let second = alone.put("a", "2");
    alone.watch(2, &request(1, seen, &[key(1, "b")]));
    alone.put("a", "3");
    assert_eq!(alone.answer(2), None);
    let at = alone.put("b", "1");
    assert_eq!(
        alone.events(2).unwrap().events,
        [(vec![1], (at, "b=1".to_owned()))]
    );
    // So does one that asks for the same once more, from an earlier position.
    alone.watch(3, &request(1, from, &[key(1, "a")]));
    let told = alone.events(3).unwrap().events;
    let positions: Vec<u64> = told.iter().map(|(_, (position, _))| *position).collect();
    assert_eq!(positions[..2], [first, second]);
    assert_eq!(positions.len(), 3);
}

#[test]
fn more_watchers_than_there_is_room_for_are_told_to_come_later() {
    let mut alone = Alone::new(1 << 20);
    let from = alone.applied();
    for watcher in 1..=WATCHERS_MAX as u64 {
        alone.watch(watcher, &request(watcher, from, &[prefix(1, "a/")]));
    }
    assert!(alone.answers.is_empty());
    alone.watch(0, &request(9_999, from, &[prefix(1, "a/")]));
    assert!(alone.answer(0).unwrap().starts_with("Later"));
    // All of them are answered, and there is room again.
    alone.put("a/1", "1");
    for _ in 0..WATCHERS_MAX / WATCH_ANSWERS_PER_TURN {
        alone.turn();
    }
    assert_eq!(alone.answers.len(), WATCHERS_MAX);
    let from = alone.applied();
    alone.watch(0, &request(9_999, from, &[prefix(1, "a/")]));
    assert_eq!(alone.answer(0), None);
}

#[test]
fn what_nobody_can_watch_is_refused_with_the_reason() {
    let mut alone = Alone::new(1 << 20);
    let from = alone.applied();
    let between = |start, end| Watch {
        id: 1,
        watched: Watched::Range(KeyRange::Between { start, end }),
    };
    let long = vec![0; 70_000];
    let bad = [
        (between(b"b", Some(b"a")), "before its start"),
        (between(&long, None), "no key can be as long"),
        (prefix(1, std::str::from_utf8(&long).unwrap()), "prefix"),
    ];
    for (watch, why) in bad {
        alone.watch(1, &request(1, from, &[watch]));
        let answer = alone.answer(1).unwrap();
        assert!(
            answer.starts_with("Refused") && answer.contains(why),
            "{answer}"
        );
    }
    // A thousand watches of one key made each of its changes cost a thousand times as much.
    alone.watch(
        1,
        &request(1, from, &[key(1, "a"), key(2, "b"), key(3, "a")]),
    );
    assert!(alone.answer(1).unwrap().contains("once"));
    let narrow = WatchRequest {
        bytes_max: 1_000,
        ..request(1, from, &[key(1, "a")])
    };
    alone.watch(1, &narrow);
    assert!(alone.answer(1).unwrap().contains("room for"));
    // The second request takes the place of the first within one turn, and is refused. What stood in line for the first
    // kept the replica's thread busy for ever.
    let good = request(1, from, &[key(1, "a")]);
    for (token, request) in [(2, &good), (3, &narrow)] {
        alone.arrive(token, Caller::default(), request);
    }
    alone.turn();
    assert!(!alone.group.watches.has_work());
    let foreign = WatchRequest {
        cluster: ClusterId(8),
        ..request(1, from, &[key(1, "a")])
    };
    alone.watch(1, &foreign);
    assert!(alone.answer(1).unwrap().contains("belongs to cluster"));
}

#[test]
fn a_user_watches_its_own_keys_and_only_while_it_is_one() {
    let mut alone = Alone::new(1 << 20);
    let name = UserName::new(b"ann").unwrap();
    let issuer = Issuer {
        root: Fingerprint([5; 4]),
        group: trine_keys::GroupId([6; 8]),
    };
    let rights = Rights {
        role: Role::Read,
        prefix: b"a/",
        front: false,
    };
    alone.apply(&Command::AddUser {
        issuer,
        name,
        rights,
    });
    let generation = {
        let users = alone.group.users().unwrap();
        users.named(name).unwrap().generation
    };
    let ann = Caller::Proven(Credential::User { name, generation });
    let from = alone.applied();
    alone.watch_as(1, ann, &request(1, from, &[prefix(1, "")]));
    let answer = alone.answer(1).unwrap();
    assert!(
        answer.starts_with("Denied") && answer.contains("a/"),
        "{answer}"
    );
    alone.watch_as(2, ann, &request(1, from, &[prefix(1, "a/b")]));
    alone.put("a/b", "1");
    assert_eq!(alone.events(2).unwrap().events.len(), 1);
    let from = alone.applied();
    alone.watch_as(3, ann, &request(1, from, &[prefix(1, "a/b")]));
    assert_eq!(alone.answer(3), None);
    alone.apply(&Command::RemoveUser { name });
    assert!(alone.answer(3).unwrap().starts_with("Denied"));
}

/// One user with many requests from long ago delays another one by one look through the history, not by all of them.
#[test]
fn holders_take_turns_at_the_history() {
    let mut alone = Alone::new(1 << 20);
    let from = alone.applied();
    let keys: Vec<_> = (0..900).map(|number| format!("b{number}")).collect();
    let pairs: Vec<_> = keys
        .iter()
        .map(|key| Pair {
            key: key.as_bytes(),
            value: b"1",
        })
        .collect();
    for _ in 0..10 {
        alone.apply(&Command::MultiPut {
            pairs: List::from(&pairs[..]),
        });
    }
    let at = alone.put("a", "1");
    let send = |alone: &mut Alone, number: u64, holder: u64, name: &str| {
        let request = request(number, from, &[key(1, name)]);
        let who = (Caller::default(), Holder::Identity(holder));
        let (group, out) = (&mut alone.group, &mut alone.out);
        group.on_watch(alone.now, ReplyToken(number), who, &request, out);
    };
    (1..=40).for_each(|number| send(&mut alone, number, 1, "nobody"));
    send(&mut alone, 99, 2, "a");
    // A look at 9,000 events takes three turns, and each of the two has one.
    for _ in 0..6 {
        alone.turn();
    }
    let events = alone.events(99).expect("its turn has come");
    assert_eq!(events.events, [(vec![1], (at, "a=1".to_owned()))]);
    assert!(alone.group.watches.has_work(), "the others still wait");
}

/// What a client does of its own accord between two writes.
#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    Range(u8),
    Flush,
    /// The watcher with this number sends its next request, if none is held.
    Ask(usize),
    Pass(u64),
    /// As if a later state had been installed, with the same history.
    Restart,
}

const KEYS: [&str; 8] = ["", "a", "a/", "a/1", "a/2", "b", "b/1", "c"];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..8_u8).prop_map(Step::Put),
        2 => (0..8_u8).prop_map(Step::Delete),
        1 => (0..8_u8).prop_map(Step::Range),
        1 => Just(Step::Flush),
        8 => (0..4_usize).prop_map(Step::Ask),
        1 => (0..12_000_u64).prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ]
}

/// What it watches, and what it knows.
struct Watcher {
    watches: Vec<Watch<'static>>,
    known: (u64, u32),
    held: bool,
    told: Vec<(Vec<u32>, Told)>,
}

impl Watcher {
    fn take(&mut self, events: Events) {
        assert!(events.seen >= self.known.0);
        self.known = (events.seen, events.part);
        self.told.extend(events.events);
        self.held = false;
    }
}

fn sets() -> [Vec<Watch<'static>>; 4] {
    let between = Watch {
        id: 3,
        watched: Watched::Range(KeyRange::Between {
            start: b"a/1",
            end: Some(b"b/1"),
        }),
    };
    [
        vec![prefix(1, "")],
        vec![key(1, "a"), key(2, "b"), key(3, "nobody")],
        vec![prefix(1, "a"), prefix(2, "a/"), between],
        vec![between, key(1, "c"), prefix(2, "c")],
    ]
}

impl Alone {
    fn do_step(&mut self, step: &Step, watchers: &mut [Watcher], start: u64) {
        let chosen = |number: &u8| KEYS[usize::from(*number)];
        match step {
            Step::Put(number) => drop(self.put(chosen(number), "value")),
            Step::Delete(number) => {
                let key = chosen(number).as_bytes();
                self.apply(&Command::Delete { key });
            }
            Step::Range(number) => {
                let range = KeyRange::Prefix(chosen(number).as_bytes());
                self.apply(&Command::DeleteRange { range, count: 3 });
            }
            Step::Flush => drop(self.apply(&Command::Flush)),
            Step::Pass(ms) => self.pass(Duration::from_millis(*ms)),
            Step::Restart => self.group.watches.on_new_state(),
            Step::Ask(number) => self.ask_for(*number, watchers, start),
        }
        for (number, watcher) in watchers.iter_mut().enumerate() {
            if let Some(events) = self.events(number as u64) {
                watcher.take(events);
            }
        }
    }

    fn ask_for(&mut self, number: usize, watchers: &mut [Watcher], start: u64) {
        let watcher = &mut watchers[number];
        if std::mem::replace(&mut watcher.held, true) {
            return;
        }
        let (from, part) = watcher.known;
        let request = WatchRequest {
            part,
            bytes_max: WATCH_REPLY_BYTES_MIN as u32,
            ..request(start + number as u64, from, &watcher.watches)
        };
        self.watch(number as u64, &request);
    }

    /// All events of this set of watches, straight from the history.
    fn expected(&self, watches: &[Watch<'_>], from: u64) -> Vec<(Vec<u32>, Told)> {
        let state = self.group.state.as_ref().unwrap();
        let history = state.store().history().unwrap();
        let holds = |watch: &Watch<'_>, key: &[u8]| match watch.watched {
            Watched::Key(own) => own == key,
            Watched::Range(KeyRange::Prefix(prefix)) => key.starts_with(prefix),
            Watched::Range(KeyRange::Between { start, end }) => {
                key >= start && end.is_none_or(|end| key < end)
            }
        };
        let mut all = Vec::new();
        for event in history.after(Position::from_u64(from)).unwrap() {
            let of_event = |watch: &&Watch<'_>| event.key().is_none_or(|key| holds(watch, key));
            let mut ids: Vec<_> = watches
                .iter()
                .filter(of_event)
                .map(|watch| watch.id)
                .collect();
            ids.sort_unstable();
            if !ids.is_empty() {
                all.push((ids, (event.position.as_u64(), words(event.change))));
            }
        }
        all
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever the times at which they ask, watchers hear of everything that they watch, once and in its order.
    #[test]
    fn nothing_is_missed_and_nothing_comes_twice(steps in vec(step(), 1..120)) {
        let mut alone = Alone::new(1 << 20);
        let from = alone.applied();
        let mut watchers: Vec<_> = sets()
            .into_iter()
            .map(|watches| Watcher { watches, known: (from, 0), held: false, told: Vec::new() })
            .collect();
        for step in &steps {
            alone.do_step(step, &mut watchers, 100);
        }
        // Everybody asks until nothing is left.
        for _ in 0..4 {
            (0..4).for_each(|number| alone.do_step(&Step::Ask(number), &mut watchers, 100));
            alone.do_step(&Step::Pass(11_000), &mut watchers, 100);
        }
        for watcher in &watchers {
            prop_assert_eq!(&watcher.told, &alone.expected(&watcher.watches, from));
        }
    }
}
