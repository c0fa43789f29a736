//! Disk mode of a member: what it writes, what it holds back until that is durable, and its own snapshots.
//!
//! The log in memory is bounded as in memory mode, whatever the disk does. On disk a log segment is kept until a
//! snapshot that replaces it is durable; this replica makes one of its own state whenever enough log has piled up.

use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Message, Snapshot};
use trine_protocol::message::{ChunkAck, ChunkOutcome, ClusterId, Member, ReplyToken};
use trine_transport::prng::Prng;
use trine_transport::time::Instant;

use super::Group;
use super::local::election_timeout;
use crate::config::{OWN_SNAPSHOT_BYTES_PER_TURN, ReplicaConfig, SNAPSHOT_BYTES_WAITING_MAX};
use crate::disk::{
    DiskError, Identity, Restored, SnapshotHead, Write, begin_piece, end_piece, middle_piece,
};
use crate::halt::Halt;
use crate::log::{Log, MemoryLog};
use crate::outbox::Outbox;
use crate::raft_group::{RaftGroup, Work};
use crate::reads::Reads;
use crate::snapshot_transfer::{Image, Piece, ended};
use crate::state_machine::StateMachine;
use crate::state_machine::genesis::{FIRST_INDEX, FIRST_TERM};

/// What a member of disk mode keeps beside a member of memory mode.
#[derive(Default)]
pub(super) struct Durability {
    last_stream: u64,
    /// The snapshot of its own state that is being written.
    own: Option<OwnSnapshot>,
    /// Stream and pieces of the snapshot that is being received.
    incoming: Option<(u64, u32)>,
    /// Who waits for an installed snapshot to be durable, and its transfer.
    installed_asker: Option<(ReplyToken, u64)>,
    /// Who waits, to send the next chunk, until the disk has got on, and what it will be answered.
    chunk_asker: Option<(ReplyToken, ChunkAck)>,
    /// Bytes of log since the last snapshot was begun, and the bytes that one had.
    log_bytes: u64,
    snapshot_bytes: u64,
    /// Pieces of snapshots that wait for the disk: number of the write, bytes.
    waiting: VecDeque<(u64, usize)>,
    /// Settings that came with a snapshot are taken over once the disk has everything.
    pub(super) adopt_later: bool,
}

struct OwnSnapshot {
    stream: u64,
    image: Image,
    pieces: u32,
    bytes: u64,
}

impl Durability {
    fn next_stream(&mut self) -> u64 {
        self.last_stream += 1;
        self.last_stream
    }

    /// A snapshot comes in; raft's message says of which state.
    pub(super) fn begin_incoming(
        &mut self,
        cluster: ClusterId,
        message: &Message,
        out: &mut Outbox,
    ) {
        let metadata = message.get_snapshot().get_metadata();
        let head = SnapshotHead {
            cluster,
            index: metadata.index,
            term: metadata.term,
            conf: metadata.get_conf_state().clone(),
        };
        let stream = self.next_stream();
        let bytes = begin_piece(&head);
        out.write(Write::SnapshotPiece { stream, bytes });
        self.incoming = Some((stream, 1));
    }

    pub(super) fn write_incoming(&mut self, chunk: &[u8], out: &mut Outbox) {
        if let Some((stream, pieces)) = &mut self.incoming {
            let (stream, bytes) = (*stream, middle_piece(*pieces, chunk));
            let len = bytes.len();
            let number = out.write(Write::SnapshotPiece { stream, bytes });
            self.waiting.push_back((number, len));
            *pieces += 1;
        }
    }

    fn give_up_own(&mut self, state: Option<&mut StateMachine>, out: &mut Outbox) {
        if let Some(own) = self.own.take() {
            if let Some(state) = state {
                own.image.abandon(state.store_mut());
            }
            out.write(Write::SnapshotGivenUp { stream: own.stream });
            // The next one is due at once.
            self.log_bytes = u64::MAX / 2;
        }
    }

