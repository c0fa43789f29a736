//! The messages that a replica wants sent, and the answers that it still waits for.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use prost::Message as _;
use raft::eraftpb::Message;
use trine_kvstore::Response;
use trine_protocol::message::{
    APPEND_HEADER_SIZE, CLIENT_REPLY_HEADER_SIZE, ClientReply, ClientStatus, ClusterId, Encode,
    Incarnation, Member, NodeId, PEER_HEADER_SIZE, PeerHeader, ReplyToken, kind,
};
use trine_protocol::status::Counters;
use trine_transport::buf::{MsgBuf, Pool};
use trine_transport::slab::{Key, Slab};
use trine_transport::time::Duration;

use crate::config::PEER_REQUESTS_MAX;
use crate::disk::write::Write;
use crate::output::{Class, Output};
use crate::places::Places;
use crate::replay::AppliedEntry;
use crate::searches::PlaceQuestion;

/// The subject of a request to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A raft message to this member; its answer, if it has one, is another.
    Raft {
        /// The member.
        to: Incarnation,
        /// Its bytes if it carried log entries, so that its loss leaves a gap; zero otherwise.
        append: u32,
    },
    /// A snapshot chunk of this transfer.
    Chunk {
        /// The receiver.
        to: Incarnation,
        /// The transfer.
        transfer: u64,
    },
    /// A probe or begin of a bootstrap, to this node.
    Bootstrap(NodeId),
    /// The hash of this replica's state after an entry; the answer is the receiver's.
    Report {
        /// The member.
        to: Incarnation,
        /// The entry.
        index: u64,
    },
    /// The secret of this run, for this voter.
    Secret {
        /// The voter.
        to: Incarnation,
        /// The term that this replica led.
        term: u64,
    },
    /// A request to be taken in.
    Join(SocketAddr),
    /// The question who the members are.
    Members,
    /// The question which replica is at a place.
    Place(PlaceQuestion),
    /// The question what this replica has promised to a member.
    Promised(Incarnation),
}

/// A request to a peer, before it has bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerRequest {
    pub(crate) to: SocketAddr,
    /// The member that it is for, if `to` is its address in the table: it goes to that member's place.
    pub(crate) expect: Option<Incarnation>,
    pub(crate) kind: u8,
    pub(crate) class: Class,
    pub(crate) purpose: Purpose,
    pub(crate) timeout: Duration,
    pub(crate) answer_bytes_max: usize,
}

/// Outputs, and the requests whose end is not known yet.
pub(crate) struct Outbox {
    pool: Pool,
    outputs: VecDeque<Output>,
    /// The requests under way. A request's key is its tag: the tag of an earlier one finds nothing.
    requests: Slab<Purpose>,
    appends: AppendsUnderWay,
    /// Requests that each established session to a peer can carry at once.
    slots: BTreeMap<SocketAddr, usize>,
    /// Requests that could not be answered for want of a buffer.
    owed: Vec<ReplyToken>,
    /// The pending writes, with their numbers. Memory mode has none.
    writes: VecDeque<(u64, Write)>,
    last_write: u64,
    /// The entries that were applied, for a checker that takes them.
    applied: Option<Vec<AppliedEntry>>,
    /// The members that are not where the table says.
    pub(crate) places: Places,
    pub(crate) counters: Counters,
}

impl Outbox {
    pub(crate) fn new(pool: Pool) -> Self {
        let outputs = VecDeque::new();
        Self {
            pool,
            outputs,
            requests: Slab::new(PEER_REQUESTS_MAX),
            appends: AppendsUnderWay::default(),
            slots: BTreeMap::new(),
            owed: Vec::new(),
            writes: VecDeque::new(),
            last_write: 0,
            applied: None,
            places: Places::default(),
            counters: Counters::default(),
        }
    }

    /// The session to the peer at `address` is established with this many slots, or has ended.
    pub(crate) fn on_peer_session(&mut self, address: SocketAddr, slots: Option<usize>) {
        match slots {
            Some(slots) => self.slots.insert(address, slots),
            None => self.slots.remove(&address),
        };
    }

    /// Slots of the session to a member; `None` without a session.
    pub(crate) fn slots_to(&self, member: &Member) -> Option<usize> {
        self.slots.get(&self.places.of(member)).copied()
    }

    /// See [`crate::replay`].
    pub(crate) fn keep_applied(&mut self) {
        self.applied.get_or_insert_default();
    }

