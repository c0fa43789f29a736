//! The page of a good run and of a bad one.

use std::collections::BTreeMap;

use trine_chaos::checker::{coverage, exactly_once, linearizability};
use trine_chaos::fault::{Strike, Victim};
use trine_chaos::history::{Action, Answer};
use trine_transport::time::Duration;

use super::super::Verdicts;
use super::super::schedule::Planned;
use super::super::timeline::Led;
use super::*;
use crate::ChaosArguments;
use crate::args;
use trine_base::html::well_formed::assert_well_formed;

const MS: u64 = 1_000_000;

fn arguments() -> ChaosArguments {
    args::parse(["--seed", "7"]).expect("parses")
}

/// Client 1 writes one value after the other; the last read, by client 2, begins after all of them.
fn history(read: &str) -> History {
    let mut history = History::new();
    // This operation never gets an answer.
    history.call(0, 6 * MS, b"other", Action::Delete);
    for number in 1..=40_u64 {
        let (called, value) = (number * 10 * MS, format!("<v{number}>").into_bytes());
        let index = history.call(1, called, b"k", Action::Put { value });
        let version = Some(number << 16);
        history.complete(index, called + 9 * MS, Answer::Written { version }, version);
    }
    let index = history.call(2, 500 * MS, b"k", Action::Get);
    let value = read.as_bytes().to_vec();
    let answer = Answer::Value {
        value,
        version: None,
    };
    history.complete(index, 501 * MS, answer, None);
    history
}

fn timeline() -> Timeline {
    let at = |ms: u64| Instant::from_nanos(ms * MS);
    let planned = Planned {
        at: Duration::from_millis(200),
        kind: Fault::Pause,
        victim: Victim::Leader,
        hold: Duration::from_millis(50),
        strike: Strike::Pause,
        named: true,
    };
    let led = |ms, node_id| Led {
        at: at(ms),
        node_id,
        term: ms,
    };
    Timeline {
        begun: at(5),
        faults: vec![Done {
            planned,
            what: "paused <replica> 1".into(),
            node_ids: vec![1],
            begun: at(200),
            ended: at(250),
            whole: at(300),
            fired: true,
        }],
        leads: vec![led(1, 1), led(220, 3)],
        missed: vec![planned],
    }
}

fn page_of(history: &History) -> String {
    let arguments = arguments();
    let verdicts = Verdicts {
        linearizability: linearizability::check(history),
        exactly_once: exactly_once::check(history),
        coverage: coverage::check(history, &coverage::Required::default()),
    };
    page(&LiveReport {
        arguments: &arguments,
        history,
        counts: BTreeMap::from([("pause".to_owned(), 1)]),
        failovers: Vec::new(),
        verdicts,
        aborted: None,
        upgrade: None,
        timeline: &timeline(),
        schedule: &[],
        skipped: &[],
        addresses: 3,
    })
}

#[test]
fn the_page_is_well_formed_and_needs_nothing_from_elsewhere() {
    for history in [history("<v40>"), history("<v3>"), History::new()] {
        let page = page_of(&history);
        assert_well_formed(&page);
        for outside in ["http://", "https://", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(!page.contains("<v3>") && !page.contains("<replica>"));
    }
    let page = page_of(&history("<v40>"));
    assert!(page.contains("PASS") && !page.contains("What is wrong"));
    assert_eq!(page.matches("role=\"img\"").count(), 4);
    assert!(page.contains("paused &lt;replica&gt; 1") && page.contains("replica 3 leads"));
}

/// The read of an old value is drawn with the writes that prove it old, and nothing else is.
#[test]
fn a_violation_is_drawn_with_the_few_operations_that_show_it() {
    let page = page_of(&history("<v3>"));
    assert!(page.contains("FAIL") && page.contains("not linearizable"));
    assert_eq!(page.matches("role=\"img\"").count(), 5);
    let drawn = page.split("What is wrong").nth(1).expect("a heading");
    let drawn = drawn.split("</svg>").next().expect("a drawing");
    let bars = drawn.matches("<rect").count();
    assert!((2..=4).contains(&bars), "{bars} operations");
    assert!(
        drawn.contains("get k -&gt;") && drawn.contains("put k"),
        "{drawn}"
    );
    assert!(drawn.contains("client 1") && drawn.contains("client 2"));
}