    /// The log is going to stand on the snapshot that has come in.
    fn end_incoming_with(&mut self, index: u64, out: &mut Outbox) {
        if let Some((stream, pieces)) = self.incoming.take() {
            let bytes = end_piece(pieces);
            out.write(Write::SnapshotPiece { stream, bytes });
            out.write(Write::SnapshotEnd { stream, index });
            self.log_bytes = 0;
        }
    }
}

impl Group {
    /// A member that goes on after a restart with what its disk has kept.
    pub(crate) fn restored(
        config: ReplicaConfig,
        own: Member,
        restored: Restored,
        seed: u64,
        now: Instant,
    ) -> Self {
        let Restored {
            identity,
            snapshot,
            hard_state,
            entries,
        } = restored;
        let Identity {
            cluster, origin, ..
        } = identity;
        let (base, conf, state) = match (snapshot, &origin) {
            (Some(loaded), _) => {
                let base = (loaded.head.index, loaded.head.term);
                (base, loaded.head.conf, Some(loaded.state))
            }
            (None, Some(origin)) => {
                let members = &origin.members.0;
                let voters = members.iter().map(|member| member.incarnation.0).collect();
                let conf = ConfState {
                    voters,
                    ..ConfState::default()
                };
                let state = StateMachine::new(cluster, origin.genesis, members, FIRST_INDEX);
                ((FIRST_INDEX, FIRST_TERM), conf, Some(state))
            }
            (None, None) => ((0, 0), ConfState::default(), None),
        };
        let config = match &state {
            Some(state) => state.genesis().adapt(&config),
            None => config,
        };
        let log = MemoryLog::restored(base, conf, hard_state, entries);
        let log_bytes = log.bytes() as u64;
        // The life before may have promised its silence to a leader a moment ago.
        let votes_from = now + election_timeout(&config);
        let id = own.incarnation.0;
        let raft = RaftGroup::new(&config, id, log, base.0, seed, now, votes_from);
        let mut group = Self::with(config, own, cluster, raft, state, origin, now);
        // The identity is that of an earlier life, to which answers may still be on their way: no read of this life is
        // confirmed by one of them, and no chunk of an old transfer is taken for one of a new.
        let first = Prng::new(seed).next_u64() >> 2;
        group.reads = Reads::starting_at(first);
        group.next_transfer = first;
        group.disk = Some(Box::new(Durability {
            log_bytes,
            ..Durability::default()
        }));
        group
    }

    /// Everything that this member promises goes through the disk from here on; its identity goes first.
    pub(crate) fn keep_on_disk(&mut self, out: &mut Outbox) {
        let identity = Identity {
            place: self.local.own.place,
            incarnation: self.local.own.incarnation,
            cluster: self.local.cluster,
            origin: self.origin.clone(),
        };
        out.write(Write::Identity(identity.encode()));
        self.disk = Some(Box::default());
    }

    /// Everything up to write `number` is durable.
    pub(crate) fn on_written(&mut self, now: Instant, number: u64, out: &mut Outbox) {
        let Some(disk) = &mut self.disk else { return };
        while disk
            .waiting
            .front()
            .is_some_and(|&(write, _)| write <= number)
        {
            disk.waiting.pop_front();
        }
        if bytes_of(&disk.waiting) < SNAPSHOT_BYTES_WAITING_MAX
            && let Some((token, ack)) = disk.chunk_asker.take()
        {
            out.reply(token, &ack);
        }
        if self.halted.is_some() {
            return;
        }
        if let Some(work) = self.consensus.on_written(number) {
            self.do_work(now, work, out);
        }
    }

    /// The disk takes nothing any more.
    pub(crate) fn on_write_failed(&mut self, error: &DiskError) {
        self.halt(Halt::Disk(error.clone()));
    }

