//! One endpoint and the test as its peer, packet by packet.

use super::net::{Node, caps};
use crate::backend::Caps;
use crate::time::{Duration, Instant};
use crate::wire::{
    Accept, Connect, Cookie, Features, Flags, Header, NO_SESSION, Packet, PacketType, Probe,
    RequestNumber, Seed, split_first,
};
use crate::{Config, ConnectParams, DownReason, Event, Identity, RequestId, SessionId};

/// The test's address, and that of an unknown sender.
pub(crate) const PEER: u32 = 9;
pub(crate) const STRANGER: u32 = 10;
/// The session index that the test uses for itself.
pub(crate) const OUR_INDEX: u16 = 4;
pub(crate) const NONCE: u64 = 0x0123_4567_89ab_cdef;
/// Data bytes of a full packet.
pub(crate) const FULL: usize = 1472 - 48;

pub(crate) struct Script {
    pub(crate) now: Instant,
    pub(crate) node: Node,
    pub(crate) seed: Seed,
    pub(crate) nonce: u64,
    /// The endpoint's session index.
    pub(crate) index: u16,
    pub(crate) session: Option<SessionId>,
    /// The test's offer in a CONNECT.
    features: Features,
}

impl Script {
    fn fresh(config: &Config) -> Self {
        Self::over(config, caps())
    }

    fn over(config: &Config, caps: Caps) -> Self {
        Self {
            now: Instant::from_nanos(1_000_000_000),
            node: Node::new(
                config,
                caps,
                Identity {
                    cluster: 0,
                    incarnation: 1,
                },
                7,
            ),
            seed: Seed::of_nonce(NONCE),
            nonce: NONCE,
            index: NO_SESSION,
            session: None,
            features: Features::NONE,
        }
    }

    /// The endpoint has seen nothing yet.
    pub(crate) fn stranger() -> Self {
        Self::fresh(&Config::default())
    }

    /// The endpoint is the server of a session that the test has opened.
    pub(crate) fn server() -> Self {
        Self::server_with(&Config::default())
    }

    pub(crate) fn server_with(config: &Config) -> Self {
        Self::server_over(config, caps())
    }

    pub(crate) fn server_over(config: &Config, caps: Caps) -> Self {
        Self::over(config, caps).connected()
    }

    /// The endpoint is a server, and the test offers these features.
    pub(crate) fn server_offered(config: &Config, features: Features) -> Self {
        let script = Self {
            features,
            ..Self::over(config, caps())
        };
        script.connected()
    }

    fn connected(self) -> Self {
        let mut script = self;
        script.open();
        let Some(Event::Accepted { session, .. }) = script.node.app.events.first() else {
            panic!("no session")
        };
        script.session = Some(*session);
        script
    }

    fn open(&mut self) {
        self.connect(0);
        let cookie = self.take_one(PacketType::Cookie, |packet| Cookie::read(packet.payload));
        self.connect(cookie.cookie);
        let accept = self.take_one(PacketType::Accept, |packet| {
            Accept::read(packet.payload).map(|(accept, _)| accept)
        });
        self.index = accept.server_session;
    }

    /// One more session of the test with the server; its index and seed.
    pub(crate) fn another(&mut self, nonce: u64) -> (u16, Seed) {
        (self.nonce, self.seed) = (nonce, Seed::of_nonce(nonce));
        self.open();
        (self.index, self.seed)
    }

    /// The endpoint is the client of a session with the test.
    pub(crate) fn client() -> Self {
        Self::client_with(&Config::default())
    }

    pub(crate) fn client_with(config: &Config) -> Self {
        Self::client_over(config, caps())
    }

    pub(crate) fn client_over(config: &Config, caps: Caps) -> Self {
        let mut script = Self::over(config, caps);
        script.ask();
        script.cookie(0xc00c);
        script.expect(&["Connect"]);
        script.accept(32, 8);
        script.expect(&[]);
        script
    }

    /// The endpoint has sent its first CONNECT.
    pub(crate) fn asking(config: &Config) -> Self {
        let mut script = Self::fresh(config);
        script.ask();
        script
    }

