//! Servers go on whether or not their output is read.
//!
//! A replica ended at the next change of role when its standard output could not be written. Examples are
//! `trine serve >> log` on a full disk, `trine serve | head -1` (silently, with exit status 0), and `trine up &` after its
//! terminal was closed. Every replica reports a change of role, so all of them ended. In memory mode the data was lost.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, PipeWriter, Write};

use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::common::terminal::terminal;
use crate::common::{
    Cluster, TempFile, children_of, command, is_alive, program, signal, state, trine, wait_for,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use trine_base::ports::free_addresses;
use trine_local::{Group, GroupConfig, Process, Stream};

/// A file that is removed when its value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("trine-output-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A full named pipe whose reader exists and does not read.
fn full_pipe(name: &str) -> (Scratch, File) {
    let path = Scratch::new(name);
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, &path.0, FileType::Fifo, mode, 0).expect("a named pipe");
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag");
    let mut options = OpenOptions::new();
    let mut pipe = options
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(&path.0)
        .expect("opened");
    for piece in [4096, 1] {
        while pipe.write(&vec![b'.'; piece]).is_ok() {}
    }
    (path, pipe)
}

/// A pipe whose reader has gone.
fn closed_pipe() -> PipeWriter {
    std::io::pipe().expect("a pipe").1
}

/// A shell that replaces itself by the following program, with streams as in `redirection`.
fn shell(redirection: &str) -> Vec<OsString> {
    let script = format!("{redirection}; exec \"$@\"");
    ["bash", "-c", &script, "bash"].map(OsString::from).into()
}

/// A group whose replicas have streams as in `redirection`.
fn cluster(redirection: &str) -> Cluster {
    let config = GroupConfig {
        program: program(),
        addresses: free_addresses(3).expect("free ports"),
        serve_args: vec![],
        sink: None,
    };
    let group = Group::start_by(config, shell(redirection)).expect("processes");
    let mut cluster = Cluster { group };
    cluster.wait_for_voters(3);
    cluster
}

/// Two changes of role: one by an admin command, one by the leader's death. Earlier writes survive, no replica has
/// ended, and each replica that is asked to end does so successfully.
fn outlives_changes_of_role(mut cluster: Cluster) {
    cluster.ok(&["put", "key", "written before"]);
    let pids = cluster.group.pids();
    let next = (cluster.leader() % 3 + 1).to_string();
    cluster.ok(&["leader", "transfer", &next]);
    cluster.wait_for_voters(3);
    assert_eq!(cluster.group.pids(), pids);

    let leader = cluster.leader();
    cluster.group.kill(leader).expect("killed");
    cluster.ok(&["put", "after", "it", "--timeout", "30s"]);
    assert_eq!(cluster.ok(&["get", "key"]), b"written before");
    let rest = cluster.group.pids();
    assert!(rest.len() == 2 && rest.iter().all(|pid| is_alive(*pid)));
    cluster.group.restart(leader).expect("restarted");
    // It fails as soon as one has ended.
    cluster.wait_for_voters(3);
    assert!(rest.iter().all(|pid| cluster.group.pids().contains(pid)));
    let all = cluster.group.pids();
    all.iter().for_each(|pid| signal(*pid, "HUP"));
    assert_eq!(cluster.ok(&["get", "key"]), b"written before");

    for node_id in 1..=3 {
        let process = cluster.group.process(node_id).expect("running");
        process.ask_to_stop().expect("SIGTERM");
        let ended = process.wait_at_most(crate::common::LIMIT).expect("wait");
        assert!(ended.expect("it ends").success(), "{ended:?}");
    }
}

#[test]
fn replicas_live_on_when_the_disk_under_their_output_is_full() {
    outlives_changes_of_role(cluster("exec >> /dev/full 2>&1"));
}

/// A signal reports this, and it ends the process unless it is caught.
#[test]
fn replicas_live_on_when_the_file_under_their_output_may_not_grow() {
    let file = Scratch::new("limit");
    std::fs::write(&file.0, [b'.'; 1024]).expect("written");
    let path = file.0.display();
    outlives_changes_of_role(cluster(&format!("ulimit -f 1; exec >> {path} 2>&1")));
    assert_eq!(std::fs::metadata(&file.0).expect("there").len(), 1024);
}

#[test]
fn replicas_live_on_when_nobody_reads_their_output_any_more() {
    let head = ">(exec head -n 1 > /dev/null)";
    outlives_changes_of_role(cluster(&format!("exec > {head} 2> {head}")));
}

