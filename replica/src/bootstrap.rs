//! How a group begins: `--bootstrap` asks every named peer who it is, and when all are there and free, tells them one
//! by one that the group exists.
//!
//! ```text
//!            all present and free              every peer has begun, or can never
//! probing ------------------------> beginning ------------------------------------> the bootstrapper begins, too
//!    |                                  |
//!    | a peer belongs to a group        | the first peer refuses, and none has begun
//!    +--------------> yielded <---------+
//! ```
//!
//! The bootstrapper comes last, so an interrupted attempt leaves no group with its vote in it. Peers are told in the
//! order of their node ids. If there are two bootstrappers, the one with the higher node id meets the other one before
//! it has told any peer above, and yields. A begin whose answer was lost is repeated until there is one, for it may
//! have been taken.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use trine_kvstore::command::{ORDERED_VERSION, STATE_VERSION_FIRST};
use trine_protocol::message::{
    BeginRefusal, BootstrapReply, BootstrapRequest, ClusterId, Incarnation, Member, MemberRole,
    Members, NodeId, kind,
};
use trine_transport::prng::Prng;
use trine_transport::time::{Duration, Instant};

use crate::config::ReplicaConfig;
use crate::join::{REPLY_BYTES_MAX, no_reply, refused_for};
use crate::outbox::{Outbox, PeerRequest, Purpose};
use crate::output::Class;
use crate::state_machine::Genesis;

/// Everything that a replica needs to be a member from the beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// The new group.
    pub(crate) cluster: ClusterId,
    /// Its first members, all of them voters.
    pub(crate) members: Members,
    /// Its settings.
    pub(crate) genesis: Genesis,
}

/// A bootstrapper's request to begin as a first member.
#[derive(Debug)]
pub(crate) struct Begin<'a> {
    /// Who is meant.
    pub(crate) node_id: NodeId,
    /// Its incarnation that is meant.
    pub(crate) incarnation: Incarnation,
    /// The new group.
    pub(crate) cluster: ClusterId,
    /// Its first members.
    pub(crate) members: Members,
    /// Its settings, encoded.
    pub(crate) first_entry: &'a [u8],
}

impl Origin {
    /// Reads a begin that is meant for `node_id` and `incarnation`.
    ///
    /// # Errors
    /// Why it cannot be followed.
    pub(crate) fn from_begin(
        begin: Begin<'_>,
        node_id: NodeId,
        incarnation: Incarnation,
        state_version: u8,
    ) -> Result<Self, BeginRefusal> {
        let Begin {
            cluster,
            members,
            first_entry,
            ..
        } = begin;
        if begin.node_id != node_id {
            return Err(BeginRefusal::WrongNodeId);
        }
        if begin.incarnation != incarnation {
            return Err(BeginRefusal::WrongIncarnation);
        }
        let genesis = Genesis::decode(first_entry).map_err(|_| BeginRefusal::BadSettings)?;
        let named = members
            .0
            .iter()
            .any(|member| member.node_id == node_id && member.incarnation == incarnation);
        if genesis.state_version > state_version {
            return Err(BeginRefusal::BadSettings);
        }
        if !named || cluster.is_none() || !are_distinct(&members) {
            return Err(BeginRefusal::BadSettings);
        }
        Ok(Self {
            cluster,
            members,
            genesis,
        })
    }

    /// The message that makes `member` one of the group.
    pub(crate) fn send_begin(&self, member: &Member, timeout: Duration, out: &mut Outbox) {
        let first_entry = self.genesis.encode();
        let request = BootstrapRequest::Begin {
            node_id: member.node_id,
            incarnation: member.incarnation,
            cluster: self.cluster,
            members: self.members.clone(),
            first_entry: &first_entry,
        };
        // The request names the incarnation it is for: another one that answers there says so, and is not waited for.
        out.send(
            peer_request(member.node_id, member.address, timeout),
            &request,
        );
    }
}

fn are_distinct(members: &Members) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    members.0.iter().all(|member| {
        let voter = member.role == MemberRole::Voter && !member.incarnation.is_none();
        voter
            && seen.insert((0, member.incarnation.0))
            && seen.insert((1, u64::from(member.node_id.0)))
    })
}

/// The stage of a bootstrap.
#[derive(Debug)]
enum BootstrapStage {
    /// The peers that have answered in this round: their incarnations, and the newest state-machine versions that they
    /// understand.
    Probing(BTreeMap<NodeId, (Incarnation, u8)>),
    Beginning {
        origin: Origin,
        /// Not told yet, in the order of their node ids.
        untold: Vec<Member>,
        /// Whether any peer has begun: from then on there is no way back.
        begun: bool,
    },
}