    fn ask(&mut self) {
        let script = self;
        let session = script
            .node
            .endpoint
            .connect(script.now, PEER, ConnectParams::default())
            .expect("room");
        script.session = Some(session);
        let connect = script.take_one(PacketType::Connect, |packet| {
            Connect::read(packet.payload).map(|(connect, _)| connect)
        });
        assert_eq!(connect.cookie, 0);
        script.index = connect.client_session;
        script.nonce = connect.nonce;
        script.seed = Seed::of_nonce(connect.nonce);
    }

    pub(crate) fn connect_wish(&self, cookie: u64) -> Connect {
        Connect {
            client_session: OUR_INDEX,
            credits: 32,
            slots: 8,
            features: self.features,
            mtu: 1472,
            nonce: self.nonce,
            cluster: 0,
            incarnation: 2,
            cookie,
        }
    }

    pub(crate) fn connect(&mut self, cookie: u64) {
        let body = self.connect_wish(cookie).write();
        self.raw(
            PEER,
            &Header::new(PacketType::Connect, NO_SESSION),
            Seed::NONE,
            &body,
        );
    }

    pub(crate) fn cookie(&mut self, cookie: u64) {
        self.send(self.header(PacketType::Cookie), &Cookie { cookie }.write());
    }

    pub(crate) fn accept(&mut self, credits: u16, slots: u8) {
        let accept = Accept {
            server_session: OUR_INDEX,
            credits,
            slots,
            features: Features::NONE,
            mtu: 1472,
            cluster: 0,
            incarnation: 3,
        };
        self.send(self.header(PacketType::Accept), &accept.write());
    }

    /// PING or DISCONNECT with this nonce and token.
    pub(crate) fn probe(&mut self, packet_type: PacketType, nonce: u64, token: u64) {
        let header = Header {
            request: RequestNumber::token(token),
            ..self.header(packet_type)
        };
        self.raw(
            PEER,
            &header,
            Seed::NONE,
            &Probe {
                sender_session: OUR_INDEX,
                nonce,
            }
            .write(),
        );
    }

    /// A header for the endpoint's session.
    pub(crate) fn header(&self, packet_type: PacketType) -> Header {
        Header::new(packet_type, self.index)
    }

    /// A packet of the session, as it should be.
    pub(crate) fn send(&mut self, header: Header, body: &[u8]) {
        self.raw(PEER, &header, self.seed, body);
    }

    pub(crate) fn raw(&mut self, from: u32, header: &Header, seed: Seed, body: &[u8]) {
        let bytes = [&header.write(seed, None, body)[..], body].concat();
        self.node.receive(self.now, from, &bytes);
    }

    /// A part of a request in slot 0: `number` of a message of `bytes` bytes.
    pub(crate) fn request(&mut self, sequence: u64, number: u16, bytes: usize) {
        self.request_of_round(sequence, number, bytes, 0);
    }

    pub(crate) fn request_of_round(&mut self, sequence: u64, number: u16, bytes: usize, round: u8) {
        self.request_of(RequestNumber::new(0, sequence), number, bytes, round);
    }

    pub(crate) fn request_in_slot(&mut self, slot: u8, sequence: u64, number: u16, bytes: usize) {
        self.request_of(RequestNumber::new(slot, sequence), number, bytes, 0);
    }

    fn request_of(&mut self, request: RequestNumber, number: u16, bytes: usize, round: u8) {
        let start = (usize::from(number) * FULL).min(bytes);
        let body = vec![number as u8; (bytes - start).min(FULL)];
        let header = Header {
            kind: 7,
            message_bytes: bytes as u32,
            packet_number: number,
            request,
            flags: Flags::of_round(round),
            ..self.header(PacketType::Request)
        };
        self.send(header, &body);
    }

    pub(crate) fn request_for_response(&mut self, sequence: u64, number: u16, count: u32) {
        let header = Header {
            message_bytes: count,
            packet_number: number,
            request: RequestNumber::new(0, sequence),
            ..self.header(PacketType::RequestForResponse)
        };
        self.send(header, &[]);
    }

