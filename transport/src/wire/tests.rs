//! Golden bytes of every packet type, and bytes that are no packet. The rows are those of
//! PROTOCOL.md.

use super::*;
use crate::time::Duration;

const NONCE: u64 = 0x1122_3344_5566_7788;

/// The packet as hex: header row by row, then extension and body in words of eight bytes.
fn hex(head: &[u8], body: &[u8]) -> String {
    let all: Vec<u8> = [head, body].concat();
    let rows = [0..2, 2..4, 4..6, 6..10, 10..12, 12..18, 18..20, 20..24];
    let mut out: Vec<String> = rows.map(|row| digits(&all[row])).into();
    out.extend(all[HEADER_BYTES..].chunks(8).map(digits));
    out.join(" ")
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes, compares with the golden bytes, and reads back.
fn golden(
    header: Header,
    seed: Seed,
    extension: Option<[u8; EXTENSION_BYTES]>,
    body: &[u8],
    expected: &str,
) {
    let head = header.write(seed, extension, body);
    assert_eq!(hex(&head, body), expected, "{:?}", header.packet_type);
    let mut bytes = [&head[..], body].concat();
    let length = bytes.len();
    bytes.extend_from_slice(&[0xee; 5]);
    let (packet, rest) = split_first(&bytes).expect("what was written can be read");
    assert_eq!(rest, [0xee; 5], "a packet ends where it says");
    let flags = header.flags.with_if(extension.is_some(), Flags::EXTENSION);
    assert_eq!(packet.header, Header { flags, ..header });
    assert_eq!(packet.payload, body);
    assert!(packet.verify(seed));
    assert!(
        !packet.verify(Seed::of_nonce(NONCE + 1)),
        "a packet of another session"
    );
    for bit in 0..length * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let survives = split_first(&bytes).is_ok_and(|(packet, _)| packet.verify(seed));
        assert!(!survives, "bit {bit} can be flipped unnoticed");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

fn header(packet_type: PacketType) -> Header {
    Header {
        request: RequestNumber::new(5, 0x0102_0304),
        flags: Flags::of_round(3),
        ..Header::new(packet_type, 0x0201)
    }
}

fn session() -> Seed {
    Seed::of_nonce(NONCE)
}

#[test]
fn request() {
    let first = Header {
        kind: 9,
        message_bytes: 0x03_0201,
        ..header(PacketType::Request)
    };
    golden(
        first,
        session(),
        Some(deadline_extension(1_500)),
        b"8 bytes!",
        "1132 0102 2800 09010203 0000 05c180400000 0000 da93b179 0200000000000000 3820627974657321",
    );
    let later = Header {
        packet_number: 0x0504,
        ..first
    };
    golden(
        later,
        session(),
        None,
        b"abc",
        "1130 0102 1b00 09010203 0405 05c180400000 0000 ebe1d860 616263",
    );
}

#[test]
fn response() {
    let server_time = ServerTime::from_duration(Duration::from_micros(300));
    let header = Header {
        message_bytes: 3,
        server_time,
        ..header(PacketType::Response)
    };
    golden(
        header,
        session(),
        None,
        b"abc",
        "1230 0102 1b00 00030000 0000 05c180400000 2779 5ba790bd 616263",
    );
}

#[test]
fn credit_return() {
    let header = Header {
        packet_number: 7,
        ..header(PacketType::CreditReturn)
    };
    golden(
        header,
        session(),
        None,
        &[],
        "1330 0102 1800 00000000 0700 05c180400000 0000 fb3ed723",
    );
    let gap = Header {
        flags: header.flags.with(Flags::GAP).with(Flags::ECN_ECHO),
        ..header
    };
    golden(
        gap,
        session(),
        None,
        &[],
        "1339 0102 1800 00000000 0700 05c180400000 0000 11b86b41",
    );
}

#[test]
fn request_for_response() {
    let header = Header {
        packet_number: 2,
        message_bytes: 12,
        ..header(PacketType::RequestForResponse)
    };
    golden(
        header,
        session(),
        None,
        &[],
        "1430 0102 1800 000c0000 0200 05c180400000 0000 a7a2120f",
    );
}

#[test]
fn busy() {
    golden(
        header(PacketType::Busy),
        session(),
        None,
        &[],
        "1530 0102 1800 00000000 0000 05c180400000 0000 ec8024eb",
    );
}

#[test]
fn connect() {
    let connect = Connect {
        client_session: 0x0a0b,
        credits: 32,
        slots: 8,
        features: Features::CUMULATIVE_CREDITS,
        mtu: 1472,
        nonce: NONCE,
        cluster: 0xc1,
        incarnation: 0x1c,
        cookie: 0xc00c,
    };
    let header = Header::new(PacketType::Connect, NO_SESSION);
    let body = connect.write();
    golden(
        header,
        Seed::NONE,
        None,
        &body,
        "1800 ffff 4000 00000000 0000 000000000000 0000 1d8b4aa9 0b0a20000801c005 8877665544332211 c100000000000000 1c00000000000000 0cc0000000000000",
    );
    assert_eq!(Connect::read(&body), Some((connect, &[][..])));
    assert_eq!(Connect::read(&body[1..]), None);
    assert_eq!(HEADER_BYTES + body.len(), CONTROL_BYTES_MAX);
}

#[test]
fn cookie() {
    let cookie = Cookie { cookie: 0xc00c };
    let body = cookie.write();
    golden(
        Header::new(PacketType::Cookie, 0x0a0b),
        session(),
        None,
        &body,
        "1900 0b0a 2000 00000000 0000 000000000000 0000 632ad2cf 0cc0000000000000",
    );
    assert_eq!(Cookie::read(&body), Some(cookie));
    assert_eq!(Cookie::read(&body[1..]), None);
}

#[test]
fn accept() {
    let accept = Accept {
        server_session: 0x0d0e,
        credits: 16,
        slots: 4,
        features: Features::NONE,
        mtu: 1400,
        cluster: 0xc1,
        incarnation: 0x5e,
    };
    let body = accept.write();
    golden(
        Header::new(PacketType::Accept, 0x0a0b),
        session(),
        None,
        &body,
        "1a00 0b0a 3000 00000000 0000 000000000000 0000 fe294fd9 0e0d100004007805 c100000000000000 5e00000000000000",
    );
    assert_eq!(Accept::read(&body), Some((accept, &[][..])));
    assert_eq!(Accept::read(&body[1..]), None);
}

#[test]
fn refuse() {
    let refuse = Refuse {
        reason: RefuseReason::Cluster,
        detail: 0xc2,
    };
    let body = refuse.write();
    golden(
        Header::new(PacketType::Refuse, 0x0a0b),
        session(),
        None,
        &body,
        "1b00 0b0a 2800 00000000 0000 000000000000 0000 53f0a9fe 0200000000000000 c200000000000000",
    );
    assert_eq!(Refuse::read(&body), Some(refuse));
    let mut unknown = body.to_vec();
    unknown[0] = 99;
    let read = Refuse::read(&unknown).expect("a refusal all the same");
    assert_eq!(read.reason, RefuseReason::Unknown(99));
}

/// A client of an earlier release drops a REFUSE whose first byte it does not know, and would wait for its time to be
/// up. So the first byte of each reason is one of the three that it knows.
#[test]
fn a_reason_that_is_new_is_read_as_one_that_is_not() {
    for (reason, code) in [
        (RefuseReason::Version, [1, 0]),
        (RefuseReason::Cluster, [2, 0]),
        (RefuseReason::Full, [3, 0]),
        (RefuseReason::Terms(BadTerm::Credits), [3, 1]),
        (RefuseReason::Terms(BadTerm::Slots), [3, 2]),
        (RefuseReason::Terms(BadTerm::Mtu), [3, 3]),
    ] {
        let refuse = Refuse { reason, detail: 64 };
        let mut body = refuse.write().to_vec();
        assert_eq!(
            body[..8],
            [code[0], code[1], 0, 0, 0, 0, 0, 0],
            "{reason:?}"
        );
        assert_eq!(Refuse::read(&body), Some(refuse));
        // A closer reason of a later release.
        body[1] = 200;
        let known = [
            RefuseReason::Version,
            RefuseReason::Cluster,
            RefuseReason::Full,
        ];
        let read = Refuse::read(&body).expect("a refusal").reason;
        assert_eq!(read, known[usize::from(code[0]) - 1], "{reason:?}");
    }
}

#[test]
fn refuse_for_terms() {
    let refuse = Refuse {
        reason: RefuseReason::Terms(BadTerm::Mtu),
        detail: 512,
    };
    golden(
        Header::new(PacketType::Refuse, 0x0a0b),
        session(),
        None,
        &refuse.write(),
        "1b00 0b0a 2800 00000000 0000 000000000000 0000 260449c8 0303000000000000 0002000000000000",
    );
}

#[test]
fn a_notice() {
    golden(
        Header {
            kind: 1,
            ..Header::new(PacketType::Notice, NO_SESSION)
        },
        Seed::NONE,
        None,
        b"abc",
        "1600 ffff 1b00 01000000 0000 000000000000 0000 7988a3f8 616263",
    );
    let bytes = notice(1, b"abc");
    let (packet, _) = split_first(&bytes).expect("a packet");
    assert_eq!((packet.header.kind, packet.payload), (1, &b"abc"[..]));
    assert!(packet.verify(Seed::NONE) && names_session(&bytes).is_none());
}

#[test]
fn ping_and_disconnect() {
    let probe = Probe {
        sender_session: 0x0a0b,
        nonce: NONCE,
    };
    let body = probe.write();
    for (packet_type, expected) in [
        (
            PacketType::Ping,
            "1e30 0102 2800 00000000 0000 05c180400000 0000 6849b4d4 0b0a000000000000 8877665544332211",
        ),
        (
            PacketType::Disconnect,
            "1c30 0102 2800 00000000 0000 05c180400000 0000 103e2db3 0b0a000000000000 8877665544332211",
        ),
    ] {
        golden(header(packet_type), Seed::NONE, None, &body, expected);
    }
    assert_eq!(Probe::read(&body), Some((probe, &[][..])));
    assert_eq!(Probe::read(&body[1..]), None);
}

#[test]
fn pong_disconnected_and_reset() {
    golden(
        header(PacketType::Pong),
        session(),
        None,
        &[],
        "1f30 0102 1800 00000000 0000 05c180400000 0000 8fa4503a",
    );
    golden(
        header(PacketType::Disconnected),
        session(),
        None,
        &[],
        "1d30 0102 1800 00000000 0000 05c180400000 0000 f54bd754",
    );
    golden(
        header(PacketType::Reset),
        Seed::NONE,
        None,
        &[],
        "1730 0102 1800 00000000 0000 05c180400000 0000 7b9b0c1b",
    );
}

#[test]
fn what_is_no_packet_says_why() {
    let good = header(PacketType::Busy)
        .write(session(), None, &[])
        .to_vec();
    let broken = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        split_first(&bytes).map(|_| ()).expect_err("no packet")
    };
    assert_eq!(broken(&|b| b.truncate(23)), WireError::Truncated);
    assert_eq!(
        broken(&|b| b[4] = 25),
        WireError::Truncated,
        "longer than the datagram"
    );
    assert_eq!(
        broken(&|b| b[4] = 23),
        WireError::Truncated,
        "shorter than a header"
    );
    assert_eq!(broken(&|b| b[4] = 0), WireError::Truncated, "no progress");
    assert_eq!(broken(&|b| b[0] = 0x25), WireError::Version);
    assert_eq!(broken(&|b| b[0] = 0x10), WireError::UnknownType);
    assert_eq!(broken(&|b| b[1] |= 4), WireError::Unsupported, "a trailer");
    assert_eq!(
        broken(&|b| b[1] |= 2),
        WireError::Unsupported,
        "an extension where none belongs"
    );
    assert_eq!(split_first(&[]).map(|_| ()), Err(WireError::Truncated));
    // An extension that the packet has no room for.
    let mut bytes = header(PacketType::Request)
        .write(session(), None, b"abc")
        .to_vec();
    bytes.extend_from_slice(b"abc");
    bytes[1] |= 2;
    assert_eq!(split_first(&bytes).map(|_| ()), Err(WireError::Truncated));
}

#[test]
fn another_version_is_read_in_connect_and_refuse_only() {
    for (packet_type, is_read) in [
        (PacketType::Connect, true),
        (PacketType::Refuse, true),
        (PacketType::Ping, false),
    ] {
        let header = Header {
            version: 2,
            ..Header::new(packet_type, 1)
        };
        let bytes = header.write(Seed::NONE, None, &[]).to_vec();
        assert_eq!(split_first(&bytes).is_ok(), is_read, "{packet_type:?}");
    }
}

#[test]
fn server_times_round_down_and_saturate() {
    for (ns, read) in [
        (0, 0),
        (1, 1),
        (4_095, 4_095),
        (4_097, 4_096),
        (1_000_000, 999_936),
        (134_000_000, 133_988_352),
    ] {
        let server_time = ServerTime::from_duration(Duration::from_nanos(ns));
        assert_eq!(
            server_time.to_duration(),
            Some(Duration::from_nanos(read)),
            "{ns} ns"
        );
    }
    assert_eq!(
        ServerTime::from_duration(Duration::from_millis(200)).to_duration(),
        None
    );
    assert_eq!(ServerTime::from_duration(Duration::MAX).to_duration(), None);
}

#[test]
fn a_deadline_is_rounded_up_to_microseconds() {
    let read = |ns| {
        let head = header(PacketType::Request).write(session(), Some(deadline_extension(ns)), &[]);
        split_first(&head).expect("a packet").0.deadline_ns
    };
    assert_eq!(read(0), Some(0));
    assert_eq!(read(1), Some(1_000));
    assert_eq!(read(2_000), Some(2_000));
    assert_eq!(read(u64::MAX), Some(u64::from(u32::MAX) * 1_000));
}

fn outline_of(header: &Header) -> Outline {
    Outline {
        packet_type: header.packet_type,
        session: header.session,
        packet_number: header.packet_number,
        request: header.request,
    }
}

/// A run of sealed packets ends with a tag, which is no packet whatever its bytes are.
#[test]
fn the_outlines_of_a_datagram_are_those_of_its_packets() {
    let headers = [3, 4, 5].map(|slot| Header {
        packet_number: u16::from(slot) * 300,
        request: RequestNumber::new(slot, 1 << 40),
        ..Header::new(PacketType::Response, 0x0102)
    });
    let mut datagram = Vec::new();
    for header in &headers {
        datagram.extend_from_slice(&header.write(Seed::NONE, None, b"payload"));
        datagram.extend_from_slice(b"payload");
    }
    let read: Vec<Outline> = outlines(&datagram).collect();
    assert_eq!(read, headers.each_ref().map(outline_of));
    assert_eq!(
        outlines(&datagram[..HEADER_BYTES + 3]).count(),
        1,
        "a head whose body is elsewhere"
    );
    let one = HEADER_BYTES + b"payload".len();
    datagram[one + 1] |= Flags::TRAILER.0;
    assert_eq!(outlines(&datagram).count(), 2, "the rest is the tag");
    datagram[4..6].fill(0);
    assert!(
        outlines(&datagram).count() <= 3,
        "a length of zero ends, too"
    );
    assert_eq!(outlines(&[]).count(), 0);
}

mod random {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn outlines_of_random_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(outlines(&bytes).count() <= bytes.len() / HEADER_BYTES + 1);
        }

        /// Any bytes give an error, or a packet inside the bytes. Nothing panics, and the splitting
        /// ends.
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = &bytes[..];
            while let Ok((packet, after)) = split_first(rest) {
                prop_assert!(after.len() + HEADER_BYTES <= rest.len());
                prop_assert!(packet.payload.len() < rest.len());
                let is_known = packet.header.version == VERSION;
                prop_assert_eq!(outline(rest), is_known.then_some(outline_of(&packet.header)));
                let _ = packet.verify(Seed::NONE);
                let _ = (Connect::read(packet.payload), Accept::read(packet.payload));
                let _ = (Refuse::read(packet.payload), Probe::read(packet.payload), Cookie::read(packet.payload));
                rest = after;
            }
        }

        #[test]
        fn headers_survive_the_wire(
            kind: u8, session: u16, message_bytes in 0u32..1 << 24, packet_number: u16,
            slot in 0u8..64, sequence in 0..=RequestNumber::SEQUENCE_MAX, server_ns: u64, round: u8,
        ) {
            let header = Header {
                kind, message_bytes, packet_number,
                request: RequestNumber::new(slot, sequence),
                server_time: ServerTime::from_duration(Duration::from_nanos(server_ns)),
                flags: Flags::of_round(round),
                ..Header::new(PacketType::Response, session)
            };
            let bytes = header.write(Seed::NONE, None, &[]);
            let (packet, _) = split_first(&bytes).expect("a packet");
            prop_assert_eq!(packet.header, header);
            prop_assert_eq!((packet.header.request.slot(), packet.header.request.sequence()), (slot, sequence));
        }
    }
}
