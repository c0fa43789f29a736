//! Joins both directions: the path of a packet of the core, and the meaning of a datagram for the connections.

use std::collections::VecDeque;

use super::answers::Answers;
use super::device::{OneSidedDevice, Written};
use super::fetcher::FetchCounts;
use super::outgoing::Trouble;
use super::slot::{ANSWER_BYTES, Head, SLOT_BYTES, Tear, slot_of};
use super::terms::{ConnectionOffer, Grant, NOTICE_BYTES, NoGrant, Notice, NoticeKind, Terms};
use super::window::SlotCounts;
use super::{Arrivals, Assignment, Incoming, Outgoing, RequestPath};
use crate::config::{CONNECTIONS_MAX, RENEWAL_PAUSE, SLOT_PACKET_MAX};
use crate::one_sided_path::OneSidedPath;
use crate::route::VerbsRoute;
use trine_transport::backend::{RxBatch, RxPacket, TxItem};
use trine_transport::time::Instant;
use trine_transport::wire::{Accept, Connect, Outline, PacketType, outline, outlines, split_first};

/// What an endpoint's connections are like.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct PathSettings {
    pub(crate) path: OneSidedPath,
    /// Connections of this end as a client.
    pub(crate) outgoing: usize,
    /// The same as a server.
    pub(crate) incoming: usize,
    /// One packet in so many is torn; none if zero.
    pub(crate) tear_interval: u32,
    /// Bytes of the first READ for an answer; found from the last answers if absent.
    pub(crate) fetch_bytes: Option<u16>,
}

/// How a packet of the core is sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Sending {
    /// As it is, as a datagram.
    Datagram,
    /// It was written into a slot.
    Written,
    /// It lies where its client fetches it.
    Left,
    /// As a datagram, with these bytes behind it.
    WithTerms(Terms),
}

/// Why a session that might have a connection goes on with datagrams.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum PathFailure {
    /// The own device refuses to connect the queue pair.
    NotConnected,
    /// The server's regions have other slots.
    OtherLayout,
    /// The queue pair of this connection, as a client, does not work any more.
    Broken(usize),
}

/// Answers that a client did not fetch, from a sequence on: they have to be sent.
#[derive(Copy, Clone, Debug)]
struct Unfetched {
    number: usize,
    route: VerbsRoute,
    nonce: u64,
    sequence: u32,
}

/// What this path has done.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct OneSidedCounts {
    pub(crate) slots: SlotCounts,
    pub(crate) fetches: FetchCounts,
    /// Answers left for clients to fetch.
    pub(crate) answers_left: u64,
    /// Connections that failed, and connections that could not be made.
    pub(crate) failed: u64,
    /// Packets written into slots.
    pub(crate) writes: u64,
    /// Connections opened, both directions.
    pub(crate) opened: u64,
    /// Notices sent.
    pub(crate) notices: u64,
}

/// The path of one endpoint.
pub(crate) struct OneSided<D> {
    pub(crate) device: D,
    outgoing: Outgoing,
    incoming: Incoming,
    arrivals: Arrivals,
    /// Read before a sleep, not handed out yet.
    is_early: bool,
    notices: VecDeque<(VerbsRoute, [u8; NOTICE_BYTES])>,
    unfetched: VecDeque<Unfetched>,
    slot: Box<[u8; SLOT_BYTES]>,
    answer: Box<[u8; ANSWER_BYTES]>,
    settings: PathSettings,
    /// The first that nobody has asked for.
    failure: Option<PathFailure>,
    renew_at: Instant,
    counts: OneSidedCounts,
}

/// Notices that wait: one for each connection, and as many again.
const NOTICES_MAX: usize = 2 * CONNECTIONS_MAX;

impl<D: OneSidedDevice> OneSided<D> {
    /// A path over `device`, which has as many connections as `settings` say.
    pub(crate) fn new(device: D, settings: PathSettings) -> Self {
        let is_fetched = settings.path == OneSidedPath::Rfp;
        let fetching = is_fetched.then_some(settings.fetch_bytes);
        Self {
            device,
            outgoing: Outgoing::new(settings.outgoing, fetching),
            incoming: Incoming::new(settings.incoming),
            arrivals: Arrivals::new(),
            is_early: false,
            notices: VecDeque::with_capacity(NOTICES_MAX),
            unfetched: VecDeque::with_capacity(settings.incoming),
            slot: Box::new([0; SLOT_BYTES]),
            answer: Box::new([0; ANSWER_BYTES]),
            settings,
            failure: None,
            renew_at: Instant::ZERO,
            counts: OneSidedCounts::default(),
        }
    }

