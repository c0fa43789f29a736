//! Giving up: operations whose deadline passed, and attempts that take too long.

use trine_transport::app::Cx;
use trine_transport::backend::Route;
use trine_transport::slab::Key;
use trine_transport::time::Instant;

use super::Clients;
use crate::logical::Registration;
use crate::operation::{OperationStage, Pending};
use crate::outcome::Obstacle;

/// The action that is due for an operation now.
enum Overdue {
    /// Its deadline passed while nothing was under way.
    Ended,
    /// Its deadline passed during an attempt.
    GivenUp,
    /// Only the attempt takes too long.
    Attempt,
}

impl<R: Route> Clients<R> {
    /// Scans all operations, but only once something can be overdue.
    pub(super) fn expire(&mut self, cx: &mut Cx<'_, R>) {
        let now = cx.now();
        if now < self.operations.check_at() {
            return;
        }
        let mut next = Instant::FAR_FUTURE;
        let mut overdue = Vec::new();
        for (key, pending) in self.operations.iter() {
            match self.judge(pending, now) {
                Ok(at) => next = next.min(at),
                Err(what) => {
                    if let Overdue::Attempt = what {
                        // The operation continues, and waits perhaps for longer than it may before it is sent a second
                        // time.
                        next = next.min(pending.times.deadline);
                    }
                    overdue.push((key, what));
                }
            }
        }
        self.operations.check_at_next(next);
        for (key, what) in overdue {
            self.end_overdue(cx, key, &what);
        }
    }

    /// The overdue action for `pending`, or the time of the next one.
    fn judge(&self, pending: &Pending, now: Instant) -> Result<Instant, Overdue> {
        let attempt_ends = match pending.stage {
            // The cancelled attempt's completion is on its way, and nothing else can happen.
            OperationStage::Sent { .. } if pending.so_far.given_up => {
                return Ok(Instant::FAR_FUTURE);
            }
            OperationStage::Sent { at, .. } => Some(at + self.config.attempt_timeout),
            OperationStage::Waiting | OperationStage::Ready => None,
        };
        match attempt_ends {
            None if pending.times.deadline <= now => Err(Overdue::Ended),
            None => Ok(pending.times.deadline),
            Some(_) if pending.times.deadline <= now => Err(Overdue::GivenUp),
            Some(at) if at <= now => Err(Overdue::Attempt),
            Some(at) => Ok(at.min(pending.times.deadline)),
        }
    }

    fn end_overdue(&mut self, cx: &mut Cx<'_, R>, key: Key, what: &Overdue) {
        let now = cx.now();
        let fallback = match self.group.is_awaiting_pin() {
            true => Obstacle::NotAttached,
            false => self
                .obstacle_of_registration(key)
                .unwrap_or_else(|| self.group.obstacle()),
        };
        let waits_for_room = self.operations.waits_for_room(key);
        let Some(pending) = self.operations.get_mut(key) else {
            return;
        };
        if let Overdue::Ended = what {
            if waits_for_room {
                pending.so_far.obstacle = Some(Obstacle::NoRoom);
            }
            let error = pending.failure(now, fallback);
            return self.finish(now, key, Err(error));
        }
        pending.so_far.given_up = matches!(what, Overdue::GivenUp);
        if let OperationStage::Sent { request, .. } = pending.stage {
            cx.cancel(request);
        }
    }

    /// What the registration met that a write waits for. The write itself was never sent.
    fn obstacle_of_registration(&self, key: Key) -> Option<Obstacle> {
        let owner = self.operations.get(key)?.owner;
        match self.logical.get(owner)?.registration {
            Registration::Pending(registration) => {
                self.operations.get(registration)?.so_far.obstacle
            }
            Registration::None | Registration::Done(_) => None,
        }
    }
}
