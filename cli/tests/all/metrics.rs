//! Metrics, health and the log of real replicas, over HTTP as Prometheus, an orchestrator and an operator use them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};

use crate::common::{Cluster, LIMIT, command, signal, tcp_ports, trine, wait_for};
use trine_base::ports::free_addresses;

/// One replica with a metrics endpoint; it ends when its value is dropped.
struct Watched {
    child: Child,
    endpoint: SocketAddr,
}

impl Watched {
    fn start(args: &[&str], peers: &str) -> Self {
        let mut args = args.to_vec();
        args.splice(0..0, ["serve", "--metrics", "127.0.0.1:0"]);
        let mut child = command(&args, peers)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped"))
            .read_line(&mut line)
            .expect("a line");
        // With `--log-format json` it is within an object.
        let (_, url) = line.split_once("metrics at http://").expect("where");
        let (endpoint, _) = url.split_once("/metrics").expect("the path");
        let endpoint = endpoint.parse().expect("an address");
        Self { child, endpoint }
    }

    /// Ends it and returns its standard error.
    fn stop(mut self) -> String {
        signal(self.child.id(), "TERM");
        let mut text = String::new();
        let mut stderr = self.child.stderr.take().expect("piped");
        stderr.read_to_string(&mut text).expect("text");
        text
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns (status, body) of a request.
fn http(at: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(at).expect("connected");
    stream.set_read_timeout(Some(LIMIT)).expect("set");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    (status.expect("a status"), body.to_owned())
}

pub(crate) fn get(at: SocketAddr, path: &str) -> (u16, String) {
    get_as(at, path, &at.to_string())
}

/// The same by another name of the endpoint.
fn get_as(at: SocketAddr, path: &str, host: &str) -> (u16, String) {
    http(at, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
}

/// A list of three free addresses.
fn free_peers() -> String {
    let addresses = free_addresses(3).expect("free");
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(",")
}

/// What `trine log-level` says at an endpoint.
fn log_level(at: &str, args: &[&str]) -> String {
    let args = [&["log-level", "--at", at], args].concat();
    String::from_utf8(trine(&args, "", b"").expect_status(0).stdout).expect("text")
}

#[test]
fn a_password_is_asked_for_before_anything_is_told() {
    let name = format!("trine-metrics-password-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, "secret\n").expect("written");
    let file = path.display().to_string();
    let peers = free_addresses(1).expect("a free port")[0].to_string();
    let options = ["--id", "1", "--metrics-password-file", &file];
    let mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, mode).expect("changed");
    };
    mode(0o644);
    let serve = [&["serve", "--metrics", "127.0.0.1:0"], &options[..]].concat();
    let chmod = format!("run `chmod 600 {file}`");
    trine(&serve, &peers, b"").expect_error(2, &["can be read by others (mode 0644)", &chmod]);
    mode(0o600);
    let watched = Watched::start(&options, &peers);
    std::fs::remove_file(&path).expect("removed");
    for path in ["/metrics", "/livez", "/log-level", "/nothing"] {
        let (status, body) = get(watched.endpoint, path);
        assert!(
            status == 401 && body.contains("--metrics-password-file"),
            "{path}: {status} {body}"
        );
    }
    let with = |header: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nAuthorization: {header}\r\n\r\n");
        http(watched.endpoint, &request).0
    };
    let at = watched.endpoint.to_string();
    for args in [
        &["log-level", "--at", &at][..],
        &["log-level", "--at", &at, "debug"],
    ] {
        trine(args, "", b"")
            .expect_error(2, &["requires a password", "--metrics-password-file FILE"]);
    }
    let given = ["--metrics-password-file", &file];
    for (password, status, part) in [
        ("secret", 0, ""),
        ("guessed", 2, "rejects this password"),
        // No header carries such a blank.
        ("secret ", 0, ""),
    ] {
        std::fs::write(&path, password).expect("written");
        mode(0o600);
        let ask = [&["log-level", "--at", &at, "debug"], &given[..]].concat();
        let said = trine(&ask, "", b"").expect_status(status).stderr;
        assert!(said.contains(part), "{said}");
    }
    mode(0o644);
    let ask = [&["log-level", "--at", &at], &given[..]].concat();
    trine(&ask, "", b"").expect_error(2, &["can be read by others (mode 0644)", &chmod]);
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(with("Bearer guessed"), 401);
    assert_eq!(with("Bearer secret"), 200);
    assert_eq!(with("Basic eDpzZWNyZXQ="), 200);
    watched.stop();
}

#[test]
fn a_group_tells_its_numbers_and_that_it_is_ready() {
    // The supervisor's way of giving each replica a different port.
    let base = tcp_ports(6) - 1;
    let option = format!("127.0.0.1:{base}+{{node_id}}");
    let redis = base + 4;
    let redis_option = format!("{redis}+");
    let mut cluster = Cluster::start(&["--metrics", &option, "--resp", &redis_option]);
    cluster.ok(&["put", "key", "value"]);
    let leader = cluster.leader();
    let at = |node_id: usize| -> SocketAddr {
        let port = base + u16::try_from(node_id).expect("small");
        ([127, 0, 0, 1], port).into()
    };
    for node_id in 1..=3 {
        let ready = wait_for("readiness", || {
            Some(get(at(node_id), "/readyz")).filter(|(status, _)| *status == 200)
        });
        assert!(ready.1.contains("leads in term"), "{}", ready.1);
        assert_eq!(get(at(node_id), "/livez").0, 200);
    }
    let text = wait_for("the item in the numbers", || {
        Some(get(at(leader), "/metrics").1).filter(|text| text.contains("trine_store_items 1.0\n"))
    });
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let asked = format!("GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n");
    let open = http(at(leader), &asked).1;
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE trine_writes_proposed counter\n"));
    assert!(
        !text.contains("# EOF") && text.contains("# TYPE trine_writes_proposed_total counter\n")
    );
    for series in [
        "process_resident_memory_bytes ".to_owned(),
        "process_cpu_seconds_total ".to_owned(),
        "trine_raft_role{role=\"leader\"} 1.0".to_owned(),
        "trine_member_lag_entries{node_id=\"1\"".to_owned(),
        "trine_link_rtt_seconds{peer=".to_owned(),
        "trine_transport_drops_total{cause=\"checksum\"} 0.0".to_owned(),
        format!("trine_node_id {leader}.0"),
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(&series)),
            "{series} is missing in:\n{text}"
        );
    }
    for node_id in 1..=3 {
        let text = get(at(node_id), "/metrics").1;
        let patience = text
            .lines()
            .find_map(|line| line.strip_prefix("trine_raft_patience_seconds "))
            .expect("every replica has it");
        let seconds: f64 = patience.parse().expect("a number");
        // At least the election timeout, and four times that at most.
        let is_right = match text.contains("trine_raft_role{role=\"leader\"} 1.0") {
            true => seconds == 0.0,
            false => (0.12..=0.48).contains(&seconds),
        };
        assert!(is_right, "replica {node_id}: {seconds} s");
    }
    // Redis clients are counted where they are connected.
    let mut client = TcpStream::connect(("127.0.0.1", redis)).expect("connected");
    client.write_all(b"PING\r\nNOSUCH\r\n").expect("sent");
    client.shutdown(std::net::Shutdown::Write).expect("shut");
    let mut replies = String::new();
    client.read_to_string(&mut replies).expect("replies");
    assert!(replies.starts_with("+PONG\r\n-ERR unknown"), "{replies}");
    wait_for("the Redis client in the numbers", || {
        let text = get(at(1), "/metrics").1;
        let has = |line| text.lines().any(|found| found == line);
        (has("trine_redis_connections_total 1.0")
            && has("trine_redis_commands_total 2.0")
            && has("trine_redis_error_replies_total 1.0"))
        .then_some(())
    });
    // Without a majority no replica is ready, and each says why; all of them are live.
    let other = leader % 3 + 1;
    let third = other % 3 + 1;
    cluster.group.kill(leader).expect("kill");
    cluster.group.kill(other).expect("kill");
    let why = wait_for("the end of readiness", || {
        Some(get(at(third), "/readyz")).filter(|(status, _)| *status == 503)
    });
    assert!(why.1.starts_with("no: "), "{}", why.1);
    assert_eq!(get(at(third), "/livez").0, 200);
}

