//! Frames that get through, frames that must not, and a million that are neither.

use super::super::template::{Checksums, Fill, Template};
use super::*;
use trine_transport::prng::Prng;

const OURS: Local = Local {
    mac: MacAddr([2, 0, 0, 0, 0, 1]),
    ip: Ipv4Addr::new(10, 0, 0, 1),
    port: 7000,
};
const PEER: Local = Local {
    mac: MacAddr([2, 0, 0, 0, 0, 2]),
    ip: Ipv4Addr::new(10, 0, 0, 2),
    port: 7001,
};
const SOFTWARE: Checksums = Checksums {
    ip: Fill::Software,
    udp: Fill::Software,
};
const UNCHECKED: Checked = Checked {
    ip: false,
    udp: false,
};

fn to_us(payload: &[u8]) -> Vec<u8> {
    framed(payload, SOFTWARE)
}

fn framed(payload: &[u8], checksums: Checksums) -> Vec<u8> {
    let template = Template::new(&PEER, OURS.mac, SocketAddrV4::new(OURS.ip, OURS.port));
    let mut frame = vec![0; HEADERS];
    frame.extend_from_slice(payload);
    template.complete(&mut frame, checksums);
    frame
}

fn read(frame: &[u8]) -> Result<ReceivedFrame<'_>, Reject> {
    parse(frame, &OURS, UNCHECKED)
}

fn datagram(frame: &[u8]) -> Datagram<'_> {
    match read(frame) {
        Ok(ReceivedFrame::Udp(datagram)) => datagram,
        other => panic!("expected a datagram, got {other:?}"),
    }
}

/// Changes bytes of the IPv4 header and makes its checksum right again.
fn with_ip(payload: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = to_us(payload);
    change(&mut frame);
    let ip = &mut frame[ETHERNET_HEADER..ETHERNET_HEADER + IPV4_HEADER];
    ip[10..12].fill(0);
    let checksum = Sum::ZERO.add(ip).finish();
    ip[10..12].copy_from_slice(&checksum);
    frame
}

#[test]
fn a_template_makes_frames_that_get_through() {
    let payload: Vec<u8> = (0..=255).cycle().take(1472).collect();
    for length in [0, 1, 2, 3, 24, 25, 56, 511, 1471, 1472] {
        let frame = to_us(&payload[..length]);
        let got = datagram(&frame);
        assert_eq!(got.payload, &payload[..length]);
        assert_eq!(got.source, SocketAddrV4::new(PEER.ip, PEER.port));
        assert!(!got.ecn);
    }
}

/// Header bytes worked out by hand, so that reader and writer cannot agree on a common mistake.
#[test]
fn a_frame_byte_by_byte() {
    let frame = to_us(b"ping");
    let expected = [
        0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0x00, // Ethernet
        0x45, 0x02, 0, 32, 0, 0, 0x40, 0, 64, 17, 0x26, 0xc9, 10, 0, 0, 2, 10, 0, 0,
        1, // IPv4
        0x1b, 0x59, 0x1b, 0x58, 0, 12, 0xd6, 0x51, // UDP
        b'p', b'i', b'n', b'g',
    ];
    assert_eq!(frame, expected);
}

#[test]
fn ethernet_padding_is_not_payload() {
    let mut frame = to_us(b"abc");
    frame.resize(60, 0xee);
    assert_eq!(datagram(&frame).payload, b"abc");
}

#[test]
fn the_congestion_mark_is_seen() {
    for (tos, ecn) in [
        (0, false),
        (1, false),
        (2, false),
        (3, true),
        (0xff, true),
        (0xfc, false),
    ] {
        let frame = with_ip(b"x", |frame| frame[15] = tos);
        assert_eq!(datagram(&frame).ecn, ecn, "TOS {tos:#x}");
    }
}

