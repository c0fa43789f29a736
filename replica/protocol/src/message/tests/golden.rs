//! Every layout of `PROTOCOL.md`, byte by byte. A change here is a new message version.

use std::net::SocketAddr;

use super::super::*;
use crate::release::Release;

fn header() -> PeerHeader {
    PeerHeader {
        state_version: 0,
        cluster: ClusterId(0x0102),
        group: GroupId(3),
        from: Incarnation(0x0405),
        to: Incarnation(0x0607),
    }
}

const HEADER_BYTES: [u8; PEER_HEADER_SIZE] = [
    1, 0, 0, 0, 3, 0, 0, 0, // version, reserved, group
    2, 1, 0, 0, 0, 0, 0, 0, // cluster
    5, 4, 0, 0, 0, 0, 0, 0, // from
    7, 6, 0, 0, 0, 0, 0, 0, // to
];

const V4_BYTES: [u8; ADDRESS_SIZE] = [
    4, 0, 0x2f, 0x1d, 0, 0, 0, 0, // family, reserved, port, scope
    127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

fn v4() -> SocketAddr {
    "127.0.0.1:7471".parse().expect("an address")
}

/// The header's bytes with others behind them.
fn framed(body: &[u8]) -> Vec<u8> {
    [&HEADER_BYTES, body].concat()
}

#[test]
fn client_request() {
    let request = ClientRequest {
        timed: false,
        operation: Operation::Apply,
        group: GroupId(3),
        cluster: ClusterId(0x0102),
        client: 0x0405,
        sequence: 6,
        lowest_awaited: 5,
        session_number: 0x0708,
        check: 0x0c_0b_0a,
        for_user: None,
        command: b"cmd",
    };
    let bytes = [
        1, 7, 4, 1, 3, 0, 0, 0, // version, operation, flags, sequences awaited below, group
        2, 1, 0, 0, 0, 0, 0, 0, // cluster
        5, 4, 0, 0, 0, 0, 0, 0, // client
        6, 0, 0, 0, 0, 0, 0, 0, // sequence
        8, 7, 0, 0, 0, 0, 0, 0, // session number
        10, 11, 12, 0, // check
        b'c', b'm', b'd',
    ];
    assert_eq!(request.encode_to_vec(), bytes);
    assert_eq!(ClientRequest::decode(&bytes), Ok(request));
    for bad in [[0, 0, 0, 0], [10, 11, 12, 1]] {
        let mut bytes = bytes;
        bytes[40..44].copy_from_slice(&bad);
        assert_eq!(
            ClientRequest::decode(&bytes),
            Err(DecodeError::Field { field: "check" })
        );
    }
    let without = ClientRequest {
        check: NO_CHECK,
        ..request
    };
    let mut shorter = [&bytes[..40], &bytes[44..]].concat();
    shorter[2] = 0;
    assert_eq!(without.encode_to_vec(), shorter);
    assert_eq!(ClientRequest::decode(&shorter), Ok(without));

    let mut filled = ClientRequest {
        group: GroupId(3),
        check: 0x0c_0b_0a,
        command: b"cmd",
        ..ClientRequest::bare(Operation::Apply)
    }
    .encode_to_vec();
    request.fill_in(&mut filled);
    assert_eq!(filled, bytes);
}

#[test]
fn client_request_for_a_user() {
    let request = ClientRequest {
        for_user: Some(ForUser {
            number: 0x0304,
            generation: 9,
        }),
        command: b"cmd",
        ..ClientRequest::bare(Operation::ReadLinearizable)
    };
    let mut bytes = vec![1, 4, 2, 0];
    bytes.extend([0; 36]);
    bytes.extend([4, 3, 0, 0, 9, 0, 0, 0]);
    bytes.extend(b"cmd");
    assert_eq!(request.encode_to_vec(), bytes);
    assert_eq!(ClientRequest::decode(&bytes), Ok(request));
    for len in 40..48 {
        assert_eq!(
            ClientRequest::decode(&bytes[..len]),
            Err(DecodeError::Truncated)
        );
    }
    // Both are there: the user comes first.
    let both = ClientRequest {
        check: 7,
        ..request
    };
    let mut with_check = [&bytes[..48], &[7, 0, 0, 0], &bytes[48..]].concat();
    with_check[2] = 6;
    assert_eq!(both.encode_to_vec(), with_check);
    assert_eq!(ClientRequest::decode(&with_check), Ok(both));
    bytes[40..44].fill(0);
    assert_eq!(
        ClientRequest::decode(&bytes),
        Err(DecodeError::Field { field: "user" })
    );
}

#[test]
fn client_reply_with_a_response() {
    let reply = ClientReply {
        group: GroupId(3),
        position: 0x0708,
        response: b"re",
        ..ClientReply::refusal(ClientStatus::Ok, ClusterId(0x0102))
    };
    let bytes = [
        1, 0, 0, 0, 3, 0, 0, 0, // version, status, reserved, group
        2, 1, 0, 0, 0, 0, 0, 0, // cluster
        8, 7, 0, 0, 0, 0, 0, 0, // position
        b'r', b'e',
    ];
    assert_eq!(reply.encode_to_vec(), bytes);
    assert_eq!(ClientReply::decode(&bytes), Ok(reply));
}

#[test]
fn client_reply_with_a_hint() {
    let reply = ClientReply {
        timing: None,
        leader: Some(v4()),
        ..ClientReply::refusal(ClientStatus::NotLeader, ClusterId(2))
    };
    let mut bytes = vec![
        1, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    bytes.extend(V4_BYTES);
    assert_eq!(reply.encode_to_vec(), bytes);
    assert_eq!(ClientReply::decode(&bytes), Ok(reply));

    let unknown = ClientReply::refusal(ClientStatus::NotLeader, ClusterId(2));
    bytes[24..].fill(0);
    assert_eq!(unknown.encode_to_vec(), bytes);
    assert_eq!(ClientReply::decode(&bytes), Ok(unknown));
}

#[test]
fn every_status_has_its_number() {
    let statuses = [
        ClientStatus::Ok,
        ClientStatus::NotLeader,
        ClientStatus::Busy,
        ClientStatus::Stale,
        ClientStatus::SessionExpired,
        ClientStatus::WrongCluster,
        ClientStatus::NoQuorum,
        ClientStatus::NotAttached,
        ClientStatus::TooLarge,
        ClientStatus::SessionsFull,
        ClientStatus::Malformed,
        ClientStatus::LeadershipLost,
        ClientStatus::WindowExceeded,
        ClientStatus::SessionShareTaken,
        ClientStatus::Denied,
    ];
    let known = statuses.len() as u8;
    for (number, status) in statuses.into_iter().enumerate() {
        let bytes = ClientReply::refusal(status, ClusterId::NONE).encode_to_vec();
        assert_eq!(usize::from(bytes[1]), number);
        assert_eq!(
            ClientReply::decode(&bytes).map(|reply| reply.status),
            Ok(status)
        );
    }
    let used = ClientReply::refusal(ClientStatus::SequenceUsed, ClusterId::NONE).encode_to_vec();
    assert_eq!(used[1], 0x80);
    let share = ClientReply::refusal(ClientStatus::ReplyShareTaken, ClusterId::NONE);
    assert_eq!(share.encode_to_vec()[1], 0x47);
    let mut bytes = ClientReply::refusal(ClientStatus::Busy, ClusterId::NONE).encode_to_vec();
    // Fifteen has a body, and what is behind it below the classes is not given out.
    for byte in known + 1..0x40 {
        bytes[1] = byte;
        let field = "status";
        assert_eq!(
            ClientReply::decode(&bytes),
            Err(DecodeError::Field { field })
        );
    }
}

/// A newer client learns so why an older group refuses it. Each status from 0x40 on has the release, too.
#[test]
fn refusals_name_the_release() {
    for (status, byte) in [
        (ClientStatus::Malformed, 10),
        (ClientStatus::ReplyShareTaken, 0x47),
        (ClientStatus::SequenceUsed, 0x80),
    ] {
        let mut bytes = ClientReply::refusal(status, ClusterId(5)).encode_to_vec();
        assert_eq!((bytes[1], bytes.len()), (byte, 32));
        let own = ClientReply::decode(&bytes).expect("it is read").release;
        assert_eq!(own, Some(Release::THIS));
        bytes[24..30].copy_from_slice(&[3, 0, 2, 0, 1, 0]);
        bytes.push(7);
        let release = Some(Release {
            major: 3,
            minor: 2,
            patch: 1,
        });
        let named = ClientReply::decode(&bytes).expect("it is read");
        assert_eq!((named.status, named.release), (status, release));
        let bare = ClientReply::decode(&bytes[..24]).expect("it is read");
        assert_eq!((bare.status, bare.release), (status, None));
    }
}

/// The ranges are a promise of the first release: what a client does with a status that it does not know.
#[test]
fn a_status_of_a_later_release_has_a_class() {
    let release = Release {
        major: 3,
        minor: 2,
        patch: 1,
    };
    for byte in (0x40..=u8::MAX).filter(|&byte| byte != 0x47 && byte != 0x80) {
        let mut bytes = ClientReply::refusal(ClientStatus::Busy, ClusterId(2)).encode_to_vec();
        bytes[1] = byte;
        let bare = ClientReply::decode(&bytes).expect("it is read");
        let ClientStatus::Other(status) = bare.status else {
            panic!("{bare:?}");
        };
        let class = match byte {
            ..0x80 => StatusClass::NotProposed,
            0x80..0xc0 => StatusClass::Refused,
            0xc0.. => StatusClass::OutcomeUnknown,
        };
        assert_eq!((status.byte(), status.class()), (byte, class));
        assert_eq!((bare.release, bare.encode_to_vec()), (None, bytes.clone()));
        bytes.extend([3, 0, 2, 0, 1, 0, 0, 0]);
        bytes.extend(b"the shard is elsewhere");
        let named = ClientReply::decode(&bytes).expect("it is read");
        assert_eq!(named.release, Some(release));
    }
}

/// A client of another message version has to be able to read it, so neither its place nor its form ever changes.
#[test]
fn a_message_of_another_version_is_answered_in_a_form_for_all_versions() {
    let other = OtherVersion {
        release: Release {
            major: 1,
            minor: 2,
            patch: 3,
        },
        understood: 1,
        met: 2,
        kind: 9,
    };
    let mut bytes = vec![
        1, 15, 0, 0, 0, 0, 0, 0, // version, status, flags, reserved, group
        5, 0, 0, 0, 0, 0, 0, 0, // cluster
        0, 0, 0, 0, 0, 0, 0, 0, // position
        1, 0, 2, 0, 3, 0, 0, 0, // release, reserved
        1, 2, 9, 0, // version understood, version met, kind, reserved
    ];
    let reply = other.reply(ClusterId(5));
    assert_eq!(reply.encode_to_vec(), bytes);
    for version in [1, 2, 77] {
        bytes[0] = version;
        assert_eq!(ClientReply::decode(&bytes), Ok(reply));
        assert_eq!(OtherVersion::in_reply(&bytes), Some(other));
    }
    assert_eq!(OtherVersion::in_reply(&bytes[..35]), None);
    bytes[1] = 10;
    assert_eq!(OtherVersion::in_reply(&bytes), None);
    assert_eq!(
        ClientReply::decode(&bytes),
        Err(DecodeError::Version { theirs: 77 })
    );
}

#[test]
fn a_request_with_a_flag_of_a_later_release_is_not_read() {
    let mut bytes = ClientRequest::bare(Operation::Register).encode_to_vec();
    for bit in 3..8 {
        bytes[2] = 1 << bit;
        let field = "flags";
        assert_eq!(
            ClientRequest::decode(&bytes),
            Err(DecodeError::Field { field })
        );
    }
}

#[test]
fn raft_frame() {
    let frame = RaftFrame {
        header: header(),
        message: b"raft",
    };
    let bytes = framed(b"raft");
    assert_eq!(frame.encode_to_vec(), bytes);
    assert_eq!(RaftFrame::decode(&bytes), Ok(frame));
    assert_eq!(header().encode_to_vec(), HEADER_BYTES);
}

#[test]
fn append_numbered_in_place() {
    let mut bytes = AppendFrame {
        header: header(),
        stream: 0,
        sequence: 0,
        message: b"raft",
    }
    .encode_to_vec();
    set_stream_position(&mut bytes, 8, 9);
    assert_eq!(bytes, framed(b"\x08\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0raft"));
    assert_eq!(stream_position(&bytes), Some((8, 9)));
    assert_eq!(stream_position(&bytes[..APPEND_HEADER_SIZE - 1]), None);
    assert_eq!(
        AppendFrame::decode(&bytes),
        Ok(AppendFrame {
            header: header(),
            stream: 8,
            sequence: 9,
            message: b"raft"
        })
    );

    let mut front = [0xff; APPEND_HEADER_SIZE];
    AppendFrame::encode_header(header(), &mut front);
    set_stream_position(&mut front, 8, 9);
    assert_eq!(front, bytes[..APPEND_HEADER_SIZE]);
}

#[test]
fn snapshot_chunk_and_its_acknowledgement() {
    let chunk = SnapshotChunk {
        header: header(),
        index: 10,
        term: 11,
        transfer: 12,
        chunk: 13,
        last: true,
        data: b"data",
    };
    let body = [
        10, 0, 0, 0, 0, 0, 0, 0, // index
        11, 0, 0, 0, 0, 0, 0, 0, // term
        12, 0, 0, 0, 0, 0, 0, 0, // transfer
        13, 0, 0, 0, 1, 0, 0, 0, // chunk, last, reserved
        b'd', b'a', b't', b'a',
    ];
    assert_eq!(chunk.encode_to_vec(), framed(&body));
    assert_eq!(SnapshotChunk::decode(&framed(&body)), Ok(chunk));

    let ack = ChunkAck {
        outcome: ChunkOutcome::Installed,
        next_chunk: 14,
        transfer: 12,
    };
    let bytes = [1, 1, 0, 0, 14, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(ack.encode_to_vec(), bytes);
    assert_eq!(ChunkAck::decode(&bytes), Ok(ack));
}

#[test]
fn bootstrap() {
    let probe = BootstrapRequest::Probe { node_id: NodeId(2) };
    assert_eq!(probe.encode_to_vec(), [1, 1, 0, 0, 2, 0, 0, 0]);

    let member = Member {
        node_id: NodeId(2),
        role: MemberRole::Voter,
        incarnation: Incarnation(5),
        address: v4(),
    };
    let begin = BootstrapRequest::Begin {
        node_id: NodeId(2),
        incarnation: Incarnation(5),
        cluster: ClusterId(6),
        members: Members(vec![member]),
        first_entry: b"first",
    };
    let mut bytes = vec![
        1, 2, 0, 0, 2, 0, 0, 0, // version, request, reserved, node id
        5, 0, 0, 0, 0, 0, 0, 0, // incarnation
        6, 0, 0, 0, 0, 0, 0, 0, // cluster
        1, 0, 0, 0, 0, 0, 0, 0, // member count, reserved
        2, 0, 0, 0, 1, 0, 0, 0, // node id, role, reserved
        5, 0, 0, 0, 0, 0, 0, 0, // incarnation
    ];
    bytes.extend(V4_BYTES);
    bytes.extend(b"first");
    assert_eq!(begin.encode_to_vec(), bytes);
    assert_eq!(BootstrapRequest::decode(&bytes), Ok(begin));

    let refused = BootstrapReply::Refused {
        reason: BeginRefusal::WrongNodeId,
        node_id: NodeId(2),
        incarnation: Incarnation(5),
        cluster: ClusterId(6),
    };
    let bytes = [
        1, 3, 2, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(refused.encode_to_vec(), bytes);
    assert_eq!(BootstrapReply::decode(&bytes), Ok(refused));

    // Of a later release.
    let mut later = bytes.to_vec();
    later[2] = 99;
    later.extend([1, 2, 3]);
    let reason = BeginRefusal::Other(99);
    let read = BootstrapReply::decode(&later).expect("a refusal");
    assert!(matches!(read, BootstrapReply::Refused { reason: met, .. } if met == reason));
    assert_eq!(read.encode_to_vec(), later[..24]);
    assert!(BootstrapReply::decode(&later[..23]).is_err());
}

#[test]
fn join() {
    let request = JoinRequest {
        state_version: 0,
        member: false,
        node_id: NodeId(2),
        incarnation: Incarnation(5),
        address: v4(),
        cluster: ClusterId(6),
    };
    let mut bytes = vec![
        1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0,
    ];
    bytes.extend(V4_BYTES);
    assert_eq!(request.encode_to_vec(), bytes);
    assert_eq!(JoinRequest::decode(&bytes), Ok(request));

    let refused = JoinReply::Refused {
        reason: JoinRefusal::NotLeader,
        cluster: ClusterId(6),
        leader_address: Some(v4()),
    };
    let mut bytes = vec![
        1, 2, 1, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    bytes.extend(V4_BYTES);
    assert_eq!(refused.encode_to_vec(), bytes);
    assert_eq!(JoinReply::decode(&bytes), Ok(refused));

    // Of a later release.
    bytes[2] = 99;
    bytes[24] = 77;
    bytes.push(1);
    let refused = JoinReply::Refused {
        reason: JoinRefusal::Other(99),
        cluster: ClusterId(6),
        leader_address: None,
    };
    assert_eq!(JoinReply::decode(&bytes), Ok(refused));
    assert!(JoinReply::decode(&bytes[..47]).is_err());
}

/// A write that was put into no log had an unknown outcome, because its client could not read the leader's address. A replica
/// whose list had one such member was taken for silent.
#[test]
fn replies_may_name_addresses_and_roles_of_a_later_release() {
    let mut hint = ClientReply::refusal(ClientStatus::NotLeader, ClusterId(5));
    hint.leader = Some(v4());
    let mut bytes = hint.encode_to_vec();
    bytes[24] = 77;
    hint.leader = None;
    assert_eq!(ClientReply::decode(&bytes), Ok(hint));

    let member = |id: u32| Member {
        node_id: NodeId(id),
        role: MemberRole::Voter,
        incarnation: Incarnation(u64::from(id)),
        address: v4(),
    };
    let mut discovery = Discovery {
        leader: Some(v4()),
        members: Members((1..=4).map(member).collect()),
        ..Discovery::unattached(NodeId(2), Incarnation(5))
    };
    let mut bytes = StatusReply::Discovery(discovery.clone()).encode_to_vec();
    bytes[2] = 99; // the role
    bytes[32] = 77; // the family of the leader's address
    let at = |index: usize| 32 + 24 + 8 + 40 * index;
    bytes[at(0) + 4] = 99; // the role of the first member
    bytes[at(2) + 16] = 77; // the family of the third one's address
    discovery.role = RoleCode::Unknown;
    discovery.leader = None;
    discovery.members = Members(vec![member(2), member(4)]);
    let read = StatusReply::decode(&bytes);
    assert_eq!(read, Ok(StatusReply::Discovery(discovery)));
    assert!(StatusReply::decode(&bytes[..at(3) + 39]).is_err());

    let begin = BootstrapRequest::Begin {
        node_id: NodeId(2),
        incarnation: Incarnation(5),
        cluster: ClusterId(6),
        members: Members(vec![member(1)]),
        first_entry: b"first",
    };
    let bytes = begin.encode_to_vec();
    for at in [24 + 8 + 4, 24 + 8 + 16] {
        let mut later = bytes.clone();
        later[at] = 77;
        assert!(BootstrapRequest::decode(&later).is_err(), "{at}");
    }
}

#[test]
fn status() {
    let request = StatusRequest {
        form: StatusForm::Json,
    };
    assert_eq!(request.encode_to_vec(), [1, 2, 0, 0]);
    assert_eq!(StatusRequest::decode(&[1, 2, 0, 0]), Ok(request));

    let discovery = Discovery {
        cluster: ClusterId(6),
        role: RoleCode::Leader,
        term: 7,
        leader: Some(v4()),
        release: Release {
            major: 1,
            minor: 2,
            patch: 3,
        },
        state_version: 7,
        understands: 8,
        ..Discovery::unattached(NodeId(2), Incarnation(5))
    };
    let mut bytes = vec![
        1, 1, 5, 0, 2, 0, 0, 0, // version, form, role, reserved, node id
        6, 0, 0, 0, 0, 0, 0, 0, // cluster
        5, 0, 0, 0, 0, 0, 0, 0, // incarnation
        7, 0, 0, 0, 0, 0, 0, 0, // term
    ];
    bytes.extend(V4_BYTES);
    bytes.extend([0; 8]);
    bytes.extend([1, 0, 2, 0, 3, 0, 0, 0]); // release, reserved
    bytes.extend([7, 8, 1, 0, 0, 0, 0, 0]); // state version, understood, message version, reserved
    bytes.extend([0xfe, 0x77]); // kinds 1 to 10 and 12 to 14
    bytes.extend([0; 30]);
    let reply = StatusReply::Discovery(discovery.clone());
    assert_eq!(reply.encode_to_vec(), bytes);
    assert_eq!(StatusReply::decode(&bytes), Ok(reply.clone()));
    // Less than a position says nothing, and neither does one without a term.
    let mut cut = bytes.clone();
    cut.extend([9; 15]);
    assert_eq!(StatusReply::decode(&cut), Ok(reply.clone()));
    let mut termless = bytes.clone();
    termless.extend([0; 16]);
    assert_eq!(StatusReply::decode(&termless), Ok(reply));
    bytes.extend([3, 0, 0, 0, 0, 0, 0, 0, 9, 1, 0, 0, 0, 0, 0, 0]); // term, index
    let told = StatusReply::Discovery(Discovery {
        promised: Some(PromisedPosition {
            term: 3,
            index: 265,
        }),
        ..discovery
    });
    assert_eq!(told.encode_to_vec(), bytes);
    assert_eq!(StatusReply::decode(&bytes), Ok(told));
    assert_eq!(
        StatusReply::Json(b"{}").encode_to_vec(),
        [1, 2, 0, 0, 0, 0, 0, 0, b'{', b'}']
    );
}

#[test]
fn another_version_is_refused_by_its_number() {
    let mut bytes = ClientRequest::bare(Operation::Register).encode_to_vec();
    bytes[0] = 2;
    assert_eq!(
        ClientRequest::decode(&bytes),
        Err(DecodeError::Version { theirs: 2 })
    );
}

#[test]
fn an_ipv6_address_keeps_its_scope() {
    let address: SocketAddr = "[fe80::1%7]:9".parse().expect("an address");
    let request = JoinRequest {
        state_version: 0,
        member: false,
        node_id: NodeId(0),
        incarnation: Incarnation(1),
        address,
        cluster: ClusterId::NONE,
    };
    let bytes = request.encode_to_vec();
    assert_eq!(bytes[24..32], [6, 0, 9, 0, 7, 0, 0, 0]);
    assert_eq!(JoinRequest::decode(&bytes), Ok(request));
}

#[test]
fn batch() {
    let mut bytes = [0xff; 32];
    let mut writer = BatchWriter::new(&mut bytes);
    writer.push(b"one");
    writer.push(b"");
    let len = writer.finish();
    let expected = [
        1, 0, 2, 0, 0, 0, 0, 0, // version, reserved, item count, reserved
        3, 0, 0, 0, b'o', b'n', b'e', // length, item
        0, 0, 0, 0, // length of an empty item
    ];
    assert_eq!(bytes[..len], expected);
    let items: Vec<_> = BatchItems::decode(&expected)
        .expect("it is sound")
        .collect();
    assert_eq!(items, [&b"one"[..], b""]);
    assert_eq!(
        BatchItems::decode(&expected[..18]).err(),
        Some(DecodeError::Truncated)
    );
    assert_eq!(
        BatchItems::decode(&bytes[..len + 1]).err(),
        Some(DecodeError::Trailing)
    );
    let replies = BatchItems::decode_replies(&bytes[..len + 1]).expect("of a later release");
    assert_eq!(replies.collect::<Vec<_>>(), [&b"one"[..], b""]);
    let mut many = expected;
    many[2] = BATCH_ITEMS_MAX as u8 + 1;
    assert_eq!(
        BatchItems::decode(&many).err(),
        Some(DecodeError::Field {
            field: "item count"
        })
    );
}

#[test]
fn state_report() {
    let report = StateReport {
        header: header(),
        index: 5,
        hash: [6, 7],
    };
    let bytes = framed(&[
        5, 0, 0, 0, 0, 0, 0, 0, // index
        6, 0, 0, 0, 0, 0, 0, 0, // hash, high half
        7, 0, 0, 0, 0, 0, 0, 0, // low half
    ]);
    assert_eq!(report.encode_to_vec(), bytes);
    assert_eq!(StateReport::decode(&bytes), Ok(report));
    assert!(StateReport::decode(&bytes[..55]).is_err());
}

#[test]
fn leader_secret() {
    let said = LeaderSecret {
        header: header(),
        term: 5,
        secret: RunSecret(*b"0123456789abcdef"),
    };
    let bytes = [&framed(&[5, 0, 0, 0, 0, 0, 0, 0])[..], b"0123456789abcdef"].concat();
    assert_eq!(said.encode_to_vec(), bytes);
    assert_eq!(LeaderSecret::decode(&bytes), Ok(said));
    for short in 0..bytes.len() {
        assert!(LeaderSecret::decode(&bytes[..short]).is_err());
    }
}
