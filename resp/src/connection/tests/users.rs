//! Clients that are users of the group: what is asked outside, and what each call names.

use super::*;

const ALICE: Option<OnBehalf> = Some(OnBehalf {
    number: 3,
    generation: 8,
});

#[test]
fn each_call_of_a_user_names_it_and_those_before_do_not() {
    let mut bench = Bench::new();
    bench.says("ACL WHOAMI", "$7\r\ndefault\r\n");
    bench.says("SET a 1", "+OK\r\n");
    assert_eq!(bench.for_user, None);
    bench.says("AUTH alice secret", "+OK\r\n");
    bench.says("ACL WHOAMI", "$5\r\nalice\r\n");
    bench.says("GET a", "$1\r\n1\r\n");
    assert_eq!(bench.for_user, ALICE);
    bench.for_user = None;
    bench.says("WATCH a", "+OK\r\n");
    assert_eq!(std::mem::take(&mut bench.for_user), ALICE);
    bench.says("MULTI", "+OK\r\n");
    bench.says("SET a 2", "+QUEUED\r\n");
    bench.says("EXEC", "*1\r\n+OK\r\n");
    assert_eq!(bench.for_user, ALICE);
    bench.says("AUTH default anything", "+OK\r\n");
    bench.says("GET a", "$1\r\n2\r\n");
    assert_eq!(bench.for_user, None);
}

#[test]
fn hello_names_a_user_too_and_what_is_pipelined_behind_it_waits() {
    let mut bench = Bench::new();
    bench.requires_auth = true;
    bench.connection = Connection::new(7, "127.0.0.1:5".into(), true, 0);
    bench.says("GET a", "-NOAUTH Authentication required.\r\n");
    bench.says("ACL WHOAMI", "-NOAUTH Authentication required.\r\n");
    bench.says("AUTH x", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n");
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    bench.says("AUTH default x", wrong);
    bench.says("AUTH alice wrong", wrong);
    bench.says("HELLO 3 AUTH alice wrong", wrong);
    bench.says("GET a", "-NOAUTH Authentication required.\r\n");
    let said = bench.send(b"HELLO 3 AUTH alice s SETNAME n\r\nGET a\r\nCLIENT GETNAME\r\n");
    assert!(said.starts_with("%7\r\n"), "{said}");
    assert!(said.ends_with("_\r\n$1\r\nn\r\n"), "{said}");
    assert_eq!(bench.for_user, ALICE);
    bench.says("RESET", "+RESET\r\n");
    bench.says("GET a", "-NOAUTH Authentication required.\r\n");
}

#[test]
fn what_could_not_be_found_out_leaves_the_user_as_it_was() {
    let mut bench = Bench::new();
    bench.says("AUTH alice s", "+OK\r\n");
    bench.says("AUTH bob away", "-CLUSTERDOWN nothing was read: alone\r\n");
    bench.says(
        "AUTH bob busy",
        "-ERR too many passwords are being checked, try again\r\n",
    );
    bench.says("ACL WHOAMI", "$5\r\nalice\r\n");
}

#[test]
fn a_client_that_guesses_is_ended() {
    let mut bench = Bench::with(Limits::default(), Some(b"right"));
    for _ in 0..16 {
        assert!(!bench.connection.is_over());
        bench.says(
            "AUTH nearly",
            "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        );
    }
    assert!(bench.connection.is_over());
    assert_eq!(bench.connection.auth_failures(), 16);
}

/// EXEC has one answer of the store to wait for.
#[test]
fn a_transaction_asks_nothing_about_users() {
    for request in ["AUTH alice s", "HELLO 3 AUTH alice s", "ACL LIST"] {
        let mut bench = Bench::new();
        bench.says("MULTI", "+OK\r\n");
        let said = bench.send(format!("{request}\r\n").as_bytes());
        assert!(said.contains("which MULTI does not take"), "{said}");
        bench.says("EXEC", EXECABORT);
    }
    let mut bench = Bench::new();
    bench.says("MULTI", "+OK\r\n");
    bench.says("AUTH default x", "+QUEUED\r\n");
    bench.says("ACL WHOAMI", "+QUEUED\r\n");
    bench.says("EXEC", "*2\r\n+OK\r\n$7\r\ndefault\r\n");
}

#[test]
fn rules_of_users_are_in_the_syntax_of_redis() {
    use trine_kvstore::Rights;
    let mut bench = Bench::new();
    bench.says("ACL USERS", "*1\r\n$7\r\ndefault\r\n");
    let cluster = trine_keys::ClusterKey::new(trine_keys::GroupId([1; 8]), [1; 32], [2; 32]);
    for (who, role, prefix) in [
        ("alice", trine_keys::Role::Write, &b"a*/"[..]),
        ("boss", trine_keys::Role::Admin, b""),
    ] {
        let command = Command::AddUser {
            issuer: cluster.issuer(),
            name: who.parse().expect("a name"),
            rights: Rights {
                role,
                front: false,
                prefix,
            },
        };
        bench.applied += 1;
        let at = Position::new(bench.applied, 0);
        bench.store.borrow_mut().apply(at, &command);
    }
    bench.says(
        "ACL USERS",
        "*3\r\n$7\r\ndefault\r\n$5\r\nalice\r\n$4\r\nboss\r\n",
    );
    let list = bench.send(b"ACL LIST\r\n");
    for line in [
        "user default on nopass ~* &* +@all",
        "user alice on ~a\\*/* resetchannels -@all +@read +@write +@connection",
        "user boss on ~* resetchannels +@all",
    ] {
        assert!(list.contains(line), "{line} in {list}");
    }
    let alice = bench.send(b"ACL GETUSER alice\r\n");
    assert!(
        alice.starts_with("*12\r\n$5\r\nflags\r\n*1\r\n+on\r\n$9\r\npasswords\r\n*0\r\n"),
        "{alice}"
    );
    bench.says("ACL GETUSER nobody", "$-1\r\n");
}

#[test]
fn categories_are_those_of_redis() {
    let mut bench = Bench::new();
    let all = bench.send(b"ACL CAT\r\n");
    assert!(all.starts_with("*21\r\n$8\r\nkeyspace\r\n"), "{all}");
    let read = bench.send(b"ACL CAT read\r\n");
    assert!(read.contains("mget") && !read.contains("mset"), "{read}");
    bench.says("ACL CAT hash", "*0\r\n");
    bench.says("ACL CAT x", "-ERR Unknown category 'x'\r\n");
    bench.says(
        "ACL SETUSER alice",
        "-ERR unknown subcommand 'SETUSER'. Try ACL HELP.\r\n",
    );
}

#[test]
fn only_an_admin_sees_the_other_clients() {
    let mut bench = Bench::new();
    bench.says("AUTH alice s", "+OK\r\n");
    for request in ["CLIENT LIST", "CONFIG GET save"] {
        let said = bench.send(format!("{request}\r\n").as_bytes());
        assert!(said.starts_with("-NOPERM user alice may not run"), "{said}");
    }
    assert!(bench.send(b"CLIENT INFO\r\n").contains(" user=alice "));
    bench.says("AUTH boss s", "+OK\r\n");
    assert!(bench.send(b"CLIENT LIST\r\n").contains(" user=boss "));
}