    /// The same, where one packet in `interval` is torn: for tests.
    #[cfg(test)]
    pub(crate) fn tearing(mut self, interval: u32) -> Self {
        self.settings.tear_interval = interval;
        self
    }

    pub(crate) fn counts(&self) -> OneSidedCounts {
        self.counts
    }

    /// Connections open now, as a client and as a server.
    pub(crate) fn open(&self) -> (usize, usize) {
        (self.outgoing.open(), self.incoming.open())
    }

    /// Why the first session since the last call goes on with datagrams.
    #[inline]
    pub(crate) fn take_failure(&mut self) -> Option<PathFailure> {
        self.failure.take()
    }

    /// See [`Outgoing::exchange_grants`].
    #[cfg(feature = "device")]
    pub(crate) fn exchange_grants(&mut self) {
        self.outgoing.exchange_grants();
    }

    /// See [`Outgoing::spoil_grants`].
    #[cfg(any(feature = "device", test))]
    pub(crate) fn spoil_grants(&mut self, spoil: impl Fn(&mut Grant)) {
        self.outgoing.spoil_grants(spoil);
    }

    /// The core sends a packet.
    #[inline]
    pub(crate) fn on_send(&mut self, now: Instant, item: &TxItem<'_, VerbsRoute>) -> Sending {
        use PacketType as T;
        let Some(outline) = outline(item.head) else {
            return Sending::Datagram;
        };
        let session = outline.session;
        match outline.packet_type {
            T::Request => return self.send_request(now, item, session),
            T::Response => return self.send_response(item, &outline),
            T::CreditReturn | T::Busy => {
                self.incoming.on_answer(&item.route, session);
            }
            T::Connect => return self.send_connect(now, item),
            T::Accept => return self.send_accept(now, item, session),
            T::Ping | T::Pong => self.outgoing.on_sign_of_life(now, &item.route, session),
            T::Disconnect | T::Disconnected => {
                self.outgoing.on_end(&item.route, session);
                self.incoming.on_end(&item.route, session);
            }
            T::RequestForResponse | T::Notice | T::Reset | T::Cookie | T::Refuse => {}
        }
        Sending::Datagram
    }

    /// Requests of one packet go into slots. The packets of longer ones would overtake each other on two ways, and the
    /// protocol takes that for loss.
    #[inline]
    fn send_request(
        &mut self,
        now: Instant,
        item: &TxItem<'_, VerbsRoute>,
        session: u16,
    ) -> Sending {
        if self.outgoing.open() == 0 {
            return Sending::Datagram;
        }
        let fits = item.body.is_none() && item.head.len() <= SLOT_PACKET_MAX;
        let is_written = fits
            && are_all_first(item.head)
            && match self.outgoing.request_path(now, &item.route, session) {
                RequestPath::Write { number } => self.write(now, number, item.head),
                RequestPath::Datagram => false,
            };
        if self.settings.path == OneSidedPath::Rfp {
            for outline in outlines(item.head) {
                self.outgoing.on_request(now, &item.route, &outline);
            }
        }
        if is_written {
            Sending::Written
        } else {
            Sending::Datagram
        }
    }

    fn write(&mut self, now: Instant, number: usize, packet: &[u8]) -> bool {
        let target = self.outgoing.target(number);
        let packet = [packet].into_iter();
        let (seed, sequence) = (target.seed, target.sequence);
        let bytes = Head::write(
            seed,
            sequence,
            target.is_fetched,
            packet,
            &mut self.slot[..],
        );
        let slot = slot_of(sequence) * SLOT_BYTES;
        let tear = Tear::of_write(self.counts.writes, self.settings.tear_interval);
        let parts = tear.map_or([(0, bytes), (0, 0)], |tear| tear.parts(bytes));
        for (from, to) in parts.into_iter().filter(|(from, to)| from < to) {
            let part = &self.slot[from..to];
            match self.device.write(number, &target.grant, slot + from, part) {
                Written::Done => {}
                Written::Full => return false,
                Written::Broken => {
                    self.abandon(number);
                    return false;
                }
            }
        }
        self.outgoing.written(now, number);
        self.counts.writes += 1;
        true
    }

