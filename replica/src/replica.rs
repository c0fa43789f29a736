//! One replica as a sans-IO value: requests, peers' answers and time go in, messages and answers come out.

mod asked;
mod life;
mod peers;
mod places;
mod promised;
mod views;

pub(crate) use self::peers::is_for_anybody;

use std::net::SocketAddr;

use trine_keys::UserName;
use trine_kvstore::{User, Users};
use trine_protocol::message::{
    AdminRequest, AppendFrame, BeginRefusal, BootstrapReply, BootstrapRequest, ClientReply,
    ClientRequest, ClientStatus, ClusterId, DecodeError, Incarnation, JoinRefusal, JoinReply,
    JoinRequest, LeaderSecret, Member, MemberRole, NodeId, OtherVersion, PeerHeader, RaftFrame,
    ReplyToken, RoleCode, RunSecret, SnapshotChunk, StateReport, StatusForm, StatusReply,
    StatusRequest, kind,
};
use trine_transport::Holder;
use trine_transport::buf::Pool;
use trine_transport::prng::Prng;
use trine_transport::time::{Duration, Instant};

use crate::addresses::Addresses;
use crate::audit::Audit;
use crate::bootstrap::{self, Begin, Bootstrap, BootstrapProgress, Origin};
use crate::config::{BEGIN_PATIENCE, ConfigError, ReplicaConfig};
use crate::disk::{DiskError, Fsync, Restored, Write};
use crate::group::Group;
use crate::halt::Halt;
use crate::join::Joiner;
use crate::member_discovery::MemberDiscovery;
use crate::outbox::{Outbox, PeerRequest, Purpose};
use crate::output::{Class, Output};
use crate::rights::{Caller, Denied, Subject, What};
use crate::searches::Searches;
use crate::timing::Stopwatch;
use life::Life;
use peers::{check_peers, known};
use places::member_addresses;

/// Room for the answer who the members are, with the most of them.
const DISCOVERY_BYTES_MAX: usize = 4 << 10;

/// One replica. Every call is followed by draining [`Replica::poll_output`]. PROTOCOL.md, section
/// 2, shows its states.
pub struct Replica {
    config: ReplicaConfig,
    own: Member,
    seed: u64,
    life: Life,
    /// Asks to be taken in, until this replica has a vote.
    joiner: Joiner,
    /// The addresses of replicas that are known beside those of the members.
    addresses: Addresses,
    discovery: MemberDiscovery,
    /// For members that are not where the table says.
    searches: Searches,
    prng: Prng,
    out: Outbox,
    stopwatch: Option<Stopwatch>,
    /// The secret that tells the voters of this run's end.
    secret: Option<RunSecret>,
    stopping: bool,
    /// Disk mode: promises go through `Replica::poll_write` first.
    durable: bool,
    /// When the disk counts a write as durable, for the status.
    fsync: Option<Fsync>,
    /// Why the disk takes nothing any more.
    disk_failed: Option<Halt>,
}

