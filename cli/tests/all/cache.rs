//! `trine cache` as documented, with real processes on free ports.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::common::serving::Serving;
use crate::common::{Cluster, LIMIT, Ran, command, finish, signal, trine};
use crate::keys::Keys;
use trine_base::ports::free_addresses;
use trine_keys::{ClusterKey, Existing};
use trine_kvstore::cache::shard_of;
use trine_kvstore::{Command, Response};
use trine_protocol::endpoint_config;
use trine_transport::backend::{Backend, MonotonicClock, UdpBackend, UdpConfig};
use trine_transport::time::{Clock, Duration};
use trine_transport::{
    App, Completion, ConnectParams, Cx, Event, EventLoop, Identity, Reply, Request, SessionId,
};

/// A running server and what it is asked.
struct Server(Serving);

impl Server {
    fn start(threads: usize, options: &[&str]) -> Self {
        Self(Serving::start("cache", threads, options))
    }

    fn run_with(&self, args: &[&str], stdin: &[u8]) -> Ran {
        let address = self.0.address.to_string();
        trine(
            &[&["cache"], args, &["--connect", &address]].concat(),
            "",
            stdin,
        )
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, b"")
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> Vec<u8> {
        self.run(args).expect_status(0).stdout
    }

    fn stats(&self) -> serde_json::Value {
        self.run(&["stats", "--json"]).expect_status(0).json()
    }

    fn interrupt(&mut self) -> Ran {
        self.0.end("INT")
    }
}

#[test]
fn values_come_back_until_they_are_deleted() {
    let server = Server::start(1, &["--memory", "64MiB"]);
    server.ok(&["put", "text", "hello"]);
    assert_eq!(server.ok(&["get", "text"]), b"hello");
    server.ok(&["put", "text", "another"]);
    assert_eq!(server.ok(&["get", "text"]), b"another");
    let largest: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    server
        .run_with(&["put", "largest"], &largest)
        .expect_status(0);
    assert_eq!(server.ok(&["get", "largest"]), largest);
    server.ok(&["put", "empty", ""]);
    assert_eq!(server.ok(&["get", "empty"]), b"");

    server.ok(&["del", "text"]);
    for args in [["get", "text"], ["del", "text"]] {
        server
            .run(&args)
            .expect_error(1, &["not in the cache: text"]);
    }
}

#[test]
fn json_says_the_same() {
    let server = Server::start(1, &["--memory", "64MiB"]);
    let json = |args: &[&str], status| server.run(args).expect_status(status).json();
    assert_eq!(
        json(&["put", "key", "value", "--json"], 0),
        serde_json::json!({ "key": "key", "bytes": 5 })
    );
    assert_eq!(
        json(&["get", "key", "--json"], 0),
        serde_json::json!({ "key": "key", "value": "value" })
    );
    assert_eq!(
        json(&["del", "key", "--json"], 0),
        serde_json::json!({ "key": "key", "deleted": 1 })
    );
    assert_eq!(
        json(&["get", "key", "--json"], 1)["error"]["kind"],
        "negative"
    );
}

#[test]
fn what_is_beyond_the_budget_is_forgotten_oldest_first() {
    // 2 MiB of index and 8 MiB of log: seven of these items.
    let server = Server::start(1, &["--memory", "10MiB"]);
    let value = vec![b'x'; 1 << 20];
    for number in 0..12 {
        let key = format!("key-{number}");
        server.run_with(&["put", &key], &value).expect_status(0);
        assert_eq!(server.ok(&["get", &key]), value, "the newest is there");
    }
    let there: Vec<bool> = (0..12)
        .map(|number| server.run(&["get", &format!("key-{number}")]).status == Some(0))
        .collect();
    let kept = there.iter().filter(|there| **there).count();
    assert!((6..=8).contains(&kept), "{there:?}");
    assert!(there[12 - kept..].iter().all(|there| *there), "{there:?}");
    let shard = &server.stats()["shards"][0];
    assert!(shard["log_rounds"].as_u64() >= Some(1), "{shard}");
    let taken =
        shard["log_bytes"].as_u64().expect("bytes") + shard["index_bytes"].as_u64().expect("bytes");
    assert_eq!(taken, 10 << 20);
}

