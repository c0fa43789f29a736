//! `trine bench --clean`: the keys of the benchmark are removed at its end, whatever that is.

use trine_base::announce::note;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::load::{LoadEnd, Pace, Work, drive};
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::progress::Progress;
use trine_base::units::{plural, show_count};
use trine_transport::backend::MonotonicClock;
use trine_transport::time::{Clock, Instant};

use super::operation::key_of;
use super::stores::{BenchRequest, IN_FLIGHT_MAX, OperationOutcome, StoreTarget, Url};
use super::{BenchPlan, FILL_UNDER_WAY, TargetPurpose};

impl BenchPlan<'_> {
    /// Removes every key that the rounds can have written to these targets, or says that they stay.
    pub(super) fn clean_up<'a, N: Network>(
        &self,
        network: &N,
        targets: impl Iterator<Item = &'a Url>,
        output: Output,
    ) -> Result<(), Failure> {
        let targets: Vec<&Url> = targets.collect();
        if !self.arguments.clean || targets.is_empty() {
            self.has_left_keys.set(!targets.is_empty());
            return Ok(());
        }
        let interrupted = interrupt::take();
        if interrupted {
            note("deletes the keys of the benchmark; Ctrl-C again leaves them");
        }
        let cleaned = targets.into_iter().try_for_each(|url| {
            self.serve(network, url, TargetPurpose::Clean, output)
                .map(drop)
        });
        if interrupted {
            interrupt::put_back();
        }
        let cleaned = cleaned.and_then(|()| self.check_unanswered());
        cleaned.map_err(|failure| failure.while_doing("keys of the benchmark are left"))
    }

    /// An operation that was given up can write its key after the removal.
    fn check_unanswered(&self) -> Result<(), Failure> {
        match self.unanswered.get() {
            0 => Ok(()),
            count => Err(Failure::not_reachable(
                format!("{} got no answer", plural(count, "operation")),
                "run the same command with --clean again",
            )),
        }
    }

    pub(super) fn clean(&self, target: &mut impl StoreTarget, name: &str) -> Result<(), Failure> {
        let keys = self.keys_used.get();
        let clients = self.arguments.clients as usize;
        let pipeline = FILL_UNDER_WAY.div_ceil(clients).min(IN_FLIGHT_MAX);
        let mut cleaning = Cleaning {
            next: 0,
            keys,
            done: 0,
            failure: None,
            progress: Progress::new(format!("removing keys from {name}"), keys),
        };
        let LoadEnd { interrupted, .. } = drive(
            target,
            clients,
            Pace::Closed { pipeline },
            (MonotonicClock.now(), None),
            &mut cleaning,
        )?;
        match cleaning.failure {
            Some(failure) => Err(failure),
            None if interrupted => {
                let done = show_count(cleaning.done);
                let keys = plural(keys, "key");
                Err(Failure::interrupted_after(
                    format_args!("{done} of {keys} were deleted"),
                    "run the same command with --clean again",
                ))
            }
            None => Ok(()),
        }
    }
}

/// The work that removes every key once.
struct Cleaning {
    next: u64,
    keys: u64,
    done: u64,
    /// The failure that makes further work pointless.
    failure: Option<Failure>,
    progress: Progress,
}

impl<T: StoreTarget> Work<T> for Cleaning {
    /// The number of a key.
    type Operation = u64;

    fn next(&mut self, _: usize) -> Option<u64> {
        let more = self.next < self.keys && self.failure.is_none();
        more.then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn send(
        &mut self,
        target: &mut T,
        client: usize,
        tag: u64,
        number: &u64,
    ) -> Result<(), Failure> {
        let key = &key_of(*number);
        target.submit(client, tag, BenchRequest::Delete { key })
    }

    fn over(
        &mut self,
        _: u64,
        _due: Instant,
        _ended: Instant,
        outcome: OperationOutcome,
    ) -> Option<u64> {
        match outcome {
            OperationOutcome::Failed(why) => {
                self.failure.get_or_insert(why);
            }
            OperationOutcome::Done | OperationOutcome::Missing => self.done += 1,
        }
        None
    }

    fn on_poll(&mut self, _now: Instant) {
        self.progress
            .set(self.done, || format!("{} keys", show_count(self.done)));
    }
}
