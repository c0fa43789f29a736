//! raft-rs's leader and nothing else: proposals and followers' answers come in as values, what it sends is dropped.

use raft::eraftpb::{ConfState, Entry, Message, MessageType};
use raft::storage::MemStorage;
use raft::{Config, RawNode};
use slog::{Discard, Logger, o};

/// The function inside which a counted run counts.
pub(crate) const COUNTED: &str = "round_of_the_leader";

/// `rounds` proposals of one message with `batch` entries of `bytes` each.
pub(crate) fn run_counted(rounds: u64, batch: usize, bytes: usize) {
    let mut node = elected();
    for round in 0..rounds {
        let proposal = proposal(batch, bytes);
        let answers = round_of_the_leader(&mut node, proposal);
        assert_eq!(answers, batch, "every entry is committed in round {round}");
        if round % 64 == 0 {
            let applied = node.raft.raft_log.applied;
            node.mut_store()
                .wl()
                .compact(applied)
                .expect("what is applied can be compacted");
        }
    }
}

fn proposal(batch: usize, bytes: usize) -> Message {
    let mut message = Message {
        from: 1,
        ..Message::default()
    };
    message.set_msg_type(MessageType::MsgPropose);
    message.entries = (0..batch)
        .map(|_| Entry {
            data: vec![7; bytes],
            ..Entry::default()
        })
        .collect::<Vec<_>>();
    message
}

fn elected() -> RawNode<MemStorage> {
    let conf = ConfState {
        voters: vec![1, 2, 3],
        ..ConfState::default()
    };
    let config = Config {
        id: 1,
        election_tick: 15,
        heartbeat_tick: 3,
        max_size_per_msg: 128 << 10,
        max_inflight_msgs: 256,
        skip_bcast_commit: true,
        batch_append: true,
        ..Config::default()
    };
    let store = MemStorage::new_with_conf_state(conf);
    let mut node =
        RawNode::new(&config, store, &Logger::root(Discard, o!())).expect("a sound configuration");
    node.campaign().expect("it may campaign");
    let mut vote = Message {
        from: 2,
        to: 1,
        term: node.raft.term,
        ..Message::default()
    };
    vote.set_msg_type(MessageType::MsgRequestVoteResponse);
    ready(&mut node);
    node.step(vote).expect("a vote");
    ready(&mut node);
    acknowledge(&mut node);
    ready(&mut node);
    node
}

/// Propose, append, both acknowledgements, commit. Returns the entries committed.
#[inline(never)]
fn round_of_the_leader(node: &mut RawNode<MemStorage>, proposal: Message) -> usize {
    node.step(proposal).expect("a proposal");
    let mut committed = ready(node);
    acknowledge(node);
    committed += ready(node);
    committed
}

fn acknowledge(node: &mut RawNode<MemStorage>) {
    for from in [2, 3] {
        let index = node.raft.raft_log.last_index();
        let mut answer = Message {
            from,
            to: 1,
            term: node.raft.term,
            index,
            ..Message::default()
        };
        answer.set_msg_type(MessageType::MsgAppendResponse);
        node.step(answer).expect("an answer");
    }
}

fn ready(node: &mut RawNode<MemStorage>) -> usize {
    let mut committed = 0;
    while node.has_ready() {
        let mut ready = node.ready();
        drop(ready.take_messages());
        committed += ready
            .take_committed_entries()
            .iter()
            .filter(|entry| !entry.data.is_empty())
            .count();
        if let Some(state) = ready.hs() {
            node.mut_store().wl().set_hardstate(state.clone());
        }
        node.mut_store()
            .wl()
            .append(ready.entries())
            .expect("entries that follow the last");
        drop(ready.take_persisted_messages());
        let mut light = node.advance(ready);
        drop(light.take_messages());
        committed += light
            .take_committed_entries()
            .iter()
            .filter(|entry| !entry.data.is_empty())
            .count();
        node.advance_apply();
    }
    committed
}
