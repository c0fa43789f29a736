//! Lists of random operations against the model, with snapshots in between. Every answer, the
//! logical bytes and every snapshot must be what the model says. A store that was rebuilt half-way
//! must continue exactly like the one that was not.

use crate::model::Model;
use proptest::collection::vec;
use proptest::prelude::*;
use trine_keys::{Fingerprint, GroupId, Issuer, Role, UserName};
use trine_kvstore::{
    Command, Condition, Cursor, Entry, ExecuteMode, ExpireCondition, Found, KeyRange, Limits, List,
    Pair, Position, Prefix, Response, Rights, ScanOptions, SetCondition, SetExpiry, SetOptions,
    SnapshotError, SnapshotReader, SnapshotStep, Store, StoreError, WalkContent,
};

const LIMITS: Limits = Limits {
    memory_bytes: 4_000,
    key_bytes: 40,
    value_bytes: 700,
};

/// A command with everything in it owned, or another event of a store.
#[derive(Clone, Debug)]
enum Operation {
    Simple(Simple),
    Execute {
        mode: ExecuteMode,
        conditions: Vec<(u8, Vec<u8>, u64)>,
        operations: Vec<Simple>,
        /// An MSET in the middle of them, if it is not empty.
        puts: Vec<(Vec<u8>, Vec<u8>)>,
    },
    MultiGet(Vec<Vec<u8>>),
    MultiPut(Vec<(Vec<u8>, Vec<u8>)>),
    Lower(u64),
    SetMemory(u64),
    /// About one of a few users, by a file that is nearly always the same.
    User(UserChange, u8, bool),
    ListUsers,
    SetOrdered(bool),
    Scan(Range, ScanOptions),
    CountRange(Range),
    DeleteRange(Range, u32),
    Pin,
    /// About one of the pins that there ever were.
    Renew(usize),
    Unpin(usize),
    ScanAt(usize, Range, ScanOptions),
    Flush,
    Advance(u64),
    BeginSnapshot,
    Chunk,
    AbandonSnapshot,
    /// The second store is thrown away and rebuilt from a snapshot of itself.
    Rebuild,
}

/// A prefix, or a start and an end.
#[derive(Clone, Debug)]
enum Range {
    Prefix(Vec<u8>),
    Between(Vec<u8>, Option<Vec<u8>>),
}

impl Range {
    fn of_keys(&self) -> KeyRange<'_> {
        match self {
            Self::Prefix(prefix) => KeyRange::Prefix(prefix),
            Self::Between(start, end) => KeyRange::Between {
                start,
                end: end.as_deref(),
            },
        }
    }
}

fn range() -> impl Strategy<Value = Range> {
    let prefix =
        (0_u8..14, 0_usize..4).prop_map(|(byte, length)| Range::Prefix(vec![byte; length]));
    let ends = (key(), prop::option::of(key()));
    let between = ends.prop_map(|(start, end)| Range::Between(start, end));
    let too_long = Just(Range::Prefix(vec![1; 41]));
    prop_oneof![4 => prefix, 4 => between, 1 => too_long]
}

fn scan_options() -> impl Strategy<Value = ScanOptions> {
    let limit = prop_oneof![6 => 1_u32..6, 2 => Just(16_384), 1 => Just(0), 1 => Just(16_385)];
    let drawn = (limit, any::<bool>(), any::<bool>());
    drawn.prop_map(|(limit, reverse, keys_only)| ScanOptions {
        limit,
        reverse,
        keys_only,
    })
}

#[derive(Clone, Debug)]
enum UserChange {
    Add(Role, Vec<u8>),
    Rotate,
    Remove,
}

fn user_change() -> impl Strategy<Value = UserChange> {
    let role = prop_oneof![
        Just(Role::Read),
        Just(Role::Write),
        Just(Role::Admin),
        Just(Role::Member)
    ];
    let prefix = prop_oneof![
        3 => Just(Vec::new()),
        3 => vec(any::<u8>(), 1..20),
        1 => Just(vec![1; 129]),
    ];
    prop_oneof![
        3 => (role, prefix).prop_map(|(role, prefix)| UserChange::Add(role, prefix)),
        1 => Just(UserChange::Rotate),
        2 => Just(UserChange::Remove),
    ]
}

