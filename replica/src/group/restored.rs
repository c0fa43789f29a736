//! A member of disk mode: how it resumes from its disk, and which messages a durable write releases.

use raft::eraftpb::ConfState;
use trine_canary as canary;
use trine_protocol::message::Member;
use trine_transport::prng::Prng;
use trine_transport::time::Instant;

use super::Group;
use super::asking::Asking;
use super::durability::Durability;
use super::local::election_timeout;
use super::replayed::Replayed;
use super::sending::Sending;
use super::service::Service;
use crate::config::ReplicaConfig;
use crate::disk::{DiskError, Identity, Restored};
use crate::halt::Halt;
use crate::log::{Log, MemoryLog};
use crate::outbox::Outbox;
use crate::raft_group::RaftGroup;
use crate::state_machine::StateMachine;
use crate::state_machine::genesis::{FIRST_INDEX, FIRST_TERM};

impl Group {
    /// A member that resumes from its disk after a restart.
    pub(crate) fn restored(
        config: ReplicaConfig,
        own: Member,
        restored: Restored,
        (seed, now): (u64, Instant),
        out: &mut Outbox,
    ) -> Self {
        let Restored {
            identity,
            snapshot,
            hard_state,
            entries,
            is_lifted,
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
        let asking = (!canary::planted("an older copy is not asked"))
            .then(|| Asking::new(now, &config, &entries, hard_state.commit));
        let known = entries.iter().map(|entry| (entry.index, entry.term));
        let replayed = Replayed::new(known, hard_state.commit);
        let log = MemoryLog::restored(base, conf, hard_state, entries);
        let log_bytes = log.bytes() as u64;
        // Before the restart it may have promised its silence to a leader, a moment ago.
        let votes_from = now + election_timeout(&config);
        let id = own.incarnation.0;
        let raft = RaftGroup::new(&config, id, log, base.0, seed, now, votes_from);
        let mut group = Self::with(config, own, cluster, raft, state, origin, (seed, now));
        // The identity stays the same over a restart, and answers to earlier questions may still be on their way. None
        // of them may confirm a read of now, and no chunk of an old transfer may pass for one of a new.
        let first = Prng::new(seed).next_u64() >> 2;
        group.service = Service::starting_at(first);
        group.sending = Sending::starting_at(first);
        group.replayed = Some(replayed);
        group.disk = Some(Box::new(Durability::with_log(log_bytes)));
        (group.asking, group.is_lifted) = (asking, is_lifted);
        group.announce_places(out);
        group
    }

    /// The first member of a group that begins with the state of a backup, with its log in memory.
    pub(crate) fn begun_from_backup(
        config: ReplicaConfig,
        own: Member,
        restored: Restored,
        begin: (u64, Instant),
        out: &mut Outbox,
    ) -> Self {
        let mut group = Self::restored(config, own, restored, begin, out);
        (group.disk, group.asking) = (None, None);
        group
    }

    /// Everything that this member promises goes through the disk from here on.
    pub(crate) fn keep_on_disk(&mut self, out: &mut Outbox) {
        let disk = Durability::begin(&self.local, self.membership.origin(), out);
        self.disk = Some(Box::new(disk));
    }

    /// Everything up to write `number` is durable.
    pub(crate) fn on_written(&mut self, now: Instant, number: u64, out: &mut Outbox) {
        let Some(disk) = &mut self.disk else { return };
        disk.on_written(number, out);
        if self.life.is_halted() {
            return;
        }
        if let Some(work) = self.consensus.on_written(number) {
            self.do_work(now, work, out);
            self.announce_places(out);
        }
    }

    /// The disk takes nothing any more.
    pub(crate) fn on_write_failed(&mut self, error: &DiskError) {
        self.life.halt(Halt::Disk(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::Origin;
    use crate::disk::{Fsync, MemoryDisk, OpenOptions, Write, open};
    use crate::raft_group::Refusal;
    use crate::state_machine::Genesis;
    use raft::StateRole;
    use raft::eraftpb::{Entry, Message, MessageType};
    use trine_protocol::message::{
        ClusterId, Incarnation, MemberRole, Members, NodeId, ReplyToken,
    };
    use trine_transport::buf::{Pool, PoolConfig};

    fn restored(disk: &MemoryDisk, own: Member, seed: u64) -> Group {
        let opened = open(disk.clone(), options()).unwrap();
        let config = ReplicaConfig::default();
        let mut out = Outbox::new(Pool::new(PoolConfig::default()));
        let begin = (seed, Instant::ZERO);
        Group::restored(config, own, opened.restored.unwrap(), begin, &mut out)
    }

    fn options() -> OpenOptions {
        OpenOptions {
            node_id: NodeId(1),
            fsync: Fsync::Batch,
            segment_bytes: crate::config::SEGMENT_BYTES_MIN,
            incarnation: Incarnation(11),
            rejoin: false,
        }
    }

    /// A follower asks its leader, dies, and comes back as the same member. The answer reaches the restarted process,
    /// which has a question of its own under way. Whenever the earlier number was the greater one the answer counted
    /// for that as well, and the read missed the writes in between.
    #[test]
    fn an_answer_to_an_earlier_run_confirms_no_read_of_this_one() {
        let own = Member {
            node_id: NodeId(1),
            role: MemberRole::Voter,
            incarnation: Incarnation(11),
            address: ([127, 0, 0, 1], 7471).into(),
        };
        let identity = Identity {
            node_id: own.node_id,
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
        let mut out = Outbox::new(Pool::new(PoolConfig::default()));
        let mut later = 0;
        for seed in 0..32 {
            let asked = |group: &mut Group| {
                let reads = group.service.reads_mut();
                reads.push(
                    Instant::ZERO,
                    ReplyToken(1),
                    crate::reads::AnswerWith::Value,
                    &[],
                    None,
                );
                let context = reads.next_round().unwrap();
                reads.on_begun(Instant::ZERO, context);
                context
            };
            let before = asked(&mut restored(&disk, own, 2 * seed));
            let mut group = restored(&disk, own, 2 * seed + 1);
            let present = asked(&mut group);
            later += u32::from(before > present);
            group.on_round_confirmed(Instant::ZERO, before, 5, &mut out);
            assert!(
                group.service.reads_mut().take_ready(100).is_empty(),
                "seed {seed}"
            );
            group.on_round_confirmed(Instant::ZERO, present, 5, &mut out);
            assert_eq!(group.service.reads_mut().take_ready(100).len(), 1);
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

    /// A new identity whose election timeout is a sixth of what its group has promised its leaders takes the promise
    /// over with its first snapshot. In disk mode raft can be set up again for it only when the disk has everything;
    /// until then the replica used its own timeout. When the disk was busy for longer than that, the replica could vote
    /// and campaign. Meanwhile a leader that it had followed a moment before still answered under its lease.
    #[test]
    fn a_promise_counts_before_the_disk_has_the_snapshot_that_it_came_with() {
        let (config, now) = (ReplicaConfig::default(), Instant::ZERO);
        let patient = ReplicaConfig {
            election_ticks: 6 * config.election_ticks,
            ..config
        };
        let member = |id: u64| Member {
            node_id: NodeId(id as u32 - 10),
            role: MemberRole::Voter,
            incarnation: Incarnation(id),
            address: ([127, 0, 0, 1], 7460 + id as u16).into(),
        };
        let members = [11, 12, 13].map(member);
        let mut out = Outbox::new(Pool::new(PoolConfig::default()));
        let mut group = Group::joining(config, members[2], ClusterId(7), 1, now);
        group.keep_on_disk(&mut out);
        let genesis = Genesis::new(&patient, [1, 2]);
        group
            .receiving
            .receive(StateMachine::new(ClusterId(7), genesis, &members, 5));
        let mut snapshot = from_leader(MessageType::MsgSnapshot);
        let metadata = snapshot.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (5, 2);
        metadata.mut_conf_state().voters = vec![11, 12, 13];
        group.step(now, Incarnation(11), snapshot, None, &mut out);
        group.on_turn(now, &mut out);
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
        group.on_turn(now, &mut out);
        let mut vote = from_leader(MessageType::MsgRequestVote);
        (vote.from, vote.term, vote.index) = (12, 3, 6);
        let mut at = now;
        for tick in 1..patient.election_ticks {
            at += config.tick;
            group.on_turn(at, &mut out);
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
            group.on_turn(at, &mut out);
        }
        assert_eq!(group.consensus.raft().role(), StateRole::PreCandidate);
    }
}