#[test]
fn two_threads_share_the_keys() {
    let server = Server::start(2, &["--memory", "64MiB"]);
    let keys: Vec<String> = (0..16).map(|number| format!("key-{number}")).collect();
    for key in &keys {
        server.ok(&["put", key, key]);
    }
    for key in &keys {
        assert_eq!(server.ok(&["get", key]), key.as_bytes());
    }
    let stats = server.stats();
    assert_eq!(stats["threads"], 2);
    for shard in 0..2_u32 {
        let its = keys
            .iter()
            .filter(|key| shard_of(key.as_bytes(), 2) == shard);
        let count = its.count() as u64;
        assert!(count > 0, "the keys of this test reach both threads");
        let said = &stats["shards"][shard as usize];
        assert_eq!(said["puts"], count, "{stats}");
        assert_eq!(said["hits"], count, "{stats}");
        assert_eq!(said["refused"], 0, "{stats}");
    }
    let text = String::from_utf8(server.ok(&["stats"])).expect("text");
    assert_eq!(text.lines().count(), 3, "{text}");

    // The second thread is not a separate server.
    let second = SocketAddr::new(server.0.address.ip(), server.0.address.port() + 1).to_string();
    trine(&["cache", "get", "key-0", "--connect", &second], "", b"")
        .expect_error(2, &["thread 1 of a cache"]);
}

#[test]
fn a_burst_of_gets_is_looked_up_at_once() {
    let server = Server::start(2, &["--memory", "64MiB"]);
    let mine = |key: &String| shard_of(key.as_bytes(), 2) == 0;
    let keys: Vec<String> = (0..)
        .map(|n| format!("k{n}"))
        .filter(mine)
        .take(60)
        .collect();
    let encoded = |command: Command<'_>| {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        bytes
    };
    let put = |key: &String| {
        let (key, value) = (key.as_bytes(), key.as_bytes());
        (33, encoded(Command::Put { key, value }))
    };
    for answer in ask_at_once(server.0.address, keys[..40].iter().map(put).collect()) {
        let (verdict, response) = answer.split_first().expect("a verdict");
        assert_eq!(*verdict, 0);
        assert!(matches!(
            Response::decode(response),
            Ok(Response::Written { .. })
        ));
    }
    let get = |key: &String| {
        (
            33,
            encoded(Command::Get {
                key: key.as_bytes(),
            }),
        )
    };
    let answers = ask_at_once(server.0.address, keys.iter().map(get).collect());
    for (number, answer) in answers.iter().enumerate() {
        match Response::decode(&answer[1..]) {
            Ok(Response::Value { value, .. }) => {
                assert!(number < 40 && value == keys[number].as_bytes(), "{number}");
            }
            Ok(Response::NotFound) => assert!(number >= 40, "{number}"),
            other => panic!("{number}: {other:?}"),
        }
    }
    let shard = &server.stats()["shards"][0];
    assert_eq!((&shard["gets"], &shard["hits"]), (&60.into(), &40.into()));
    assert!(shard["largest_burst"].as_u64() > Some(1), "{shard}");
}

#[test]
fn requests_that_are_none_are_refused_and_hurt_nobody() {
    let server = Server::start(2, &["--memory", "64MiB"]);
    server.ok(&["put", "key", "value"]);
    let foreign = (0..)
        .map(|n| format!("k{n}"))
        .find(|key| shard_of(key.as_bytes(), 2) == 1)
        .expect("one of them");
    let mut elsewhere = Vec::new();
    Command::Get {
        key: foreign.as_bytes(),
    }
    .encode(&mut elsewhere);
    let requests = vec![
        (33, b"garbage".to_vec()),
        (33, vec![]),
        (33, elsewhere),
        (2, vec![1; 3000]),
    ];
    let answers = ask_at_once(server.0.address, requests);
    assert_eq!(answers, [&[1_u8][..], &[1], &[2], &[]]);
    assert_eq!(server.stats()["shards"][0]["refused"], 4);
    assert_eq!(server.ok(&["get", "key"]), b"value");
}

