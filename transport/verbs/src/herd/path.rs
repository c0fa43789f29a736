//! Joins both directions: which way does a packet of the core take, and what does a datagram mean for the connections?

use std::collections::VecDeque;

use super::slot::{SLOT_BYTES, Slots, Tear, slot_of, write_slot};
use super::terms::{Grant, NOTICE_BYTES, Notice, NoticeKind, Terms, Wish};
use super::window::SlotCounts;
use super::{Arrivals, Incoming, Outgoing, Place, Way};
use crate::config::{CONNECTIONS_MAX, RENEWAL_PAUSE, SLOT_PACKET_MAX};
use crate::route::VerbsRoute;
use trine_transport::backend::{RxBatch, RxPacket, TxItem};
use trine_transport::time::Instant;
use trine_transport::wire::{Accept, Connect, PacketType, outline, split_first};

/// Queue pairs and regions, by the numbers of their connections.
pub(crate) trait Device {
    /// The client's end of a connection, as a server needs it.
    fn wish(&self, number: usize) -> Wish;

    /// Connects the client's end with what a server has granted. False if the device refuses.
    fn connect(&mut self, number: usize, route: &VerbsRoute, grant: &Grant) -> bool;

    /// Writes to this place of the region that was granted. The bytes are taken before it returns.
    fn write(&mut self, number: usize, grant: &Grant, offset: usize, bytes: &[u8]) -> Written;

    /// Makes the client's end as it was at the start.
    fn renew_outgoing(&mut self, number: usize) -> bool;

    /// The server's end of a connection, as its client needs it.
    fn grant(&self, number: usize) -> Grant;

    /// Connects the server's end with the client that wishes it. False if the device refuses.
    fn listen(&mut self, number: usize, route: &VerbsRoute, wish: &Wish) -> bool;

    /// The region of a connection.
    fn slots(&self, number: usize) -> impl Slots;

    /// Makes the server's end as it was at the start, its region zero and under another key.
    fn renew_incoming(&mut self, number: usize) -> bool;
}

/// What became of a write.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    /// The device has it.
    Done,
    /// The device has too many writes that it has not completed.
    Full,
    /// The queue pair does not work any more.
    Broken,
}

/// How a packet of the core is sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Sending {
    /// As it is, as a datagram.
    Datagram,
    /// It was written into a slot.
    Written,
    /// As a datagram, with these bytes behind it.
    WithTerms(Terms),
}

/// What this path has done.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct HerdCounts {
    pub(crate) slots: SlotCounts,
    /// Packets written into slots.
    pub(crate) writes: u64,
    /// Connections opened, both directions.
    pub(crate) opened: u64,
    /// Notices sent.
    pub(crate) notices: u64,
}

/// The path of one endpoint.
pub(crate) struct Herd<D> {
    pub(crate) device: D,
    outgoing: Outgoing,
    incoming: Incoming,
    arrivals: Arrivals,
    /// Read before a sleep, not handed out yet.
    is_early: bool,
    notices: VecDeque<(VerbsRoute, [u8; NOTICE_BYTES])>,
    slot: Box<[u8; SLOT_BYTES]>,
    /// One write in so many is torn; none if zero.
    tear_interval: u32,
    renew_at: Instant,
    counts: HerdCounts,
}

/// Notices that wait: one for each connection, and as many again.
const NOTICES_MAX: usize = 2 * CONNECTIONS_MAX;

impl<D: Device> Herd<D> {
    /// A path over `device`, which has so many connections in each direction.
    pub(crate) fn new(device: D, outgoing: usize, incoming: usize, tear_interval: u32) -> Self {
        Self {
            device,
            outgoing: Outgoing::new(outgoing),
            incoming: Incoming::new(incoming),
            arrivals: Arrivals::new(),
            is_early: false,
            notices: VecDeque::with_capacity(NOTICES_MAX),
            slot: Box::new([0; SLOT_BYTES]),
            tear_interval,
            renew_at: Instant::ZERO,
            counts: HerdCounts::default(),
        }
    }

    /// The same, where one write in `interval` is torn: for tests.
    #[cfg(test)]
    pub(crate) fn tearing(self, interval: u32) -> Self {
        Self {
            tear_interval: interval,
            ..self
        }
    }

    pub(crate) fn counts(&self) -> HerdCounts {
        self.counts
    }

    /// Connections open now, as a client and as a server.
    pub(crate) fn open(&self) -> (usize, usize) {
        (self.outgoing.open(), self.incoming.open())
    }

    /// See [`Outgoing::exchange_grants`].
    #[cfg(feature = "device")]
    pub(crate) fn exchange_grants(&mut self) {
        self.outgoing.exchange_grants();
    }

