//! Groups whose list of peers has names. Each process has a file of hosts of the test's own, in a mount namespace.

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::common::{
    LIMIT, Ran, TempFile, command, finish, leave_out, program, signal, trine, wait_for,
};

/// A name service for the processes of one test: a file of hosts, and no server behind it.
struct Hosts {
    hosts: TempFile,
    resolver: TempFile,
}

impl Hosts {
    /// None where this machine has no mount namespaces for the test.
    fn new() -> Option<Self> {
        let hosts = TempFile::holding("hosts", "127.0.0.1 localhost\n");
        let text = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";
        let resolver = TempFile::holding("resolv.conf", text);
        let this = Self { hosts, resolver };
        let tried = this.inside("true", &[]).status();
        if tried.is_ok_and(|status| status.success()) {
            return Some(this);
        }
        let why = "no mount namespace can be made here, which root may";
        leave_out(why, "TRINE_NEED_SANDBOX");
        None
    }

    /// From now on these are the names, each with an address.
    fn set(&self, names: &[(String, String)]) {
        let lines = names
            .iter()
            .map(|(name, address)| format!("{address} {name}\n"));
        let text: String = ["127.0.0.1 localhost\n".to_owned()]
            .into_iter()
            .chain(lines)
            .collect();
        // In place: a new file would not be the one that is mounted.
        std::fs::write(&self.hosts.0, text).expect("written");
    }

    fn inside(&self, program: &str, args: &[&str]) -> Command {
        let script = "mount --bind \"$0\" /etc/hosts && mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"";
        let usual = command(&[], "");
        let fresh = [
            "-m",
            "sh",
            "-c",
            script,
            self.hosts.path(),
            self.resolver.path(),
            program,
        ];
        let mut unshare = Command::new("unshare");
        unshare.args(fresh).args(args).stdin(Stdio::null());
        for (key, value) in usual.get_envs() {
            match value {
                Some(value) => unshare.env(key, value),
                None => unshare.env_remove(key),
            };
        }
        unshare
    }

    /// Runs a command of trine to its end.
    fn run(&self, args: &[&str], peers: &str) -> Ran {
        let args = [args, &["--peers", peers]].concat();
        let mut command = self.inside(program().to_str().expect("text"), &args);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().expect("starts"))
    }

    /// Starts a command of trine that runs for long, and returns what it prints, and what it reads from.
    fn start(&self, args: &[&str], peers: &str) -> (Serving, ChildStdin) {
        let args = [args, &["--peers", peers]].concat();
        let mut command = self.inside(program().to_str().expect("text"), &args);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().expect("starts");
        let stdin = child.stdin.take().expect("piped");
        (Serving::new(child), stdin)
    }

    /// Starts `trine serve`.
    fn serve(&self, args: &[&str]) -> Serving {
        let args = [&["serve"], args].concat();
        let mut command = self.inside(program().to_str().expect("text"), &args);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        Serving::new(command.spawn().expect("starts"))
    }
}

/// A replica and the lines that it announces.
pub(crate) struct Serving {
    child: Child,
    lines: Receiver<String>,
}

impl Serving {
    pub(crate) fn new(mut child: Child) -> Self {
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Self { child, lines }
    }

    /// Waits for a line with all of these parts, and returns it.
    #[track_caller]
    pub(crate) fn expect(&self, parts: &[&str]) -> String {
        let until = Instant::now() + LIMIT;
        let mut heard = Vec::new();
        while let Ok(line) = self
            .lines
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            if parts.iter().all(|part| line.contains(part)) {
                return line;
            }
            heard.push(line);
        }
        panic!("no line with {parts:?} in {heard:#?}");
    }

    /// Ends it in order.
    #[track_caller]
    pub(crate) fn end(mut self) {
        signal(self.child.id(), "TERM");
        let status = wait_for("the end", || self.child.try_wait().expect("a child"));
        assert!(status.success(), "{status}");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The names of three replicas and their addresses, in a network of loopback for each `net`.
fn three(net: u8) -> Vec<(String, String)> {
    let name = |n| (format!("r{n}.example"), format!("127.{net}.0.{n}"));
    (1..=3).map(name).collect()
}

fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("bound").port()
}

fn peers_at(port: u16) -> String {
    let item = |(name, _)| format!("{name}:{port}");
    three(0).into_iter().map(item).collect::<Vec<_>>().join(",")
}

/// The options of one replica on disk.
fn options(n: usize, peers: &str, directory: &Path) -> Vec<String> {
    let data = directory.join(format!("d{n}"));
    let data = data.to_str().expect("text");
    let options = [
        "--id",
        &n.to_string(),
        "--peers",
        peers,
        "--log",
        "disk",
        "--data-dir",
        data,
    ];
    options.map(str::to_owned).to_vec()
}

