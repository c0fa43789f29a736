//! Scenarios of a group, one by one. Each is judged by all checkers: linearizable, exactly once, in agreement, live
//! after its last fault.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use trine_chaos::fault::{Event, Fault, FaultSet, LinkFaults, Victim};
use trine_chaos::sim::{Plan, SimConfig, SimReport, Trace, run};
use trine_protocol::message::kind;
use trine_transport::backend::Faults;
use trine_transport::prng::Ratio;
use trine_transport::time::Duration;
use trine_transport::wire::{PacketType, VERSION};

fn group_of(replicas: usize) -> SimConfig {
    let mut config = SimConfig::from_seed(7);
    config.replicas = replicas;
    config.client_machines = 2;
    config.clients_per_machine = 3;
    config.faulty = Duration::from_secs(8);
    config.ask_for_less(500);
    config.forming = millis(1_500);
    config.replica = trine_replica::ReplicaConfig::default();
    config
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn play(config: SimConfig, script: Vec<(Duration, Event)>) -> SimReport {
    play_and_trace(config, script, Trace::Off)
}

fn play_and_trace(
    mut config: SimConfig,
    script: Vec<(Duration, Event)>,
    trace: Trace,
) -> SimReport {
    config.script = Some(script);
    let report = run(config, trace).expect("a sound configuration");
    assert!(report.verdict.is_pass(), "{report}");
    report
}

fn storm(usual: Faults) -> Event {
    Event::LinkFaults(LinkFaults {
        usual,
        ..LinkFaults::default()
    })
}

fn crash(victim: Victim, down: Duration) -> Event {
    Event::Crash { victim, span: down }
}

#[test]
fn a_calm_group_keeps_its_leader_and_answers_everything() {
    let mut config = group_of(3);
    config.pace.hasty = Ratio::ZERO;
    let report = play(config, Vec::new());
    assert_eq!(report.failovers, 0, "{report}");
    assert_eq!(report.tally.completed, report.tally.called, "{report}");
}

#[test]
fn the_leader_dies_and_another_takes_over() {
    let report = play(
        group_of(3),
        vec![(millis(1_000), crash(Victim::Leader, millis(500)))],
    );
    assert!(report.failovers >= 1, "{report}");
}

#[test]
fn every_replica_dies_once_and_comes_back_without_its_memory() {
    let deaths = (0..3).map(|node_id| {
        (
            millis(500 + 2_000 * node_id as u64),
            crash(Victim::Replica(node_id), millis(300)),
        )
    });
    let report = play(group_of(3), deaths.collect());
    assert_eq!(report.faults.values().sum::<u64>(), 3, "{report}");
}

#[test]
fn two_of_five_are_dead_at_the_same_time() {
    let deaths = vec![
        (millis(1_000), crash(Victim::Leader, millis(3_000))),
        (millis(3_000), crash(Victim::Leader, millis(1_000))),
    ];
    let report = play(group_of(5), deaths);
    // A group spares a replica that it cannot do without. The first was still down when the second died.
    assert_eq!(report.faults[&Fault::Crash], 2, "{report}");
    assert!(report.failovers >= 2, "{report}");
}

#[test]
fn a_cut_off_leader_with_clients_beside_it_answers_nothing_stale() {
    let isolate = |at| {
        (
            millis(at),
            Event::IsolateLeader {
                with_clients: true,
                span: millis(900),
            },
        )
    };
    let report = play(
        group_of(3),
        vec![isolate(500), isolate(2_500), isolate(4_500), isolate(6_500)],
    );
    assert!(report.failovers >= 1, "{report}");
}

#[test]
fn a_replica_that_hears_nobody_does_no_harm() {
    // If it leads, it cannot know that it is followed; if not, its campaigns must not disturb.
    let deaf = |from| {
        (
            millis(1_000),
            Event::OneWay {
                from,
                to: 0,
                span: millis(5_000),
            },
        )
    };
    play(group_of(3), vec![deaf(1), deaf(2)]);
}

#[test]
fn the_leader_stands_still_and_wakes_up_deposed() {
    let pause = |at| {
        (
            millis(at),
            Event::Pause {
                victim: Victim::Leader,
                span: millis(800),
            },
        )
    };
    let report = play(group_of(3), vec![pause(1_000), pause(4_000)]);
    assert!(report.failovers >= 1, "{report}");
}

#[test]
fn a_third_of_all_packets_is_lost_all_the_time() {
    let storm = storm(Faults {
        loss: Ratio::percent(30),
        ..Faults::NONE
    });
    play(group_of(3), vec![(millis(0), storm)]);
}

#[test]
fn half_of_all_packets_comes_twice_and_many_are_damaged() {
    let storm = storm(Faults {
        duplicate: Ratio::percent(50),
        corrupt: Ratio::percent(10),
        ..Faults::NONE
    });
    play(group_of(3), vec![(millis(0), storm)]);
}

/// Writes down the numbers of the requests that bring pieces of a snapshot to replica 2, from its last death on. A
/// piece that was lost on its way is sent again under its number.
fn pieces_for_replica_2() -> (Rc<RefCell<BTreeSet<String>>>, Trace) {
    let pieces = Rc::new(RefCell::new(BTreeSet::new()));
    let sink = Rc::clone(&pieces);
    // The trace has headers in hexadecimal: type, request type and request number are bytes 0, 6 and 12 to 17.
    let request = format!("{:02x}", VERSION << 4 | PacketType::Request as u8);
    let snapshot = format!("{:02x}", kind::SNAPSHOT);
    let trace = Trace::To(Box::new(move |line| {
        if line.ends_with(" m1 dies") {
            sink.borrow_mut().clear();
        }
        let words: Vec<&str> = line.split_whitespace().skip(2).collect();
        let ["send", _, "->", "m1", _, "bytes", head] = words[..] else {
            return;
        };
        if head[..2] == request && head[12..14] == snapshot {
            sink.borrow_mut().insert(head[24..36].to_owned());
        }
    }));
    (pieces, trace)
}

#[test]
fn a_returning_replica_fetches_the_state_while_packets_are_lost() {
    let storm = storm(Faults {
        loss: Ratio::percent(10),
        reorder: Ratio::percent(10),
        ..Faults::NONE
    });
    let mut config = group_of(3);
    config.replica.snapshot_chunk_bytes = 1_024;
    config.replica.log_entries_max = 16;
    config.workload.value_bytes = 2_000..=8_000;
    let script = vec![
        (millis(0), storm),
        (millis(2_000), crash(Victim::Replica(1), millis(200))),
    ];
    let (pieces, trace) = pieces_for_replica_2();
    let report = play_and_trace(config, script, trace);
    assert_eq!(report.faults[&Fault::Crash], 1, "{report}");
    // Raft's message is the first piece, and the state follows.
    assert!(pieces.borrow().len() >= 2, "{pieces:?}");
}

#[test]
fn clients_die_with_their_operations_open() {
    let deaths = (0..6).map(|number| {
        (
            millis(500 + number * 1_000),
            Event::ClientCrash {
                machine: (number % 2) as usize,
            },
        )
    });
    play(group_of(3), deaths.collect());
}

#[test]
fn the_minority_side_of_a_partition_serves_nobody_and_harms_nobody() {
    let side = BTreeSet::from([0, 3]);
    play(
        group_of(3),
        vec![(
            millis(1_000),
            Event::Partition {
                side,
                span: millis(3_000),
            },
        )],
    );
}

#[test]
fn clocks_that_run_apart_and_jump_do_no_harm() {
    let drift = |machine, parts_per_million| {
        (
            millis(100),
            Event::Drift {
                machine,
                parts_per_million,
            },
        )
    };
    let jump = |at, machine| {
        (
            millis(at),
            Event::Jump {
                machine,
                span: millis(700),
            },
        )
    };
    play(
        group_of(3),
        vec![
            drift(0, 9_000),
            drift(1, -9_000),
            jump(2_000, 0),
            jump(4_000, 1),
            jump(6_000, 2),
        ],
    );
}

/// Every kind of fault by itself, on a seed of its own: a fault that is asked for by name and does not fire fails the run.
#[test]
fn every_fault_fires_when_it_is_asked_for_alone() {
    for (seed, fault) in (500..).zip(Fault::simulated()) {
        let plan = Plan {
            seed,
            faults: Some(FaultSet(BTreeSet::from([fault]))),
            faulty: Some(Duration::from_secs(16)),
            client_machines: Some(1),
            clients_per_machine: Some(2),
            ..Plan::default()
        };
        let mut config = plan.config().expect("one fault excludes nothing");
        if fault == Fault::Versions {
            // A version changes when a replica comes back.
            config.faults = Some(BTreeSet::from([fault, Fault::Crash]));
        }
        config.workload.value_bytes = 16..=64;
        let report = run(config, Trace::Off).expect("a sound configuration");
        assert!(report.verdict.is_pass(), "{fault}: {report}");
        assert!(report.faults[&fault] > 0, "{fault}: {report}");
    }
}

/// A trace showed sent and arrived packets, but neither the reason for a loss nor what the clients saw.
#[test]
fn a_trace_says_why_a_packet_is_lost_and_what_clients_call_and_are_told() {
    let mut config = SimConfig::from_seed(3);
    config.faulty = Duration::from_secs(3);
    config.faults = Some([Fault::Loss, Fault::Duplication, Fault::Delay].into());
    config.ask_for_less(1);
    let lines = Rc::new(RefCell::new(Vec::new()));
    let sink = Rc::clone(&lines);
    let trace = Trace::To(Box::new(move |line| {
        sink.borrow_mut().push(line.to_owned())
    }));
    let traced = run(config.clone(), trace).expect("a sound configuration");
    for words in [
        &["lost m", ": loss"][..],
        &["fate m", ": dup, arrives at"],
        &["fate m", ": delay, arrives at"],
        &[" calls client ", " get "],
        &[" is answered client ", " get ", " -> ", "position"],
    ] {
        let lines = lines.borrow();
        let says = |line: &&String| words.iter().all(|word| line.contains(word));
        assert!(lines.iter().any(|line| says(&line)), "{words:?}");
    }
    // A trace changes nothing in the run.
    let unseen = run(config, Trace::Off).expect("a sound configuration");
    assert_eq!(traced.hash, unseen.hash);
    assert_eq!(traced.packets, unseen.packets);
}