/// A replica that lets callers without a key in says so when it starts, and in its metrics.
#[test]
fn a_replica_that_accepts_callers_without_a_key_says_so() {
    let keys = crate::keys::Keys::new("metrics-accept");
    let ours = keys.text("ours");
    let peers = free_addresses(1).expect("a free port")[0].to_string();
    for (stage, number) in [("accept", 1), ("require", 2)] {
        let args = ["--id", "1", "--bootstrap", "--key", &ours, "--keys", stage];
        let watched = Watched::start(&args, &peers);
        let line = format!("trine_key_stage {number}.0");
        let text = wait_for("the stage", || {
            let (_, text) = get(watched.endpoint, "/metrics");
            text.lines().any(|found| found == line).then_some(text)
        });
        assert!(text.contains("trine_sessions_by_role{role=\"member\"} 0.0"));
        let log = watched.stop();
        let warns = log.contains("callers without a key are served, with all rights");
        assert_eq!(warns, stage == "accept", "{log}");
    }
}

#[test]
fn a_replica_without_a_group_is_alive_and_not_ready() {
    let peers = free_peers();
    let watched = Watched::start(&["--id", "1"], &peers);
    let why = wait_for("a reason", || {
        Some(get(watched.endpoint, "/readyz")).filter(|(_, body)| !body.contains("starting"))
    });
    assert_eq!(why.0, 503, "{}", why.1);
    assert_eq!(get(watched.endpoint, "/livez").0, 200);

    // Each wrong request gets an answer, and endless ones block no other: there are more of them than slots.
    let silent: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(watched.endpoint).expect("connected"))
        .collect();
    for (request, status) in [
        ("GET /nothing HTTP/1.1\r\n\r\n", 404),
        ("POST /metrics HTTP/1.1\r\n\r\n", 405),
        ("nonsense\r\n\r\n", 400),
        (
            "PUT /log-level HTTP/1.1\r\nContent-Length: 4\r\n\r\nloud",
            400,
        ),
        (
            "PUT /log-level HTTP/1.1\r\nContent-Length: 999999\r\n\r\n",
            413,
        ),
    ] {
        assert_eq!(http(watched.endpoint, request).0, status, "{request}");
    }
    assert_eq!(get(watched.endpoint, "/livez").0, 200);
    drop(silent);
}

