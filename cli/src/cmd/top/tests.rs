//! The screen at two sizes, cell by cell. `TRINE_UPDATE_SCREENS=1 cargo test -p trine top` rewrites the files.

use std::path::Path;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;
use trine_client::Obstacle;
use trine_client::Report;
use trine_protocol::node_status::NodeStatus;
use trine_protocol::status::ReceivingStatus;

use super::model::{Action, Dialog, KeyPress, Model, ReplicaRow};
use super::view;
use crate::observe::Sample;

/// The status of replica `node_id` after so many writes. The leader has sampled each thousandth in a fast class, and one
/// of 50,000 in a slow class.
pub(in crate::cmd) fn node(node_id: u16, writes: u64) -> Box<NodeStatus> {
    let leads = node_id == 1;
    let member = |of: u16| {
        json!({
            "replica": of, "incarnation": format!("life-{of}"), "address": address(of), "voter": true,
            "this": of == node_id, "matched": null, "in_snapshot": false, "silent_ns": 1000,
            "lag": leads.then_some(u64::from(of - 1) * 3),
        })
    };
    let link = |to: u16| {
        json!({
            "address": address(to), "class": "raft", "state": "up", "sessions_lost": 0,
            "rtt_ns": 21_000 + u64::from(to) * 1_000, "rtt_ns_min": 9_400, "retransmissions": u64::from(to),
            "credits": 32, "credits_in_use": to, "credit_stalls": 0, "rto_ns": 5_000_000,
            "rate_bytes_per_second": 1_250_000_000_u64, "packet_bytes": 1_232,
        })
    };
    let zero = |names: &[&str]| -> serde_json::Map<String, serde_json::Value> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), 0.into()))
            .collect()
    };
    let mut counters = zero(&[
        "entries_proposed",
        "commands_applied",
        "reads_stale",
        "read_rounds",
        "busy",
        "redirected",
        "messages_refused",
        "messages_foreign",
        "messages_unsent",
        "elections_won",
        "snapshots_sent",
        "snapshots_installed",
        "snapshots_failed",
    ]);
    let led = if leads { writes } else { 0 };
    counters.insert("writes_proposed".into(), led.into());
    counters.insert("reads_linearizable".into(), (led / 2).into());
    let stage = |bits: usize| {
        let mut classes = vec![0; bits + 4];
        (classes[bits], classes[bits + 3]) = (led / 1_000, led / 50_000);
        json!({ "count": 0, "sum_ns": 0, "classes": classes })
    };
    let status = json!({
        "replica": {
            "replica": node_id, "incarnation": format!("life-{node_id}"), "cluster": "c0ffee",
            "address": address(node_id), "role": if leads { "leader" } else { "follower" },
            "not_serving": null, "term": 7, "leader_address": address(1), "committed": writes, "applied": writes,
            "group_time_ns": 0, "members": [member(1), member(2), member(3)], "change_in_progress": false,
            "log": zero(&["first_index", "last_index", "entries", "bytes", "compactions"]),
            "sessions": zero(&["open", "closed", "reply_bytes", "evicted", "refused", "duplicates"]),
            "store": { "keys": 12_345, "logical_bytes": 1 << 20, "memory_bytes": 1 << 30 },
            "counters": counters,
            "stages": { "queue": stage(11), "append": stage(12), "quorum": stage(15), "apply": stage(10) },
        },
        "links": (1..=3).filter(|to| *to != node_id).map(link).collect::<Vec<_>>(),
        "transport": {
            "sessions_server": 2, "sessions_client": 2, "packets_sent": 10, "packets_received": 10,
            "retransmissions": writes / 100_000, "packets_dropped": 0,
        },
        "keys": { "stage": "require", "sessions": { "member": 4, "admin": 1, "user": 12_000, "none": 0 } },
    });
    Box::new(serde_json::from_value(status).expect("a status"))
}

fn address(node_id: u16) -> String {
    format!("127.0.0.1:{}", 7470 + node_id)
}

fn sample(at: Instant, writes: u64) -> Sample {
    let report = |node_id: u16| Report {
        address: address(node_id).parse().expect("an address"),
        answer: match node_id {
            3 if writes > 1_000_000 => Err(Obstacle::NoConnection),
            _ => Ok(node(node_id, writes)),
        },
    };
    Sample {
        at,
        reports: (1..=3).map(report).collect(),
    }
}

