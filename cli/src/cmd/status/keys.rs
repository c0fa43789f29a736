//! What is to be said about the replicas' keys: a change of the member root that is under way, or a file that was not
//! taken.

use trine_client::Report;
use trine_protocol::node_status::{MemberRoots, NodeStatus};

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
            "{}: its key file was not taken: {why}",
            node.replica.address
        ))
    });
    change(&known).into_iter().chain(not_taken).collect()
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
        "the member root is being changed: {}; `trine key rotate PATH` takes the next step once all are alike",
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