fn texts(options: &[String]) -> Vec<&str> {
    options.iter().map(String::as_str).collect()
}

/// One dead name of three made every client fail with status 2, although two replicas served, and a replica that was
/// started again ended with status 2, after which a service manager does not start it any more.
#[test]
fn a_name_that_does_not_resolve_keeps_nobody_from_serving() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.set(&three(83));
    let (directory, peers) = (TempFile::new("names"), peers_at(free_port()));
    let start = |n: usize, more: &[&str]| {
        let options = options(n, &peers, &directory.0);
        hosts.serve(&[&texts(&options), more].concat())
    };
    let mut replicas = vec![start(1, &["--bootstrap"]), start(2, &[]), start(3, &[])];
    wait_for("a whole group", || {
        let ran = hosts.run(&["status"], &peers);
        String::from_utf8_lossy(&ran.stdout)
            .contains("tolerates 1 more")
            .then_some(())
    });
    hosts.run(&["put", "k", "v"], &peers).expect_status(0);
    drop(replicas.pop());
    hosts.set(&three(83)[..2]);

    let ran = hosts.run(&["get", "k"], &peers).expect_status(0);
    assert_eq!(ran.stdout, b"v");
    assert!(
        ran.stderr.contains("continuing without r3.example"),
        "{}",
        ran.stderr
    );
    // The one that was given --bootstrap for good comes back, too: it has a group.
    replicas.remove(0).end();
    let first = start(1, &["--bootstrap"]);
    first.expect(&[
        "r3.example",
        "has no address yet",
        "continuing without node 3",
    ]);
    first.expect(&["in term"]);
    hosts.run(&["put", "k", "w"], &peers).expect_status(0);

    // The name comes back, and with it the replica.
    let third = start(3, &[]);
    third.expect(&["the name of this replica, r3.example", "has no address yet"]);
    hosts.set(&three(83));
    third.expect(&["follows"]);
    first.expect(&["r3.example", "stands for 127.83.0.3"]);
    wait_for("a whole group again", || {
        let ran = hosts.run(&["status"], &peers);
        String::from_utf8_lossy(&ran.stdout)
            .contains("tolerates 1 more")
            .then_some(())
    });
    third.end();
    let _ = std::fs::remove_dir_all(&directory.0);
}

/// Replicas whose machines had all got other addresses heard each other, and sent to the old ones for good. And whoever
/// runs a copy of a member's directory must not become that member. Commands that had run since before asked at the former
/// addresses for good.
#[test]
fn replicas_that_have_all_moved_find_each_other_and_a_copy_is_not_followed() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.set(&three(86));
    let (directory, peers) = (TempFile::new("moved"), peers_at(free_port()));
    let start = |n: usize, more: &[&str]| {
        let options = options(n, &peers, &directory.0);
        hosts.serve(&[&texts(&options), more].concat())
    };
    let status = || {
        let ran = hosts.run(&["status"], &peers);
        String::from_utf8_lossy(&ran.stdout).into_owned() + &ran.stderr
    };
    let becomes_whole = || {
        wait_for("a whole group", || {
            status().contains("tolerates 1 more").then_some(())
        });
    };
    let first = [start(1, &["--bootstrap"]), start(2, &[]), start(3, &[])];
    becomes_whole();
    let put = hosts.run(&["put", "k", "w", "--json"], &peers);
    let version = put.expect_status(0).json()["version"].to_string();
    hosts.run(&["put", "k", "v"], &peers).expect_status(0);
    let (watching, _open) = hosts.start(&["watch", "--since", &version], &peers);
    watching.expect(&["k", "v"]);
    let (shell, mut typed) = hosts.start(&["shell"], &peers);
    typed.write_all(b"get k\n").expect("it reads");
    shell.expect(&["v"]);
    let (statistics, _open) = hosts.start(&["stat", "1s", "--json"], &peers);
    statistics.expect(&["\"silent\":0"]);
    first.into_iter().for_each(Serving::end);
    statistics.expect(&["\"silent\":3"]);

    hosts.set(&three(87));
    let moved: Vec<Serving> = (1..=3).map(|n| start(n, &[])).collect();
    becomes_whole();
    assert_eq!(hosts.run(&["get", "k"], &peers).stdout, b"v");
    hosts.run(&["put", "k", "behind"], &peers).expect_status(0);
    watching.expect(&["k", "behind"]);
    typed.write_all(b"get k\n").expect("it reads");
    shell.expect(&["behind"]);
    statistics.expect(&["\"silent\":0"]);

    // One of them alone, while the others go on.
    let mut names = three(87);
    names[1].1 = "127.88.0.2".to_owned();
    let mut moved = moved.into_iter();
    let (first, second, third) = (moved.next(), moved.next(), moved.next());
    second.expect("three").end();
    hosts.set(&names);
    let second = start(2, &[]);
    becomes_whole();

    // The directory of node 3 is copied, and its name leads to the copy.
    let (from, to) = (directory.0.join("d3"), directory.0.join("copy"));
    copy_directory(&from, &to);
    names[2].1 = "127.88.0.3".to_owned();
    hosts.set(&names);
    let mut options = options(3, &peers, &directory.0);
    *options.last_mut().expect("the directory") = to.to_str().expect("text").to_owned();
    let copy = hosts.serve(&texts(&options));
    wait_for("a word about the copy", || {
        let said = status();
        let parts = ["node 3 answers at 127.87.0.3", "and at 127.88.0.3", "copy"];
        parts.iter().all(|part| said.contains(part)).then_some(())
    });
    hosts.run(&["put", "k", "w"], &peers).expect_status(0);
    drop(copy);
    wait_for("no copy any more", || {
        (!status().contains("and at 127.88.0.3")).then_some(())
    });
    assert_eq!(hosts.run(&["get", "k"], &peers).stdout, b"w");
    drop((first, second, third));
    let _ = std::fs::remove_dir_all(&directory.0);
}

