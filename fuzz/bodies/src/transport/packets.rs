//! The input as datagrams for two endpoints with a session: `[to and from][length][bytes]...`.
//! Nothing may panic, and a session that is still established must still work.

use trine_transport::time::Duration;

use super::pair::Pair;

pub fn run(mut data: &[u8]) {
    let mut pair = Pair::connected();
    while let [control, length, rest @ ..] = data {
        let (bytes, after) = rest.split_at(usize::from(*length).min(rest.len()));
        data = after;
        let (to, from) = (usize::from(control & 1), u32::from(control >> 1 & 3));
        let now = pair.now;
        pair.nodes[to].receive(now, from, bytes);
        pair.settle(Duration::from_micros(100));
    }
    let session = pair.nodes[0].app.connected[0];
    let client = &mut pair.nodes[0].endpoint;
    if client.peer(session).is_none() {
        return;
    }
    let (request, response) = client
        .pool()
        .alloc(5_000)
        .zip(client.pool().alloc(5_000))
        .expect("memory");
    client
        .enqueue_request(pair.now, session, 1, request, response, 1, None)
        .expect("the session stands");
    pair.settle(Duration::from_millis(50));
    assert!(
        pair.nodes[0].app.completed.contains_key(&1),
        "a standing session does not work"
    );
}