/// The result of an answer.
#[derive(Debug)]
pub(crate) enum BootstrapProgress {
    /// Nothing yet.
    Waiting,
    /// The group exists; this replica is the last to begin.
    Begun(Origin),
    /// Another group, or another bootstrapper, has precedence: join.
    Yielded,
}

/// A bootstrap under way.
#[derive(Debug)]
pub(crate) struct Bootstrap {
    own: Member,
    /// All other nodes, with their addresses if these are known.
    peers: Vec<(NodeId, Option<SocketAddr>)>,
    config: ReplicaConfig,
    prng: Prng,
    stage: BootstrapStage,
    next_attempt: Instant,
    problem: String,
}

impl Bootstrap {
    /// Begins with the first probes at the next turn.
    #[must_use]
    pub(crate) fn new(
        own: Member,
        peers: Vec<(NodeId, Option<SocketAddr>)>,
        config: ReplicaConfig,
        prng: Prng,
        now: Instant,
    ) -> Self {
        let stage = BootstrapStage::Probing(BTreeMap::new());
        Self {
            own,
            peers,
            config,
            prng,
            stage,
            next_attempt: now,
            problem: "asking the peers who they are".to_owned(),
        }
    }

    /// A node that has to take part, and where it is asked from now on.
    pub(crate) fn set_peer(&mut self, node_id: NodeId, address: Option<SocketAddr>) {
        match self.peers.iter_mut().find(|(other, _)| *other == node_id) {
            Some((_, before)) if *before == address => return,
            Some((_, before)) => *before = address,
            None => self.peers.push((node_id, address)),
        }
        // Another replica may be there. Once the members are fixed, nothing changes their addresses any more.
        if let BootstrapStage::Probing(found) = &mut self.stage {
            found.remove(&node_id);
        }
    }

    /// Says in words which event this replica waits for.
    #[must_use]
    pub(crate) fn problem(&self) -> &str {
        &self.problem
    }

    /// When [`Bootstrap::on_turn`] has something to do.
    #[must_use]
    pub(crate) fn next_timeout(&self) -> Instant {
        self.next_attempt
    }

    /// Asks, or tells, once more.
    pub(crate) fn on_turn(&mut self, now: Instant, out: &mut Outbox) -> BootstrapProgress {
        if now < self.next_attempt {
            return BootstrapProgress::Waiting;
        }
        self.next_attempt = now + self.config.attach_retry;
        if self.peers.is_empty() {
            self.begin();
        }
        self.act(out)
    }

    fn act(&mut self, out: &mut Outbox) -> BootstrapProgress {
        let timeout = self.config.attach_retry;
        match &self.stage {
            BootstrapStage::Probing(found) => {
                let unheard = self.peers.iter();
                let unheard = unheard.filter(|(node_id, _)| !found.contains_key(node_id));
                for &(node_id, address) in unheard {
                    let Some(address) = address else {
                        self.problem = format!(
                            "a new group needs all of its replicas, and the name of node {node_id} has no address yet"
                        );
                        continue;
                    };
                    out.send(
                        peer_request(node_id, address, timeout),
                        &BootstrapRequest::Probe { node_id },
                    );
                }
            }
            BootstrapStage::Beginning { origin, untold, .. } => match untold.first() {
                Some(member) => origin.send_begin(member, timeout, out),
                None => return BootstrapProgress::Begun(origin.clone()),
            },
        }
        BootstrapProgress::Waiting
    }

    /// The peer at `node_id` has answered, or has not.
    pub(crate) fn on_answer(
        &mut self,
        node_id: NodeId,
        answer: Option<&[u8]>,
        out: &mut Outbox,
    ) -> BootstrapProgress {
        let Some(Ok(reply)) = answer.map(BootstrapReply::decode) else {
            if let BootstrapStage::Probing(found) = &mut self.stage {
                // Earlier answers may have ended together with the one that is missing now.
                found.clear();
            }
            self.problem = no_reply(&self.name(node_id), answer);
            return BootstrapProgress::Waiting;
        };
        match reply {
            BootstrapReply::Present {
                node_id: filled,
                incarnation,
                cluster,
                state_version,
            } => {
                let found = (incarnation, state_version);
                self.on_present(node_id, filled, found, cluster, out)
            }
            BootstrapReply::Begun {
                incarnation,
                cluster,
                ..
            } => self.on_begun(node_id, incarnation, cluster, out),
            BootstrapReply::Refused {
                reason,
                incarnation,
                cluster,
                ..
            } => self.on_refused(node_id, reason, incarnation, cluster, out),
        }
    }

