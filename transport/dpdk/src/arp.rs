//! ARP for IPv4 over Ethernet (RFC 826): reading, writing, and nothing that remembers.

use std::net::Ipv4Addr;

use super::ethernet::{ETHERNET_HEADER, ETHERTYPE_ARP};
use super::mac::MacAddr;

/// An ARP body: fixed part, two hardware and two protocol addresses.
pub(super) const ARP_BODY: usize = 28;
/// The frame that `Arp::write` makes, padded to Ethernet's minimum (without the frame check sequence).
pub const ARP_FRAME: usize = 60;

/// Hardware type Ethernet, protocol type IPv4, their address lengths.
const FIXED_PART: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// The purpose of an ARP packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ArpOperation {
    /// Who has the target's IP address?
    Request,
    /// The sender has it.
    Reply,
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Arp {
    /// Question or answer.
    pub operation: ArpOperation,
    /// Hardware address of the sender.
    pub sender_mac: MacAddr,
    /// Protocol address of the sender.
    pub sender_ip: Ipv4Addr,
    /// Unknown (zero) in a question.
    pub target_mac: MacAddr,
    /// The subject of the question, or the host that asked.
    pub target_ip: Ipv4Addr,
}

impl Arp {
    /// The question for the owner of `ip`, broadcast.
    #[must_use]
    pub fn ask(own_mac: MacAddr, own_ip: Ipv4Addr, ip: Ipv4Addr) -> Self {
        Self {
            operation: ArpOperation::Request,
            sender_mac: own_mac,
            sender_ip: own_ip,
            target_mac: MacAddr::ZERO,
            target_ip: ip,
        }
    }

    /// The answer to this question, from the owner of the address that was asked for.
    #[must_use]
    pub fn answer(&self, own_mac: MacAddr) -> Self {
        Self {
            operation: ArpOperation::Reply,
            sender_mac: own_mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Reads the body after an Ethernet header; `None` for anything but a sane request or reply.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let body: &[u8; ARP_BODY] = body.first_chunk()?;
        if body[..6] != FIXED_PART {
            return None;
        }
        let operation = match u16::from_be_bytes([body[6], body[7]]) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return None,
        };
        let arp = Self {
            operation,
            sender_mac: mac_at(body, 8),
            sender_ip: ip_at(body, 14),
            target_mac: mac_at(body, 18),
            target_ip: ip_at(body, 24),
        };
        // No host can own a group address, and 0.0.0.0 is a probe for a free address (RFC 5227), never a neighbour.
        let sane = arp.sender_mac.is_unicast()
            && !arp.sender_ip.is_multicast()
            && !arp.sender_ip.is_broadcast();
        sane.then_some(arp)
    }

    /// The whole frame: a question goes to everybody, an answer to the host that asked.
    #[must_use]
    pub fn frame(&self) -> [u8; ARP_FRAME] {
        let destination = match self.operation {
            ArpOperation::Request => MacAddr::BROADCAST,
            ArpOperation::Reply => self.target_mac,
        };
        let mut frame = [0; ARP_FRAME];
        frame[..6].copy_from_slice(&destination.0);
        frame[6..12].copy_from_slice(&self.sender_mac.0);
        frame[12..14].copy_from_slice(&ETHERTYPE_ARP.to_be_bytes());
        let body = &mut frame[ETHERNET_HEADER..];
        body[..6].copy_from_slice(&FIXED_PART);
        body[7] = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        body[8..14].copy_from_slice(&self.sender_mac.0);
        body[14..18].copy_from_slice(&self.sender_ip.octets());
        body[18..24].copy_from_slice(&self.target_mac.0);
        body[24..28].copy_from_slice(&self.target_ip.octets());
        frame
    }
}

fn mac_at(body: &[u8; ARP_BODY], at: usize) -> MacAddr {
    let mut mac = [0; 6];
    mac.copy_from_slice(&body[at..at + 6]);
    MacAddr(mac)
}

fn ip_at(body: &[u8; ARP_BODY], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(body[at], body[at + 1], body[at + 2], body[at + 3])
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const IP_A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const IP_B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    #[test]
    fn question_and_answer() {
        let question = Arp::ask(A, IP_A, IP_B);
        let frame = question.frame();
        assert_eq!(frame[..6], MacAddr::BROADCAST.0);
        assert_eq!(Arp::parse(&frame[ETHERNET_HEADER..]), Some(question));
        let answer = question.answer(B);
        let frame = answer.frame();
        assert_eq!(frame[..6], A.0);
        assert_eq!(frame[6..12], B.0);
        assert_eq!(Arp::parse(&frame[ETHERNET_HEADER..]), Some(answer));
        assert_eq!((answer.sender_ip, answer.target_ip), (IP_B, IP_A));
    }

    #[test]
    fn what_is_not_ipv4_over_ethernet_is_refused() {
        let good = Arp::ask(A, IP_A, IP_B).frame();
        for (at, value) in [
            (14, 1),
            (15, 6),
            (16, 0x86),
            (18, 8),
            (19, 16),
            (21, 3),
            (21, 0),
            (22, 1),
        ] {
            let mut frame = good;
            frame[at] = value;
            assert_eq!(
                Arp::parse(&frame[ETHERNET_HEADER..]),
                None,
                "byte {at} = {value}"
            );
        }
        assert_eq!(
            Arp::parse(&good[ETHERNET_HEADER..ETHERNET_HEADER + ARP_BODY - 1]),
            None
        );
    }
}
