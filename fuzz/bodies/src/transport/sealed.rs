//! The input as changes to the packets of a sealed session: `[which][place low][place high][value]...`. A place behind the
//! end of a packet cuts the packet off there. No changed packet may be believed, nothing may panic, and the session must
//! still work.

use trine_transport::time::Duration;

use super::pair::Pair;

/// Sizes of the requests that are under way: a run of two packets, and a message of several.
const REQUESTS: [usize; 3] = [40, 40, 4_000];

pub fn run(mut data: &[u8]) {
    let mut pair = Pair::sealed();
    let session = pair.nodes[0].app.connected[0];
    let client = &mut pair.nodes[0].endpoint;
    for (tag, bytes) in REQUESTS.into_iter().enumerate() {
        let buffers = client.pool().alloc(bytes).zip(client.pool().alloc(bytes));
        let (mut request, response) = buffers.expect("memory");
        request.fill(tag as u8 + 1);
        client
            .enqueue_request(pair.now, session, 1, request, response, tag as u64, None)
            .expect("the session stands");
    }
    pair.turn();
    let sent = pair.wire.clone();
    while let [which, low, high, value, rest @ ..] = data {
        data = rest;
        let (to, from, packet) = &sent[usize::from(*which) % sent.len()];
        let mut packet = packet.clone();
        let place = usize::from(*high) << 8 | usize::from(*low);
        match packet.get_mut(place) {
            Some(byte) if byte != value => *byte = *value,
            Some(_) => continue,
            None => packet.truncate(place % packet.len()),
        }
        pair.nodes[*to].receive(pair.now, *from, &packet);
    }
    assert!(
        pair.nodes[1].app.executed.is_empty(),
        "a changed packet was believed"
    );
    pair.settle(Duration::from_millis(50));
    for tag in 0..REQUESTS.len() as u64 {
        let ended = pair.nodes[0].app.completed.get(&tag);
        assert_eq!(ended, Some(&Ok(())), "request {tag}");
    }
}
