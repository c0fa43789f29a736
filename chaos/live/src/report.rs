//! The findings of a chaos run, for people and programs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trine_chaos::checker::Verdict;
use trine_chaos::fault::Victim;
use trine_chaos::history::{Action, History, Operation};

use super::Verdicts;
use super::gaps;
use super::nemesis::Failover;
use super::schedule::Planned;
use super::timeline::Timeline;
use super::upgrade::Findings;
use crate::ChaosArguments;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::latency::{Latencies, latency_table};
use trine_base::output::Output;
use trine_base::units::{plural, show_count, show_ns};

pub(super) struct LiveReport<'a> {
    pub(super) arguments: &'a ChaosArguments,
    pub(super) history: &'a History,
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) failovers: Vec<Failover>,
    pub(super) verdicts: Verdicts,
    pub(super) timeline: &'a Timeline,
    /// The findings of an upgrade, if there was one.
    pub(super) upgrade: Option<Findings<'a>>,
    /// Why the run ended early.
    pub(super) aborted: Option<Failure>,
    pub(super) schedule: &'a [Planned],
    /// Requested faults that were impossible, and why.
    pub(super) skipped: &'a [String],
    /// The number of replicas.
    pub(super) addresses: usize,
}

/// Explains the value of a seed in a live run.
pub(super) fn seed_line(seed: u64) -> String {
    format!(
        "seed {seed} fixes the schedule of faults and what clients ask, not the interleaving: real processes take their own \
         time, so another run with it sees another history"
    )
}

