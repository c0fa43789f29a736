//! Checks with one operation that a target can do what the workload needs, before many keys are written.

use trine_base::failure::Failure;
use trine_base::load::{Pace, Work, drive};
use trine_transport::backend::MonotonicClock;
use trine_transport::time::{Clock, Instant};

use super::operation::KeyOperation;
use super::stores::{OperationOutcome, StoreTarget};

/// Scans one item.
pub(super) fn scan(target: &mut impl StoreTarget) -> Result<(), Failure> {
    let mut probe = Probe {
        operation: Some(KeyOperation::scan(0, 1)),
        failure: None,
    };
    let pace = Pace::Closed { pipeline: 1 };
    let span = (MonotonicClock.now(), None);
    drive(target, 1, pace, span, &mut probe)?;
    match probe.failure {
        None => Ok(()),
        Some(failure) => Err(failure.while_doing("workload E scans keys in their order")),
    }
}

struct Probe {
    operation: Option<KeyOperation>,
    failure: Option<Failure>,
}

impl<T: StoreTarget> Work<T> for Probe {
    type Operation = KeyOperation;

    fn next(&mut self, _: usize) -> Option<KeyOperation> {
        self.operation.take()
    }

    fn send(
        &mut self,
        target: &mut T,
        client: usize,
        tag: u64,
        operation: &KeyOperation,
    ) -> Result<(), Failure> {
        operation.send(target, client, tag, &[])
    }

    fn over(
        &mut self,
        _operation: KeyOperation,
        _due: Instant,
        _ended: Instant,
        outcome: OperationOutcome,
    ) -> Option<KeyOperation> {
        if let OperationOutcome::Failed(why) = outcome {
            self.failure = Some(why);
        }
        None
    }

    fn on_poll(&mut self, _now: Instant) {}
}
