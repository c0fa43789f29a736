//! From "submitted" to "may be sent": a write needs a session with the group and a sequence in its window.

use trine_protocol::message::{CLIENT_REQUEST_HEADER_SIZE, ClientRequest, Encode, Operation};
use trine_transport::backend::Route;
use trine_transport::prng::Prng;
use trine_transport::slab::Key;
use trine_transport::time::Instant;

use super::Clients;
use crate::logical::{NamedSession, Registration};
use crate::operation::{Numbering, OperationStage, Ticket};

impl<R: Route> Clients<R> {
    /// Gives sequences to the writes that wait, as far as the session and its window allow; opens the session first.
    pub(super) fn admit(&mut self, now: Instant, owner: Key) {
        let Some(logical) = self.logical.get_mut(owner) else {
            return;
        };
        match logical.registration {
            Registration::None if !logical.waiting.is_empty() => self.register(now, owner),
            Registration::None | Registration::Pending(_) => {}
            Registration::Done(session) => self.admit_registered(owner, session),
        }
    }

    fn admit_registered(&mut self, owner: Key, session: NamedSession) {
        loop {
            let Some(logical) = self.logical.get_mut(owner) else {
                return;
            };
            let Some(&key) = logical.waiting.front() else {
                return;
            };
            let Some(pending) = self.operations.get_mut(key) else {
                logical.waiting.pop_front();
                continue;
            };
            // It has its place already, and waited for the cluster's name alone.
            if pending.is_of_caller() {
                logical.waiting.pop_front();
                self.operations.make_ready(key);
                continue;
            }
            // The last command ends the session, so everything before it has to be over.
            if pending.operation == Operation::ApplyAndClose && logical.in_flight > 1 {
                return;
            }
            let Some(sequence) = logical.window.open() else {
                return;
            };
            logical.waiting.pop_front();
            assert!(pending.ticket.is_none(), "a command has one sequence");
            pending.ticket = Some(Ticket {
                session,
                sequence,
                numbering: Numbering::Client {
                    epoch: logical.epoch,
                },
            });
            self.operations.make_ready(key);
        }
    }

    /// Begins to open a session with the group for `owner`.
    fn register(&mut self, now: Instant, owner: Key) {
        // Copies of a virtual machine have one generator. The moment tells them apart: with one number they would have one
        // session again. Zero is refused: it would name sessions whose number no client knows.
        let moment = Prng::new(now.as_nanos()).next_u64();
        let nonce = (self.group.draw() ^ moment).max(1);
        let Some(mut request) = self.pool.alloc(CLIENT_REQUEST_HEADER_SIZE) else {
            return;
        };
        ClientRequest {
            client: nonce,
            ..ClientRequest::bare(Operation::Register)
        }
        .encode_to_slice(&mut request);
        // It is repeated until it succeeds: the operations that wait for it have deadlines of their own.
        let pending = self.pending(
            owner,
            Operation::Register,
            request,
            now,
            Instant::FAR_FUTURE,
            nonce,
        );
        let Some(key) = self.operations.insert(pending) else {
            return;
        };
        if let Some(logical) = self.logical.get_mut(owner) {
            let before = logical.registration;
            assert_eq!(
                before,
                Registration::None,
                "a client registers once at a time"
            );
            logical.registration = Registration::Pending(key);
        }
        self.operations.make_ready(key);
    }

    /// Ends a registration that nothing waits for any more, unless an attempt is under way: its end does it then.
    pub(super) fn drop_unwanted_registration(&mut self, owner: Key) {
        let Some(logical) = self.logical.get_mut(owner) else {
            return;
        };
        let Registration::Pending(key) = logical.registration else {
            return;
        };
        let alive = |key: &Key| self.operations.get(*key).is_some();
        if logical.waiting.iter().any(alive) {
            return;
        }
        if self
            .operations
            .get(key)
            .is_some_and(|pending| matches!(pending.stage, OperationStage::Sent { .. }))
        {
            return;
        }
        logical.registration = Registration::None;
        logical.waiting.clear();
        self.operations.remove(key);
    }
}
