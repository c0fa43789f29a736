//! Clients with a cache of what they have read, beside a store whose changes come when the test wants: whatever comes in
//! which order, in the end no cache has a value that the store has not.

mod lost;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;
use trine_kvstore::{Command, Limits as StoreLimits, Store};

use super::*;
use crate::connection::{Call, Environment, Failure, Identity, NotKnown, OnBehalf, Submit, Told};
use crate::limits::Limits;

struct Host;

impl Told for Host {
    fn info(&self, _sections: &[&[u8]], _has_prefix: bool) -> String {
        String::new()
    }
    fn others(&self, _: &dyn Fn(&Connection) -> bool) -> String {
        String::new()
    }
    fn is_there(&self, id: u64, _user: &str) -> bool {
        id < 90
    }
    fn settings(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

#[derive(Default)]
struct Sent(Option<(Vec<u8>, bool)>);

impl Submit for Sent {
    fn submit(&mut self, call: &Call<'_>) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        call.command.encode(&mut bytes);
        self.0 = Some((bytes, call.read_only));
        Ok(())
    }
    fn open_session(&mut self, _for_user: Option<OnBehalf>) -> Result<u64, Failure> {
        Err(Failure::NotApplied("not here".to_owned()))
    }
    fn authenticate(&mut self, _user: &[u8], _secret: &[u8]) -> Result<(), NotKnown> {
        Err(NotKnown::Wrong)
    }
}

/// A reply or a push.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Heard {
    Text(String),
    Nothing,
    List(Vec<Heard>),
    Push(Vec<Heard>),
}

impl Heard {
    fn read(rest: &mut &[u8]) -> Self {
        let end = rest
            .windows(2)
            .position(|pair| pair == b"\r\n")
            .expect("a line");
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        *rest = &rest[end + 2..];
        let mut list = |each: usize| {
            let count: usize = line[1..].parse().expect("a count");
            (0..count * each).map(|_| Self::read(rest)).collect()
        };
        match line.as_bytes()[0] {
            b'_' => Self::Nothing,
            b'$' if &line[1..] == "-1" => Self::Nothing,
            b'$' => {
                let length: usize = line[1..].parse().expect("a length");
                let text = String::from_utf8_lossy(&rest[..length]).into_owned();
                *rest = &rest[length + 2..];
                Self::Text(text)
            }
            b'*' | b'~' => Self::List(list(1)),
            b'%' => Self::List(list(2)),
            b'>' => Self::Push(list(1)),
            _ => Self::Text(line),
        }
    }

    fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

fn push(words: &[&str]) -> Heard {
    Heard::Push(words.iter().map(|word| Heard::text(word)).collect())
}

fn invalid(keys: &[&str]) -> Heard {
    let keys = keys.iter().map(|key| Heard::text(key)).collect();
    Heard::Push(vec![Heard::text("invalidate"), Heard::List(keys)])
}

fn all_invalid() -> Heard {
    Heard::Push(vec![Heard::text("invalidate"), Heard::Nothing])
}

/// What is under way to the store, or back from it.
enum Way {
    Idle,
    /// Not applied yet.
    Sent(Vec<u8>, bool),
    /// Applied: the answer, encoded, and what it has seen.
    Done(Vec<u8>, Position),
}

struct Party {
    connection: Connection,
    way: Way,
}

#[derive(Default)]
struct Parties(BTreeMap<u64, Party>);

impl Clients for Parties {
    fn with(&mut self, client: u64, tell: &mut dyn FnMut(&mut Connection)) {
        if let Some(party) = self.0.get_mut(&client) {
            tell(&mut party.connection);
        }
    }
}

struct World {
    broker: RefCell<Broker>,
    store: Store,
    index: u64,
    parties: Parties,
    /// Everything up to here was told.
    told: Position,
    limits: Limits,
}

impl World {
    fn new() -> Self {
        let mut store = Store::new(StoreLimits::default(), [1, 2]);
        store.keep_history(1 << 20, Position::ZERO);
        let mut world = Self {
            broker: RefCell::new(Broker::new(Classes::default())),
            store,
            index: 0,
            parties: Parties::default(),
            told: Position::ZERO,
            limits: Limits::default(),
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        // The position is asked for when the stream begins, and what is behind it comes.
        self.told = Position::new(self.index, 9);
        self.broker.borrow_mut().on_begin(&mut self.parties);
    }

    fn join(&mut self, id: u64) {
        let connection = Connection::new(id, "here".to_owned(), false, 0);
        let way = Way::Idle;
        self.parties.0.insert(id, Party { connection, way });
        self.says(id, "HELLO 3");
        self.hears(id);
    }

    /// Lets a client send a line; its call goes on its way.
    fn says(&mut self, id: u64, lines: &str) {
        let party = self.parties.0.get_mut(&id).expect("it is there");
        party.connection.on_bytes(format!("{lines}\r\n").as_bytes());
        self.advance(id);
    }

    fn advance(&mut self, id: u64) {
        let party = self.parties.0.get_mut(&id).expect("it is there");
        let environment = Environment {
            limits: &self.limits,
            password: None,
            requires_auth: false,
            unix_ms: 0,
            host: &Host,
            broker: &self.broker,
        };
        let mut sent = Sent::default();
        party.connection.advance(&environment, &mut sent);
        if let Some((bytes, read_only)) = sent.0 {
            party.way = Way::Sent(bytes, read_only);
        }
    }

    /// The store does what a client has sent.
    fn apply(&mut self, id: u64) {
        let party = self.parties.0.get_mut(&id).expect("it is there");
        let Way::Sent(bytes, read_only) = &party.way else {
            return;
        };
        let command = Command::decode(bytes).expect("a command");
        let mut answer = Vec::new();
        let seen = match read_only {
            true => {
                self.store.read(&command).encode(&mut answer);
                Position::new(self.index, 0)
            }
            false => {
                self.index += 1;
                let at = Position::new(self.index, 0);
                self.store.apply(at, &command).encode(&mut answer);
                at
            }
        };
        party.way = Way::Done(answer, seen);
    }

    /// The answer comes.
    fn answer(&mut self, id: u64) {
        let party = self.parties.0.get_mut(&id).expect("it is there");
        let (answer, seen) = match std::mem::replace(&mut party.way, Way::Idle) {
            Way::Done(answer, seen) => (answer, seen),
            other => {
                party.way = other;
                return;
            }
        };
        let response = trine_kvstore::Response::decode(&answer).expect("an answer");
        party.connection.on_answer(seen, Ok(response));
        let mut broker = self.broker.borrow_mut();
        broker.on_answer(id, seen, &mut self.parties);
        drop(broker);
        self.advance(id);
    }

    /// The next changes are told, up to so many.
    fn tell(&mut self, count: usize) {
        let history = self.store.history().expect("it is kept");
        let events = history.after(self.told).expect("they are all there");
        let mut broker = self.broker.borrow_mut();
        for event in events.take(count) {
            let change = KeyChange {
                position: event.position,
                command: Some(event.command),
                change: event.change,
            };
            broker.on_change(&change, &mut self.parties);
            self.told = event.position;
        }
        broker.on_changes_end(&mut self.parties);
    }

    /// Everything that is under way comes to its end.
    fn settle(&mut self) {
        let ids: Vec<u64> = self.parties.0.keys().copied().collect();
        for _ in 0..3 {
            for &id in &ids {
                self.apply(id);
                self.answer(id);
            }
        }
        self.tell(usize::MAX);
    }

    fn asks(&mut self, id: u64, line: &str) -> Vec<Heard> {
        self.says(id, line);
        self.apply(id);
        self.answer(id);
        self.hears(id)
    }

    /// What a client has been sent since the last call.
    fn hears(&mut self, id: u64) -> Vec<Heard> {
        let connection = &mut self.parties.0.get_mut(&id).expect("it is there").connection;
        let bytes = connection.output().to_vec();
        connection.on_written(bytes.len());
        let mut rest = &bytes[..];
        let mut heard = Vec::new();
        while !rest.is_empty() {
            heard.push(Heard::read(&mut rest));
        }
        heard
    }
}

fn ok() -> Vec<Heard> {
    vec![Heard::text("+OK")]
}

#[test]
fn a_key_that_was_read_is_invalid_once_it_has_changed() {
    let mut world = World::new();
    (1..=2).for_each(|id| world.join(id));
    assert_eq!(world.asks(1, "CLIENT TRACKING ON"), ok());
    assert_eq!(world.asks(2, "SET k 1"), ok());
    assert_eq!(world.asks(1, "GET k"), [Heard::text("1")]);
    world.tell(9);
    assert_eq!(world.hears(1), [], "the value has seen this change");
    for value in 2..4 {
        assert_eq!(world.asks(2, &format!("SET k {value}")), ok());
    }
    world.tell(9);
    assert_eq!(world.hears(1), [invalid(&["k"])], "once");
    assert_eq!(
        world.asks(1, "MGET k m"),
        [Heard::List(vec![Heard::text("3"), Heard::Nothing])]
    );
    assert_eq!(world.asks(2, "MSET m 1 k 1"), ok());
    world.tell(9);
    assert_eq!(world.hears(1), [invalid(&["m"]), invalid(&["k"])]);
    assert_eq!(world.asks(1, "CLIENT TRACKING OFF"), ok());
    assert_eq!(world.broker.borrow().counts(), BrokerCounts::default());
}

/// The change is told before the answer with the value from before it: the client would keep that value for ever.
#[test]
fn an_invalidation_before_the_answer_is_repeated_behind_it() {
    for options in ["", " BCAST", " OPTOUT", " NOLOOP", " BCAST NOLOOP"] {
        let mut world = World::new();
        (1..=2).for_each(|id| world.join(id));
        assert_eq!(world.asks(1, &format!("CLIENT TRACKING ON{options}")), ok());
        assert_eq!(world.asks(2, "SET k 1"), ok());
        world.tell(9);
        world.hears(1);
        world.says(1, "GET k");
        world.apply(1);
        assert_eq!(world.asks(2, "SET k 2"), ok());
        world.tell(9);
        world.hears(1);
        world.answer(1);
        let heard = world.hears(1);
        assert_eq!(heard, [Heard::text("1"), invalid(&["k"])], "{options}");
    }
}

/// A denied read has seen nothing, so each change while it was under way counted as newer. A user with a prefix was told when
/// others wrote a key outside of it.
#[test]
fn a_read_that_is_denied_tells_nothing_of_its_key() {
    let mut world = World::new();
    (1..=2).for_each(|id| world.join(id));
    let alice = Identity {
        name: "alice".to_owned(),
        on_behalf: OnBehalf {
            number: 1,
            generation: 1,
        },
        prefix: b"a/".to_vec(),
        administers: false,
    };
    let party = |world: &mut World, act: &mut dyn FnMut(&mut Party)| {
        act(world.parties.0.get_mut(&1).expect("it is there"));
    };
    party(&mut world, &mut |party| {
        party.connection.executor().become_user(alice.clone());
    });
    assert_eq!(world.asks(1, "CLIENT TRACKING ON"), ok());
    world.says(1, "GET b/secret");
    party(&mut world, &mut |party| {
        let mut answer = Vec::new();
        trine_kvstore::Response::Denied { reason: "no" }.encode(&mut answer);
        party.way = Way::Done(answer, Position::ZERO);
    });
    assert_eq!(world.asks(2, "SET b/secret 1"), ok());
    world.tell(9);
    world.answer(1);
    assert_eq!(world.hears(1), [Heard::text("-NOPERM no")]);
    assert_eq!(world.broker.borrow().counts().tracked_keys, 0);
}

/// A pipeline was refused as a whole and sent command by command before its client tracked anything. The first answer after
/// CLIENT TRACKING was taken for the refused one, so the key that it read was never watched.
#[test]
fn tracking_begins_with_the_first_read_after_a_pipeline_was_split() {
    let mut world = World::new();
    (1..=2).for_each(|id| world.join(id));
    assert_eq!(world.asks(2, "SET k 1"), ok());
    let get = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    world.says(1, get.repeat(2).trim_end());
    let party = world.parties.0.get_mut(&1).expect("it is there");
    let mut answer = Vec::new();
    trine_kvstore::Response::Error(trine_kvstore::StoreError::ResponseTooLarge).encode(&mut answer);
    party.way = Way::Done(answer, Position::ZERO);
    world.answer(1);
    world.settle();
    assert_eq!(world.hears(1), [Heard::text("1"), Heard::text("1")]);
    assert_eq!(world.asks(1, "CLIENT TRACKING ON"), ok());
    assert_eq!(world.asks(1, "GET k"), [Heard::text("1")]);
    assert_eq!(world.asks(2, "SET k 2"), ok());
    world.tell(9);
    assert_eq!(world.hears(1), [invalid(&["k"])]);
}

/// Values of the first commands are from before the last one.
#[test]
fn what_a_pipeline_reads_before_it_writes_is_invalid_behind_it() {
    for options in ["", " BCAST"] {
        for told_first in [false, true] {
            let mut world = World::new();
            world.join(1);
            assert_eq!(world.asks(1, "SET k 1"), ok());
            world.tell(9);
            assert_eq!(world.asks(1, &format!("CLIENT TRACKING ON{options}")), ok());
            world.says(1, "GET k\r\nSET k 2");
            let inputs = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n3\r\n";
            world.settle();
            world.hears(1);
            world.says(1, inputs);
            world.apply(1);
            if told_first {
                world.tell(9);
                world.hears(1);
            }
            world.answer(1);
            world.tell(9);
            let heard = world.hears(1);
            let replies: Vec<&Heard> = heard.iter().take(2).collect();
            assert_eq!(
                replies,
                [&Heard::text("2"), &Heard::text("+OK")],
                "{heard:?}"
            );
            assert!(
                heard[2..].contains(&invalid(&["k"])),
                "{options} {told_first} {heard:?}"
            );
        }
    }
}

#[test]
fn a_broadcast_has_one_message_for_each_prefix() {
    let mut world = World::new();
    (1..=3).for_each(|id| world.join(id));
    let on = "CLIENT TRACKING ON BCAST";
    assert_eq!(world.asks(1, &format!("{on} PREFIX a PREFIX b")), ok());
    assert_eq!(world.asks(2, on), ok());
    assert_eq!(world.asks(3, "MSET a2 x a1 x b1 x c1 x a2 y"), ok());
    world.tell(9);
    assert_eq!(world.hears(1), [invalid(&["a1", "a2"]), invalid(&["b1"])]);
    assert_eq!(world.hears(2), [invalid(&["a1", "a2", "b1", "c1"])]);
    assert_eq!(world.asks(3, "FLUSHALL"), ok());
    world.tell(9);
    assert_eq!(world.hears(1), [all_invalid()]);
    assert_eq!(world.hears(2), [all_invalid()]);
}

#[test]
fn own_writes_are_told_unless_the_client_wants_no_loop() {
    for (options, told) in [("", true), (" NOLOOP", false)] {
        for mode in ["", " BCAST"] {
            for told_first in [false, true] {
                let mut world = World::new();
                world.join(1);
                let on = format!("CLIENT TRACKING ON{mode}{options}");
                assert_eq!(world.asks(1, &on), ok());
                world.asks(1, "GET k");
                world.says(1, "SET k 1");
                world.apply(1);
                if told_first {
                    world.tell(9);
                }
                world.answer(1);
                world.tell(9);
                let heard = world.hears(1);
                assert_eq!(heard.contains(&invalid(&["k"])), told, "{on}: {heard:?}");
                assert!(heard.contains(&Heard::text("+OK")));
            }
        }
    }
}

/// A change by another came while a write was under way, and was taken for one that the write's position had seen. It was
/// never told.
#[test]
fn what_others_write_while_an_own_write_is_under_way_is_told_behind_it() {
    for mode in ["", " BCAST"] {
        let mut world = World::new();
        (1..=2).for_each(|id| world.join(id));
        assert_eq!(
            world.asks(1, &format!("CLIENT TRACKING ON NOLOOP{mode}")),
            ok()
        );
        world.asks(1, "GET k");
        world.asks(2, "SET k 1");
        world.says(1, "SET own 1");
        world.apply(1);
        world.tell(9);
        assert_eq!(world.hears(1), [], "it may be the client's own");
        world.answer(1);
        assert_eq!(
            world.hears(1),
            [Heard::text("+OK"), invalid(&["k"])],
            "{mode}"
        );
    }
}

#[test]
fn opt_in_and_opt_out_choose_commands() {
    for (option, word, when_said) in [("OPTIN", "YES", true), ("OPTOUT", "NO", false)] {
        let mut world = World::new();
        (1..=2).for_each(|id| world.join(id));
        assert_eq!(world.asks(1, &format!("CLIENT TRACKING ON {option}")), ok());
        assert_eq!(world.asks(1, &format!("CLIENT CACHING {word}")), ok());
        world.asks(1, "GET said");
        world.asks(1, "GET unsaid");
        assert_eq!(world.asks(1, &format!("CLIENT CACHING {word}")), ok());
        for line in ["MULTI", "GET s1", "GET s2"] {
            world.asks(1, line);
        }
        world.asks(1, "EXEC");
        assert_eq!(world.asks(2, "MSET said 1 unsaid 1 s1 1 s2 1"), ok());
        world.tell(9);
        let expected = match when_said {
            true => vec![invalid(&["said"]), invalid(&["s1"]), invalid(&["s2"])],
            false => vec![invalid(&["unsaid"])],
        };
        assert_eq!(world.hears(1), expected, "{option}");
    }
}

/// RESP2 has no other place for invalidations than a channel of another connection.
#[test]
fn a_subscriber_of_resp2_is_told_instead_and_its_end_is_noticed() {
    let mut world = World::new();
    (1..=3).for_each(|id| world.join(id));
    world.asks(2, "HELLO 2");
    assert_eq!(world.asks(1, "CLIENT TRACKING ON REDIRECT 2"), ok());
    assert_eq!(world.asks(1, "CLIENT GETREDIR"), [Heard::text(":2")]);
    world.asks(1, "GET k");
    world.asks(3, "SET k 1");
    world.tell(9);
    assert_eq!(world.hears(2), [], "it has not subscribed");
    let channel = "__redis__:invalidate";
    let subscribed = |number| {
        let parts = ["subscribe", channel, number];
        vec![Heard::List(
            parts.iter().map(|part| Heard::text(part)).collect(),
        )]
    };
    assert_eq!(
        world.asks(2, &format!("SUBSCRIBE {channel}")),
        subscribed(":1")
    );
    world.asks(1, "GET k");
    world.asks(3, "SET k 2");
    world.tell(9);
    let message = Heard::List(vec![
        Heard::text("message"),
        Heard::text(channel),
        Heard::List(vec![Heard::text("k")]),
    ]);
    assert_eq!(world.hears(2), [message]);
    let mut gone = world.parties.0.remove(&2).expect("it is there");
    gone.connection.leave(&mut world.broker.borrow_mut());
    let broken = Heard::Push(vec![
        Heard::text("tracking-redir-broken"),
        Heard::text(":2"),
    ]);
    for expected in [vec![broken], vec![]] {
        world.asks(1, "GET k");
        world.asks(3, "SET k 3");
        world.tell(9);
        assert_eq!(world.hears(1), expected, "once");
    }
    let info = format!("{:?}", world.asks(1, "CLIENT TRACKINGINFO"));
    assert!(info.contains("broken_redirect"), "{info}");
}

#[test]
fn keys_beyond_the_limit_are_pushed_out_and_invalid() {
    let mut world = World::new();
    world.join(1);
    assert_eq!(world.asks(1, "CONFIG SET tracking-table-max-keys 2"), ok());
    assert_eq!(world.asks(1, "CLIENT TRACKING ON"), ok());
    for key in ["a", "b", "c"] {
        world.asks(1, &format!("GET {key}"));
    }
    world.broker.borrow_mut().trim(&mut world.parties);
    assert_eq!(world.hears(1), [invalid(&["a"])]);
    assert_eq!(world.broker.borrow().counts().tracked_keys, 2);
}

#[test]
fn events_go_to_channels_and_patterns_by_their_classes() {
    let mut world = World::new();
    (1..=3).for_each(|id| world.join(id));
    world.asks(1, "SUBSCRIBE __keyspace@0__:k __keyevent@0__:del");
    world.asks(2, "PSUBSCRIBE __key*@0__:*");
    world.asks(3, "SET k 1");
    world.tell(9);
    assert_eq!(world.hears(1), [], "no class is chosen");
    assert_eq!(world.asks(3, "CONFIG SET notify-keyspace-events KEA"), ok());
    for line in ["SET k 1 EX 100", "INCR k", "APPEND other x", "DEL k"] {
        world.asks(3, line);
    }
    world.tell(99);
    let (space, event) = ("__keyspace@0__:k", "__keyevent@0__:del");
    let on_space = |name| push(&["message", space, name]);
    assert_eq!(
        world.hears(1),
        [
            on_space("set"),
            on_space("expire"),
            on_space("incrby"),
            on_space("del"),
            push(&["message", event, "k"]),
        ]
    );
    let heard = world.hears(2);
    assert_eq!(heard.len(), 10, "each twice");
    assert_eq!(heard[0], push(&["pmessage", "__key*@0__:*", space, "set"]));
    assert_eq!(
        heard[7],
        push(&["pmessage", "__key*@0__:*", "__keyevent@0__:append", "other"])
    );
    assert_eq!(world.asks(3, "CONFIG SET notify-keyspace-events K$"), ok());
    world.asks(3, "SET k 1 EX 100");
    world.asks(3, "DEL k");
    world.tell(9);
    assert_eq!(world.hears(1), [on_space("set")]);
}

/// A client that does not read is disconnected, and never keeps more than its limit.
#[test]
fn a_subscriber_that_does_not_read_is_cut_off() {
    let mut world = World::new();
    (1..=2).for_each(|id| world.join(id));
    world.asks(2, "CONFIG SET notify-keyspace-events KEA");
    world.asks(1, "PSUBSCRIBE *");
    let key = "k".repeat(60_000);
    for round in 0.. {
        assert!(round < 200, "it is never cut off");
        world.asks(2, &format!("SET {key} {round}"));
        world.tell(9);
        let connection = &world.parties.0[&1].connection;
        assert!(connection.held_bytes() < 3 * crate::limits::PUSHED_BYTES_MAX);
        if connection.is_cut_off() {
            assert!(connection.is_over() && connection.output().is_empty());
            return;
        }
    }
}

/// One step of a random run.
#[derive(Clone, Debug)]
enum Step {
    Get(u64, u8),
    Set(u64, u8),
    Both(u64, u8),
    Delete(u64, u8),
    Flush(u64),
    Apply(u64),
    Answer(u64),
    Tell(usize),
    Lose,
    Begin,
    Resume,
    Trim(usize),
}

const CACHING: u64 = 6;

fn step() -> impl Strategy<Value = Step> {
    let (client, key) = (1..=CACHING, 0..4_u8);
    prop_oneof![
        5 => (client.clone(), key.clone()).prop_map(|(c, k)| Step::Get(c, k)),
        3 => (client.clone(), key.clone()).prop_map(|(c, k)| Step::Set(c, k)),
        1 => (client.clone(), key.clone()).prop_map(|(c, k)| Step::Both(c, k)),
        1 => (client.clone(), key).prop_map(|(c, k)| Step::Delete(c, k)),
        1 => client.clone().prop_map(Step::Flush),
        6 => client.clone().prop_map(Step::Apply),
        6 => client.prop_map(Step::Answer),
        4 => (1..4_usize).prop_map(Step::Tell),
        1 => Just(Step::Lose),
        1 => Just(Step::Begin),
        1 => Just(Step::Resume),
        1 => (0..3_usize).prop_map(Step::Trim),
    ]
}

/// A client's cache, and the commands whose replies it waits for.
#[derive(Default)]
struct Cache {
    values: BTreeMap<String, Heard>,
    waits: VecDeque<Option<String>>,
}

impl Cache {
    fn hear(&mut self, heard: Vec<Heard>, invalidations_of: &mut Vec<Heard>) {
        for heard in heard {
            match heard {
                Heard::Push(parts) => invalidations_of.push(parts[1].clone()),
                reply => {
                    let waited = self.waits.pop_front().expect("a reply that was asked for");
                    if let Some(key) = waited {
                        self.values.insert(key, reply);
                    }
                }
            }
            for gone in invalidations_of.drain(..) {
                self.forget(&gone);
            }
        }
    }