#[derive(Clone, Debug)]
enum Simple {
    Get(Vec<u8>),
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Set(Vec<u8>, Vec<u8>, SetOptions),
    GetDelete(Vec<u8>),
    /// Expects the current version (as far back as the number says), or one that never was.
    Swap(Vec<u8>, u64, Vec<u8>),
    Increment(Vec<u8>, i64),
    Append(Vec<u8>, Vec<u8>),
    Expire(Vec<u8>, u64),
    ExpireIf(Vec<u8>, u64, ExpireCondition),
    ExpireIfBeyond(Vec<u8>, u64, ExpireCondition, u64),
    Persist(Vec<u8>),
    TimeToLive(Vec<u8>),
    Count,
}

impl Simple {
    fn command(&self, model: &Model) -> Command<'_> {
        match self {
            Self::Get(key) => Command::Get { key },
            Self::Put(key, value) => Command::Put { key, value },
            Self::Delete(key) => Command::Delete { key },
            Self::Set(key, value, options) => Command::Set {
                key,
                value,
                options: *options,
            },
            Self::GetDelete(key) => Command::GetDelete { key },
            Self::Swap(key, back, value) => {
                let current = model
                    .items
                    .get(key)
                    .map_or(77, |item| item.version.as_u64());
                Command::CompareAndSwap {
                    key,
                    expected: Position::from_u64(current - back.min(&current)),
                    value,
                }
            }
            Self::Increment(key, delta) => Command::Increment { key, delta: *delta },
            Self::Append(key, value) => Command::Append { key, value },
            Self::Expire(key, after_ns) => Command::Expire {
                key,
                after_ns: *after_ns,
            },
            Self::ExpireIf(key, after_ns, condition) => Command::ExpireIf {
                key,
                after_ns: *after_ns,
                condition: *condition,
            },
            Self::ExpireIfBeyond(key, after_ns, condition, margin_ns) => Command::ExpireIfBeyond {
                key,
                after_ns: *after_ns,
                condition: *condition,
                margin_ns: *margin_ns,
            },
            Self::Persist(key) => Command::Persist { key },
            Self::TimeToLive(key) => Command::TimeToLive { key },
            Self::Count => Command::Count,
        }
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => (0_u8..14).prop_map(|n| vec![n; usize::from(n) * 2]),
        1 => Just(vec![1; 41]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (any::<u8>(), 0_usize..90).prop_map(|(byte, length)| vec![byte; length]),
        2 => (any::<u8>(), 200_usize..720).prop_map(|(byte, length)| vec![byte; length]),
        3 => prop_oneof![-3_i64..100, Just(i64::MAX), Just(i64::MIN)].prop_map(|n| n.to_string().into_bytes()),
    ]
}

fn options() -> impl Strategy<Value = SetOptions> {
    let condition = prop_oneof![
        Just(SetCondition::Always),
        Just(SetCondition::Absent),
        Just(SetCondition::Present)
    ];
    let expiry = prop_oneof![
        Just(SetExpiry::Never),
        Just(SetExpiry::Keep),
        (0_u64..60).prop_map(SetExpiry::After)
    ];
    (condition, expiry, any::<bool>()).prop_map(|(condition, expiry, return_previous)| SetOptions {
        condition,
        expiry,
        return_previous,
    })
}

