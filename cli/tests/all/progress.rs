//! Long work: a bar on a terminal, plain lines elsewhere.

use std::fs::File;
use std::io::Read;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::common::{Cluster, command, finish, signal, trine, wait_for};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;
use trine_base::ports::free_addresses;

/// The characters of a bar, which no other output contains.
const BAR: [char; 2] = ['█', '░'];
/// Characters that are only sent to a terminal.
const CONTROL: [char; 2] = ['\u{1b}', '\r'];

/// A separate terminal for the standard error of one process, and its whole output.
struct Terminal {
    written: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Starts `command` with its standard error on a new terminal, and its standard output in a pipe.
    fn start(command: &mut Command) -> (Child, Self) {
        Self::start_with(command, |_| Stdio::piped())
    }

    /// Works like [`Terminal::start`], with both streams on the terminal, as a user has them.
    fn start_all(command: &mut Command) -> (Child, Self) {
        Self::start_with(command, |far_end| {
            far_end.try_clone().expect("copied").into()
        })
    }

    fn start_with(command: &mut Command, stdout: fn(&OwnedFd) -> Stdio) -> (Child, Self) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let master = openpt(flags).expect("a terminal");
        grantpt(&master).expect("ours");
        unlockpt(&master).expect("ours");
        let size = Winsize {
            ws_row: 24,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).expect("a terminal has a size");
        let far_end: OwnedFd = ioctl_tiocgptpeer(&master, flags).expect("its other end");
        let child = command
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .stdout(stdout(&far_end))
            .stderr(far_end)
            .spawn()
            .expect("the program starts");
        // The command's copies would keep the terminal open after the process.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        (child, Self::read(File::from(master)))
    }

    fn read(mut master: File) -> Self {
        let written = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&written);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of a terminal without processes reads as an error.
            while let Ok(count @ 1..) = master.read(&mut bytes) {
                let mut written = shared.lock().expect("no panic");
                written.extend_from_slice(&bytes[..count]);
            }
        });
        Self { written, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().expect("no panic")).into_owned()
    }

    /// The whole output, once the process has ended.
    fn whole(self) -> String {
        self.reader.join().expect("reads");
        let written = self.written.lock().expect("no panic");
        String::from_utf8_lossy(&written).into_owned()
    }
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the end of a process whose standard error is elsewhere; returns its output.
fn stdout_of(mut child: Child) -> String {
    let mut text = String::new();
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_to_string(&mut text).expect("text");
    let ended = child.wait().expect("wait");
    assert!(ended.success(), "{ended}: {text}");
    text
}

/// Whether a bar with these words was drawn. The words alone are not enough, because an error message might have them,
/// too.
fn drew(text: &str, what: &str) -> bool {
    let drawn = |part: &str| part.contains(what) && part.contains(BAR) && part.contains('%');
    text.split(['\r', '\n']).any(drawn)
}

#[test]
fn a_measurement_draws_a_bar_on_a_terminal_and_prints_lines_elsewhere() {
    let cluster = Cluster::start(&[]);
    let peers = cluster.group.peers();
    let slow = ["--rate", "50", "--clients", "2", "--keys", "100"];
    let bench = |time| [&["bench", "--warmup", "0s", "--for", time][..], &slow].concat();

    // The run is longer than the pause between two lines. Meanwhile the other one is checked.
    let piped = command(&bench("11s"), &peers)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");

    let (child, terminal) = Terminal::start(&mut command(&bench("2s"), &peers));
    let stdout = stdout_of(child);
    let drawn = terminal.whole();
    assert!(drew(&drawn, "measuring"), "{drawn:?}");
    assert!(drawn.contains("operations/s"), "{drawn:?}");
    let is_plain = |text: &str| !text.contains(BAR) && !text.contains(CONTROL);
    let is_result = |text: &str| text.contains("p99") && is_plain(text);
    assert!(is_result(&stdout), "{stdout:?}");

    let ran = finish(piped).expect_status(0);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("measuring "), "{lines:?}");
    assert!(lines[0].contains(" %, ") && lines[0].ends_with(" operations/s"));
    assert!(is_plain(&ran.stderr), "{lines:?}");
    assert!(is_result(&String::from_utf8_lossy(&ran.stdout)));
}

