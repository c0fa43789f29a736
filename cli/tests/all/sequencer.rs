//! `trine sequencer` as documented, with real processes on free ports.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::mpsc::channel;

use crate::common::serving::Serving;
use crate::common::{Cluster, LIMIT, Ran, command, signal, trine, wait_for};
use crate::keys::Keys;
use trine_base::ports::free_addresses;

/// The numbers of an epoch.
const EPOCH: u64 = 1 << 40;

/// A running server and what it is asked.
struct Server(Serving);

impl Server {
    fn start(threads: usize, options: &[&str]) -> Self {
        Self(Serving::start("sequencer", threads, options))
    }

    fn run(&self, args: &[&str]) -> Ran {
        run_at(&self.0.address.to_string(), args)
    }

    fn next(&self) -> u64 {
        number(&self.run(&["next"]).expect_status(0))
    }

    fn stats(&self) -> serde_json::Value {
        let document = self.run(&["stats", "--json"]).expect_status(0).json();
        document["servers"][0]["stats"].clone()
    }

    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn kill(mut self) {
        let mut child = self.0.child.take().expect("running");
        child.kill().expect("killed");
        child.wait().expect("ended");
    }

    fn interrupt(mut self) -> Ran {
        self.0.end("INT")
    }
}

fn run_at(addresses: &str, args: &[&str]) -> Ran {
    trine(
        &[&["sequencer"], args, &["--connect", addresses]].concat(),
        "",
        b"",
    )
}

fn number(ran: &Ran) -> u64 {
    String::from_utf8_lossy(&ran.stdout)
        .trim()
        .parse()
        .expect("a number")
}

#[test]
fn numbers_follow_each_other_and_a_restart_begins_an_epoch() {
    let keys = Keys::new("sequencer-state");
    let state = keys.text("state");
    let server = Server::start(1, &["--state", &state]);
    assert_eq!((server.next(), server.next()), (0, 1));
    let three = server.run(&["next", "--count", "3"]).expect_status(0);
    assert_eq!(String::from_utf8_lossy(&three.stdout), "2\n3\n4\n");
    let document = server
        .run(&["next", "--count", "65536", "--json"])
        .expect_status(0)
        .json();
    assert_eq!(document, serde_json::json!({ "first": 5, "count": 65_536 }));
    assert_eq!(server.next(), 65_541);
    server.run(&["next", "--count", "65537"]).expect_status(2);
    server.run(&["next", "--count", "0"]).expect_status(2);
    for command in [["next", "--speculative"], ["bench", "--speculative"]] {
        server
            .run(&command)
            .expect_error(2, &["needs verbs and its path ud"]);
    }
    let stats = server.stats();
    assert_eq!(
        (&stats["numbers"], &stats["next"]),
        (&65_542.into(), &65_542.into())
    );
    assert_eq!(
        (&stats["keeping"], &stats["serving"]),
        (&"file".into(), &true.into())
    );

    // A second server with the file would give out the same numbers.
    let address = free_addresses(1).expect("a port")[0].to_string();
    let second = [
        "sequencer",
        "serve",
        "--listen",
        &address,
        "--state",
        &state,
    ];
    trine(&second, "", b"").expect_error(2, &["another sequencer uses", "--group"]);

    // The killed one wrote nothing at its end.
    server.kill();
    let server = Server::start(1, &["--state", &state]);
    assert_eq!(server.next(), EPOCH);
    let ended = server.interrupt().expect_status(0);
    assert_eq!(ended.stderr, "");
    let server = Server::start(1, &["--state", &state, "--at-least", "5000000000000"]);
    assert_eq!(server.next(), 5 * EPOCH);
    drop(server);
    std::fs::write(keys.path("state"), "epoch").expect("written");
    trine(&second, "", b"").expect_error(2, &["not the state of a sequencer", "--at-least N"]);
    std::fs::remove_file(keys.path("state")).expect("removed");
    trine(&second, "", b"").expect_error(2, &["is missing", "could be given out twice"]);
    let nowhere = [
        "sequencer",
        "serve",
        "--listen",
        &address,
        "--state",
        "/nowhere/state",
    ];
    trine(&nowhere, "", b"").expect_error(2, &["cannot be used"]);
}

#[test]
fn all_threads_give_out_the_same_numbers() {
    let keys = Keys::new("sequencer-threads");
    let server = Server::start(3, &["--state", &keys.text("state")]);
    let at = |thread: u16| {
        SocketAddr::new(server.0.address.ip(), server.0.address.port() + thread).to_string()
    };
    let taken: Vec<u64> = (0..6)
        .map(|turn| number(&run_at(&at(turn % 3), &["next"]).expect_status(0)))
        .collect();
    assert_eq!(taken, [0, 1, 2, 3, 4, 5]);
    let list = [at(0), at(2)].join(",");
    let stats = run_at(&list, &["stats", "--json"]).expect_status(0).json();
    assert_eq!(stats["servers"].as_array().map(Vec::len), Some(2));
    let bench = server
        .run(&["bench", "--for", "100ms", "--rounds", "2", "--json"])
        .expect_status(0)
        .json();
    let answered = bench["answered"].as_u64().expect("a count");
    assert!(answered > 0, "{bench}");
    assert_eq!(server.next(), 6 + answered);
}

