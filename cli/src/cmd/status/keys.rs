//! The lines of a status about keys: which callers the replicas take, and who is connected in which role. They also tell of
//! a change of the member root that is under way, and of a file that was not taken.

use trine_base::output::Table;
use trine_base::units::show_count;
use trine_client::{Obstacle, Report};
use trine_protocol::node_status::{KeysStatus, MemberRoots, NodeStatus};
use trine_transport::KeyObstacle;

use super::node_id_at;

/// Users that a line names.
const USERS_NAMED: usize = 4;

/// A line for each replica: its stage, and the sessions of others by role. Nothing if no replica tells.
pub(super) fn view(reports: &[Report]) -> Option<String> {
    let known: Vec<(&NodeStatus, &KeysStatus)> = reports
        .iter()
        .filter_map(|report| report.answer.as_deref().ok())
        .filter_map(|node| Some((node, node.keys.as_ref()?)))
        .collect();
    if known.is_empty() {
        return None;
    }
    if known.iter().all(|(_, keys)| keys.stage == "none") {
        return Some(
            "keys: none; any client that can send packets to the replicas can read and write"
                .to_owned(),
        );
    }
    let mut table = Table::new([
        "keys of", "stage", "group", "member", "admin", "user", "no key", "users",
    ]);
    known
        .iter()
        .for_each(|(node, keys)| table.row(row(node, keys)));
    Some(table.to_string())
}

fn row(node: &NodeStatus, keys: &KeysStatus) -> [String; 8] {
    let group = node
        .member_roots
        .as_ref()
        .and_then(|roots| roots.group.clone());
    let sessions = &keys.sessions;
    [
        node.replica.node_id.to_string(),
        keys.stage.clone(),
        group.unwrap_or_else(|| "-".to_owned()),
        show_count(sessions.member),
        show_count(sessions.admin),
        show_count(sessions.user),
        show_count(sessions.none),
        users(keys),
    ]
}

/// `bob 2, alice 1, ...`
fn users(keys: &KeysStatus) -> String {
    let mut named: Vec<String> = keys
        .users
        .iter()
        .take(USERS_NAMED)
        .map(|user| format!("{} {}", user.name, user.sessions))
        .collect();
    if keys.users.len() > USERS_NAMED {
        named.push("...".to_owned());
    }
    named.join(", ")
}

/// The stage of each replica that tells it, or shows it by how it refuses this caller.
pub(in crate::cmd) fn stages(reports: &[Report]) -> Vec<(String, &str)> {
    reports
        .iter()
        .filter_map(|report| Some((who(report, reports), stage_of(report)?)))
        .collect()
}

fn stage_of(report: &Report) -> Option<&str> {
    match &report.answer {
        Ok(node) => Some(node.keys.as_ref()?.stage.as_str()),
        Err(Obstacle::Key(KeyObstacle::NotTaken)) => Some("none"),
        Err(Obstacle::Key(KeyObstacle::Required)) => Some("require"),
        Err(_) => None,
    }
}

/// `replica 3 (127.0.0.1:7473)`
pub(in crate::cmd) fn who(report: &Report, reports: &[Report]) -> String {
    match node_id_at(report.address, reports) {
        Some(node_id) => format!("replica {node_id} ({})", report.address),
        None => format!("the replica at {}", report.address),
    }
}

/// Which replicas have which stage, if these differ.
pub(in crate::cmd) fn difference(stages: &[(String, &str)]) -> Option<String> {
    let (_, first) = stages.first()?;
    if stages.iter().all(|(_, stage)| stage == first) {
        return None;
    }
    let each = ["none", "accept", "require"].map(|stage| (stage, of_stage(stages, stage)));
    let each: Vec<String> = each
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(stage, names)| format!("{stage}: {}", names.join(", ")))
        .collect();
    Some(each.join("; "))
}

/// The replicas with this stage.
pub(in crate::cmd) fn of_stage<'a>(stages: &'a [(String, &str)], stage: &str) -> Vec<&'a str> {
    stages
        .iter()
        .filter(|(_, of)| *of == stage)
        .map(|(who, _)| who.as_str())
        .collect()
}

/// A line for each thing that somebody has to do.
pub(super) fn complaints(reports: &[Report]) -> Vec<String> {
    let nodes = reports
        .iter()
        .filter_map(|report| report.answer.as_deref().ok());
    let known: Vec<(&NodeStatus, &MemberRoots)> = nodes
        .filter_map(|node| Some((node, node.member_roots.as_ref()?)))
        .collect();
    let not_taken = known.iter().filter_map(|(node, roots)| {
        let why = roots.not_taken.as_deref()?;
        Some(format!(
            "{}: its key file was rejected: {why}",
            node.replica.address
        ))
    });
    let differ = difference(&stages(reports)).map(|which| {
        format!(
            "the replicas accept different callers ({which}); `trine doctor --peers LIST` says \
             what to do"
        )
    });
    differ
        .into_iter()
        .chain(change(&known))
        .chain(not_taken)
        .collect()
}

