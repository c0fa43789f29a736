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
//! order of their places. If there are two bootstrappers, the one with the higher place meets the other one before it
//! has told any peer above, and yields. A begin whose answer was lost is repeated until there is one, for it may have
//! been taken.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use trine_kvstore::config::STATE_VERSION_FIRST;
use trine_protocol::message::{
    BeginRefusal, BootstrapReply, BootstrapRequest, ClusterId, Encode, Incarnation, Member,
    MemberRole, Members, PlaceId, kind,
};
use trine_transport::prng::Prng;
use trine_transport::time::{Duration, Instant};

use crate::config::ReplicaConfig;
use crate::outbox::{Letter, Outbox, Purpose};
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
    pub(crate) place: PlaceId,
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
    /// Reads a begin that is meant for `place` and `incarnation`.
    ///
    /// # Errors
    /// Why it cannot be followed.
    pub(crate) fn from_begin(
        begin: Begin<'_>,
        place: PlaceId,
        incarnation: Incarnation,
        state_version: u8,
    ) -> Result<Self, BeginRefusal> {
        let Begin {
            cluster,
            members,
            first_entry,
            ..
        } = begin;
        if begin.place != place {
            return Err(BeginRefusal::WrongPlace);
        }
        if begin.incarnation != incarnation {
            return Err(BeginRefusal::WrongIncarnation);
        }
        let genesis = Genesis::decode(first_entry).map_err(|_| BeginRefusal::BadSettings)?;
        let named = members
            .0
            .iter()
            .any(|member| member.place == place && member.incarnation == incarnation);
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
            place: member.place,
            incarnation: member.incarnation,
            cluster: self.cluster,
            members: self.members.clone(),
            first_entry: &first_entry,
        };
        // The request names the incarnation it is for: another one that answers there says so, and is not waited for.
        out.send(letter(member.place, member.address, timeout), &request);
    }
}

fn are_distinct(members: &Members) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    members.0.iter().all(|member| {
        let voter = member.role == MemberRole::Voter && !member.incarnation.is_none();
        voter
            && seen.insert((0, member.incarnation.0))
            && seen.insert((1, u64::from(member.place.0)))
    })
}

/// The stage of a bootstrap.
#[derive(Debug)]
enum Stage {
    /// The peers that have answered in this round: their incarnations, and the newest state-machine versions that they
    /// understand.
    Probing(BTreeMap<PlaceId, (Incarnation, u8)>),
    Beginning {
        origin: Origin,
        /// Not told yet, in the order of their places.
        untold: Vec<Member>,
        /// Whether any peer has begun: from then on there is no way back.
        begun: bool,
    },
}

/// The result of an answer.
#[derive(Debug)]
pub(crate) enum Progress {
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
    /// All other places.
    peers: Vec<(PlaceId, SocketAddr)>,
    config: ReplicaConfig,
    prng: Prng,
    stage: Stage,
    next_attempt: Instant,
    problem: String,
}