/// A group that was polled every second while it wrote more and more. In the end a replica falls silent.
fn model() -> Model {
    let mut model = Model::new();
    let (begun, mut writes) = (Instant::now(), 0);
    for second in 0..10 {
        model.on_sample(sample(begun + Duration::from_secs(second), writes));
        writes += 123_456 * (1 + second % 4);
    }
    model
}

fn drawn(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("cells in memory");
    terminal
        .draw(|frame| view::draw(frame, model))
        .expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
    let lines: Vec<String> = (0..height).map(|y| line(y).trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

#[track_caller]
fn assert_screen(model: &Model, name: &str, width: u16, height: u16) {
    let drawn = drawn(model, width, height);
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/cmd/top/screens")
        .join(name);
    if std::env::var_os("TRINE_UPDATE_SCREENS").is_some() {
        std::fs::write(&path, &drawn).expect("a writable file");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(drawn == stored, "{name} is not what is drawn now:\n{drawn}");
}

#[test]
fn the_screen_is_as_it_was_reviewed() {
    let mut model = model();
    assert_screen(&model, "80x24.txt", 80, 24);
    assert_screen(&model, "200x50.txt", 200, 50);
    model.on_key(KeyPress::Char('?'));
    assert_screen(&model, "help-80x24.txt", 80, 24);
    assert_screen(&Model::new(), "empty-80x24.txt", 80, 24);
}

#[test]
fn no_size_of_a_terminal_breaks_the_screen() {
    let mut model = model();
    model.on_key(KeyPress::Char('?'));
    for (width, height) in [(1, 1), (1, 60), (300, 2), (20, 10), (79, 23)] {
        assert_eq!(
            drawn(&model, width, height).lines().count(),
            usize::from(height)
        );
    }
}

#[test]
fn the_lead_is_transferred_to_the_selected_replica_after_a_yes_alone() {
    let mut model = model();
    model.on_key(KeyPress::Up);
    model.on_key(KeyPress::Down);
    assert_eq!(model.on_key(KeyPress::Char('t')), Action::None);
    assert_eq!(model.dialog, Dialog::Confirm(Action::Transfer(2)));
    assert_eq!(model.on_key(KeyPress::Char('n')), Action::None);
    model.on_key(KeyPress::Char('t'));
    assert_eq!(model.on_key(KeyPress::Char('y')), Action::Transfer(2));
    for _ in 0..5 {
        model.on_key(KeyPress::Down);
    }
    assert_eq!(model.selected, 2);
    model.on_key(KeyPress::Char('t'));
    assert_eq!(model.dialog, Dialog::None, "a silent replica cannot lead");
    assert!(model.message.contains("does not answer"));
    assert_eq!(model.on_key(KeyPress::CtrlC), Action::Quit);
}

/// Faults need fault injection, a replica that answers, and a confirmation. Healing needs none of these.
#[test]
fn faults_are_injected_only_with_fault_injection_and_after_a_yes() {
    let mut outside = model();
    outside.on_key(KeyPress::Char('s'));
    assert_eq!(outside.dialog, Dialog::None);
    assert!(
        outside.message.contains("--fault-injection"),
        "{}",
        outside.message
    );

    let mut model = with_faults(model());
    assert_eq!(model.on_key(KeyPress::Char('s')), Action::None);
    assert_eq!(model.on_key(KeyPress::Escape), Action::None);
    model.on_key(KeyPress::Char('s'));
    assert_eq!(model.on_key(KeyPress::Char('y')), Action::Stop(1));

    model.on_key(KeyPress::Char('b'));
    assert_eq!(model.dialog, Dialog::OtherEnd { from: 1, typed: 0 });
    model.on_key(KeyPress::Char('1'));
    assert_eq!(model.dialog, Dialog::None, "a link has two ends");
    assert!(model.message.contains("not another replica"));
    model.on_key(KeyPress::Char('b'));
    model.on_key(KeyPress::Char('2'));
    assert_screen(&model, "faults-block-80x24.txt", 80, 24);
    assert_eq!(model.on_key(KeyPress::Char('y')), Action::Block(1, 2));
    model.on_key(KeyPress::Down);
    model.on_key(KeyPress::Down);
    model.on_key(KeyPress::Char('s'));
    assert!(model.message.contains("does not answer"));
    assert_eq!(model.on_key(KeyPress::Char('c')), Action::Heal);
    model.on_key(KeyPress::Char('?'));
    assert_screen(&model, "faults-help-80x24.txt", 80, 24);
}

/// Before: the first digit was the whole number. In a group of twelve, `12` blocked the link to replica 1.
#[test]
fn the_other_end_of_a_link_may_have_a_number_of_two_digits() {
    let mut model = Model::with_faults();
    let row = |node_id| ReplicaRow {
        node_id: Some(node_id),
        cells: Default::default(),
    };
    model.replicas = (1..=12).map(row).collect();
    model.selected = 1;
    let press = |model: &mut Model, keys: &str| {
        for key in keys.chars() {
            let key = match key {
                '\n' => KeyPress::Enter,
                '<' => KeyPress::Backspace,
                '\u{1b}' => KeyPress::Escape,
                key => KeyPress::Char(key),
            };
            assert_eq!(model.on_key(key), Action::None);
        }
    };
    press(&mut model, "b1");
    assert_eq!(model.dialog, Dialog::OtherEnd { from: 2, typed: 1 });
    let screen = drawn(&model, 80, 24);
    let foot = " Block the link of replica 2 to which other one? 1_  Enter confirms, Esc cancels\n";
    assert!(screen.ends_with(foot), "{screen}");
    press(&mut model, "2");
    assert_eq!(model.on_key(KeyPress::Char('y')), Action::Block(2, 12));
    for (keys, to) in [
        ("b1\n", 1),
        ("b3", 3),
        ("b1<3", 3),
        ("b<\u{1b}b11", 11),
        ("b10", 10),
    ] {
        press(&mut model, keys);
        let asked = Dialog::Confirm(Action::Block(2, to));
        assert_eq!(model.dialog, asked, "{keys:?}");
        press(&mut model, "n");
    }
    for keys in ["b\u{1b}", "b\n", "b1\u{1b}", "b1x", "b1<<\n"] {
        press(&mut model, keys);
        assert_eq!(model.dialog, Dialog::None, "{keys:?}");
        assert_eq!(model.message, "", "{keys:?}");
    }
    for (keys, number) in [("b2", "2"), ("b19", "19"), ("b13", "13")] {
        press(&mut model, keys);
        assert_eq!(model.dialog, Dialog::None, "{keys:?}");
        let said = format!("{number} is not another replica that answers");
        assert_eq!(model.message, said, "{keys:?}");
    }
    model.selected = 0;
    press(&mut model, "b1\n");
    assert_eq!(model.message, "1 is not another replica that answers");
}

/// The same screen with the keys of fault injection and one paused replica.
fn with_faults(mut model: Model) -> Model {
    model.fault_injection = true;
    model.faults = "3 is paused".to_owned();
    model
}

#[test]
fn a_paused_screen_stays_as_it_is() {
    let mut model = model();
    model.on_key(KeyPress::Char('p'));
    let before = drawn(&model, 80, 24);
    model.on_sample(sample(Instant::now(), 0));
    assert_eq!(drawn(&model, 80, 24), before);
    model.on_key(KeyPress::Char('p'));
    model.on_sample(sample(Instant::now(), 0));
    assert_ne!(drawn(&model, 80, 24), before);
}

/// It always showed "joining", whatever the progress of the group's state was.
#[test]
fn a_replica_that_is_sent_the_state_says_how_far_it_is() {
    let mut model = Model::new();
    let mut first = sample(Instant::now(), 0);
    let newcomer = first.reports[1].answer.as_mut().expect("it answers");
    newcomer.replica.receiving = Some(ReceivingStatus {
        bytes: 3 << 20,
        bytes_total: 4 << 20,
    });
    model.on_sample(first);
    let screen = drawn(&model, 80, 24);
    let line = screen.lines().find(|line| line.contains("127.0.0.1:7472"));
    assert!(line.expect("its row").contains(" gets 75 % "), "{screen}");
}