fn simple() -> impl Strategy<Value = Simple> {
    let delta = prop_oneof![-5_i64..5, Just(i64::MAX), Just(i64::MIN)];
    let condition = prop_oneof![
        Just(ExpireCondition::Absent),
        Just(ExpireCondition::Present),
        Just(ExpireCondition::Later),
        Just(ExpireCondition::Earlier),
        Just(ExpireCondition::PresentAndEarlier)
    ];
    prop_oneof![
        2 => key().prop_map(Simple::Get),
        6 => (key(), value()).prop_map(|(key, value)| Simple::Put(key, value)),
        2 => key().prop_map(Simple::Delete),
        3 => (key(), value(), options()).prop_map(|(key, value, options)| Simple::Set(key, value, options)),
        1 => key().prop_map(Simple::GetDelete),
        2 => (key(), 0_u64..2, value()).prop_map(|(key, back, value)| Simple::Swap(key, back, value)),
        2 => (key(), delta).prop_map(|(key, delta)| Simple::Increment(key, delta)),
        2 => (key(), value()).prop_map(|(key, value)| Simple::Append(key, value)),
        2 => (key(), 0_u64..60).prop_map(|(key, after)| Simple::Expire(key, after)),
        3 => (key(), 0_u64..60, condition.clone()).prop_map(|(key, after, when)| Simple::ExpireIf(key, after, when)),
        3 => (key(), 0_u64..60, condition, 0_u64..20)
            .prop_map(|(key, after, when, margin)| Simple::ExpireIfBeyond(key, after, when, margin)),
        1 => key().prop_map(Simple::Persist),
        1 => key().prop_map(Simple::TimeToLive),
        1 => Just(Simple::Count),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let mode = prop_oneof![
        Just(ExecuteMode::AllOrNothing),
        Just(ExecuteMode::Independent)
    ];
    let condition = (0_u8..3, key(), 0_u64..2);
    prop_oneof![
        24 => simple().prop_map(Operation::Simple),
        4 => (mode, vec(condition, 0..2), vec(simple(), 0..6), vec((key(), value()), 0..4))
            .prop_map(|(mode, conditions, operations, puts)| Operation::Execute { mode, conditions, operations, puts }),
        2 => vec(prop_oneof![key().prop_map(Simple::Get), key().prop_map(Simple::TimeToLive), Just(Simple::Count)], 0..6)
            .prop_map(|operations| Operation::Execute {
                mode: ExecuteMode::Independent,
                conditions: Vec::new(),
                operations,
                puts: Vec::new(),
            }),
        2 => vec(key(), 0..5).prop_map(Operation::MultiGet),
        2 => vec((key(), value()), 0..5).prop_map(Operation::MultiPut),
        1 => (1_000_u64..5_000).prop_map(Operation::Lower),
        1 => (1_000_u64..5_000).prop_map(Operation::SetMemory),
        6 => (user_change(), 0_u8..6, prop::bool::weighted(0.1))
            .prop_map(|(change, name, other)| Operation::User(change, name, other)),
        1 => Just(Operation::ListUsers),
        3 => prop::bool::weighted(0.8).prop_map(Operation::SetOrdered),
        6 => (range(), scan_options()).prop_map(|(range, options)| Operation::Scan(range, options)),
        3 => range().prop_map(Operation::CountRange),
        3 => (range(), 0_u32..5).prop_map(|(range, count)| Operation::DeleteRange(range, count)),
        3 => Just(Operation::Pin),
        1 => (0_usize..40).prop_map(Operation::Renew),
        2 => (0_usize..40).prop_map(Operation::Unpin),
        6 => (0_usize..40, range(), scan_options())
            .prop_map(|(pin, range, options)| Operation::ScanAt(pin, range, options)),
        1 => Just(Operation::Flush),
        4 => (0_u64..30).prop_map(Operation::Advance),
        2 => Just(Operation::BeginSnapshot),
        3 => Just(Operation::Chunk),
        1 => Just(Operation::AbandonSnapshot),
        1 => Just(Operation::Rebuild),
    ]
}

/// The stores under test, the model, and the snapshot that the first store is writing.
struct Bench {
    steady: Store,
    rebuilt: Store,
    model: Model,
    snapshot: Option<(SnapshotReader, Model, u128)>,
    index: u64,
    /// Positions of all pins that there ever were. Those before `pins_lost_through` are unknown to the rebuilt store.
    pins: Vec<Position>,
    pins_lost_through: Position,
}

impl Bench {
    fn new() -> Self {
        let store = || Store::new(LIMITS, [3, 9]);
        Self {
            steady: store(),
            rebuilt: store(),
            model: Model::new(LIMITS),
            snapshot: None,
            index: 0,
            pins: Vec::new(),
            pins_lost_through: Position::ZERO,
        }
    }

    fn run(&mut self, operation: &Operation) {
        match operation {
            Operation::Simple(simple) => {
                let model = self.model.clone();
                self.apply(&simple.command(&model));
            }
            Operation::Execute {
                mode,
                conditions,
                operations,
                puts,
            } => self.execute(*mode, conditions, operations, puts),
            Operation::MultiGet(keys) => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let command = Command::MultiGet {
                    keys: List::from(keys.as_slice()),
                };
                self.apply(&command);
            }
            Operation::MultiPut(pairs) => {
                let pairs: Vec<_> = pairs
                    .iter()
                    .map(|(key, value)| Pair { key, value })
                    .collect();
                self.apply(&Command::MultiPut {
                    pairs: List::from(pairs.as_slice()),
                });
            }
            Operation::Lower(memory_bytes) => {
                let limits = Limits {
                    memory_bytes: *memory_bytes,
                    ..LIMITS
                };
                self.apply(&Command::SetLimits { limits });
            }
            Operation::SetMemory(memory_bytes) => {
                self.apply(&Command::SetMemory {
                    memory_bytes: *memory_bytes,
                });
            }
            Operation::User(change, name, other_file) => {
                self.change_user(change, *name, *other_file);
            }
            Operation::ListUsers => self.apply(&Command::ListUsers),
            Operation::SetOrdered(on) => self.apply(&Command::SetOrdered { on: *on }),
            Operation::Scan(range, options) => self.apply(&Command::Scan {
                range: range.of_keys(),
                options: *options,
            }),
            Operation::CountRange(range) => self.apply(&Command::CountRange {
                range: range.of_keys(),
            }),
            Operation::DeleteRange(range, count) => self.apply(&Command::DeleteRange {
                range: range.of_keys(),
                count: *count,
            }),
            Operation::Pin => {
                self.pins.push(Position::new(self.index + 1, 0));
                self.apply(&Command::Pin);
            }
            Operation::Renew(number) => {
                let position = self.pin(*number);
                self.apply(&Command::RenewPin { position });
            }
            Operation::Unpin(number) => {
                let position = self.pin(*number);
                self.apply(&Command::Unpin { position });
            }
            Operation::ScanAt(number, range, options) => {
                self.scan_at(self.pin(*number), range, *options);
                self.count_and_walk_at(self.pin(*number), range);
            }
            Operation::Flush => self.flush(),
            Operation::Advance(by_ns) => {
                let to = self.model.group_time_ns + by_ns;
                self.model.set_group_time(to);
                self.model.build_index();
                for store in [&mut self.steady, &mut self.rebuilt] {
                    store.set_group_time(to);
                    store.build_index();
                }
            }
            Operation::BeginSnapshot => self.begin_snapshot(),
            Operation::Chunk => self.chunk(),
            Operation::AbandonSnapshot => {
                self.steady.abandon_snapshot();
                self.snapshot = None;
            }
            Operation::Rebuild => self.rebuild(),
        }
    }

    fn change_user(&mut self, change: &UserChange, name: u8, other_file: bool) {
        let issuer = Issuer {
            group: GroupId([7; 8]),
            root: Fingerprint([u8::from(other_file); 4]),
        };
        let name = UserName::new(&[b'a' + name]).expect("a name");
        let command = match change {
            UserChange::Add(role, prefix) => Command::AddUser {
                issuer,
                name,
                rights: Rights {
                    role: *role,
                    front: other_file,
                    prefix,
                },
            },
            UserChange::Rotate => Command::RotateUser { issuer, name },
            UserChange::Remove => Command::RemoveUser { name },
        };
        self.apply(&command);
        for store in [&self.steady, &self.rebuilt] {
            let users = store.users();
            assert_eq!(users.len(), self.model.users.all().count());
            for user in self.model.users.all() {
                assert_eq!(users.named(user.name), Some(user));
                assert_eq!(users.numbered(user.number), Some(user));
                assert_eq!(users.is_current(user.name, user.generation), Some(user));
                assert_eq!(users.is_current(user.name, user.generation + 1), None);
                assert_eq!(users.is_current(user.name, user.generation - 1), None);
            }
        }
    }

    fn execute(
        &mut self,
        mode: ExecuteMode,
        conditions: &[(u8, Vec<u8>, u64)],
        operations: &[Simple],
        puts: &[(Vec<u8>, Vec<u8>)],
    ) {
        let model = self.model.clone();
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, key, back)| match kind {
                0 => Condition::Absent { key },
                1 => Condition::Present { key },
                _ => {
                    let version = model
                        .items
                        .get(key)
                        .map_or(0, |item| item.version.as_u64() - back);
                    Condition::VersionIs {
                        key,
                        version: Position::from_u64(version),
                    }
                }
            })
            .collect();
        let mut operations: Vec<_> = operations
            .iter()
            .map(|simple| simple.command(&model))
            .collect();
        let pairs: Vec<_> = puts
            .iter()
            .map(|(key, value)| Pair { key, value })
            .collect();
        if !pairs.is_empty() {
            let pairs = List::from(pairs.as_slice());
            operations.insert(operations.len() / 2, Command::MultiPut { pairs });
        }
        self.apply(&Command::Execute {
            mode,
            conditions: List::from(conditions.as_slice()),
            operations: List::from(operations.as_slice()),
        });
    }

    fn pin(&self, number: usize) -> Position {
        match self.pins.len() {
            0 => Position::ZERO,
            count => self.pins[count - 1 - number % count],
        }
    }

    fn scan_at(&mut self, position: Position, range: &Range, options: ScanOptions) {
        let range = range.of_keys();
        let command = Command::ScanAt {
            position,
            range,
            options,
        };
        let is_known = position > self.pins_lost_through;
        for (store, known) in [(&self.steady, true), (&self.rebuilt, is_known)] {
            let expected = self.model.scan_at(position, &range, options, known);
            let expected = Response::decode(&expected).expect("what was encoded decodes");
            match (store.read(&command), expected) {
                // Where it goes on depends on the keys that were passed by: any place behind the last item will do.
                (
                    Response::Items { items, next },
                    Response::Items {
                        items: told,
                        next: more,
                    },
                ) => {
                    assert_eq!(items, told, "{command:?}");
                    assert!(next.is_some() || more.is_none(), "{command:?}");
                }
                (found, expected) => assert_eq!(found, expected, "{command:?}"),
            }
        }
    }

    /// A count at a pin, and a walk of all keys at it, which needs no index.
    fn count_and_walk_at(&mut self, position: Position, range: &Range) {
        let range = range.of_keys();
        let is_known = position > self.pins_lost_through;
        for (store, known) in [(&self.steady, true), (&self.rebuilt, is_known)] {
            let found = match store.read(&Command::CountAt { position, range }) {
                Response::Counted { items, next: None } => Ok(items),
                Response::Error(error) => Err(error),
                other => panic!("{other:?}"),
            };
            assert_eq!(found, self.model.count_at(position, &range, known));
            match walk_at(store, position) {
                Ok(items) => assert_eq!(items, self.model.walk_at(position)),
                Err(StoreError::PinNotHere) => assert!(!known),
                Err(error) => assert_eq!(found, Err(error)),
            }
        }
    }

    /// The command goes through its encoding into one store and as it is into the other.
    fn apply(&mut self, command: &Command<'_>) {
        self.index += 1;
        let at = Position::new(self.index, 0);
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let decoded = Command::decode(&bytes).expect("what was encoded decodes");
        let expected = self.model.apply(at, command);
        let expected = Response::decode(&expected).expect("what was encoded decodes");
        if command.is_read_only() {
            assert_eq!(self.steady.read(command), expected, "{command:?}");
        }
        assert_eq!(self.steady.apply(at, command), expected, "{command:?}");
        assert_eq!(self.rebuilt.apply(at, &decoded), expected, "{command:?}");
        assert_eq!(
            self.steady.stats().logical_bytes,
            self.model.logical_bytes(),
            "{command:?}"
        );
        assert_eq!(
            self.steady.stats().items,
            self.model.items.len() as u64,
            "{command:?}"
        );
        assert_eq!(
            self.steady.state_hash(),
            self.rebuilt.state_hash(),
            "{command:?}"
        );
    }

    /// A snapshot that is being written has lost its items, unless there were none.
    fn flush(&mut self) {
        let is_lost = !self.model.items.is_empty();
        self.apply(&Command::Flush);
        if is_lost && self.snapshot.take().is_some() {
            let chunk = self.steady.snapshot_chunk(&mut Vec::new());
            assert_eq!(chunk, Err(SnapshotError::GivenUp));
        }
        self.rebuilt.free_flushed();
    }

    fn begin_snapshot(&mut self) {
        match self.steady.begin_snapshot() {
            Ok(summary) => {
                self.snapshot = Some((
                    SnapshotReader::new(),
                    self.model.clone(),
                    summary.state_hash,
                ));
            }
            Err(error) => assert_eq!(error, SnapshotError::Busy),
        }
    }

    fn chunk(&mut self) {
        let Some((mut reader, model, hash)) = self.snapshot.take() else {
            return;
        };
        let mut chunk = Vec::new();
        let step = self
            .steady
            .snapshot_chunk(&mut chunk)
            .expect("a snapshot is being written");
        if step != SnapshotStep::Pending {
            reader.push(&chunk).expect("the chunk is whole");
        }
        if step == SnapshotStep::Last {
            let restored = reader.finish().expect("it is complete");
            check_against(&restored, &model, hash);
        } else {
            self.snapshot = Some((reader, model, hash));
        }
    }

    fn rebuild(&mut self) {
        self.rebuilt = copy(&mut self.rebuilt);
        self.pins_lost_through = Position::new(self.index, 0);
        assert_eq!(self.rebuilt.state_hash(), self.steady.state_hash());
    }
}