impl LiveReport<'_> {
    pub(super) fn passed(&self) -> bool {
        let Verdicts {
            linearizability,
            exactly_once,
            coverage,
        } = &self.verdicts;
        let upgraded = self.upgrade.as_ref();
        self.aborted.is_none()
            && upgraded.is_none_or(|upgraded| upgraded.verdict.is_pass())
            && linearizability.verdict.is_pass()
            && exactly_once.is_pass()
            && coverage.is_pass()
    }

    pub(super) fn seed_line(&self) -> String {
        seed_line(self.arguments.seed)
    }

    /// Returns success (exit status 0) only when everything was verified.
    pub(super) fn result(&self) -> Result<(), Failure> {
        if self.passed() {
            return Ok(());
        }
        let seed = self.arguments.seed;
        let what = match &self.aborted {
            Some(why) => format!("the run was broken off: {}", why.message()),
            None => "the run did not pass".to_owned(),
        };
        Err(Failure::negative(
            what,
            format!(
                "its seed is {seed}; --history FILE keeps the whole history, --html FILE draws what is wrong"
            ),
        ))
    }

    pub(super) fn print(&self, output: Output) {
        output.document(&self.document());
        if !self.schedule.is_empty() {
            self.timeline.print(self.history, output);
        }
        let tally = self.history.tally();
        output.line("");
        output.line(format_args!(
            "operations   {} called, {} completed, {} of unknown outcome, {} failed without effect",
            show_count(tally.called),
            show_count(tally.completed),
            show_count(tally.unknown),
            show_count(tally.failed)
        ));
        output.line(format_args!(
            "writes       {} acknowledged",
            show_count(tally.acknowledged_writes)
        ));
        let fired: Vec<String> = self
            .counts
            .iter()
            .map(|(name, count)| format!("{name} {}", show_count(*count)))
            .collect();
        let fired = if fired.is_empty() {
            "none asked for".to_owned()
        } else {
            fired.join(", ")
        };
        output.line(format_args!("faults       {fired}"));
        output.line(format_args!("failovers    {}", self.failover_line()));
        if let Some(upgraded) = &self.upgrade {
            upgraded.print(output);
        }
        gaps::print(&self.gaps(), self.timeline, output);
        output.line("");
        let (reads, writes) = self.latencies();
        output.line(latency_table([
            ("read", reads.percentiles()),
            ("write", writes.percentiles()),
        ]));
        output.line("");
        self.print_verdicts(output);
    }

    fn gaps(&self) -> Vec<gaps::Gap> {
        gaps::find(self.history, self.timeline)
    }

    fn failover_line(&self) -> String {
        if self.failovers.is_empty() {
            return "none asked for".to_owned();
        }
        let times: Vec<String> = self
            .failovers
            .iter()
            .map(|failover| show_ns(failover.first_write.as_nanos()))
            .collect();
        format!("{}: {}", self.failovers.len(), times.join(", "))
    }

    fn print_verdicts(&self, output: Output) {
        let Verdicts {
            linearizability,
            exactly_once,
            coverage,
        } = &self.verdicts;
        output.line(format_args!("linearizable {}", linearizability.verdict));
        if linearizability.verdict.is_pass() {
            output.line(format_args!(
                "             {} proved by the positions in the replies, {} by zones, {} by search",
                plural(linearizability.keys_by_witness, "key"),
                linearizability.keys_by_zones,
                linearizability.keys_by_search
            ));
        }
        output.line(format_args!("exactly once {exactly_once}"));
        if let Some(upgraded) = &self.upgrade {
            output.line(format_args!("upgrade      {}", upgraded.verdict_line()));
        }
        if let Some(why) = &self.aborted {
            output.line(format_args!("broken off   {}", why.message()));
        }
        match coverage.is_pass() || !interrupt::interrupted() {
            true => output.line(format_args!("coverage     {coverage}")),
            // An interrupted run is not judged by the coverage that a whole run needs.
            false => output.line("coverage     not judged: the run was interrupted"),
        }
        output.line("");
        output.line(match self.passed() {
            true => "PASS: linearizable, and nothing acknowledged was lost",
            false if interrupt::interrupted() => "interrupted: not a whole run",
            false => "FAIL",
        });
    }

    /// Latencies of answered reads and writes, from call to return.
    fn latencies(&self) -> (Latencies, Latencies) {
        let (mut reads, mut writes) = (Latencies::new(), Latencies::new());
        for operation in self.history.operations() {
            let Some(latency) = latency_of(operation) else {
                continue;
            };
            match operation.action {
                Action::Get => reads.record_ns(latency),
                // As many as are counted above: an answer that nothing was changed is none of a write.
                _ if operation.is_acknowledged_write() => writes.record_ns(latency),
                _ => {}
            }
        }
        (reads, writes)
    }

    fn document(&self) -> Value {
        let Verdicts {
            linearizability,
            exactly_once,
            coverage,
        } = &self.verdicts;
        let (reads, writes) = self.latencies();
        let failover = |failover: &Failover| {
            json!({
                "killed": failover.killed,
                "first_write_ns": failover.first_write.as_nanos(),
                "whole_again_ns": failover.whole_again.as_nanos(),
            })
        };
        let planned = |planned: &Planned| {
            json!({
                "at_ns": planned.at.as_nanos(),
                "kind": planned.kind.name(),
                "victim": victim(planned.victim),
                "hold_ns": planned.hold.as_nanos(),
            })
        };
        json!({
            "passed": self.passed(),
            "seed": self.arguments.seed,
            "seed_fixes": "the schedule of faults and what clients ask, not the interleaving",
            "schedule": self.schedule.iter().map(planned).collect::<Vec<_>>(),
            "timeline": self.timeline.document(self.history),
            "gaps": gaps::document(&self.gaps(), self.timeline),
            "upgrade": self.upgrade.as_ref().map(|upgraded| upgraded.document(self.timeline.begun)),
            "skipped": self.skipped,
            "aborted": self.aborted.as_ref().map(Failure::message),
            "operations": self.history.tally(),
            "faults": self.counts,
            "failovers": self.failovers.iter().map(failover).collect::<Vec<_>>(),
            "read": reads.percentiles(),
            "write": writes.percentiles(),
            "linearizable": verdict(&linearizability.verdict),
            "exactly_once": verdict(exactly_once),
            "coverage": verdict(coverage),
        })
    }
}

fn latency_of(operation: &Operation) -> Option<u64> {
    operation.answer()?;
    Some(operation.return_ns? - operation.call_ns)
}

pub(super) fn verdict(verdict: &Verdict) -> Value {
    json!({ "passed": verdict.is_pass(), "text": verdict.to_string() })
}

fn victim(victim: Victim) -> Value {
    match victim {
        Victim::Leader => json!("leader"),
        Victim::Replica(index) => json!({ "replica": index + 1 }),
        Victim::All => json!("all"),
    }
}
