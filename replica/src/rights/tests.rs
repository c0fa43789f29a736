//! The table of rights: each kind of message and of command, for each kind of caller.

use super::*;
use trine_keys::{Fingerprint, GroupId, Issuer};
use trine_kvstore::{
    Condition, Cursor, ExecuteMode, ExpireCondition, KeyRange, Limits, List, Pair, Position,
    Prefix, Response, Rights, ScanOptions, SetOptions, Store, WalkContent,
};

const ISSUER: Issuer = Issuer {
    group: GroupId([1; 8]),
    root: Fingerprint([2; 4]),
};

fn name(name: &str) -> UserName {
    name.parse().expect("a name")
}

/// reader, writer and admin of all keys; `prefixed` writes below "a/"; `front` acts for others.
fn table() -> Store {
    let mut store = Store::new(Limits::default(), [1, 2]);
    let users: [(&str, Role, &[u8], bool); 5] = [
        ("reader", Role::Read, b"", false),
        ("writer", Role::Write, b"", false),
        ("boss", Role::Admin, b"", false),
        ("prefixed", Role::Write, b"a/", false),
        ("front", Role::Read, b"", true),
    ];
    for (index, (who, role, prefix, front)) in users.into_iter().enumerate() {
        let command = Command::AddUser {
            issuer: ISSUER,
            name: name(who),
            rights: Rights {
                role,
                front,
                prefix,
            },
        };
        let added = store.apply(Position::new(1, index as u16), &command);
        assert!(matches!(added, Response::User(_)), "{added:?}");
    }
    store
}

fn subject<'a>(users: &'a Users, who: &str) -> Subject<'a> {
    Subject::User(users.named(name(who)).expect("added"))
}

/// A command of each kind whose every key is `key`.
fn command_of<'a>(kind: Kind, key: &'a [u8], lists: &'a Lists<'a>) -> Command<'a> {
    let value = b"v".as_slice();
    let expected = Position::new(1, 0);
    match kind {
        Kind::Get => Command::Get { key },
        Kind::Put => Command::Put { key, value },
        Kind::Delete => Command::Delete { key },
        Kind::Set => Command::Set {
            key,
            value,
            options: SetOptions::default(),
        },
        Kind::GetDelete => Command::GetDelete { key },
        Kind::CompareAndSwap => Command::CompareAndSwap {
            key,
            expected,
            value,
        },
        Kind::Increment => Command::Increment { key, delta: 1 },
        Kind::Append => Command::Append { key, value },
        Kind::MultiGet => Command::MultiGet {
            keys: List::from(&lists.keys),
        },
        Kind::MultiPut => Command::MultiPut {
            pairs: List::from(&lists.pairs),
        },
        Kind::Expire => Command::Expire { key, after_ns: 1 },
        Kind::ExpireIf => Command::ExpireIf {
            key,
            after_ns: 1,
            condition: ExpireCondition::Later,
        },
        Kind::ExpireIfBeyond => Command::ExpireIfBeyond {
            key,
            after_ns: 1,
            condition: ExpireCondition::Later,
            margin_ns: 1,
        },
        Kind::Persist => Command::Persist { key },
        Kind::TimeToLive => Command::TimeToLive { key },
        Kind::Count => Command::Count,
        Kind::WalkAt => Command::WalkAt {
            position: Position::ZERO,
            from: Cursor::START,
            count: 1,
            content: WalkContent::Keys,
            prefix: Prefix(key),
        },
        Kind::Walk => Command::Walk {
            from: Cursor::START,
            count: 1,
            content: WalkContent::Keys,
            prefix: Prefix(key),
        },
        Kind::Flush => Command::Flush,
        Kind::Execute => Command::Execute {
            mode: ExecuteMode::AllOrNothing,
            conditions: List::from(&lists.conditions),
            operations: List::from(&lists.operations),
        },
        Kind::SetLimits => Command::SetLimits {
            limits: Limits::default(),
        },
        Kind::Scan => Command::Scan {
            range: KeyRange::Prefix(key),
            options: ScanOptions::default(),
        },
        Kind::ScanAt => Command::ScanAt {
            position: Position::ZERO,
            range: KeyRange::Prefix(key),
            options: ScanOptions::default(),
        },
        Kind::CountAt => Command::CountAt {
            position: Position::ZERO,
            range: KeyRange::Prefix(key),
        },
        Kind::Pin => Command::Pin,
        Kind::RenewPin => Command::RenewPin {
            position: Position::ZERO,
        },
        Kind::Unpin => Command::Unpin {
            position: Position::ZERO,
        },
        Kind::CountRange => Command::CountRange {
            range: KeyRange::Prefix(key),
        },
        Kind::DeleteRange => Command::DeleteRange {
            range: KeyRange::Prefix(key),
            count: 1,
        },
        Kind::SetOrdered => Command::SetOrdered { on: true },
        Kind::SetMemory => Command::SetMemory { memory_bytes: 1 },
        Kind::RaiseVersion => Command::RaiseVersion { version: 5 },
        Kind::AddUser => Command::AddUser {
            issuer: ISSUER,
            name: name("x"),
            rights: Rights {
                role: Role::Read,
                front: false,
                prefix: b"",
            },
        },
        Kind::RemoveUser => Command::RemoveUser { name: name("x") },
        Kind::RotateUser => Command::RotateUser {
            issuer: ISSUER,
            name: name("x"),
        },
        Kind::ListUsers => Command::ListUsers,
    }
}

