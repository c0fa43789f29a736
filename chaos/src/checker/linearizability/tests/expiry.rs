//! Hand-made histories of items that live for a time, good and bad.

use super::*;
use crate::checker::group_time::{GroupTime, Steady};

/// A put of `value` for 100 ns.
fn put_for(call: u64, ret: u64, value: &str) -> Operation {
    let action = Action::PutFor {
        value: value.into(),
        ttl_ns: 100,
    };
    operation(
        6,
        call,
        Some(ret),
        action,
        Answer::Written { version: None },
    )
}

fn put_for_unknown(call: u64, value: &str) -> Operation {
    let action = Action::PutFor {
        value: value.into(),
        ttl_ns: 100,
    };
    operation(6, call, None, action, Answer::Refused)
}

/// From 1,000 ns on the group serves, and a key is gone 10 ns after its time.
fn time() -> GroupTime {
    GroupTime {
        steady: Some(Steady {
            from_ns: 1_000,
            late_ns: 10,
        }),
        ..GroupTime::default()
    }
}

fn judge_timed(operations: Vec<Operation>, time: &GroupTime) -> Verdict {
    let history = History::from_operations(operations);
    check_timed(&history, Limits::default(), time).verdict
}

fn good_timed(operations: Vec<Operation>) {
    let verdict = judge_timed(operations, &time());
    assert!(verdict.is_pass(), "{verdict}");
}

fn bad_timed(promise: &str, operations: Vec<Operation>) {
    match judge_timed(operations, &time()) {
        Verdict::Violation(violation) => {
            assert!(violation.explanation.contains(promise), "{violation}")
        }
        other => panic!("expected a violation, got: {other}"),
    }
}

const EARLY: &str = "gone before its time";
const LATE: &str = "outlived its time";
const ORDER: &str = "not linearizable";

#[test]
fn a_key_is_there_for_its_time_and_gone_after_it() {
    good_timed(vec![put_for(10, 20, "a"), get(30, 100, "a")]);
    good_timed(vec![put_for(10, 20, "a"), get_nothing(105, 111)]);
    bad_timed(EARLY, vec![put_for(10, 20, "a"), get_nothing(30, 109)]);
    good_timed(vec![put_for(2_010, 2_020, "a"), get(2_129, 2_140, "a")]);
    bad_timed(
        LATE,
        vec![put_for(2_010, 2_020, "a"), get(2_132, 2_140, "a")],
    );
}

#[test]
fn the_violation_shows_the_write_whose_time_it_was() {
    let operations = vec![put_for(10, 20, "a"), get_nothing(30, 40)];
    let Verdict::Violation(violation) = judge_timed(operations.clone(), &time()) else {
        panic!("gone before its time");
    };
    assert_eq!(violation.operations, operations);
}

#[test]
fn before_the_group_serves_for_good_a_key_may_live_on() {
    good_timed(vec![put_for(10, 20, "a"), get(900, 910, "a")]);
    good_timed(vec![put_for(10, 20, "a"), get(1_109, 1_110, "a")]);
    bad_timed(LATE, vec![put_for(10, 20, "a"), get(1_112, 1_113, "a")]);
}

#[test]
fn what_has_expired_never_comes_back() {
    bad_timed(
        ORDER,
        vec![
            put_for(10, 20, "a"),
            get_nothing(200, 210),
            get(220, 230, "a"),
        ],
    );
    bad_timed(
        ORDER,
        vec![
            put(1, 2, "old"),
            put_for(10, 20, "a"),
            get(30, 40, "a"),
            get(220, 230, "old"),
        ],
    );
}

#[test]
fn a_put_takes_the_time_away_and_a_second_one_starts_again() {
    good_timed(vec![
        put_for(10, 20, "a"),
        put(30, 40, "b"),
        get(3_000, 3_010, "b"),
    ]);
    bad_timed(
        ORDER,
        vec![
            put_for(10, 20, "a"),
            put(30, 40, "b"),
            get_nothing(3_000, 3_010),
        ],
    );
    bad_timed(
        EARLY,
        vec![
            put_for(10, 20, "a"),
            put_for(90, 95, "b"),
            get_nothing(130, 140),
        ],
    );
}

#[test]
fn cas_and_incr_leave_the_item_its_time() {
    let first = || versioned(put_for(2_010, 2_020, "a"), 7);
    let swapped = || cas(2_030, 2_040, Some(7), "b", 9);
    good_timed(vec![first(), swapped(), get_nothing(2_200, 2_210)]);
    bad_timed(LATE, vec![first(), swapped(), get(2_200, 2_210, "b")]);
    bad_timed(EARLY, vec![first(), swapped(), get_nothing(2_050, 2_060)]);
    let number = || put_for(2_010, 2_020, "5");
    good_timed(vec![
        number(),
        incr(2_030, 2_040, 6),
        incr(2_200, 2_210, 1),
        incr(9_000, 9_010, 2),
    ]);
    bad_timed(
        LATE,
        vec![number(), incr(2_030, 2_040, 6), incr(2_200, 2_210, 7)],
    );
    bad_timed(
        EARLY,
        vec![number(), incr(2_030, 2_040, 6), incr(2_050, 2_060, 1)],
    );
}

#[test]
fn a_deleted_or_expired_key_is_not_there_to_be_deleted_again() {
    good_timed(vec![
        put_for(10, 20, "a"),
        delete(30, 40, true),
        delete(130, 140, false),
    ]);
    good_timed(vec![
        put_for(2_010, 2_020, "a"),
        delete(2_200, 2_210, false),
    ]);
    bad_timed(
        LATE,
        vec![put_for(2_010, 2_020, "a"), delete(2_200, 2_210, true)],
    );
    bad_timed(
        EARLY,
        vec![put_for(2_010, 2_020, "a"), delete(2_030, 2_040, false)],
    );
}

