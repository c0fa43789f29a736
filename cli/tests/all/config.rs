//! Sources of settings, refused settings, and the reference against the code.

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Cluster, Ran, TempFile, command, finish, trine};
use crate::names::Serving;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use trine_base::network::Udp;
use trine_base::survey::ask;
use trine_client::voters_in_step;
use trine_local::{Group, GroupConfig};

/// Runs the program with variables of the environment.
fn with_env(args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = command(args, "");
    command.envs(variables.iter().copied());
    let output = command.output().expect("the program runs");
    output.into()
}

#[test]
fn the_reference_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let said = trine(&["config", "reference"], "", b"")
        .expect_status(0)
        .stdout;
    let said = String::from_utf8(said).expect("text");
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        said == written,
        "docs/configuration.md is old; write it with: trine config reference > docs/configuration.md"
    );
}

#[test]
fn options_go_before_the_environment_that_before_the_file_and_that_before_the_default() {
    let file = TempFile::holding("precedence", "memory = \"1GiB\"\nspin = \"1us\"\nid = 3\n");
    let show = [
        "config", "show", "--json", "serve", "--", "--memory", "3GiB",
    ];
    let variables = [
        ("TRINE_CONFIG", file.path()),
        ("TRINE_MEMORY", "2GiB"),
        ("TRINE_SPIN", "2us"),
    ];
    let shown = with_env(&show, &variables).expect_status(0).json();
    let of = |name: &str| {
        let entry = &shown[name];
        (entry["value"].as_str(), entry["origin"].as_str())
    };
    assert_eq!(of("memory"), (Some("3GiB"), Some("--memory")));
    assert_eq!(of("spin"), (Some("2us"), Some("TRINE_SPIN")));
    let line = format!("{}:3", file.path());
    assert_eq!(of("id"), (Some("3"), Some(line.as_str())));
    assert_eq!(of("reads"), (Some("index"), Some("default")));
    assert!(shown["peers"].is_null(), "{shown}");

    let text = with_env(&show[..2], &variables).expect_status(0).stdout;
    let text = String::from_utf8(text).expect("text");
    assert!(
        text.contains("# TRINE_MEMORY") && text.contains("# not set"),
        "{text}"
    );
}

/// It printed the password of the Redis protocol, and so put it into every log and copy of its output.
#[test]
fn a_password_is_shown_only_when_asked_for() {
    let show = |options: &[&str]| {
        let line = [&["config", "show"], options].concat();
        let variables = [("TRINE_RESP_PASSWORD", "hunter2")];
        let shown = with_env(&line, &variables).expect_status(0).stdout;
        String::from_utf8(shown).expect("text")
    };
    for form in [&[][..], &["--json"]] {
        let hidden = show(form);
        assert!(
            hidden.contains("***") && !hidden.contains("hunter2"),
            "{hidden}"
        );
        let plain = show(&[form, &["--show-secrets"]].concat());
        assert!(
            plain.contains("hunter2") && !plain.contains("***"),
            "{plain}"
        );
    }
}

#[test]
fn options_of_the_network_are_refused_where_no_packet_is_sent() {
    let refused = trine(&["sim", "--transport", "udp"], "", b"");
    refused.expect_error(2, &["trine sim sends no packets", "--transport"]);
    let refused = trine(&["--device", "mlx5_0", "config", "default"], "", b"");
    refused.expect_error(2, &["trine config sends no packets", "--device"]);
    // Environment variables for other commands do not concern it.
    let line = ["config", "default"];
    with_env(&line, &[("TRINE_TRANSPORT", "verbs")]).expect_status(0);
}

