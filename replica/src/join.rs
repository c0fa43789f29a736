//! How a new identity joins an existing group. It asks its peers in turn until a leader has taken it in, and goes on
//! asking until it votes, because leaders change.

use std::fmt;
use std::net::SocketAddr;

use trine_protocol::release::Release;
use trine_transport::time::{Duration, Instant};

use crate::addresses::Addresses;
use crate::outbox::{Outbox, PeerRequest, Purpose};
use crate::output::Class;
use trine_protocol::message::{
    ClusterId, JoinRefusal, JoinReply, JoinRequest, Member, OtherVersion, kind,
};

/// Room for the answer to JOIN or BOOTSTRAP. Today's have 48 bytes at most; those of later releases may have more.
pub(crate) const REPLY_BYTES_MAX: usize = 256;

/// A replica's join requests.
#[derive(Debug)]
pub(crate) struct Joiner {
    own: Member,
    /// Next of the known addresses to ask where no leader is known.
    turn: usize,
    leader: Option<SocketAddr>,
    retry: Duration,
    state_version: u8,
    next_attempt: Instant,
    problem: String,
}

/// Says that who was asked gave no answer, or one that means nothing here.
pub(crate) fn no_reply(asked: &dyn fmt::Display, answer: Option<&[u8]>) -> String {
    match answer {
        None => format!("no answer from {asked}"),
        Some([]) => format!(
            "{asked} has given an empty answer: it could not read the question of release {}, or is short of memory",
            Release::THIS
        ),
        Some(bytes) => match OtherVersion::in_reply(bytes) {
            Some(other) => format!("{asked} has not read the question: {other}"),
            None => format!(
                "{asked} has given an answer that release {} cannot read",
                Release::THIS
            ),
        },
    }
}

/// Says that who was asked refused for a reason of a later release.
pub(crate) fn refused_for(asked: &dyn fmt::Display, reason: u8) -> String {
    let release = Release::THIS;
    format!("{asked} refused for reason {reason}, which release {release} does not know")
}

impl Joiner {
    /// Asks for the first time at the next turn.
    #[must_use]
    pub(crate) fn new(
        own: Member,
        retry: Duration,
        state_version: u8,
        now: Instant,
        problem: String,
    ) -> Self {
        Self {
            own,
            turn: 0,
            leader: None,
            retry,
            state_version,
            next_attempt: now,
            problem,
        }
    }

    /// Says in words which event this replica waits for.
    #[must_use]
    pub(crate) fn problem(&self) -> &str {
        &self.problem
    }

    /// Says why this replica joins although it was started to do something else.
    pub(crate) fn explain(&mut self, problem: String) {
        self.problem = problem;
    }

    /// When [`Joiner::on_turn`] has something to do.
    #[must_use]
    pub(crate) fn next_timeout(&self) -> Instant {
        self.next_attempt
    }

    /// Asks once more. `cluster` is the one that has taken this replica in, if any has.
    pub(crate) fn on_turn(
        &mut self,
        now: Instant,
        cluster: ClusterId,
        known: &Addresses,
        out: &mut Outbox,
    ) {
        if now < self.next_attempt {
            return;
        }
        // Once it is taken in, asking again only matters after a change of leader.
        let patience = if cluster.is_none() { 1 } else { 4 };
        self.next_attempt = now + Duration::from_nanos(self.retry.as_nanos() * patience);
        // Those that were named at the start may be gone: also those are asked that answers have named since.
        let count = known.iter().count().max(1);
        let Some(next) = known.iter().nth(self.turn % count) else {
            self.problem = "no name in the list of peers has an address yet".to_owned();
            return;
        };
        let to = self.leader.take().unwrap_or_else(|| {
            self.turn += 1;
            next
        });
        let Member {
            node_id,
            incarnation,
            address,
            ..
        } = self.own;
        let peer_request = PeerRequest {
            to,
            expect: None,
            kind: kind::JOIN,
            class: Class::Bulk,
            purpose: Purpose::Join(to),
            timeout: self.retry,
            answer_bytes_max: REPLY_BYTES_MAX,
        };
        out.send(
            peer_request,
            &JoinRequest {
                node_id,
                incarnation,
                address,
                cluster,
                state_version: self.state_version,
                member: false,
            },
        );
    }

