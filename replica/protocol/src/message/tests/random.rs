//! Encoded messages are decoded again, and arbitrary or damaged bytes are refused or read, but never panic.

use std::net::{IpAddr, SocketAddr};

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::*;

fn any_address() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn any_header() -> impl Strategy<Value = PeerHeader> {
    any::<(u64, u32, u64, u64)>().prop_map(|(cluster, group, from, to)| PeerHeader {
        state_version: 0,
        cluster: ClusterId(cluster),
        group: GroupId(group),
        from: Incarnation(from),
        to: Incarnation(to),
    })
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        Just(Operation::Register),
        Just(Operation::Apply),
        Just(Operation::ApplyAndClose),
        Just(Operation::ReadLinearizable),
        Just(Operation::ReadStale),
        Just(Operation::ReadHere),
    ]
}

fn any_members() -> impl Strategy<Value = Members> {
    let role = prop_oneof![Just(MemberRole::Voter), Just(MemberRole::Learner)];
    let member = (any::<u32>(), role, any::<u64>(), any_address()).prop_map(
        |(node_id, role, incarnation, address)| Member {
            node_id: NodeId(node_id),
            role,
            incarnation: Incarnation(incarnation),
            address,
        },
    );
    vec(member, 0..=MEMBERS_MAX).prop_map(Members)
}

/// Runs every decoder over the same bytes; each may refuse them, none may panic.
fn decode_all(bytes: &[u8]) {
    let _ = ClientRequest::decode(bytes);
    let _ = ClientReply::decode(bytes);
    let _ = RaftFrame::decode(bytes);
    let _ = AppendFrame::decode(bytes);
    let _ = SnapshotChunk::decode(bytes);
    let _ = ChunkAck::decode(bytes);
    let _ = BootstrapRequest::decode(bytes);
    let _ = BootstrapReply::decode(bytes);
    let _ = JoinRequest::decode(bytes);
    let _ = JoinReply::decode(bytes);
    let _ = BackupRequest::decode(bytes);
    let _ = BackupReply::decode(bytes);
    let _ = StatusRequest::decode(bytes);
    let _ = StatusReply::decode(bytes);
    let _ = stream_position(bytes);
    if let Ok(items) = BatchItems::decode(bytes) {
        assert!(items.count() <= BATCH_ITEMS_MAX);
    }
}

