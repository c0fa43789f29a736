//! Audit lines of admin commands about members: one for each command, not one for each time that its client asks.

use std::collections::VecDeque;
use std::net::SocketAddr;

use trine_protocol::message::{AdminCommand, AdminRequest, AdminStatus};
use trine_transport::time::{Duration, Instant};

use crate::audit::{Audit, By, Trail};
use crate::config::AUDITED_COMMANDS_MAX;
use crate::group::cx::Cx;
use crate::state_machine::StateMachine;

/// A command that comes again within this time is the same one: its client repeats it until the group has done it.
const SAME_FOR: Duration = Duration::from_secs(60);

/// The lines, and the commands that had one lately.
#[derive(Debug, Default)]
pub(super) struct AdminTrail {
    lines: Trail,
    /// With the time when they came last, the newest at the end.
    lately: VecDeque<(By, AdminRequest, Instant)>,
}

impl AdminTrail {
    /// This leader has judged a command. The first verdict has a line.
    pub(super) fn note(
        &mut self,
        cx: &Cx<'_>,
        by: By,
        request: &AdminRequest,
        verdict: &(AdminStatus, String),
    ) {
        let word = match verdict.0 {
            AdminStatus::Done => "done",
            AdminStatus::InProgress => "under way",
            AdminStatus::Refused => "refused",
            // The leader writes the line.
            AdminStatus::NotLeader => return,
        };
        if self.came_lately(cx.now, by, request) {
            return;
        }
        self.lines.push(Audit {
            position: cx
                .state
                .map(StateMachine::applied_position)
                .unwrap_or_default(),
            by,
            what: words_of(request),
            outcome: format!("{word}: {}", verdict.1),
            sets_memory: None,
            asked: None,
        });
    }

    fn came_lately(&mut self, now: Instant, by: By, request: &AdminRequest) -> bool {
        self.lately
            .retain(|(_, _, at)| now.saturating_since(*at) < SAME_FOR);
        let known = self
            .lately
            .iter()
            .position(|(who, what, _)| *who == by && what == request);
        if let Some(index) = known {
            self.lately.remove(index);
        } else if self.lately.len() >= AUDITED_COMMANDS_MAX {
            self.lately.pop_front();
        }
        self.lately.push_back((by, *request, now));
        known.is_some()
    }

    /// The command of the last line came from this address.
    pub(super) fn came_from(&mut self, address: impl FnOnce() -> Option<SocketAddr>) {
        self.lines.came_from(address);
    }

    /// The oldest line, and how many were lost before it.
    pub(super) fn pop(&mut self) -> Option<(Audit, u64)> {
        self.lines.pop()
    }
}

fn words_of(request: &AdminRequest) -> String {
    let node_id = request.node_id;
    let at = request
        .address
        .map_or_else(String::new, |address| format!(" at {address}"));
    match request.command {
        AdminCommand::Add { voter: true } => format!("add member {node_id}{at}"),
        AdminCommand::Add { voter: false } => format!("add learner {node_id}{at}"),
        AdminCommand::Promote => format!("promote learner {node_id}"),
        AdminCommand::Remove => format!("remove member {node_id}"),
        AdminCommand::Replace => format!("replace member {node_id}{at}"),
        AdminCommand::TransferLeadership => format!("transfer leadership to {node_id}"),
        AdminCommand::FinishUpgrade => "finish the upgrade".to_owned(),
    }
}
