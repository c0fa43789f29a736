//! Health: whether the process is alive, and whether the replica can be used.

use std::time::{Duration, Instant};

use trine_protocol::status::Role;

use super::Snapshot;
use trine_base::units::show_count;

/// The loop publishes a snapshot four times a second. A loop without one for this long has stopped.
const LIVE_LIMIT: Duration = Duration::from_secs(10);
/// The same limit for readiness, where a wrong answer costs less.
const READY_LIMIT: Duration = Duration::from_secs(3);
/// Committed entries that a ready replica may still have to apply.
const LAG_MAX: u64 = 10_000;

/// Whether the loop runs.
pub(super) fn live(now: Instant, snapshot: Option<&Snapshot>) -> Result<String, String> {
    match snapshot.map(|snapshot| now.saturating_duration_since(snapshot.taken)) {
        // The endpoint answers before the replica's first turn.
        None => Ok("starting".into()),
        Some(age) if age <= LIVE_LIMIT => Ok("the replica's loop turns".into()),
        Some(age) => Err(format!(
            "the replica's loop has not turned for {} s",
            age.as_secs()
        )),
    }
}

/// Whether the replica belongs to a group, knows its leader and has applied the committed entries; otherwise why not.
/// `waiting` says what a start waits for.
pub(super) fn ready(
    now: Instant,
    snapshot: Option<&Snapshot>,
    waiting: Option<String>,
) -> Result<String, String> {
    let Some(snapshot) = snapshot else {
        return Err(waiting.unwrap_or_else(|| "starting".into()));
    };
    let age = now.saturating_duration_since(snapshot.taken);
    if age > READY_LIMIT {
        return Err(format!(
            "the replica's loop has not turned for {} s",
            age.as_secs()
        ));
    }
    if snapshot.stopping {
        return Err("stopping".into());
    }
    let status = &snapshot.status.replica;
    if let Some(why) = status.complaint() {
        return Err(why);
    }
    if matches!(status.role, Role::Unattached | Role::Joining) {
        return Err("in no group yet".into());
    }
    let Some(leader) = status.leader else {
        return Err("no leader is known".into());
    };
    let lag = status.committed.saturating_sub(status.applied);
    match lag <= LAG_MAX {
        true => Ok(format!("{leader} leads in term {}", status.term)),
        false => Err(format!(
            "{} committed entries still have to be applied",
            show_count(lag)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::text::tests::snapshot;

    #[test]
    fn a_replica_is_ready_when_it_can_be_used_and_says_why_not() {
        let fine = snapshot();
        let now = fine.taken;
        assert!(
            ready(now, Some(&fine), None)
                .expect("ready")
                .contains("leads in term")
        );
        assert!(live(now, Some(&fine)).is_ok());
        type Change = fn(&mut Snapshot);
        let cases: [(Change, &str); 6] = [
            (
                |snapshot| snapshot.status.replica.log.oldest_write_ns = 2_100_000_000,
                "its disk hangs",
            ),
            (|snapshot| snapshot.stopping = true, "stopping"),
            (
                |snapshot| snapshot.status.replica.leader = None,
                "no leader",
            ),
            (
                |snapshot| snapshot.status.replica.role = Role::Joining,
                "no group",
            ),
            (
                |snapshot| snapshot.status.replica.not_serving = Some("no quorum".into()),
                "no quorum",
            ),
            (
                |snapshot| snapshot.status.replica.committed += 1_000_000,
                "entries still have to be",
            ),
        ];
        for (change, part) in cases {
            let mut changed = snapshot();
            change(&mut changed);
            let why = ready(changed.taken, Some(&changed), None).expect_err(part);
            assert!(why.contains(part), "{why}");
            assert!(live(changed.taken, Some(&changed)).is_ok());
        }
        let later = now + LIVE_LIMIT * 2;
        let why = ready(later, Some(&fine), None).expect_err("its loop stands still");
        assert!(why.contains("has not turned"), "{why}");
        assert_eq!(live(later, Some(&fine)), Err(why));
        assert!(ready(now, None, None).is_err() && live(now, None).is_ok());
        let why = ready(now, None, Some("the name r1 has no address yet".into()));
        assert_eq!(why, Err("the name r1 has no address yet".into()));
    }
}
