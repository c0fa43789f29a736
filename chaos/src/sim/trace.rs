//! The events of a run, line by line, for the reader of a replayed seed.

use super::Host;
use trine_transport::time::Instant;

/// Where trace lines go.
#[derive(Default)]
pub enum Trace {
    /// Nowhere.
    #[default]
    Off,
    /// To this sink, one line a call. Lines begin with the simulated time.
    To(Box<dyn FnMut(&str)>),
}

impl Trace {
    /// Whether the trace has a reader: lines for it alone are not made if it has none.
    pub(crate) fn is_on(&self) -> bool {
        matches!(self, Trace::To(_))
    }

    pub(crate) fn note(&mut self, now: Instant, line: impl FnOnce() -> String) {
        if let Trace::To(sink) = self {
            sink(&format!(
                "{:>13.6} ms  {}",
                now.as_nanos() as f64 / 1e6,
                line()
            ));
        }
    }

    pub(crate) fn packet(&mut self, now: Instant, verb: &str, from: Host, to: Host, bytes: &[u8]) {
        self.note(now, || {
            let head: String = bytes
                .iter()
                .take(24)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("{verb} {from} -> {to} {:>5} bytes {head}", bytes.len())
        });
    }
}