    /// The core sends a packet.
    #[inline]
    pub(crate) fn on_send(&mut self, now: Instant, item: &TxItem<'_, VerbsRoute>) -> Sending {
        use PacketType as T;
        let Some((packet_type, session)) = outline(item.head) else {
            return Sending::Datagram;
        };
        match packet_type {
            T::Request => return self.send_request(now, item, session),
            T::Response | T::CreditReturn | T::Busy => {
                self.incoming.on_answer(&item.route, session);
            }
            T::Connect => return self.send_connect(now, item),
            T::Accept => return self.send_accept(now, item, session),
            T::Ping | T::Pong => self.outgoing.on_sign_of_life(now, &item.route, session),
            T::Disconnect | T::Disconnected => {
                self.outgoing.on_end(&item.route, session);
                self.incoming.on_end(&item.route, session);
            }
            T::RequestForResponse | T::Reset | T::Cookie | T::Refuse => {}
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
        if item.body.is_some() || item.head.len() > SLOT_PACKET_MAX || self.outgoing.open() == 0 {
            return Sending::Datagram;
        }
        let Way::Write { number } = self.outgoing.way(now, &item.route, session) else {
            return Sending::Datagram;
        };
        let is_first =
            split_first(item.head).is_ok_and(|(first, _)| first.header.packet_number == 0);
        if is_first && self.write(now, number, item.head) {
            Sending::Written
        } else {
            Sending::Datagram
        }
    }

    fn write(&mut self, now: Instant, number: usize, packet: &[u8]) -> bool {
        let target = self.outgoing.target(number);
        let bytes = write_slot(target.seed, target.sequence, packet, &mut self.slot);
        let slot = slot_of(target.sequence) * SLOT_BYTES;
        let tear = Tear::of_write(self.counts.writes, self.tear_interval);
        let parts = tear.map_or([(0, bytes), (0, 0)], |tear| tear.parts(bytes));
        for (from, to) in parts.into_iter().filter(|(from, to)| from < to) {
            let part = &self.slot[from..to];
            match self.device.write(number, &target.grant, slot + from, part) {
                Written::Done => {}
                Written::Full => return false,
                Written::Broken => {
                    self.outgoing.give_back(number);
                    return false;
                }
            }
        }
        self.outgoing.written(now, number);
        self.counts.writes += 1;
        true
    }

    /// A CONNECT that proves its address takes the terms of a connection along.
    #[cold]
    fn send_connect(&mut self, now: Instant, item: &TxItem<'_, VerbsRoute>) -> Sending {
        let connect = control(item).and_then(Connect::read);
        let Some((connect, _)) = connect.filter(|(connect, _)| connect.cookie != 0) else {
            return Sending::Datagram;
        };
        match self.outgoing.on_connect(now, &item.route, &connect) {
            Some(number) => Sending::WithTerms(self.device.wish(number).write(connect.nonce)),
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
            Some(Place::Known(number)) => number,
            Some(Place::New(number, wish)) => {
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
        Sending::WithTerms(self.device.grant(number).write(nonce))
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
        let Some((packet_type, session)) = outline(packet.bytes) else {
            return !self.on_notice(now, packet.bytes, &route);
        };
        match packet_type {
            T::Request | T::RequestForResponse | T::Ping => {
                self.incoming.on_datagram(now, &route, session);
            }
            T::Response | T::CreditReturn | T::Busy => {
                self.outgoing.on_answer(now, &route, session);
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
        if let Some(wish) = Wish::read(connect.nonce, terms) {
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
        let Some(grant) = Grant::read(nonce, terms) else {
            return;
        };
        if self.device.connect(number, &packet.route, &grant) {
            self.outgoing.opened(now, number, &accept, grant);
            self.counts.opened += 1;
        } else {
            self.outgoing.give_back(number);
        }
    }

    /// True if the datagram is a notice, even one of nobody that is known here.
    #[cold]
    fn on_notice(&mut self, now: Instant, datagram: &[u8], route: &VerbsRoute) -> bool {
        let Some(notice) = Notice::read(datagram) else {
            return false;
        };
        let session = notice.session;
        if notice.kind == NoticeKind::Look {
            let number = self.incoming.number(route, session);
            if number.is_some_and(|number| Notice::is_of(datagram, self.incoming.nonce(number))) {
                self.incoming.on_datagram(now, route, session);
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

    /// Reads slots; returns how many packets came.
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
        self.arrivals.len()
    }

    /// The packets that the last poll brought.
    pub(crate) fn burst(&self) -> RxBatch<'_, VerbsRoute> {
        self.arrivals.burst()
    }

    /// This end is about to sleep, and writes will not wake it: tells its clients. Then [`Herd::has_arrived`] is asked.
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
