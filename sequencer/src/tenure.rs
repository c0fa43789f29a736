//! When a server writes the record of its sequence in the group, and what it may do then.
//!
//! A value without I/O. It says what to ask the group next, and takes what the group said. The group is linearizable: each
//! question takes effect at one moment between its being sent and its answer. A question without an answer may take effect
//! at any later moment.
//!
//! **Unique.** Numbers are reserved by one kind of write alone, which raises `limit` under the condition that the record
//! still has the version that was read. So each value of `limit` is the start of at most one reservation, and reservations
//! do not overlap. A server gives out numbers of a reservation only if the group has confirmed it. One without an answer is
//! skipped: the next one begins at the `limit` that is read afterwards. None of this needs a clock.
//!
//! **Growing in real time** (`strict`). One server at a time gives out numbers, the holder.
//! - A confirmed write of the holder lets it give out numbers until its lease has passed since the write *was sent*.
//! - Another server takes over by a write under the condition of a version that it has read. It sends that write when the
//!   holder's lease and [`GUARD`] have passed since the *first* reading with that version *was answered*.
//! - If its write succeeds, the version was still the last one. Each confirmed write of the old holder then came before
//!   that first reading was answered, so it was sent before. Its lease has ended by then, if both clocks run wrong by less
//!   than the guard allows. A later write of the old holder fails, because the version has changed.
//! - The new holder's numbers begin at `limit`, so they are larger than all that were given out before.
//!
//! A record whose holder is 0 was given back by its holder, which had stopped before it sent that. Nobody waits then.
//!
//! Wall clocks and the group's time play no part. The clocks of two servers are never compared.

use std::fmt;

use trine_canary as canary;
use trine_transport::time::{Duration, Instant};

use crate::config::{GUARD, RENEWALS, RETRY};
use crate::record::Record;

/// The version of a value in the group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Version(pub u64);

/// What a server was started with.
#[derive(Copy, Clone, Debug)]
pub struct Terms {
    /// This server: a random number, never 0, and another one after each start.
    pub me: u64,
    /// The length of its lease; zero if servers need none.
    pub lease: Duration,
    /// The numbers that one write reserves.
    pub block: u64,
    /// No number is less than this.
    pub least: u64,
}

impl Terms {
    fn is_strict(&self) -> bool {
        !self.lease.is_zero()
    }
}

/// A question to the group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Read the record, linearizable.
    Read,
    /// Write the record if there is none.
    Create(Record),
    /// Write the record if its version is still this one.
    Swap(Version, Record),
}

/// What the group said.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum GroupAnswer {
    /// There is no record.
    Absent,
    /// This is the record.
    Found(Version, Record),
    /// The record was written.
    Written(Version),
    /// The condition did not hold; nothing was written.
    Conflict,
    /// Nothing: a write may have happened or may still happen.
    Nothing,
}

/// What to do now.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask this.
    Ask(Ask),
    /// Nothing before then, unless numbers are missing.
    Wait(Instant),
}

/// What a server may do since a write was confirmed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The first number that was reserved.
    pub start: u64,
    /// The number behind the last; the same if none was.
    pub end: u64,
    /// When it may no longer give out numbers; [`Instant::FAR_FUTURE`] if it has no lease.
    pub until: Instant,
}

/// Why a server can never have numbers of this record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The servers of this sequence have leases, and this one was started without, or the other way round.
    OtherMode {
        /// Whether those of the record have.
        strict: bool,
    },
    /// All numbers below 2^64 are reserved.
    Exhausted,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherMode { strict: true } => {
                f.write_str("its servers are strict, and this one is not")
            }
            Self::OtherMode { strict: false } => {
                f.write_str("its servers are not strict, and this one is")
            }
            Self::Exhausted => f.write_str("all numbers below 2^64 are reserved"),
        }
    }
}

/// What a server knows of the record.
#[derive(Copy, Clone, Debug)]
enum Known {
    /// Nothing that a write could rely on. The group is asked again at the earliest then.
    Nothing(Instant),
    /// There is none.
    Absent,
    /// It was read.
    Read {
        version: Version,
        record: Record,
        /// When the first reading with this version was answered.
        since: Instant,
        /// When it is read again.
        again: Instant,
    },
    /// This server has written it.
    Mine {
        version: Version,
        record: Record,
        /// When it is written again, if there is a lease.
        renew: Instant,
    },
}

