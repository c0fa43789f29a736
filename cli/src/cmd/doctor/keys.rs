//! Checks the group's keys: the stages and member roots of the replicas, and this caller's own key file.

use std::path::Path;

use trine_base::client::advice;
use trine_base::failure::Failure;
use trine_base::units::plural;
use trine_client::{Obstacle, Report};
use trine_keys::Presented;
use trine_protocol::node_status::{KeysStatus, MemberRoots};
use trine_transport::KeyObstacle;

use super::Finding;
use crate::cmd::status::keys::{difference, of_stage, stages, who};

const KEY_FILE: &str = "key file";
const REPLICAS: &str = "replicas";
const STAGE: &str = "key stage";
const ROOT: &str = "member root";
/// Why callers without a key matter.
const OPEN: &str = "any client that can send packets to such a replica can read and write";

/// Whether the key file of this caller can be used: it is whole, and nobody else may read it.
pub(super) fn file(path: &Path) -> Finding {
    let shown = path.display();
    match Presented::read(path) {
        Ok(_) => Finding::good(KEY_FILE, format!("{shown}, its owner's alone")),
        Err(error) => {
            let error = error.to_string();
            let hint = match error.contains("can be read by others") {
                true => format!("chmod 600 {shown}"),
                false => format!("trine key show {shown}"),
            };
            let why = "no command and no replica accepts it in this state";
            Finding::wrong(KEY_FILE, error, why, &hint)
        }
    }
}

/// What a group at these addresses shows of its keys. `has_key` tells whether it was asked with one.
pub(super) fn group(reports: Result<Vec<Report>, Failure>, has_key: bool) -> Vec<Finding> {
    match reports {
        Err(failure) => vec![Finding::wrong(
            STAGE,
            failure.in_one_line(),
            "the replicas could not be asked",
            "trine status",
        )],
        Ok(reports) => {
            let mut findings = vec![present(&reports), stage(&reports, has_key)];
            findings.extend(refused(&reports));
            findings.extend(root(&reports));
            findings
        }
    }
}

/// Whether anybody is there. Without an answer the other checks of the group find nothing, which is no good sign.
fn present(reports: &[Report]) -> Finding {
    let silent = reports
        .iter()
        .filter(|report| report.answer.is_err())
        .count();
    let all = plural(reports.len() as u64, "replica");
    let found = format!("{} of {all} answered", reports.len() - silent);
    match silent {
        0 => Finding::good(REPLICAS, found),
        _ if silent == reports.len() => Finding::wrong(
            REPLICAS,
            found,
            "the group cannot be examined",
            "trine status    # says why; is the list of --peers right, and is the key?",
        ),
        _ => Finding::better(
            REPLICAS,
            found,
            "each missing replica is one less that may fail",
            "trine status",
        ),
    }
}

fn stage(reports: &[Report], has_key: bool) -> Finding {
    let stages = stages(reports);
    if let Some(which) = difference(&stages) {
        return different(&stages, &which);
    }
    match stages.first() {
        None => Finding::not_here(STAGE, "no replica that answers reports it"),
        Some((_, "require")) => Finding::good(STAGE, "only callers with a key are accepted"),
        Some((_, "accept")) => Finding::better(
            STAGE,
            format!(
                "callers without a key are accepted: {}",
                unsealed(reports, has_key)
            ),
            OPEN,
            "kill -HUP PID    # of each replica, once its settings file says keys = \"require\"; \
             or restart it with --key-stage require, also if it was started with --key-stage",
        ),
        Some(_) => Finding::better(
            STAGE,
            "no replica has a key",
            OPEN,
            "trine key new group.key    # then docs/security.md, \"Getting keys while the group serves\"",
        ),
    }
}

/// How many sessions without a key there are.
fn unsealed(reports: &[Report], has_key: bool) -> String {
    let nodes = reports
        .iter()
        .filter_map(|report| report.answer.as_deref().ok());
    let keys: Vec<&KeysStatus> = nodes.filter_map(|node| node.keys.as_ref()).collect();
    let count = keys.iter().map(|keys| keys.sessions.none).sum();
    let own = if has_key {
        ""
    } else {
        ", with those of this command"
    };
    format!("{} at the moment{own}", plural(count, "session"))
}

/// A part of the group has keys, or requires them. Those that require them take no session of one without.
fn different(stages: &[(String, &str)], which: &str) -> Finding {
    let (without, requiring) = (of_stage(stages, "none"), of_stage(stages, "require"));
    if without.is_empty() {
        let hint = format!(
            "kill -HUP PID    # after keys = \"require\" in the settings file: {}",
            of_stage(stages, "accept").join(", ")
        );
        return Finding::better(STAGE, which, OPEN, &hint);
    }
    let hint = format!(
        "trine serve ... --key FILE --config SETTINGS    # start again: {}; SETTINGS says keys = \"accept\"",
        without.join(", ")
    );
    if requiring.is_empty() {
        return Finding::better(STAGE, which, OPEN, &hint);
    }
    let why = "replicas that require keys reject packets of those without";
    Finding::wrong(STAGE, which, why, &hint)
}

