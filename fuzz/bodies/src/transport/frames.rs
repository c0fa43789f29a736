//! Bytes from a network below UDP, and from a peer at a management address. The first byte says what the others are.
//! Whatever is read is written, and reads back the same.

use std::net::{Ipv4Addr, SocketAddrV4};

use trine_dpdk::arp::Arp;
use trine_dpdk::ethernet::ETHERNET_HEADER;
use trine_dpdk::frame::{Checked, Datagram, HEADERS, Local, ReceivedFrame, Reject, parse};
use trine_dpdk::mac::MacAddr;
use trine_dpdk::template::{Checksums, Fill, Template};
use trine_transport::backend::CaptureAddress;
use trine_transport::backend::announce::{Announce, fuzz_datagram};
use trine_verbs::{GRH_BYTES, VerbsAddress, VerbsRoute};

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
/// The program is to check everything.
const UNCHECKED: Checked = Checked {
    ip: false,
    udp: false,
};
/// The port has checked the sums: without the check random frames get much further.
const CHECKED: Checked = Checked {
    ip: true,
    udp: true,
};
/// Bytes of an announcement in front of the route, and of the route at most.
const ANNOUNCEMENT_HEAD: usize = 16;
const ROUTE_BYTES_MAX: usize = 48;
/// No network carries more in a frame.
const PAYLOAD_BYTES_MAX: usize = 9_000;

pub fn run(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else {
        return;
    };
    match kind % 6 {
        0 => frame(rest),
        1 => arp(rest),
        2 => fuzz_datagram::<VerbsAddress>(rest),
        3 => announced(rest),
        4 => route_header(rest),
        _ => carried(rest),
    }
}

fn frame(bytes: &[u8]) {
    let strict = parse(bytes, &OURS, UNCHECKED);
    let trusting = parse(bytes, &OURS, CHECKED);
    match strict {
        Ok(_) => assert_eq!(strict, trusting),
        Err(Reject::IpChecksum | Reject::UdpChecksum) => {}
        // Refused before the sums, or after them; a reader without the check has the same result.
        Err(reason) => assert_eq!(trusting, Err(reason)),
    }
    match trusting {
        Ok(ReceivedFrame::Udp(datagram)) => whole(bytes, &datagram),
        Ok(ReceivedFrame::Arp(_)) => arp(&bytes[ETHERNET_HEADER..]),
        Err(reason) => assert!(!reason.to_string().is_empty()),
    }
}

/// A datagram lies in its frame, behind the headers, and travels again in a frame that we make.
fn whole(frame: &[u8], datagram: &Datagram<'_>) {
    let (inside, payload) = (frame.as_ptr_range(), datagram.payload.as_ptr_range());
    assert!(inside.start <= payload.start && payload.end <= inside.end);
    assert!(datagram.payload.len() + HEADERS <= frame.len());
    if datagram.payload.len() > PAYLOAD_BYTES_MAX {
        return;
    }
    let sender = Local {
        ip: *datagram.source.ip(),
        port: datagram.source.port(),
        ..PEER
    };
    let again = framed(&sender, datagram.payload);
    let expected = Datagram {
        ecn: false,
        ..*datagram
    };
    assert_eq!(
        parse(&again, &OURS, UNCHECKED),
        Ok(ReceivedFrame::Udp(expected))
    );
}

fn framed(sender: &Local, payload: &[u8]) -> Vec<u8> {
    let template = Template::new(sender, OURS.mac, SocketAddrV4::new(OURS.ip, OURS.port));
    let mut frame = vec![0; HEADERS];
    frame.extend_from_slice(payload);
    let software = Checksums {
        ip: Fill::Software,
        udp: Fill::Software,
    };
    template.complete(&mut frame, software);
    frame
}

/// A payload in a frame that we made: it arrives. With a bit inverted (the first bytes say which) no other payload
/// does.
fn carried(bytes: &[u8]) {
    let Some((at, payload)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let mut frame = framed(&PEER, &payload[..payload.len().min(PAYLOAD_BYTES_MAX)]);
    let Ok(ReceivedFrame::Udp(datagram)) = parse(&frame, &OURS, UNCHECKED) else {
        panic!("a frame of ours is refused");
    };
    assert_eq!(datagram.source, SocketAddrV4::new(PEER.ip, PEER.port));
    let sent = datagram.payload.to_vec();
    let bit = usize::from(u16::from_le_bytes(*at)) % (frame.len() * 8);
    frame[bit / 8] ^= 1 << (bit % 8);
    // No sum covers the Ethernet source, and a UDP sum whose only bit is gone says that there is none.
    if let Ok(ReceivedFrame::Udp(damaged)) = parse(&frame, &OURS, UNCHECKED) {
        assert_eq!(damaged.payload, sent, "bit {bit}");
    }
}

fn arp(body: &[u8]) {
    let Some(read) = Arp::parse(body) else {
        return;
    };
    let frame = read.frame();
    assert_eq!(
        parse(&frame, &OURS, UNCHECKED),
        Ok(ReceivedFrame::Arp(read))
    );
    let answer = read.answer(OURS.mac);
    assert_eq!(
        (answer.target_mac, answer.target_ip),
        (read.sender_mac, read.sender_ip)
    );
}

/// A verbs address, alone and in an announcement that is otherwise correct.
fn announced(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(ROUTE_BYTES_MAX)];
    let mut datagram = [0; ANNOUNCEMENT_HEAD + ROUTE_BYTES_MAX];
    datagram[..4].copy_from_slice(b"TRTE");
    datagram[4..8].copy_from_slice(&[1, 2, VerbsAddress::FAMILY, bytes.len() as u8]);
    datagram[ANNOUNCEMENT_HEAD..][..bytes.len()].copy_from_slice(bytes);
    fuzz_datagram::<VerbsAddress>(&datagram);
    let Some(address) = VerbsAddress::from_bytes(bytes) else {
        return;
    };
    assert_eq!(address.to_bytes(), bytes);
    for choice in [0, 1, 7, u32::MAX] {
        let route = address.route(choice, 3);
        assert!(address.queue_pairs().contains(&route.queue_pair) && route.via < 3);
        let _ = route.capture_address();
    }
}

/// The header of a datagram on a queue pair.
fn route_header(bytes: &[u8]) {
    let Some((header, _)) = bytes.split_first_chunk::<GRH_BYTES>() else {
        return;
    };
    let sender = VerbsRoute::of_sender(Some(header), 7, 17, 1, 0);
    let is_mapped = sender.gid.starts_with(&[0; 10]) && sender.gid[12..] == header[32..36];
    assert!(is_mapped || sender.gid[..] == header[8..24]);
    assert_eq!(sender.lid, 0);
    let _ = sender.capture_address();
}
