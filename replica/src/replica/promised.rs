//! The questions of a replica that starts from files, to each member: what it has promised to that one.

use trine_protocol::message::{Incarnation, StatusForm, StatusReply, StatusRequest, kind};
use trine_transport::time::Instant;

use super::places::ANSWER_WITHIN;
use super::{DISCOVERY_BYTES_MAX, Replica};
use crate::outbox::{PeerRequest, Purpose};
use crate::output::Class;

impl Replica {
    /// Asks the members that are to be asked, each at its place and over a session of this replica's own.
    pub(super) fn ask_for_promises(&mut self, now: Instant) {
        let Some(group) = self.life.group_mut() else {
            return;
        };
        let timeout = ANSWER_WITHIN.min(group.promise_limit());
        for member in group.promises_to_ask_for(now, &mut self.out) {
            let of = member.incarnation;
            let peer_request = PeerRequest {
                to: self.out.places.of(&member),
                expect: Some(of),
                kind: kind::STATUS,
                class: Class::Bulk,
                purpose: Purpose::Promised(of),
                timeout,
                answer_bytes_max: DISCOVERY_BYTES_MAX,
            };
            let form = StatusForm::Discovery;
            if !self.out.send(peer_request, &StatusRequest { form })
                && let Some(group) = self.life.group_mut()
            {
                group.on_no_promise(of);
            }
        }
    }

    /// The end of such a question. Only the answer that comes from a member's place and in its name counts: elsewhere a copy
    /// of its directory may answer, or a program that makes things up.
    pub(super) fn on_promised(&mut self, of: Incarnation, answer: Option<&[u8]>) {
        let cluster = self.cluster();
        let Some(group) = self.life.group_mut() else {
            return;
        };
        match answer.map(StatusReply::decode) {
            Some(Ok(StatusReply::Discovery(said)))
                if said.incarnation == of && said.cluster == cluster =>
            {
                group.on_promise(of, said.promised, &mut self.out);
            }
            _ => group.on_no_promise(of),
        }
    }
}
