//! The program as documented, with real processes. Every test has its own group on free ports, and waits for
//! conditions, never for time.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::Stdio;

use crate::common::up::Up;
use crate::common::{
    Cluster, LIMIT, children_of, command, finish, is_alive, signal, trine, wait_for,
};
use trine_base::ports::free_addresses;
use trine_client::{BlockingClient, ClientConfig};
use trine_client::{Report, leader_of, voters_in_step};
use trine_protocol::endpoint_config;
use trine_protocol::message::DEATH_NOTICE;
use trine_protocol::status::Status;
use trine_transport::backend::{MonotonicClock, UdpBackend, UdpConfig};
use trine_transport::wire::{Seed, notice};

#[test]
fn values_come_back_as_they_went_in() {
    let cluster = Cluster::start(&[]);
    let peers = cluster.group.peers();
    cluster.ok(&["put", "text", "hello"]);
    assert_eq!(cluster.ok(&["get", "text"]), b"hello");

    let binary: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    trine(&["put", "binary", "-"], &peers, &binary).expect_status(0);
    assert_eq!(cluster.ok(&["get", "binary"]), binary);
    trine(&["put", "also-stdin"], &peers, b"piped\n").expect_status(0);
    assert_eq!(cluster.ok(&["get", "also-stdin"]), b"piped\n");

    let file = std::env::temp_dir().join(format!("trine-e2e-{}", std::process::id()));
    std::fs::write(&file, &binary[..1000]).expect("write");
    cluster.ok(&["put", "file", &format!("@{}", file.display())]);
    assert_eq!(cluster.ok(&["get", "file"]), &binary[..1000]);
    std::fs::remove_file(file).expect("remove");

    cluster.ok(&["put", "empty", ""]);
    assert_eq!(cluster.ok(&["get", "empty"]), b"");
    let largest = vec![b'x'; 1 << 20];
    trine(&["put", "largest"], &peers, &largest).expect_status(0);
    assert_eq!(cluster.ok(&["get", "largest"]), largest);
}

#[test]
fn a_missing_key_is_a_clear_no_and_json_says_the_same() {
    let cluster = Cluster::start(&[]);
    cluster
        .run(&["get", "nope"])
        .expect_error(1, &["no such key: nope"]);
    cluster
        .run(&["del", "nope"])
        .expect_error(1, &["no such key: nope"]);
    cluster.ok(&["put", "key", "value"]);
    cluster.ok(&["del", "key"]);
    cluster.run(&["get", "key"]).expect_status(1);

    let ran = cluster.run(&["get", "key", "--json"]).expect_status(1);
    assert_eq!(ran.json()["error"]["kind"], "negative");
    let ran = cluster
        .run(&["--json", "put", "key", "value"])
        .expect_status(0);
    let version = ran.json()["version"].as_u64().expect("a version");
    let ran = cluster.run(&["get", "key", "--json"]).expect_status(0);
    assert_eq!(
        ran.json(),
        serde_json::json!({ "key": "key", "value": "value", "version": version })
    );
    assert_eq!(cluster.ok(&["get", "--stale", "key"]), b"value");
}

#[test]
fn status_tells_who_leads_and_how_many_may_be_lost() {
    let mut cluster = Cluster::start(&[]);
    cluster.ok(&["put", "key", "value"]);
    let leader = cluster.leader();
    let text = String::from_utf8(cluster.ok(&["status"])).expect("text");
    assert!(text.starts_with(&format!("replica {leader} (")), "{text}");
    assert!(text.contains("tolerates 1 more failure"), "{text}");
    assert!(text.contains("in memory alone"), "{text}");
    let document = cluster.run(&["status", "--json"]).expect_status(0).json();
    assert_eq!(document["voters_in_step"], 3);
    assert_eq!(document["failures_tolerated"], 1);
    let replica = &document["replicas"][0]["status"];
    assert_eq!(document["replicas"][0]["replica"], replica["replica"]);
    assert!(replica["store"]["keys"].is_u64(), "{replica}");
    assert_eq!(replica["leader"], leader as u64, "{replica}");
    assert_eq!(
        replica["leader_address"], document["leader_address"],
        "{replica}"
    );
    let of_leader = &document["replicas"][leader - 1]["status"]["members"];
    for member in of_leader.as_array().expect("members") {
        assert!(
            member["lag"].is_u64() && member["replica"].is_u64(),
            "{member}"
        );
    }
    for field in ["role", "term", "committed", "applied"] {
        assert!(!replica[field].is_null(), "{field} is missing: {replica}");
    }
    assert!(
        replica["transport"]["retransmissions"].is_u64(),
        "{replica}"
    );

    let other = leader % 3 + 1;
    cluster.group.kill(other).expect("kill");
    let text = String::from_utf8(cluster.ok(&["status"])).expect("text");
    assert!(text.contains("no further replica may be lost"), "{text}");
    assert!(text.contains("no answer"), "{text}");
}

