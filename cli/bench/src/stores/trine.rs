//! A trine group, through the client library.

use trine_client::{ClientId, Error, Mode};
use trine_kvstore::{Command, KeyRange, Response, ScanOptions};
use trine_transport::backend::Backend;
use trine_transport::time::Instant;

use super::{BenchRequest, Finished, OperationOutcome, StoreTarget};
use trine_base::answers::{response_of, unexpected};
use trine_base::client::advice;
use trine_base::client_endpoint::ClientEndpoint;
use trine_base::failure::Failure;
use trine_base::load;
use trine_base::units::show_ns;

/// Clients of the library on one endpoint.
pub(crate) struct Trine<B: Backend> {
    endpoint: ClientEndpoint<B>,
    clients: Vec<ClientId>,
}

impl<B: Backend> Trine<B> {
    pub(crate) fn new(mut endpoint: ClientEndpoint<B>, clients: usize) -> Self {
        let clients = (0..clients).map(|_| endpoint.open()).collect();
        Self { endpoint, clients }
    }
}

impl<B: Backend> StoreTarget for Trine<B> {
    fn submit(
        &mut self,
        client: usize,
        tag: u64,
        request: BenchRequest<'_>,
    ) -> Result<(), Failure> {
        let (mode, command) = match request {
            BenchRequest::Read { key } => (Mode::Read, Command::Get { key }),
            BenchRequest::Write { key, value } => (Mode::Write, Command::Put { key, value }),
            BenchRequest::Delete { key } => (Mode::Write, Command::Delete { key }),
            BenchRequest::Scan { from, to, items } => (Mode::Read, scan(from, to, items)),
        };
        self.endpoint
            .submit(self.clients[client], mode, &command, tag)
            .map_err(|error| {
                Failure::usage(format!("an operation could not be started: {error}"), "")
            })
    }

    fn is_sealed(&mut self) -> Option<bool> {
        self.endpoint.is_sealed()
    }
}

impl<B: Backend> load::Target for Trine<B> {
    type Outcome = OperationOutcome;

    fn has_room(&self, client: usize) -> bool {
        self.endpoint.has_room(self.clients[client])
    }

    fn poll(&mut self, until: Instant, finished: &mut Vec<Finished>) -> Result<(), Failure> {
        self.endpoint.run_until(until, |over| {
            let outcome = match over.result.as_ref().map(response_of) {
                Ok(Ok(
                    Response::Written { .. } | Response::Value { .. } | Response::Deleted { .. },
                )) => OperationOutcome::Done,
                Ok(Ok(Response::NotFound)) => OperationOutcome::Missing,
                // A page ends at its bytes: long values may make it shorter than was asked.
                Ok(Ok(Response::Items { items, .. })) => match items.is_empty() {
                    true => OperationOutcome::Missing,
                    false => OperationOutcome::Done,
                },
                Ok(Ok(other)) => OperationOutcome::Failed(unexpected(&other)),
                Ok(Err(refused)) => OperationOutcome::Failed(refused),
                Err(error) => OperationOutcome::Failed(without_answer(error)),
            };
            finished.push((over.tag, outcome));
        })
    }
}

fn scan<'a>(from: &'a [u8], to: &'a [u8], items: u32) -> Command<'a> {
    Command::Scan {
        range: KeyRange::Between {
            start: from,
            end: Some(to),
        },
        options: ScanOptions {
            limit: items,
            ..ScanOptions::default()
        },
    }
}

/// An operation without an answer, in the words of the other commands; the kind of operation does not matter.
fn without_answer(error: &Error) -> Failure {
    match error {
        Error::NotReachable { obstacle, waited } => Failure::not_reachable(
            format!("{obstacle} (tried for {})", show_ns(waited.as_nanos())),
            advice(*obstacle),
        ),
        Error::OutcomeUnknown { obstacle, waited } => Failure::outcome_unknown(
            format!("{obstacle} (waited {})", show_ns(waited.as_nanos())),
            advice(*obstacle),
        ),
        Error::Refused { obstacle } => Failure::negative(obstacle.to_string(), advice(*obstacle)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_client::Obstacle;
    use trine_transport::time::Duration;

    /// It said "tried for 5.000123456s".
    #[test]
    fn times_are_rounded_as_other_commands_round_them() {
        let (obstacle, waited) = (Obstacle::NoAnswer, Duration::from_nanos(5_000_123_456));
        for (error, said) in [
            (
                Error::NotReachable { obstacle, waited },
                "(tried for 5.00 s)",
            ),
            (
                Error::OutcomeUnknown { obstacle, waited },
                "(waited 5.00 s)",
            ),
        ] {
            let failure = without_answer(&error);
            assert_eq!(failure.exit_status(), 3);
            assert!(failure.message().ends_with(said), "{failure}");
        }
    }
}