/// A stopped terminal behaves like this, and so does a `less` that was not scrolled.
#[test]
fn replicas_do_not_wait_for_a_reader_that_does_not_read() {
    let (path, _pipe) = full_pipe("replicas");
    let path = path.0.display();
    outlives_changes_of_role(cluster(&format!("exec > {path} 2>&1")));
}

/// A removed replica under `--json` ended with 0 when its output was not read. With closed standard error it ended with
/// a panic. So its supervisor could not know that a restart is of no use.
#[test]
fn a_replica_whose_last_words_nobody_reads_ends_with_the_status_that_says_why() {
    let cluster = Cluster::start(&[]);
    for (node_id, form) in [("8", "table"), ("9", "json")] {
        let listen = free_addresses(1).expect("a port")[0].to_string();
        let peers = cluster.group.peers();
        let serve = ["serve", "--id", node_id, "--listen", &listen, "--output"];
        let mut args = shell("exec > >(:) 2> >(:)").split_off(1);
        args.push(program().into());
        args.extend(serve.map(OsString::from));
        args.extend([form, "--peers", &peers].map(OsString::from));
        let mut removed = Process::start("bash".as_ref(), &args, 8, None).expect("starts");
        cluster.ok(&["member", "add", node_id, "--address", &listen]);
        cluster.ok(&["member", "remove", node_id]);
        let ended = removed.wait_at_most(crate::common::LIMIT).expect("wait");
        assert_eq!(ended.and_then(|status| status.code()), Some(1), "{form}");
    }
}

/// A group that `trine up` has started, and its addresses.
struct Up {
    /// The started process: `trine up`, or the shell around it.
    child: Child,
    pid: u32,
    cluster: String,
}

impl Up {
    /// Starts the command that `command` makes from the arguments of `up`, and waits until three replicas vote.
    fn start(command: impl FnOnce(&[OsString]) -> Command) -> Self {
        let addresses = free_addresses(3).expect("free ports");
        let base = addresses[0].port().to_string();
        let up = ["up", "--base-port", &base].map(OsString::from);
        let line = [&[program().into()][..], &up].concat();
        let mut command = command(&line);
        command.env("XDG_STATE_HOME", state());
        let child = command.spawn().expect("starts");
        let peers: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let mut up = Self {
            pid: child.id(),
            child,
            cluster: peers.join(","),
        };
        up.wait_until_whole();
        if let [only] = children_of(up.pid)[..] {
            // The started process is a shell, which has `up` in the background.
            up.pid = only;
        }
        assert_eq!(children_of(up.pid).len(), 3);
        up
    }

    fn status(&self) -> Option<serde_json::Value> {
        let ran = trine(&["status", "--json"], &self.cluster, b"");
        (ran.status == Some(0)).then(|| ran.json())
    }

    fn wait_until_whole(&mut self) {
        wait_for("three voters in step", || {
            self.status()
                .filter(|status| status["voters_in_step"] == 3)
                .map(drop)
        });
    }