/// What commands with lists borrow. The first key is always an allowed one.
struct Lists<'a> {
    keys: [&'a [u8]; 2],
    pairs: [Pair<'a>; 2],
    conditions: [Condition<'a>; 1],
    operations: [Command<'a>; 2],
}

fn lists(key: &[u8]) -> Lists<'_> {
    let inside = b"a/1".as_slice();
    let value = b"v".as_slice();
    Lists {
        keys: [inside, key],
        pairs: [Pair { key: inside, value }, Pair { key, value }],
        conditions: [Condition::Absent { key: inside }],
        operations: [Command::Get { key: inside }, Command::Put { key, value }],
    }
}

/// Each kind of the store's table, with the least role and whether the prefix counts.
#[test]
fn every_kind_of_command_has_its_rights() {
    let store = table();
    let users = store.users();
    let lists = lists(b"a/2");
    for &kind in Kind::ALL {
        let command = command_of(kind, b"a/2", &lists);
        assert_eq!(command.kind(), kind);
        let may = |who| subject(users, who).may(What::Command(&command)).is_ok();
        let is_administrative = kind.row().name.contains("User")
            || ["SetLimits", "SetMemory", "SetOrdered", "RaiseVersion"].contains(&kind.row().name);
        // Who may read may have the position kept that is read.
        let is_of_pins = kind.row().name.contains("Pin") || kind.row().name == "Unpin";
        let writes = !command.is_read_only() && !is_of_pins;
        let name = kind.row().name;
        assert!(may("boss"), "{name}");
        assert_eq!(may("writer"), !is_administrative, "{name}");
        assert_eq!(may("reader"), !is_administrative && !writes, "{name}");
        let of_all = is_administrative || [Kind::Count, Kind::Flush].contains(&kind);
        assert_eq!(may("prefixed"), !of_all, "{name}");
        for subject in [Subject::Anybody, Subject::Member, Subject::Holder] {
            assert_eq!(subject.may(What::Command(&command)), Ok(()), "{name}");
        }
        assert!(Subject::Stranger.may(What::Command(&command)).is_err());
    }
}

/// The users are not looked at for them, so nothing that depends on the users may decide.
#[test]
fn callers_that_may_give_every_command_are_no_users() {
    let store = table();
    let users = store.users();
    let alone = Credential::User {
        name: name("boss"),
        generation: 1,
    };
    let stages = [KeyStage::None, KeyStage::Accept, KeyStage::Require];
    let proven = [Credential::Member, Credential::Admin, alone].map(Caller::Proven);
    let callers = stages.map(Caller::Unkeyed).into_iter().chain(proven);
    let mut fast = 0;
    for caller in callers {
        if !caller.may_give_every_command() {
            continue;
        }
        fast += 1;
        let subject = Subject::of(caller, users).expect("it is no user");
        assert_eq!(subject.number(), 0);
        assert!(subject.may_use_session_of(0), "{caller:?}");
        assert_eq!(subject.may(What::Session), Ok(()));
        let lists = lists(b"b/1");
        for &kind in Kind::ALL {
            let command = command_of(kind, b"b/1", &lists);
            assert_eq!(subject.may(What::Command(&command)), Ok(()), "{caller:?}");
        }
    }
    assert_eq!(fast, 4);
}

/// One key outside is enough, wherever it stands.
#[test]
fn every_key_of_every_command_is_checked() {
    let store = table();
    let users = store.users();
    let outside = b"b/1".as_slice();
    let lists = lists(outside);
    for &kind in Kind::ALL {
        let command = command_of(kind, outside, &lists);
        let mut has_keys = false;
        let seen: Result<(), ()> = command.each_key(|_, _| {
            has_keys = true;
            Ok(())
        });
        assert_eq!(seen, Ok(()));
        if !has_keys {
            continue;
        }
        let denied = subject(users, "prefixed").may(What::Command(&command));
        let denied = denied.expect_err(kind.row().name);
        assert_eq!(
            denied.to_string(),
            "user prefixed may not touch key \"b/1\": its keys begin with \"a/\""
        );
        assert_eq!(
            subject(users, "writer").may(What::Command(&command)),
            Ok(())
        );
    }
}

/// Also of a range that has no key outside at the moment.
#[test]
fn a_range_has_to_lie_within_the_prefix() {
    let store = table();
    let users = store.users();
    let between = |start: &'static str, end: Option<&'static str>| KeyRange::Between {
        start: start.as_bytes(),
        end: end.map(str::as_bytes),
    };
    let may = |who, range| {
        let commands = [
            Command::Scan {
                range,
                options: ScanOptions::default(),
            },
            Command::ScanAt {
                position: Position::ZERO,
                range,
                options: ScanOptions::default(),
            },
            Command::CountRange { range },
            Command::CountAt {
                position: Position::ZERO,
                range,
            },
            Command::DeleteRange { range, count: 1 },
        ];
        commands.map(|command| subject(users, who).may(What::Command(&command)))
    };
    for range in [
        KeyRange::Prefix(b"a/"),
        KeyRange::Prefix(b"a/b"),
        between("a/", Some("a0")),
        between("a/x", Some("a/y")),
    ] {
        assert_eq!(
            may("prefixed", range),
            [Ok(()), Ok(()), Ok(()), Ok(()), Ok(())]
        );
        let [scan, at_pin, count, count_at_pin, delete] = may("reader", range);
        assert!(scan.is_ok() && at_pin.is_ok() && count.is_ok() && count_at_pin.is_ok());
        let denied = delete.expect_err("it writes").to_string();
        assert_eq!(
            denied,
            "user reader has role read, and role write is needed"
        );
    }
    for range in [
        KeyRange::Prefix(b""),
        KeyRange::Prefix(b"a"),
        between("a/", None),
        between("a/", Some("b")),
        between("a", Some("a/z")),
    ] {
        for denied in may("prefixed", range) {
            assert_eq!(
                denied.expect_err("it reaches outside").to_string(),
                "user prefixed may not touch every key of that range: its keys begin with \"a/\", so name that prefix \
                 or a part of it"
            );
        }
    }
}

#[test]
fn the_parts_of_an_exec_are_checked_one_by_one() {
    let store = table();
    let users = store.users();
    let get = [Command::Get { key: b"a/1" }];
    let count = [Command::Count];
    let inner = [Pair {
        key: b"b/1",
        value: b"v",
    }];
    let puts = [Command::MultiPut {
        pairs: List::from(&inner),
    }];
    let outside = [Condition::Present { key: b"b/1" }];
    fn exec<'a>(conditions: &'a [Condition<'a>], operations: &'a [Command<'a>]) -> Command<'a> {
        Command::Execute {
            mode: ExecuteMode::Independent,
            conditions: List::from(conditions),
            operations: List::from(operations),
        }
    }
    let said = |who, command: &Command<'_>| {
        let denied = subject(users, who).may(What::Command(command));
        denied.map_err(|denied| denied.to_string())
    };
    assert_eq!(said("prefixed", &exec(&[], &get)), Ok(()));
    assert_eq!(said("reader", &exec(&[], &get)), Ok(()));
    let key = Err("user prefixed may not touch key \"b/1\": its keys begin with \"a/\"".to_owned());
    assert_eq!(said("prefixed", &exec(&outside, &get)), key);
    assert_eq!(said("prefixed", &exec(&[], &puts)), key);
    assert_eq!(
        said("prefixed", &exec(&[], &count)),
        Err(
            "user prefixed has no right to all keys at once: its keys begin with \"a/\"".to_owned()
        )
    );
    assert_eq!(
        said("reader", &exec(&[], &puts)),
        Err("user reader has role read, and role write is needed".to_owned())
    );
    assert_eq!(said("reader", &exec(&outside, &get)), Ok(()));
}

#[test]
fn a_watch_is_allowed_where_every_key_of_it_may_be_read() {
    use trine_protocol::message::{Watch, Watched};
    let store = table();
    let users = store.users();
    let may = |who: Subject<'_>, watched| {
        let watch = Watch { id: 1, watched };
        who.may(What::Watch(&[watch])).is_ok()
    };
    let prefix = |prefix| Watched::Range(KeyRange::Prefix(prefix));
    let between = |end| Watched::Range(KeyRange::Between { start: b"a/1", end });
    let prefixed = || subject(users, "prefixed");
    assert!(may(prefixed(), Watched::Key(b"a/x")));
    assert!(!may(prefixed(), Watched::Key(b"b")));
    assert!(may(prefixed(), prefix(b"a/b")));
    assert!(!may(prefixed(), prefix(b"a")));
    assert!(may(prefixed(), between(Some(b"a/2"))));
    assert!(!may(prefixed(), between(Some(b"b"))));
    assert!(!may(prefixed(), between(None)));
    assert!(may(subject(users, "reader"), prefix(b"")));
    assert!(!may(Subject::Stranger, Watched::Key(b"a/x")));
}

#[test]
fn every_message_has_its_class_and_its_rights() {
    for message in 0..=u8::MAX {
        let expected = match message {
            1 | 9 => MessageClass::Client,
            7 => MessageClass::Status,
            8 => MessageClass::Admin,
            12 => MessageClass::Backup,
            13 => MessageClass::Watch,
            _ => MessageClass::Peer,
        };
        assert_eq!(MessageClass::of(message), expected, "{message}");
    }
    let store = table();
    let users = store.users();
    let of = |who| subject(users, who);
    let cases = [
        (Subject::Stranger, [true, false, false, false, false, false]),
        (of("reader"), [true, true, true, false, false, false]),
        (of("front"), [true, true, true, false, false, false]),
        (of("writer"), [true, true, true, false, false, false]),
        (of("prefixed"), [true, true, true, false, false, false]),
        (of("boss"), [true, true, true, true, true, false]),
        (Subject::Holder, [true, true, true, true, true, false]),
        (Subject::Member, [true; 6]),
        (Subject::Anybody, [true; 6]),
    ];
    for (subject, expected) in cases {
        let may = [
            What::Discovery,
            What::Status,
            What::Session,
            What::Admin,
            What::Backup,
            What::Peer,
        ]
        .map(|what| subject.may(what).is_ok());
        assert_eq!(may, expected, "{subject:?}");
    }
    let denied = |subject: Subject<'_>, what| subject.may(what).expect_err("denied").to_string();
    assert_eq!(
        denied(Subject::Stranger, What::Status),
        "a caller without a key may do nothing here: role read is needed"
    );
    assert_eq!(
        denied(of("writer"), What::Admin),
        "user writer has role write, and role admin is needed"
    );
    assert_eq!(
        denied(Subject::Holder, What::Peer),
        "the holder of the cluster key file has role admin, and role member is needed"
    );
}

/// A backup has the keys of everybody: an administrator of a part gets none.
#[test]
fn a_backup_takes_an_administrator_of_all_keys() {
    let store = table();
    // The store makes no such user; a later one might.
    let Subject::User(boss) = subject(store.users(), "boss") else {
        panic!("a user");
    };
    let half = Subject::User(User {
        prefix: b"a/",
        ..boss
    });
    let half = half.may(What::Backup);
    assert_eq!(
        half.expect_err("denied").to_string(),
        "user boss has no right to all keys at once: its keys begin with \"a/\""
    );
    let reader = subject(store.users(), "reader").may(What::Backup);
    assert_eq!(
        reader.expect_err("denied").to_string(),
        "user reader has role read, and role admin is needed"
    );
}

#[test]
fn a_caller_is_what_its_key_says_while_the_key_counts() {
    let mut store = table();
    let proven = |who: &str, generation| {
        Caller::Proven(Credential::User {
            name: name(who),
            generation,
        })
    };
    let users = store.users();
    assert_eq!(Subject::of(Caller::default(), users), Ok(Subject::Anybody));
    let accepted = Caller::Unkeyed(KeyStage::Accept);
    assert_eq!(Subject::of(accepted, users), Ok(Subject::Anybody));
    let required = Caller::Unkeyed(KeyStage::Require);
    assert_eq!(Subject::of(required, users), Ok(Subject::Stranger));
    let member = Caller::Proven(Credential::Member);
    assert_eq!(Subject::of(member, users), Ok(Subject::Member));
    let holder = Caller::Proven(Credential::Admin);
    assert_eq!(Subject::of(holder, users), Ok(Subject::Holder));
    assert_eq!(
        Subject::of(proven("reader", 1), users),
        Ok(subject(users, "reader"))
    );
    let rotate = Command::RotateUser {
        issuer: ISSUER,
        name: name("reader"),
    };
    store.apply(Position::new(2, 0), &rotate);
    let remove = Command::RemoveUser {
        name: name("writer"),
    };
    store.apply(Position::new(3, 0), &remove);
    for (who, generation) in [("reader", 1), ("writer", 2), ("nobody", 1)] {
        let denied = Subject::of(proven(who, generation), store.users());
        assert_eq!(
            denied.expect_err("void").to_string(),
            format!("the key of user {who}, generation {generation}, does not count any more")
        );
    }
    assert!(Subject::of(proven("reader", 6), store.users()).is_ok());
}

#[test]
fn only_members_and_fronts_act_for_others() {
    let store = table();
    let users = store.users();
    let prefixed = subject(users, "prefixed");
    let number = prefixed.number();
    let named = users.numbered(number).expect("there");
    let prefixed_generation = named.generation;
    let by = ForUser::of_number;
    let both = Subject::Front {
        front: users.named(name("front")).expect("added"),
        user: named,
    };
    for (believed, acts_as) in [(Subject::Member, prefixed), (subject(users, "front"), both)] {
        assert_eq!(believed.acting_for(by(number), users), Ok(acts_as));
        let shown = |generation| ForUser { number, generation };
        let current = believed.acting_for(shown(prefixed_generation), users);
        assert_eq!(current, Ok(acts_as));
        assert_eq!(acts_as.number(), number);
        let old = believed.acting_for(shown(prefixed_generation + 9), users);
        assert!(
            old.expect_err("rotated away")
                .to_string()
                .ends_with("does not count any more")
        );
        assert!(believed.may_use_session_of(number));
        let gone = believed
            .acting_for(by(99), users)
            .expect_err("no such user");
        assert_eq!(gone.to_string(), "user number 99 does not exist any more");
    }
    for other in ["reader", "boss", "writer"] {
        let other = subject(users, other);
        let denied = other.acting_for(by(number), users).expect_err("no front");
        assert!(
            denied
                .to_string()
                .ends_with("may not act for other users: it is no front")
        );
        assert_eq!(other.acting_for(by(other.number()), users), Ok(other));
        assert!(!other.may_use_session_of(number) && !other.may_use_session_of(0));
        assert!(other.may_use_session_of(other.number()));
    }
    // Those sessions belong to members and to holders of the key file.
    assert!(!subject(users, "front").may_use_session_of(0));
    // It gives rights away.
    assert_eq!(Subject::Anybody.acting_for(by(number), users), Ok(prefixed));
    for other in [Subject::Stranger, Subject::Holder] {
        assert!(other.acting_for(by(number), users).is_err());
    }
    for other in [Subject::Anybody, Subject::Stranger, Subject::Holder] {
        assert!(other.may_use_session_of(0) && !other.may_use_session_of(number));
    }
}

/// A front named whom it liked, and had that user's rights: with role read and a prefix it read every key and added
/// administrators.
#[test]
fn a_front_gains_nothing_by_naming_another_user() {
    let store = table();
    let users = store.users();
    let of = |who| users.named(name(who)).expect("added");
    let (writer, prefixed) = (of("writer"), of("prefixed"));
    // What a front of its own would need.
    let fronts = [of("reader"), writer, prefixed, of("boss")];
    for front in fronts.map(|user| User {
        front: true,
        ..user
    }) {
        for user in users.iter() {
            let acting = Subject::User(front).acting_for(ForUser::of_number(user.number), users);
            let acting = acting.expect("a front");
            let alone = user.number == front.number;
            for key in [b"a/2".as_slice(), b"b/2"] {
                let lists = lists(key);
                for &kind in Kind::ALL {
                    let command = command_of(kind, key, &lists);
                    let what = What::Command(&command);
                    let expected = match alone {
                        true => Subject::User(front).may(what).is_ok(),
                        false => {
                            need(kind) != Need::Admin
                                && Subject::User(front).may(what).is_ok()
                                && Subject::User(user).may(what).is_ok()
                        }
                    };
                    let (front, user, name) = (front.name, user.name, kind.row().name);
                    assert_eq!(acting.may(what).is_ok(), expected, "{front} {user} {name}");
                }
            }
            for what in [What::Admin, What::Backup, What::Peer] {
                let may_alone = alone && Subject::User(front).may(what).is_ok();
                assert_eq!(acting.may(what).is_ok(), may_alone, "{what:?}");
            }
        }
    }
    let said = |front: User<'_>, user: User<'_>, command: &Command<'_>| {
        let denied = Subject::Front { front, user }.may(What::Command(command));
        denied.expect_err("denied").to_string()
    };
    let get = Command::Get { key: b"b/1" };
    assert_eq!(
        said(prefixed, of("boss"), &get),
        "user prefixed, acting for user boss, may not touch key \"b/1\": its keys begin with \"a/\""
    );
    assert_eq!(
        said(writer, prefixed, &get),
        "user prefixed may not touch key \"b/1\": its keys begin with \"a/\""
    );
    assert_eq!(
        said(writer, of("boss"), &Command::ListUsers),
        "user writer, acting for user boss, may not administrate the group: such a command needs the sender's own \
         session, and is for nobody else"
    );
}

#[test]
fn a_refusal_is_short() {
    let store = table();
    let long = vec![0xff; 60_000];
    let denied =
        subject(store.users(), "prefixed").may(What::Command(&Command::Get { key: &long }));
    let text = denied.expect_err("outside").to_string();
    assert!(text.len() < 400, "{} bytes", text.len());
}