/// Where a change of the member root stands; nothing if all replicas use the same root and accept no other.
fn change(known: &[(&NodeStatus, &MemberRoots)]) -> Option<String> {
    let (_, first) = known.first()?;
    let is_settled = |roots: &MemberRoots| roots.accepted.is_none() && roots.used == first.used;
    if known.iter().all(|(_, roots)| is_settled(roots)) {
        return None;
    }
    let each: Vec<String> = known
        .iter()
        .map(|(node, roots)| {
            let accepted = roots
                .accepted
                .as_deref()
                .map(|root| format!(", accepts {root}"));
            let accepted = accepted.unwrap_or_default();
            format!(
                "replica {} uses {}{accepted}",
                node.replica.node_id, roots.used
            )
        })
        .collect();
    Some(format!(
        "the member root is being changed: {}; `trine key rotate PATH` takes the next step once \
         all agree",
        each.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(used: &str, accepted: Option<&str>) -> MemberRoots {
        MemberRoots {
            group: None,
            step: String::new(),
            used: used.to_owned(),
            accepted: accepted.map(str::to_owned),
            not_taken: None,
        }
    }

    fn said(of: &[MemberRoots]) -> Option<String> {
        let report = crate::cmd::status::tests::report(1, "leader");
        let node = report.answer.as_deref().expect("a status");
        let known: Vec<(&NodeStatus, &MemberRoots)> =
            of.iter().map(|roots| (node, roots)).collect();
        change(&known)
    }

    fn keyed(node_id: u16, stage: &str) -> Report {
        let mut report = crate::cmd::status::tests::report(node_id, "follower");
        let node = report.answer.as_mut().expect("a status");
        let users = ["eve", "bob", "carol", "dave", "zoe"];
        let users = users.map(|name| serde_json::json!({ "name": name, "sessions": 9 }));
        let keys = serde_json::json!({
            "stage": stage, "users": users,
            "sessions": { "member": 4, "admin": 1, "user": 1_234, "none": 2 },
        });
        node.keys = Some(serde_json::from_value(keys).expect("keys"));
        report
    }

    #[test]
    fn a_replica_is_a_line_with_its_stage_and_the_callers() {
        assert_eq!(
            view(&[crate::cmd::status::tests::report(1, "leader")]),
            None
        );
        let open = view(&[keyed(1, "none"), keyed(2, "none")]).expect("a view");
        assert!(open.starts_with("keys: none; any client"), "{open}");
        let view = view(&[keyed(1, "accept"), keyed(2, "none")]).expect("a view");
        let lines: Vec<&str> = view.lines().collect();
        assert_eq!(lines.len(), 3, "{view}");
        for part in ["1", "accept", "1,234", "eve 9, bob 9, carol 9, dave 9, ..."] {
            assert!(lines[1].contains(part), "{view}");
        }
        assert!(lines[2].contains("none"), "{view}");
    }

    #[test]
    fn replicas_with_different_stages_are_named() {
        let mut reports = vec![keyed(1, "accept"), keyed(2, "accept")];
        assert_eq!(difference(&stages(&reports)), None);
        let address = ([127, 0, 0, 1], 7473).into();
        let silent = Err(Obstacle::NoAnswer);
        reports.push(Report {
            address,
            answer: silent,
        });
        assert_eq!(
            difference(&stages(&reports)),
            None,
            "nothing is known of it"
        );
        // Asked with a key, one without keys says that it takes none.
        reports[2].answer = Err(Obstacle::Key(KeyObstacle::NotTaken));
        let told = "none: the replica at 127.0.0.1:7473; accept: replica 1 (127.0.0.1:7471), replica 2 (127.0.0.1:7472)";
        assert_eq!(difference(&stages(&reports)).as_deref(), Some(told));
        let complaint = complaints(&reports).join("");
        assert!(complaint.contains(told), "{complaint}");
    }

    #[test]
    fn a_change_that_was_left_half_way_is_told() {
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[roots("a", None), roots("a", None)]), None);
        for half_way in [
            [roots("a", None), roots("a", Some("b"))],
            [roots("a", Some("b")), roots("b", Some("a"))],
            [roots("b", Some("a")), roots("b", None)],
            [roots("a", Some("b")), roots("a", Some("b"))],
        ] {
            let line = said(&half_way).expect("a line");
            assert!(
                line.contains("being changed") && line.contains("accepts"),
                "{line}"
            );
        }
    }
}