#[test]
fn no_udp_checksum_is_allowed_and_a_wrong_one_is_not() {
    let none = framed(
        b"data",
        Checksums {
            ip: Fill::Software,
            udp: Fill::Nobody,
        },
    );
    assert_eq!(none[40..42], [0, 0]);
    assert_eq!(datagram(&none).payload, b"data");

    let mut wrong = to_us(b"data");
    wrong[41] ^= 1;
    assert_eq!(read(&wrong), Err(Reject::UdpChecksum));
    let mut flipped = to_us(b"data");
    flipped[HEADERS + 2] ^= 0x80;
    assert_eq!(read(&flipped), Err(Reject::UdpChecksum));
}

/// About one payload in 65,536 sums to zero; it must be sent as 0xffff, or it would say "no checksum".
#[test]
fn a_checksum_of_zero_is_sent_as_ones() {
    let seen = (0..=u16::MAX).find(|word| to_us(&word.to_be_bytes())[40..42] == [0xff, 0xff]);
    let word = seen.expect("some word completes the sum");
    let frame = to_us(&word.to_be_bytes());
    assert_eq!(datagram(&frame).payload, word.to_be_bytes());
    assert!((0..=u16::MAX).all(|word| to_us(&word.to_be_bytes())[40..42] != [0, 0]));
}

#[test]
fn the_port_may_check_and_fill_in() {
    let by_port = framed(
        b"data",
        Checksums {
            ip: Fill::Port,
            udp: Fill::Port,
        },
    );
    assert_eq!(
        by_port[24..26],
        [0, 0],
        "the port starts from an empty field"
    );
    assert_eq!(parse(&by_port, &OURS, UNCHECKED), Err(Reject::IpChecksum));
    let checked = Checked {
        ip: true,
        udp: true,
    };
    assert!(parse(&by_port, &OURS, checked).is_ok());

    // The port's part: complete the sum over the UDP header and payload.
    let mut done = by_port.clone();
    let checksum = Sum::ZERO.add(&by_port[34..]).finish();
    done[40..42].copy_from_slice(&checksum);
    assert_eq!(done[40..42], to_us(b"data")[40..42]);
}