/// A replica that received the whole state from its group printed nothing until the end, however long that took.
#[test]
fn a_replica_shows_how_far_the_state_that_it_is_sent_has_come() {
    let cluster = Cluster::start(&[]);
    let value = "v".repeat(40_000);
    let script: String = (0..100).map(|n| format!("put key-{n} {value}\n")).collect();
    trine(&[], &cluster.group.peers(), script.as_bytes()).expect_status(0);

    // Every packet to and from the new replica is delayed. So the state, which arrives in pieces, takes long.
    let listen = free_addresses(1).expect("a free port")[0].to_string();
    let peers = cluster.group.peers();
    let node_id = ["serve", "--id", "4", "--listen", &listen, "--peers", &peers];
    let serve = [
        &node_id[..],
        &["--fault", "delay=15ms", "--log-level", "debug"],
    ]
    .concat();
    let (child, terminal) = Terminal::start_all(&mut command(&serve, ""));
    let _fourth = Killed(child);
    let (add, operator) = Terminal::start_all(&mut command(
        &["member", "add", "4", "--address", &listen],
        &peers,
    ));
    let mut add = Killed(add);

    let survey = |form: &[&str]| trine(&[&["status"], form].concat(), &listen, b"").stdout;
    let receiving = |document: &Value| {
        let of_one = |replica: &Value| {
            let state = &replica["status"]["receiving"];
            Some((state["bytes"].as_u64()?, state["bytes_total"].as_u64()?))
        };
        let replicas = document["replicas"].as_array().into_iter().flatten();
        replicas.filter_map(of_one).next()
    };
    let (bytes, total) = wait_for("a part of the state", || {
        receiving(&serde_json::from_slice(&survey(&["--json"])).ok()?).filter(|state| state.0 > 0)
    });
    assert!(bytes <= total && total > 4_000_000, "{bytes} of {total}");
    let row = String::from_utf8(survey(&[])).expect("text");
    assert!(row.contains("joining, receiving snapshot, "), "{row}");
    wait_for("a bar", || {
        drew(&terminal.text(), "receiving a snapshot").then_some(())
    });
    // The operator's admin command used to wait silently.
    wait_for("a bar of the order", || {
        drew(&operator.text(), "node 4 receives the group's state").then_some(())
    });
    wait_for("the end of it", || {
        let table = String::from_utf8(survey(&[])).ok()?;
        let mut rows = table.lines();
        let row = rows.find(|row| row.contains(&listen))?;
        row.contains(" follower").then_some(())
    });
    let ended = wait_for("the end of the order", || add.0.try_wait().expect("wait"));
    let said = operator.whole();
    assert!(ended.success() && said.contains("of 3.8 MiB"), "{said:?}");
    let mut lines = said.split(['\r', '\n']).filter(|line| !line.is_empty());
    let result = lines.next_back().expect("a line");
    assert!(
        !result.contains(BAR) && result.contains("node 4"),
        "{said:?}"
    );
    let drawn = terminal.text();
    assert!(drawn.contains(" MiB of 3.8 MiB"), "{drawn:?}");
    // Its lines meanwhile appear above the bar, each on a separate line.
    let mut said = drawn
        .split(['\r', '\n'])
        .filter(|line| line.contains("faults {"));
    assert!(said.all(|line| !line.contains(BAR)), "torn: {drawn:?}");
    // Log lines must appear above the bar as well. Another thread writes them, and they used to appear beside the bar.
    let is_of_log = |line: &&str| {
        [" INFO", "DEBUG", " WARN"]
            .iter()
            .any(|level| line.contains(level))
    };
    let mut logged = drawn.split(['\r', '\n']).filter(is_of_log).peekable();
    assert!(logged.peek().is_some(), "{drawn:?}");
    assert!(logged.all(|line| !line.contains(BAR)), "torn: {drawn:?}");
}