    /// The same test as for replicas alone.
    fn outlives_changes_of_role(mut self) {
        let put = ["put", "key", "written before"];
        trine(&put, &self.cluster, b"").expect_status(0);
        signal(self.pid, "HUP");
        let before = children_of(self.pid);
        for node_id in ["1", "2", "3"] {
            let transfer = ["leader", "transfer", node_id];
            trine(&transfer, &self.cluster, b"").expect_status(0);
        }
        self.wait_until_whole();
        assert_eq!(children_of(self.pid), before, "all of them are alive");
        // The leader dies. `up` reports that, starts another replica, and reports that too.
        signal(before[2], "KILL");
        wait_for("a new process with the leader's node id", || {
            let now = children_of(self.pid);
            (now.len() == 3 && !now.contains(&before[2])).then_some(())
        });
        self.wait_until_whole();
        let now = children_of(self.pid);
        assert!(is_alive(self.pid) && before[..2].iter().all(|pid| now.contains(pid)));
        let value = trine(&["get", "key"], &self.cluster, b"").expect_status(0);
        assert_eq!(value.stdout, b"written before");
        signal(self.pid, "TERM");
        wait_for("the end of `up`", || {
            let _ = self.child.try_wait();
            (!is_alive(self.pid)).then_some(())
        });
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if is_alive(self.pid) {
            signal(self.pid, "KILL");
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `trine up` at a separate terminal, which is closed once the group is whole. The terminal's session begins with
/// `line`.
fn up_without_its_terminal(line: &[&str]) {
    let (master, far_end) = terminal();
    let up = Up::start(move |up| {
        let copy = || Stdio::from(far_end.try_clone().expect("copied"));
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(line).args(up);
        command.stdin(copy()).stdout(copy()).stderr(copy());
        command
    });
    drop(master);
    up.outlives_changes_of_role();
}

#[test]
fn a_group_of_up_lives_on_without_its_terminal() {
    up_without_its_terminal(&[]);
}

/// The terminal stops processes that write from the background. That would be as bad as an end.
#[test]
fn a_group_of_up_in_the_background_lives_on_without_its_terminal() {
    let script = "set -m; stty tostop; \"$@\" & wait";
    up_without_its_terminal(&["bash", "-c", script, "bash"]);
}

/// `up` reads the output of its replicas. If it waited for its own reader, they would have to wait, too.
#[test]
fn a_group_of_up_does_not_depend_on_who_reads_it() {
    let started = |stdout: Stdio, stderr: Stdio| {
        Up::start(|up| {
            let mut command = Command::new(&up[0]);
            command.args(&up[1..]).stdin(Stdio::null());
            command.stdout(stdout).stderr(stderr);
            command
        })
    };
    started(closed_pipe().into(), closed_pipe().into()).outlives_changes_of_role();
    let (path, _pipe) = full_pipe("up");
    let full = || Stdio::from(OpenOptions::new().write(true).open(&path.0).expect("open"));
    started(full(), full()).outlives_changes_of_role();
    // This behaves like a pipe to `head -1`.
    let mut headed = started(Stdio::piped(), Stdio::null());
    let mut line = String::new();
    let mut stdout = BufReader::new(headed.child.stdout.take().expect("piped"));
    stdout.read_line(&mut line).expect("a line");
    assert!(line.starts_with("starting 3 replicas"), "{line}");
    drop(stdout);
    headed.outlives_changes_of_role();
}

/// Help that went nowhere was a success.
#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for words in [
        &["help"][..],
        &["help", "bench"],
        &["bench", "--help"],
        &["--version"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let help = command(words, "")
            .stdin(Stdio::null())
            .stdout(full.expect("every Linux has it"))
            .stderr(Stdio::piped())
            .output()
            .expect("starts");
        let said = String::from_utf8_lossy(&help.stderr);
        assert_eq!(help.status.code(), Some(2), "{said}");
        assert!(said.contains("cannot write the output"), "{said}");
    }
}

#[test]
fn a_cache_serves_whoever_reads_it() {
    fn full_disk() -> Stdio {
        let full = OpenOptions::new().write(true).open("/dev/full");
        full.expect("every Linux has it").into()
    }
    for stream in [|| closed_pipe().into(), full_disk] {
        let at = free_addresses(1).expect("a port")[0].to_string();
        let mut server = command(&["cache", "serve", "--listen", &at], "")
            .stdin(Stdio::null())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .expect("starts");
        let cache = |words: &[&str]| {
            let words = [&["cache"], words, &["--connect", &at]].concat();
            trine(&words, "", b"")
        };
        wait_for("an answer", || {
            (cache(&["put", "key", "value"]).status == Some(0)).then_some(())
        });
        signal(server.id(), "HUP");
        assert_eq!(cache(&["get", "key"]).expect_status(0).stdout, b"value");
        signal(server.id(), "TERM");
        let ended = wait_for("its end", || server.try_wait().expect("wait"));
        assert!(ended.success(), "{ended}");
    }
}

/// A command is no server. It fails if it cannot print its result, but it does not panic if it cannot print its error.
#[test]
fn a_command_without_standard_error_ends_with_the_status_that_says_why() {
    let cluster = Cluster::start(&[]);
    cluster.ok(&["put", "key", "value"]);
    let peers = cluster.group.peers();
    for (words, status) in [(["get", "missing"], 1), (["get", "--nothing"], 2)] {
        let mut get = command(&words, &peers);
        get.stdout(Stdio::null()).stderr(closed_pipe());
        assert_eq!(get.status().expect("it runs").code(), Some(status));
    }
    // `trine get key | true` has always behaved like this.
    let mut get = command(&["get", "key"], &peers);
    let ended = get.stdout(closed_pipe()).output().expect("it runs");
    assert!(ended.status.success() && ended.stderr.is_empty());
}

/// `trine --json get key | head -c0` ended with 0 when it had failed.
#[test]
fn a_failure_whose_document_nobody_reads_is_no_success() {
    let get = ["--json", "get", "key", "--timeout", "100ms"];
    let cases: [(&[&str], i32); 3] = [
        (&["--json", "config", "check", "/does/not/exist"], 2),
        (&["--json", "get", "--nothing"], 2),
        (&get, 3),
    ];
    for (words, status) in cases {
        let mut command = command(words, "127.0.0.1:1");
        let ended = command.stdout(closed_pipe()).output().expect("it runs");
        assert_eq!(ended.status.code(), Some(status), "{words:?}: {ended:?}");
    }
    // A disk that is full does not change the failure. Standard error is the place that is left for it.
    let full = OpenOptions::new().write(true).open("/dev/full");
    let mut command = command(&get, "127.0.0.1:1");
    command.stdout(full.expect("every Linux has it"));
    let ended = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("not reachable"), "{said}");
}

/// A line of a script that failed, likewise.
#[test]
fn a_failed_script_whose_complaint_nobody_reads_is_no_success() {
    let script = TempFile::holding("script", "get key\n");
    let words = ["--json", "shell", "--timeout", "100ms"];
    let mut command = command(&words, "127.0.0.1:1");
    command.stdin(File::open(&script.0).expect("opened"));
    let ended = command.stdout(closed_pipe()).output().expect("it runs");
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
}

/// Before: commands that print a document a line ended with one of several lines. Programs that read lines broke at it.
#[test]
fn a_command_that_prints_lines_fails_in_a_line() {
    for words in [&["scan"][..], &["watch"], &["stat"]] {
        let words = [&["--json"], words, &["--timeout", "100ms"]].concat();
        let ran = trine(&words, "127.0.0.1:1", b"").expect_status(3);
        assert_eq!(ran.json()["error"]["kind"], "not_reachable", "{words:?}");
        let lines = ran.stdout.iter().filter(|byte| **byte == b'\n');
        assert_eq!(lines.count(), 1, "{words:?}");
    }
}

/// The lines of replicas, and their streams.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<(usize, Stream, String)>>>);

impl Said {
    /// A group whose output is recorded, with logging as in `options`.
    fn by_group(&self, options: &[&str]) -> Cluster {
        let said = Arc::clone(&self.0);
        let config = GroupConfig {
            program: program(),
            addresses: free_addresses(3).expect("free ports"),
            serve_args: options.iter().map(OsString::from).collect(),
            sink: Some(Arc::new(move |node_id, stream, line: &str| {
                let mut said = said.lock().expect("no panic");
                said.push((node_id, stream, line.to_owned()));
            })),
        };
        let group = Group::start(config).expect("processes");
        let mut cluster = Cluster { group };
        cluster.wait_for_voters(3);
        cluster
    }

