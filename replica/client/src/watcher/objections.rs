//! Objections of replicas to a stream, and which of them are final.
//!
//! A replica that is dead, busy or behind may serve later. One that has forgotten the events will never have them again,
//! and one that denies them may only not have heard of the user yet. Such an objection is final when all replicas that
//! could be asked have made one, or when all were tried twice.

use std::fmt;

use trine_kvstore::Position;
use trine_protocol::message::{ClientReply, ClientStatus, OtherStatus, StatusClass};

use super::config::WatchError;
use crate::outcome::Obstacle;

/// Why a replica does not serve a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Objection {
    /// There is no session, or no answer.
    Obstacle(Obstacle),
    /// Not here, or not now.
    Later(String),
    /// It knows everything behind this position, and that is too little.
    Compacted(Position),
    /// The caller has no right to it.
    Denied(String),
}

impl Objection {
    /// A replica has not said where the group is.
    pub(super) fn of_reply(reply: &ClientReply<'_>) -> Self {
        let release = reply.release;
        Self::Obstacle(match reply.status {
            ClientStatus::Denied => {
                return Self::Denied("the key gives no right to read".to_owned());
            }
            ClientStatus::NotLeader | ClientStatus::LeadershipLost => Obstacle::NoLeader,
            ClientStatus::NoQuorum => Obstacle::NoQuorum,
            ClientStatus::NotAttached => Obstacle::NotAttached,
            ClientStatus::Busy => Obstacle::Busy,
            ClientStatus::WrongCluster => Obstacle::WrongCluster {
                theirs: reply.cluster,
            },
            ClientStatus::Malformed => Obstacle::Malformed { release },
            ClientStatus::Other(status) => Obstacle::OtherStatus {
                status: status.byte(),
                release,
            },
            // No answer to a read.
            _ => Obstacle::UnreadableReply,
        })
    }
}

/// Whether the same replica would answer the same to a later request.
const fn lasts(obstacle: Obstacle) -> bool {
    match obstacle {
        Obstacle::Key(_)
        | Obstacle::VersionMismatch { .. }
        | Obstacle::OtherVersion(_)
        | Obstacle::WrongCluster { .. }
        | Obstacle::BadTerms { .. }
        | Obstacle::Malformed { .. }
        | Obstacle::UnreadableReply => true,
        Obstacle::OtherStatus { status, .. } => match OtherStatus::of_byte(status) {
            Some(status) => matches!(status.class(), StatusClass::Refused),
            None => true,
        },
        _ => false,
    }
}

/// Whether the replica may serve the stream soon, as after an election: until then one that never will decides nothing.
const fn passes(objection: &Objection) -> bool {
    matches!(
        objection,
        Objection::Later(_)
            | Objection::Obstacle(
                Obstacle::NoLeader | Obstacle::NoQuorum | Obstacle::NotAttached | Obstacle::Busy
            )
    )
}

impl fmt::Display for Objection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Obstacle(obstacle) => obstacle.fmt(formatter),
            Self::Later(why) | Self::Denied(why) => formatter.write_str(why),
            Self::Compacted(oldest) => {
                write!(formatter, "its history goes back to {oldest} only")
            }
        }
    }
}

/// The objections since a replica has served the stream last.
#[derive(Debug)]
pub(super) struct Objections {
    last: Vec<Option<Objection>>,
    tried: usize,
}

impl Objections {
    pub(super) fn of(replicas: usize) -> Self {
        Self {
            last: vec![None; replicas],
            tried: 0,
        }
    }

    /// One more replica can be asked.
    pub(super) fn add_replica(&mut self) {
        self.last.push(None);
    }

    pub(super) fn clear(&mut self) {
        self.last.fill(None);
        self.tried = 0;
    }

    /// Whether every replica was tried just as often as every other.
    pub(super) fn is_round(&self) -> bool {
        self.tried.is_multiple_of(self.last.len())
    }

    /// Whether every replica was tried.
    pub(super) fn is_late(&self) -> bool {
        self.tried >= self.last.len()
    }