#[test]
fn acknowledged_writes_survive_leader_after_leader() {
    let mut cluster = Cluster::start(&[]);
    for round in 0..3 {
        let key = format!("round-{round}");
        cluster.ok(&["put", &key, &key]);
        let leader = cluster.leader();
        cluster.group.kill(leader).expect("kill");
        // The group continues without the dead one ...
        let after = format!("after-{round}");
        cluster.ok(&["put", &after, &after, "--timeout", "30s"]);
        cluster.group.restart(leader).expect("restart");
        // ... and takes it in again, under another identity, before the next one dies.
        cluster.wait_for_voters(3);
    }
    // By now every replica has died once, so their knowledge came from each other.
    for round in 0..3 {
        for key in [format!("round-{round}"), format!("after-{round}")] {
            assert_eq!(cluster.ok(&["get", &key]), key.as_bytes());
        }
    }
}

#[test]
fn a_leader_that_is_killed_is_replaced_without_an_election_timeout() {
    kill_leader_with(|_| None);
}

/// The kernel closes a dead process's pipes after it has freed the memory, which took half a second for a large store. The
/// companion has to know before. Here the pipe never closes, because another process has it open.
#[test]
fn a_leader_that_is_killed_is_replaced_before_its_pipes_are_closed() {
    kill_leader_with(|pid| {
        let children = children_of(pid);
        let [companion] = children[..] else {
            panic!("not one child: {children:?}");
        };
        let pipe = File::options()
            .write(true)
            .open(format!("/proc/{companion}/fd/0"));
        Some(pipe.expect("its input is a pipe"))
    });
}

/// The sum of a field over all replicas that answer.
fn sum(cluster: &Cluster, field: fn(&Status) -> u64) -> u64 {
    let reports = cluster.survey();
    reports.iter().filter_map(Report::status).map(field).sum()
}

/// With this election timeout nothing but a notice of the leader's end makes another one lead within the test's time.
fn kill_leader_with(prepare: impl FnOnce(u32) -> Option<File>) {
    let mut cluster = Cluster::start(&["--election-timeout", "60s"]);
    cluster.ok(&["put", "key", "value"]);
    wait_for("two followers that know their leader's secret", || {
        (sum(&cluster, |status| u64::from(status.awaits_death_notice)) == 2).then_some(())
    });
    let leader = cluster.leader();
    let pid = cluster.group.process(leader).expect("running").pid();
    let pipe = prepare(pid);
    cluster.group.kill(leader).expect("kill");
    assert_ne!(cluster.leader(), leader);
    drop(pipe);
    assert_eq!(cluster.ok(&["get", "key"]), b"value");
    assert_eq!(sum(&cluster, |status| status.counters.leader_deaths), 1);
}

/// Where the system gives no memory for the mutex, or its thread does not start.
#[test]
fn a_companion_without_a_mutex_tells_at_the_end_of_its_pipe() {
    let replica = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    replica.set_read_timeout(Some(LIMIT)).expect("a limit");
    let address = replica.local_addr().expect("an address");
    let mut companion = command(&["tell-death"], "")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let mut pipe = companion.stdin.take().expect("a pipe");
    write!(pipe, "begin {:032x} 24000\nto {address}\n", 7).expect("it reads");
    drop(pipe);
    let mut bytes = [0; 100];
    let (length, _) = replica.recv_from(&mut bytes).expect("a notice");
    let told = notice(DEATH_NOTICE, &7_u128.to_be_bytes());
    assert_eq!(bytes[..length], told);
    assert!(companion.wait().expect("it ends").success());
}