#[test]
fn a_wrong_address_is_said_and_nothing_was_done() {
    let nobody = free_addresses(1).expect("a free port")[0].to_string();
    let args = [
        "cache",
        "put",
        "k",
        "v",
        "--connect",
        &nobody,
        "--timeout",
        "300ms",
    ];
    trine(&args, "", b"").expect_error(
        3,
        &[
            "not reachable",
            &nobody,
            "nothing was done",
            "trine cache serve",
        ],
    );
    let args = [
        "cache",
        "get",
        "k",
        "--json",
        "--connect",
        &nobody,
        "--timeout",
        "300ms",
    ];
    let ran = trine(&args, "", b"").expect_status(3);
    assert_eq!(ran.json()["error"]["kind"], "not_reachable");

    let cluster = Cluster::start(&[]);
    let replica = cluster.group.addresses()[0].to_string();
    trine(&["cache", "put", "k", "v", "--connect", &replica], "", b"")
        .expect_error(2, &["is not a cache", "nothing was done"]);
    cluster.run(&["get", "k"]).expect_status(1);
}

#[test]
fn ctrl_c_ends_the_server_well_and_a_dead_server_is_not_reachable() {
    for name in ["INT", "TERM"] {
        let mut server = Server::start(2, &["--memory", "64MiB"]);
        server.ok(&["put", "key", "value"]);
        let ran = server.0.end(name).expect_status(0);
        assert!(!ran.stderr.contains("trine:"), "{}", ran.stderr);
        server
            .run(&["get", "key", "--timeout", "300ms"])
            .expect_error(3, &["not reachable"]);
    }
    let mut server = Server::start(1, &["--memory", "64MiB"]);
    let listen = server.0.address.to_string();
    trine(&["cache", "serve", "--listen", &listen], "", b"").expect_error(2, &[&listen]);
    server.interrupt().expect_status(0);
}

#[test]
fn wrong_command_lines_exit_with_2_and_name_the_mistake() {
    let long_key = "k".repeat(70_000);
    let table: &[(&[&str], &str)] = &[
        (&["cache"], "Usage"),
        (&["cache", "get"], "<KEY>"),
        (&["cache", "get", &long_key], "70000 bytes"),
        (&["cache", "get", "k", "--connect", "127.0.0.1"], "no port"),
        (
            &["cache", "get", "k", "--timeout", "0s"],
            "longer than zero",
        ),
        (&["cache", "put", "k", "@/no/such/file"], "/no/such/file"),
        (
            &["cache", "serve", "--listen", "192.0.2.1:7481"],
            "--insecure",
        ),
        (&["cache", "serve", "--threads", "0"], "0 is not in"),
        (&["cache", "serve", "--memory", "9MiB"], "10.0 MiB"),
        (
            &["cache", "serve", "--memory", "64MiB", "--threads", "8"],
            "8 threads",
        ),
        (
            &[
                "cache",
                "serve",
                "--listen",
                "127.0.0.1:65535",
                "--threads",
                "2",
            ],
            "65535",
        ),
    ];
    for (args, part) in table {
        trine(args, "", b"").expect_error(2, &[part]);
    }
}