#[test]
fn an_unknown_write_ends_too_once_it_was_seen() {
    let unknown = || put_for_unknown(2_010, "a");
    good_timed(vec![
        unknown(),
        get_nothing(2_500, 2_510),
        get(2_900, 2_910, "a"),
    ]);
    good_timed(vec![
        unknown(),
        get(2_900, 2_910, "a"),
        get_nothing(2_915, 2_920),
    ]);
    bad_timed(
        LATE,
        vec![unknown(), get(2_900, 2_910, "a"), get(3_100, 3_110, "a")],
    );
    bad_timed(
        EARLY,
        vec![unknown(), get(2_020, 2_030, "a"), get_nothing(2_040, 2_050)],
    );
}

#[test]
fn wrong_clocks_are_allowed_for_as_far_as_they_go() {
    let history = || vec![put_for(10, 20, "a"), get_nothing(80, 95)];
    let wrong = |drift_per_million, jumps_ns: &[(u64, u64)]| GroupTime {
        drift_per_million,
        jumps_ns: jumps_ns.to_vec(),
        ..time()
    };
    assert!(!judge_timed(history(), &wrong(0, &[])).is_pass());
    assert!(!judge_timed(history(), &wrong(100_000, &[])).is_pass());
    assert!(judge_timed(history(), &wrong(250_000, &[])).is_pass());
    assert!(judge_timed(history(), &wrong(0, &[(50, 20)])).is_pass());
    assert!(!judge_timed(history(), &wrong(0, &[(50, 10)])).is_pass());
    assert!(!judge_timed(history(), &wrong(0, &[(96, 90)])).is_pass());
}

/// The positions are proof enough: no search is needed.
fn proved_by_positions(operations: Vec<Operation>) {
    let report = check_timed(
        &History::from_operations(operations),
        Limits::default(),
        &time(),
    );
    assert!(report.verdict.is_pass(), "{}", report.verdict);
    assert_eq!(report.keys_by_witness, 1);
}

/// The positions prove it in the order of the log: nothing has a position at which a key expires.
#[test]
fn positions_prove_histories_with_expiries() {
    let operations = vec![
        at(put_for(2_010, 2_020, "a"), 10),
        at(get(2_030, 2_040, "a"), 12),
        at(get_nothing(2_115, 2_125), 14),
        at(put(2_120, 2_130, "b"), 16),
        at(get(9_000, 9_010, "b"), 18),
    ];
    proved_by_positions(operations);
}

/// A write of unknown outcome, for next to no time.
fn brief_unknown(call_ns: u64, value: &str) -> Operation {
    Operation {
        action: Action::PutFor {
            value: value.as_bytes().to_vec(),
            ttl_ns: 5,
        },
        ..put_for_unknown(call_ns, value)
    }
}

/// Seed 161: the item at that place in the order of the positions could not have expired yet. An unknown write for a
/// short time, and its end, explain the read. The witness took the item's own end, failed, and the search found no end.
#[test]
fn an_expiry_that_comes_too_late_explains_no_answer() {
    let operations = vec![
        at(put_for(2_010, 2_020, "a"), 10),
        brief_unknown(2_025, "b"),
        at(get_nothing(2_050, 2_060), 14),
    ];
    proved_by_positions(operations);
}

/// Seed 497: the read that found nothing was answered so late that the item could have expired by then. But a write
/// behind it in the order of the positions had been answered before. The witness let the item expire, which
/// contradicted real time.
#[test]
fn an_expiry_that_a_later_position_rules_out_explains_no_answer() {
    proved_by_positions(vec![
        at(put_for(2_010, 2_020, "a"), 10),
        brief_unknown(2_025, "b"),
        at(get_nothing(2_050, 2_400), 14),
        at(put(2_060, 2_070, "c"), 16),
    ]);
}

/// The order of the positions does not show that the key has outlived its time; the clock does.
#[test]
fn consistent_positions_do_not_hide_a_key_that_outlives_its_time() {
    bad_timed(
        LATE,
        vec![
            at(put_for(2_010, 2_020, "a"), 10),
            at(get(2_200, 2_210, "a"), 12),
        ],
    );
}

/// Seed 1818 of the simulator: a key was absent, and one of several writes of unknown outcome may have been there before.
/// The order of positions took the first of them, which a later answer needed. The search did not find the way out.
#[test]
fn a_write_that_a_later_answer_shows_does_not_explain_an_absence() {
    let operations = vec![
        at(put(1, 5, "7"), 1),
        put_for_unknown(10, "1000"),
        put_for_unknown(12, "2000"),
        at(get_nothing(300, 310), 2),
        at(incr(320, 330, 1001), 3),
    ];
    let history = History::from_operations(operations);
    let report = check_timed(&history, Limits::default(), &time());
    assert!(report.verdict.is_pass(), "{}", report.verdict);
    assert_eq!(report.keys_by_witness, 1);
}

/// Found by reading: the order of positions let an INCR of unknown outcome change an item that had to be gone before the INCR
/// was called, and let a read without a position find one.
#[test]
fn neither_a_lost_write_nor_a_read_without_a_position_finds_an_item_after_its_time() {
    let lost = operation(7, 2_200, None, Action::Incr { by: 1 }, Answer::Refused);
    bad_timed(
        LATE,
        vec![
            at(put_for(2_010, 2_020, "5"), 10),
            lost,
            at(get(2_100, 2_300, "6"), 12),
        ],
    );
    bad_timed(
        LATE,
        vec![at(put_for(2_010, 2_020, "a"), 10), get(2_200, 2_210, "a")],
    );
}