    pub(super) fn poll_work_durably(&mut self, out: &mut Outbox) -> Option<Work> {
        let Self {
            consensus,
            disk,
            state,
            ..
        } = self;
        let disk = disk.as_mut()?;
        consensus.poll_work_durably(|record, snapshot: Option<&Snapshot>| {
            if let Some(snapshot) = snapshot {
                disk.give_up_own(state.as_mut(), out);
                disk.end_incoming_with(snapshot.get_metadata().index, out);
            }
            let write = Write::Log(record);
            disk.log_bytes = disk.log_bytes.saturating_add(write.len() as u64);
            out.write(write)
        })
    }

    /// What is being received will not be finished.
    pub(super) fn end_incoming(&mut self, out: &mut Outbox) {
        self.incoming = None;
        let stream = self.disk.as_mut().and_then(|disk| disk.incoming.take());
        if let Some((stream, _)) = stream {
            out.write(Write::SnapshotGivenUp { stream });
        }
    }

    /// Whether as much of snapshots waits for the disk as may.
    pub(super) fn disk_is_behind(&self) -> bool {
        let behind = |disk: &Durability| bytes_of(&disk.waiting) >= SNAPSHOT_BYTES_WAITING_MAX;
        self.disk.as_deref().is_some_and(behind)
    }

    /// The sender of a snapshot may go on when the disk has got on. It has one chunk under way at a time: if it sends that
    /// again, the later one is answered.
    pub(super) fn answer_when_written(
        &mut self,
        token: ReplyToken,
        ack: ChunkAck,
        out: &mut Outbox,
    ) {
        match &mut self.disk {
            Some(disk) => answer_later(&mut disk.chunk_asker, token, ack, out),
            None => out.reply(token, &ack),
        }
    }

    /// The sender of a snapshot hears of its end when it is durable.
    pub(super) fn answer_when_installed(
        &mut self,
        token: ReplyToken,
        transfer: u64,
        out: &mut Outbox,
    ) {
        match &mut self.disk {
            Some(disk) => answer_later(&mut disk.installed_asker, token, transfer, out),
            None => out.reply_empty(token),
        }
    }

    pub(super) fn answer_installed(&mut self, out: &mut Outbox) {
        let asker = self
            .disk
            .as_mut()
            .and_then(|disk| disk.installed_asker.take());
        if let Some((token, transfer)) = asker {
            out.reply(token, &ended(ChunkOutcome::Installed, transfer));
        }
    }

    /// Raft is set up anew only where nothing waits.
    pub(super) fn adopt_late(&mut self) {
        if let Some(disk) = &mut self.disk
            && disk.adopt_later
            && self.consensus.raft().is_settled()
        {
            disk.adopt_later = false;
            self.consensus.adopt(&self.local.config);
        }
    }

    pub(super) fn writes_own_snapshot(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.own.is_some())
    }

    /// Begins a snapshot of the own state if enough log has piled up.
    pub(super) fn begin_own_snapshot(&mut self, now: Instant, out: &mut Outbox) {
        let Some(disk) = &mut self.disk else { return };
        let enough = self
            .local
            .config
            .disk_log_bytes_max
            .max(disk.snapshot_bytes);
        let busy = disk.own.is_some()
            || disk.incoming.is_some()
            || self.image.is_some()
            || self.installing.is_some();
        let Some(state) = self.state.as_mut().filter(|_| !busy) else {
            return;
        };
        if disk.log_bytes < enough {
            return;
        }
        let (index, conf) = (state.applied_index(), self.consensus.raft().conf_state());
        let Some(term) = self.consensus.raft().term_at(index) else {
            return;
        };
        let Some(image) = Image::begin(now, state, self.local.config.snapshot_chunk_bytes) else {
            return;
        };
        let head = SnapshotHead {
            cluster: self.local.cluster,
            index,
            term,
            conf,
        };
        let stream = disk.next_stream();
        let bytes = begin_piece(&head);
        out.write(Write::SnapshotPiece { stream, bytes });
        disk.log_bytes = 0;
        disk.own = Some(OwnSnapshot {
            stream,
            image,
            pieces: 1,
            bytes: 0,
        });
    }

    /// Writes on at it, as far as the disk keeps up.
    pub(super) fn write_own_snapshot(&mut self, out: &mut Outbox) {
        let (Some(disk), Some(state)) = (&mut self.disk, &mut self.state) else {
            return;
        };
        let Some(own) = &mut disk.own else { return };
        let mut waiting = bytes_of(&disk.waiting);
        let mut written = 0;
        while waiting < SNAPSHOT_BYTES_WAITING_MAX && written < OWN_SNAPSHOT_BYTES_PER_TURN {
            let (chunk, last) = match own.image.piece(own.pieces - 1, state.store_mut()) {
                Piece::Chunk(chunk, last) => (chunk, last),
                Piece::Pending => return,
                Piece::Gone => return disk.give_up_own(None, out),
            };
            let (stream, bytes) = (own.stream, middle_piece(own.pieces, chunk));
            let len = bytes.len();
            (waiting, written) = (waiting + len, written + len);
            own.bytes += len as u64;
            let number = out.write(Write::SnapshotPiece { stream, bytes });
            disk.waiting.push_back((number, len));
            own.image.forget_below(own.pieces);
            own.pieces += 1;
            if last {
                let (bytes, index) = (end_piece(own.pieces), own.image.index);
                disk.snapshot_bytes = own.bytes;
                disk.own = None;
                out.write(Write::SnapshotPiece { stream, bytes });
                out.write(Write::SnapshotEnd { stream, index });
                out.counters.snapshots_written += 1;
                return;
            }
        }
    }
}