proptest! {
    #[test]
    fn client_requests_survive(
        operation in any_operation(),
        (group, cluster, client, sequence, below, session_number) in any::<(u32, u64, u64, u64, u8, u64)>(),
        user in proptest::option::of((1_u32.., any::<u32>())),
        check in 0_u32..1 << 24,
        command in vec(any::<u8>(), 0..200),
    ) {
        let for_user = user.map(|(number, generation)| ForUser { number, generation });
        let request = ClientRequest {
            timed: false, for_user,
            operation, group: GroupId(group), cluster: ClusterId(cluster), client, sequence,
            lowest_awaited: sequence.saturating_sub(u64::from(below)), session_number, check, command: &command,
        };
        let bytes = request.encode_to_vec();
        prop_assert_eq!(ClientRequest::decode(&bytes), Ok(request));
        for len in 0..request.header_len() {
            prop_assert_eq!(ClientRequest::decode(&bytes[..len]), Err(DecodeError::Truncated));
        }
    }

    #[test]
    fn client_replies_survive(
        (cluster, position) in any::<(u64, u64)>(),
        leader in proptest::option::of(any_address()),
        response in vec(any::<u8>(), 0..200),
    ) {
        let ok = ClientReply { position, response: &response, ..ClientReply::refusal(ClientStatus::Ok, ClusterId(cluster)) };
        let bytes = ok.encode_to_vec();
        prop_assert_eq!(ClientReply::decode(&bytes), Ok(ok));
        let hint = ClientReply { leader, ..ClientReply::refusal(ClientStatus::LeadershipLost, ClusterId(cluster)) };
        let bytes = hint.encode_to_vec();
        prop_assert_eq!(ClientReply::decode(&bytes), Ok(hint));
    }

    #[test]
    fn peer_messages_survive(
        header in any_header(),
        (stream, sequence, index, term, transfer, chunk, last) in any::<(u32, u64, u64, u64, u64, u32, bool)>(),
        data in vec(any::<u8>(), 0..200),
    ) {
        let frame = AppendFrame { header, stream, sequence, message: &data };
        let bytes = frame.encode_to_vec();
        prop_assert_eq!(AppendFrame::decode(&bytes), Ok(frame));
        let piece = SnapshotChunk { header, index, term, transfer, chunk, last, data: &data };
        let bytes = piece.encode_to_vec();
        prop_assert_eq!(SnapshotChunk::decode(&bytes), Ok(piece));
    }

    #[test]
    fn groups_survive(
        members in any_members(),
        (node_id, incarnation, cluster, term) in any::<(u32, u64, u64, u64)>(),
        leader in proptest::option::of(any_address()),
        first_entry in vec(any::<u8>(), 0..100),
    ) {
        let (node_id, incarnation, cluster) = (NodeId(node_id), Incarnation(incarnation), ClusterId(cluster));
        let begin = BootstrapRequest::Begin { node_id, incarnation, cluster, members: members.clone(), first_entry: &first_entry };
        let bytes = begin.encode_to_vec();
        prop_assert_eq!(BootstrapRequest::decode(&bytes), Ok(begin));
        let discovery = StatusReply::Discovery(Discovery {
            cluster, role: RoleCode::Follower, term, leader, members, ..Discovery::unattached(node_id, incarnation)
        });
        let bytes = discovery.encode_to_vec();
        prop_assert_eq!(StatusReply::decode(&bytes), Ok(discovery));
        prop_assert_eq!(StatusReply::decode(&bytes[..bytes.len() - 1]), Err(DecodeError::Truncated));
    }

    /// A later release puts more behind the fields of a reply. Requests and what members say have to end where they end.
    #[test]
    fn bytes_behind_a_reply_are_skipped_and_behind_a_request_refused(
        (leader, node) in (proptest::option::of(any_address()), any::<u32>()),
        members in any_members(),
        behind in vec(any::<u8>(), 1..60),
        status in 0..=u8::MAX,
        seen in any::<u64>(),
    ) {
        let mut hint = ClientReply { leader, ..ClientReply::refusal(ClientStatus::NotLeader, ClusterId(7)) }.encode_to_vec();
        hint.extend(&behind);
        prop_assert_eq!(ClientReply::decode(&hint).map(|reply| reply.leader), Ok(leader));
        let mut refused = ClientReply::refusal(ClientStatus::Busy, ClusterId(7)).encode_to_vec();
        refused[1] = status;
        refused.extend(&behind);
        if let Ok(reply) = ClientReply::decode(&refused) {
            prop_assert_eq!(reply.status.to_wire(), status);
        }
        let promised = Some(PromisedPosition { term: seen | 1, index: seen });
        let discovery = Discovery { members: members.clone(), leader, promised, ..Discovery::unattached(NodeId(node), Incarnation(1)) };
        let mut bytes = StatusReply::Discovery(discovery.clone()).encode_to_vec();
        bytes.extend(&behind);
        prop_assert_eq!(StatusReply::decode(&bytes), Ok(StatusReply::Discovery(discovery)));
        let mut bytes = BackupReply::Ended.encode_to_vec();
        bytes.extend(&behind);
        prop_assert_eq!(BackupReply::decode(&bytes), Ok(BackupReply::Ended));
        for reply in [WatchReply::Future { applied: seen }, WatchReply::Compacted { oldest: seen }, WatchReply::Replaced] {
            let mut bytes = reply.encode_to_vec();
            bytes.extend(&behind);
            prop_assert_eq!(WatchReply::decode(&bytes), Ok(reply));
        }
        let mut bytes = StatusRequest { form: StatusForm::Json }.encode_to_vec();
        bytes.extend(&behind);
        prop_assert_eq!(StatusRequest::decode(&bytes), Err(DecodeError::Trailing));
        let accepted = JoinReply::Accepted { cluster: ClusterId(1), leader: Incarnation(2) };
        let mut bytes = accepted.encode_to_vec();
        bytes.extend(&behind);
        prop_assert_eq!(JoinReply::decode(&bytes), Ok(accepted));
    }

    #[test]
    fn batches_survive(items in vec(vec(any::<u8>(), 0..30), 0..=BATCH_ITEMS_MAX)) {
        let mut bytes = vec![0; 8 + items.iter().map(|item| 4 + item.len()).sum::<usize>()];
        let mut writer = BatchWriter::new(&mut bytes);
        items.iter().for_each(|item| writer.push(item));
        prop_assert_eq!(writer.finish(), bytes.len());
        let read = BatchItems::decode(&bytes).map(|items| items.map(<[u8]>::to_vec).collect::<Vec<_>>());
        prop_assert_eq!(read, Ok(items));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        decode_all(&bytes);
    }

    /// Bytes that pass the version check reach further into the decoders.
    #[test]
    fn damaged_messages_never_panic(
        members in any_members(),
        tag in any::<u8>(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let begin = BootstrapRequest::Begin {
            node_id: NodeId(1), incarnation: Incarnation(2), cluster: ClusterId(3), members, first_entry: b"entry",
        };
        let mut bytes = begin.encode_to_vec();
        bytes[1] = tag;
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        decode_all(&bytes);
        decode_all(&bytes[..cut.index(bytes.len())]);
    }
}
