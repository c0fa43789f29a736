//! Where a UD packet goes to or came from on the verbs backend. Needs no device and no library: in every build, so that
//! tests and fuzzers reach it.

use std::net::{IpAddr, SocketAddr};

use trine_transport::backend::CaptureAddress;
use trine_transport::backend::announce::Announce;

/// Bytes in front of every datagram that a UD queue pair receives (the global route header).
pub const GRH_BYTES: usize = 40;
/// The UDP port of RoCE v2.
const ROCE_PORT: u16 = 4791;
/// On RoCE v2 over IPv4 the second half of those bytes is the packet's IPv4 header.
const IPV4_AT: usize = 20;

pub use crate::config::QUEUE_PAIRS_MAX;

/// The other end of a session, and which of the own queue pairs leads there.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct VerbsRoute {
    /// RoCE, or InfiniBand without a subnet manager's LID; zero where the LID is the address.
    pub gid: [u8; 16],
    /// InfiniBand; zero where the GID is the address.
    pub lid: u16,
    /// The own queue pair: the packet leaves through it, or came in through it. Counts from 0; means nothing to others.
    pub via: u8,
    /// The other one's queue pair number, 24 bits.
    pub queue_pair: u32,
    /// Key that the receiver insists on.
    pub qkey: u32,
}

impl VerbsRoute {
    /// No queue pair has this route.
    #[cfg(any(feature = "device", test))]
    pub(crate) fn nowhere() -> Self {
        Self {
            gid: [0; 16],
            lid: 0,
            via: 0,
            queue_pair: 0,
            qkey: 0,
        }
    }

    /// A number for the machine. It is the same for all its queue pairs: the LID, or the half of the GID that is the
    /// interface's own.
    #[must_use]
    pub fn machine(&self) -> u64 {
        match self.lid {
            0 => u128::from_be_bytes(self.gid) as u64,
            lid => u64::from(lid),
        }
    }
}

/// An endpoint with all its queue pairs: what `host:port` means on this backend. Exchanged by
/// [`announce`](trine_transport::backend::announce).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct VerbsAddress {
    gid: [u8; 16],
    lid: u16,
    qkey: u32,
    /// The first `count` are numbers, the others zero.
    queue_pairs: [u32; QUEUE_PAIRS_MAX],
    /// 1 to [`QUEUE_PAIRS_MAX`].
    count: u8,
}

/// The LID in an address of 10.2.0.0/16, or the GID as the IPv6 address that it is; on RoCE's port.
impl CaptureAddress for VerbsRoute {
    fn capture_address(&self) -> SocketAddr {
        let [high, low] = self.lid.to_be_bytes();
        let address = if self.lid == 0 {
            IpAddr::from(self.gid)
        } else {
            IpAddr::from([10, 2, high, low])
        };
        SocketAddr::new(address, ROCE_PORT)
    }
}

/// The facts about the chosen port that an address handle and a peer need.
#[derive(Copy, Clone, Debug)]
pub struct Port {
    /// Of the device's ports, from 1.
    pub number: u8,
    /// Zero on Ethernet.
    pub lid: u16,
    /// The address on Ethernet, and on InfiniBand where there is no LID.
    pub gid: [u8; 16],
    /// Its index in the port's table.
    pub gid_index: u8,
    /// RoCE: packets are addressed by GID, always with a global route header.
    pub is_ethernet: bool,
    /// Largest datagram in bytes.
    pub mtu: usize,
}

impl VerbsAddress {
    /// Bytes in front of the queue pair numbers: GID, LID, key, how many.
    const HEAD_BYTES: usize = 23;
    /// Bytes of a queue pair number.
    const NUMBER_BYTES: usize = 3;

    /// The address of an endpoint on this port.
    ///
    /// # Panics
    ///
    /// If there is no queue pair, or too many.
    #[must_use]
    pub fn of_port(port: &Port, numbers: &[u32], qkey: u32) -> Self {
        assert!(
            (1..=QUEUE_PAIRS_MAX).contains(&numbers.len()),
            "an endpoint has queue pairs"
        );
        let (gid, lid) = if port.is_ethernet || port.lid == 0 {
            (port.gid, 0)
        } else {
            ([0; 16], port.lid)
        };
        let mut queue_pairs = [0; QUEUE_PAIRS_MAX];
        queue_pairs[..numbers.len()].copy_from_slice(numbers);
        Self {
            gid,
            lid,
            qkey,
            queue_pairs,
            count: numbers.len() as u8,
        }
    }