    fn forget(&mut self, keys: &Heard) {
        match keys {
            Heard::List(keys) => keys.iter().for_each(|key| {
                let Heard::Text(key) = key else {
                    panic!("a key")
                };
                self.values.remove(key);
            }),
            _ => self.values.clear(),
        }
    }
}

struct Run {
    world: World,
    caches: BTreeMap<u64, Cache>,
    is_following: bool,
}

impl Run {
    fn new() -> Self {
        let mut world = World::new();
        (1..=CACHING).for_each(|id| world.join(id));
        for (id, options) in [
            (1, "ON"),
            (2, "ON BCAST"),
            (3, "ON NOLOOP"),
            (4, "ON BCAST NOLOOP PREFIX k0 PREFIX k1 PREFIX k2 PREFIX k3"),
            (5, "ON OPTIN"),
            (6, "ON OPTOUT"),
        ] {
            assert_eq!(world.asks(id, &format!("CLIENT TRACKING {options}")), ok());
        }
        let caches = (1..=CACHING).map(|id| (id, Cache::default())).collect();
        Self {
            world,
            caches,
            is_following: true,
        }
    }

    fn send(&mut self, id: u64, command: &[&str], caches: Option<&str>) {
        let mut request = format!("*{}\r\n", command.len());
        for part in command {
            request += &format!("${}\r\n{part}\r\n", part.len());
        }
        let party = self.world.parties.0.get_mut(&id).expect("it is there");
        party.connection.on_bytes(request.as_bytes());
        let cache = self.caches.get_mut(&id).expect("it is there");
        cache.waits.push_back(caches.map(str::to_owned));
    }

