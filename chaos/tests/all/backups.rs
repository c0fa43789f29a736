//! A machine takes backups while faults happen, and another group begins with the last one: each file is the state of its
//! position, the new group begins with exactly that, and planted bugs of both are found.

use trine_chaos::sim::SimReport;

use super::short;

fn simulate(seed: u64) -> SimReport {
    // A group that is restored from a backup begins at known places.
    short::simulate(seed, |config| {
        (config.backups, config.moves) = (true, false);
    })
}

#[test]
fn each_backup_is_the_state_of_its_position_and_a_group_begins_with_the_last() {
    let (mut whole, mut of_followers, mut resumed, mut restored) = (0, 0, 0, 0);
    for report in (1..6).map(simulate) {
        assert!(report.verdict.is_pass(), "{report}");
        whole += report.backups.whole;
        of_followers += report.backups.of_followers;
        resumed += report.backups.resumed;
        restored += u64::from(report.backups.restored_operations > 0);
    }
    assert!(
        whole > 15 && of_followers > 8 && resumed > 0 && restored == 5,
        "{whole} {of_followers} {resumed} {restored}"
    );
}

#[test]
fn a_run_with_backups_replays_byte_for_byte() {
    let (one, again) = (simulate(6), simulate(6));
    assert!(one.backups.restored_operations > 0, "{one}");
    assert_eq!((one.hash, one.backups), (again.hash, again.backups));
    assert_eq!((one.packets, one.turns), (again.packets, again.turns));
}

#[cfg(debug_assertions)]
#[track_caller]
fn finds(bug: &'static str, words: &str, from: u64) {
    short::finds(bug, words, from..from + 100, simulate);
}

#[test]
#[cfg(debug_assertions)]
fn a_backup_that_misses_what_was_acknowledged_is_found() {
    finds(
        "a backup of a follower that lags",
        "a backup misses what was acknowledged",
        20,
    );
}

#[test]
#[cfg(debug_assertions)]
fn a_resumed_backup_that_misses_a_piece_is_found() {
    finds(
        "a resumed backup skips a piece",
        "a whole backup cannot be restored",
        1,
    );
}

#[test]
#[cfg(debug_assertions)]
fn a_restored_group_that_gives_old_positions_again_is_found() {
    finds(
        "a restore gives old positions again",
        "a position of the old group comes again",
        1,
    );
}

#[test]
#[cfg(debug_assertions)]
fn a_restored_group_that_answers_old_clients_is_found() {
    finds(
        "a restore goes on in the old cluster",
        "answered a client of the old one",
        1,
    );
}