    /// The numbers of the queue pairs.
    #[must_use]
    pub fn queue_pairs(&self) -> &[u32] {
        &self.queue_pairs[..usize::from(self.count)]
    }

    /// Whether a datagram from `route` was sent by this endpoint.
    #[must_use]
    pub fn has(&self, route: &VerbsRoute) -> bool {
        (self.gid, self.lid) == (route.gid, route.lid)
            && self.queue_pairs().contains(&route.queue_pair)
    }

    /// The way there from an endpoint with `own` queue pairs: see `VerbsBackend::route_to`.
    ///
    /// # Panics
    ///
    /// If `own` is zero.
    #[must_use]
    pub fn route(&self, choice: u32, own: u32) -> VerbsRoute {
        VerbsRoute {
            gid: self.gid,
            lid: self.lid,
            via: (choice % own) as u8,
            queue_pair: self.queue_pairs[(choice % u32::from(self.count)) as usize],
            qkey: self.qkey,
        }
    }

    /// The key that its queue pairs insist on.
    #[must_use]
    pub fn qkey(&self) -> u32 {
        self.qkey
    }

    /// As announced: GID, LID, key and the number of queue pairs, then their numbers of three bytes, little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::HEAD_BYTES + Self::NUMBER_BYTES * QUEUE_PAIRS_MAX);
        bytes.extend_from_slice(&self.gid);
        bytes.extend_from_slice(&self.lid.to_le_bytes());
        bytes.extend_from_slice(&self.qkey.to_le_bytes());
        bytes.push(self.count);
        for number in self.queue_pairs() {
            bytes.extend_from_slice(&number.to_le_bytes()[..Self::NUMBER_BYTES]);
        }
        bytes
    }

    /// `None` unless the length is that of 1 to [`QUEUE_PAIRS_MAX`] queue pairs.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (gid, rest) = bytes.split_first_chunk::<16>()?;
        let (lid, rest) = rest.split_first_chunk::<2>()?;
        let (qkey, rest) = rest.split_first_chunk::<4>()?;
        let (count, numbers) = rest.split_first()?;
        let length = usize::from(*count) * Self::NUMBER_BYTES;
        if !(1..=QUEUE_PAIRS_MAX).contains(&usize::from(*count)) || numbers.len() != length {
            return None;
        }
        let mut queue_pairs = [0; QUEUE_PAIRS_MAX];
        for (number, bytes) in queue_pairs.iter_mut().zip(numbers.as_chunks::<3>().0) {
            *number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        }
        Some(Self {
            gid: *gid,
            lid: u16::from_le_bytes(*lid),
            qkey: u32::from_le_bytes(*qkey),
            queue_pairs,
            count: *count,
        })
    }
}

impl VerbsRoute {
    /// The sender of a datagram that came in through the queue pair `via`. `header` is the header in front of it,
    /// `None` where the completion says that there is no global route header.
    #[inline]
    #[must_use]
    pub fn of_sender(
        header: Option<&[u8; GRH_BYTES]>,
        lid: u16,
        queue_pair: u32,
        qkey: u32,
        via: u8,
    ) -> Self {
        let (gid, lid) = match header {
            // On InfiniBand a sender that is known by its LID may add a route header all the same.
            Some(header) => (sender_gid(header), 0),
            None => ([0; 16], lid),
        };
        Self {
            gid,
            lid,
            via,
            queue_pair,
            qkey,
        }
    }
}

impl Announce for VerbsAddress {
    /// 2 was a single queue pair, in another order.
    const FAMILY: u8 = 3;

    fn encode(&self) -> Vec<u8> {
        self.to_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Self::from_bytes(bytes)
    }
}

