//! The questions of a replica that starts from files: what has it promised to the others?

use trine_protocol::message::{
    Discovery, Incarnation, StatusForm, StatusReply, StatusRequest, kind,
};
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
        for member in group.promises_to_ask_for(now) {
            let of = member.incarnation;
            let peer_request = PeerRequest {
                to: self.out.places.of(&member),
                expect: Some(of),
                kind: kind::STATUS,
                class: Class::Bulk,
                purpose: Purpose::Promised(of),
                timeout: ANSWER_WITHIN,
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

    /// The end of such a question.
    pub(super) fn on_promised(&mut self, of: Incarnation, answer: Option<&[u8]>) {
        let said = answer.and_then(|answer| StatusReply::decode(answer).ok());
        match said {
            Some(StatusReply::Discovery(said)) if said.incarnation == of => {
                self.hear_of_promise(&said);
            }
            _ => {}
        }
        if let Some(group) = self.life.group_mut() {
            group.on_no_promise(of);
        }
    }

    /// A replica has answered over a session of this one's own, and said what it remembers of it.
    pub(super) fn hear_of_promise(&mut self, said: &Discovery) {
        let cluster = self.cluster();
        if let Some(group) = self.life.group_mut().filter(|_| said.cluster == cluster) {
            group.on_promise(said.incarnation, said.promised, &mut self.out);
        }
    }
}