/// Nobody is elected for want of a leader: that takes longer than `get` waits, and no death is reported.
#[test]
fn a_leader_that_is_asked_to_end_hands_over_and_ends_well() {
    let mut cluster = Cluster::start(&["--election-timeout", "20s"]);
    cluster.ok(&["put", "key", "value"]);
    let leader = cluster.leader();
    let process = cluster.group.process(leader).expect("running");
    process.ask_to_stop().expect("SIGTERM");
    let status = process.wait_at_most(LIMIT).expect("wait").expect("it ends");
    assert!(status.success(), "{status}");
    assert_eq!(cluster.ok(&["get", "key"]), b"value");
    let reports = cluster.survey();
    let successor = leader_of(&reports).expect("a leader");
    assert_ne!(successor.node_id as usize, leader);
    assert_eq!(sum(&cluster, |status| status.counters.leader_deaths), 0);
}

#[test]
fn ctrl_c_ends_a_measurement_with_what_was_measured() {
    let mut cluster = Cluster::start(&[]);
    let child = command(
        &[
            "bench", "--for", "600s", "--keys", "100", "--warmup", "0s", "--json",
        ],
        &cluster.group.peers(),
    )
    .stdin(Stdio::null())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("starts");
    let pid = child.id();
    // The preparation writes fewer keys than this, so the measurement has begun.
    let busy = |reports: &[Report]| {
        leader_of(reports).is_some_and(|leader| leader.counters.commands_applied > 5_000)
    };
    cluster.wait("some thousand operations", busy);
    signal(pid, "INT");
    let ran = finish(child).expect_status(130);
    let document = ran.json();
    assert_eq!(document["interrupted"], true);
    assert!(document["operations"].as_u64() > Some(0), "{document}");
}

/// Under --json a mistake in the command line was told as text. A shell in JSON form ended with a document of many lines.
#[test]
fn mistakes_are_told_in_json_where_json_is_wanted() {
    let wrong = trine(&["get", "--json"], "", b"").expect_status(2);
    let error = &wrong.json()["error"];
    assert_eq!(error["kind"], "usage");
    assert!(error["message"].to_string().contains("<KEY>"), "{error}");
    let script = trine(&["shell", "--json"], "127.0.0.1:1", b"bogus\n").expect_status(2);
    let text = String::from_utf8(script.stdout).expect("text");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("no such command"), "{text}");
}

#[test]
fn wrong_command_lines_exit_with_2_and_name_the_mistake() {
    let long_key = "k".repeat(70_000);
    let table: &[(&[&str], &str)] = &[
        (&["frobnicate"], "unrecognized subcommand"),
        (&["put"], "<KEY>"),
        (&["get", "k", "--peers", ""], "empty"),
        (&["get", "k", "--peers", "127.0.0.1"], "no port"),
        (&["get", "k", "--peers", "127.0.0.1:0"], "port 0"),
        (&["get", "k", "--peers", "127.0.0.1:1,127.0.0.1:1"], "twice"),
        (&["get", "k", "--timeout", "0s"], "longer than zero"),
        (&["get", "k", "--timeout", "5x"], "500ms, 20s or 2m"),
        (&["put", "k", "@/no/such/file"], "/no/such/file"),
        (&["get", &long_key], "70000 bytes"),
        (&["up", "--replicas", "2"], "possible values: 1, 3, 5, 7"),
        (&["up", "--base-port", "65535"], "65535"),
        (&["up", "--memory", "much"], "64KiB, 512MiB or 4GiB"),
        (&["up", "--memory", "0"], "at least 1MiB"),
        (&["up", "--data-dir", "kept"], "add --log disk"),
        (
            &["cache", "serve", "--memory", "100TiB"],
            "more than this machine has",
        ),
        (
            &["up", "--memory", "10TiB"],
            "for each of 3 replicas is more than this machine has",
        ),
        (
            &[
                "serve",
                "--id",
                "1",
                "--peers",
                "127.0.0.1:1",
                "--memory",
                "10TiB",
            ],
            "more than this machine has",
        ),
        (&["serve", "--id", "1"], "--peers"),
        (
            &["serve", "--id", "0", "--peers", "127.0.0.1:7471"],
            "0 is not in",
        ),
        (
            &[
                "serve",
                "--id",
                "4",
                "--peers",
                "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
            ],
            "1 to 3",
        ),
        (
            &[
                "serve",
                "--id",
                "1",
                "--peers",
                "127.0.0.1:1",
                "--fault",
                "los=5%",
            ],
            "loss, dup, reorder",
        ),
        (&["bench", "--value-size", "2MiB"], "1.0 MiB"),
        (&["bench", "--read-ratio", "150%"], "150%"),
        (&["chaos", "--loss", "lots"], "lots"),
        // It panicked: the sum of a moment and this overflowed.
        (&["get", "k", "--timeout", "100000000h"], "at most a year"),
        // It was found out after the run.
        (
            &["bench", "--html", "/no/such/directory/x.html"],
            "/no/such",
        ),
    ];
    for (args, part) in table {
        let ran = trine(args, "", b"").expect_status(2);
        assert!(
            ran.stderr.contains(part),
            "{args:?} does not say {part:?}: {}",
            ran.stderr
        );
    }
    let too_large = vec![0; (1 << 20) + 1];
    trine(&["put", "k", "-"], "", &too_large).expect_error(2, &["1.0 MiB"]);
}