/// Sends all requests in one turn over one session, and returns their answers in order.
fn ask_at_once(address: SocketAddr, requests: Vec<(u8, Vec<u8>)>) -> Vec<Vec<u8>> {
    let local = "127.0.0.1:0".parse().expect("an address");
    let backend = UdpBackend::bind(local, &UdpConfig::default()).expect("a socket");
    let (asker, pool) = (Asker::default(), backend.pool().clone());
    // Every endpoint needs a different seed, because the server tells connections apart by values drawn from it.
    let seed = getrandom::u64().expect("random numbers");
    let identity = Identity {
        cluster: 0,
        incarnation: seed.max(1),
    };
    let mut event_loop = EventLoop::new(
        backend,
        MonotonicClock,
        asker,
        endpoint_config(),
        identity,
        seed,
    )
    .expect("an endpoint");
    let limit = MonotonicClock.now() + Duration::from(LIMIT);
    event_loop
        .with(|_, cx| cx.connect(address, ConnectParams::default()))
        .expect("begins");
    let connected = event_loop.run_until(Some(limit), |asker| asker.session.is_some());
    assert!(connected.expect("runs"), "connected");
    let count = requests.len();
    event_loop.with(|asker, cx| {
        asker.answers = vec![None; count];
        for (tag, (kind, bytes)) in (0..).zip(requests) {
            let mut request = pool.alloc(bytes.len()).expect("memory");
            request.copy_from_slice(&bytes);
            let response = pool.alloc(1024).expect("memory");
            let session = asker.session.expect("connected");
            cx.enqueue_request(session, kind, request, response, tag, Some(limit))
                .expect("accepted");
        }
    });
    let answered = event_loop.run_until(Some(limit), |asker| {
        asker.answers.iter().all(Option::is_some)
    });
    assert!(answered.expect("runs"), "answered");
    let answers = std::mem::take(&mut event_loop.app_mut().answers);
    answers.into_iter().flatten().collect()
}

#[derive(Default)]
struct Asker {
    session: Option<SessionId>,
    answers: Vec<Option<Vec<u8>>>,
}

impl App<SocketAddr> for Asker {
    fn on_request(&mut self, _: &mut Cx<'_, SocketAddr>, _: Request<'_>) -> Reply {
        unreachable!("a cache asks nobody");
    }

    fn on_completion(&mut self, _: &mut Cx<'_, SocketAddr>, tag: u64, completion: Completion) {
        completion.result.expect("an answer");
        self.answers[tag as usize] = Some(completion.response.to_vec());
    }

    fn on_event(&mut self, _: &mut Cx<'_, SocketAddr>, event: Event<SocketAddr>) {
        match event {
            Event::Connected { session, .. } => self.session = Some(session),
            Event::ConnectFailed { reason, .. } => panic!("{reason:?}"),
            Event::Accepted { .. } | Event::Down { .. } => {}
        }
    }
}

#[test]
fn users_may_do_what_the_list_of_a_sealed_server_says() {
    let keys = Keys::new("cache-users");
    let users = keys.text("list");
    let ours = ClusterKey::read(&keys.path("ours")).expect("a key");
    for (name, generation) in [("bob", 1), ("carol", 1), ("dora", 1)] {
        let user = ours.user_key(name.parse().expect("a name"), generation);
        user.write(&keys.path(name), Existing::Keep)
            .expect("written");
    }
    let list = "# who\nalice write\nbob read # a reader\ndora write 2\n";
    std::fs::write(keys.path("list"), list).expect("written");
    let key = keys.text("ours");
    let options = ["--memory", "64MiB", "--key", &key, "--users", &users];
    let mut server = Server::start(2, &options);
    let run =
        |name: &str, args: &[&str]| server.run(&[args, &["--key", &keys.text(name)]].concat());

    run("ours", &["put", "k", "holder"]).expect_status(0);
    run("alice", &["put", "k", "writer"]).expect_status(0);
    let read = run("bob", &["get", "k"]).expect_status(0);
    assert_eq!(read.stdout, b"writer");
    run("bob", &["stats"]).expect_status(0);
    let denied = "user bob has role read, and role write is needed";
    // Both threads know it.
    for number in 0..8 {
        let other = format!("k{number}");
        run("bob", &["put", &other, "x"]).expect_error(1, &[denied, "nothing was done"]);
    }
    run("bob", &["del", "k"]).expect_error(1, &[denied, "--users"]);
    for args in [&["get", "k"][..], &["put", "k", "x"], &["stats"]] {
        let unlisted = "user carol is not in the server's list of users";
        run("carol", args).expect_error(1, &[unlisted]);
        run("dora", args).expect_error(1, &["the key of user dora", "generation 2"]);
    }
    run("others", &["get", "k"]).expect_status(2);
    server.run(&["get", "k", "--key", ""]).expect_status(2);
    let read = run("ours", &["get", "k"]).expect_status(0);
    assert_eq!(read.stdout, b"writer");

    // Another list counts from SIGHUP on, and one with a mistake does not.
    let child = server.0.child.as_mut().expect("running");
    let (pid, said) = (child.id(), lines_of(child));
    let read_again = |list: &str, says: &str| {
        std::fs::write(keys.path("list"), list).expect("written");
        signal(pid, "HUP");
        let line = said.recv_timeout(LIMIT).expect("a line");
        assert!(line.contains(says), "{line}");
    };
    let may = |name: &str, args: &[&str]| {
        let ran = server.run(&[args, &["--key", &keys.text(name)]].concat());
        ran.status == Some(0)
    };
    read_again("carol write\ndora read 2\n", "users reloaded: 2 users");
    assert!(may("carol", &["put", "k", "x"]));
    assert!(!may("bob", &["get", "k"]) && !may("alice", &["get", "k"]));
    read_again("bob write\ncarol\n", "line 2: \"carol\" has no role");
    assert!(may("carol", &["put", "k", "y"]) && !may("bob", &["get", "k"]));
}

