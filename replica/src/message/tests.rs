//! The layouts, byte by byte, and that no bytes whatsoever make a decoder panic.

use super::*;

fn header() -> PeerHeader {
    PeerHeader {
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

#[test]
fn a_client_request_has_these_bytes() {
    let request = ClientRequest {
        operation: Operation::Apply,
        group: GroupId(3),
        cluster: ClusterId(0x0102),
        client: 0x0405,
        sequence: 6,
        lowest_awaited: 5,
        command: b"cmd",
    };
    let bytes = [
        1, 2, 0, 0, 3, 0, 0, 0, // version, operation, reserved, group
        2, 1, 0, 0, 0, 0, 0, 0, // cluster
        5, 4, 0, 0, 0, 0, 0, 0, // client
        6, 0, 0, 0, 0, 0, 0, 0, // sequence
        5, 0, 0, 0, 0, 0, 0, 0, // lowest awaited
        b'c', b'm', b'd',
    ];
    assert_eq!(request.encode_to_vec(), bytes);
    assert_eq!(ClientRequest::decode(&bytes), Ok(request));
}

#[test]
fn an_append_is_numbered_in_place() {
    let mut bytes = AppendFrame {
        header: header(),
        stream: 0,
        sequence: 0,
        message: b"raft",
    }
    .encode_to_vec();
    set_stream_place(&mut bytes, 8, 9);
    let mut expected = HEADER_BYTES.to_vec();
    expected.extend([8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend(b"raft");
    assert_eq!(bytes, expected);
    assert_eq!(stream_place(&bytes), Some((8, 9)));
    assert_eq!(stream_place(&bytes[..APPEND_HEADER_SIZE - 1]), None);
}