/// The command line is right: the name may have an address a moment later.
#[test]
fn a_name_without_an_address_is_somebody_who_does_not_answer() {
    let ran = trine(
        &["get", "k", "--peers", "no-such-host.invalid:7471"],
        "",
        b"",
    );
    ran.expect_error(3, &["no-such-host.invalid:7471", "check the names"]);
}

#[test]
fn nobody_there_is_said_and_nothing_was_done() {
    let peers: Vec<String> = free_addresses(3)
        .expect("ports")
        .iter()
        .map(ToString::to_string)
        .collect();
    let peers = peers.join(",");
    let short = ["--timeout", "300ms"];
    let put = [&["put", "key", "value"], &short[..]].concat();
    trine(&put, &peers, b"").expect_error(3, &["not reachable", "nothing was written", "trine up"]);
    let get = [&["get", "key"], &short[..]].concat();
    trine(&get, &peers, b"").expect_error(3, &["not reachable", "nothing was read"]);
    let status = [&["status"], &short[..]].concat();
    trine(&status, &peers, b"").expect_error(3, &["no replica answers", "trine up"]);
    let bench = [&["bench", "--for", "1s"], &short[..]].concat();
    trine(&bench, &peers, b"").expect_status(3);
    let json = [&["put", "key", "value", "--json"], &short[..]].concat();
    let ran = trine(&json, &peers, b"").expect_status(3);
    assert_eq!(ran.json()["error"]["kind"], "not_reachable");
}

#[test]
fn an_unknown_outcome_is_said_to_be_unknown() {
    let mut cluster = Cluster::start(&[]);
    let mut client = client_of(&cluster);
    client.put(b"before", b"value").expect("a quorum");
    let leader = cluster.leader();
    for node_id in (1..=3).filter(|node_id| *node_id != leader) {
        let follower = cluster.group.process(node_id).expect("running");
        follower.pause().expect("SIGSTOP");
    }
    // The leader takes the write and can find no majority for it.
    let ended = client.put(b"limbo", b"value").expect_err("no quorum");
    assert!(!ended.is_definitely_not_applied(), "{ended}");
    // The group does not even accept a new client now, so this failure is certain.
    let ran = cluster.run(&["put", "late", "value", "--timeout", "400ms"]);
    ran.expect_error(3, &["not reachable", "nothing was written"]);
    let ran = cluster.run(&["get", "before", "--timeout", "400ms"]);
    ran.expect_error(3, &["not reachable"]);
    assert_eq!(cluster.ok(&["get", "before", "--stale"]), b"value");
}

/// A client in this process that soon stops trying.
fn client_of(cluster: &Cluster) -> BlockingClient<UdpBackend, MonotonicClock> {
    let address = "127.0.0.1:0".parse().expect("an address");
    let backend = UdpBackend::bind(address, &UdpConfig::default()).expect("a socket");
    let mut config = ClientConfig::new(cluster.group.addresses().to_vec());
    config.operation_timeout = trine_transport::time::Duration::from_millis(600);
    let (clock, route_of) = (MonotonicClock, Box::new(Some));
    BlockingClient::new(backend, clock, config, endpoint_config(), route_of, 7).expect("a client")
}

