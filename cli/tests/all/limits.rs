//! The limits of a process (`ulimit`) and of its control group: what comes to one ends with an error, or is said at the start.

use std::fs::File;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use trine_base::ports::free_addresses;

use crate::common::{Ran, TempFile, command, finish, signal, tcp_ports, wait_for};

/// A data directory, which goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("trine-limits-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The command under a limit of the shell's.
fn limited(limit: &str, args: &[&str], peers: &str) -> Command {
    let inner = command(args, peers);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]);
    shell.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::null());
    shell
}

/// Only commands that write files on purpose outlived a limit of file sizes. The kernel ended any other whose output went to
/// a file, and nobody was told why.
#[test]
fn a_limit_of_file_sizes_is_an_error_and_not_the_end() {
    let output = TempFile::new("limited-output");
    for args in [
        &["config", "default"][..],
        &["config", "reference"],
        &["completions", "bash"],
        &["doctor"],
    ] {
        let mut command = limited("-f 0", args, "");
        let file = File::create(output.path()).expect("a file");
        let ran = command.stdout(file).output().expect("it runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.signal(), None, "{args:?}: {said}");
        assert_ne!(ran.status.code(), Some(0), "{args:?}: {said}");
        assert!(!said.trim().is_empty(), "{args:?}");
    }
}

/// A replica that used up its processor time ended as if it had been killed. The signal comes from here: the kernel's comes
/// after a second of work, which takes long where others work, too.
#[test]
fn a_limit_of_processor_time_ends_a_server_with_a_word() {
    let address = free_addresses(1).expect("a free port")[0].to_string();
    let mut serve = command(&["serve", "--id", "1", "--bootstrap"], &address);
    serve.stdin(Stdio::null()).stdout(Stdio::piped());
    let serving = serve.stderr(Stdio::piped()).spawn().expect("it starts");
    wait_for("the replica", || {
        let put = command(&["put", "k", "v"], &address).output();
        put.is_ok_and(|done| done.status.success()).then_some(())
    });
    signal(serving.id(), "XCPU");
    finish(serving).expect_error(1, &["ulimit -t", "used up"]);
}

/// Idle Redis clients took every descriptor of a replica. Its log could open no further file, and the replica ended.
#[test]
fn redis_clients_leave_descriptors_for_the_replica() {
    let data = Directory::new("few-descriptors");
    let directory = data.0.display().to_string();
    let address = free_addresses(1).expect("a free port")[0].to_string();
    let resp = format!("127.0.0.1:{}", tcp_ports(1));
    let args = [
        "serve",
        "--id",
        "1",
        "--bootstrap",
        "--log",
        "disk",
        "--data-dir",
        &directory,
        "--resp",
        &resp,
    ];
    let mut few = limited("-n 60", &args, &address);
    few.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut replica = few.spawn().expect("it starts");
    let put = |value: &str| {
        let mut put = command(&["put", "k", value], &address);
        put.output().is_ok_and(|done| done.status.success())
    };
    wait_for("the replica", || put("before").then_some(()));
    let clients: Vec<TcpStream> = (0..80)
        .map(|_| TcpStream::connect(&resp).expect("connected"))
        .collect();
    let turned_away = wait_for("the last client's error", || {
        let mut last = clients.last()?;
        let limit = Some(Duration::from_secs(5));
        last.set_read_timeout(limit).ok()?;
        let mut said = String::new();
        last.read_to_string(&mut said).ok().map(|_| said)
    });
    assert_eq!(turned_away, "-ERR max number of clients reached\r\n");
    let taken = std::fs::read_dir(format!("/proc/{}/fd", replica.id()));
    let taken = taken.expect("its descriptors").count();
    assert!(taken <= 55, "{taken} of 60 are taken");
    assert!(put("after"));
    signal(replica.id(), "TERM");
    let mut said = String::new();
    let mut stderr = replica.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut said).expect("its words");
    assert!(replica.wait().expect("it ends").success(), "{said}");
    assert!(
        said.contains("serves at most 16 Redis clients at a time, not 10000")
            && said.contains("60 descriptors"),
        "{said}"
    );

    let ran = limited("-n 44", &args, &address).output().expect("it runs");
    Ran::from(ran).expect_error(2, &["44 descriptors (ulimit -n)", "leave --resp out"]);
}
