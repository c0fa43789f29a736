//! Compares each application with its reference, packet by packet, in memory and without ports.

use crate::application::{Application, OnBatch, handle_all, on_batch};
use crate::config::BURST;
use crate::error::TableError;
use crate::reference::{Reference, Traffic, draw};
use crate::scenario::{ApplicationName, OnApplication, TableSettings, on_application, referee};
use crate::verdict::{Reason, Verdict};
use std::fmt;
use trine_transport::prng::Prng;

/// How many packets had which verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Left by one port.
    pub forwarded: u64,
    /// Left by all ports.
    pub flooded: u64,
    /// Dropped, by [`Reason`].
    pub dropped: [u64; Reason::ALL.len()],
}

impl Tally {
    /// Counts a verdict.
    #[inline]
    pub fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Forward(_) => self.forwarded += 1,
            Verdict::Flood => self.flooded += 1,
            Verdict::Drop(reason) => self.dropped[reason as usize] += 1,
        }
    }
}

/// "2 forwarded, 1 flooded, 3 dropped (2 short, 1 expired)".
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dropped: u64 = self.dropped.iter().sum();
        let (forwarded, flooded) = (self.forwarded, self.flooded);
        write!(
            f,
            "{forwarded} forwarded, {flooded} flooded, {dropped} dropped"
        )?;
        let counts = Reason::ALL.iter().zip(self.dropped);
        let parts: Vec<String> = counts
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| format!("{count} {}", reason.name()))
            .collect();
        match parts.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", parts.join(", ")),
        }
    }
}

/// A packet on which application and reference differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The packet's number.
    pub number: u64,
    /// The packet as it came.
    pub frame: Vec<u8>,
    /// The reference's verdict, and the frame as it left it.
    pub expected: (Verdict, Vec<u8>),
    /// The application's verdict, and the frame as it left it.
    pub found: (Verdict, Vec<u8>),
}

/// What is checked.
#[derive(Copy, Clone, Debug)]
pub struct Check {
    /// The application.
    pub name: ApplicationName,
    /// Its table.
    pub settings: TableSettings,
    /// How many packets.
    pub packets: u64,
    /// How many take turns, one of [`crate::config::BATCHES`].
    pub batch: usize,
}

impl Check {
    /// Runs the packets through the application and its reference.
    ///
    /// # Errors
    ///
    /// [`TableError`] if the table cannot be built. The first difference is a result.
    pub fn run(&self) -> Result<Result<Tally, Box<Difference>>, TableError> {
        let (reference, traffic) = referee(self.name, &self.settings);
        let work = CheckRun {
            check: self,
            reference: &*reference,
            traffic: &*traffic,
        };
        on_application(self.name, &self.settings, work)
    }
}

struct CheckRun<'a> {
    check: &'a Check,
    reference: &'a dyn Reference,
    traffic: &'a dyn Traffic,
}

struct RunOn<'a, A> {
    run: CheckRun<'a>,
    application: &'a A,
}

impl OnApplication for CheckRun<'_> {
    type Output = Result<Tally, Box<Difference>>;

    fn on<A: Application>(self, application: &A) -> Self::Output {
        let batch = self.check.batch;
        let work = RunOn {
            run: self,
            application,
        };
        on_batch(batch, work).expect("a compiled batch size")
    }
}

impl<A: Application> OnBatch for RunOn<'_, A> {
    type Output = Result<Tally, Box<Difference>>;

    fn on<const N: usize>(self) -> Self::Output {
        let Check {
            settings, packets, ..
        } = *self.run.check;
        let mut prng = Prng::new(settings.seed.wrapping_add(1));
        let mut tally = Tally::default();
        let mut frames = vec![Vec::new(); BURST];
        let mut number = 0;
        while number < packets {
            let count = (packets - number).min(BURST as u64) as usize;
            for frame in &mut frames[..count] {
                draw(self.run.traffic, frame, &mut prng);
            }
            let before = frames[..count].to_vec();
            let verdicts = verdicts::<N, A>(self.application, &mut frames[..count]);
            for (index, frame) in before.into_iter().enumerate() {
                let mut after = frame.clone();
                let expected = self.run.reference.judge(&mut after);
                if (expected, &after) != (verdicts[index], &frames[index]) {
                    return Err(Box::new(Difference {
                        number: number + index as u64,
                        frame,
                        expected: (expected, after),
                        found: (verdicts[index], frames[index].clone()),
                    }));
                }
                tally.count(expected);
            }
            number += count as u64;
        }
        Ok(tally)
    }
}

/// The verdicts on up to a burst of frames, in their order.
pub fn verdicts<const N: usize, A: Application>(
    application: &A,
    frames: &mut [Vec<u8>],
) -> [Verdict; BURST] {
    assert!(frames.len() <= BURST, "at most a burst");
    let mut verdicts = [Verdict::Drop(Reason::Short); BURST];
    let count = frames.len();
    let mut slices: [&mut [u8]; BURST] = Default::default();
    for (slice, frame) in slices.iter_mut().zip(frames) {
        *slice = frame;
    }
    handle_all::<N, A>(application, &mut slices[..count], &mut verdicts[..count]);
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An application that errs once in a while is found out, whatever the batch size.
    #[test]
    fn a_wrong_application_is_found() {
        let settings = TableSettings {
            entries: 0,
            ports: 3,
            seed: 4,
        };
        let (reference, traffic) = referee(ApplicationName::Echo, &settings);
        for batch in crate::config::BATCHES {
            let check = Check {
                name: ApplicationName::Echo,
                settings,
                packets: 5_000,
                batch,
            };
            let run = CheckRun {
                check: &check,
                reference: &*reference,
                traffic: &*traffic,
            };
            // The same ports, counted otherwise.
            let wrong = run.on(&crate::echo::Echo { ports: 4 });
            let difference = wrong.expect_err("a difference");
            assert_ne!(difference.expected, difference.found);
            assert!(check.run().expect("no table").is_ok());
        }
    }
}
