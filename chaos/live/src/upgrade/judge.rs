//! Judges what the clients of the old program saw, by what they recorded themselves.

use trine_chaos::checker::{Verdict, Violation};
use trine_chaos::history::{Action, Answer, History, Operation, Outcome};
use trine_transport::time::Instant;

use super::legs::Leg;

/// A client that was answered less often in a leg, or counted less far, proves nothing about it.
const ANSWERS_LEAST: usize = 20;
const COUNTED_LEAST: usize = 3;

/// A client of the old program, and the number that it alone counts up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counting {
    /// The client's number in the history.
    pub(super) client: u64,
    /// The key of the counter.
    pub(super) key: Vec<u8>,
}

/// A leg that came to its end.
#[derive(Copy, Clone, Debug)]
pub(super) struct Passed {
    pub(super) leg: Leg,
    pub(super) begun: Instant,
    /// From then on all replicas were the program that the leg leads to. What clients saw before may come from the other one.
    pub(super) whole: Instant,
    pub(super) ended: Instant,
}

/// Judges one client: its counter, and whether it was answered in each part of the run.
pub(super) fn judge(history: &History, counting: &Counting, passed: &[Passed]) -> Verdict {
    passed
        .iter()
        .map(|leg| answered_in(history, counting, leg))
        .fold(counted(history, counting), Verdict::and)
}

/// Every increment that was acknowledged is in the counter once, and nothing else is.
fn counted(history: &History, counting: &Counting) -> Verdict {
    let of_counter = history.operations().iter();
    let of_counter = of_counter.filter(|operation| operation.key == counting.key);
    let mut count = Count::default();
    let mut last_read = None;
    for operation in of_counter {
        if operation.action == Action::Get {
            last_read = Some(operation)
                .filter(|read| read.answer().is_some())
                .or(last_read);
        } else if let Err(why) = count.on_increment(operation) {
            return violation(counting, &why, &[operation]);
        }
    }
    let Some(read) = last_read else {
        return violation(counting, "its counter was not read at the end", &[]);
    };
    let found = number_in(read.answer());
    let (least, most) = (count.acknowledged, count.acknowledged + count.unknown);
    match found {
        Some(found) if (least..=most).contains(&found) => Verdict::Pass,
        _ => {
            let why = format!(
                "its counter reads {} at the end: with {least} increments acknowledged and {} unanswered it has to be \
                 {least} to {most}",
                found.map_or("no number".to_owned(), |found| found.to_string()),
                count.unknown
            );
            violation(counting, &why, &[read])
        }
    }
}

/// What is known of the increments so far. Each adds one.
#[derive(Default)]
struct Count {
    acknowledged: i64,
    /// Increments without an answer. Each may be applied at any later time, or never.
    unknown: i64,
    last: i64,
    last_version: u64,
}

impl Count {
    fn on_increment(&mut self, operation: &Operation) -> Result<(), String> {
        let (value, version) = match &operation.outcome {
            Outcome::Failed => return Ok(()),
            Outcome::Unknown => {
                self.unknown += 1;
                return Ok(());
            }
            Outcome::Known(Answer::Number {
                value,
                version: Some(version),
            }) => (*value, *version),
            Outcome::Known(_) => return Err("an increment was not answered with a number".into()),
        };
        self.acknowledged += 1;
        let most = self.acknowledged + self.unknown;
        if value <= self.last || value < self.acknowledged {
            return Err(format!(
                "an acknowledged increment was lost: the answer to acknowledged increment {} is {value}, after {} before it",
                self.acknowledged, self.last
            ));
        }
        if value > most {
            return Err(format!(
                "an increment was applied twice: the answer is {value}, but {} were acknowledged, this one included, and {} had \
                 no answer",
                self.acknowledged, self.unknown
            ));
        }
        if version <= self.last_version {
            return Err("the version of its counter did not grow".into());
        }
        (self.last, self.last_version) = (value, version);
        Ok(())
    }
}

fn number_in(answer: Option<&Answer>) -> Option<i64> {
    match answer? {
        Answer::Value { value, .. } => std::str::from_utf8(value).ok()?.parse().ok(),
        // Nothing was added yet.
        Answer::NotFound => Some(0),
        _ => None,
    }
}

fn answered_in(history: &History, counting: &Counting, passed: &Passed) -> Verdict {
    let answered: Vec<&Operation> = answers(history, counting.client, passed).collect();
    let counted = answered
        .iter()
        .filter(|operation| operation.key == counting.key)
        .count();
    match answered.len() >= ANSWERS_LEAST && counted >= COUNTED_LEAST {
        true => Verdict::Pass,
        false => Verdict::violation(format!(
            "nothing proved: client {} of the old program was answered {} times, {counted} of them increments, when all replicas \
             were replaced in the leg `{}`; at least {ANSWERS_LEAST} and {COUNTED_LEAST} are needed",
            counting.client,
            answered.len(),
            passed.leg
        )),
    }
}

/// A client's operations that were called and answered while all replicas were the program of the leg.
pub(super) fn answers<'a>(
    history: &'a History,
    client: u64,
    passed: &Passed,
) -> impl Iterator<Item = &'a Operation> + use<'a> {
    let within = passed.whole.as_nanos()..=passed.ended.as_nanos();
    let own = history.operations().iter();
    let own = own.filter(move |operation| operation.client == client);
    let answered = own.filter(|operation| operation.answer().is_some());
    answered.filter(move |operation| {
        within.contains(&operation.call_ns)
            && operation.return_ns.is_some_and(|at| within.contains(&at))
    })
}

