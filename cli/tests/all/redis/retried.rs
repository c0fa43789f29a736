//! Increments by redis-py and ioredis, with the retries of these libraries: by TRINE.DO each is counted once, by INCR not.
//!
//! The programs are `once.py` and `once.js` beside this file, which use the examples in `docs/examples`.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::clients::python;
use super::wire::Wire;
use super::{RedisGroup, has_tool};
use crate::common::{finish, leave_out, tcp_ports, wait_for};

/// Each replica is killed this often.
const ROUNDS: usize = 2;
/// More than a session's window: a counter that grew by so much has got answers meanwhile.
const GROWTH: i64 = 100;
/// The proxy loses the reply to each increment of this number, and so many replies in a run.
const LOSE_EVERY: u32 = 50;
const LOSSES: u32 = 10;

/// A library of Redis clients, and the interpreter that runs programs with it.
struct Library {
    name: &'static str,
    interpreter: PathBuf,
    program: &'static str,
}

/// Those that `.ci/redis` has installed; nothing if one is missing.
#[track_caller]
fn libraries() -> Option<[Library; 2]> {
    let python = python()?;
    if !modules().join("ioredis").exists() {
        leave_out(
            "ioredis is not there (.ci/redis installs it)",
            "TRINE_NEED_TOOLS",
        );
        return None;
    }
    has_tool("node").then(|| {
        [
            Library {
                name: "redis-py",
                interpreter: python,
                program: "once.py",
            },
            Library {
                name: "ioredis",
                interpreter: "node".into(),
                program: "once.js",
            },
        ]
    })
}

/// Where Node finds ioredis.
fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/ioredis/node_modules")
}

impl Library {
    /// Starts a program that increments the key named like the library, until [`ended`].
    fn increment(&self, way: &str, ports: &[u16]) -> Child {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/redis");
        Command::new(&self.interpreter)
            .arg(program.join(self.program))
            .args([way, &self.key(way)])
            .args(ports.iter().map(u16::to_string))
            .env("NODE_PATH", modules())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts")
    }

    fn key(&self, way: &str) -> String {
        format!("{}-{way}", self.name)
    }
}

/// What a program of a library has counted.
#[derive(Debug)]
struct Counts {
    answered: i64,
    /// Calls that ended without an answer.
    unanswered: i64,
    /// Those of them that were asked again until they had one.
    asked_again: i64,
    /// Different answers.
    distinct: i64,
    counted: i64,
}

impl Counts {
    /// Increments beyond those that a caller knows of.
    fn too_many(&self) -> i64 {
        self.counted - self.answered - self.asked_again
    }

    #[track_caller]
    fn expect_each_once(&self) {
        assert_eq!(self.too_many(), 0, "{self:?}");
        assert_eq!(self.asked_again, self.unanswered, "{self:?}");
        // Each increment has a result of its own. Two wrongs could cancel out in the sum.
        assert_eq!(self.distinct, self.counted, "{self:?}");
    }
}

/// Tells the program to end, and waits until it has.
#[track_caller]
fn ended(mut child: Child) -> Counts {
    drop(child.stdin.take());
    let said = finish(child).expect_status(0).json();
    let number = |name: &str| {
        said[name]
            .as_i64()
            .unwrap_or_else(|| panic!("{name} in {said}"))
    };
    Counts {
        answered: number("answered"),
        unanswered: number("unanswered"),
        asked_again: number("asked_again"),
        distinct: number("distinct"),
        counted: number("counted"),
    }
}

/// Whether the program has ended too early. What it said then is the message of [`ended`].
fn has_failed(child: &mut Child) -> bool {
    child.try_wait().expect("wait").is_some()
}

fn value(wire: &mut Wire, key: &str) -> i64 {
    let reply = wire.ask(&format!("GET {key}"));
    reply.trim_matches('"').parse().unwrap_or_default()
}

/// Until the program that increments the key has got further answers.
#[track_caller]
fn wait_for_growth(wire: &mut Wire, key: &str, caller: &mut Child) {
    let begun = value(wire, key);
    wait_for("further increments", || {
        (value(wire, key) >= begun + GROWTH || has_failed(caller)).then_some(())
    });
}