/// What a server says from now on.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let said = BufReader::new(child.stdout.take().expect("piped"));
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut said = said.lines().map_while(Result::ok);
        said.all(|line| sender.send(line).is_ok())
    });
    lines
}

#[test]
fn without_a_list_users_get_nothing_and_a_bad_list_is_an_error() {
    let keys = Keys::new("cache-unlisted");
    let key = keys.text("ours");
    let server = Server::start(1, &["--memory", "64MiB", "--key", &key]);
    let run =
        |name: &str, args: &[&str]| server.run(&[args, &["--key", &keys.text(name)]].concat());
    run("ours", &["put", "k", "v"]).expect_status(0);
    run("alice", &["get", "k"]).expect_error(1, &["user alice is not in the server's list"]);

    let users = keys.text("list");
    std::fs::write(keys.path("list"), "alice write\nbob all\n").expect("written");
    let bad = ["line 2", "\"all\" is not a role", "NAME ROLE [GENERATION]"];
    for program in ["cache", "index"] {
        let serve = |more: &[&str]| trine(&[&[program, "serve"], more].concat(), "", b"");
        serve(&["--key", &key, "--users", &users]).expect_error(2, &bad);
        serve(&["--users", &users]).expect_error(2, &["--users needs the key", "--key PATH"]);
        let missing = keys.text("missing");
        serve(&["--key", &key, "--users", &missing]).expect_error(2, &["list of users", &missing]);
    }
}

/// A server of one connection after the other that knows as much of memcached's protocol as the benchmark speaks. After
/// so many connections it falls silent.
fn like_memcached(listener: &TcpListener, connections: usize) {
    let mut values: HashMap<String, Vec<u8>> = HashMap::new();
    let streams = listener.incoming().map_while(Result::ok);
    for stream in streams.take(connections) {
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        while let Some(answer) = answer_like_memcached(&mut reader, &mut values) {
            let mut stream: &TcpStream = &stream;
            if stream.write_all(&answer).is_err() {
                break;
            }
        }
    }
}

fn answer_like_memcached(
    reader: &mut BufReader<TcpStream>,
    values: &mut HashMap<String, Vec<u8>>,
) -> Option<Vec<u8>> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["get", key] => Some(match values.get(key) {
            Some(value) => {
                let head = format!("VALUE {key} 0 {}\r\n", value.len()).into_bytes();
                [&head, &value[..], b"\r\nEND\r\n"].concat()
            }
            None => b"END\r\n".to_vec(),
        }),
        ["set", key, "0", "0", length] => {
            let mut value = vec![0; length.parse::<usize>().expect("a length") + 2];
            reader.read_exact(&mut value).ok()?;
            value.truncate(value.len() - 2);
            values.insert(key.to_owned(), value);
            Some(b"STORED\r\n".to_vec())
        }
        _ => Some(b"ERROR\r\n".to_vec()),
    }
}