/// Replicas that do not know the key that this caller has.
fn refused(reports: &[Report]) -> Option<Finding> {
    let is_unknown = |obstacle: &&Obstacle| {
        matches!(
            obstacle,
            Obstacle::Key(KeyObstacle::Unknown | KeyObstacle::Wrong) | Obstacle::Denied
        )
    };
    let unknown: Vec<(String, &Obstacle)> = reports
        .iter()
        .filter_map(|report| {
            let obstacle = report.answer.as_ref().err().filter(is_unknown)?;
            Some((who(report, reports), obstacle))
        })
        .collect();
    let (_, first) = *unknown.first()?;
    let names: Vec<&str> = unknown.iter().map(|(who, _)| who.as_str()).collect();
    Some(Finding::wrong(
        ROOT,
        format!("{}: {first}", names.join(", ")),
        "their key file belongs to another group, or this key is not valid",
        advice(*first),
    ))
}

/// Whether all members take each other's sessions; nothing if none has keys.
fn root(reports: &[Report]) -> Option<Finding> {
    let known: Vec<(String, &MemberRoots)> = reports
        .iter()
        .filter_map(|report| {
            let node = report.answer.as_ref().ok()?;
            Some((who(report, reports), node.member_roots.as_ref()?))
        })
        .collect();
    let (_, first) = known.first()?;
    let same_file = "trine key show FILE    # on each host; copy the right file there, and start that replica again";
    for (who, roots) in &known {
        let stranger = known.iter().find(|(_, other)| {
            let groups = roots.group.as_ref().zip(other.group.as_ref());
            groups.is_some_and(|(own, other)| own != other) || !roots.takes(&other.used)
        });
        if let Some((other, _)) = stranger {
            return Some(Finding::wrong(
                ROOT,
                format!("{who} rejects the sessions of {other}"),
                "their key files belong to different groups, or are more than one step of `trine \
                 key rotate` apart",
                same_file,
            ));
        }
    }
    let used = &first.used;
    let is_settled = |roots: &MemberRoots| roots.accepted.is_none() && roots.used == *used;
    if known.iter().all(|(_, roots)| is_settled(roots)) {
        let of = first
            .group
            .as_ref()
            .map_or(String::new(), |group| format!(" of group {group}"));
        return Some(Finding::good(ROOT, format!("all use {used}{of}")));
    }
    Some(Finding::better(
        ROOT,
        "a change of it was started and not finished",
        "the old root is still accepted",
        "trine key rotate FILE    # takes the next step once all agree",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cmd::doctor::Severity;
    use crate::cmd::status::tests::report;

    /// A replica with this stage, which uses the first root and takes the second one, too.
    fn keyed(node_id: u16, stage: &str, used: &str, accepted: Option<&str>) -> Report {
        let mut report = report(node_id, "follower");
        let node = report.answer.as_mut().expect("a status");
        let keys = json!({ "stage": stage, "sessions": { "member": 4, "admin": 1, "user": 0, "none": 2 } });
        node.keys = Some(serde_json::from_value(keys).expect("keys"));
        let roots = json!({ "group": "0102", "step": "", "used": used, "accepted": accepted });
        let roots = serde_json::from_value(roots).expect("roots");
        node.member_roots = (stage != "none").then_some(roots);
        report
    }

    fn found(reports: Vec<Report>, check: &str) -> Finding {
        let findings = group(Ok(reports), true);
        let found = findings.into_iter().find(|finding| finding.check == check);
        found.expect("a finding")
    }

    #[track_caller]
    fn assert_stage(stages: [&str; 2], verdict: Severity, parts: &[&str]) {
        let reports = stages
            .iter()
            .zip(1..)
            .map(|(stage, id)| keyed(id, stage, "a", None));
        let finding = found(reports.collect(), STAGE);
        assert_eq!(finding.verdict, verdict, "{finding}");
        for part in parts {
            assert!(finding.to_string().contains(part), "{part}: {finding}");
        }
    }

    #[test]
    fn each_stage_has_its_finding() {
        use Severity::{Better, Good, Wrong};
        assert_stage(["require", "require"], Good, &["only callers with a key"]);
        let accept = ["4 sessions at the moment", "--key-stage require"];
        assert_stage(["accept", "accept"], Better, &accept);
        assert_stage(["none", "none"], Better, &["trine key new"]);
        let half = ["none: replica 2 (127.0.0.1:7472)", "start again: replica 2"];
        assert_stage(["accept", "none"], Better, &half);
        let late = ["accept: replica 2", "kill -HUP"];
        assert_stage(["require", "accept"], Better, &late);
        let apart = ["require: replica 1", "start again: replica 2"];
        assert_stage(["require", "none"], Wrong, &apart);
    }

    #[test]
    fn roots_that_do_not_fit_are_named() {
        let of = |second: Report| {
            let reports = vec![keyed(1, "require", "a", None), second];
            let finding = found(reports, ROOT);
            (finding.verdict, finding.to_string())
        };
        assert_eq!(of(keyed(2, "require", "a", None)).0, Severity::Good);
        let begun = of(keyed(2, "require", "a", Some("b")));
        assert_eq!(begun.0, Severity::Better, "{}", begun.1);
        let apart = of(keyed(2, "require", "c", None));
        assert_eq!(apart.0, Severity::Wrong);
        assert!(
            apart.1.contains("rejects the sessions of replica 2"),
            "{}",
            apart.1
        );
        let mut stranger = keyed(2, "require", "a", None);
        stranger.answer = Err(Obstacle::Key(KeyObstacle::Unknown));
        let reports = vec![keyed(1, "require", "a", None), stranger];
        let unknown = found(reports, ROOT);
        assert_eq!(unknown.verdict, Severity::Wrong);
        assert!(unknown.to_string().contains("127.0.0.1:7472"), "{unknown}");
    }
}
