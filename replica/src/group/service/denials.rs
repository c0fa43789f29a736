//! Audit lines of administrative commands that were denied to users. Such a command is in no log entry: the leader that
//! was asked for it writes the line.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use trine_keys::{Credential, UserName};
use trine_kvstore::Command;
use trine_protocol::message::ClientRequest;
use trine_transport::time::{Duration, Instant};

use super::Service;
use crate::audit::{Asked, Audit, By, Trail, denied, words_of};
use crate::config::DENIED_LINES_MAX;
use crate::group::cx::Cx;
use crate::rights::{Caller, Denied};
use crate::state_machine::StateMachine;

/// A user has [`DENIED_LINES_MAX`] lines in this time. Further ones are counted as lost.
const WINDOW: Duration = Duration::from_secs(60);

/// The lines that were not read yet, and how many each user has had lately.
#[derive(Debug, Default)]
pub(super) struct Denials {
    trail: Trail,
    window_began: Instant,
    /// Names of users alone are here, of which a group has a limited number at a time; all go with the window.
    had: BTreeMap<UserName, u32>,
}

impl Denials {
    /// This replica denies a request. Only what would have changed the group has a line.
    pub(super) fn note(
        &mut self,
        cx: &Cx<'_>,
        caller: Caller,
        request: &ClientRequest<'_>,
        command: Option<&Command<'_>>,
        why: &Denied,
    ) {
        let what = command.and_then(words_of);
        let (Some(what), Caller::Proven(Credential::User { name, .. })) = (what, caller) else {
            return;
        };
        if !self.has_a_line_left(cx.now, name) {
            return self.trail.leave_out();
        }
        self.trail.push(Audit {
            position: cx
                .state
                .map(StateMachine::applied_position)
                .unwrap_or_default(),
            by: author(cx, caller, name, request),
            what,
            outcome: denied(why),
            sets_memory: None,
            asked: None,
        });
    }

    fn has_a_line_left(&mut self, now: Instant, name: UserName) -> bool {
        if now.saturating_since(self.window_began) >= WINDOW {
            self.had.clear();
            self.window_began = now;
        }
        let had = self.had.entry(name).or_default();
        *had += 1;
        *had <= DENIED_LINES_MAX
    }
}

impl Service {
    /// The oldest audit line that was not read yet, and how many were lost before it.
    pub(in crate::group) fn next_audit(&mut self) -> Option<(Audit, u64)> {
        self.denials.trail.pop()
    }

    /// The caller of the request that came last is at this address.
    pub(in crate::group) fn came_from(&mut self, address: impl FnOnce() -> Option<SocketAddr>) {
        self.authors.came_from(address);
    }

    /// Who gave a command that was applied, if this replica has taken it.
    pub(in crate::group) fn author_of(&mut self, asked: Asked) -> Option<By> {
        self.authors.take(asked)
    }
}

/// Who asked, and for whom: the user that the request names, or that of the session it came in.
fn author(cx: &Cx<'_>, caller: Caller, name: UserName, request: &ClientRequest<'_>) -> By {
    let users = cx.state.map(|state| state.store().users());
    let own = By::caller(caller, users);
    let (
        Some(state),
        Some(users),
        By::User {
            number: own_number, ..
        },
    ) = (cx.state, users, own)
    else {
        return own;
    };
    let named = request.for_user.map(|user| user.number);
    let is_front = users.named(name).is_some_and(|user| user.front);
    let number = named.or_else(|| {
        let of_session = state.sessions().user_of(request.client);
        of_session.filter(|&number| is_front && number != 0)
    });
    match number {
        Some(number) if number != own_number => By::Front {
            front: name,
            number,
            name: users.numbered(number).map(|user| user.name),
        },
        _ => own,
    }
}