#[test]
fn each_kind_of_foreign_frame_is_refused_for_its_reason() {
    let set = |at: usize, bytes: &[u8]| {
        let mut frame = to_us(b"payload");
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let ip = |at: usize, bytes: &[u8]| {
        with_ip(b"payload", |frame| {
            frame[at..at + bytes.len()].copy_from_slice(bytes)
        })
    };
    let cases = [
        ("another type", set(12, &[0x88, 0x47]), Reject::EtherType),
        ("802.3 length", set(12, &[0x00, 0x2e]), Reject::EtherType),
        ("VLAN", set(12, &[0x81, 0x00]), Reject::Vlan),
        ("QinQ", set(12, &[0x88, 0xa8]), Reject::Vlan),
        ("IPv6", set(12, &[0x86, 0xdd]), Reject::Ipv6),
        ("another MAC", set(5, &[9]), Reject::NotForUs),
        ("broadcast MAC", set(0, &[0xff; 6]), Reject::NotForUs),
        ("another IP", ip(33, &[9]), Reject::NotForUs),
        ("broadcast IP", ip(30, &[255; 4]), Reject::NotForUs),
        (
            "version 6 in an IPv4 frame",
            ip(14, &[0x65]),
            Reject::IpHeader,
        ),
        ("header of four words", ip(14, &[0x44]), Reject::IpHeader),
        ("options", ip(14, &[0x46]), Reject::IpOptions),
        ("reserved flag", ip(20, &[0x80, 0]), Reject::IpHeader),
        ("first fragment", ip(20, &[0x20, 0]), Reject::Fragment),
        ("last fragment", ip(20, &[0x00, 1]), Reject::Fragment),
        ("TCP", ip(23, &[6]), Reject::Protocol),
        ("ICMP", ip(23, &[1]), Reject::Protocol),
        (
            "total length beyond the frame",
            ip(16, &[0x05, 0xdc]),
            Reject::Length,
        ),
        ("total length without UDP", ip(16, &[0, 27]), Reject::Length),
        (
            "total length that cuts the payload",
            ip(16, &[0, 33]),
            Reject::Length,
        ),
        ("UDP length too long", set(38, &[0, 99]), Reject::Length),
        ("UDP length too short", set(38, &[0, 7]), Reject::Length),
        ("header checksum", set(24, &[0xab]), Reject::IpChecksum),
        ("another port", set(36, &[0, 53]), Reject::Port),
        ("ARP with an IPv4 body", set(12, &[0x08, 0x06]), Reject::Arp),
    ];
    for (name, frame, reason) in cases {
        assert_eq!(read(&frame), Err(reason), "{name}");
    }
}

#[test]
fn impossible_sources_are_refused() {
    let from = |ip: [u8; 4], port: u16| {
        let mut sender = PEER;
        sender.ip = ip.into();
        sender.port = port;
        let template = Template::new(&sender, OURS.mac, SocketAddrV4::new(OURS.ip, OURS.port));
        let mut frame = vec![0; HEADERS + 4];
        template.complete(&mut frame, SOFTWARE);
        frame
    };
    for (ip, port) in [
        ([224, 0, 0, 1], 9),
        ([255; 4], 9),
        ([0; 4], 9),
        ([127, 0, 0, 1], 9),
        ([10, 0, 0, 2], 0),
        ([10, 0, 0, 1], 7000),
    ] {
        assert_eq!(read(&from(ip, port)), Err(Reject::Source), "{ip:?}:{port}");
    }
    assert!(
        read(&from([10, 0, 0, 1], 7001)).is_ok(),
        "another endpoint behind the same address"
    );
}

#[test]
fn every_truncation_is_refused() {
    let frame = to_us(b"some payload");
    for length in 0..frame.len() {
        assert!(read(&frame[..length]).is_err(), "cut to {length}");
    }
}

/// Every single flipped bit outside the fields that no checksum covers must be noticed.
#[test]
fn every_flipped_bit_is_refused() {
    let frame = to_us(b"some payload");
    for bit in 0..frame.len() * 8 {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // Ethernet's own check sequence covers its header; the source address there is not even read.
        if (6..12).contains(&(bit / 8)) {
            continue;
        }
        assert!(read(&damaged).is_err(), "bit {bit} of byte {}", bit / 8);
    }
}

/// Whatever gets through is a well-formed datagram for this endpoint, however the frame was made.
#[test]
fn fuzzed_frames_never_get_through() {
    let mut prng = Prng::new(0x7472_696e);
    let mut through = 0;
    for round in 0..400_000_u32 {
        let mut payload = vec![0; prng.below(64) as usize];
        prng.fill(&mut payload);
        let mut frame = to_us(&payload);
        for _ in 0..prng.below(4) {
            let at = prng.below(frame.len() as u64) as usize;
            frame[at] = prng.next_u64() as u8;
        }
        match prng.below(8) {
            0 => frame.truncate(prng.below(frame.len() as u64 + 1) as usize),
            1 => frame.resize(frame.len() + prng.below(80) as usize, prng.next_u64() as u8),
            2 => prng.fill(&mut frame[ETHERNET_HEADER..]),
            _ => {}
        }
        if let Ok(ReceivedFrame::Udp(datagram)) = read(&frame) {
            through += 1;
            assert_is_ours(&frame, &datagram, round);
        }
    }
    assert!(
        through > 10_000,
        "the fuzzer must leave some frames whole, it left {through}"
    );
}

fn assert_is_ours(frame: &[u8], datagram: &Datagram<'_>, round: u32) {
    assert_eq!(frame[..6], OURS.mac.0, "round {round}");
    assert_eq!(frame[12..15], [0x08, 0x00, 0x45], "round {round}");
    assert_eq!(frame[23], PROTOCOL_UDP, "round {round}");
    assert_eq!(frame[30..34], OURS.ip.octets(), "round {round}");
    assert_eq!(frame[36..38], OURS.port.to_be_bytes(), "round {round}");
    assert_eq!(frame[20] & 0xbf, 0, "a fragment in round {round}");
    assert_eq!(frame[21], 0, "a fragment in round {round}");
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    assert_eq!(
        total,
        IPV4_HEADER + UDP_HEADER + datagram.payload.len(),
        "round {round}"
    );
    assert!(Sum::ZERO.add(&frame[14..34]).is_valid(), "round {round}");
}