    fn on_present(
        &mut self,
        node_id: NodeId,
        filled: NodeId,
        peer: (Incarnation, u8),
        cluster: ClusterId,
        out: &mut Outbox,
    ) -> BootstrapProgress {
        let incarnation = peer.0;
        let name = self.name(node_id);
        let BootstrapStage::Probing(found) = &mut self.stage else {
            return BootstrapProgress::Waiting;
        };
        if filled != node_id || incarnation.is_none() || incarnation == self.own.incarnation {
            self.problem = format!("{name} says that it is node {filled}: the peer lists differ");
            return BootstrapProgress::Waiting;
        }
        if !cluster.is_none() {
            self.problem = format!(
                "{name} belongs to cluster {cluster} already: a group is there, joining it"
            );
            return BootstrapProgress::Yielded;
        }
        found.insert(node_id, peer);
        if found.len() < self.peers.len() {
            return BootstrapProgress::Waiting;
        }
        if let Some(older) = self.first_without_index() {
            let name = self.name(older);
            self.problem = format!(
                "{name} runs a release without ordered indexes: upgrade it, or start without --ordered"
            );
            // It is asked again at the next attempt.
            self.stage = BootstrapStage::Probing(BTreeMap::new());
            return BootstrapProgress::Waiting;
        }
        self.begin();
        self.act(out)
    }

    /// A peer that keeps a group with an ordered index from beginning.
    fn first_without_index(&self) -> Option<NodeId> {
        let BootstrapStage::Probing(found) = &self.stage else {
            return None;
        };
        let mut found = found.iter().filter(|_| self.config.ordered);
        let older = found.find(|(_, (_, version))| *version < ORDERED_VERSION)?;
        Some(*older.0)
    }

    /// Every peer is there and free: fixes the incarnations, and draws the group's id.
    fn begin(&mut self) {
        let BootstrapStage::Probing(found) = &self.stage else {
            return;
        };
        let mut untold: Vec<Member> = self
            .peers
            .iter()
            .filter_map(|&(node_id, address)| {
                let (incarnation, _) = *found.get(&node_id)?;
                let address = address?;
                Some(Member {
                    node_id,
                    role: MemberRole::Voter,
                    incarnation,
                    address,
                })
            })
            .collect();
        untold.sort_by_key(|member| member.node_id);
        let mut members = untold.clone();
        members.push(self.own);
        members.sort_by_key(|member| member.node_id);
        let cluster = ClusterId(self.prng.next_u64().max(1));
        let mut genesis = Genesis::new(&self.config, [self.prng.next_u64(), self.prng.next_u64()]);
        // A group begins with the version that all of its first members understand.
        let versions = found
            .values()
            .map(|&(_, version)| version.max(STATE_VERSION_FIRST));
        genesis.state_version = versions.fold(genesis.state_version, u8::min);
        let origin = Origin {
            cluster,
            members: Members(members),
            genesis,
        };
        self.problem = "telling the peers that the group exists".to_owned();
        self.stage = BootstrapStage::Beginning {
            origin,
            untold,
            begun: false,
        };
    }

    fn on_begun(
        &mut self,
        node_id: NodeId,
        incarnation: Incarnation,
        cluster: ClusterId,
        out: &mut Outbox,
    ) -> BootstrapProgress {
        let BootstrapStage::Beginning {
            origin,
            untold,
            begun,
        } = &mut self.stage
        else {
            return BootstrapProgress::Waiting;
        };
        let told = untold
            .first()
            .is_some_and(|m| m.node_id == node_id && m.incarnation == incarnation);
        if !told || cluster != origin.cluster {
            return BootstrapProgress::Waiting;
        }
        untold.remove(0);
        *begun = true;
        self.act(out)
    }