#[test]
fn a_sequencer_says_what_it_needs_and_who_is_none() {
    let serve = |more: &[&str]| trine(&[&["sequencer", "serve"], more].concat(), "", b"");
    serve(&[]).expect_error(2, &["--state", "--group"]);
    serve(&["--state", "x", "--group", "127.0.0.1:1"]).expect_status(2);
    serve(&["--state", "x", "--speculative"]).expect_error(2, &["needs verbs and its path ud"]);
    serve(&["--state", "x", "--strict", "false"])
        .expect_error(2, &["'--state <FILE>' cannot be used with '--strict"]);
    serve(&["--state", "x", "--name", "n"])
        .expect_error(2, &["'--state <FILE>' cannot be used with '--name"]);
    serve(&["--group", "127.0.0.1:1", "--name", "a b"])
        .expect_error(2, &["not a valid name of a sequence"]);
    serve(&["--group", "127.0.0.1:1", "--lease", "1ms"])
        .expect_error(2, &["--lease", "50.0 ms to 60.0 s"]);
    serve(&["--listen", "0.0.0.0:7483", "--state", "x"]).expect_error(2, &["--insecure"]);
    let address = free_addresses(1).expect("a port")[0].to_string();
    run_at(&address, &["next", "--timeout", "300ms"])
        .expect_error(3, &["no answer", "trine sequencer serve"]);
    run_at(",", &["next"]).expect_error(2, &["names no server"]);
    let group = [
        "--listen", &address, "--group", &address, "--lease", "400ms",
    ];
    serve(&group).expect_error(3, &["the group of --group"]);
    let cluster = Cluster::start(&[]);
    let replica = cluster.group.addresses()[0].to_string();
    run_at(&replica, &["next"]).expect_error(2, &["is not a sequencer"]);
}

#[test]
fn users_take_numbers_by_their_roles() {
    let keys = Keys::new("sequencer-users");
    let (key, users) = (keys.text("ours"), keys.text("list"));
    std::fs::write(keys.path("list"), "alice read\n").expect("written");
    let state = keys.text("state");
    let server = Server::start(1, &["--state", &state, "--key", &key, "--users", &users]);
    let run =
        |name: &str, args: &[&str]| server.run(&[args, &["--key", &keys.text(name)]].concat());
    run("ours", &["next"]).expect_status(0);
    run("alice", &["stats"]).expect_status(0);
    run("alice", &["next"]).expect_error(1, &["role write is needed"]);
    run("alice", &["bench", "--for", "10ms"]).expect_error(1, &["role write is needed"]);
    run("others", &["next"]).expect_status(2);
    server.run(&["next", "--key", ""]).expect_status(2);
    assert_eq!(number(&run("ours", &["next"]).expect_status(0)), 1);
}

/// One silent server hid what all the others had done.
#[test]
fn the_stats_of_a_list_are_shown_although_one_server_is_silent() {
    let keys = Keys::new("sequencer-silent");
    let server = Server::start(1, &["--state", &keys.text("state")]);
    let nobody = free_addresses(1).expect("a port")[0].to_string();
    let list = [nobody.clone(), server.0.address.to_string()].join(",");
    let stats = |more: &[&str]| {
        let args = [&["stats", "--timeout", "300ms"], more].concat();
        let ran = run_at(&list, &args);
        ran.expect_error(3, &["no answer from", &nobody])
    };
    // A server has little time here, and may need more of it.
    let document = wait_for("the stats of the other one", || {
        let document = stats(&["--json"]).json();
        (document["servers"][1]["stats"]["keeping"] == "file").then_some(document)
    });
    let silent = &document["servers"][0];
    assert_eq!(silent["address"], nobody);
    assert_eq!(silent["error"]["kind"], "not_reachable");
    wait_for("a table with both", || {
        let text = String::from_utf8(stats(&[]).stdout).expect("text");
        assert!(text.contains(&nobody), "{text}");
        text.contains("file").then_some(())
    });
}