    pub(crate) fn take_applied(&mut self) -> Vec<AppliedEntry> {
        self.applied
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// An entry was applied; `data` is empty where it holds no command.
    pub(crate) fn note_applied(&mut self, index: u64, data: &[u8]) {
        if let Some(applied) = &mut self.applied {
            let data = data.to_vec();
            applied.push(AppliedEntry { index, data });
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Has something written; its number comes back when it is durable.
    pub(crate) fn write(&mut self, write: Write) -> u64 {
        self.last_write += 1;
        self.writes.push_back((self.last_write, write));
        self.last_write
    }

    pub(crate) fn pop_write(&mut self) -> Option<(u64, Write)> {
        self.writes.pop_front()
    }

    /// Answers a request with a message.
    pub(crate) fn reply(&mut self, token: ReplyToken, message: &impl Encode) {
        let bytes = self.message(message);
        self.reply_or_owe(token, bytes);
    }

    /// Answers a request with a message that is written already, or owes an answer for want of memory.
    pub(crate) fn reply_or_owe(&mut self, token: ReplyToken, bytes: Option<MsgBuf>) {
        match bytes {
            Some(bytes) => self.reply_bytes(token, bytes),
            None => self.owed.push(token),
        }
    }

    /// A message that answers a request later.
    pub(crate) fn message(&mut self, message: &impl Encode) -> Option<MsgBuf> {
        let mut bytes = self.alloc(message.encoded_len())?;
        message.encode_to_slice(&mut bytes);
        Some(bytes)
    }

    /// Answers a request with nothing: it was taken, or it was not worth an answer.
    pub(crate) fn reply_empty(&mut self, token: ReplyToken) {
        self.reply_as_is(token, &[]);
    }

    /// Answers a request with bytes that no decoder reads: it was refused, and the answer does not count as a sign of
    /// life.
    pub(crate) fn reply_unreadable(&mut self, token: ReplyToken) {
        self.reply_as_is(token, &[0]);
    }

    fn reply_as_is(&mut self, token: ReplyToken, content: &[u8]) {
        match self.pool.alloc(content.len()) {
            Some(mut bytes) => {
                bytes.copy_from_slice(content);
                self.outputs.push_back(Output::Reply { token, bytes });
            }
            None => self.owed.push(token),
        }
    }

    /// Answers a client with a response of the store.
    pub(crate) fn reply_response(
        &mut self,
        token: ReplyToken,
        cluster: ClusterId,
        position: u64,
        response: &Response<'_>,
    ) {
        let bytes = self.response(cluster, position, response);
        self.reply_or_owe(token, bytes);
    }

    /// A response of the store, written straight into the message that answers with it.
    pub(crate) fn response(
        &mut self,
        cluster: ClusterId,
        position: u64,
        response: &Response<'_>,
    ) -> Option<MsgBuf> {
        let mut bytes = self.alloc(CLIENT_REPLY_HEADER_SIZE + response.encoded_len())?;
        let head = ClientReply {
            position,
            ..ClientReply::refusal(ClientStatus::Ok, cluster)
        };
        let written = head.encode_to_slice(&mut bytes);
        assert_eq!(
            written, CLIENT_REPLY_HEADER_SIZE,
            "an empty response leaves the head alone"
        );
        response
            .encode_into(&mut bytes[written..])
            .expect("the buffer was sized by encoded_len()");
        Some(bytes)
    }

    /// Answers a request with a message that is written already.
    pub(crate) fn reply_bytes(&mut self, token: ReplyToken, bytes: MsgBuf) {
        self.outputs.push_back(Output::Reply { token, bytes });
    }

    /// Answers a request with a raft message.
    pub(crate) fn reply_raft(&mut self, token: ReplyToken, header: PeerHeader, message: &Message) {
        match self.raft_frame(header, message, PEER_HEADER_SIZE) {
            Some(bytes) => self.outputs.push_back(Output::Reply { token, bytes }),
            None => self.owed.push(token),
        }
    }

    /// Answers requests that had no answer yet for want of a buffer. "May have been executed, ask again" is true of
    /// every one of them. To a peer these bytes are noise, which it drops as it would a lost answer.
    pub(crate) fn settle_debts(&mut self, cluster: ClusterId) {
        for token in std::mem::take(&mut self.owed) {
            self.reply(
                token,
                &ClientReply::refusal(ClientStatus::LeadershipLost, cluster),
            );
        }
    }

    /// Whether requests have no answer yet for want of a buffer.
    pub(crate) fn has_debts(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Sends a message to a peer. Returns false if it could not leave; then no answer will come.
    pub(crate) fn send(&mut self, peer_request: PeerRequest, message: &impl Encode) -> bool {
        let Some(mut bytes) = self.alloc(message.encoded_len()) else {
            return false;
        };
        message.encode_to_slice(&mut bytes);
        self.post(peer_request, bytes)
    }

    /// Sends a raft message to a member. Returns false if it could not leave.
    pub(crate) fn send_raft(
        &mut self,
        peer_request: PeerRequest,
        header: PeerHeader,
        message: &Message,
    ) -> bool {
        let head = if peer_request.kind == kind::APPEND {
            APPEND_HEADER_SIZE
        } else {
            PEER_HEADER_SIZE
        };
        let Some(bytes) = self.raft_frame(header, message, head) else {
            return false;
        };
        let peer_request = match peer_request.purpose {
            Purpose::Raft { to, .. } if peer_request.kind == kind::APPEND => {
                let append = bytes.len() as u32;
                let purpose = Purpose::Raft { to, append };
                PeerRequest {
                    purpose,
                    ..peer_request
                }
            }
            _ => peer_request,
        };
        self.post(peer_request, bytes)
    }

    /// Bytes of the appends to a member that have not ended.
    pub(crate) fn append_bytes_under_way(&self, to: Incarnation) -> usize {
        self.appends.of(to)
    }

    fn raft_frame(&mut self, header: PeerHeader, message: &Message, head: usize) -> Option<MsgBuf> {
        let mut bytes = self.alloc(head + message.encoded_len())?;
        header.encode_to_slice(&mut bytes);
        // The node fills in stream and sequence of an append; reserved fields go out as zero.
        bytes[PEER_HEADER_SIZE..head].fill(0);
        let mut rest = &mut bytes[head..];
        message
            .encode(&mut rest)
            .expect("the buffer was sized by encoded_len()");
        assert!(rest.is_empty(), "no byte of an earlier message is sent");
        Some(bytes)
    }

    fn alloc(&mut self, len: usize) -> Option<MsgBuf> {
        let bytes = self.pool.alloc(len);
        if bytes.is_none() {
            self.counters.messages_unsent += 1;
        }
        bytes
    }

    fn post(&mut self, peer_request: PeerRequest, bytes: MsgBuf) -> bool {
        let Some(tag) = self.remember(peer_request.purpose) else {
            self.counters.messages_unsent += 1;
            return false;
        };
        let PeerRequest {
            to,
            expect,
            kind,
            class,
            purpose,
            timeout,
            answer_bytes_max,
        } = peer_request;
        let to = match (purpose, expect) {
            (Purpose::Place(_), _) | (_, None) => to,
            (_, Some(member)) => self.places.at(member, to),
        };
        self.outputs.push_back(Output::Send {
            to,
            expect,
            kind,
            class,
            bytes,
            tag,
            timeout,
            answer_bytes_max,
        });
        true
    }

    fn remember(&mut self, purpose: Purpose) -> Option<u64> {
        let key = self.requests.insert(purpose).ok()?;
        self.appends.begin(purpose);
        Some(key.to_u64())
    }

    /// The subject of the request with this tag. Each tag is answered once; another answer finds nothing.
    pub(crate) fn recall(&mut self, tag: u64) -> Option<Purpose> {
        let purpose = self.requests.remove(Key::from_u64(tag))?;
        self.appends.end(purpose);
        Some(purpose)
    }
}

/// Bytes of the appends that have not ended, by member. A member without any is not listed, so that there are no more
/// than members that live or did a moment ago.
#[derive(Default)]
struct AppendsUnderWay(Vec<(Incarnation, usize)>);

impl AppendsUnderWay {
    fn of(&self, to: Incarnation) -> usize {
        let found = self.0.iter().find(|(member, _)| *member == to);
        found.map_or(0, |&(_, bytes)| bytes)
    }

    fn begin(&mut self, purpose: Purpose) {
        let Some((to, size)) = append_of(purpose) else {
            return;
        };
        match self.0.iter_mut().find(|(member, _)| *member == to) {
            Some((_, bytes)) => *bytes += size,
            None => self.0.push((to, size)),
        }
    }

    fn end(&mut self, purpose: Purpose) {
        let Some((to, size)) = append_of(purpose) else {
            return;
        };
        let place = self.0.iter().position(|(member, _)| *member == to);
        let place = place.expect("an append that ends has begun");
        assert!(self.0[place].1 >= size, "an append was counted as it began");
        self.0[place].1 -= size;
        if self.0[place].1 == 0 {
            self.0.swap_remove(place);
        }
    }
}

fn append_of(purpose: Purpose) -> Option<(Incarnation, usize)> {
    match purpose {
        Purpose::Raft { to, append } if append > 0 => Some((to, append as usize)),
        _ => None,
    }
}