    /// Waits for a line of this replica's log for which `is` holds.
    fn wait_for_log(&self, node_id: usize, what: &str, is: impl Fn(&str) -> bool) {
        wait_for(what, || {
            let said = self.0.lock().expect("no panic");
            let mut log = said
                .iter()
                .filter(|line| (line.0, line.1) == (node_id, Stream::Err));
            log.any(|line| is(&line.2)).then_some(())
        });
    }
}

fn is_time(text: &str) -> bool {
    humantime::parse_rfc3339(text).is_ok()
}

/// Only standard output reported them, without a time; the log did not mention them at its own level.
#[test]
fn changes_of_role_are_in_the_log_with_their_time() {
    let said = Said::default();
    let mut cluster = said.by_group(&[]);
    let of_role = |role: &'static str| {
        move |line: &str| {
            let (time, rest) = line.split_once(' ').unwrap_or_default();
            let role = format!("role=\"{role}\" term=");
            is_time(time) && rest.contains("INFO role: changed replica=") && rest.contains(&role)
        }
    };
    let leader = cluster.leader();
    let next = leader % 3 + 1;
    said.wait_for_log(leader, "its lead", of_role("leader"));
    cluster.ok(&["leader", "transfer", &next.to_string()]);
    said.wait_for_log(next, "the next lead", of_role("leader"));
    said.wait_for_log(leader, "the end of its lead", of_role("follower"));
}

#[test]
fn changes_of_role_are_in_the_log_for_programs_too() {
    let said = Said::default();
    let mut cluster = said.by_group(&["--log-format", "json"]);
    said.wait_for_log(cluster.leader(), "the lead", |line| {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let time = event["timestamp"].as_str().unwrap_or_default();
        let fields = &event["fields"];
        let leads = fields["role"] == "leader" && fields["term"].is_u64();
        // Here the leader is a replica, and its address stands beside it.
        let leads = leads && fields["leader"] == fields["replica"];
        let leads = leads && fields["leader_address"].is_string();
        is_time(time) && event["target"] == "role" && leads
    });
}
