//! Every application against its reference, with a million random and crafted packets.

use trine_packets::check::{Check, Tally};
use trine_packets::scenario::{ApplicationName, TableSettings};
use trine_packets::verdict::Reason;

/// Packets of each application, over the batch sizes together.
const PACKETS: u64 = 1_000_000;
/// A third each with no, a usual and the largest number of packets that take turns.
const BATCHES: [usize; 3] = [1, 16, 32];

#[track_caller]
fn agree(name: ApplicationName, entries: usize) -> Tally {
    let mut sum = Tally::default();
    for (seed, batch) in (10..).zip(BATCHES) {
        let settings = TableSettings {
            entries,
            ports: 3,
            seed,
        };
        let packets = PACKETS / BATCHES.len() as u64 + 1;
        let check = Check {
            name,
            settings,
            packets,
            batch,
        };
        let tally = check.run().expect("a table").unwrap_or_else(|difference| {
            panic!("{}, batch {batch}: {difference:x?}", name.text());
        });
        sum.forwarded += tally.forwarded;
        sum.flooded += tally.flooded;
        for (sum, count) in sum.dropped.iter_mut().zip(tally.dropped) {
            *sum += count;
        }
    }
    sum
}

/// Every one of these reasons must have come up, and no other; otherwise the packets test less than they should.
#[track_caller]
fn dropped_for(tally: &Tally, reasons: &[Reason]) {
    for reason in Reason::ALL {
        let count = tally.dropped[reason as usize];
        assert_eq!(
            count > 100,
            reasons.contains(&reason),
            "{reason:?}: {tally}"
        );
    }
    assert!(tally.forwarded > PACKETS / 3, "{tally}");
}

#[test]
fn echo() {
    dropped_for(&agree(ApplicationName::Echo, 0), &[Reason::Short]);
}

#[test]
fn ipv4() {
    use Reason::{Checksum, Expired, Foreign, Malformed, Short, Unknown};
    let tally = agree(ApplicationName::Ipv4, 500_000);
    dropped_for(
        &tally,
        &[Short, Foreign, Malformed, Checksum, Expired, Unknown],
    );
}

#[test]
fn ipv6() {
    use Reason::{Expired, Foreign, Malformed, Short, Unknown};
    let tally = agree(ApplicationName::Ipv6, 20_000);
    dropped_for(&tally, &[Short, Foreign, Malformed, Expired, Unknown]);
}

#[test]
fn switch() {
    let tally = agree(ApplicationName::Switch, 200_000);
    dropped_for(&tally, &[Reason::Short, Reason::Malformed]);
    assert!(tally.flooded > PACKETS / 100, "{tally}");
}

#[test]
fn names() {
    use Reason::{Foreign, Malformed, Short, Unknown};
    let tally = agree(ApplicationName::Names, 50_000);
    dropped_for(&tally, &[Short, Foreign, Malformed, Unknown]);
}

#[test]
fn patterns() {
    let tally = agree(ApplicationName::Patterns, 3_000);
    dropped_for(&tally, &[Reason::Short, Reason::Matched]);
}