#[test]
fn mistakes_in_a_file_are_named_with_line_and_hint() {
    let file = TempFile::holding(
        "mistakes",
        "id = 1\nmemroy = \"1GiB\"\nreads = \"perhaps\"\n",
    );
    let at = |line: u32, what: &str| format!("{}:{line}: {what}", file.path());
    let (unknown, wrong) = (
        at(2, "there is no setting memroy; did you mean memory?"),
        at(3, "reads: "),
    );
    trine(&["config", "check", file.path()], "", b"").expect_error(1, &[&unknown, &wrong, "index"]);
    // No command starts with it.
    let serve = ["serve", "--config", file.path(), "--peers", "127.0.0.1:1"];
    trine(&serve, "", b"").expect_error(2, &[&unknown, &wrong]);
    let ran = trine(&["serve", "--json", "--config", file.path()], "", b"").expect_status(2);
    assert_eq!(ran.json()["error"]["kind"], "usage");

    let fine = TempFile::holding("fine", "id = 1\nreplicas = 5\n");
    trine(&["config", "check", fine.path()], "", b"").expect_status(0);
    trine(&["config", "check", "/does/not/exist"], "", b"")
        .expect_error(2, &["/does/not/exist", "config default"]);
    // The message about a missing setting is as before.
    trine(&["serve", "--config", fine.path()], "", b"").expect_error(2, &["--peers"]);
}

/// `trine config check` found no mistakes in files that `trine serve` refused, and named only one mistake of the
/// syntax.
#[test]
fn what_the_commands_would_refuse_is_found_beforehand() {
    let check = |name: &str, text: &str, parts: &[&str]| {
        let file = TempFile::holding(name, text);
        let ran = trine(&["config", "check", file.path()], "", b"");
        ran.expect_error(1, parts);
        file
    };
    check(
        "no-port",
        "id = 1\npeers = [\"127.0.0.1\", \"127.0.0.1:2\"]\n",
        &[":2: peers: ", "it has no port"],
    );
    check(
        "listen",
        "listen = \"[::1]\"\n",
        &[":1: listen: ", "is not a usable address"],
    );
    check(
        "id",
        "id = 3\npeers = \"a:1,b:2\"\n",
        &[":1: id: ", "is not a node"],
    );
    let bare = check(
        "no-directory",
        "id = 1\nlog = \"disk\"\n",
        &[":2: log: ", "no directory", "--data-dir"],
    );
    let serve = ["serve", "--config", bare.path(), "--peers", "127.0.0.1:1"];
    trine(&serve, "", b"").expect_error(2, &["no directory is given", "--data-dir"]);
    check(
        "remote",
        "id = 1\npeers = \"192.0.2.1:1,192.0.2.2:1\"\n",
        &[":2: peers: ", "--key", "--insecure"],
    );
    check(
        "lease",
        "reads = \"lease\"\nlease-drift = \"9s\"\n",
        &[":2: lease-drift: ", "has no length"],
    );
    check(
        "both",
        "id = 1\nlisten = \"127.0.0.1:1\"\nbootstrap = true\n",
        &["cannot be used with"],
    );
    // `trine up` refused it, because only verbs has such a path.
    check(
        "path-of-udp",
        "replicas = 3\npath = \"ud\"\n",
        &[":1: transport: ", "belong to verbs", "--transport verbs"],
    );
    if !cfg!(feature = "dpdk") {
        check(
            "not-built",
            "id = 1\ntransport = \"dpdk\"\n",
            &[
                ":2: transport: ",
                "without the feature dpdk",
                "--features dpdk",
            ],
        );
    }
    check(
        "of-up",
        "replicas = 5\nresp = \"65534\"\n",
        &[":2: resp: ", "no port for node"],
    );
    check(
        "all-at-once",
        "id = = 1\nmemroy = 3\npeers = \"127.0.0.1\"\n",
        &[":1: ", ":2: there is no setting memroy", ":3: peers: "],
    );
    // The replica's identity and its peers need not be in the file. The environment does not supply them either.
    let fine = TempFile::holding("by-itself", "log = \"disk\"\ndata-dir = \"/x\"\n");
    let line = ["config", "check", fine.path()];
    with_env(&line, &[("TRINE_LOG", "memory"), ("TRINE_ID", "0")]).expect_status(0);
}