    /// The replica at `from` has answered, or has not. Returns the cluster that takes this replica in.
    pub(crate) fn on_answer(
        &mut self,
        now: Instant,
        from: SocketAddr,
        answer: Option<&[u8]>,
    ) -> Option<ClusterId> {
        let reply = match answer.map(JoinReply::decode) {
            Some(Ok(reply)) => reply,
            _ => {
                self.problem = no_reply(&from, answer);
                return None;
            }
        };
        match reply {
            JoinReply::Accepted { cluster, .. } => {
                self.leader = Some(from);
                self.problem = format!("taken in by cluster {cluster}, receiving its state");
                (!cluster.is_none()).then_some(cluster)
            }
            JoinReply::Refused {
                reason,
                cluster,
                leader_address,
            } => {
                self.on_refused(now, from, reason, cluster, leader_address);
                None
            }
        }
    }

    fn on_refused(
        &mut self,
        now: Instant,
        from: SocketAddr,
        reason: JoinRefusal,
        cluster: ClusterId,
        leader: Option<SocketAddr>,
    ) {
        let node_id = self.own.node_id;
        self.problem = match reason {
            JoinRefusal::NotLeader => {
                format!("{from} does not lead cluster {cluster}, asking its leader")
            }
            JoinRefusal::ChangeInProgress => {
                format!("cluster {cluster} is changing its members, asking again")
            }
            JoinRefusal::NotAttached => {
                format!(
                    "{from} belongs to no group either: begin one with --bootstrap on exactly one replica"
                )
            }
            JoinRefusal::WrongCluster => {
                format!("{from} belongs to cluster {cluster}, which is not this replica's")
            }
            JoinRefusal::UnknownNodeId => {
                let address = self.own.address;
                format!(
                    "cluster {cluster} has no node {node_id}: check --id and --peers, or take it in: \
                     trine member add {node_id} --address {address}"
                )
            }
            JoinRefusal::NodeIdTaken => {
                format!(
                    "node {node_id} of cluster {cluster} is another replica, and it is alive: check --id"
                )
            }
            JoinRefusal::OtherSource => format!(
                "{from} sees this replica at another address than {}: no address translation may lie between replicas",
                self.own.address
            ),
            JoinRefusal::UnknownAddress => {
                let address = self.own.address;
                format!(
                    "cluster {cluster} does not expect node {node_id} at {address}: \
                     trine member add {node_id} --address {address} for a new node, \
                     trine member replace {node_id} --address {address} for one that has moved"
                )
            }
            JoinRefusal::Removed => format!("this replica was removed from cluster {cluster}"),
            JoinRefusal::TooOld => format!(
                "cluster {cluster} uses a newer state machine than version {}, the newest that this replica \
                 understands: run the group's release",
                self.state_version
            ),
            JoinRefusal::Other(reason) => refused_for(&from, reason),
        };
        match reason {
            JoinRefusal::NotLeader
                if leader.is_some_and(|leader| leader != from && leader != self.own.address) =>
            {
                self.leader = leader;
                // Two replicas that take each other for the leader must not make this a busy loop.
                self.next_attempt = now + Duration::from_nanos(self.retry.as_nanos() / 8);
            }
            JoinRefusal::ChangeInProgress
            | JoinRefusal::NodeIdTaken
            | JoinRefusal::UnknownAddress => self.leader = Some(from),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use trine_protocol::message::{Encode, Incarnation, MemberRole, NodeId};

    use super::*;

    fn problem_after(answer: &[u8]) -> String {
        let own = Member {
            node_id: NodeId(2),
            role: MemberRole::Voter,
            incarnation: Incarnation(3),
            address: "10.0.0.2:7471".parse().expect("an address"),
        };
        let (retry, now) = (Duration::from_secs(1), Instant::ZERO);
        let mut joiner = Joiner::new(own, retry, 9, now, String::new());
        let from = "10.0.0.1:7471".parse().expect("an address");
        assert_eq!(joiner.on_answer(now, from, Some(answer)), None);
        assert!(joiner.problem().contains("10.0.0.1:7471"));
        joiner.problem().to_owned()
    }

    /// A replica of a later release answered, and the log said that it did not.
    #[test]
    fn who_answers_as_a_later_release_is_not_silent() {
        let refused = JoinReply::Refused {
            reason: JoinRefusal::Other(200),
            cluster: ClusterId(5),
            leader_address: None,
        };
        let mut refused = refused.encode_to_vec();
        refused.extend([7; 40]);
        let problem = problem_after(&refused);
        assert!(problem.contains("refused for reason 200"), "{problem}");
        let other = OtherVersion::of_message(kind::JOIN, &[9]).reply(ClusterId(5));
        let problem = problem_after(&other.encode_to_vec());
        assert!(problem.contains("does not know version 9"), "{problem}");
        let problem = problem_after(&[1, 77, 0, 0]);
        assert!(problem.contains("cannot read"), "{problem}");
        let problem = problem_after(&[]);
        assert!(problem.contains("empty answer"), "{problem}");
    }
}