    /// Where the client fetches its answers, those of one packet, and the first packets of longer ones, lie where it finds
    /// them. It asks for the further packets one by one, by datagrams.
    #[inline]
    fn send_response(&mut self, item: &TxItem<'_, VerbsRoute>, outline: &Outline) -> Sending {
        let fetched = self.incoming.on_answer(&item.route, outline.session);
        let Some(number) = fetched.filter(|_| self.settings.path == OneSidedPath::Rfp) else {
            return Sending::Datagram;
        };
        if !Answers::fits(item) || !are_all_first(item.head) {
            return Sending::Datagram;
        }
        let (device, slot) = (&mut self.device, &mut self.answer);
        let (answers, seed) = self.incoming.answers(number);
        let tear = Tear::of_write(self.counts.answers_left, self.settings.tear_interval);
        answers.put(seed, item, tear, slot, |offset, bytes| {
            device.put_answer(number, offset, bytes);
        });
        self.counts.answers_left += 1;
        Sending::Left
    }

    /// A CONNECT that proves its address takes the terms of a connection along.
    #[cold]
    fn send_connect(&mut self, now: Instant, item: &TxItem<'_, VerbsRoute>) -> Sending {
        let connect = control(item).and_then(Connect::read);
        let Some((connect, _)) = connect.filter(|(connect, _)| connect.cookie != 0) else {
            return Sending::Datagram;
        };
        match self.outgoing.on_connect(now, &item.route, &connect) {
            Some(number) => Sending::WithTerms(
                self.device
                    .wish(number)
                    .write(self.settings.path, connect.nonce),
            ),
            None => Sending::Datagram,
        }
    }

    /// The core has accepted a session, so its client has proven its address.
    #[cold]
    fn send_accept(
        &mut self,
        now: Instant,
        item: &TxItem<'_, VerbsRoute>,
        session: u16,
    ) -> Sending {
        let Some((accept, _)) = control(item).and_then(Accept::read) else {
            return Sending::Datagram;
        };
        let number = match self.incoming.on_accept(&item.route, session) {
            Some(Assignment::Known(number)) => number,
            Some(Assignment::New(number, wish)) => {
                if !self.device.listen(number, &item.route, &wish) {
                    self.incoming.refused(number);
                    return Sending::Datagram;
                }
                self.incoming.opened(now, number, &accept);
                self.counts.opened += 1;
                number
            }
            None => return Sending::Datagram,
        };
        let nonce = self.incoming.nonce(number);
        Sending::WithTerms(self.device.grant(number).write(self.settings.path, nonce))
    }

    /// A datagram came. Takes terms off its end. False if it was for this path alone.
    #[inline]
    pub(crate) fn on_datagram(
        &mut self,
        now: Instant,
        packet: &mut RxPacket<'_, VerbsRoute>,
    ) -> bool {
        use PacketType as T;
        let route = packet.route;
        let Some(outline) = outline(packet.bytes) else {
            return !self.on_notice(now, packet.bytes, &route);
        };
        let session = outline.session;
        match outline.packet_type {
            T::Request => self.incoming.on_request(now, &route, session),
            T::RequestForResponse | T::Ping => {
                self.incoming.on_datagram(now, &route, session);
            }
            T::Response | T::CreditReturn | T::Busy => {
                self.outgoing.on_answer(now, &route, session, packet.bytes);
            }
            T::Connect => self.on_connect(packet),
            T::Accept => self.on_accept(now, packet, session),
            _ => {}
        }
        true
    }

    #[cold]
    fn on_connect(&mut self, packet: &mut RxPacket<'_, VerbsRoute>) {
        let Some((connect, terms)) = with_terms(packet.bytes, Connect::read) else {
            return;
        };
        if let Some(wish) = ConnectionOffer::read(self.settings.path, connect.nonce, terms) {
            self.incoming.on_wish(&packet.route, &connect, wish);
            packet.bytes = &packet.bytes[..packet.bytes.len() - terms.len()];
        }
    }

