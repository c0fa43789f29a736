//! `trine stat [TIME [COUNT]]` prints a line now and then, as vmstat does.

use std::time::{Duration, Instant};

use super::status::nobody;

use crate::config::STAT_HEADER_EVERY;
use crate::observe::{Interval, Sample, between};
use clap::Args;
use trine_base::arguments::GroupArguments;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::survey::{SURVEY_TIMEOUT, Survey};
use trine_base::units::{parse_poll_interval, plural, show_count, show_ns};

#[derive(Debug, Args)]
pub(crate) struct StatArguments {
    /// Interval between two lines; a plain number is in seconds.
    #[arg(default_value = "1s", value_name = "TIME", value_parser = parse_poll_interval)]
    pub(crate) every: Duration,
    /// Number of lines; by default until Ctrl-C.
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}

/// Polls the group until enough lines have been printed, or until Ctrl-C.
pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &StatArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let mut survey = Survey::of(&arguments.group.peers)?;
    let every = arguments.every;
    let limit = arguments.group.timeout.min(SURVEY_TIMEOUT);
    let mut sample = || {
        let reports = survey.ask(network, limit.into())?;
        let at = Instant::now();
        Ok::<_, Failure>(Sample { at, reports })
    };
    let mut before = sample()?;
    if before.reports.iter().all(|report| report.answer.is_err()) {
        return Err(nobody(&before.reports));
    }
    for line in 0..arguments.count.unwrap_or(u64::MAX) {
        interrupt::pause(every);
        if interrupt::interrupted() {
            return interrupted(line, arguments.count);
        }
        let after = sample()?;
        let interval = between(&before, &after);
        if line.is_multiple_of(STAT_HEADER_EVERY) {
            output.line(header());
        }
        output.line(row(&interval));
        output.json_line(&interval.document());
        before = after;
    }
    Ok(())
}

/// Ctrl-C after so many lines. It is the usual end if no number was asked for; otherwise lines are missing.
fn interrupted(printed: u64, count: Option<u64>) -> Result<(), Failure> {
    let Some(count) = count else {
        return Ok(());
    };
    let (printed, lines) = (show_count(printed), plural(count, "line"));
    Err(Failure::interrupted_after(
        format_args!("{printed} of {lines} printed"),
        "",
    ))
}

/// The header. The stages are those of a write at the leader, as 50th and 99th percentile of a sample.
fn header() -> String {
    format!(
        "{:>6} {:>5} {:>9} {:>9}  {:>15} {:>15} {:>15} {:>15}  {:>6} {:>13} {:>6}",
        "leader",
        "term",
        "writes/s",
        "reads/s",
        "queue p50/p99",
        "append p50/p99",
        "quorum p50/p99",
        "apply p50/p99",
        "lag",
        "retransmitted",
        "silent"
    )
}

fn row(interval: &Interval) -> String {
    let absent = || "-".to_owned();
    let (leader, term) = interval.leader.map_or_else(
        || (absent(), absent()),
        |(node_id, term)| (node_id.to_string(), term.to_string()),
    );
    let writes = interval
        .writes_per_second
        .map_or_else(absent, |rate| format!("{rate:.0}"));
    let time = |ns: Option<u64>| ns.map_or_else(absent, |ns| show_ns(ns).replace(' ', ""));
    let [queue, append, quorum, apply] = interval
        .stages
        .map(|stage| format!("{}/{}", time(stage.p50_ns), time(stage.p99_ns)));
    format!(
        "{leader:>6} {term:>5} {writes:>9} {:>9.0}  {queue:>15} {append:>15} {quorum:>15} {apply:>15}  {:>6} {:>13} {:>6}",
        interval.reads_per_second,
        interval.lag.map_or_else(absent, |lag| lag.to_string()),
        interval.retransmissions,
        interval.silent,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::StageLatency;

    #[test]
    fn columns_stand_below_their_names() {
        let stage = |name| StageLatency {
            name,
            p50_ns: Some(16_383),
            p99_ns: Some(1_048_575),
        };
        let interval = Interval {
            seconds: 1.0,
            leader: Some((2, 7)),
            writes_per_second: Some(123_456.7),
            reads_per_second: 0.0,
            stages: ["queue", "append", "quorum", "apply"].map(stage),
            lag: Some(3),
            retransmissions: 0,
            silent: 1,
        };
        let row = row(&interval);
        assert_eq!(row.len(), header().len());
        assert!(
            row.contains("123457") && row.contains("16.4us/1.05ms"),
            "{row}"
        );
        let leaderless = Interval {
            leader: None,
            writes_per_second: None,
            lag: None,
            ..interval
        };
        assert_eq!(super::row(&leaderless).len(), row.len());
    }
}
