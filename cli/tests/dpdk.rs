//! A whole group on DPDK, on AF_PACKET devices that a bridge joins: `cargo test -p trine --features dpdk --test dpdk`.
//!
//! Every replica and every client has its own Ethernet and IP address, and the kernel's UDP sees none of the packets.
//! The test needs root for the network; otherwise it prints that it is skipped.

#[path = "all/common/mod.rs"]
mod common;

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use trine_testnet::Network;

const REPLICAS: usize = 3;
/// Devices of the clients start at this number.
const CLIENTS_AT: usize = 10;
const PEERS: &str = "10.77.0.1:7471,10.77.0.2:7471,10.77.0.3:7471";
/// A client's first address; its further devices take the following ones.
const CLIENT: &str = "ip=10.77.0.10/24";
/// The time limit of any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_group_serves_and_survives_its_leader() {
    let Some(network) = network_with_clients(1) else {
        return;
    };
    let mut replicas: Vec<Replica> = (1..=REPLICAS)
        .map(|node_id| Replica::start(&network, node_id))
        .collect();
    let client = client_eal(1);

    // The first answer waits for the group to form.
    let put = until_done(|| {
        trine(
            &network,
            &[
                "put", "greeting", "hello", "--peers", PEERS, "--eal", &client,
            ],
        )
    });
    assert!(put.status.success());
    assert_eq!(
        text(&trine(
            &network,
            &["get", "greeting", "--peers", PEERS, "--eal", &client]
        )),
        "hello"
    );

    let leader = leader(&network, &client);
    replicas[leader].kill();
    let put = until_done(|| {
        trine(
            &network,
            &[
                "put", "greeting", "again", "--peers", PEERS, "--eal", &client,
            ],
        )
    });
    assert!(put.status.success());
    assert_eq!(
        text(&trine(
            &network,
            &["get", "greeting", "--peers", PEERS, "--eal", &client]
        )),
        "again"
    );
    assert_ne!(
        self::leader(&network, &client),
        leader,
        "the dead do not lead"
    );

    for (index, replica) in replicas.iter_mut().enumerate() {
        if index != leader {
            replica.stop_kindly();
        }
    }
    kernel_saw_nothing(&network);
}

#[test]
fn chaos_with_loss_passes() {
    // There is one port for each of two clients, one for the final reading, and one for the polls of the group.
    const PORTS: usize = 4;
    let Some(network) = network_with_clients(PORTS) else {
        return;
    };
    let options = [
        "chaos",
        "--loss",
        "1%",
        "--clients",
        "2",
        "--for",
        "6s",
        "--seed",
        "7",
        "--kill-leader-every",
        "3s",
        "--replicas-at",
        "10.77.0.1:7471",
        "--replica-eal",
        &eal("dpdk{node_id}"),
        "--eal",
        &client_eal(PORTS),
    ];
    let output = trine(&network, &options);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("PASS"), "{said}");
    assert!(said.contains("killed replica"), "{said}");
    kernel_saw_nothing(&network);
}

#[test]
fn a_cache_serves_and_more_threads_than_queues_are_refused_with_the_hint() {
    let Some(network) = network_with_clients(1) else {
        return;
    };
    let (server, client) = (eal("dpdk1"), client_eal(1));
    let serve = |threads| {
        [
            "cache",
            "serve",
            "--listen",
            "10.77.0.1:7600",
            "--memory",
            "64M",
            "--threads",
            threads,
            "--eal",
            &server,
        ]
    };
    let refused = trine(&network, &serve("2"));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("fewer threads") || said.contains("one endpoint thread"),
        "{said}"
    );

    let mut cache = command(&network);
    let cache = cache.args(serve("1")).stdout(Stdio::null());
    let mut cache = Replica(cache.spawn().expect("the binary runs"));
    let ask = |words: &[&str]| {
        let at = ["--connect", "10.77.0.1:7600", "--eal", &client];
        trine(&network, &[&["cache"], words, &at].concat())
    };
    let put = until_done(|| ask(&["put", "greeting", "hello"]));
    assert!(put.status.success());
    assert_eq!(text(&ask(&["get", "greeting"])), "hello");
    assert!(ask(&["stats"]).status.success());
    cache.stop_kindly();
    kernel_saw_nothing(&network);
}