/// The check of a pipe waited for whoever would write to it.
#[test]
fn what_is_no_regular_file_is_not_checked() {
    let pipe = TempFile::new("pipe");
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, &pipe.0, FileType::Fifo, mode, 0).expect("a named pipe");
    for path in [pipe.path(), "/dev/zero", "/"] {
        let ran = trine(&["config", "check", path], "", b"");
        ran.expect_error(2, &[path, "is not a regular file", "name a settings file"]);
    }
}

/// The list of processes shows options to every user of the machine.
#[test]
fn a_password_on_the_command_line_gives_a_warning() {
    let absent = ["--tls-cert", "/nonexistent", "--tls-key", "/nonexistent"];
    let serve = [
        "serve",
        "--id",
        "1",
        "--peers",
        "127.0.0.1:1",
        "--resp",
        "0",
    ];
    let serve = [&serve[..], &absent].concat();
    let shown = "warning: the list of processes shows";
    for option in [&["--resp-password", "x"][..], &["--resp-password=x"]] {
        let ran = trine(&[&serve[..], option].concat(), "", b"");
        assert!(ran.stderr.contains(shown), "{ran:?}");
        assert!(ran.stderr.contains("--resp-password-file"), "{ran:?}");
    }
    let ran = with_env(&serve, &[("TRINE_RESP_PASSWORD", "x")]);
    assert!(!ran.stderr.contains(shown), "{ran:?}");
    assert!(ran.stderr.contains("/nonexistent"), "{ran:?}");
}

/// A password was silently accepted where no protocol asks for one. The user would believe that it protects something.
#[test]
fn a_password_that_protects_nothing_is_refused() {
    let serve = ["serve", "--id", "1", "--peers", "127.0.0.1:1"];
    let hint = "add --resp PORT";
    let option = [&serve[..], &["--resp-password", "x"]].concat();
    trine(&option, "", b"").expect_error(2, &["--resp-password: ", hint]);
    let variable = [("TRINE_RESP_PASSWORD", "x")];
    with_env(&["up"], &variable).expect_error(2, &["TRINE_RESP_PASSWORD: ", hint]);
    let file = TempFile::holding("password", "\nresp-password-file = \"/x\"\n");
    let at = format!("{}:2: resp-password-file: ", file.path());
    trine(&["up", "--config", file.path()], "", b"").expect_error(2, &[&at, hint]);
    trine(&["config", "check", file.path()], "", b"").expect_error(1, &[&at, hint]);
    // Environment variables for a group do not concern its clients.
    with_env(&["config", "default"], &variable).expect_status(0);
}

/// `TRINE_RESP_PASSWORD=`, as a compose file gives an unset variable on, counted as protection: the Redis protocol was served
/// to the network, and `AUTH ""` gave all rights.
#[test]
fn an_empty_password_is_refused_wherever_it_comes_from() {
    let serve = [
        "serve",
        "--id",
        "1",
        "--peers",
        "127.0.0.1:1",
        "--resp",
        "1",
    ];
    let refused = ["resp-password", "an empty password protects nothing"];
    for empty in ["", " ", "\t", "\u{a0}"] {
        let variable = [("TRINE_RESP_PASSWORD", empty)];
        for command in [&serve[..], &["up", "--resp", "1"]] {
            with_env(command, &variable).expect_error(2, &refused);
        }
        let option = format!("--resp-password={empty}");
        trine(&[&serve[..], &[&option]].concat(), "", b"").expect_error(2, &refused);
        trine(&["up", "--resp", "1", &option], "", b"").expect_error(2, &refused);
    }
    let file = TempFile::holding("empty", "\nresp = \"1\"\nresp-password = \"\"\n");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(file.path(), mode).expect("changed");
    let at = [":3: resp-password", refused[1]];
    trine(&["config", "check", file.path()], "", b"").expect_error(1, &at);
    trine(&["up", "--config", file.path()], "", b"").expect_error(2, &at);

    // Files of passwords, of every server that takes one.
    for content in ["", "\nsecret\n", "  \nsecret\n"] {
        let file = TempFile::holding("first-line", content);
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(file.path(), mode).expect("changed");
        let said = [file.path(), "its first line is empty"];
        let own = &serve[..5];
        for more in [
            ["--resp=127.0.0.1:0", "--resp-password-file"],
            ["--metrics=127.0.0.1:0", "--metrics-password-file"],
        ] {
            let line = [own, &more, &[file.path()]].concat();
            trine(&line, "", b"").expect_error(2, &said);
        }
        let asks = [
            "log-level",
            "--at",
            "127.0.0.1:1",
            "--metrics-password-file",
        ];
        trine(&[&asks[..], &[file.path()]].concat(), "", b"").expect_error(2, &said);
    }
    for variable in ["TRINE_RESP_PASSWORD_FILE", "TRINE_METRICS_PASSWORD_FILE"] {
        with_env(&serve, &[(variable, "")]).expect_error(2, &["a value is required"]);
    }
}

