//! Which packets carry their first four bytes as the immediate of the SEND, in the header of the work request.
//!
//! A work request is written to the device in cache lines. A packet whose last line holds four bytes or less needs one
//! line less if its first four bytes travel as the immediate. A packet of four bytes then has no payload at all: only
//! headers go over the wire (guidelines 3.1 and 3.2).
//!
//! A receiver of the releases before ignores an immediate. So a sender has to know that the peer's queue pair puts it in
//! front of the payload, and learns it from an immediate that begins with zero: "this packet is whole, and I understand
//! immediates". A packet that would gain carries such a question while nothing is known. Who gets one owes an answer, and
//! lets it ride on the next packet to that peer. A packet that would gain and comes whole, without an immediate, was sent by somebody who does not understand.

use crate::route::VerbsRoute;

/// Bytes of an immediate.
pub(crate) const IMMEDIATE_BYTES: usize = 4;

/// Peers that are remembered; a power of two. Another peer at the same place is forgotten, and learned anew.
const PLACES: usize = 256;

/// The first byte of the immediate of a packet that is whole. No packet of the protocol begins with it.
const WHOLE: u8 = 0;
const QUESTION: [u8; IMMEDIATE_BYTES] = [WHOLE, 1, 0, 0];
const ANSWER: [u8; IMMEDIATE_BYTES] = [WHOLE, 2, 0, 0];

/// Cache lines of a datagram's work request, laid out as ConnectX devices have it: 16 bytes of control, 48 of address,
/// then either 4 bytes and the payload itself, or 16 bytes for each part that the device fetches. Nothing at all follows
/// for an empty payload.
pub(crate) const fn inline_lines(payload: usize) -> u64 {
    if payload == 0 {
        1
    } else {
        (64 + 4 + payload as u64).div_ceil(64)
    }
}

/// The same for a payload that the device fetches in `parts`.
pub(crate) const fn gathered_lines(parts: u64) -> u64 {
    (64 + 16 * parts).div_ceil(64)
}

/// Longer packets are not always inline, so nothing is concluded from one that comes whole.
const LENGTH_MAX: usize = 256;

/// Whether an inline packet of `len` bytes needs a line less if four of them are the immediate.
#[inline(always)]
pub(crate) const fn gains(len: usize) -> bool {
    // A line is full at 60 bytes of payload, and every 64 bytes from there on.
    let beyond = len.wrapping_sub(61);
    (beyond <= LENGTH_MAX - 61 && beyond % 64 < IMMEDIATE_BYTES) || len == IMMEDIATE_BYTES
}

/// What rides in the header of a SEND.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Immediate {
    /// No immediate.
    None,
    /// The packet is whole, the sender understands immediates, and asks whether the receiver does.
    Question,
    /// The packet is whole, and the sender understands immediates.
    Answer,
    /// The packet's first four bytes, which are not in the payload.
    First([u8; IMMEDIATE_BYTES]),
}

impl Immediate {
    /// The bytes on the wire.
    pub(crate) fn bytes(self) -> Option<[u8; IMMEDIATE_BYTES]> {
        match self {
            Self::None => None,
            Self::Question => Some(QUESTION),
            Self::Answer => Some(ANSWER),
            Self::First(bytes) => Some(bytes),
        }
    }
}

/// The queue pair of a peer, by its place in the network and its number.
type QueuePairAddress = ([u8; 16], u16, u32);

#[derive(Copy, Clone, Default)]
struct ImmediatePeer {
    name: QueuePairAddress,
    understands: bool,
    /// It has said that it understands, and was not told the same since.
    is_owed: bool,
}

/// What is known of the peers of one endpoint.
pub(crate) struct Immediates {
    is_on: bool,
    peers: Box<[ImmediatePeer; PLACES]>,
    /// Peers that are owed an answer: mostly none, so that a packet costs one comparison.
    owed: usize,
}

