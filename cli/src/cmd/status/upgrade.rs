//! What a group says about its next switch to a newer state version.

use trine_base::units::show_ns;
use trine_protocol::status::{Status, UpgradeStatus};

/// Which state version is in use, and what the next switch waits for.
pub(in crate::cmd) fn upgrade_line(leader: &Status) -> String {
    let used = format!("state version {} is in use", leader.state_version);
    match &leader.upgrade {
        Some(upgrade) => format!("{used}; {}", next(leader.state_version, upgrade)),
        None => used,
    }
}

fn next(active: u8, upgrade: &UpgradeStatus) -> String {
    let UpgradeStatus {
        newest,
        understood_by_all,
        ..
    } = *upgrade;
    if newest <= active {
        return match &upgrade.silent[..] {
            [] => "no member understands a newer one".to_owned(),
            silent => format!("{} may understand another one", nodes(silent, "is", "are")),
        };
    }
    let waits = if !upgrade.lacking.is_empty() {
        format!("{newest} waits for {}", list(&upgrade.lacking))
    } else if !upgrade.silent.is_empty() {
        format!("{newest} is understood by all, and the switch to it waits for silent members")
    } else {
        match upgrade.left_ns {
            _ if upgrade.by_hand => {
                format!("{newest} is understood by all, and `trine upgrade finish` switches to it")
            }
            Some(left) => format!(
                "{newest} is understood by all, and in use in {}; `trine upgrade finish` does it now",
                show_ns(left)
            ),
            None => format!("{newest} is understood by all"),
        }
    };
    let silence = match &upgrade.silent[..] {
        [] => String::new(),
        silent => format!("; {}", nodes(silent, "is", "are")),
    };
    match understood_by_all > active && understood_by_all < newest {
        true => format!("{waits}; {understood_by_all} is understood by all{silence}"),
        false => format!("{waits}{silence}"),
    }
}

fn nodes(ids: &[u32], one: &str, many: &str) -> String {
    let verb = if ids.len() == 1 { one } else { many };
    format!("{} {verb} silent", list(ids))
}

fn list(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    match ids.len() {
        1 => format!("node {}", ids[0]),
        _ => format!("nodes {}", ids.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgrade(newest: u8, all: u8, lacking: &[u32], left_s: Option<u64>) -> UpgradeStatus {
        UpgradeStatus {
            newest,
            understood_by_all: all,
            lacking: lacking.to_vec(),
            silent: Vec::new(),
            left_ns: left_s.map(|seconds| seconds * 1_000_000_000),
            by_hand: false,
        }
    }

    #[test]
    fn the_line_says_what_the_switch_waits_for() {
        assert_eq!(
            next(8, &upgrade(8, 8, &[], None)),
            "no member understands a newer one"
        );
        assert_eq!(
            next(7, &upgrade(8, 7, &[2, 3], None)),
            "8 waits for nodes 2, 3"
        );
        let waits = next(7, &upgrade(8, 8, &[], Some(3_600)));
        assert!(
            waits.starts_with("8 is understood by all, and in use in "),
            "{waits}"
        );
        assert!(
            waits.ends_with("`trine upgrade finish` does it now"),
            "{waits}"
        );
        let by_hand = UpgradeStatus {
            by_hand: true,
            ..upgrade(8, 8, &[], None)
        };
        let waits = next(7, &by_hand);
        assert_eq!(
            waits,
            "8 is understood by all, and `trine upgrade finish` switches to it"
        );
        let silent = UpgradeStatus {
            silent: vec![3],
            ..upgrade(8, 0, &[3], None)
        };
        assert_eq!(next(7, &silent), "8 waits for node 3; node 3 is silent");
        let silent = UpgradeStatus {
            lacking: Vec::new(),
            ..silent
        };
        assert_eq!(
            next(7, &silent),
            "8 is understood by all, and the switch to it waits for silent members; node 3 is silent"
        );
    }
}