/// A password in a settings file that all users can read was taken without a word. Packages install such a file.
#[test]
fn a_secret_in_a_file_that_others_read_is_refused() {
    let file = TempFile::holding("open", "\nresp = \"1\"\nresp-password = \"x\"\n");
    let give = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file.path(), mode).expect("changed");
    };
    let check = ["config", "check", file.path()];
    let refused = [":3: resp-password: others can read", "resp-password-file"];
    for open in [0o644, 0o640, 0o604] {
        give(open);
        trine(&check, "", b"").expect_error(1, &refused);
    }
    trine(&["up", "--config", file.path()], "", b"").expect_error(2, &refused);
    give(0o600);
    trine(&check, "", b"").expect_status(0);
}

#[test]
fn other_machines_are_let_in_only_when_asked_for() {
    let serve = ["serve", "--id", "1", "--peers", "192.0.2.1:7471"];
    let hints = ["--key", "trine key new", "--insecure"];
    let refused = [&["not a loopback address"][..], &hints].concat();
    trine(&serve, "", b"").expect_error(2, &refused);
    // The former name of the option tells what there is instead, in all places where it may stand.
    let gone = [&["there is no", "allow-remote", "any more"][..], &hints].concat();
    let former = [&serve[..], &["--allow-remote"]].concat();
    trine(&former, "", b"").expect_error(2, &gone);
    with_env(&serve, &[("TRINE_ALLOW_REMOTE", "true")]).expect_error(2, &gone);
    let file = TempFile::holding("former", "id = 1\nallow-remote = true\n");
    trine(&["config", "check", file.path()], "", b"").expect_error(1, &gone);
    trine(&["cache", "serve", "--allow-remote"], "", b"").expect_error(2, &gone);
    let help = trine(&["serve", "--help"], "", b"").expect_status(0);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(!help.contains("allow-remote") && help.contains("--insecure"));
    // With the option the address is used, and this machine does not have it yet.
    let allowed = [&serve[..], &["--insecure"]].concat();
    let mut allowed = command(&allowed, "");
    allowed.stdout(Stdio::piped()).stderr(Stdio::null());
    let waits = Serving::new(allowed.spawn().expect("starts"));
    waits.expect(&["not serving yet", "192.0.2.1 belongs to no interface"]);
    waits.end();
}

/// The replicas were started before the error was found, and each reported it.
#[test]
fn a_group_without_room_for_its_redis_ports_is_not_begun() {
    let ran = trine(&["up", "--resp", "65534"], "", b"");
    let ran = ran.expect_error(2, &["--resp 65534+ has no port for node 3", "smaller port"]);
    assert!(ran.stdout.is_empty(), "nothing was started");
}

