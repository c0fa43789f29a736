//! The time of one write, by stage.

use serde_json::{Map, Value};
use trine_base::units::show_ns;
use trine_client::WriteTiming;

/// A stage of a write.
struct WriteStage {
    name: &'static str,
    what: &'static str,
    ns: u64,
}

/// The width of the bars, in characters.
const WIDTH: u64 = 40;

/// What the client knows of a write's way, in its order.
fn stages(timing: &WriteTiming) -> [WriteStage; 6] {
    let stage = |name, what, ns| WriteStage { name, what, ns };
    let leader = &timing.leader;
    [
        stage(
            "client",
            "find the leader, open a session",
            timing.client.as_nanos(),
        ),
        stage(
            "network",
            "to the leader and back",
            timing.network().as_nanos(),
        ),
        stage(
            "queue",
            "wait for the entry to be proposed",
            leader.queue_ns.into(),
        ),
        stage(
            "append",
            "into the leader's log, out to the followers",
            leader.append_ns.into(),
        ),
        stage("quorum", "until a majority has it", leader.quorum_ns.into()),
        stage(
            "apply",
            "apply it to the store, make the reply",
            leader.apply_ns.into(),
        ),
    ]
}

fn total_ns(timing: &WriteTiming) -> u64 {
    timing.client.as_nanos() + timing.round_trip.as_nanos()
}

/// The timing for programs.
pub(super) fn document(timing: &WriteTiming) -> Value {
    let mut document = Map::new();
    for WriteStage { name, ns, .. } in stages(timing) {
        document.insert(name.into(), ns.into());
    }
    document.insert("total".into(), total_ns(timing).into());
    Value::Object(document)
}

/// The timing for people.
pub(super) fn draw(timing: &WriteTiming) -> String {
    bars(&stages(timing), total_ns(timing))
}

/// A bar for each stage, from its beginning to its end. The network's two ways are one bar: the clocks of the two machines
/// do not tell them apart.
fn bars(stages: &[WriteStage], total_ns: u64) -> String {
    let total = total_ns.max(1);
    let column =
        |ns: u64| (u128::from(ns) * u128::from(WIDTH) / u128::from(total)).min(WIDTH.into());
    let mut begun = 0;
    let mut text = String::new();
    for WriteStage { name, what, ns } in stages {
        let from = (column(begun) as usize).min(WIDTH as usize - 1);
        begun += ns;
        let until = (column(begun) as usize).clamp(from + 1, WIDTH as usize);
        let bar = format!("{}{}", " ".repeat(from), "#".repeat(until - from));
        let percent = u128::from(*ns) * 100 / u128::from(total);
        let time = show_ns(*ns);
        text.push_str(&format!(
            "  {name:<8} {time:>9} {percent:>3}%  |{bar:<40}|  {what}\n"
        ));
    }
    text.push_str(&format!("  {:<8} {:>9}", "total", show_ns(total_ns)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_begins_where_the_last_one_ended() {
        let stage = |name, ns| WriteStage { name, what: "", ns };
        let drawn = bars(&[stage("a", 50), stage("b", 0), stage("c", 50)], 100);
        let bar = |line: &str| line.split('|').nth(1).map(str::to_owned);
        let drawn: Vec<String> = drawn.lines().filter_map(bar).collect();
        assert_eq!(drawn[0], format!("{}{}", "#".repeat(20), " ".repeat(20)));
        assert_eq!(drawn[1].trim_end(), format!("{}#", " ".repeat(20)));
        assert_eq!(drawn[2], format!("{}{}", " ".repeat(20), "#".repeat(20)));
        assert!(bars(&[stage("a", u64::MAX)], u64::MAX).contains("100%"));
    }
}
