//! Processes of its own, because DPDK starts once in each: applications and generators over memif and AF_PACKET.
//! `cargo test -p trine-packets --features dpdk --test dpdk`.
//!
//! The generator checks every packet against the slow reference. It sends less than the application can forward, so none
//! may be lost.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use trine_testnet::Network;

/// The time limit of any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Two processes poll without a pause: more of them at a time would only wait for each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A program of the test; killed when dropped.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(namespace: Option<&str>, words: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_trine-packets");
        let mut command = match namespace {
            None => Command::new(program),
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace, program]);
                command
            }
        };
        let mut child = command
            .args(words.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, output }
    }

    /// Reads lines until one contains `text`; all of them.
    fn expect(&mut self, text: &str) -> String {
        let mut said = String::new();
        loop {
            let before = said.len();
            let count = self.output.read_line(&mut said).expect("readable output");
            assert!(count > 0, "it ended before it said `{text}`:\n{said}");
            if said[before..].contains(text) {
                return said;
            }
        }
    }

    fn interrupt(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::INT).expect("a process that runs");
    }

    /// Waits for a good end; the rest of the output.
    fn finish(mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it did not end");
            std::thread::yield_now();
        };
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        assert!(status.success(), "{status}\n{rest}");
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already, or stuck: either way it must not outlive the case.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Runs an application and its generator; what both said.
fn pair(namespace: Option<&str>, application: &str, generator: &str) -> (String, String) {
    let mut application = Running::start(namespace, application);
    application.expect("ready");
    let mut generator = Running::start(namespace, generator);
    let mut checked = generator.expect("strange");
    // The generator polls no more. Now the application may stop, and close its ports first.
    application.interrupt();
    let forwarded = application.finish();
    checked += &generator.finish();
    (forwarded, checked)
}

const NO_FAULT: &str = "0 lost, 0 doubled, 0 misrouted, 0 altered, 0 strange";

/// 50,000 packets, crafted ones among them, over three memif pairs.
fn over_memif(name: &str, table: &str, cores: &str, queues: usize) {
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|error| error.into_inner());
    let socket = |end: &str| {
        format!(
            "memif:@trine-packets-{}-{name}{queues}-{end}",
            std::process::id()
        )
    };
    let (a, b, c) = (socket("a"), socket("b"), socket("c"));
    let application = format!("{name} --in {a} --out {b} --out {c} --cores {cores} {table}");
    let generator = format!(
        "generate {name} --out {a} --in {b} --in {c} --queues {queues} --packets 50000 --rate 100000 {table}"
    );
    let (forwarded, checked) = pair(None, &application, &generator);
    assert!(checked.contains("50000 sent"), "{checked}");
    assert!(checked.contains(NO_FAULT), "{checked}\n{forwarded}");
    assert!(checked.contains("p99.9"), "{checked}");
    assert!(forwarded.contains("0 refused"), "{forwarded}");
}

#[test]
fn echo_over_memif() {
    over_memif("echo", "", "0", 1);
}

#[test]
fn ipv4_over_memif() {
    over_memif("ipv4", "--entries 50000", "0", 1);
}

#[test]
fn ipv6_over_memif() {
    over_memif("ipv6", "--entries 5000", "0", 1);
}

#[test]
fn switch_over_memif() {
    over_memif("switch", "--entries 50000", "0", 1);
}

#[test]
fn names_over_memif() {
    over_memif("names", "--entries 20000", "0", 1);
}

#[test]
fn patterns_over_memif() {
    over_memif("patterns", "--entries 1000 --seed 9", "0", 1);
}

#[test]
fn two_threads_have_a_queue_each() {
    over_memif("ipv4", "--entries 1000", "0,1", 2);
}

#[test]
fn ipv4_over_af_packet() {
    let id = Command::new("id").arg("-u").output().expect("id");
    if id.stdout != b"0\n" {
        println!("skipped: network devices need root");
        return;
    }
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|error| error.into_inner());
    let network = Network::create();
    let namespace = &network.namespace;
    // The kernel's own packets would be nobody's. Plain packets alone: the driver's sockets have the kernel put fragments
    // together, so that a single one never comes.
    inside(namespace, "sysctl -q -w net.ipv6.conf.all.disable_ipv6=1");
    inside(
        namespace,
        "sysctl -q -w net.ipv6.conf.default.disable_ipv6=1",
    );
    // The driver names its socket group (pid XOR index), and two processes that get one name cannot both run. So all four
    // indexes are far apart: with those that the kernel gives, the ends at 2 and 3 met when the pids differed in one bit.
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        let (index, peer) = ((2 * number + 2) * 4_096, (2 * number + 3) * 4_096);
        inside(
            namespace,
            &format!(
                "ip link add index {index} name {name}0 type veth peer index {peer} name {name}1"
            ),
        );
        inside(namespace, &format!("ip link set {name}0 up"));
        inside(namespace, &format!("ip link set {name}1 up"));
    }
    let (forwarded, checked) = pair(
        Some(namespace),
        "ipv4 --in afpacket:a1 --out afpacket:b0 --entries 1000",
        "generate ipv4 --out afpacket:a0 --in afpacket:b1 --plain --entries 1000 --packets 10000 --rate 20000",
    );
    assert!(checked.contains("10000 sent"), "{checked}");
    assert!(checked.contains(NO_FAULT), "{checked}\n{forwarded}");
}

fn inside(namespace: &str, command: &str) {
    let words = command.split_whitespace();
    let mut ip = Command::new("ip");
    let status = ip.args(["netns", "exec", namespace]).args(words).status();
    assert!(status.expect("ip").success(), "{command}");
}

#[test]
fn a_generator_of_another_table_hears_of_every_wrong_packet() {
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|error| error.into_inner());
    let socket = |end: &str| format!("memif:@trine-packets-{}-wrong-{end}", std::process::id());
    let (a, b) = (socket("a"), socket("b"));
    let mut application = Running::start(
        None,
        &format!("ipv4 --in {a} --out {b} --entries 100 --seed 1"),
    );
    application.expect("ready");
    let words = format!("generate ipv4 --out {a} --in {b} --entries 101 --seed 1 --packets 1000");
    let mut generator = Running::start(None, &words);
    let said = generator.expect("strange");
    assert!(!said.contains(NO_FAULT), "{said}");
    application.interrupt();
    application.finish();
    let status = generator.child.wait().expect("a child");
    assert_eq!(status.code(), Some(1), "a clear negative result");
}

#[test]
fn ports_that_cannot_be_opened_say_why() {
    for (words, says) in [
        ("echo --in memif:@a --out memif:@a", "named twice"),
        (
            "echo --in afpacket:nosuchdev0 --out memif:@trine-packets-none",
            "nosuchdev0",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trine-packets"));
        let output = command
            .args(words.split_whitespace())
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says), "{words}: {said}");
    }
}