impl Immediates {
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            peers: Box::new([ImmediatePeer::default(); PLACES]),
            owed: 0,
        }
    }

    /// What an inline packet to `route` carries.
    #[inline(always)]
    pub(crate) fn of_packet(&mut self, route: &VerbsRoute, packet: &[u8]) -> Immediate {
        if !gains(packet.len()) && self.owed == 0 {
            return Immediate::None;
        }
        self.choose(route, packet)
    }

    #[inline(never)]
    fn choose(&mut self, route: &VerbsRoute, packet: &[u8]) -> Immediate {
        if !self.is_on {
            return Immediate::None;
        }
        let (gains, name) = (gains(packet.len()), name_of(route));
        let peer = &mut self.peers[place_of(&name)];
        let is_known = peer.name == name;
        let pays = is_known && std::mem::take(&mut peer.is_owed);
        self.owed -= usize::from(pays);
        match packet.first_chunk() {
            // It pays a debt too: only who understands sends it.
            Some(first) if gains && is_known && peer.understands && first[0] != WHOLE => {
                Immediate::First(*first)
            }
            _ if pays => Immediate::Answer,
            _ if gains => Immediate::Question,
            _ => Immediate::None,
        }
    }

    /// A packet came from `route`, with this immediate. Returns the bytes that belong in front of it.
    #[inline(never)]
    pub(crate) fn on_immediate(
        &mut self,
        route: &VerbsRoute,
        bytes: [u8; IMMEDIATE_BYTES],
    ) -> Option<[u8; IMMEDIATE_BYTES]> {
        if self.is_on {
            let name = name_of(route);
            let peer = &mut self.peers[place_of(&name)];
            let owes = bytes == QUESTION || peer.name == name && peer.is_owed;
            self.owed += usize::from(owes);
            self.owed -= usize::from(peer.is_owed);
            *peer = ImmediatePeer {
                name,
                understands: true,
                is_owed: owes,
            };
        }
        (bytes[0] != WHOLE).then_some(bytes)
    }

    /// A packet that would gain came whole and without an immediate: its sender does not know the rule.
    #[inline(never)]
    pub(crate) fn on_plain(&mut self, route: &VerbsRoute) {
        let name = name_of(route);
        let peer = &mut self.peers[place_of(&name)];
        if peer.name == name {
            self.owed -= usize::from(peer.is_owed);
            *peer = ImmediatePeer::default();
        }
    }
}

fn name_of(route: &VerbsRoute) -> QueuePairAddress {
    (route.gid, route.lid, route.queue_pair)
}