impl Replica {
    /// A replica that belongs to no group yet. `peers` names every node of the group, this one included.
    ///
    /// # Errors
    /// When the settings contradict themselves.
    #[expect(
        clippy::too_many_arguments,
        reason = "everything that is outside of the replica comes in here, once"
    )]
    pub fn new(
        config: ReplicaConfig,
        incarnation: Incarnation,
        node_id: NodeId,
        address: SocketAddr,
        peers: Vec<(NodeId, SocketAddr)>,
        pool: Pool,
        seed: u64,
        now: Instant,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        if incarnation.is_none() {
            return Err(ConfigError::Incarnation);
        }
        check_peers(node_id, address, &peers)?;
        let own = Member {
            node_id,
            role: MemberRole::Voter,
            incarnation,
            address,
        };
        let others: Vec<_> = peers
            .into_iter()
            .filter(|&(other, _)| other != node_id)
            .collect();
        let joiner = Joiner::new(
            own,
            config.attach_retry,
            config.state_version,
            now,
            "looking for the group".to_owned(),
        );
        let mut prng = Prng::new(seed ^ incarnation.0.rotate_left(32));
        let mut out = Outbox::new(pool);
        // The table may know an earlier place of this replica.
        out.places.set_own(incarnation, address);
        let bootstrap = config
            .bootstrap
            .then(|| Bootstrap::new(own, known(&others), config, prng.fork(), now));
        Ok(Self {
            config,
            own,
            seed,
            life: bootstrap.map_or(Life::joining(), |bootstrap| {
                Life::Bootstrapping(Box::new(bootstrap))
            }),
            joiner,
            addresses: Addresses::new(others),
            discovery: MemberDiscovery::new(),
            searches: Searches::default(),
            prng,
            out,
            stopwatch: None,
            secret: None,
            stopping: false,
            durable: false,
            fsync: None,
            disk_failed: None,
        })
    }

    /// Turns disk mode on, before the first turn: each write from [`Replica::poll_write`] has to be written, and its
    /// number handed to [`Replica::on_written`]. `restored` is what the disk has kept of this incarnation.
    #[must_use]
    pub fn on_disk(mut self, restored: Option<Restored>, now: Instant) -> Self {
        self.durable = true;
        if let Some(restored) = restored {
            assert_eq!(
                restored.incarnation(),
                self.own.incarnation,
                "a replica goes on as who it was"
            );
            let mut group = Group::restored(
                self.config,
                self.own,
                restored,
                (self.seed, now),
                &mut self.out,
            );
            self.lend(&mut group);
            self.life = Life::Attached(Box::new(group));
        }
        self
    }

    /// The list of peers only says which addresses to ask: the node ids in it are made up, and say nothing about who
    /// may take them.
    #[must_use]
    pub fn with_peers_anywhere(mut self) -> Self {
        self.addresses = self.addresses.without_node_ids();
        self
    }

    /// The first member of a new group with the state of a backup, before the first turn. Its log is in memory.
    #[must_use]
    pub fn begun_from_backup(mut self, restored: Restored, now: Instant) -> Self {
        assert_eq!(
            restored.incarnation(),
            self.own.incarnation,
            "the state was prepared for this replica"
        );
        let mut group = Group::begun_from_backup(
            self.config,
            self.own,
            restored,
            (self.seed, now),
            &mut self.out,
        );
        self.lend(&mut group);
        self.life = Life::Attached(Box::new(group));
        self
    }

    /// The secret of this run, for the voters. Another process tells it to them once this one has ended, and never
    /// before: a leader that is said to have ended is replaced whatever it does. None if no process would tell it.
    #[must_use]
    pub fn with_secret(mut self, secret: Option<RunSecret>) -> Self {
        self.secret = secret;
        if let Some(group) = self.life.group_mut() {
            group.lend_secret(self.secret);
        }
        self
    }

    /// When its disk counts a write as durable: for its status, nothing else.
    #[must_use]
    pub fn synced(mut self, fsync: Fsync) -> Self {
        self.fsync = Some(fsync);
        self
    }

    /// The next thing to write, with its number; numbers grow by one. Nothing in memory mode.
    pub fn poll_write(&mut self) -> Option<(u64, Write)> {
        self.out.pop_write()
    }

    /// Everything up to write `number` is durable. A turn is due then.
    pub fn on_written(&mut self, now: Instant, number: u64) {
        if let Some(group) = self.life.group_mut() {
            group.on_written(now, number, &mut self.out);
        }
    }

    /// A write has failed: the content of the disk is unknown, so this replica halts.
    pub fn on_write_failed(&mut self, error: &DiskError) {
        self.disk_failed = Some(Halt::Disk(error.clone()));
        if let Some(group) = self.life.group_mut() {
            group.on_write_failed(error);
        }
    }

    /// Lends a clock in which the stages of writes are measured, finer than in turns; see [`crate::timing`].
    pub fn lend_stopwatch(&mut self, stopwatch: Stopwatch) {
        self.stopwatch = Some(stopwatch);
        if let Some(group) = self.life.group_mut() {
            group.lend_stopwatch(self.stopwatch);
        }
    }

    /// A request of kind CLIENT from a session without a key, in a group that has none. It is answered through
    /// [`Output::Reply`], exactly once. `holder` tells whom a registration is counted for; it is asked for that alone.
    pub fn on_client(
        &mut self,
        now: Instant,
        token: ReplyToken,
        request: &[u8],
        holder: &dyn Fn() -> Holder,
    ) {
        self.on_client_from(now, token, Caller::default(), request, holder);
    }

    /// The same from a session that has proven this.
    pub fn on_client_from(
        &mut self,
        now: Instant,
        token: ReplyToken,
        caller: Caller,
        request: &[u8],
        holder: &dyn Fn() -> Holder,
    ) {
        let cluster = self.cluster();
        match (ClientRequest::decode(request), self.life.group_mut()) {
            (Ok(request), Some(group)) if !self.stopping => {
                group.on_client(now, token, caller, &request, holder, &mut self.out)
            }
            (Ok(_), Some(_)) => self.out.reply(
                token,
                &ClientReply::refusal(ClientStatus::NotLeader, cluster),
            ),
            (Ok(_), None) => self.out.reply(
                token,
                &ClientReply::refusal(ClientStatus::NotAttached, cluster),
            ),
            (Err(DecodeError::Version { .. }), _) => {
                let other = OtherVersion::of_message(kind::CLIENT, request);
                self.out.reply(token, &other.reply(cluster));
            }
            (Err(_), _) => self.out.reply(
                token,
                &ClientReply::refusal(ClientStatus::Malformed, cluster),
            ),
        }
    }

    /// Why a caller may not send a message that is none of a client's; `None` if it may. While this replica has no state
    /// there are no users.
    pub fn denies(&mut self, caller: Caller, what: What<'_>) -> Option<Denied> {
        let none = Users::default();
        let users = self.users().unwrap_or(&none);
        let subject = Subject::of(caller, users);
        let denied = subject.and_then(|subject| subject.may(what)).err()?;
        self.out.counters.denied += 1;
        Some(denied)
    }

    /// The user whose key of this generation counts, by the state that this replica has applied. None for removed users,
    /// for rotated keys, and while this replica has no state.
    #[must_use]
    pub fn is_current(&self, name: UserName, generation: u32) -> Option<User<'_>> {
        self.users()?.is_current(name, generation)
    }

    /// The group's users, by the state that this replica has applied. Whenever [`Users::changed_at`] differs from the last
    /// look, the owner of the sessions ends those whose key does not count any more.
    #[must_use]
    pub fn users(&self) -> Option<&Users> {
        self.life.group()?.users()
    }

    /// The oldest line about an admin command that this replica has applied, and how many were lost before it because
    /// they were not read in time.
    pub fn next_audit(&mut self) -> Option<(Audit, u64)> {
        self.life.group_mut()?.next_audit()
    }

    /// A request of kind APPEND, RAFT, SNAPSHOT, BOOTSTRAP, JOIN, AGREE or LEADER_SECRET from a peer, or ADMIN. It is
    /// answered through [`Output::Reply`], exactly once. `comes_from` says of an address whether the request was sent from there.
    pub fn on_peer(
        &mut self,
        now: Instant,
        token: ReplyToken,
        kind: u8,
        request: &[u8],
        comes_from: impl Fn(SocketAddr) -> bool,
    ) {
        if !is_for_anybody(kind) && self.origin(&comes_from).is_none() {
            return self.refuse_unknown_address(token);
        }
        self.on_trusted_peer(now, token, kind, request, comes_from);
    }

    /// The same for a request whose origin was looked up already, where that is required: see [`is_for_anybody`].
    pub(crate) fn on_trusted_peer(
        &mut self,
        now: Instant,
        token: ReplyToken,
        kind: u8,
        request: &[u8],
        comes_from: impl Fn(SocketAddr) -> bool,
    ) {
        let names_sender = matches!(
            kind,
            kind::APPEND | kind::RAFT | kind::SNAPSHOT | kind::AGREE | kind::LEADER_SECRET
        );
        if names_sender
            && PeerHeader::decode(request)
                .is_ok_and(|header| self.is_misplaced(&header, &comes_from))
        {
            return self.refuse_unknown_address(token);
        }
        let result =
            match kind {
                kind::APPEND => AppendFrame::decode(request)
                    .map(|frame| self.on_raft(now, Some(token), frame.raft_frame())),
                kind::RAFT => {
                    RaftFrame::decode(request).map(|frame| self.on_raft(now, Some(token), frame))
                }
                kind::SNAPSHOT => {
                    SnapshotChunk::decode(request).map(|chunk| self.on_chunk(now, token, &chunk))
                }
                kind::BOOTSTRAP => BootstrapRequest::decode(request)
                    .map(|request| self.on_bootstrap(now, token, request)),
                kind::JOIN => JoinRequest::decode(request)
                    .map(|request| self.on_join(now, token, &request, comes_from)),
                kind::AGREE => StateReport::decode(request)
                    .map(|report| self.on_state_report(now, token, &report)),
                kind::LEADER_SECRET => LeaderSecret::decode(request)
                    .map(|said| self.on_leader_secret(now, token, &said)),
                kind::ADMIN => AdminRequest::decode(request)
                    .map(|request| self.on_admin_command(now, token, Caller::default(), &request)),
                _ => Err(DecodeError::Field { field: "kind" }),
            };
        if result.is_err() {
            self.out.counters.messages_refused += 1;
            self.out.reply_empty(token);
        }
    }

    /// An append of a member whose request was answered when it came, ahead of one that was missing. Raft's answer goes out
    /// on its own. The member may have another place by now than when it came.
    pub(crate) fn on_early_append(
        &mut self,
        now: Instant,
        frame: &[u8],
        comes_from: impl Fn(SocketAddr) -> bool,
    ) {
        match AppendFrame::decode(frame) {
            Ok(frame) if self.is_misplaced(&frame.header, comes_from) => {
                self.out.counters.messages_unknown_address += 1;
            }
            Ok(frame) => self.on_raft(now, None, frame.raft_frame()),
            Err(_) => self.out.counters.messages_refused += 1,
        }
    }

    fn on_raft(&mut self, now: Instant, token: Option<ReplyToken>, frame: RaftFrame<'_>) {
        match (self.life.group_mut(), token) {
            (Some(group), _) => {
                group.on_raft_request(now, token, &frame.header, frame.message, &mut self.out)
            }
            (None, Some(token)) => self.drop_foreign(token),
            (None, None) => self.out.counters.messages_foreign += 1,
        }
    }

    /// Whether a message comes from a member of the group, as far as this replica knows them, and is for this replica.
    pub(crate) fn is_from_member(
        &self,
        header: &PeerHeader,
        comes_from: impl Fn(SocketAddr) -> bool,
    ) -> bool {
        let group = self.life.group();
        group.is_some_and(|group| group.is_from_member(header))
            && !self.is_misplaced(header, comes_from)
    }

    fn on_chunk(&mut self, now: Instant, token: ReplyToken, chunk: &SnapshotChunk<'_>) {
        match self.life.group_mut() {
            Some(group) => group.on_chunk(now, token, chunk, &mut self.out),
            None => self.drop_foreign(token),
        }
    }

    fn on_state_report(&mut self, now: Instant, token: ReplyToken, report: &StateReport) {
        match self.life.group_mut() {
            Some(group) => group.on_state_report(now, token, report, &mut self.out),
            None => self.drop_foreign(token),
        }
    }

    fn on_leader_secret(&mut self, now: Instant, token: ReplyToken, said: &LeaderSecret) {
        match self.life.group_mut() {
            Some(group) => group.on_leader_secret(now, token, said, &mut self.out),
            None => self.drop_foreign(token),
        }
    }

    /// A notice says that the run with this secret has ended. Any program can send one: only the secret proves it.
    pub fn on_death_notice(&mut self, now: Instant, secret: &RunSecret) {
        if let Some(group) = self.life.group_mut() {
            group.on_death_notice(now, secret, &mut self.out);
        }
    }

    fn drop_foreign(&mut self, token: ReplyToken) {
        self.out.counters.messages_foreign += 1;
        self.out.reply_empty(token);
    }

    fn on_bootstrap(&mut self, now: Instant, token: ReplyToken, request: BootstrapRequest<'_>) {
        let Member {
            node_id,
            incarnation,
            ..
        } = self.own;
        let reply = match request {
            BootstrapRequest::Probe { .. } => bootstrap::present(
                node_id,
                incarnation,
                self.cluster(),
                self.config.state_version,
            ),
            BootstrapRequest::Begin {
                node_id: meant,
                incarnation: life,
                cluster,
                members,
                first_entry,
            } => match self.on_begin(
                now,
                Begin {
                    node_id: meant,
                    incarnation: life,
                    cluster,
                    members,
                    first_entry,
                },
            ) {
                Ok(()) => BootstrapReply::Begun {
                    node_id,
                    incarnation,
                    cluster,
                },
                Err(reason) => BootstrapReply::Refused {
                    reason,
                    node_id,
                    incarnation,
                    cluster: self.cluster(),
                },
            },
        };
        self.out.reply(token, &reply);
    }

    fn on_begin(&mut self, now: Instant, begin: Begin<'_>) -> Result<(), BeginRefusal> {
        let cluster = begin.cluster;
        let origin = Origin::from_begin(
            begin,
            self.own.node_id,
            self.own.incarnation,
            self.config.state_version,
        )?;
        if self.life.group().is_some() {
            // The bootstrapper repeats itself because the first answer was lost.
            return if self.cluster() == cluster {
                Ok(())
            } else {
                Err(BeginRefusal::AlreadyAttached)
            };
        }
        if self.life.is_bootstrapping() {
            return Err(BeginRefusal::OtherBootstrapper);
        }
        self.become_first_member(now, origin);
        Ok(())
    }

    fn become_first_member(&mut self, now: Instant, origin: Origin) {
        let group = Group::first_member(self.config, self.own, origin, self.seed, now);
        self.life = Life::Voter(self.prepare(group));
    }

    /// Gives a group what this replica was lent.
    fn lend(&self, group: &mut Group) {
        group.lend_stopwatch(self.stopwatch);
        group.lend_secret(self.secret);
    }

    fn prepare(&mut self, mut group: Group) -> Box<Group> {
        self.lend(&mut group);
        if self.durable {
            group.keep_on_disk(&mut self.out);
        }
        Box::new(group)
    }

    fn on_join(
        &mut self,
        now: Instant,
        token: ReplyToken,
        request: &JoinRequest,
        comes_from: impl Fn(SocketAddr) -> bool,
    ) {
        let reply = match self.life.group_mut() {
            Some(group) => group.on_join(now, request, &self.addresses, comes_from, &mut self.out),
            None => JoinReply::Refused {
                reason: JoinRefusal::NotAttached,
                cluster: ClusterId::NONE,
                leader_address: None,
            },
        };
        self.out.reply(token, &reply);
    }

    /// The end of a request that was sent through [`Output::Send`]: its answer, or nothing if there was none.
    pub fn on_peer_reply(&mut self, now: Instant, tag: u64, answer: Option<&[u8]>) {
        match self.out.recall(tag) {
            Some(Purpose::Raft { to, append }) => self.on_raft_answer(now, to, append > 0, answer),
            Some(Purpose::Chunk { to, transfer }) => {
                if let Some(group) = self.life.group_mut() {
                    group.on_chunk_answer(now, to, transfer, answer, &mut self.out);
                }
            }
            Some(Purpose::Bootstrap(node_id)) => {
                if let Some(bootstrap) = self.life.bootstrap_mut() {
                    let progress = bootstrap.on_answer(node_id, answer, &mut self.out);
                    self.follow_bootstrap(now, progress);
                }
            }
            Some(Purpose::Report { to, index }) => {
                if let (Some(group), Some(answer)) = (self.life.group_mut(), answer) {
                    group.on_report_answer(now, to, index, answer, &mut self.out);
                }
            }
            Some(Purpose::Secret { to, term }) => {
                if let Some(group) = self.life.group_mut() {
                    group.on_secret_answer(to, term, answer);
                }
            }
            Some(Purpose::Join(from)) => self.on_join_answer(now, from, answer),
            Some(Purpose::Members) => self.on_discovery(now, answer),
            Some(Purpose::Place(question)) => self.on_place_answer(now, question, answer),
            Some(Purpose::Promised(of)) => self.on_promised(of, answer),
            None => self.out.counters.messages_foreign += 1,
        }
    }

    /// Who the members are, as a replica that this one knows has answered.
    fn on_discovery(&mut self, now: Instant, answer: Option<&[u8]>) {
        let Some(Ok(StatusReply::Discovery(discovery))) = answer.map(StatusReply::decode) else {
            return;
        };
        let own = self.cluster();
        if own.is_none() || discovery.cluster == own {
            self.hear_of_own_place(&discovery);
            let own = self.own.address;
            // A follower may lag behind and name former places, and a copy of a directory names its own.
            let leads = discovery.role == RoleCode::Leader;
            let members = discovery.members.0.iter();
            for member in members.filter(|member| member.address != own) {
                self.addresses.learn(member.address);
                if leads {
                    self.hear_of_place(now, member);
                }
            }
        }
    }

    /// Asks a replica that is known who the members are, if that is wanted, and now and then the leader: it may have found
    /// some at other places.
    fn ask_for_members(&mut self, now: Instant) {
        let own = self.own.address;
        let others = member_addresses(&self.life, &self.out);
        let others = others.filter(|&address| address != own);
        let known = others.chain(self.addresses.iter());
        let group = self.life.group();
        let leader = || group?.leader_address(&self.out.places);
        let to = self.discovery.next(now, known);
        let to = to.or_else(|| self.discovery.next_of_leader(now, leader));
        let Some(to) = to.filter(|&to| to != own) else {
            return;
        };
        let peer_request = PeerRequest {
            to,
            expect: None,
            kind: kind::STATUS,
            class: Class::Bulk,
            purpose: Purpose::Members,
            timeout: self.config.attach_retry,
            answer_bytes_max: DISCOVERY_BYTES_MAX,
        };
        let form = StatusForm::Discovery;
        self.out.send(peer_request, &StatusRequest { form });
    }

    /// The session that carries raft's messages to a peer is established, and takes so many requests at a time; or it
    /// has ended.
    pub fn on_peer_session(&mut self, address: SocketAddr, slots: Option<usize>) {
        self.out.on_peer_session(address, slots);
    }

    /// The session to a peer has ended; its pending requests end through [`Replica::on_peer_reply`] one by one.
    pub fn on_peer_unreachable(&mut self, _now: Instant, address: SocketAddr) {
        if let Some(group) = self.life.group_mut() {
            group.on_unreachable(address, &self.out);
        }
    }

    fn on_raft_answer(
        &mut self,
        now: Instant,
        to: Incarnation,
        append: bool,
        answer: Option<&[u8]>,
    ) {
        let Some(group) = self.life.group_mut() else {
            return;
        };
        match answer {
            Some([]) => group.on_empty_answer(now, to),
            Some(bytes) => match RaftFrame::decode(bytes) {
                Ok(frame) => group.on_raft_answer(
                    now,
                    to,
                    append,
                    Some((&frame.header, frame.message)),
                    &mut self.out,
                ),
                Err(_) => {
                    self.out.counters.messages_refused += 1;
                    group.on_raft_answer(now, to, append, None, &mut self.out);
                }
            },
            None => group.on_raft_answer(now, to, append, None, &mut self.out),
        }
    }

    fn follow_bootstrap(&mut self, now: Instant, progress: BootstrapProgress) {
        match progress {
            BootstrapProgress::Waiting => {}
            BootstrapProgress::Begun(origin) => {
                self.become_first_member(now, origin);
                if let Some(group) = self.life.group_mut() {
                    group.campaign();
                }
            }
            BootstrapProgress::Yielded => {
                if let Some(bootstrap) = self.life.bootstrap() {
                    let problem = bootstrap.problem();
                    self.joiner.explain(format!("bootstrap refused: {problem}"));
                }
                self.life = Life::Joining {
                    bootstrap_again_at: Some(now + BEGIN_PATIENCE),
                };
            }
        }
    }

    fn on_join_answer(&mut self, now: Instant, from: SocketAddr, answer: Option<&[u8]>) {
        if let Some(Ok(JoinReply::Refused {
            leader_address: Some(leader),
            ..
        })) = answer.map(JoinReply::decode)
        {
            // The leader that is to be asked may lead from an address that has not been named here yet.
            self.addresses.learn(leader);
        }
        // Until it votes its group may change its members and leader, and then it has to know them.
        if self.life.has_no_vote() && answer.is_some() {
            self.discovery.want();
        }
        // A learner is both: a member that may have been removed, and one that asks to be taken in.
        if let (Some(group), Some(answer)) = (self.life.group_mut(), answer) {
            group.on_membership_answer(answer);
        }
        if !self.life.has_no_vote() {
            return;
        }
        let Some(cluster) = self.joiner.on_answer(now, from, answer) else {
            return;
        };
        let replaced = self
            .life
            .group()
            .is_none_or(|group| group.cluster() != cluster && !group.has_state());
        if replaced && !self.life.is_bootstrapping() {
            let group = Group::joining(self.config, self.own, cluster, self.seed, now);
            self.life = Life::Attached(self.prepare(group));
        }
    }

    /// To be called once after each burst of the calls above, and whenever [`Replica::next_timeout`] has passed. It
    /// packs the arrived requests into one proposal, runs raft, applies committed entries, and ticks if a tick is due.
    pub fn on_turn(&mut self, now: Instant) {
        // Ahead of the bootstrap: one that is due again takes its first step in this turn.
        self.bootstrap_again(now);
        if let Some(bootstrap) = self.life.bootstrap_mut() {
            let progress = bootstrap.on_turn(now, &mut self.out);
            self.follow_bootstrap(now, progress);
        }
        // After the bootstrap: a group that has just begun campaigns in this turn.
        if let Some(group) = self.life.group_mut() {
            group.on_turn(now, &mut self.out);
            if group.is_voter() {
                self.life.become_voter();
            }
        }
        // After the group: a replica that has a vote by now asks no other any more.
        let cluster = self.cluster();
        if self.life.asks_to_join() {
            self.joiner
                .on_turn(now, cluster, &self.addresses, &mut self.out);
        }
        self.ask_for_promises(now);
        self.seek_members(now);
        // Last, because any step above may want to know.
        self.ask_for_members(now);
    }

    /// The next thing to do, or nothing.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// When [`Replica::on_turn`] has to be called next, if nothing else happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        let bootstrap = self.life.bootstrap().map(Bootstrap::next_timeout);
        let joiner = self.life.asks_to_join().then(|| self.joiner.next_timeout());
        let group = self.life.group();
        let group = group.and_then(|group| group.next_timeout(&self.out));
        let question = self.discovery.next_timeout();
        [bootstrap, joiner, group, question]
            .into_iter()
            .flatten()
            .min()
    }

    /// Begins a graceful stop: a leader transfers leadership, and clients are sent elsewhere. Poll
    /// [`Replica::is_stopped`] after each turn.
    pub fn stop(&mut self, now: Instant) {
        self.stopping = true;
        if let Some(group) = self.life.group_mut() {
            group.stop(now, &mut self.out);
        }
    }

    /// Whether the process may end: leadership is transferred, or the time for that is over.
    pub fn is_stopped(&self, now: Instant) -> bool {
        self.stopping && self.life.group().is_none_or(|group| group.is_stopped(now))
    }

    /// A bootstrapper that had to yield tries again if nothing has come of that.
    fn bootstrap_again(&mut self, now: Instant) {
        if self.life.is_to_bootstrap_again(now) {
            let prng = Prng::new(self.prng.next_u64());
            let others = self.addresses.peers().collect();
            let bootstrap = Bootstrap::new(self.own, others, self.config, prng, now);
            self.life = Life::Bootstrapping(Box::new(bootstrap));
        }
    }

    /// For so long a follower waits for its leader.
    pub(crate) fn election_timeout(&self) -> Duration {
        let ticks = self.config.election_ticks as u64;
        self.config.tick.saturating_mul(ticks)
    }
}