/// The reason was a line for people alone. With --json a server without numbers said nothing at all.
#[test]
fn a_server_without_numbers_tells_programs_why() {
    let mut cluster = Cluster::start(&[]);
    let peers = cluster.group.peers();
    let address = free_addresses(1).expect("a port")[0];
    let listen = address.to_string();
    let args = [
        "--json",
        "sequencer",
        "serve",
        "--listen",
        &listen,
        "--group",
        &peers,
        "--lease",
        "300ms",
    ];
    let mut child = command(&args, "")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let said = BufReader::new(child.stdout.take().expect("piped"));
    // Killed if the test fails.
    let _server = Serving {
        child: Some(child),
        address,
    };
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut said = said.lines().map_while(Result::ok);
        said.all(|line| sender.send(line).is_ok())
    });
    let event_with = |name: &str| loop {
        let line = lines.recv_timeout(LIMIT).expect("a line");
        let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        if !event[name].is_null() {
            return event;
        }
    };
    event_with("listening");
    for node_id in 1..=3 {
        cluster.group.kill(node_id).expect("killed");
    }
    let event = event_with("not_reserved");
    assert!(event["not_reserved"].is_string(), "{event}");
}

/// The holder of the lease gives out numbers; the other one waits. A dead holder is replaced, and a paused one gives out
/// nothing when it goes on.
#[test]
fn of_two_strict_servers_one_gives_out_numbers_at_a_time() {
    let cluster = Cluster::start(&[]);
    let peers = cluster.group.peers();
    // Longer than a machine under load keeps a process waiting. Otherwise the second one takes over too early, and leaves
    // numbers out.
    let options = ["--group", &peers, "--lease", "2s", "--block", "10"];
    let first = Server::start(1, &options);
    wait_for("the first one to serve", || {
        (first.stats()["serving"] == true).then_some(())
    });
    let second = Server::start(1, &options);
    let list = [first.0.address.to_string(), second.0.address.to_string()].join(",");
    let next = || number(&run_at(&list, &["next"]).expect_status(0));
    let taken: Vec<u64> = (0..25).map(|_| next()).collect();
    assert_eq!(taken, (0..25).collect::<Vec<u64>>());
    assert_eq!(second.stats()["serving"], false);
    second
        .run(&["next", "--timeout", "200ms"])
        .expect_error(3, &["another server does", "--connect"]);

    // The first one pauses; the second one takes over behind its blocks.
    signal(first.pid(), "STOP");
    let at_second = wait_for("the second one to serve", || {
        let ran = second.run(&["next", "--timeout", "200ms"]);
        (ran.status == Some(0)).then(|| number(&ran))
    });
    assert!(
        at_second >= 30,
        "{at_second} may be one of the first server's"
    );
    signal(first.pid(), "CONT");
    first.run(&["next", "--timeout", "100ms"]).expect_status(3);
    assert_eq!(first.stats()["serving"], false);
    let later = next();
    assert!(later > at_second, "{later} behind {at_second}");

    // A server that ends gives its lease back, and leaves no gap in time.
    second.interrupt().expect_status(0);
    let after = next();
    assert!(after > later, "{after} behind {later}");
    // All replicas know how far it is, so a new server goes on from there.
    first.kill();
    let third = Server::start(1, &options);
    let last = wait_for("the third one to serve", || {
        let ran = third.run(&["next", "--timeout", "200ms"]);
        (ran.status == Some(0)).then(|| number(&ran))
    });
    assert!(last > after, "{last} behind {after}");
    // A dead server that stands first in the list cost the half of `--timeout` at each call.
    let dead = list.split(',').next().expect("the first");
    let begun = std::time::Instant::now();
    run_at(
        &format!("{dead},{}", third.0.address),
        &["next", "--timeout", "60s"],
    )
    .expect_status(0);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    let loose = [&options[..], &["--strict", "false"]].concat();
    let other = trine(&[&["sequencer", "serve"], &loose[..]].concat(), "", b"");
    other.expect_error(2, &["its servers are strict", "--strict true"]);
}

#[test]
fn servers_that_are_not_strict_give_out_numbers_side_by_side() {
    let cluster = Cluster::start(&[]);
    let peers = cluster.group.peers();
    let options = [
        "--group", &peers, "--strict", "false", "--name", "side", "--block", "8",
    ];
    let servers = [Server::start(1, &options), Server::start(1, &options)];
    let mut all = Vec::new();
    for server in servers.iter().cycle().take(6) {
        let ran = server
            .run(&["next", "--count", "20", "--json"])
            .expect_status(0)
            .json();
        let first = ran["first"].as_u64().expect("a number");
        all.push(first);
        let bench = server
            .run(&["bench", "--for", "50ms", "--rounds", "1", "--json"])
            .expect_status(0)
            .json();
        assert!(bench["answered"].as_u64() > Some(0), "{bench}");
    }
    // Each server's grow.
    assert!(
        all[0] < all[2] && all[2] < all[4] && all[1] < all[3] && all[3] < all[5],
        "{all:?}"
    );
    all.sort_unstable();
    assert!(
        all.windows(2).all(|pair| pair[0] + 20 <= pair[1]),
        "{all:?}"
    );
}