/// Keeps who will be answered. Who was kept before has asked again since, and is answered nothing.
fn answer_later<T>(
    asker: &mut Option<(ReplyToken, T)>,
    token: ReplyToken,
    about: T,
    out: &mut Outbox,
) {
    if let Some((before, _)) = asker.replace((token, about)) {
        out.reply_empty(before);
    }
}

fn bytes_of(waiting: &VecDeque<(u64, usize)>) -> usize {
    waiting.iter().map(|&(_, bytes)| bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::Origin;
    use crate::disk::{Fsync, MemoryDisk, OpenOptions, open};
    use crate::raft_group::Refusal;
    use crate::state_machine::Genesis;
    use raft::StateRole;
    use raft::eraftpb::{Entry, MessageType};
    use std::collections::BTreeMap;
    use trine_protocol::message::{Incarnation, MemberRole, Members, PlaceId};
    use trine_transport::buf::{Pool, PoolConfig};

    fn restored(disk: &MemoryDisk, own: Member, seed: u64) -> Group {
        let opened = open(disk.clone(), options()).unwrap();
        let config = ReplicaConfig::default();
        Group::restored(config, own, opened.restored.unwrap(), seed, Instant::ZERO)
    }

    fn options() -> OpenOptions {
        OpenOptions {
            place: PlaceId(1),
            fsync: Fsync::Batch,
            segment_bytes: crate::config::SEGMENT_BYTES_MIN,
            incarnation: Incarnation(11),
            rejoin: false,
        }
    }

    /// A follower asks its leader, dies, and comes back as the same member. The answer reaches its next life, which has a
    /// question of its own under way. Whenever the earlier number was the greater one the answer counted for that as
    /// well, and the read missed what was written in between.
    #[test]
    fn an_answer_to_an_earlier_life_confirms_no_read_of_this_one() {
        let own = Member {
            place: PlaceId(1),
            role: MemberRole::Voter,
            incarnation: Incarnation(11),
            address: ([127, 0, 0, 1], 7471).into(),
        };
        let identity = Identity {
            place: own.place,
            incarnation: own.incarnation,
            cluster: ClusterId(7),
            origin: Some(Origin {
                cluster: ClusterId(7),
                members: Members(vec![own]),
                genesis: Genesis::new(&ReplicaConfig::default(), [1, 2]),
            }),
        };
        let mut writer = open(MemoryDisk::default(), options()).unwrap().writer;
        writer
            .perform([Write::Identity(identity.encode())])
            .unwrap();
        let disk = writer.disk_mut().clone();
        let mut later = 0;
        for seed in 0..32 {
            let asked = |group: &mut Group| {
                group.reads.push(Instant::ZERO, ReplyToken(1), &[]);
                let context = group.reads.next_round().unwrap();
                group.reads.on_begun(Instant::ZERO, context);
                context
            };
            let before = asked(&mut restored(&disk, own, 2 * seed));
            let mut group = restored(&disk, own, 2 * seed + 1);
            let present = asked(&mut group);
            later += u32::from(before > present);
            group.on_round_confirmed(before, 5);
            assert!(group.reads.take_ready(100).is_empty(), "seed {seed}");
            group.on_round_confirmed(present, 5);
            assert_eq!(group.reads.take_ready(100).len(), 1);
        }
        assert!(later > 0, "both orders were tried");
    }
    fn from_leader(kind: MessageType) -> Message {
        let mut message = Message {
            from: 11,
            to: 13,
            term: 2,
            index: 5,
            log_term: 2,
            commit: 5,
            ..Message::default()
        };
        message.set_msg_type(kind);
        message
    }

    /// A new identity whose election timeout is a sixth of what its group has promised its leaders takes the promise over
    /// with its first snapshot. In disk mode raft can be set up anew for it only when the disk has everything; until then
    /// the replica went by its own timeout. A disk that was busy for longer than that let it vote, and campaign, while a
    /// leader that it had followed a moment before still answered under its lease.
    #[test]
    fn a_promise_counts_before_the_disk_has_the_snapshot_that_it_came_with() {
        let (config, now) = (ReplicaConfig::default(), Instant::ZERO);
        let patient = ReplicaConfig {
            election_ticks: 6 * config.election_ticks,
            ..config
        };
        let member = |id: u64| Member {
            place: PlaceId(id as u32 - 10),
            role: MemberRole::Voter,
            incarnation: Incarnation(id),
            address: ([127, 0, 0, 1], 7460 + id as u16).into(),
        };
        let members = [11, 12, 13].map(member);
        let mut out = Outbox::new(Pool::new(PoolConfig::default()));
        let mut group = Group::joining(config, members[2], ClusterId(7), 1, now);
        group.keep_on_disk(&mut out);
        let genesis = Genesis::new(&patient, [1, 2]);
        group.installing = Some(StateMachine::new(ClusterId(7), genesis, &members, 5));
        let mut snapshot = from_leader(MessageType::MsgSnapshot);
        let metadata = snapshot.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (5, 2);
        metadata.mut_conf_state().voters = vec![11, 12, 13];
        group.step(now, Incarnation(11), snapshot, None, &mut out);
        group.on_turn(now, &BTreeMap::new(), &mut out);
        let durable = std::iter::from_fn(|| out.pop_write()).last().unwrap().0;
        group.on_written(now, durable, &mut out);
        assert!(group.has_state());

        // An entry comes, and the disk is busy with it from then on.
        let mut append = from_leader(MessageType::MsgAppend);
        append.entries.push(Entry {
            index: 6,
            term: 2,
            ..Entry::default()
        });
        group.step(now, Incarnation(11), append, None, &mut out);
        group.on_turn(now, &BTreeMap::new(), &mut out);
        let mut vote = from_leader(MessageType::MsgRequestVote);
        (vote.from, vote.term, vote.index) = (12, 3, 6);
        let mut at = now;
        for tick in 1..patient.election_ticks {
            at += config.tick;
            group.on_turn(at, &BTreeMap::new(), &mut out);
            assert_eq!(
                group.consensus.raft().role(),
                StateRole::Follower,
                "tick {tick}"
            );
            let answer = group
                .consensus
                .step(at, Incarnation(12), vote.clone(), None);
            assert_eq!(answer, Err(Refusal::TooEarlyToVote), "tick {tick}");
        }
        // Afterwards it is free to campaign by its own timeout.
        for _ in 0..=2 * config.election_ticks {
            at += config.tick;
            group.on_turn(at, &BTreeMap::new(), &mut out);
        }
        assert_eq!(group.consensus.raft().role(), StateRole::PreCandidate);
    }
}
