//! Progress of a group while one disk hangs and a majority of the others is sound.

use super::Verdict;
use crate::history::{History, Operation};

/// From the beginning of such a time on a group may take this long to notice, and to hand over.
const NOTICED_NS: u64 = 1_000_000_000;
/// From then on some write has to be answered within each span of this length, if one is open all the time.
const GAP_NS: u64 = 1_000_000_000;

/// Judges the writes of the spans in which a disk hung and nothing else was wrong, each with beginning and end.
pub fn check(history: &History, spans: &[(u64, u64)]) -> Verdict {
    let writes = || {
        history
            .operations()
            .iter()
            .filter(|operation| !operation.action.is_read())
    };
    let mut answers: Vec<u64> = writes()
        .filter(|write| write.answer().is_some())
        .filter_map(|write| write.return_ns)
        .collect();
    answers.sort_unstable();
    for &(begin, end) in spans {
        let from = begin + NOTICED_NS;
        let inner = answers
            .iter()
            .copied()
            .filter(|at| (from..end).contains(at));
        let ends: Vec<u64> = [from].into_iter().chain(inner).chain([end]).collect();
        for gap in ends.windows(2) {
            let waits = |write: &&Operation| {
                // What was called before may be a call of a client that is no more.
                write.call_ns >= begin
                    && write.call_ns.max(gap[0]) + GAP_NS
                        < write.return_ns.unwrap_or(u64::MAX).min(gap[1])
            };
            if let Some(write) = writes().find(waits) {
                return Verdict::violation_by(
                    "does not go on",
                    "no write was answered for a second although a disk hung at a minority alone",
                    &[write],
                );
            }
        }
    }
    Verdict::Pass
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Action, Answer};

    const SECOND: u64 = 1_000_000_000;

    /// A history of writes, each with the times of its call and its answer in tenths of a second.
    fn history(writes: &[(u64, Option<u64>)]) -> History {
        let operation = |&(call, answer): &(u64, Option<u64>)| {
            let mut history = History::new();
            let index = history.call(1, call * SECOND / 10, b"k", Action::Delete);
            if let Some(answer) = answer {
                let known = Answer::Deleted { existed: true };
                history.complete(index, answer * SECOND / 10, known, None);
            }
            history
        };
        History::merge(writes.iter().map(operation))
    }

    fn passes(writes: &[(u64, Option<u64>)]) -> bool {
        check(&history(writes), &[(10 * SECOND, 15 * SECOND)]) == Verdict::Pass
    }

    #[test]
    fn a_write_that_waits_alone_for_more_than_a_second_is_found() {
        assert!(!passes(&[(101, None)]), "never answered");
        assert!(!passes(&[(101, Some(125))]), "answered too late");
        assert!(
            !passes(&[(101, Some(105)), (120, Some(149))]),
            "the second one"
        );
    }

    #[test]
    fn a_group_that_answers_others_or_is_not_asked_goes_on() {
        assert!(passes(&[]));
        assert!(
            passes(&[(101, Some(118)), (119, Some(121))]),
            "noticed in time"
        );
        assert!(passes(&[(90, None)]), "of a client from before");
        assert!(passes(&[(141, None)]), "open at the end");
        let others: Vec<_> = (105..155).step_by(5).map(|at| (at, Some(at + 4))).collect();
        assert!(passes(&[&[(101, None)], &others[..]].concat()));
    }

    #[test]
    fn reads_are_no_writes() {
        let mut history = History::new();
        history.call(1, 101 * SECOND / 10, b"k", Action::Get);
        assert_eq!(
            check(&history, &[(10 * SECOND, 15 * SECOND)]),
            Verdict::Pass
        );
    }
}