#[test]
fn processors_and_nodes_that_are_not_there_are_refused() {
    let serve = ["serve", "--id", "1", "--peers", "127.0.0.1:1"];
    let with = |option: [&'static str; 2]| [&serve[..], &option].concat();
    trine(&with(["--cpu", "999999"]), "", b"").expect_error(2, &["--cpu 999999", "it may run on"]);
    trine(&with(["--numa-node", "999"]), "", b"").expect_error(2, &["no such node"]);
}

#[test]
fn a_group_over_ipv6_and_with_names_serves() {
    let sockets: Vec<UdpSocket> = match (0..3).map(|_| UdpSocket::bind("[::1]:0")).collect() {
        Ok(sockets) => sockets,
        Err(error) => {
            // A machine without IPv6 on loopback cannot run this; no other reason to skip is valid.
            assert!(!Path::new("/proc/net/if_inet6").exists(), "{error}");
            return;
        }
    };
    let addresses: Vec<_> = sockets
        .iter()
        .map(|socket| socket.local_addr().expect("bound"))
        .collect();
    drop(sockets);
    let file = TempFile::holding("ipv6", "cpu = 0\nmemory = \"64MiB\"\n");
    let config = GroupConfig {
        program: crate::common::program(),
        addresses: addresses.clone(),
        serve_args: ["--config", file.path()].map(Into::into).to_vec(),
        sink: None,
    };
    let mut group = Group::start(config).expect("processes");
    let limit = trine_transport::time::Duration::from_millis(500);
    let ready = group.wait_until("three voters", crate::common::LIMIT, |group| {
        let reports = ask(&Udp::default(), group.addresses(), limit).expect("a socket");
        (voters_in_step(&reports) == Some(3)).then_some(())
    });
    ready.unwrap_or_else(|error| panic!("{error}"));
    trine(&["put", "six", "yes"], &group.peers(), b"").expect_status(0);
    assert_eq!(
        trine(&["get", "six"], &group.peers(), b"")
            .expect_status(0)
            .stdout,
        b"yes"
    );
    let status = trine(&["status", "--json"], &group.peers(), b"")
        .expect_status(0)
        .json();
    let memory = &status["replicas"][0]["status"]["store"]["memory_bytes"];
    assert_eq!(memory.as_u64(), Some(64 << 20), "the file counts");
    let pid = group.pids()[0];
    let allowed = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    assert!(allowed.contains("Cpus_allowed_list:\t0\n"), "{allowed}");
}

#[test]
fn the_settings_of_a_parent_are_not_those_of_its_replicas() {
    // `demo` gives its replicas all settings as options; a variable for `serve` would break them.
    let mut child = command(&["demo", "--keys", "10"], "");
    child
        .env("TRINE_FAULT", "loss=100%")
        .env("TRINE_CONFIG", "/does/not/exist");
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(child.spawn().expect("started")).expect_status(0);
}

/// A group's memory limit was fixed at its beginning, and the error of a full store said to raise it.
#[test]
fn the_memory_limit_of_a_running_group_can_be_changed() {
    let cluster = Cluster::start(&["--memory", "1MiB"]);
    let peers = cluster.group.peers();
    let put = |key, value: &[u8]| trine(&["put", key, "-"], &peers, value);
    put("most-of-it", &[b'x'; 1_000_000]).expect_status(0);
    let full = "the store is full (limit 1048576 bytes)";
    put("more", &[b'x'; 64 << 10]).expect_error(1, &[full, "trine config set memory"]);
    let set = |size| cluster.run(&["config", "set", "memory", size]);
    assert_eq!(set("2MiB").expect_status(0).stdout, b"memory: 2.0 MiB\n");
    put("more", &[b'x'; 64 << 10]).expect_status(0);
    set("1MiB").expect_error(
        1,
        &["cannot be lowered", "nothing was changed", "delete keys"],
    );
    set("0").expect_error(2, &["at least 1MiB"]);
    crate::common::wait_for("the limit on every replica", || {
        let status = cluster.run(&["status", "--json"]).expect_status(0).json();
        let replicas = status["replicas"].as_array().expect("replicas");
        let limit =
            |replica: &serde_json::Value| replica["status"]["store"]["memory_bytes"].as_u64();
        let changed = replicas
            .iter()
            .all(|replica| limit(replica) == Some(2 << 20));
        (changed && replicas.len() == 3).then_some(())
    });
}