/// redis-py and ioredis repeated an INCR whose reply was lost with its replica: six kills, 11 increments too many.
#[test]
fn increments_by_trine_do_are_counted_once_while_replicas_die() {
    let Some(libraries) = libraries() else { return };
    let first = tcp_ports(3);
    let mut group = RedisGroup::start(&["--resp", &format!("{first}+")]);
    let ports = [first, first + 1, first + 2];
    let mut callers = libraries.map(|library| {
        let child = library.increment("once", &ports);
        (library.key("once"), child)
    });
    let mut wait_for_all = |group: &RedisGroup, node_id| {
        let mut wire = group.connect(node_id);
        for (key, caller) in &mut callers {
            wait_for_growth(&mut wire, key, caller);
        }
    };
    wait_for_all(&group, 3);
    // In the order in which callers go from one to the next: so each kill is of the replica that they talk to.
    for node_id in (1..=3).cycle().take(3 * ROUNDS) {
        group.cluster.group.kill(node_id).expect("killed");
        wait_for_all(&group, node_id % 3 + 1);
        group.cluster.group.restart(node_id).expect("started");
        group.cluster.wait_for_voters(3);
    }
    for (key, caller) in callers {
        let counts = ended(caller);
        eprintln!("{key}: {counts:?}");
        counts.expect_each_once();
        let met = counts.unanswered > 0;
        assert!(met, "{key}: no kill met a call: {counts:?}");
    }
}

/// The same loss without a kill, so that INCR is certainly counted twice: this is what the test above would find.
#[test]
fn a_lost_reply_is_counted_twice_by_incr_and_once_by_trine_do() {
    let Some(libraries) = libraries() else { return };
    let group = RedisGroup::start(&[]);
    for library in &libraries {
        for way in ["plain", "once"] {
            let proxy = Proxy::start(group.address(2));
            let mut caller = library.increment(way, &[proxy.port]);
            wait_for("lost replies", || {
                let is_enough = proxy.lost.load(Ordering::Relaxed) >= LOSSES;
                (is_enough || has_failed(&mut caller)).then_some(())
            });
            let counts = ended(caller);
            eprintln!("{}, {way}: {counts:?}", library.name);
            match way {
                "once" => counts.expect_each_once(),
                _ => assert!(counts.too_many() > 0, "{}: {counts:?}", library.name),
            }
        }
    }
}

/// Passes bytes on between Redis clients and a replica. Now and then it closes a connection instead of passing on a reply.
struct Proxy {
    port: u16,
    lost: Arc<AtomicU32>,
}

impl Proxy {
    fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", tcp_ports(1))).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let lost = Arc::new(AtomicU32::new(0));
        let (increments, losses) = (Arc::new(AtomicU32::new(0)), Arc::clone(&lost));
        // They end with the test's process, or with their connection.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                let loses = Arc::new(AtomicBool::new(false));
                let (increments, of_requests) = (Arc::clone(&increments), Arc::clone(&loses));
                pass_on(&client, &server, move |bytes| {
                    let increment = bytes.to_ascii_uppercase();
                    let is_one = increment.windows(4).any(|word| word == b"INCR");
                    let turn = u32::from(is_one)
                        + increments.fetch_add(u32::from(is_one), Ordering::Relaxed);
                    if is_one && turn.is_multiple_of(LOSE_EVERY) {
                        of_requests.store(true, Ordering::Relaxed);
                    }
                    true
                });
                let losses = Arc::clone(&losses);
                pass_on(&server, &client, move |_| {
                    let is_lost = loses.load(Ordering::Relaxed);
                    losses.fetch_add(u32::from(is_lost), Ordering::Relaxed);
                    !is_lost
                });
            }
        });
        Self { port, lost }
    }
}

/// Copies bytes in a thread of its own until one end closes, or `passes` says no; then both ends are closed.
fn pass_on(
    from: &TcpStream,
    to: &TcpStream,
    mut passes: impl FnMut(&[u8]) -> bool + Send + 'static,
) {
    let (mut from, mut to) = (
        from.try_clone().expect("a copy"),
        to.try_clone().expect("a copy"),
    );
    std::thread::spawn(move || {
        let mut bytes = [0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes)
            && passes(&bytes[..count])
            && to.write_all(&bytes[..count]).is_ok()
        {}
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