/// The GID in a route header; for RoCE v2 over IPv4 the one that represents the source address.
#[inline]
fn sender_gid(header: &[u8; GRH_BYTES]) -> [u8; 16] {
    let mut gid = [0; 16];
    let is_ipv4 = header[IPV4_AT] >> 4 == 4 && header[0] >> 4 != 6;
    if is_ipv4 {
        gid[10..12].copy_from_slice(&[0xff; 2]);
        gid[12..].copy_from_slice(&header[IPV4_AT + 12..IPV4_AT + 16]);
    } else {
        gid.copy_from_slice(&header[8..24]);
    }
    gid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(numbers: &[u32]) -> VerbsAddress {
        let port = Port {
            number: 1,
            lid: 0x1234,
            gid: [7; 16],
            gid_index: 0,
            is_ethernet: true,
            mtu: 1024,
        };
        VerbsAddress::of_port(&port, numbers, 0x1111_2222)
    }

    #[test]
    fn an_address_survives_its_encoding_with_any_number_of_queue_pairs() {
        let numbers: Vec<u32> = (0..QUEUE_PAIRS_MAX as u32)
            .map(|n| 0x00ab_cde0 + n)
            .collect();
        for count in 1..=QUEUE_PAIRS_MAX {
            let address = address(&numbers[..count]);
            assert_eq!(
                VerbsAddress::from_bytes(&address.to_bytes()),
                Some(address),
                "{count}"
            );
            assert!(address.to_bytes().len() <= 48, "announcements hold 48");
        }
    }

    #[test]
    fn an_address_of_another_length_is_refused() {
        let good = address(&[17, 18]).to_bytes();
        for length in 0..good.len() {
            assert_eq!(VerbsAddress::from_bytes(&good[..length]), None, "{length}");
        }
        for count in [0, 1, 3, 9, 255] {
            let mut bad = good.clone();
            bad[22] = count;
            assert_eq!(VerbsAddress::from_bytes(&bad), None, "{count}");
        }
        let too_long = [good, vec![0]].concat();
        assert_eq!(VerbsAddress::from_bytes(&too_long), None);
    }

    #[test]
    fn choices_spread_over_the_queue_pairs_of_both_ends() {
        let peer = address(&[40, 41, 42, 43]);
        let chosen: Vec<(u32, u8)> = (0..6)
            .map(|choice| peer.route(choice, 2))
            .map(|route| (route.queue_pair, route.via))
            .collect();
        assert_eq!(
            chosen,
            [(40, 0), (41, 1), (42, 0), (43, 1), (40, 0), (41, 1)]
        );
        assert_eq!(peer.route(7, 1).via, 0);
    }

    #[test]
    fn infiniband_is_addressed_by_lid_where_there_is_one() {
        let mut port = Port {
            number: 1,
            lid: 9,
            gid: [7; 16],
            gid_index: 0,
            is_ethernet: false,
            mtu: 1024,
        };
        let by_lid = VerbsAddress::of_port(&port, &[1], 1).route(0, 1);
        assert_eq!((by_lid.lid, by_lid.gid), (9, [0; 16]));
        port.lid = 0;
        let by_gid = VerbsAddress::of_port(&port, &[1], 1).route(0, 1);
        assert_eq!((by_gid.lid, by_gid.gid), (0, [7; 16]));
    }

    #[test]
    fn the_sender_over_ipv4_is_the_mapped_address() {
        let mut header = [0; GRH_BYTES];
        header[IPV4_AT] = 0x45;
        header[IPV4_AT + 12..IPV4_AT + 16].copy_from_slice(&[10, 9, 0, 3]);
        let route = VerbsRoute::of_sender(Some(&header), 0, 17, 1, 0);
        assert_eq!(
            route.gid,
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 3]
        );
    }

    #[test]
    fn the_sender_over_ipv6_is_the_source_gid() {
        let mut header = [0; GRH_BYTES];
        header[0] = 0x60;
        header[8..24].copy_from_slice(&[0x42; 16]);
        assert_eq!(
            VerbsRoute::of_sender(Some(&header), 0, 17, 1, 0).gid,
            [0x42; 16]
        );
    }
}