    #[cold]
    fn on_accept(&mut self, now: Instant, packet: &mut RxPacket<'_, VerbsRoute>, session: u16) {
        let Some((accept, terms)) = with_terms(packet.bytes, Accept::read) else {
            return;
        };
        if terms.is_empty() {
            return;
        }
        packet.bytes = &packet.bytes[..packet.bytes.len() - terms.len()];
        let Some((number, nonce)) = self.outgoing.asked(&packet.route, session) else {
            return;
        };
        let grant = match Grant::read(self.settings.path, nonce, terms) {
            Ok(grant) => grant,
            Err(NoGrant::Unreadable) => return,
            Err(NoGrant::OtherLayout) => {
                self.outgoing.give_back(number);
                self.on_failure(PathFailure::OtherLayout);
                return;
            }
        };
        if self.device.connect(number, &packet.route, &grant) {
            self.outgoing.opened(now, number, &accept, grant);
            self.counts.opened += 1;
        } else {
            self.outgoing.give_back(number);
            self.on_failure(PathFailure::NotConnected);
        }
    }

    #[cold]
    fn on_failure(&mut self, failure: PathFailure) {
        self.counts.failed += 1;
        self.failure.get_or_insert(failure);
    }

    /// The queue pair of a connection does not work any more: its session goes on with datagrams.
    #[cold]
    fn abandon(&mut self, number: usize) {
        self.ask_for_replies(number);
        self.outgoing.give_back(number);
        self.on_failure(PathFailure::Broken(number));
    }

    /// The server has to send what this end does not fetch.
    #[cold]
    fn ask_for_replies(&mut self, number: usize) {
        if self.settings.path != OneSidedPath::Rfp {
            return;
        }
        let sequence = self.outgoing.reply(number, &mut self.counts.fetches);
        let (route, session, nonce) = self.outgoing.peer(number);
        let reply = Notice {
            kind: NoticeKind::Reply,
            session,
            sequence,
        };
        self.notify(route, reply.write(nonce));
    }

    /// True if the datagram is a notice, even one of nobody that is known here.
    #[cold]
    fn on_notice(&mut self, now: Instant, datagram: &[u8], route: &VerbsRoute) -> bool {
        let Some(notice) = Notice::read(datagram) else {
            return false;
        };
        let session = notice.session;
        if matches!(notice.kind, NoticeKind::Look | NoticeKind::Reply) {
            let number = self.incoming.number(route, session);
            let is_his = |number: &usize| Notice::is_of(datagram, self.incoming.nonce(*number));
            if let Some(number) = number.filter(is_his) {
                self.incoming.on_datagram(now, route, session);
                if notice.kind == NoticeKind::Reply {
                    self.on_reply(number, notice.sequence);
                }
            }
            return true;
        }
        let nonce = self.outgoing.nonce(route, session);
        if !nonce.is_some_and(|nonce| Notice::is_of(datagram, nonce)) {
            return true;
        }
        let (kind, sequence) = (notice.kind, notice.sequence);
        if let Some(number) = self.outgoing.on_notice(route, session, kind, sequence) {
            let (route, session, nonce) = self.outgoing.peer(number);
            let look = Notice {
                kind: NoticeKind::Look,
                session,
                sequence: 0,
            };
            self.notify(route, look.write(nonce));
        }
        true
    }

    /// A client fetches no more: what it has not fetched is sent.
    #[cold]
    fn on_reply(&mut self, number: usize, sequence: u32) {
        let Some(route) = self.incoming.on_reply(number) else {
            return;
        };
        let (answers, _) = self.incoming.answers(number);
        let sequence = answers.since(sequence);
        if self.unfetched.len() < self.settings.incoming {
            self.unfetched.push_back(Unfetched {
                number,
                route,
                nonce: self.incoming.nonce(number),
                sequence,
            });
        }
    }

    /// The next answer that a client did not fetch, copied to `out`: to whom it goes, and where its packet is.
    pub(crate) fn poll_unfetched(
        &mut self,
        out: &mut [u8; ANSWER_BYTES],
    ) -> Option<(VerbsRoute, std::ops::Range<usize>)> {
        // Ends: each step takes one of at most eight answers of one of the connections, or that connection.
        while let Some(unfetched) = self.unfetched.front_mut() {
            let Unfetched {
                number,
                route,
                sequence,
                ..
            } = *unfetched;
            let is_same = self.incoming.nonce(number) == unfetched.nonce;
            let (answers, seed) = self.incoming.answers(number);
            if !is_same || answers.is_behind(sequence) {
                self.unfetched.pop_front();
                continue;
            }
            unfetched.sequence = sequence.wrapping_add(1);
            let slots = self.device.answers(number);
            if let Some(packet) = Answers::copy(seed, sequence, &slots, out) {
                return Some((route, packet));
            }
        }
        None
    }