    /// Whether a client has no reply to wait for; then it sends the next command.
    fn is_idle(&self, id: u64) -> bool {
        self.caches[&id].waits.is_empty()
    }

    fn writes(&mut self, id: u64, command: &[&str]) {
        // A client that wants no loop forgets by itself what it writes.
        if [3, 4].contains(&id) {
            let values = &mut self.caches.get_mut(&id).expect("it is there").values;
            match command.get(1) {
                Some(key) => drop(values.remove(*key)),
                None => values.clear(),
            }
        }
        self.send(id, command, None);
    }

    fn step(&mut self, number: usize, step: &Step) {
        let value = number.to_string();
        let name = |key: u8| format!("k{key}");
        match *step {
            Step::Get(id, key) if self.is_idle(id) => {
                if id == 5 {
                    self.send(id, &["CLIENT", "CACHING", "YES"], None);
                }
                self.send(id, &["GET", &name(key)], Some(&name(key)));
            }
            Step::Set(id, key) if self.is_idle(id) => {
                self.writes(id, &["SET", &name(key), &value]);
            }
            // A client that wants no loop would keep what it has read before its write.
            Step::Both(id, key) if self.is_idle(id) && ![3, 4, 5].contains(&id) => {
                self.send(id, &["GET", &name(key)], Some(&name(key)));
                self.writes(id, &["SET", &name(key), &value]);
            }
            Step::Delete(id, key) if self.is_idle(id) => self.writes(id, &["DEL", &name(key)]),
            Step::Flush(id) if self.is_idle(id) => self.writes(id, &["FLUSHALL"]),
            Step::Apply(id) => self.world.apply(id),
            Step::Answer(id) => self.world.answer(id),
            Step::Tell(count) if self.is_following => self.world.tell(count),
            Step::Lose => {
                self.is_following = false;
                self.world
                    .broker
                    .borrow_mut()
                    .on_lost(&mut self.world.parties);
            }
            Step::Begin if !self.is_following => {
                self.is_following = true;
                self.world.begin();
            }
            Step::Resume if !self.is_following => {
                self.is_following = true;
                self.world
                    .broker
                    .borrow_mut()
                    .on_resume(&mut self.world.parties);
            }
            Step::Trim(keys_max) => {
                let mut broker = self.world.broker.borrow_mut();
                broker.set_keys_max(keys_max + 1);
                broker.trim(&mut self.world.parties);
                broker.set_keys_max(0);
            }
            _ => {}
        }
        (1..=CACHING).for_each(|id| self.world.advance(id));
        self.hear();
        for (id, cache) in &self.caches {
            let kept = &cache.values;
            assert!(self.is_following || kept.is_empty(), "{id} keeps {kept:?}");
        }
    }

    fn hear(&mut self) {
        for (&id, cache) in &mut self.caches {
            cache.hear(self.world.hears(id), &mut Vec::new());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    /// Clients of every mode read, write and keep what they have read, until they are told that it is invalid. Answers
    /// and changes come in any order, and the stream of changes breaks now and then.
    #[test]
    fn in_the_end_each_cache_is_as_the_store(steps in vec(step(), 1..160)) {
        let mut run = Run::new();
        for (number, step) in steps.iter().enumerate() {
            run.step(number, step);
        }
        if !run.is_following {
            run.world.begin();
        }
        run.world.settle();
        run.hear();
        for (id, cache) in &run.caches {
            prop_assert!(cache.waits.is_empty());
            for (key, value) in &cache.values {
                let key_bytes = key.as_bytes();
                let response = run.world.store.read(&Command::Get { key: key_bytes });
                let now = match response {
                    trine_kvstore::Response::Value { value, .. } => {
                        Heard::Text(String::from_utf8_lossy(value).into_owned())
                    }
                    _ => Heard::Nothing,
                };
                prop_assert_eq!(value, &now, "client {} has an old {}", id, key);
            }
        }
    }
}