    /// A part of a response in slot 0.
    pub(crate) fn response(&mut self, sequence: u64, number: u16, bytes: usize) {
        let start = (usize::from(number) * FULL).min(bytes);
        let body = vec![number as u8; (bytes - start).min(FULL)];
        let header = Header {
            message_bytes: bytes as u32,
            packet_number: number,
            request: RequestNumber::new(0, sequence),
            ..self.header(PacketType::Response)
        };
        self.send(header, &body);
    }

    /// A credit return, a gap or BUSY for slot 0.
    pub(crate) fn answer(
        &mut self,
        packet_type: PacketType,
        sequence: u64,
        number: u16,
        flags: Flags,
    ) {
        let request = RequestNumber::new(0, sequence);
        let header = Header {
            packet_number: number,
            request,
            flags,
            ..self.header(packet_type)
        };
        self.send(header, &[]);
    }

    /// The endpoint's program makes a request.
    pub(crate) fn enqueue(&mut self, tag: u64, bytes: usize, response_bytes: usize) -> RequestId {
        let pool = self.node.endpoint.pool().clone();
        let request = pool.alloc(bytes).expect("memory");
        let response = pool.alloc(response_bytes).expect("memory");
        let session = self.session.expect("a session");
        self.node
            .endpoint
            .enqueue_request(self.now, session, 7, request, response, tag, None)
            .expect("accepted")
    }

    pub(crate) fn wait(&mut self, span: Duration) {
        self.now += span;
    }

    /// The packets that the endpoint sends now, in words: type, number, and what is not zero of
    /// sequence (beyond 1) and round.
    pub(crate) fn expect(&mut self, expected: &[&str]) {
        assert_eq!(self.words(), expected);
    }

    pub(crate) fn words(&mut self) -> Vec<String> {
        self.take().iter().map(|bytes| describe(bytes)).collect()
    }

    pub(crate) fn take(&mut self) -> Vec<Vec<u8>> {
        let packets = self.node.turn(self.now);
        assert!(packets.iter().all(|(to, _)| *to == PEER || *to == STRANGER));
        packets.into_iter().map(|(_, bytes)| bytes).collect()
    }

    fn take_one<T>(
        &mut self,
        packet_type: PacketType,
        read: impl Fn(&Packet<'_>) -> Option<T>,
    ) -> T {
        let sent = self.take();
        assert_eq!(sent.len(), 1, "one packet");
        let (packet, _) = split_first(&sent[0]).expect("a packet");
        assert_eq!(packet.header.packet_type, packet_type);
        read(&packet).expect("a body")
    }

    pub(crate) fn drops(&self) -> crate::Drops {
        self.node.endpoint.stats().drops
    }

    /// How the session ended, if it did.
    pub(crate) fn down(&self) -> Option<DownReason> {
        self.node.app.events.iter().find_map(|event| match event {
            Event::Down { reason, .. } => Some(*reason),
            _ => None,
        })
    }

    pub(crate) fn executed(&self) -> u32 {
        self.node.app.executed.values().sum()
    }
}

fn describe(bytes: &[u8]) -> String {
    let (packet, rest) = split_first(bytes).expect("a packet");
    assert!(rest.is_empty(), "one packet an item");
    let header = packet.header;
    let mut words = format!("{:?}", header.packet_type);
    if header.flags.has(Flags::GAP) {
        words = "Gap".into();
    }
    use PacketType as T;
    if matches!(
        header.packet_type,
        T::Request | T::Response | T::CreditReturn | T::RequestForResponse
    ) {
        words += &format!(" {}", header.packet_number);
    }
    let names_request = matches!(
        header.packet_type,
        T::Request | T::Response | T::CreditReturn | T::RequestForResponse | T::Busy
    );
    if names_request && header.request.sequence() > 1 {
        words += &format!(" sequence {}", header.request.sequence());
    }
    if names_request && header.request.slot() > 0 {
        words += &format!(" slot {}", header.request.slot());
    }
    if header.flags.round() > 0 {
        words += &format!(" round {}", header.flags.round());
    }
    words
}
