//! The blocking front, whose backend drives the replica: one thread for both.

use trine_client::{BlockingClient, CallError, ClientConfig};
use trine_kvstore::{Command, Position, Response};
use trine_protocol::endpoint_config;
use trine_transport::backend::{
    Backend, BackendError, BackendStats, Caps, RingBackend, RingRoute, RxBatch, TxBatch, Waker,
};
use trine_transport::buf::Pool;
use trine_transport::time::Duration;

use super::world::{ReplicaLoop, ok, replica_loop};
use crate::support::{ManualClock, address, mesh, route_of};

/// A ring that fails once, when the replica has seen its first request, and works again.
struct FailsOnce {
    ring: RingBackend,
    replica: ReplicaLoop,
    clock: ManualClock,
    failed: bool,
}

impl Backend for FailsOnce {
    type Route = RingRoute;

    fn caps(&self) -> Caps {
        self.ring.caps()
    }

    fn pool(&self) -> &Pool {
        self.ring.pool()
    }

    fn rx_burst(&mut self) -> Result<RxBatch<'_, RingRoute>, BackendError> {
        self.clock.advance(Duration::from_micros(20));
        self.replica.turn()?;
        if !self.failed && !self.replica.app().seen.is_empty() {
            self.failed = true;
            return Err(BackendError::System {
                call: "ppoll",
                os_error: 12,
            });
        }
        self.ring.rx_burst()
    }

    fn tx_burst(&mut self, tx: &mut TxBatch<RingRoute>) -> Result<(), BackendError> {
        self.ring.tx_burst(tx)
    }

    fn flush(&mut self) {
        self.ring.flush();
    }

    fn wait(&mut self, _timeout: Option<Duration>) -> Result<(), BackendError> {
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.ring.waker()
    }

    fn stats(&self) -> BackendStats {
        self.ring.stats()
    }
}

/// A call ends with the backend's error while its command is under way; the backend gets well again. The next call used
/// to be given the answer to that earlier command, the value of another key.
#[test]
fn a_call_behind_a_failed_one_gets_its_own_answer() {
    let clock = ManualClock::new();
    let mut backends = mesh(2);
    let ring = backends.pop().unwrap();
    // Each key's value is the key.
    let script = |seen: &super::world::Seen| {
        let Ok(Command::Get { key }) = Command::decode(&seen.command) else {
            panic!("{seen:?}");
        };
        let position = Position::new(3, 0);
        let response = Response::Value {
            value: key,
            version: position,
        };
        ok(position, &response)
    };
    let replica = replica_loop(Box::new(script), backends.pop().unwrap(), &clock, 1);
    let backend = FailsOnce {
        ring,
        replica,
        clock: clock.clone(),
        failed: false,
    };
    let config = ClientConfig::new(vec![address(0)]);
    let mut client =
        BlockingClient::new(backend, clock, config, endpoint_config(), route_of(), 7).unwrap();
    assert!(matches!(client.get(b"one"), Err(CallError::Backend(_))));
    for key in [&b"two"[..], b"three"] {
        let answer = client.get(key).unwrap();
        let response = answer.response().unwrap();
        assert!(
            matches!(response, Response::Value { value, .. } if value == key),
            "{response:?}"
        );
    }
}