/// A replica waits for 30 s, since its predecessor may still end. Status 3 has a service manager start it again.
#[test]
fn a_port_in_use_is_named_with_its_hint() {
    let holder = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = holder.local_addr().expect("bound").to_string();
    let args = ["serve", "--id", "1", "--peers", &address];
    trine(&args, "", b"").expect_error(3, &[&address, "in use", "another port"]);

    let port = holder.local_addr().expect("bound").port().to_string();
    let ran = trine(&["up", "--base-port", &port], "", b"");
    ran.expect_error(2, &[&address, "in use", "another port"]);
}

/// `trine up` beside a running group took that group's answers for those of its own replicas. It said "ready", and
/// restarted its replicas again and again.
#[test]
fn a_second_group_at_the_ports_of_the_first_does_not_count_as_started() {
    let cluster = Cluster::start(&[]);
    let port = cluster.group.addresses()[0].port().to_string();
    let ran = trine(&["up", "--base-port", &port], "", b"").expect_status(2);
    assert!(
        !String::from_utf8_lossy(&ran.stdout).contains("ready"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("a group that runs already"), "{ran:?}");
}

#[test]
fn another_version_or_cluster_is_named_with_its_hint() {
    let cases: [(u8, u64, &[&str]); 2] = [
        (
            1,
            9,
            &[
                "version 9 of the packets",
                "run a release that speaks theirs",
                "nothing was done",
            ],
        ),
        (
            2,
            0xabcd,
            &[
                "another cluster",
                "nothing was done",
                "list the replicas of one",
            ],
        ),
    ];
    for (reason, theirs, parts) in cases {
        let (address, thread) = refusing_peer(reason, theirs);
        trine(&["put", "key", "value"], &address, b"").expect_error(2, parts);
        thread.join().expect("the refusing peer");
    }
}

/// A peer that answers the first CONNECT with a REFUSE, in the formats of the transport's PROTOCOL.md.
fn refusing_peer(reason: u8, theirs: u64) -> (String, std::thread::JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let address = socket.local_addr().expect("bound").to_string();
    let answer_one = move || {
        let mut connect = [0; 2_048];
        let (length, from) = socket.recv_from(&mut connect).expect("a CONNECT");
        assert!(
            length >= 64 && connect[0] == 0x18,
            "version 1, type CONNECT"
        );
        let (index, nonce) = (&connect[24..26], &connect[32..40]);
        let mut refuse = [0; 40];
        refuse[0] = 0x1b;
        refuse[2..4].copy_from_slice(index);
        refuse[4..6].copy_from_slice(&40_u16.to_le_bytes());
        refuse[24] = reason;
        refuse[32..40].copy_from_slice(&theirs.to_le_bytes());
        let nonce = u64::from_le_bytes(nonce.try_into().expect("eight bytes"));
        let header = refuse[..24].try_into().expect("a header");
        let checksum = Seed::of_nonce(nonce).checksum(&header, [&refuse[24..], &[]]);
        refuse[20..24].copy_from_slice(&checksum.to_le_bytes());
        socket.send_to(&refuse, from).expect("sent");
    };
    (address, std::thread::spawn(answer_one))
}

#[test]
fn a_wrong_node_id_and_a_missing_group_are_explained() {
    let cluster = Cluster::start(&[]);
    let peers = cluster.group.addresses();
    // The list names an unused address for a node that runs elsewhere.
    let stranger = free_addresses(1).expect("a port")[0];
    let mixed = format!("{},{},{stranger}", peers[0], peers[1]);
    let absent: Vec<String> = free_addresses(3)
        .expect("ports")
        .iter()
        .map(ToString::to_string)
        .collect();
    for (list, part) in [(mixed, "node 3"), (absent.join(","), "no answer from")] {
        let mut child = command(&["serve", "--id", "3", "--peers", &list], "")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        // It may speak before the first answer has come, and then says so again with the reason.
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        loop {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("a line");
            assert!(line.starts_with("not serving yet: "), "{line}");
            if line.contains(part) {
                break;
            }
        }
        let own = list.rsplit(',').next().expect("an address");
        let alone = format!("replica 3 ({own}) is in no group yet");
        trine(&["status"], own, b"").expect_error(3, &[&alone]);
        signal(child.id(), "TERM");
        child.stdout = Some(stdout.into_inner());
        finish(child).expect_status(0);
    }
    let status = trine(&["status", "--json"], &peers[0].to_string(), b"")
        .expect_status(0)
        .json();
    assert_eq!(
        status["voters_in_step"], 3,
        "one address is enough to find the others"
    );
}

/// `trine get key > file` on a full disk wrote a part of the value and ended with 0, as it does with `| head`.
#[test]
fn an_output_that_cannot_be_written_is_no_success() {
    let cluster = Cluster::start(&[]);
    cluster.ok(&["put", "key", "value"]);
    for words in [&["get", "key"][..], &["get", "key", "--json"], &["status"]] {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("every Linux has it");
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_trine"))
            .args(words)
            .args(["--peers", &cluster.group.peers()])
            .stdout(full)
            .output()
            .expect("trine runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("No space left"), "{words:?}: {said}");
    }
}

#[test]
fn a_full_store_refuses_and_loses_nothing() {
    let cluster = Cluster::start(&["--memory", "1MiB"]);
    let peers = cluster.group.peers();
    let value = vec![b'v'; 300_000];
    for key in ["a", "b", "c"] {
        trine(&["put", key], &peers, &value).expect_status(0);
    }
    let ran = trine(&["put", "d"], &peers, &value);
    ran.expect_error(1, &["full", "nothing was changed", "config set memory"]);
    for key in ["a", "b", "c"] {
        assert_eq!(cluster.ok(&["get", key]), value);
    }
    cluster.ok(&["del", "a"]);
    trine(&["put", "d"], &peers, &value).expect_status(0);
    assert_eq!(cluster.ok(&["get", "d"]), value);
}

#[test]
fn the_demonstration_loses_nothing() {
    let ran = trine(&["demo", "--keys", "200", "--json"], "", b"").expect_status(0);
    let document = ran.json();
    assert_eq!(document["lost"], 0);
    assert!(
        document["acknowledged_writes"].as_u64() > Some(200),
        "{document}"
    );
    assert!(
        document["failover"]["first_write_ns"].as_u64() > Some(0),
        "{document}"
    );
}

#[test]
fn a_short_chaos_run_passes_with_faults_and_a_dead_leader() {
    let line = "chaos --loss 5% --dup 1% --reorder 2% --clients 8 --for 5s --seed 7 --kill-leader-every 2s --json";
    let args: Vec<&str> = line.split(' ').collect();
    let document = trine(&args, "", b"").expect_status(0).json();
    assert_eq!(document["passed"], true, "{document}");
    assert!(
        document["operations"]["completed"].as_u64() >= Some(1_000),
        "{document}"
    );
    for fault in ["loss", "dup", "reorder"] {
        assert!(
            document["faults"][fault].as_u64() > Some(0),
            "{fault}: {document}"
        );
    }
    assert!(
        !document["failovers"].as_array().expect("a list").is_empty(),
        "{document}"
    );
}

#[test]
fn a_chaos_run_that_proves_nothing_fails() {
    // One client over a link that loses half of everything does not complete a thousand operations.
    let line = "chaos --loss 60% --clients 1 --for 100ms --json";
    let args: Vec<&str> = line.split(' ').collect();
    let document = trine(&args, "", b"").expect_status(1).json();
    let reason = document["coverage"]["text"].as_str().unwrap_or_default();
    assert!(reason.contains("nothing proved"), "{document}");
}

#[test]
fn up_starts_a_dead_replica_again_and_ends_on_ctrl_c() {
    let up = Up::start();
    let peers = up.peers.clone();
    trine(&["put", "key", "value"], &peers, b"").expect_status(0);
    let before = children_of(up.child.id());
    assert_eq!(before.len(), 3);
    signal(before[0], "KILL");
    up.wait_for_line("starting it again");
    up.wait_for_line("all replicas vote again");
    wait_for("three voters again", || {
        let ran = trine(&["status", "--json"], &peers, b"");
        (ran.status == Some(0) && ran.json()["voters_in_step"] == 3).then_some(())
    });
    assert_eq!(
        trine(&["get", "key"], &peers, b"").expect_status(0).stdout,
        b"value"
    );
    let children = children_of(up.child.id());
    assert_eq!(children.len(), 3);
    up.stop();
    wait_for("the end of all replicas", || {
        (!children.iter().any(|pid| is_alive(*pid))).then_some(())
    });
}

/// With another base port or another number of replicas it waited for 20 s. It also made directories for replicas that
/// the group does not have.
#[test]
fn up_refuses_the_directory_of_a_group_with_other_addresses() {
    let directory = std::env::temp_dir().join(format!("trine-up-kept-{}", std::process::id()));
    let data = directory.to_str().expect("plain letters");
    let disk = ["--log", "disk", "--data-dir", data];
    let addresses = free_addresses(3).expect("free ports");
    let up = Up::start_at(&addresses, &disk);
    trine(&["put", "key", "value"], &up.peers, b"").expect_status(0);
    up.stop();

    let base = addresses[0].port().to_string();
    let other = free_addresses(3).expect("free ports")[0].port().to_string();
    let hint = format!("trine up --replicas 3 --base-port {base} --log disk --data-dir {data}");
    for (replicas, base) in [("3", &other), ("5", &base)] {
        let up = ["up", "--replicas", replicas, "--base-port", base];
        let ran = trine(&[&up[..], &disk].concat(), "", b"");
        ran.expect_error(2, &["holds a group of 3 replicas at", &hint]);
    }
    assert!(!directory.join("replica-4").exists());

    let up = Up::start_at(&addresses, &disk);
    assert_eq!(
        trine(&["get", "key"], &up.peers, b"")
            .expect_status(0)
            .stdout,
        b"value"
    );
    up.stop();
    std::fs::remove_dir_all(&directory).expect("it is there");
}

#[test]
fn a_lost_majority_is_said_and_invents_nothing() {
    let up = Up::start();
    let peers = up.peers.clone();
    trine(&["put", "key", "value"], &peers, b"").expect_status(0);
    let children = children_of(up.child.id());
    // Both die at once; one after the other they would be replaced.
    children[..2].iter().for_each(|pid| signal(*pid, "STOP"));
    children[..2].iter().for_each(|pid| signal(*pid, "KILL"));
    up.wait_for_line("what the group stored is gone");
    let text = trine(&["status"], &peers, b"")
        .expect_error(3, &["no leader"])
        .stdout;
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("the group's data is gone"), "{text}");
    // The list of members has the same exit status. It used to end with 0, as if there were a leader.
    let list = trine(&["member", "list"], &peers, b"").expect_error(3, &["no leader"]);
    let list = String::from_utf8(list.stdout).expect("text");
    assert!(
        list.contains("no leader answers; according to replica") && list.contains("voter"),
        "{list}"
    );
    // No replica with an empty store answers for the old group.
    let ran = trine(&["get", "key", "--timeout", "500ms"], &peers, b"");
    ran.expect_error(3, &["not reachable", "nothing was read"]);
    up.stop();
}

/// They came back, each waited for the others to take it in, and none reported that the group was lost.
#[test]
fn the_death_of_all_replicas_is_said() {
    let up = Up::start();
    let children = children_of(up.child.id());
    children.iter().for_each(|pid| signal(*pid, "STOP"));
    children.iter().for_each(|pid| signal(*pid, "KILL"));
    up.wait_for_line("only in their memory: what the group stored is gone");
    up.stop();
}

#[test]
fn no_replica_survives_the_death_of_its_parent() {
    let up = Up::start();
    let children = children_of(up.child.id());
    assert_eq!(children.len(), 3);
    signal(up.child.id(), "KILL");
    wait_for("the end of all replicas", || {
        (!children.iter().any(|pid| is_alive(*pid))).then_some(())
    });
}

#[test]
fn ctrl_c_ends_long_commands_cleanly_at_any_moment() {
    for (args, moment) in [
        ("demo", 0),
        ("demo", 150),
        ("chaos --for 60s", 0),
        ("chaos --for 60s", 1_000),
        ("chaos --for 60s --kill-leader-every 100ms", 1_500),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let child = command(&args, "")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let pid = child.id();
        // Only the moment varies; any progress until then is right.
        std::thread::park_timeout(std::time::Duration::from_millis(moment));
        wait_for("a handler for the signal", || {
            handles_interrupts(pid).then_some(())
        });
        let children = children_of(pid);
        signal(pid, "INT");
        let ran = finish(child).expect_status(130);
        assert!(ran.stderr.contains("interrupted"), "{}", ran.stderr);
        assert!(
            !children.iter().any(|pid| is_alive(*pid)),
            "{args:?} left replicas behind"
        );
    }
}

/// Whether the process has a handler for SIGINT (bit 1 of its mask of caught signals).
fn handles_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 2 != 0)
}

