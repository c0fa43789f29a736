//! The lines of its replicas that `trine up` shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use trine_base::announce::{Announcer, speaks_in_objects};
use trine_base::interrupt;
use trine_local::faults::FAULTS_LINE;
use trine_local::{LineSink, Stream};
use trine_server::data;
use trine_server::logs::ROLE;
use trine_server::serve::METRICS_LINE;

/// The start of the line that says that a replica's files were set aside (`trine_server::data`).
const SET_ASIDE_LINE: &str = "does not go on with its files";

/// Announces the lines of the replicas, each with its node id in front. It never blocks, because a replica whose lines
/// are not read would block, too.
pub(super) fn sink(announcer: Announcer, count: usize) -> LineSink {
    let choice = Choice::new(count);
    Arc::new(move |node_id, stream, line: &str| {
        // Replicas end one after the other, and each warns of those that have ended before it.
        let is_of_the_end = interrupt::interrupted() && line.contains("WARN");
        match speaks_in_objects() {
            _ if is_of_the_end => {}
            true => choice.show_object(node_id, stream, line, announcer),
            false if choice.shows(node_id, stream, line) => {
                announcer.event(format_args!("[{node_id}] {line}"));
            }
            false => {}
        }
    })
}

/// The first line of each replica is left out, because the welcome says the same of all of them. Changes of role in the
/// log are left out too, because each is also announced.
struct Choice {
    /// Whether the replica has said what the welcome says, by its node id.
    spoke: Vec<AtomicBool>,
    /// What is in every line of the log about a role.
    role: String,
}

impl Choice {
    fn new(count: usize) -> Self {
        Self {
            spoke: (0..count).map(|_| AtomicBool::new(false)).collect(),
            role: format!(" INFO {ROLE}: "),
        }
    }

    /// Shows a line of a replica that writes objects, with the replica's number in it. Its changes of role are in its log
    /// alone.
    fn show_object(&self, node_id: usize, stream: Stream, line: &str, announcer: Announcer) {
        let Ok(Value::Object(mut object)) = serde_json::from_str(line) else {
            return announcer.event(format_args!("[{node_id}] {line}"));
        };
        let message = object
            .get("fields")
            .and_then(|fields| fields["message"].as_str());
        if stream == Stream::Err || self.shows(node_id, stream, message.unwrap_or_default()) {
            object.insert("replica".to_owned(), node_id.into());
            announcer.object(&Value::Object(object));
        }
    }

    /// Whether this line of the replica is shown.
    fn shows(&self, node_id: usize, stream: Stream, line: &str) -> bool {
        if stream == Stream::Err {
            return !line.contains(&self.role);
        }
        // The welcome says nothing of a loss. The line comes before all others.
        if line.starts_with(SET_ASIDE_LINE) {
            return true;
        }
        // Faults are for `trine chaos`; `trine net show` says the same here.
        if line.starts_with(FAULTS_LINE) {
            return false;
        }
        let is_first = !line.starts_with(METRICS_LINE)
            && !self.spoke[node_id - 1].swap(true, Ordering::Relaxed);
        // The user did not give that option. `up` starts the first replica with it whether or not there is a group.
        !is_first && !line.starts_with(data::BOOTSTRAP_LINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line that says that files were set aside is the first one of its replica, and `up` left it out.
    #[test]
    fn a_loss_is_shown_and_what_the_welcome_says_is_not() {
        let choice = Choice::new(2);
        let lost: &str = &format!("{SET_ASIDE_LINE}: d/replica-2/unsynced: ...");
        let role: &str = &format!("now INFO {ROLE}: changed");
        for (node_id, stream, line, shown) in [
            (1, Stream::Out, FAULTS_LINE, false),
            (1, Stream::Out, METRICS_LINE, true),
            (1, Stream::Out, "goes on in cluster 7", false),
            (1, Stream::Out, data::BOOTSTRAP_LINE, false),
            (1, Stream::Out, "leads in term 2", true),
            (2, Stream::Out, lost, true),
            (2, Stream::Out, "waits for its group", false),
            (2, Stream::Out, "follows in term 2", true),
            (2, Stream::Out, lost, true),
            (2, Stream::Err, "WARN disk: slow", true),
            (2, Stream::Err, role, false),
        ] {
            assert_eq!(choice.shows(node_id, stream, line), shown, "{line}");
        }
    }
}