/// Without names an operator says where the replica is. The command waited for another replica, which never came.
#[test]
fn an_operator_tells_a_group_of_numbers_where_a_member_has_moved() {
    let directory = TempFile::new("told");
    let port = free_port();
    let at = |net: u8, n: u8| format!("127.{net}.0.{n}:{port}");
    let before = [1, 2, 3].map(|n| at(94, n)).join(",");
    let after = [at(94, 1), at(94, 2), at(95, 3)].join(",");
    let start = |n: usize, peers: &str, more: &[&str]| {
        let options = options(n, peers, &directory.0);
        let mut serve = command(&[&["serve"], &texts(&options)[..], more].concat(), "");
        let serve = serve.stdout(Stdio::piped()).stderr(Stdio::null());
        Serving::new(serve.spawn().expect("starts"))
    };
    let run = |args: &[&str]| trine(args, &after, b"");
    let becomes_whole = || {
        wait_for("a whole group", || {
            let said = run(&["status"]);
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            said.contains("tolerates 1 more").then_some(())
        });
    };
    let mut group = [start(1, &before, &["--bootstrap"]), start(2, &before, &[])].map(Some);
    let third = start(3, &before, &[]);
    wait_for("a whole group", || {
        let said = trine(&["status"], &before, b"");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        said.contains("tolerates 1 more").then_some(())
    });
    third.end();
    let third = start(3, &after, &[]);
    let moved = run(&["member", "replace", "3", "--address", &at(95, 3)]).expect_status(0);
    let said = String::from_utf8_lossy(&moved.stdout).into_owned() + &moved.stderr;
    assert!(said.contains("has moved to 127.95.0.3"), "{said}");
    becomes_whole();

    // The other one has heard of it from the leader: with the moved one it elects another.
    wait_for("two that know the place", || {
        let said = run(&["status", "--json"]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        (!said.contains("127.94.0.3")).then_some(())
    });
    let leads = |n: usize| {
        let said = run(&["status"]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let lines = said.lines().filter(|line| line.contains("leader"));
        lines
            .into_iter()
            .any(|line| line.contains(&at(94, n as u8)))
    };
    let leader = if leads(1) { 0 } else { 1 };
    drop(group[leader].take());
    run(&["put", "k", "v"]).expect_status(0);
    drop((group, third));
    let _ = std::fs::remove_dir_all(&directory.0);
}

/// A replica that started again knew the table's address alone. An old copy of a moved member's directory that was started
/// there counted for it, while the moved one counted for the others: one member with two logs. Now the group agrees on the
/// place, and a replica that starts knows it from its own log.
#[test]
fn an_old_copy_at_the_former_address_is_nobody_for_a_replica_that_starts_again() {
    let (directory, port) = (TempFile::new("former"), free_port());
    let at = |net: u8, n: u8| format!("127.{net}.0.{n}:{port}");
    let before = [1, 2, 3].map(|n| at(96, n)).join(",");
    let after = [at(96, 1), at(97, 2), at(96, 3)].join(",");
    let start_in = |options: Vec<String>, more: &[&str]| {
        let mut serve = command(&[&["serve"], &texts(&options)[..], more].concat(), "");
        let serve = serve.stdout(Stdio::piped()).stderr(Stdio::null());
        Serving::new(serve.spawn().expect("starts"))
    };
    let start =
        |n: usize, peers: &str, more: &[&str]| start_in(options(n, peers, &directory.0), more);
    let said = |args: &[&str], peers: &str| {
        let ran = trine(args, peers, b"");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    let becomes_whole = |peers: &str| {
        wait_for("a whole group", || {
            said(&["status"], peers)
                .contains("tolerates 1 more")
                .then_some(())
        });
    };
    let first = start(1, &before, &["--bootstrap"]);
    let (second, third) = (start(2, &before, &[]), start(3, &before, &[]));
    becomes_whole(&before);
    second.end();
    let copy = directory.0.join("old");
    copy_directory(&directory.0.join("d2"), &copy);
    let second = start(2, &after, &[]);
    trine(
        &["member", "replace", "2", "--address", &at(97, 2)],
        &after,
        b"",
    )
    .expect_status(0);
    becomes_whole(&after);
    trine(&["put", "k", "v"], &after, b"").expect_status(0);

    let mut of_copy = options(2, &before, &directory.0);
    *of_copy.last_mut().expect("the directory") = copy.to_str().expect("text").to_owned();
    let copy = start_in(of_copy, &[]);
    // The list that it is started with still names the former address.
    first.end();
    let first = start(1, &before, &[]);
    let places = || {
        let own = said(&["status", "--json"], &at(96, 1));
        let knows = own.contains(&at(97, 2)) || own.contains(&at(96, 2));
        knows.then_some(own)
    };
    let own = wait_for("the members that it knows", places);
    assert!(
        own.contains(&at(97, 2)),
        "it takes the copy for node 2: {own}"
    );
    // With the moved one it is a majority, and has what that has acknowledged.
    third.end();
    trine(&["put", "k", "w"], &after, b"").expect_status(0);
    assert_eq!(trine(&["get", "k"], &after, b"").stdout, b"w");
    drop((first, second, copy));
    let _ = std::fs::remove_dir_all(&directory.0);
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("made");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("readable");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

/// A group is only begun with all of its replicas: their addresses are a part of it. The start waits for the last name.
#[test]
fn a_bootstrap_waits_for_every_name_and_a_start_for_its_own() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.set(&[]);
    let peers = peers_at(free_port());
    let metrics = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = metrics.local_addr().expect("bound").to_string();
    drop(metrics);
    let first = hosts.serve(&[
        "--id",
        "1",
        "--peers",
        &peers,
        "--bootstrap",
        "--metrics",
        &at,
    ]);
    first.expect(&["not serving yet", "the name of this replica, r1.example"]);
    let ready = |part: &str| {
        wait_for(part, || {
            let said = http_get(&at, "/readyz")?;
            (said.contains(" 503 ") && said.contains(part)).then_some(())
        });
    };
    ready("r1.example");
    hosts.set(&three(84)[..2]);
    let second = hosts.serve(&["--id", "2", "--peers", &peers]);
    ready("the name of node 3 has no address yet");
    hosts.set(&three(84));
    let third = hosts.serve(&["--id", "3", "--peers", &peers]);
    first.expect(&["leads in term"]);
    for other in [second, third] {
        other.expect(&["follows"]);
    }
    // A signal ends a start that waits.
    hosts.set(&[]);
    let waits = hosts.serve(&["--id", "1", "--peers", "nobody.example:7471"]);
    waits.expect(&["not serving yet"]);
    waits.end();
}

fn http_get(at: &str, path: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    Some(said)
}

/// The own name stands for 127.0.1.1 on a Debian host. The replica listened there, and blamed the others.
#[test]
fn an_own_name_on_loopback_among_other_machines_is_refused() {
    let Some(hosts) = Hosts::new() else { return };
    let name = |n: u8, at: &str| (format!("r{n}.example"), at.to_owned());
    hosts.set(&[
        name(1, "127.0.1.1"),
        name(2, "192.0.2.2"),
        name(3, "192.0.2.3"),
    ]);
    let peers = peers_at(free_port());
    let ran = hosts.run(&["serve", "--id", "1"], &peers);
    ran.expect_error(2, &["r1.example", "127.0.1.1", "loopback", "/etc/hosts"]);
}

/// An earlier process that still holds the port ended a start with status 2, which is final for a service manager.
#[test]
fn a_port_in_use_is_waited_for() {
    let holder = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = holder.local_addr().expect("bound").to_string();
    let args = ["serve", "--id", "1", "--peers", &address, "--bootstrap"];
    let mut serve = command(&args, "");
    let serve = serve
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let serving = Serving::new(serve.spawn().expect("starts"));
    serving.expect(&["not serving yet", &address, "in use"]);
    drop(holder);
    serving.expect(&["leads in term"]);
    serving.end();
}