    /// A replica does not serve the stream, which has everything up to `from`. Returns what that means if it is final.
    pub(super) fn add(
        &mut self,
        replica: usize,
        objection: Objection,
        from: Position,
    ) -> Option<WatchError> {
        self.tried += 1;
        self.last[replica] = Some(objection);
        let lasting = self.last.iter().flatten().filter_map(|objection| {
            Some(match objection {
                Objection::Compacted(oldest) => WatchError::Compacted {
                    from,
                    oldest: *oldest,
                },
                Objection::Denied(why) => WatchError::Denied { why: why.clone() },
                Objection::Obstacle(obstacle) if lasts(*obstacle) => {
                    WatchError::NotServed(*obstacle)
                }
                _ => return None,
            })
        });
        let lasting: Vec<_> = lasting.collect();
        let all = lasting.len() == self.last.len();
        let twice = self.tried >= 2 * self.last.len();
        // The oldest history is the one to name.
        let age = |error: &WatchError| match error {
            WatchError::Compacted { oldest, .. } => oldest.as_u64(),
            _ => u64::MAX,
        };
        let passing = self.last.iter().flatten().any(passes);
        (all || (twice && !passing))
            .then(|| lasting.into_iter().min_by_key(age))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use trine_protocol::message::{ClusterId, Encode};

    use super::*;

    fn at(position: u64) -> Position {
        Position::from_u64(position)
    }

    #[test]
    fn forgotten_events_are_an_error_when_nobody_has_them() {
        let mut objections = Objections::of(3);
        let from = at(5);
        assert_eq!(objections.add(0, Objection::Compacted(at(9)), from), None);
        assert_eq!(objections.add(1, Objection::Compacted(at(7)), from), None);
        let error = objections.add(2, Objection::Compacted(at(8)), from);
        let oldest = at(7);
        assert_eq!(error, Some(WatchError::Compacted { from, oldest }));
    }

    #[test]
    fn a_dead_replica_is_tried_twice_before_events_count_as_forgotten() {
        let mut objections = Objections::of(2);
        let dead = || Objection::Obstacle(Obstacle::NoConnection);
        let (from, oldest) = (at(5), at(9));
        assert_eq!(objections.add(0, Objection::Compacted(oldest), from), None);
        assert_eq!(objections.add(1, dead(), from), None);
        assert_eq!(objections.add(0, Objection::Compacted(oldest), from), None);
        let error = objections.add(1, dead(), from);
        assert_eq!(error, Some(WatchError::Compacted { from, oldest }));
    }

    #[test]
    fn replicas_that_are_dead_or_busy_are_tried_for_ever() {
        let mut objections = Objections::of(2);
        for _ in 0..10 {
            let dead = Objection::Obstacle(Obstacle::NoConnection);
            assert_eq!(objections.add(0, dead, at(1)), None);
            let later = Objection::Later("busy".to_owned());
            assert_eq!(objections.add(1, later, at(1)), None);
        }
    }

    #[test]
    fn an_objection_before_the_last_answer_counts_no_more() {
        let mut objections = Objections::of(2);
        let denied = || Objection::Denied("no".to_owned());
        assert_eq!(objections.add(0, denied(), at(1)), None);
        objections.clear();
        assert_eq!(objections.add(1, denied(), at(1)), None);
        assert!(objections.add(0, denied(), at(1)).is_some());
    }
    /// What becomes of a watch whose only replica answers this twice.
    fn end_of(objection: &Objection) -> Option<WatchError> {
        let mut objections = Objections::of(1);
        let first = objections.add(0, objection.clone(), at(1));
        first.or_else(|| objections.add(0, objection.clone(), at(1)))
    }

    #[test]
    fn a_status_that_another_attempt_would_not_change_ends_the_watch() {
        let of_status = |status: u8| {
            let mut bytes = ClientReply::refusal(ClientStatus::Busy, ClusterId(7)).encode_to_vec();
            bytes[1] = status;
            bytes.extend([1, 0, 2, 0, 3, 0, 0, 0]);
            // Room for the address of status 1 and 11, whose family is unknown here.
            bytes.extend([0; 16]);
            let reply = ClientReply::decode(&bytes).expect("a refusal");
            end_of(&Objection::of_reply(&reply)).map(|error| error.to_string())
        };
        for (status, words) in [
            (5, "another cluster, 0000000000000007"),
            (8, "could not read the reply"),
            (10, "release 1.2.3 could not read the command"),
            (0x81, "release 1.2.3 has answered with status 129"),
            (0xbf, "release 1.2.3 has answered with status 191"),
        ] {
            let error = of_status(status).unwrap_or_default();
            assert!(error.contains(words), "{status}: {error}");
        }
        for status in [1, 2, 6, 7, 11, 0x40, 0x7f, 0xc0, 0xff] {
            assert_eq!(of_status(status), None, "{status}");
        }
    }

    #[test]
    fn answers_that_cannot_be_read_end_the_watch() {
        let unreadable = Objection::Obstacle(Obstacle::UnreadableReply);
        let error = WatchError::NotServed(Obstacle::UnreadableReply);
        assert_eq!(end_of(&unreadable), Some(error));
    }
}