#[test]
fn bench_measures_in_both_loops() {
    let cluster = Cluster::start(&[]);
    let line = [
        "bench",
        "--for",
        "300ms",
        "--warmup",
        "50ms",
        "--keys",
        "500",
        "--clients",
        "4",
        "--json",
    ];
    let closed = cluster.run(&line).expect_status(0).json();
    assert_eq!(closed["mode"], "closed");
    assert!(closed["operations"].as_u64() > Some(0), "{closed}");
    assert_eq!(closed["errors"], 0);
    assert_eq!(closed["misses"], 0, "every key was written before");
    let open = cluster
        .run(&[&line[..], &["--rate", "200"]].concat())
        .expect_status(0)
        .json();
    assert_eq!(open["mode"], "open");
    // 300 ms at 200 a second: each operation that falls due is either done or reported as not done.
    let count = |name: &str| open[name].as_u64().expect("a count");
    assert!(count("operations") > 0, "{open}");
    assert!(
        (59..=60).contains(&(count("operations") + count("never_sent"))),
        "{open}"
    );
}

#[test]
fn a_replica_of_a_live_group_is_not_bootstrapped_again() {
    let mut cluster = Cluster::start(&[]);
    cluster.ok(&["put", "key", "value"]);
    let leader = cluster.leader();
    cluster.group.kill(leader).expect("kill");
    // A restart with --bootstrap by mistake must not create a second group.
    let peers = cluster.group.peers();
    let child = command(
        &[
            "serve",
            "--id",
            &leader.to_string(),
            "--peers",
            &peers,
            "--bootstrap",
        ],
        "",
    )
    .stdin(Stdio::null())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("starts");
    let pid = child.id();
    let ended_or_joined = wait_for("an error, or a vote in the old group", || {
        let joined = voters_in_step(&cluster.survey()) == Some(3);
        (joined || !is_alive(pid)).then_some(joined)
    });
    assert_eq!(cluster.ok(&["get", "key"]), b"value");
    if ended_or_joined {
        signal(pid, "TERM");
    }
    finish(child);
}

