//! The input as a program of the client and the faults of the network. Every request must end once,
//! and no handler may run twice for it.

use trine_transport::RequestId;
use trine_transport::time::Duration;

use super::pair::Pair;

/// Requests of one run: the first byte tells them apart.
const REQUESTS_MAX: usize = 250;

pub fn run(data: &[u8]) {
    let mut pair = Pair::connected();
    let mut requests: Vec<RequestId> = Vec::new();
    for [operation, argument] in data.as_chunks::<2>().0 {
        operate(&mut pair, &mut requests, *operation, *argument);
    }
    let late = std::mem::take(&mut pair.nodes[1].app.waiting);
    pair.nodes[1].app.answers_later = false;
    for (handle, response) in late {
        let now = pair.now;
        let _ = pair.nodes[1]
            .endpoint
            .enqueue_response(now, handle, response);
    }
    pair.settle(Duration::from_millis(500));
    assert_eq!(
        pair.nodes[0].app.completed.len(),
        requests.len(),
        "a request never ended"
    );
    let executed = &pair.nodes[1].app.executed;
    assert!(
        executed.values().all(|count| *count == 1),
        "a handler ran twice: {executed:?}"
    );
}

fn operate(pair: &mut Pair, requests: &mut Vec<RequestId>, operation: u8, argument: u8) {
    match operation % 12 {
        0..=2 => request(
            pair,
            requests,
            usize::from(argument) * if operation > 127 { 100 } else { 1 },
        ),
        3 | 4 => pair.turn(),
        5 | 6 => (0..argument % 8).for_each(|_| pair.deliver()),
        7 => drop(pair.wire.pop_front()),
        8 => {
            // The oldest packet comes last, or twice.
            if let Some(packet) = pair.wire.pop_front() {
                if argument > 127 {
                    pair.wire.push_front(packet.clone());
                }
                pair.wire.push_back(packet);
            }
        }
        9 => pair.now += Duration::from_micros(u64::from(argument) * 40),
        10 => pair.nodes[1].app.answers_later = argument > 127,
        _ => {
            if let Some(id) = requests.get(usize::from(argument)) {
                pair.nodes[0].endpoint.cancel(*id);
            }
        }
    }
}

fn request(pair: &mut Pair, requests: &mut Vec<RequestId>, bytes: usize) {
    if requests.len() == REQUESTS_MAX {
        return;
    }
    let session = pair.nodes[0].app.connected[0];
    let client = &mut pair.nodes[0].endpoint;
    let (mut request, response) = client
        .pool()
        .alloc(bytes + 1)
        .zip(client.pool().alloc(bytes + 1))
        .expect("memory");
    request.fill(requests.len() as u8);
    let tag = requests.len() as u64;
    if let Ok(id) = client.enqueue_request(pair.now, session, 1, request, response, tag, None) {
        requests.push(id);
    }
}
