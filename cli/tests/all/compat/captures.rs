//! Captures of earlier releases, read by the decoders of this build. Each packet has a right checksum, each message of
//! the kinds that the release knew is read, and the commands in clients' requests are. A sealed capture is opened by its
//! key log, by Wireshark's command line with this build's dissector.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use trine_corpus::goldens::goldens;
use trine_kvstore::Command;
use trine_protocol::message::{
    AdminReply, AdminRequest, AppendFrame, BackupReply, BackupRequest, BatchItems, BootstrapReply,
    BootstrapRequest, ChunkAck, ClientReply, ClientRequest, Encode, JoinReply, JoinRequest,
    LeaderSecret, Operation, RaftFrame, SnapshotChunk, StateReport, StatusReply, StatusRequest,
    WatchReply, WatchRequest, kind,
};
use trine_transport::wire::{Accept, Connect, Header, PacketType, Seed, split_first};

use crate::capture::values;
use crate::common::TempFile;

/// The client end and the server end of a session.
type Ends = (SocketAddr, SocketAddr);

/// A request by its session's ends, the server's session index and its number.
type Exchange = (Ends, u16, u64);

/// A message as it is put together from packets.
#[derive(Default)]
struct Message {
    kind: u8,
    bytes: usize,
    parts: BTreeMap<u16, Vec<u8>>,
}

impl Message {
    fn add(&mut self, header: &Header, payload: &[u8]) {
        self.bytes = header.message_bytes as usize;
        self.parts.insert(header.packet_number, payload.to_vec());
    }

    /// The message, if all of it was captured.
    fn whole(&self) -> Option<Vec<u8>> {
        let bytes: Vec<u8> = self.parts.values().flatten().copied().collect();
        (bytes.len() == self.bytes).then_some(bytes)
    }
}

/// The messages of a capture.
#[derive(Default)]
struct Conversation {
    /// The nonce's seed by the client's session index, until an ACCEPT names the server's.
    asked: HashMap<(Ends, u16), Seed>,
    /// By the client's session index.
    sessions: HashMap<(Ends, u16), (u16, Seed)>,
    /// The seeds of all sessions that have had this index at the server. A client that has not heard of the server's restart
    /// still sends in its old session, and another one may have the index by then.
    at_server: HashMap<(Ends, u16), Vec<Seed>>,
    requests: BTreeMap<Exchange, Message>,
    replies: BTreeMap<Exchange, Message>,
    /// What an earlier process at an address has said: a later one gives the same numbers again.
    done: Vec<(Message, Option<Message>)>,
}