/// A client's time could end before the replica noticed the missing quorum. The client then reported only "The replica
/// did not answer in time". And `status`, given one address of three, numbered the replicas by their rows.
#[test]
fn without_a_quorum_the_reason_is_said_and_node_ids_are_named_as_they_are() {
    let mut cluster = Cluster::start(&[]);
    cluster.ok(&["put", "key", "value"]);
    for node_id in [1, 2] {
        cluster.group.kill(node_id).expect("it is alive");
    }
    let third = cluster.group.addresses()[2].to_string();
    let put = ["put", "key", "other", "--timeout", "1s", "--peers", &third];
    let silent = format!("1 ({}), 2 (", cluster.group.addresses()[0]);
    trine(&put, "", b"").expect_error(
        3,
        &[
            "the group has no leader; of its 3 voters, these do not answer: ",
            &silent,
        ],
    );
    let status = trine(&["status", "--peers", &third], "", b"").expect_status(3);
    let text = String::from_utf8(status.stdout).expect("text");
    for (node_id, address) in cluster.group.addresses().iter().enumerate() {
        let node_id = (node_id + 1).to_string();
        let row = text
            .lines()
            .find(|line| line.contains(&address.to_string()));
        let first = row.and_then(|row| row.split_whitespace().next());
        assert_eq!(first, Some(node_id.as_str()), "{text}");
    }
}