fn violation(counting: &Counting, why: &str, operations: &[&Operation]) -> Verdict {
    Verdict::Violation(Violation {
        explanation: format!("client {} of the old program: {why}", counting.client),
        operations: operations.iter().copied().cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of an increment.
    #[derive(Copy, Clone)]
    enum End {
        /// The answer is this number.
        Number(i64),
        Unknown,
        Failed,
    }
    use End::{Failed, Number, Unknown};

    fn counting() -> Counting {
        Counting {
            client: 9,
            key: b"count".to_vec(),
        }
    }

    /// Client 9 counts, one increment in 10 ns, and another one reads the counter at the end.
    fn history(ends: &[End], read: Option<&str>) -> History {
        let mut history = History::new();
        let mut at = 10;
        for end in ends {
            let index = history.call(9, at, b"count", Action::Incr { by: 1 });
            match end {
                Number(value) => {
                    let (value, version) = (*value, Some(at << 16));
                    history.complete(index, at + 5, Answer::Number { value, version }, version);
                }
                Failed => history.fail(index, at + 5),
                Unknown => {}
            }
            at += 10;
        }
        if let Some(read) = read {
            let index = history.call(2, at, b"count", Action::Get);
            let (value, version) = (read.as_bytes().to_vec(), None);
            history.complete(index, at + 5, Answer::Value { value, version }, None);
        }
        history
    }

    fn verdict(ends: &[End], read: &str) -> String {
        counted(&history(ends, Some(read)), &counting()).to_string()
    }

    #[test]
    fn counts_that_are_right_pass() {
        for (ends, read) in [
            (&[Number(1), Number(2), Number(3)][..], "3"),
            (&[Number(1), Failed, Number(2)], "2"),
            // It was applied at once, later, or never.
            (&[Number(1), Unknown, Number(3)], "3"),
            (&[Number(1), Unknown, Number(2), Number(4)], "4"),
            (&[Number(1), Unknown, Number(2)], "2"),
            (&[Number(1), Unknown], "2"),
        ] {
            assert_eq!(verdict(ends, read), "pass");
        }
    }

    #[test]
    fn a_lost_increment_fails() {
        for (ends, read) in [
            (&[Number(1), Number(1)][..], "1"),
            (&[Number(1), Number(2), Number(2)], "2"),
            (&[Number(5), Number(1)], "1"),
        ] {
            let verdict = verdict(ends, read);
            assert!(
                verdict.contains("VIOLATION: client 9 of the old"),
                "{verdict}"
            );
        }
        let verdict = verdict(&[Number(1), Number(2)], "1");
        assert!(
            verdict.contains("reads 1 at the end: with 2 increments acknowledged"),
            "{verdict}"
        );
        let unread = counted(&history(&[Number(1)], None), &counting());
        assert!(
            unread.to_string().contains("not read at the end"),
            "{unread}"
        );
    }

    #[test]
    fn an_increment_that_counts_twice_fails() {
        let applied_twice = verdict(&[Number(1), Number(3)], "3");
        assert!(applied_twice.contains("applied twice"), "{applied_twice}");
        let at_the_end = verdict(&[Number(1), Number(2)], "3");
        let said =
            "its counter reads 3 at the end: with 2 increments acknowledged and 0 unanswered";
        assert!(at_the_end.contains(said), "{at_the_end}");
        // A failed one was not applied at all.
        let failed = verdict(&[Number(1), Failed, Number(3)], "3");
        assert!(failed.contains("applied twice"), "{failed}");
        let unknown = verdict(&[Number(1), Unknown, Number(4)], "4");
        assert!(unknown.contains("applied twice"), "{unknown}");
    }

    #[test]
    fn a_version_that_stands_still_fails() {
        let mut history = History::new();
        for value in 1..=2 {
            let index = history.call(9, 10, b"count", Action::Incr { by: 1 });
            let version = Some(7);
            history.complete(index, 11, Answer::Number { value, version }, None);
        }
        let verdict = counted(&history, &counting());
        assert!(verdict.to_string().contains("did not grow"), "{verdict}");
    }

    #[test]
    fn a_client_that_is_not_answered_in_a_leg_proves_nothing() {
        let least = i64::try_from(ANSWERS_LEAST).expect("small");
        let ends: Vec<End> = (1..=least).map(Number).collect();
        let history = history(&ends, Some(&least.to_string()));
        let leg = |whole: u64, ended: u64| Passed {
            leg: Leg::Back,
            begun: Instant::ZERO,
            whole: Instant::from_nanos(whole),
            ended: Instant::from_nanos(ended),
        };
        let all = leg(0, 10_000);
        assert_eq!(judge(&history, &counting(), &[all]), Verdict::Pass);
        let verdict = judge(&history, &counting(), &[all, leg(50, 10_000)]);
        let text = verdict.to_string();
        assert!(
            text.contains("answered 16 times, 16 of them increments") && text.contains("`back`"),
            "{text}"
        );
        assert!(!judge(&History::new(), &counting(), &[all]).is_pass());
    }

    /// Twenty reads of a key that is not there satisfied it.
    #[test]
    fn a_client_that_only_reads_proves_nothing() {
        let mut history = history(&[Number(1), Number(2)], Some("2"));
        for at in 0..40 {
            let index = history.call(9, 100 + at, b"shared", Action::Get);
            history.complete(index, 101 + at, Answer::NotFound, None);
        }
        let all = Passed {
            leg: Leg::On,
            begun: Instant::ZERO,
            whole: Instant::ZERO,
            ended: Instant::from_nanos(10_000),
        };
        let text = judge(&history, &counting(), &[all]).to_string();
        assert!(text.contains("2 of them increments"), "{text}");
    }
}
