//! Redis clients of a group whose keys change: what those may do who are nobody, and that a front follows its replica.

use std::net::{SocketAddr, TcpStream};

use super::wire::Wire;
use crate::common::{tcp_ports, wait_for};
use crate::keys::{Keys, Replicas};

/// Where the fronts of three replicas listen.
struct Fronts(u16);

impl Fronts {
    /// The option that says it to each of them.
    fn option(&self) -> String {
        format!("{}+", self.0)
    }

    fn connect(&self, node_id: u16) -> Wire {
        let address = SocketAddr::from(([127, 0, 0, 1], self.0 + node_id - 1));
        wait_for("a front", || TcpStream::connect(address).ok());
        Wire::connect(address)
    }
}

fn lead(replicas: &Replicas, key: Option<&str>, node_id: &str) {
    let transfer = ["leader", "transfer", node_id, "--timeout", "20s"];
    // The leader may not have heard from it yet.
    wait_for("another leader", || {
        (replicas.client(key, &transfer).status == Some(0)).then_some(())
    });
}

/// Users have their rights also where the leader has no key yet. Who names no user may do everything, as without keys.
#[test]
fn in_the_stage_accept_redis_clients_come_as_users_and_as_nobody() {
    let keys = Keys::new("resp-accept");
    let (ours, fronts) = (keys.text("ours"), Fronts(tcp_ports(3)));
    let option = fronts.option();
    let resp = ["--resp", &option, "--resp-timeout", "30s"];
    let accept = [&["--key", &ours, "--key-stage", "accept"], &resp[..]].concat();
    let mut replicas = Replicas::new(&keys.directory);
    replicas.start(0, &[&accept[..], &["--bootstrap"]].concat());
    replicas.start(1, &accept);
    replicas.start(2, &resp);
    replicas.works(None, "v");
    replicas.are_whole(None);
    lead(&replicas, None, "3");
    let add = [
        "user",
        "add",
        "alice",
        "--role",
        "write",
        "--prefix",
        "a/",
        "--cluster-key",
        &ours,
        "--json",
    ];
    let added = replicas.client(None, &add).expect_status(0).json();
    let alice = format!("AUTH alice {}", added["key"].as_str().expect("a key"));
    let outside = "-NOPERM user alice may not touch key \"b/1\": its keys begin with \"a/\"";
    let is_served = |node_id: u16| {
        let mut wire = fronts.connect(node_id);
        assert_eq!(wire.ask("SET b/1 x"), "+OK");
        assert_eq!(wire.ask(&alice), "+OK");
        assert_eq!(wire.ask("SET a/1 x"), "+OK");
        for denied in ["SET b/1 y", "GET b/1", "MGET a/1 b/1"] {
            assert_eq!(wire.ask(denied), outside, "{denied}");
        }
        let mut nobody = fronts.connect(node_id);
        assert_eq!(nobody.ask("GET b/1"), "\"x\"");
    };
    is_served(1);
    is_served(2);
    // A replica without a key knows no keys of users.
    let mut wire = fronts.connect(3);
    assert!(wire.ask(&alice).starts_with("-WRONGPASS"));
    assert_eq!(wire.ask("SET b/1 x"), "+OK");

    replicas.stop(2);
    replicas.start(2, &accept);
    replicas.are_whole(None);
    for node_id in 1..=3 {
        is_served(node_id);
    }
    replicas.works(None, "in clear");
    replicas.works(Some(&ours), "sealed");
}

/// A front kept the stage and the member root of its start: then it reached no leader without a key, and nobody at all
/// after a change of the root.
#[test]
fn the_sessions_of_a_front_follow_the_stage_and_the_member_root() {
    let keys = Keys::new("resp-follows");
    let (ours, fronts) = (keys.text("ours"), Fronts(tcp_ports(3)));
    let settings = keys.text("settings.toml");
    let write = |stage: &str| {
        std::fs::write(&settings, format!("keys = \"{stage}\"\n")).expect("written");
    };
    let option = fronts.option();
    let resp = ["--resp", &option, "--resp-timeout", "30s"];
    let keyed = [&["--key", &ours, "--config", &settings], &resp[..]].concat();
    write("require");
    let mut replicas = Replicas::new(&keys.directory);
    replicas.start_all(&keyed);
    replicas.works(Some(&ours), "v");
    replicas.are_whole(Some(&ours));
    let mut wires = [1, 2, 3].map(|node_id| fronts.connect(node_id));
    let serves = |wire: &mut Wire, value: &str| {
        assert_eq!(wire.ask(&format!("SET k {value}")), "+OK");
        assert_eq!(wire.ask("GET k"), format!("\"{value}\""));
    };
    wires.iter_mut().for_each(|wire| serves(wire, "required"));
    let stage = |replicas: &Replicas, stage: &str| {
        write(stage);
        for index in 0..3 {
            replicas.hang_up(index);
            wait_for(stage, || {
                let is_in_force = replicas.statuses(&ours)[index]["keys"]["stage"] == stage;
                is_in_force.then_some(())
            });
        }
    };
    stage(&replicas, "accept");
    replicas.stop(2);
    replicas.start(2, &resp);
    replicas.are_whole(None);
    lead(&replicas, None, "3");
    let [first, second, _] = &mut wires;
    serves(first, "clear");
    serves(second, "clear-too");

    replicas.stop(2);
    replicas.start(2, &keyed);
    replicas.are_whole(Some(&ours));
    wires[2] = fronts.connect(3);
    stage(&replicas, "require");
    wires.iter_mut().for_each(|wire| serves(wire, "again"));
    for step in ["begun", "switched", "settled"] {
        let rotate = ["key", "rotate", &ours];
        replicas.client(None, &rotate).expect_status(0);
        for index in 0..3 {
            replicas.hang_up(index);
            wait_for(step, || {
                let is_in_force = replicas.statuses(&ours)[index]["member_roots"]["step"] == step;
                is_in_force.then_some(())
            });
            wires.iter_mut().for_each(|wire| serves(wire, step));
        }
    }
}
