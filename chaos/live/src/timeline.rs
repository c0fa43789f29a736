//! The events of a run: faults, from their beginning to the group being whole again, and who led.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use trine_chaos::fault::Fault;
use trine_chaos::history::History;
use trine_local::{LineSink, Stream};
use trine_transport::time::{Duration, Instant};

use super::now;
use super::schedule::Planned;
use crate::ChaosArguments;
use trine_base::output::Output;
use trine_base::units::show_ns;

/// The start of the line that a replica prints when it becomes leader.
const LEADS: &str = "leads in term ";

/// One executed fault.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) planned: Planned,
    /// The targets of the fault, in words and by node ids.
    pub(super) what: String,
    pub(super) node_ids: Vec<usize>,
    pub(super) begun: Instant,
    /// The time at which the fault was removed.
    pub(super) ended: Instant,
    /// The time at which every node id had an up-to-date voter again.
    pub(super) whole: Instant,
    /// Whether it had any effect.
    pub(super) fired: bool,
}

/// A replica became leader.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Led {
    pub(super) at: Instant,
    pub(super) node_id: usize,
    pub(super) term: u64,
}

/// The changes of leader, as the replicas reported them.
#[derive(Debug, Default)]
pub(super) struct Leads(Mutex<Vec<Led>>);

impl Leads {
    /// Reads the replicas' lines, and passes them on.
    pub(super) fn sink(self: &Arc<Self>, next: LineSink) -> LineSink {
        let leads = Arc::clone(self);
        Arc::new(move |node_id, stream, line: &str| {
            let term = line.strip_prefix(LEADS).and_then(|term| term.parse().ok());
            if let (Stream::Out, Some(term)) = (stream, term) {
                let at = now();
                let mut all = leads.0.lock().unwrap_or_else(PoisonError::into_inner);
                all.push(Led { at, node_id, term });
            }
            next(node_id, stream, line);
        })
    }

    pub(super) fn all(&self) -> Vec<Led> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }
}

/// All events of a run.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// When the clients began to work.
    pub(super) begun: Instant,
    pub(super) faults: Vec<Done>,
    pub(super) leads: Vec<Led>,
    /// Faults of the schedule that had no turn.
    pub(super) missed: Vec<Planned>,
}

impl Timeline {
    /// The time since the beginning; earlier times count as the beginning.
    fn since(&self, at: Instant) -> Duration {
        at.saturating_since(self.begun)
    }

    /// The time until the first acknowledgement of a write that was called after `from`.
    pub(super) fn first_write(history: &History, from: Instant) -> Option<Duration> {
        let after = history.operations().iter().filter(|operation| {
            operation.is_acknowledged_write() && operation.call_ns >= from.as_nanos()
        });
        let first = after.filter_map(|operation| operation.return_ns).min()?;
        Some(Instant::from_nanos(first).saturating_since(from))
    }

    /// How often each requested kind had an effect, by name. The faults that an option repeats, such as `kill-leader`,
    /// follow.
    pub(super) fn fired(&self, arguments: &ChaosArguments, kinds: &[Fault]) -> Vec<(String, u64)> {
        let count = |is_one: &dyn Fn(&Planned) -> bool| {
            let fired = self.faults.iter().filter(|done| done.fired);
            fired.filter(|done| is_one(&done.planned)).count() as u64
        };
        let mut fired: Vec<(String, u64)> = kinds
            .iter()
            .map(|&kind| {
                let named = |planned: &Planned| planned.named && planned.kind == kind;
                (kind.name().to_owned(), count(&named))
            })
            .collect();
        for (every, name) in [
            (arguments.kill_leader_every, "kill-leader"),
            (arguments.kill_all_every, "kill-all"),
        ] {
            if every.is_some() {
                fired.push((name.to_owned(), count(&|planned| !planned.named)));
            }
        }
        fired
    }

    /// How often each kind had an effect that had a turn, by name, whoever asked for it.
    pub(super) fn fired_by_kind(&self) -> BTreeMap<String, u64> {
        let mut fired = BTreeMap::new();
        for done in &self.faults {
            *fired
                .entry(done.planned.kind.name().to_owned())
                .or_default() += u64::from(done.fired);
        }
        fired
    }

    pub(super) fn print(&self, history: &History, output: Output) {
        if output.json {
            return;
        }
        output.line("");
        output.line("timeline");
        let mut lines: Vec<(Instant, String)> = Vec::new();
        for done in &self.faults {
            let write = match Self::first_write(history, done.begun) {
                Some(took) => format!("first new write after {}", show_ns(took.as_nanos())),
                None => "no write succeeded after it".to_owned(),
            };
            let whole = show_ns(done.whole.saturating_since(done.begun).as_nanos());
            let idle = if done.fired { "" } else { " (did nothing)" };
            let text = format!("{}{idle}: {write}, whole again after {whole}", done.what);
            lines.push((done.begun, text));
        }
        for led in self.leads.iter() {
            lines.push((
                led.at,
                format!("  replica {} leads in term {}", led.node_id, led.term),
            ));
        }
        lines.sort_by_key(|(at, _)| *at);
        for (at, text) in lines {
            let seconds = self.since(at).as_nanos() as f64 / 1e9;
            output.line(format_args!("{seconds:>9.3} s  {text}"));
        }
        for planned in &self.missed {
            output.line(format_args!("  not begun  {planned}: the run was over"));
        }
    }

    pub(super) fn document(&self, history: &History) -> Value {
        let fault = |done: &Done| {
            json!({
                "kind": done.planned.kind.name(),
                "what": done.what,
                "replicas": done.node_ids,
                "at_ns": self.since(done.begun).as_nanos(),
                "ended_ns": self.since(done.ended).as_nanos(),
                "whole_again_ns": self.since(done.whole).as_nanos(),
                "first_write_ns": Self::first_write(history, done.begun).map(Duration::as_nanos),
                "fired": done.fired,
            })
        };
        let led = |led: &Led| json!({ "at_ns": self.since(led.at).as_nanos(), "leader": led.node_id, "term": led.term });
        let missed: Vec<String> = self.missed.iter().map(ToString::to_string).collect();
        json!({
            "faults": self.faults.iter().map(fault).collect::<Vec<_>>(),
            "leaders": self.leads.iter().map(led).collect::<Vec<_>>(),
            "not_begun": missed,
        })
    }
}