/// Writing and reading back a million keys took minutes without output, and Ctrl-C ended it without any.
#[test]
fn a_demonstration_shows_how_far_it_is_and_says_at_ctrl_c_what_was_done() {
    let line = ["demo", "--keys", "1000000"];
    let (child, terminal) = Terminal::start_all(&mut command(&line, ""));
    let mut child = Killed(child);
    wait_for("a bar", || {
        drew(&terminal.text(), "writing keys").then_some(())
    });
    signal(child.0.id(), "INT");
    let ended = wait_for("the end", || child.0.try_wait().expect("wait"));
    let text = terminal.whole();
    assert_eq!(ended.code(), Some(130), "{text}");
    let lines: Vec<&str> = text.split(['\r', '\n']).collect();
    let line_with = |part: &str| {
        let found = lines.iter().find(|line| line.contains(part));
        *found.unwrap_or_else(|| panic!("{part:?} is missing in {lines:#?}"))
    };
    for part in ["p99.9", "  put ", "acknowledged by then"] {
        let line = line_with(part);
        assert!(!line.contains(BAR), "torn: {line:?}");
    }
}

/// A second Ctrl-C ended the process without output, and the next text on the terminal appeared beside half a bar.
#[test]
fn a_second_ctrl_c_ends_at_once_and_leaves_no_half_bar() {
    // No replica answers, so the first Ctrl-C waits a while for operations in flight.
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let peers = silent.local_addr().expect("bound").to_string();
    let (child, terminal) = Terminal::start_all(&mut command(&["bench"], &peers));
    let mut child = Killed(child);
    wait_for("a bar", || {
        drew(&terminal.text(), "writing keys").then_some(())
    });
    let ended = wait_for("the end", || {
        // Two signals in quick succession count as one.
        signal(child.0.id(), "INT");
        child.0.try_wait().expect("wait")
    });
    let text = terminal.whole();
    assert_eq!(ended.code(), Some(130), "{text:?}");
    let cleared = "\r\u{1b}[2Ktrine: interrupted again, ended at once\r\n";
    assert!(text.contains(cleared), "{text:?}");
}

/// Commands that waited for the group were silent until they gave up.
#[test]
fn a_person_is_told_what_a_command_waits_for_and_a_program_is_not() {
    let nowhere = "127.0.0.1:1";
    let patient = |args: &[&str]| {
        let mut command = command(args, nowhere);
        command.args(["--timeout", "3s"]);
        command
    };
    let known = "waiting  for the group: no replica answers";
    let cases: [(&[&str], &str); 4] = [
        (&["get", "key"], known),
        (&["put", "key", "value"], known),
        (&["leader", "transfer", "2"], known),
        (
            &["member", "add", "4", "--address", "127.0.0.1:2"],
            "waiting  for a leader of the group",
        ),
    ];
    for (args, expected) in cases {
        let (mut child, terminal) = Terminal::start(&mut patient(args));
        assert_eq!(child.wait().expect("wait").code(), Some(3), "{args:?}");
        let text = terminal.whole();
        assert!(text.contains(expected), "{args:?}: {text:?}");
    }
    let (mut child, terminal) = Terminal::start(patient(&["get", "key"]).arg("--json"));
    assert_eq!(child.wait().expect("wait").code(), Some(3));
    let text = terminal.whole();
    assert!(!text.contains("waiting"), "{text:?}");
}

#[test]
fn latency_and_bundles_show_how_far_they_are() {
    let cluster = Cluster::start(&[]);
    let peers = cluster.group.peers();
    let (child, terminal) = Terminal::start(&mut command(&["latency", "--for", "2s"], &peers));
    stdout_of(child);
    assert!(drew(&terminal.whole(), "measuring"));
    let path = std::env::temp_dir().join(format!("trine-shown-{}.tar.gz", std::process::id()));
    let out = path.to_str().expect("text");
    let bundle = ["debug", "bundle", "--out", out];
    let (child, terminal) = Terminal::start(&mut command(&bundle, &peers));
    stdout_of(child);
    std::fs::remove_file(&path).expect("written");
    assert!(drew(&terminal.whole(), "gathering"));
}