impl Conversation {
    fn datagram(&mut self, from: SocketAddr, to: SocketAddr, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (packet, rest) = split_first(bytes).expect("a packet");
            bytes = rest;
            let header = packet.header;
            let number = header.request.sequence() << 6 | u64::from(header.request.slot());
            let seeds = match header.packet_type {
                PacketType::Connect => {
                    let (connect, _) = Connect::read(packet.payload).expect("a CONNECT");
                    let seed = Seed::of_nonce(connect.nonce);
                    self.asked
                        .insert(((from, to), connect.client_session), seed);
                    vec![Seed::NONE]
                }
                PacketType::Accept => {
                    let (accept, _) = Accept::read(packet.payload).expect("an ACCEPT");
                    let asked = self.asked[&((to, from), header.session)];
                    self.open((to, from), header.session, &accept, asked);
                    vec![asked]
                }
                PacketType::Request => {
                    let seeds = self.at_server.get(&((from, to), header.session));
                    let seeds = seeds.cloned().unwrap_or_default();
                    if !seeds.is_empty() {
                        let exchange = ((from, to), header.session, number);
                        let message = self.requests.entry(exchange).or_default();
                        message.kind = header.kind;
                        message.add(&header, packet.payload);
                    }
                    seeds
                }
                PacketType::Response => {
                    let session = self.sessions.get(&((to, from), header.session)).copied();
                    if let Some((server, _)) = session {
                        let exchange = ((to, from), server, number);
                        let message = self.replies.entry(exchange).or_default();
                        message.add(&header, packet.payload);
                    }
                    session.map(|(_, seed)| seed).into_iter().collect()
                }
                _ => Vec::new(),
            };
            let verified = seeds.iter().any(|&seed| packet.verify(seed));
            assert!(verified || seeds.is_empty(), "{from} to {to}: {header:?}");
        }
    }

    fn open(&mut self, ends: Ends, client: u16, accept: &Accept, asked: Seed) {
        let server = accept.server_session;
        let again = (server, asked.agreed(accept.features));
        if self.sessions.insert((ends, client), again) == Some(again) {
            // The same ACCEPT once more.
            return;
        }
        self.at_server
            .entry((ends, server))
            .or_default()
            .push(again.1);
        let of_old = |exchange: &Exchange| exchange.0 == ends && exchange.1 == server;
        let old: Vec<Exchange> = self.requests.keys().copied().filter(of_old).collect();
        for exchange in old {
            let request = self.requests.remove(&exchange).expect("there");
            self.done.push((request, self.replies.remove(&exchange)));
        }
    }

    /// All requests with their replies.
    fn finish(mut self) -> Vec<(Message, Option<Message>)> {
        for (exchange, request) in std::mem::take(&mut self.requests) {
            self.done.push((request, self.replies.remove(&exchange)));
        }
        self.done
    }
}

/// The UDP datagrams of a capture that `trine` wrote: a little-endian pcapng file of raw IPv4 packets.
fn datagrams(capture: &[u8]) -> Vec<(SocketAddr, SocketAddr, &[u8])> {
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().expect("four"));
    let mut found = Vec::new();
    let mut at = 0;
    while at < capture.len() {
        let (block, length) = (word(at), word(at + 4) as usize);
        if block == 6 {
            let packet = &capture[at + 28..][..word(at + 20) as usize];
            assert_eq!(packet[0], 0x45, "IPv4 without options");
            let address = |ip: usize, port: usize| {
                let ip: [u8; 4] = packet[ip..ip + 4].try_into().expect("four");
                let port = u16::from_be_bytes([packet[port], packet[port + 1]]);
                SocketAddr::new(IpAddr::from(ip), port)
            };
            found.push((address(12, 20), address(16, 22), &packet[28..]));
        }
        at += length;
    }
    found
}

/// Reads a message, and what this build writes for it reads the same.
macro_rules! read {
    ($message:ident, $bytes:expr) => {{
        let bytes: &[u8] = $bytes;
        let message = $message::decode(bytes).unwrap_or_else(|error| {
            panic!(concat!(stringify!($message), ": {}: {:02x?}"), error, bytes)
        });
        let written = message.encode_to_vec();
        assert_eq!($message::decode(&written), Ok(message));
    }};
}

fn request(kind: u8, bytes: &[u8]) {
    match kind {
        kind::CLIENT => client_request(bytes),
        kind::CLIENT_BATCH => {
            let items = BatchItems::decode(bytes).expect("a batch");
            assert_ne!(items.len(), 0);
            items.for_each(client_request);
        }
        kind::APPEND => read!(AppendFrame, bytes),
        kind::RAFT => read!(RaftFrame, bytes),
        kind::SNAPSHOT => read!(SnapshotChunk, bytes),
        kind::BOOTSTRAP => read!(BootstrapRequest, bytes),
        kind::JOIN => read!(JoinRequest, bytes),
        kind::STATUS => read!(StatusRequest, bytes),
        kind::ADMIN => read!(AdminRequest, bytes),
        kind::AGREE => read!(StateReport, bytes),
        kind::BACKUP => read!(BackupRequest, bytes),
        kind::WATCH => read!(WatchRequest, bytes),
        kind::LEADER_SECRET => read!(LeaderSecret, bytes),
        other => panic!("this build has no decoder for requests of kind {other}"),
    }
}