fn place_of((gid, lid, queue_pair): &QueuePairAddress) -> usize {
    let low = u32::from_le_bytes([gid[12], gid[13], gid[14], gid[15]]) ^ u32::from(*lid);
    let mixed = (low ^ queue_pair.rotate_left(16)).wrapping_mul(0x9e37_79b1);
    (mixed >> (u32::BITS - PLACES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(queue_pair: u32) -> VerbsRoute {
        VerbsRoute {
            gid: [3; 16],
            lid: 0,
            via: 0,
            queue_pair,
            qkey: 1,
        }
    }

    /// Hands a packet from one end to the other, as SENDs do; returns what arrives, and the immediate.
    fn pass(
        (from, own): (&mut Immediates, u32),
        (to, peer): (&mut Immediates, u32),
        packet: &[u8],
    ) -> (Vec<u8>, Immediate) {
        let immediate = from.of_packet(&route(peer), packet);
        let payload = match immediate {
            Immediate::First(_) => &packet[IMMEDIATE_BYTES..],
            _ => packet,
        };
        let front = match immediate.bytes() {
            Some(bytes) => to.on_immediate(&route(own), bytes),
            None => {
                if gains(payload.len()) {
                    to.on_plain(&route(own));
                }
                None
            }
        };
        let front = front.map_or(vec![], |bytes| bytes.to_vec());
        ([front, payload.to_vec()].concat(), immediate)
    }

    #[test]
    fn a_packet_gains_exactly_where_four_bytes_less_are_a_line_less() {
        for len in IMMEDIATE_BYTES..=LENGTH_MAX {
            let saved = inline_lines(len) - inline_lines(len - IMMEDIATE_BYTES);
            assert_eq!(saved, u64::from(gains(len)), "{len}");
        }
        assert!((0..IMMEDIATE_BYTES).all(|len| !gains(len)));
        assert!((LENGTH_MAX + 1..1000).all(|len| !gains(len)));
        assert_eq!((inline_lines(4), inline_lines(0)), (2, 1), "header-only");
        assert_eq!((gathered_lines(1), gathered_lines(2)), (2, 2));
    }

    #[test]
    fn two_ends_that_know_the_rule_learn_it_from_each_other_and_lose_no_byte() {
        let (mut a, mut b) = (Immediates::new(true), Immediates::new(true));
        let packet: Vec<u8> = (1..=64).collect();
        let short = [9; 50];
        let whole = pass((&mut a, 1), (&mut b, 2), &packet);
        assert_eq!(whole, (packet.clone(), Immediate::Question));
        // The answer is on a packet of a length that gains nothing, and is given once.
        for immediate in [Immediate::Answer, Immediate::None] {
            let answer = pass((&mut b, 2), (&mut a, 1), &short);
            assert_eq!(answer, (short.to_vec(), immediate));
        }
        for _ in 0..2 {
            let shrunk = pass((&mut a, 1), (&mut b, 2), &packet);
            assert_eq!(shrunk, (packet.clone(), Immediate::First([1, 2, 3, 4])));
        }
        let (bytes, immediate) = pass((&mut a, 1), (&mut b, 2), &[5, 6, 7, 8]);
        assert_eq!(
            (bytes, immediate),
            (vec![5, 6, 7, 8], Immediate::First([5, 6, 7, 8]))
        );
    }

    #[test]
    fn a_peer_that_does_not_know_the_rule_gets_whole_packets_for_ever() {
        let mut new = Immediates::new(true);
        for _ in 0..3 {
            assert_eq!(new.of_packet(&route(7), &[1; 64]), Immediate::Question);
            new.on_plain(&route(7));
        }
        assert_eq!(new.of_packet(&route(7), &[1; 60]), Immediate::None);
    }

    #[test]
    fn a_peer_of_the_same_number_that_does_not_know_the_rule_is_found_out() {
        let mut new = Immediates::new(true);
        assert_eq!(new.on_immediate(&route(7), QUESTION), None);
        assert_eq!(
            new.of_packet(&route(7), &[1; 50]),
            Immediate::Answer,
            "the debt"
        );
        assert_eq!(new.of_packet(&route(7), &[1; 64]), Immediate::First([1; 4]));
        new.on_plain(&route(7));
        assert_eq!(new.of_packet(&route(7), &[1; 64]), Immediate::Question);
    }

    #[test]
    fn a_packet_that_begins_with_zero_stays_whole() {
        let mut new = Immediates::new(true);
        new.on_immediate(&route(7), QUESTION);
        new.of_packet(&route(7), &[1; 50]);
        assert_eq!(new.of_packet(&route(7), &[0; 64]), Immediate::Question);
    }

    #[test]
    fn switched_off_it_says_nothing_and_still_reads_what_comes() {
        let mut off = Immediates::new(false);
        assert_eq!(off.of_packet(&route(7), &[1; 64]), Immediate::None);
        assert_eq!(off.on_immediate(&route(7), QUESTION), None);
        assert_eq!(off.of_packet(&route(7), &[1; 64]), Immediate::None);
        assert_eq!(
            off.on_immediate(&route(7), [1, 2, 3, 4]),
            Some([1, 2, 3, 4])
        );
    }

    #[test]
    fn more_peers_than_places_are_forgotten_and_no_debt_is_left_behind() {
        let mut new = Immediates::new(true);
        for peer in 1..5_000 {
            new.on_immediate(&route(peer), QUESTION);
        }
        let held = new.peers.iter().filter(|peer| peer.is_owed).count();
        assert_eq!(new.owed, held);
        assert!(held <= PLACES);
        for peer in 1..5_000 {
            new.of_packet(&route(peer), &[1; 50]);
        }
        assert_eq!(new.owed, 0);
    }
}