impl Bootstrap {
    /// Begins with the first probes at the next turn.
    #[must_use]
    pub(crate) fn new(
        own: Member,
        peers: Vec<(PlaceId, SocketAddr)>,
        config: ReplicaConfig,
        prng: Prng,
        now: Instant,
    ) -> Self {
        let stage = Stage::Probing(BTreeMap::new());
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
    pub(crate) fn on_turn(&mut self, now: Instant, out: &mut Outbox) -> Progress {
        if now < self.next_attempt {
            return Progress::Waiting;
        }
        self.next_attempt = now + self.config.attach_retry;
        if self.peers.is_empty() {
            self.begin();
        }
        self.act(out)
    }

    fn act(&mut self, out: &mut Outbox) -> Progress {
        let timeout = self.config.attach_retry;
        match &self.stage {
            Stage::Probing(found) => {
                for &(place, address) in self
                    .peers
                    .iter()
                    .filter(|(place, _)| !found.contains_key(place))
                {
                    out.send(
                        letter(place, address, timeout),
                        &BootstrapRequest::Probe { place },
                    );
                }
            }
            Stage::Beginning { origin, untold, .. } => match untold.first() {
                Some(member) => origin.send_begin(member, timeout, out),
                None => return Progress::Begun(origin.clone()),
            },
        }
        Progress::Waiting
    }

    /// The peer at `place` has answered, or has not.
    pub(crate) fn on_answer(
        &mut self,
        place: PlaceId,
        answer: Option<&[u8]>,
        out: &mut Outbox,
    ) -> Progress {
        let Some(reply) = answer.and_then(|bytes| BootstrapReply::decode(bytes).ok()) else {
            if let Stage::Probing(found) = &mut self.stage {
                // Earlier answers may have ended together with the one that is missing now.
                found.clear();
            }
            self.problem = format!("no answer from {}", self.name(place));
            return Progress::Waiting;
        };
        match reply {
            BootstrapReply::Present {
                place: filled,
                incarnation,
                cluster,
                state_version,
            } => {
                let found = (incarnation, state_version);
                self.on_present(place, filled, found, cluster, out)
            }
            BootstrapReply::Begun {
                incarnation,
                cluster,
                ..
            } => self.on_begun(place, incarnation, cluster, out),
            BootstrapReply::Refused {
                reason,
                incarnation,
                cluster,
                ..
            } => self.on_refused(place, reason, incarnation, cluster, out),
        }
    }

    fn on_present(
        &mut self,
        place: PlaceId,
        filled: PlaceId,
        peer: (Incarnation, u8),
        cluster: ClusterId,
        out: &mut Outbox,
    ) -> Progress {
        let incarnation = peer.0;
        let name = self.name(place);
        let Stage::Probing(found) = &mut self.stage else {
            return Progress::Waiting;
        };
        if filled != place || incarnation.is_none() || incarnation == self.own.incarnation {
            self.problem = format!("{name} says that it is place {filled}: the peer lists differ");
            return Progress::Waiting;
        }
        if !cluster.is_none() {
            self.problem = format!(
                "{name} belongs to cluster {cluster} already: a group is there, joining it"
            );
            return Progress::Yielded;
        }
        found.insert(place, peer);
        if found.len() < self.peers.len() {
            return Progress::Waiting;
        }
        self.begin();
        self.act(out)
    }

    /// Every peer is there and free: fixes the incarnations, and draws the group's id.
    fn begin(&mut self) {
        let Stage::Probing(found) = &self.stage else {
            return;
        };
        let mut untold: Vec<Member> = self
            .peers
            .iter()
            .filter_map(|&(place, address)| {
                let (incarnation, _) = *found.get(&place)?;
                Some(Member {
                    place,
                    role: MemberRole::Voter,
                    incarnation,
                    address,
                })
            })
            .collect();
        untold.sort_by_key(|member| member.place);
        let mut members = untold.clone();
        members.push(self.own);
        members.sort_by_key(|member| member.place);
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
        self.stage = Stage::Beginning {
            origin,
            untold,
            begun: false,
        };
    }

    fn on_begun(
        &mut self,
        place: PlaceId,
        incarnation: Incarnation,
        cluster: ClusterId,
        out: &mut Outbox,
    ) -> Progress {
        let Stage::Beginning {
            origin,
            untold,
            begun,
        } = &mut self.stage
        else {
            return Progress::Waiting;
        };
        let told = untold
            .first()
            .is_some_and(|m| m.place == place && m.incarnation == incarnation);
        if !told || cluster != origin.cluster {
            return Progress::Waiting;
        }
        untold.remove(0);
        *begun = true;
        self.act(out)
    }

    fn on_refused(
        &mut self,
        place: PlaceId,
        reason: BeginRefusal,
        incarnation: Incarnation,
        cluster: ClusterId,
        out: &mut Outbox,
    ) -> Progress {
        let name = self.name(place);
        let Stage::Beginning { untold, begun, .. } = &mut self.stage else {
            return Progress::Waiting;
        };
        let Some(asked) = untold
            .first()
            .filter(|member| member.place == place)
            .copied()
        else {
            return Progress::Waiting;
        };
        let same_life = incarnation == asked.incarnation;
        self.problem = match reason {
            BeginRefusal::AlreadyAttached => format!("{name} belongs to cluster {cluster} already"),
            BeginRefusal::OtherBootstrapper => format!("{name} was started with --bootstrap, too"),
            BeginRefusal::WrongPlace => {
                format!("{name} fills another place: the peer lists differ")
            }
            BeginRefusal::WrongIncarnation => format!("{name} was restarted meanwhile"),
            BeginRefusal::BadSettings => {
                format!("{name} cannot hold to the settings of the new group")
            }
        };
        match reason {
            // The other one meets this replica next, sees the lower place and yields. The higher one yields even if it
            // has already told a peer. If it told one incarnation of a peer and the other bootstrapper told the next,
            // each would wait for the other for ever. The peers that it told find out that the group never begins.
            BeginRefusal::OtherBootstrapper if self.own.place < place => Progress::Waiting,
            BeginRefusal::OtherBootstrapper => Progress::Yielded,
            // A replica that is not with the group now joins it later, like any restarted replica.
            _ if *begun => {
                untold.remove(0);
                self.act(out)
            }
            BeginRefusal::AlreadyAttached if same_life => Progress::Yielded,
            _ => {
                self.stage = Stage::Probing(BTreeMap::new());
                Progress::Waiting
            }
        }
    }

    fn name(&self, place: PlaceId) -> String {
        match self.peers.iter().find(|(other, _)| *other == place) {
            Some((_, address)) => format!("place {place} at {address}"),
            None => format!("place {place}"),
        }
    }
}

/// The answer to a probe by a replica that belongs to no group, or to `cluster`.
#[must_use]
pub(crate) fn present(
    place: PlaceId,
    incarnation: Incarnation,
    cluster: ClusterId,
    state_version: u8,
) -> BootstrapReply {
    BootstrapReply::Present {
        place,
        incarnation,
        cluster,
        state_version,
    }
}

fn letter(place: PlaceId, to: SocketAddr, timeout: Duration) -> Letter {
    Letter {
        to,
        expect: None,
        kind: kind::BOOTSTRAP,
        class: Class::Bulk,
        purpose: Purpose::Bootstrap(place),
        timeout,
        answer_bytes_max: present(place, Incarnation::NONE, ClusterId::NONE, 0).encoded_len(),
    }
}