/// A server's knowledge of the record, and its next steps.
#[derive(Debug)]
pub struct Tenure {
    terms: Terms,
    known: Known,
    /// The largest limit that was ever seen. A record that was removed, or set back, goes on from there.
    floor: u64,
}

impl Tenure {
    /// Of a server that has not asked yet.
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            known: Known::Nothing(Instant::ZERO),
            floor: terms.least,
        }
    }

    /// What to do at `now`. So many numbers are `missing`.
    ///
    /// # Errors
    /// There are no numbers left.
    pub fn next(&self, now: Instant, missing: u64) -> Result<Next, Refused> {
        let waits = |until: Instant| Next::Wait(until);
        Ok(match self.known {
            Known::Nothing(from) if now < from => waits(from),
            Known::Nothing(_) => Next::Ask(Ask::Read),
            Known::Absent => Next::Ask(Ask::Create(self.record(self.floor, missing.max(1))?)),
            Known::Read {
                version,
                record,
                since,
                again,
            } => {
                let free = self.free_from(&record, since);
                match self.terms.is_strict() {
                    false if missing == 0 => waits(Instant::FAR_FUTURE),
                    true if now < free && now < again => waits(free.min(again)),
                    true if now < free => Next::Ask(Ask::Read),
                    _ => Next::Ask(Ask::Swap(
                        version,
                        self.record(record.limit, missing.max(1))?,
                    )),
                }
            }
            Known::Mine {
                version,
                record,
                renew,
            } => match missing > 0 || now >= renew {
                true => Next::Ask(Ask::Swap(version, self.record(record.limit, missing)?)),
                false => waits(renew),
            },
        })
    }

    /// When this server may take over from the holder of a record that was first read at `since`.
    fn free_from(&self, record: &Record, since: Instant) -> Instant {
        if record.holder == 0 || record.holder == self.terms.me {
            return since;
        }
        if canary::planted("a taker waits for nobody") {
            return since;
        }
        let lease = record.lease;
        since
            .saturating_add(lease)
            .saturating_add(Duration::from_nanos(lease.as_nanos() / GUARD + 1))
    }

    /// The record with at least `missing` more numbers, in whole blocks. A write that reserves none, such as a renewal, leaves
    /// the limit as it is.
    fn record(&self, limit: u64, missing: u64) -> Result<Record, Refused> {
        let block = self.terms.block;
        let more = missing.div_ceil(block).checked_mul(block);
        let limit = match more {
            Some(0) => Some(limit),
            Some(more) => limit.max(self.floor).checked_add(more),
            None => None,
        };
        let limit = limit.ok_or(Refused::Exhausted)?;
        Ok(Record {
            limit,
            holder: if self.terms.is_strict() {
                self.terms.me
            } else {
                0
            },
            lease: self.terms.lease,
        })
    }

    /// Takes what the group said to a question that was sent at `asked`.
    ///
    /// # Errors
    /// The record is one of other servers; it is read again later.
    pub fn tell(
        &mut self,
        asked: Instant,
        now: Instant,
        ask: &Ask,
        told: &GroupAnswer,
    ) -> Result<Option<Grant>, Refused> {
        match (*ask, *told) {
            (Ask::Read, GroupAnswer::Absent) => self.known = Known::Absent,
            (Ask::Read, GroupAnswer::Found(version, record)) => {
                return self.read(now, version, record).map(|()| None);
            }
            (Ask::Create(record), GroupAnswer::Written(version)) => {
                return Ok(Some(self.written(asked, version, record, self.floor)));
            }
            (Ask::Swap(before, record), GroupAnswer::Written(version)) => {
                let reserved = self.limit_at(before).filter(|&limit| limit < record.limit);
                let start = reserved.map_or(record.limit, |limit| limit.max(self.floor));
                return Ok(Some(self.written(asked, version, record, start)));
            }
            // An earlier write of this server may have taken effect late; or another server has written, or somebody has
            // removed the record.
            (_, GroupAnswer::Conflict | GroupAnswer::Absent) => self.known = Known::Nothing(now),
            (_, GroupAnswer::Nothing | GroupAnswer::Found(..) | GroupAnswer::Written(_)) => {
                self.known = Known::Nothing(now + RETRY)
            }
        }
        Ok(None)
    }

    /// The limit of the record that had this version.
    fn limit_at(&self, wanted: Version) -> Option<u64> {
        match self.known {
            Known::Read {
                version, record, ..
            }
            | Known::Mine {
                version, record, ..
            } => (version == wanted).then_some(record.limit),
            Known::Nothing(_) | Known::Absent => None,
        }
    }

    fn read(&mut self, now: Instant, version: Version, record: Record) -> Result<(), Refused> {
        let strict = !record.lease.is_zero();
        if strict != self.terms.is_strict() {
            self.known = Known::Nothing(now + RETRY);
            return Err(Refused::OtherMode { strict });
        }
        self.floor = self.floor.max(record.limit);
        let since = match self.known {
            Known::Read {
                version: before,
                since,
                ..
            } if before == version => since,
            _ => now,
        };
        let again =
            now.saturating_add(Duration::from_nanos(self.terms.lease.as_nanos() / RENEWALS));
        self.known = Known::Read {
            version,
            record,
            since,
            again,
        };
        Ok(())
    }

    fn written(&mut self, asked: Instant, version: Version, record: Record, start: u64) -> Grant {
        self.floor = self.floor.max(record.limit);
        let lease = self.terms.lease;
        let (renew, until) = match self.terms.is_strict() {
            true => (
                asked.saturating_add(Duration::from_nanos(lease.as_nanos() / RENEWALS)),
                asked.saturating_add(lease),
            ),
            false => (Instant::FAR_FUTURE, Instant::FAR_FUTURE),
        };
        self.known = Known::Mine {
            version,
            record,
            renew,
        };
        Grant {
            start,
            end: record.limit,
            until,
        }
    }

    /// The question that lets another server take over at once. This one must have stopped giving out numbers.
    pub fn release(&self) -> Option<Ask> {
        match self.known {
            Known::Mine {
                version, record, ..
            } if self.terms.is_strict() => {
                let record = Record {
                    holder: 0,
                    ..record
                };
                Some(Ask::Swap(version, record))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_nanos(1_600);

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn tenure(me: u64, lease: Duration) -> Tenure {
        Tenure::new(Terms {
            me,
            lease,
            block: 10,
            least: 0,
        })
    }

    fn theirs(limit: u64) -> Record {
        Record {
            limit,
            holder: 7,
            lease: LEASE,
        }
    }

    fn tell(tenure: &mut Tenure, at_ns: u64, ask: &Ask, told: GroupAnswer) -> Option<Grant> {
        tenure
            .tell(at(at_ns), at(at_ns + 1), ask, &told)
            .expect("of the same mode")
    }

    fn asks(tenure: &Tenure, at_ns: u64, missing: u64) -> Ask {
        match tenure.next(at(at_ns), missing).expect("numbers are left") {
            Next::Ask(ask) => ask,
            Next::Wait(until) => panic!("waits until {until:?}"),
        }
    }

    #[test]
    fn a_fresh_sequence_begins_at_zero_and_goes_on_in_blocks() {
        let mut tenure = tenure(1, LEASE);
        assert_eq!(asks(&tenure, 5, 1), Ask::Read);
        tell(&mut tenure, 5, &Ask::Read, GroupAnswer::Absent);
        let create = asks(&tenure, 6, 11);
        let grant =
            tell(&mut tenure, 100, &create, GroupAnswer::Written(Version(1))).expect("a grant");
        assert_eq!(
            (grant.start, grant.end, grant.until),
            (0, 20, at(100 + 1_600))
        );
        assert_eq!(tenure.next(at(499), 0), Ok(Next::Wait(at(500))));
        // A renewal reserves nothing.
        let renewal = asks(&tenure, 500, 0);
        let grant =
            tell(&mut tenure, 500, &renewal, GroupAnswer::Written(Version(2))).expect("a grant");
        assert_eq!((grant.start, grant.end, grant.until), (20, 20, at(2_100)));
        let more = asks(&tenure, 501, 1);
        let grant =
            tell(&mut tenure, 501, &more, GroupAnswer::Written(Version(3))).expect("a grant");
        assert_eq!((grant.start, grant.end), (20, 30));
    }

    /// The lease counts from the first answer with the version, not from the last one.
    #[test]
    fn a_holder_that_writes_nothing_loses_its_record_after_its_lease_and_the_guard() {
        let mut tenure = tenure(1, LEASE);
        let found = GroupAnswer::Found(Version(5), theirs(40));
        tell(&mut tenure, 99, &Ask::Read, found);
        let free = 100 + 1_600 + 100 + 1;
        assert_eq!(tenure.next(at(101), 5), Ok(Next::Wait(at(500))));
        assert_eq!(asks(&tenure, 500, 5), Ask::Read);
        tell(&mut tenure, 1_500, &Ask::Read, found);
        assert_eq!(tenure.next(at(free - 1), 5), Ok(Next::Wait(at(free))));
        let swap = asks(&tenure, free, 5);
        assert!(matches!(
            swap,
            Ask::Swap(
                Version(5),
                Record {
                    limit: 50,
                    holder: 1,
                    ..
                }
            )
        ));
        // The holder wrote in the last moment.
        assert_eq!(tell(&mut tenure, free, &swap, GroupAnswer::Conflict), None);
        assert_eq!(asks(&tenure, free + 1, 5), Ask::Read);
        tell(
            &mut tenure,
            free + 1,
            &Ask::Read,
            GroupAnswer::Found(Version(6), theirs(60)),
        );
        assert!(matches!(tenure.next(at(free + 3), 5), Ok(Next::Wait(_))));
    }

    #[test]
    fn a_record_that_was_given_back_is_taken_at_once() {
        let (mut first, mut second) = (tenure(7, LEASE), tenure(8, LEASE));
        tell(&mut first, 1, &Ask::Read, GroupAnswer::Absent);
        let create = asks(&first, 2, 1);
        tell(&mut first, 2, &create, GroupAnswer::Written(Version(1)));
        let Some(Ask::Swap(Version(1), given_back)) = first.release() else {
            panic!("nothing to give back")
        };
        tell(
            &mut second,
            3,
            &Ask::Read,
            GroupAnswer::Found(Version(2), given_back),
        );
        let swap = asks(&second, 4, 0);
        let grant = tell(&mut second, 4, &swap, GroupAnswer::Written(Version(3))).expect("a grant");
        assert_eq!((grant.start, grant.end), (10, 20));
    }

    /// A write without an answer may have happened, or may still happen. No server gives out its numbers.
    #[test]
    fn a_reservation_without_an_answer_is_skipped() {
        for late in [false, true] {
            let mut tenure = tenure(7, LEASE);
            tell(
                &mut tenure,
                1,
                &Ask::Read,
                GroupAnswer::Found(Version(1), theirs(40)),
            );
            let first = asks(&tenure, 2, 1);
            assert!(matches!(
                first,
                Ask::Swap(Version(1), Record { limit: 50, .. })
            ));
            assert_eq!(tell(&mut tenure, 2, &first, GroupAnswer::Nothing), None);
            let again = 3 + RETRY.as_nanos();
            assert_eq!(tenure.next(at(again - 1), 1), Ok(Next::Wait(at(again))));
            assert_eq!(asks(&tenure, again, 1), Ask::Read);
            // Either the write took effect before this reading, or it takes effect behind it.
            let read = if late {
                GroupAnswer::Found(Version(1), theirs(40))
            } else {
                GroupAnswer::Found(Version(2), theirs(50))
            };
            tell(&mut tenure, again, &Ask::Read, read);
            let second = asks(&tenure, again + 1, 1);
            if late {
                assert_eq!(
                    tell(&mut tenure, again + 1, &second, GroupAnswer::Conflict),
                    None
                );
                tell(
                    &mut tenure,
                    again + 2,
                    &Ask::Read,
                    GroupAnswer::Found(Version(2), theirs(50)),
                );
            }
            let third = asks(&tenure, again + 3, 1);
            let grant = tell(
                &mut tenure,
                again + 3,
                &third,
                GroupAnswer::Written(Version(3)),
            )
            .expect("a grant");
            assert_eq!((grant.start, grant.end), (50, 60));
        }
    }

    #[test]
    fn servers_without_leases_write_only_for_numbers() {
        let mut tenure = tenure(1, Duration::ZERO);
        let loose = |limit| Record {
            limit,
            holder: 0,
            lease: Duration::ZERO,
        };
        tell(
            &mut tenure,
            1,
            &Ask::Read,
            GroupAnswer::Found(Version(1), loose(40)),
        );
        assert_eq!(tenure.next(at(2), 0), Ok(Next::Wait(Instant::FAR_FUTURE)));
        let swap = asks(&tenure, 2, 3);
        assert_eq!(swap, Ask::Swap(Version(1), loose(50)));
        let grant = tell(&mut tenure, 2, &swap, GroupAnswer::Written(Version(2))).expect("a grant");
        assert_eq!(
            (grant.start, grant.end, grant.until),
            (40, 50, Instant::FAR_FUTURE)
        );
        assert_eq!(tenure.release(), None);
    }

    #[test]
    fn servers_of_both_kinds_do_not_share_a_record() {
        let loose = Record {
            limit: 1,
            holder: 0,
            lease: Duration::ZERO,
        };
        for (lease, record, strict) in [(LEASE, loose, false), (Duration::ZERO, theirs(1), true)] {
            let mut tenure = tenure(1, lease);
            let told = GroupAnswer::Found(Version(1), record);
            let refused = tenure.tell(at(1), at(2), &Ask::Read, &told);
            assert_eq!(refused, Err(Refused::OtherMode { strict }));
            assert_eq!(tenure.next(at(3), 1), Ok(Next::Wait(at(2) + RETRY)));
        }
    }

    #[test]
    fn numbers_end_and_a_removed_record_does_not_begin_again() {
        let of_seven = || tenure(7, LEASE);
        let mut tenure = of_seven();
        tell(
            &mut tenure,
            1,
            &Ask::Read,
            GroupAnswer::Found(Version(1), theirs(u64::MAX - 9)),
        );
        assert_eq!(tenure.next(at(2), 1), Err(Refused::Exhausted));
        tell(&mut tenure, 3, &Ask::Read, GroupAnswer::Absent);
        assert_eq!(tenure.next(at(4), 1), Err(Refused::Exhausted));
        let mut second = of_seven();
        tell(
            &mut second,
            1,
            &Ask::Read,
            GroupAnswer::Found(Version(1), theirs(400)),
        );
        let swap = asks(&second, 2, 1);
        tell(&mut second, 2, &swap, GroupAnswer::Absent);
        tell(&mut second, 3, &Ask::Read, GroupAnswer::Absent);
        assert!(matches!(
            asks(&second, 4, 1),
            Ask::Create(Record { limit: 410, .. })
        ));
    }

    #[test]
    fn no_number_is_less_than_the_option_says_or_than_one_that_was_seen() {
        let mut tenure = Tenure::new(Terms {
            least: 1_000,
            ..tenure(7, LEASE).terms
        });
        tell(
            &mut tenure,
            1,
            &Ask::Read,
            GroupAnswer::Found(Version(1), theirs(40)),
        );
        let swap = asks(&tenure, 2, 1);
        let grant = tell(&mut tenure, 2, &swap, GroupAnswer::Written(Version(2))).expect("a grant");
        assert_eq!((grant.start, grant.end), (1_000, 1_010));
        // The group was restored from a backup.
        let renewal = asks(&tenure, 500, 0);
        tell(&mut tenure, 500, &renewal, GroupAnswer::Conflict);
        tell(
            &mut tenure,
            501,
            &Ask::Read,
            GroupAnswer::Found(Version(9), theirs(90)),
        );
        let swap = asks(&tenure, 502, 1);
        let grant =
            tell(&mut tenure, 502, &swap, GroupAnswer::Written(Version(10))).expect("a grant");
        assert_eq!((grant.start, grant.end), (1_010, 1_020));
    }
}