fn copy(store: &mut Store) -> Store {
    let mut reader = SnapshotReader::new();
    let mut chunk = Vec::new();
    store
        .begin_snapshot()
        .expect("no other snapshot is written of this store");
    loop {
        let step = store
            .snapshot_chunk(&mut chunk)
            .expect("a snapshot is being written");
        if step != SnapshotStep::Pending {
            reader.push(&chunk).expect("the chunk is whole");
        }
        if step == SnapshotStep::Last {
            return reader.finish().expect("it is complete");
        }
    }
}

fn check_against(store: &Store, model: &Model, hash: u128) {
    assert_eq!(store.state_hash(), hash);
    assert_eq!(store.stats().items, model.items.len() as u64);
    for (key, item) in &model.items {
        let expected = Response::Value {
            value: &item.value,
            version: item.version,
        };
        assert_eq!(store.read(&Command::Get { key }), expected);
        let remaining_ns = (item.expiry_ns != 0).then(|| item.expiry_ns - model.group_time_ns);
        assert_eq!(
            store.read(&Command::TimeToLive { key }),
            Response::TimeToLive { remaining_ns }
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_answers_like_the_model(operations in vec(operation(), 1..120)) {
        let mut bench = Bench::new();
        for operation in &operations {
            bench.run(operation);
        }
        let hash = bench.steady.state_hash();
        check_against(&bench.rebuilt, &bench.model, hash);
    }
}

/// Batches answer as single commands do, and long lists of keys as single GETs.
#[test]
fn a_batch_is_its_commands_one_by_one() {
    let (mut single, mut batched) = (Store::new(LIMITS, [3, 9]), Store::new(LIMITS, [3, 9]));
    let keys: Vec<[u8; 2]> = (0..100_u16).map(u16::to_le_bytes).collect();
    let commands: Vec<(Position, Command<'_>)> = (0..1_000_usize)
        .map(|number| {
            let key = keys[number * 7 % 31].as_slice();
            let command = match number % 4 {
                0 => Command::Increment {
                    key,
                    delta: number as i64,
                },
                1 => Command::Get { key },
                2 if number % 3 == 0 => Command::Delete { key },
                _ => Command::Append { key, value: b"1" },
            };
            (Position::new(number as u64 + 1, 0), command)
        })
        .collect();
    let mut expected = Vec::new();
    for (at, command) in &commands {
        single.apply(*at, command).encode(&mut expected);
    }
    let (mut answers, mut next) = (Vec::new(), 0);
    batched.apply_batch(&commands, |number, response| {
        assert_eq!(number, next);
        next += 1;
        response.encode(&mut answers);
    });
    assert_eq!(answers, expected);
    assert_eq!(batched.state_hash(), single.state_hash());

    let slices: Vec<&[u8]> = keys.iter().map(<[u8; 2]>::as_slice).collect();
    let read = Command::MultiGet {
        keys: List::from(slices.as_slice()),
    };
    let Response::List(list) = single.read(&read) else {
        panic!("MGET answers with a list")
    };
    assert_eq!(list.len(), keys.len());
    for (response, key) in list.iter().zip(&keys) {
        assert_eq!(response, single.read(&Command::Get { key }));
    }
    assert_eq!(
        Response::List(list.clone()),
        batched.apply(Position::new(5_000, 0), &read)
    );
}

type Walked = Vec<(Vec<u8>, Vec<u8>, Position)>;

/// All that a walk at a pin tells, in the order of the keys.
fn walk_at(store: &Store, position: Position) -> Result<Walked, StoreError> {
    let (mut items, mut from) = (Vec::new(), Cursor::START);
    loop {
        let command = Command::WalkAt {
            position,
            from,
            count: 7,
            content: WalkContent::Items,
            prefix: Prefix(b""),
        };
        let page = match store.read(&command) {
            Response::Page(page) => page,
            Response::Error(error) => return Err(error),
            other => panic!("{other:?}"),
        };
        assert_eq!(page.position, position);
        let Found::Items(found) = &page.found else {
            panic!("items were asked for");
        };
        let owned = |entry: Entry<'_>| (entry.key.to_vec(), entry.value.to_vec(), entry.version);
        items.extend(found.iter().map(owned));
        from = page.next;
        if from == Cursor::START {
            items.sort();
            return Ok(items);
        }
    }
}