/// A page whose site gave its name this machine's address read the metrics and turned the log off: the browser sent the
/// page's requests to this machine, in the name of that site.
#[test]
fn a_page_of_another_site_reads_nothing_and_changes_nothing() {
    let peers = free_peers();
    let listed = peers.replace("127.0.0.1", "localhost");
    let args = ["--id", "1", "--metrics-names", "trine-1.example,proxy"];
    let watched = Watched::start(&args, &listed);
    let at = watched.endpoint;
    let level = log_level(&at.to_string(), &[]);
    let port = at.port();
    for foreign in ["evil.example", &format!("evil.example:{port}"), "x.proxy"] {
        for path in ["/metrics", "/livez", "/readyz", "/log-level", "/nothing"] {
            let (status, body) = get_as(at, path, foreign);
            assert_eq!(status, 421, "{foreign}{path}: {body}");
            assert!(
                body.contains(foreign) && body.contains("--metrics-names"),
                "{body}"
            );
        }
    }
    let put = |head: &str| {
        let rest = "Content-Length: 3\r\n\r\noff";
        http(at, &format!("PUT /log-level HTTP/1.1\r\n{head}{rest}")).0
    };
    assert_eq!(
        put("Host: evil.example\r\nOrigin: http://evil.example\r\n"),
        403
    );
    assert_eq!(put("Host: localhost\r\nOrigin: null\r\n"), 403);
    assert_eq!(put("Host: evil.example\r\n"), 421);
    let target =
        format!("GET http://evil.example:{port}/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(http(at, &target).0, 421);
    let twice = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    assert_eq!(http(at, twice).0, 400);
    assert_eq!(log_level(&at.to_string(), &[]), level);
    for own in [
        "LOCALHOST.",
        "127.0.0.1",
        "[::1]:1",
        "Trine-1.Example:9471",
        "proxy",
    ] {
        assert_eq!(get_as(at, "/metrics", own).0, 200, "{own}");
    }
    assert_eq!(http(at, "GET /livez HTTP/1.0\r\n\r\n").0, 200);
    assert_eq!(put("Host: localhost\r\n"), 200);
    watched.stop();
    let wrong = ["serve", "--id", "1", "--metrics-names", "a:1"];
    trine(&wrong, &peers, b"").expect_error(2, &["is not the name of a host"]);
}

/// A web page cannot make a browser send the password, so a request that has it may use any name of the endpoint.
#[test]
fn with_a_password_the_endpoint_answers_to_any_name() {
    let name = format!("trine-metrics-names-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, "secret\n").expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("changed");
    let file = path.display().to_string();
    let watched = Watched::start(
        &["--id", "1", "--metrics-password-file", &file],
        &free_peers(),
    );
    std::fs::remove_file(&path).expect("removed");
    let ask = |request: &str| {
        let head = "Host: db1.example\r\nAuthorization: Bearer secret\r\n";
        http(
            watched.endpoint,
            &format!("{request} HTTP/1.1\r\n{head}\r\n"),
        )
        .0
    };
    assert_eq!(ask("GET /metrics"), 200);
    assert_eq!(ask("PUT /log-level"), 400);
    let page = "PUT /log-level HTTP/1.1\r\nOrigin: null\r\nAuthorization: Bearer secret\r\n\r\n";
    assert_eq!(http(watched.endpoint, page).0, 403);
    assert_eq!(get(watched.endpoint, "/livez").0, 401);
    watched.stop();
}

#[test]
fn the_log_level_changes_while_the_replica_runs() {
    let peers = free_peers();
    let file = std::env::temp_dir().join(format!("trine-log-{}.toml", std::process::id()));
    std::fs::write(&file, "log-level = \"error\"\nlog-format = \"json\"\n").expect("written");
    let config = file.to_str().expect("text");
    let watched = Watched::start(&["--id", "1", "--config", config], &peers);
    let at = watched.endpoint.to_string();
    let level = |args: &[&str]| log_level(&at, args);
    assert_eq!(level(&[]), "error\n");
    assert_eq!(level(&["info,raft=debug"]), "info,raft=debug\n");
    trine(&["log-level", "--at", &at, "loud"], "", b"")
        .expect_error(2, &["loud", "not a log level"]);
    assert_eq!(level(&[]), "info,raft=debug\n");
    // The answer to a request that is not read to its end arrives.
    let long = format!("info{}", ",raft=debug".repeat(500));
    trine(&["log-level", "--at", &at, &long], "", b"").expect_error(2, &["the body is too long"]);
    assert_eq!(level(&["off"]), "off\n");
    let default = "warn,role=info,audit=info";
    assert_eq!(level(&[default]).trim(), default);
    // The file is read again at the signal.
    std::fs::write(&file, "log-level = \"info\"\n").expect("written");
    signal(watched.child.id(), "USR1");
    wait_for("the level of the file", || {
        (level(&[]) == "info\n").then_some(())
    });
    std::fs::remove_file(&file).expect("removed");
    let said = watched.stop();
    let changes: Vec<serde_json::Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    // A change is told before and after it, as far as the level lets it: nobody turns the audit off unseen. The first level
    // is `error`.
    let audited = changes.iter().filter(|line| line["target"] == "audit");
    let audited: Vec<[&str; 3]> = audited
        .map(|line| ["old", "new", "from"].map(|key| line["fields"][key].as_str().expect("text")))
        .collect();
    let fine = "info,raft=debug";
    let steps = [
        ("error", fine, "PUT /log-level from 127.0.0.1:"),
        (fine, "off", "PUT /log-level from 127.0.0.1:"),
        ("off", default, "PUT /log-level from 127.0.0.1:"),
        (default, "info", "SIGUSR1"),
        (default, "info", "SIGUSR1"),
    ];
    assert_eq!(audited.len(), steps.len(), "{said}");
    for ([old, new, from], step) in audited.into_iter().zip(steps) {
        assert_eq!((old, new), (step.0, step.1));
        assert!(from.starts_with(step.2), "{from}");
    }
    assert!(
        changes
            .iter()
            .all(|line| line["timestamp"].is_string() && line["target"].is_string())
    );
}

/// At SIGUSR1 the settings file won over the command line, and at SIGHUP in the same way over `--key-stage require`.
#[test]
fn what_the_command_line_says_counts_also_after_a_signal() {
    let peers = free_peers();
    let name = format!("trine-named-{}.toml", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, "log-level = \"error\"\n").expect("written");
    let config = file.to_str().expect("text");
    let line = ["--id", "1", "--config", config, "--log-level", "warn"];
    let watched = Watched::start(&line, &peers);
    let at = watched.endpoint.to_string();
    let level = |args: &[&str]| log_level(&at, args);
    assert_eq!(level(&["info"]), "info\n");
    signal(watched.child.id(), "USR1");
    let next = wait_for("another level", || {
        Some(level(&[])).filter(|level| level != "info\n")
    });
    assert_eq!(next, "warn\n");
    std::fs::remove_file(&file).expect("removed");
    watched.stop();
}

#[test]
fn the_congestion_control_that_is_asked_for_is_in_use() {
    let peers = free_peers();
    // It is off unless somebody asks for it.
    for (args, expected) in [
        (&[][..], "off"),
        (&["--congestion", "delay"][..], "delay"),
        (&["--congestion", "timely"][..], "timely"),
        (&["--congestion", "timely+ecn"][..], "timely+ecn"),
    ] {
        let watched = Watched::start(&[&["--id", "1"], args].concat(), &peers);
        let in_use = wait_for("a snapshot", || {
            let (_, page) = get(watched.endpoint, "/metrics");
            let prefix = "trine_transport_congestion_control{control=\"";
            let lines = page.lines().filter_map(|line| line.strip_prefix(prefix));
            let mut used = lines.filter_map(|line| line.strip_suffix("\"} 1.0"));
            used.next().map(ToOwned::to_owned)
        });
        assert_eq!(in_use, expected);
    }
    let wrong = ["serve", "--id", "1", "--congestion", "bbr"];
    trine(&wrong, &peers, b"").expect_error(2, &["bbr is no congestion control", "timely+ecn"]);
}

#[test]
fn raft_speaks_through_the_log() {
    let list = free_peers();
    let start =
        |node_id: &str, more: &[&str]| Watched::start(&[&["--id", node_id], more].concat(), &list);
    let others = [start("2", &[]), start("3", &[])];
    let first = start("1", &["--bootstrap", "--log-level", "raft=info"]);
    wait_for("readiness", || {
        (get(first.endpoint, "/readyz").0 == 200).then_some(())
    });
    let said = first.stop();
    assert!(said.contains("raft: "), "{said}");
    assert!(said.contains("raft_id="), "{said}");
    drop(others);
}

#[test]
fn the_endpoint_is_for_this_machine_unless_told_otherwise() {
    let serve = ["serve", "--id", "1", "--peers", "127.0.0.1:1", "--metrics"];
    let with = |address: &'static str| [&serve[..], &[address]].concat();
    trine(&with("0.0.0.0:0"), "", b"").expect_error(2, &["--metrics", "--metrics-password-file"]);
    trine(&["up", "--metrics", "0.0.0.0:9471"], "", b"")
        .expect_error(2, &["0.0.0.0:9471", "--metrics-password-file"]);
    let name = format!("trine-metrics-exposed-{}.toml", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = path.display().to_string();
    std::fs::write(&path, "metrics = \"10.0.0.1:9471\"\n").expect("written");
    let checked = trine(&["config", "check", &file], "", b"");
    std::fs::remove_file(&path).expect("removed");
    checked.expect_error(
        1,
        &[":1: metrics", "10.0.0.1:9471", "--metrics-password-file"],
    );
    trine(&with("nowhere"), "", b"").expect_error(2, &["is not host:port"]);
    trine(&["log-level", "--at", "127.0.0.1:1"], "", b"").expect_error(3, &["--metrics HOST:PORT"]);
}