    /// Fetches answers.
    #[cold]
    fn fetch(&mut self, now: Instant) {
        let (device, fetches) = (&mut self.device, &mut self.counts.fetches);
        match self
            .outgoing
            .fetch(now, device, &mut self.arrivals, fetches)
        {
            None => {}
            Some(Trouble::Slow(number)) => self.ask_for_replies(number),
            Some(Trouble::Broken(number)) => self.abandon(number),
        }
    }

    /// Whether answers come only to who polls: then this end must not sleep.
    pub(crate) fn must_poll(&mut self, now: Instant) -> bool {
        // One in each call: the caller comes again.
        if let Some(number) = self.outgoing.stuck(now) {
            self.ask_for_replies(number);
        }
        self.outgoing.must_poll()
    }

    /// Reads slots, and answers that were fetched; returns how many packets came.
    #[inline]
    pub(crate) fn poll(&mut self, now: Instant) -> usize {
        if std::mem::take(&mut self.is_early) {
            return self.arrivals.len();
        }
        self.arrivals.clear();
        if now >= self.renew_at {
            self.renew(now);
        }
        if self.incoming.open() > 0 {
            let (device, slots) = (&self.device, &mut self.counts.slots);
            self.incoming.poll(
                now,
                |number| device.slots(number),
                &mut self.arrivals,
                slots,
            );
        }
        if self.outgoing.is_fetching() {
            self.fetch(now);
        }
        self.arrivals.len()
    }

    /// The packets that the last poll brought.
    pub(crate) fn burst(&self) -> RxBatch<'_, VerbsRoute> {
        self.arrivals.burst()
    }

    /// This end is about to sleep, and writes will not wake it: tells its clients. Then [`OneSided::has_arrived`] is asked.
    pub(crate) fn on_sleep(&mut self) {
        let Self {
            incoming,
            notices,
            counts,
            ..
        } = self;
        incoming.on_sleep(|route, notice| {
            if notices.len() < NOTICES_MAX {
                notices.push_back((route, notice));
                counts.notices += 1;
            }
        });
    }

    /// Whether something was written before the clients could know of the sleep. It comes with the next poll.
    pub(crate) fn has_arrived(&mut self, now: Instant) -> bool {
        self.incoming.suspect_all();
        self.is_early = self.is_early || self.poll(now) > 0;
        self.is_early
    }

    /// Whether there is something for [`OneSided::poll_notice`], [`OneSided::poll_unfetched`] or
    /// [`OneSided::take_failure`].
    #[inline]
    pub(crate) fn has_to_say(&self) -> bool {
        !self.notices.is_empty() || !self.unfetched.is_empty() || self.failure.is_some()
    }

    /// The next notice to be sent, a datagram.
    pub(crate) fn poll_notice(&mut self) -> Option<(VerbsRoute, [u8; NOTICE_BYTES])> {
        self.notices.pop_front()
    }

    fn notify(&mut self, route: VerbsRoute, notice: [u8; NOTICE_BYTES]) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push_back((route, notice));
            self.counts.notices += 1;
        }
    }

    /// Makes one used connection ready for another session, and gives back one that is idle.
    #[cold]
    fn renew(&mut self, now: Instant) {
        self.renew_at = now + RENEWAL_PAUSE;
        if let Some((route, notice)) = self.incoming.expire(now) {
            self.notify(route, notice);
        }
        if let Some(number) = self.incoming.used() {
            if self.device.renew_incoming(number) {
                self.incoming.renewed(number);
            }
        } else if let Some(number) = self.outgoing.used()
            && self.device.renew_outgoing(number)
        {
            self.outgoing.renewed(number);
        }
    }
}

/// Whether the packets of a datagram are all the first of their messages.
fn are_all_first(datagram: &[u8]) -> bool {
    outlines(datagram).all(|outline| outline.packet_number == 0)
}

/// The body of the control packet that a datagram of the core is.
fn control<'a>(item: &TxItem<'a, VerbsRoute>) -> Option<&'a [u8]> {
    let (packet, rest) = split_first(item.head).ok()?;
    rest.is_empty().then_some(packet.payload)
}

/// The body of the control packet that a datagram begins with, as `read` understands it, and the bytes behind the packet.
fn with_terms<T>(
    datagram: &[u8],
    read: impl Fn(&[u8]) -> Option<(T, &[u8])>,
) -> Option<(T, &[u8])> {
    let (packet, terms) = split_first(datagram).ok()?;
    let (body, _) = read(packet.payload)?;
    Some((body, terms))
}