#[test]
fn the_benchmark_gives_a_cache_and_memcached_the_same_load() {
    let server = Server::start(2, &["--memory", "64MiB"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let memcached = format!("memcached://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || like_memcached(&listener, usize::MAX));
    let cache = format!("cache://{}", server.0.address);
    let bench = |more: &[&str]| trine(&[&["cache", "bench"], more].concat(), "", b"");
    let short = [
        "--rounds", "1", "--for", "100ms", "--warmup", "0s", "--keys", "500",
    ];
    let targets = ["--target", &cache, "--target", &memcached, "--json"];
    let document = bench(&[&targets[..], &short].concat())
        .expect_status(0)
        .json();
    let runs = document["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 8, "two mixes, two distributions, two targets");
    for (number, run) in runs.iter().enumerate() {
        let settings = &run["settings"];
        let reads = if number < 4 { "95%" } else { "50%" };
        let keys = if number % 4 < 2 {
            "uniform"
        } else {
            "zipf 0.99"
        };
        assert_eq!(
            (&settings["read_ratio"], &settings["distribution"]),
            (&reads.into(), &keys.into())
        );
        assert_eq!(
            (&run["misses"], &run["errors"]),
            (&0.into(), &0.into()),
            "{run}"
        );
        assert!(run["operations"].as_u64() > Some(0), "{run}");
    }
    // Both threads have their keys, and the GETs of a turn were looked up together.
    for shard in server.stats()["shards"].as_array().expect("shards") {
        assert!(
            shard["puts"].as_u64() > Some(100) && shard["largest_burst"].as_u64() > Some(1),
            "{shard}"
        );
        assert_eq!(shard["refused"], 0);
    }
    let second = SocketAddr::new(server.0.address.ip(), server.0.address.port() + 1);
    bench(&["--connect", &second.to_string()])
        .expect_error(2, &["not the first thread of a cache"]);
    bench(&["--target", "memcached://127.0.0.1:1"]).expect_error(3, &["cannot connect"]);
    bench(&["--target", "ftp://127.0.0.1:1"]).expect_error(2, &["write cache://HOST:PORT"]);
}

/// Before: Ctrl-C threw away the workloads that were measured by then.
#[test]
fn an_interrupted_benchmark_tells_what_it_has_measured() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = format!("memcached://{}", listener.local_addr().expect("bound"));
    // The second workload connects, and waits for answers until Ctrl-C.
    let first = listener.try_clone().expect("a second handle");
    std::thread::spawn(move || like_memcached(&first, 1));
    let short = [
        "--rounds", "1", "--for", "100ms", "--warmup", "0s", "--keys", "500",
    ];
    let patient = ["--timeout", "60s"];
    let words = [
        &["cache", "bench", "--target", &target],
        &short[..],
        &patient,
    ]
    .concat();
    let mut bench = command(&words, "")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut said = BufReader::new(bench.stdout.take().expect("piped"));
    for _ in 0..2 {
        let mut line = String::new();
        said.read_line(&mut line).expect("output");
        assert!(line.starts_with("writing 500 keys"), "{line}");
    }
    signal(bench.id(), "INT");
    bench.stdout = Some(said.into_inner());
    let ran = finish(bench).expect_error(130, &["interrupted"]);
    let text = String::from_utf8(ran.stdout).expect("text");
    let measured = text.lines().filter(|line| line.contains(&target));
    let measured: Vec<&str> = measured.collect();
    assert_eq!(measured.len(), 1, "{text}");
    assert!(measured[0].contains("95%") && measured[0].contains("uniform"));
}