    fn on_refused(
        &mut self,
        node_id: NodeId,
        reason: BeginRefusal,
        incarnation: Incarnation,
        cluster: ClusterId,
        out: &mut Outbox,
    ) -> BootstrapProgress {
        let name = self.name(node_id);
        let BootstrapStage::Beginning { untold, begun, .. } = &mut self.stage else {
            // No replica of this release refuses a probe.
            if let BeginRefusal::Other(reason) = reason {
                self.problem = refused_for(&name, reason);
            }
            return BootstrapProgress::Waiting;
        };
        let Some(asked) = untold
            .first()
            .filter(|member| member.node_id == node_id)
            .copied()
        else {
            return BootstrapProgress::Waiting;
        };
        let same_incarnation = incarnation == asked.incarnation;
        self.problem = match reason {
            BeginRefusal::AlreadyAttached => format!("{name} belongs to cluster {cluster} already"),
            BeginRefusal::OtherBootstrapper => format!("{name} was started with --bootstrap, too"),
            BeginRefusal::WrongNodeId => {
                format!("{name} has another node id: the peer lists differ")
            }
            BeginRefusal::WrongIncarnation => format!("{name} was restarted meanwhile"),
            BeginRefusal::BadSettings => {
                format!("{name} cannot hold to the settings of the new group")
            }
            BeginRefusal::Other(reason) => refused_for(&name, reason),
        };
        match reason {
            // The other one meets this replica next, sees the lower node id and yields. The higher one yields even if
            // it has already told a peer. If it told one incarnation of a peer and the other bootstrapper told the
            // next, each would wait for the other for ever. The peers that it told find out that the group never
            // begins.
            BeginRefusal::OtherBootstrapper if self.own.node_id < node_id => {
                BootstrapProgress::Waiting
            }
            BeginRefusal::OtherBootstrapper => BootstrapProgress::Yielded,
            // A replica that is not with the group now joins it later, like any restarted replica.
            _ if *begun => {
                untold.remove(0);
                self.act(out)
            }
            BeginRefusal::AlreadyAttached if same_incarnation => BootstrapProgress::Yielded,
            _ => {
                self.stage = BootstrapStage::Probing(BTreeMap::new());
                BootstrapProgress::Waiting
            }
        }
    }

    fn name(&self, node_id: NodeId) -> String {
        match self.peers.iter().find(|(other, _)| *other == node_id) {
            Some((_, Some(address))) => format!("node {node_id} at {address}"),
            _ => format!("node {node_id}"),
        }
    }
}

/// The answer to a probe by a replica that belongs to no group, or to `cluster`.
#[must_use]
pub(crate) fn present(
    node_id: NodeId,
    incarnation: Incarnation,
    cluster: ClusterId,
    state_version: u8,
) -> BootstrapReply {
    BootstrapReply::Present {
        node_id,
        incarnation,
        cluster,
        state_version,
    }
}

fn peer_request(node_id: NodeId, to: SocketAddr, timeout: Duration) -> PeerRequest {
    PeerRequest {
        to,
        expect: None,
        kind: kind::BOOTSTRAP,
        class: Class::Bulk,
        purpose: Purpose::Bootstrap(node_id),
        timeout,
        answer_bytes_max: REPLY_BYTES_MAX,
    }
}

#[cfg(test)]
mod tests {
    use trine_protocol::message::Encode;
    use trine_transport::buf::{Pool, PoolConfig};

    use super::*;

    /// A replica of a later release answered, and the log said that it did not.
    #[test]
    fn a_peer_that_answers_as_a_later_release_is_not_silent() {
        let own = Member {
            node_id: NodeId(1),
            role: MemberRole::Voter,
            incarnation: Incarnation(3),
            address: SocketAddr::from(([10, 0, 0, 1], 7471)),
        };
        let peer = SocketAddr::from(([10, 0, 0, 2], 7471));
        let mut bootstrap = Bootstrap::new(
            own,
            vec![(NodeId(2), Some(peer))],
            ReplicaConfig::default(),
            Prng::new(1),
            Instant::ZERO,
        );
        let mut out = Outbox::new(Pool::new(PoolConfig::default()));
        let mut problem_after = |answer: &[u8]| {
            let progress = bootstrap.on_answer(NodeId(2), Some(answer), &mut out);
            assert!(
                matches!(progress, BootstrapProgress::Waiting),
                "{progress:?}"
            );
            bootstrap.problem().to_owned()
        };
        let refused = BootstrapReply::Refused {
            reason: BeginRefusal::Other(200),
            node_id: NodeId(2),
            incarnation: Incarnation(4),
            cluster: ClusterId::NONE,
        };
        let problem = problem_after(&refused.encode_to_vec());
        assert!(problem.contains("refused for reason 200"), "{problem}");
        let problem = problem_after(&[1, 77, 0, 0]);
        let named = "node 2 at 10.0.0.2:7471 has given an answer that release";
        assert!(problem.contains(named), "{problem}");
        // Its begin is refused: it is asked again who it is.
        let present = present(NodeId(2), Incarnation(4), ClusterId::NONE, 9);
        problem_after(&present.encode_to_vec());
        let problem = problem_after(&refused.encode_to_vec());
        assert!(problem.contains("refused for reason 200"), "{problem}");
    }
}
