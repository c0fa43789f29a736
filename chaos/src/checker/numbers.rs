//! Numbers of a sequencer: each once, and growing.

use super::Verdict;
use std::collections::BTreeMap;
use std::fmt;
use trine_transport::time::Instant;

/// Numbers that a client got, with simulated times.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Taking {
    /// Which client.
    pub client: u64,
    /// Which server answered.
    pub server: u16,
    /// When the request was sent.
    pub invoked: Instant,
    /// When the answer was there.
    pub returned: Instant,
    /// The first number.
    pub first: u64,
    /// How many follow each other.
    pub count: u32,
}

/// What is promised of the order of numbers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Growth {
    /// A request that is sent after any answer has come gets larger numbers than that answer.
    RealTime,
    /// The same, for the answers of one server.
    OfEachServer,
}

impl fmt::Display for Taking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "client {} got {} numbers from {} on, of server {}, between {} and {} ns",
            self.client,
            self.count,
            self.first,
            self.server,
            self.invoked.as_nanos(),
            self.returned.as_nanos()
        )
    }
}

/// Judges all numbers that clients got. Numbers whose answers were lost belong to nobody.
pub fn check(takings: &[Taking], growth: Growth) -> Verdict {
    let mut sorted: Vec<&Taking> = takings.iter().collect();
    sorted.sort_by_key(|taking| taking.first);
    let once = once(&sorted);
    let grow = match growth {
        Growth::RealTime => grow(&sorted),
        Growth::OfEachServer => {
            let mut of_servers: BTreeMap<u16, Vec<&Taking>> = BTreeMap::new();
            for taking in sorted {
                of_servers.entry(taking.server).or_default().push(taking);
            }
            let verdicts = of_servers.values().map(|takings| grow(takings));
            verdicts.fold(Verdict::Pass, Verdict::and)
        }
    };
    once.and(grow)
}

/// No number is in two takings, which are sorted by their numbers.
fn once(sorted: &[&Taking]) -> Verdict {
    let twice = sorted
        .windows(2)
        .find(|pair| pair[1].first - pair[0].first < u64::from(pair[0].count));
    twice.map_or(Verdict::Pass, |pair| {
        Verdict::violation(format!("a number came twice: {}; and {}", pair[0], pair[1]))
    })
}

/// No taking was over before one with smaller numbers began. From the largest numbers down, the earliest end so far is
/// compared with each beginning.
fn grow(sorted: &[&Taking]) -> Verdict {
    let mut earliest: Option<&Taking> = None;
    for taking in sorted.iter().rev() {
        if let Some(larger) = earliest.filter(|larger| larger.returned < taking.invoked) {
            return Verdict::violation(format!("a number went back: {larger}; later {taking}"));
        }
        if earliest.is_none_or(|earliest| taking.returned < earliest.returned) {
            earliest = Some(taking);
        }
    }
    Verdict::Pass
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taking(client: u64, server: u16, span: (u64, u64), first: u64, count: u32) -> Taking {
        Taking {
            client,
            server,
            invoked: Instant::from_nanos(span.0),
            returned: Instant::from_nanos(span.1),
            first,
            count,
        }
    }

    fn finding(takings: &[Taking], growth: Growth) -> String {
        match check(takings, growth) {
            Verdict::Pass => String::new(),
            other => other.to_string(),
        }
    }

    #[test]
    fn a_number_that_two_clients_got_is_found_wherever_it_lies_in_their_ranges() {
        for (first, bad) in [(7, false), (8, true), (10, true), (14, true), (15, false)] {
            // They are under way at the same time, so their order says nothing.
            let takings = [taking(1, 0, (1, 9), 10, 5), taking(2, 0, (1, 9), first, 3)];
            let found = finding(&takings, Growth::RealTime);
            assert_eq!(found.contains("came twice"), bad, "{first}: {found}");
        }
    }

    #[test]
    fn a_number_that_went_back_is_found_and_overtaking_is_allowed() {
        let larger = taking(1, 0, (10, 20), 50, 1);
        for (span, bad) in [((21, 30), true), ((20, 30), false), ((5, 30), false)] {
            let takings = [larger, taking(2, 1, span, 49, 1)];
            let found = finding(&takings, Growth::RealTime);
            assert_eq!(found.contains("went back"), bad, "{span:?}: {found}");
            assert_eq!(finding(&takings, Growth::OfEachServer), "");
        }
        let same_server = [larger, taking(2, 0, (21, 30), 49, 1)];
        assert!(finding(&same_server, Growth::OfEachServer).contains("went back"));
        // The one in between hides nothing.
        let between = [
            taking(1, 0, (1, 2), 9, 1),
            taking(2, 0, (1, 100), 8, 1),
            taking(3, 0, (3, 4), 7, 1),
        ];
        assert!(finding(&between, Growth::RealTime).contains("went back"));
    }

    #[test]
    fn the_wrap_of_the_low_half_is_no_step_back() {
        let wrap = 1 << 32;
        let up = [
            taking(1, 0, (1, 2), wrap - 2, 4),
            taking(1, 0, (3, 4), wrap + 2, 1),
        ];
        assert_eq!(finding(&up, Growth::RealTime), "");
        let back = [
            taking(1, 0, (1, 2), wrap - 2, 2),
            taking(1, 0, (3, 4), 0, 1),
        ];
        assert!(finding(&back, Growth::RealTime).contains("went back"));
    }
}
