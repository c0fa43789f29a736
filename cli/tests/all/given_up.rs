//! Commands that end while they wait, by Ctrl-C or by the reader of their output.
//!
//! It says what may have been done, and the group keeps nothing for it.

use std::net::SocketAddr;
use std::process::Stdio;

use crate::common::{Cluster, LIMIT, command, finish, script_of_pages, signal, trine, wait_for};
use crate::interrupted::start;
use trine_apps::cache::wire::{HELLO, Hello};
use trine_base::ports::free_addresses;
use trine_client::Report;
use trine_protocol::endpoint_config;
use trine_protocol::status::Status;
use trine_transport::backend::{MonotonicClock, UdpBackend, UdpConfig};
use trine_transport::time::{Clock, Duration};
use trine_transport::{App, Completion, Cx, EventLoop, Identity, Reply, Request};

/// The first Ctrl-C set a flag, at which nobody looked before the end of `--timeout`.
#[test]
fn ctrl_c_ends_the_wait_for_a_silent_group() {
    let nobody = free_addresses(1).expect("a port")[0].to_string();
    let cases: [(&[&str], i32, &str); 5] = [
        (&["latency"], 130, "nothing was measured"),
        (&["export"], 130, "not all keys were written"),
        (&["scan"], 130, "interrupted"),
        (&["count", "a", "b"], 130, "interrupted"),
        (&["rm", "a", "--yes"], 130, "interrupted"),
    ];
    for (args, status, said) in cases {
        let line = [args, &["--timeout", "10m"]].concat();
        let child = start(&line, &nobody);
        signal(child.id(), "INT");
        let ran = finish(child).expect_error(status, &["interrupted", said]);
        assert!(ran.stdout.is_empty(), "{args:?}");
    }
}

/// A cache that says that it is one, and answers no command.
#[derive(Default)]
struct Mute {
    commands: usize,
}

impl App<SocketAddr> for Mute {
    fn on_request(&mut self, cx: &mut Cx<'_, SocketAddr>, request: Request<'_>) -> Reply {
        if request.kind != HELLO {
            self.commands += 1;
            return Reply::Later;
        }
        let (shard, shards) = (0, 1);
        let hello = Hello { shard, shards }.encode();
        let mut answer = cx.alloc(hello.len()).expect("memory");
        answer.copy_from_slice(&hello);
        Reply::Now(answer)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, SocketAddr>, _: u64, _: Completion) {
        unreachable!("a cache asks nobody");
    }
}

/// Ctrl-C ended the process by the signal, and nobody learned that the write may be applied all the same.
#[test]
fn ctrl_c_at_a_write_that_was_sent_says_that_it_may_be_applied() {
    let address = free_addresses(1).expect("a port")[0];
    let backend = UdpBackend::bind(address, &UdpConfig::default()).expect("a socket");
    let seed = getrandom::u64().expect("random numbers");
    let identity = Identity {
        cluster: 0,
        incarnation: seed.max(1),
    };
    let mute = Mute::default();
    let mut cache = EventLoop::new(
        backend,
        MonotonicClock,
        mute,
        endpoint_config(),
        identity,
        seed,
    )
    .expect("an endpoint");
    let at = address.to_string();
    for args in [&["cache", "put", "k", "v"][..], &["cache", "del", "k"]] {
        let line = [args, &["--connect", &at, "--timeout", "10m"]].concat();
        let child = start(&line, "");
        let before = cache.app().commands;
        let limit = MonotonicClock.now() + Duration::from(LIMIT);
        let sent = cache.run_until(Some(limit), |mute| mute.commands > before);
        assert!(sent.expect("runs"), "the command arrives");
        signal(child.id(), "INT");
        finish(child).expect_error(130, &["may have been applied", "read the key"]);
    }
}

/// Pins, and open sessions of clients, as the replicas see them that know of most.
fn pins_and_sessions(cluster: &Cluster) -> (u64, u64) {
    let reports = cluster.survey();
    let most = |count: fn(&Status) -> u64| {
        let counts = reports.iter().filter_map(Report::status).map(count);
        counts.max().unwrap_or(0)
    };
    (
        most(|status| status.store.pins),
        most(|status| status.sessions.open),
    )
}

/// Each of them left its pin for 30 s. A group has 64, so a few dozen `trine scan | head -1` made it refuse every further
/// scan of several pages. A pin goes with its session, which no time ends.
#[test]
fn a_walk_that_ends_early_gives_its_pin_back() {
    let cluster = Cluster::start(&["--ordered"]);
    let peers = cluster.group.peers();
    let lines = script_of_pages();
    trine(&[], &peers, lines.as_bytes()).expect_status(0);
    let is_pinned = || (pins_and_sessions(&cluster).0 > 0).then_some(());
    // A walk has half a second for that. Where the group needs longer, its session stays, and another walk has to do it.
    let gives_back = |walk: &dyn Fn()| {
        (0..5).any(|_| {
            let (_, before) = pins_and_sessions(&cluster);
            walk();
            wait_for("the end of the pin", || {
                (pins_and_sessions(&cluster).0 == 0).then_some(())
            });
            pins_and_sessions(&cluster).1 == before
        })
    };
    for walk in [&["scan", "k/"][..], &["export"]] {
        let unread = || {
            let (reader, nobody_reads) = std::io::pipe().expect("a pipe");
            drop(reader);
            let mut unread = command(walk, &peers);
            unread.stdin(Stdio::null()).stdout(nobody_reads);
            let ended = unread.output().expect("it runs");
            assert!(
                ended.status.success() && ended.stderr.is_empty(),
                "{ended:?}"
            );
        };
        assert!(gives_back(&unread), "{walk:?} without a reader");

        let interrupted = || {
            let mut child = command(walk, &peers)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("starts");
            wait_for("a pin", is_pinned);
            signal(child.id(), "INT");
            // The reader has stopped: nobody takes what is printed before the end.
            wait_for("the end", || child.try_wait().expect("wait"));
            finish(child).expect_error(130, &["interrupted"]);
        };
        assert!(gives_back(&interrupted), "{walk:?} that is interrupted");
    }
}