fn client_request(bytes: &[u8]) {
    read!(ClientRequest, bytes);
    let request = ClientRequest::decode(bytes).expect("just read");
    let is_command = matches!(
        request.operation,
        Operation::Apply | Operation::ReadLinearizable | Operation::ReadStale
    );
    if is_command {
        Command::decode(request.command).expect("a command");
    }
}

fn reply(kind: u8, bytes: &[u8]) {
    match kind {
        kind::CLIENT => read!(ClientReply, bytes),
        kind::CLIENT_BATCH => {
            let items = BatchItems::decode_replies(bytes).expect("a batch");
            items.for_each(|item| read!(ClientReply, item));
        }
        // A member that has nothing to say answers with nothing.
        kind::APPEND | kind::RAFT | kind::AGREE | kind::LEADER_SECRET if bytes.is_empty() => {}
        kind::APPEND | kind::RAFT => read!(RaftFrame, bytes),
        kind::AGREE => read!(StateReport, bytes),
        kind::SNAPSHOT => read!(ChunkAck, bytes),
        kind::BOOTSTRAP => read!(BootstrapReply, bytes),
        kind::JOIN => read!(JoinReply, bytes),
        kind::STATUS => read!(StatusReply, bytes),
        kind::ADMIN => read!(AdminReply, bytes),
        kind::BACKUP => read!(BackupReply, bytes),
        kind::WATCH => read!(WatchReply, bytes),
        other => panic!("this build has no decoder for replies of kind {other}"),
    }
}

#[test]
fn each_kind_of_message_is_read() {
    for golden in goldens() {
        for (name, shows) in golden.files("captures") {
            let capture = golden.unzipped(name);
            let mut conversation = Conversation::default();
            for (from, to, bytes) in datagrams(&capture) {
                conversation.datagram(from, to, bytes);
            }
            let (mut asked, mut answered) = (BTreeSet::new(), BTreeSet::new());
            let (mut requests, mut replies) = (0, 0);
            for (message, response) in conversation.finish() {
                if let Some(bytes) = message.whole() {
                    request(message.kind, &bytes);
                    asked.insert(message.kind);
                    requests += 1;
                }
                if let Some(bytes) = response.and_then(|response| response.whole()) {
                    reply(message.kind, &bytes);
                    answered.insert(message.kind);
                    replies += 1;
                }
            }
            let kinds = shows["kinds"].as_object().expect("kinds by name");
            let kinds: BTreeSet<u8> = kinds
                .values()
                .map(|kind| kind.as_u64().expect("a number") as u8)
                .collect();
            assert_eq!(asked, kinds, "{name}: requests");
            assert_eq!(answered, kinds, "{name}: replies");
            println!("{name}: {requests} requests, {replies} replies");
        }
    }
}

#[test]
fn a_sealed_session_is_read_with_its_key_log() {
    for golden in goldens() {
        for (name, shows) in golden.files("sealed_captures") {
            let (capture, log) = (
                TempFile::new("golden.pcapng"),
                TempFile::new("golden.keylog"),
            );
            std::fs::write(&capture.0, golden.unzipped(name)).expect("written");
            let key_log = shows["key_log"].as_str().expect("a name");
            std::fs::write(&log.0, golden.bytes(key_log)).expect("written");
            let Some(tags) = values(&capture.0, Some(log.path()), "trine.tag.status") else {
                return;
            };
            assert!(
                tags.len() > 4 && tags.iter().all(|tag| tag == "1"),
                "{tags:?}"
            );
            let data = values(&capture.0, Some(log.path()), "trine.data").expect("tshark is there");
            let holds = shows["holds"].as_str().expect("a text");
            let digits: String = holds.bytes().map(|byte| format!("{byte:02x}")).collect();
            assert!(data.iter().any(|data| data.contains(&digits)), "{data:?}");
        }
    }
}