/// A bridge with a device for each replica and `clients` for a client; `None` without root.
fn network_with_clients(clients: usize) -> Option<Network> {
    let id = Command::new("id").arg("-u").output().expect("id");
    if id.stdout != b"0\n" {
        println!("skipped: network devices need root");
        return None;
    }
    let network = Network::create();
    for number in (1..=REPLICAS).chain(CLIENTS_AT..CLIENTS_AT + clients) {
        network.add_port(number);
    }
    Some(network)
}

fn eal(device: &str) -> String {
    format!("--no-pci --no-huge --vdev=net_af_packet0,iface={device}")
}

/// EAL's arguments of a client with this many ports.
fn client_eal(ports: usize) -> String {
    let device = |number| format!(" --vdev=net_af_packet{number},iface=dpdk{number}");
    let devices: String = (CLIENTS_AT..CLIENTS_AT + ports).map(device).collect();
    format!("--no-pci --no-huge{devices}")
}

fn command(network: &Network) -> Command {
    let mut command = Command::new("ip");
    command.args([
        "netns",
        "exec",
        &network.namespace,
        env!("CARGO_BIN_EXE_trine"),
    ]);
    command
        .env("TRINE_TRANSPORT", "dpdk")
        .env("TRINE_DPDK", CLIENT)
        .stdin(Stdio::null());
    command
}

/// Runs a command of a client to its end.
fn trine(network: &Network, arguments: &[&str]) -> Output {
    command(network)
        .args(arguments)
        .output()
        .expect("the binary runs")
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Repeats an attempt that may fail while the group has no leader.
fn until_done(mut attempt: impl FnMut() -> Output) -> Output {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = attempt();
        if output.status.success() || Instant::now() >= deadline {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            return output;
        }
    }
}

/// The index of the replica that leads.
fn leader(network: &Network, client: &str) -> usize {
    let status = until_done(|| trine(network, &["status", "--peers", PEERS, "--eal", client]));
    let status = text(&status);
    let line = status.lines().next().expect("a first line");
    let node_id = line
        .strip_prefix("replica ")
        .and_then(|rest| rest.split(' ').next());
    node_id
        .and_then(|node_id| node_id.parse::<usize>().ok())
        .unwrap_or_else(|| panic!("no leader: {line}"))
        - 1
}

/// The kernel's UDP counters in this network must be zero.
fn kernel_saw_nothing(network: &Network) {
    for counter in ["InDatagrams", "OutDatagrams", "NoPorts", "InErrors"] {
        assert_eq!(network.kernel_udp(counter), 0, "{counter}");
    }
}

/// A replica's process; killed when dropped.
struct Replica(Child);

impl Replica {
    fn start(network: &Network, node_id: usize) -> Self {
        let mut command = command(network);
        command.args([
            "serve",
            "--id",
            &node_id.to_string(),
            "--peers",
            PEERS,
            "--eal",
            &eal(&format!("dpdk{node_id}")),
        ]);
        if node_id == 1 {
            command.arg("--bootstrap");
        }
        Self(
            command
                .stdout(Stdio::null())
                .spawn()
                .expect("the binary runs"),
        )
    }

    fn kill(&mut self) {
        self.0.kill().expect("a running process");
        self.0.wait().expect("a child");
    }

    /// Ends it as Ctrl-C does. It must close its port and report success.
    fn stop_kindly(&mut self) {
        let status = Command::new("kill")
            .args(["-INT", &self.0.id().to_string()])
            .status()
            .expect("kill");
        assert!(status.success());
        let status = common::wait_for("the end after Ctrl-C", || {
            self.0.try_wait().expect("a child")
        });
        assert!(status.success(), "{status}");
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It has ended already, or is not needed any more.
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}
