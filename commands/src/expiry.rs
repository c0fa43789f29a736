//! Times of requests, as nanoseconds of group time from now on.
//!
//! The store knows no wall clock. A moment of Unix time becomes a distance by the clock of the replica that read the
//! request. From there on group time counts.

use crate::errors::{NOT_AN_INTEGER, Refusal};
use crate::plan::Asked;
use trine_kvstore::{ExpireCondition, integer};

/// The unit of a time in a request, and its origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
    AtSeconds,
    AtMilliseconds,
}

impl Unit {
    /// By how much the same moment of Unix time can differ when it is named twice. Nothing for a distance.
    pub(crate) fn doubt_ns(self) -> Option<u64> {
        match self {
            Self::AtSeconds => Some(500_000_000),
            Self::AtMilliseconds => Some(20_000_000),
            Self::Seconds | Self::Milliseconds => None,
        }
    }

    /// The unit that a word of SET or GETEX names.
    pub(crate) fn of_word(word: &[u8]) -> Option<Self> {
        [
            (b"ex".as_slice(), Self::Seconds),
            (b"px", Self::Milliseconds),
            (b"exat", Self::AtSeconds),
            (b"pxat", Self::AtMilliseconds),
        ]
        .into_iter()
        .find(|(name, _)| word.eq_ignore_ascii_case(name))
        .map(|(_, unit)| unit)
    }
}

/// A time as a request gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Expiry {
    unit: Unit,
    amount: i64,
}

impl Expiry {
    pub(crate) fn read(unit: Unit, amount: &[u8]) -> Result<Self, Refusal> {
        let amount = integer(amount).ok_or(NOT_AN_INTEGER)?;
        Ok(Self { unit, amount })
    }

    /// For commands that refuse times of zero and less. None: the moment is over. In a request that may come again a moment of
    /// Unix time is never over, because another number of operations would be made of a later copy: the key expires at the next
    /// step of group time instead.
    pub(crate) fn of_set(self, asked: &Asked<'_, '_>) -> Result<Option<u64>, Refusal> {
        if self.amount <= 0 {
            return Err(invalid(asked.name));
        }
        let after_ns = self.of_expire(asked)?;
        let never_over = asked.clock.is_repeated && self.unit.doubt_ns().is_some();
        Ok(after_ns.or(never_over.then_some(1)))
    }

    /// For commands that take any time. None: the moment is over.
    pub(crate) fn of_expire(self, asked: &Asked<'_, '_>) -> Result<Option<u64>, Refusal> {
        let (command, unix_ms) = (asked.name, asked.clock.unix_ms);
        let amount_ms = match self.unit {
            Unit::Milliseconds | Unit::AtMilliseconds => Some(self.amount),
            Unit::Seconds | Unit::AtSeconds => self.amount.checked_mul(1_000),
        };
        let amount_ms = amount_ms.ok_or_else(|| invalid(command))?;
        let after_ms = match self.unit {
            Unit::AtSeconds | Unit::AtMilliseconds => amount_ms.saturating_sub(unix_ms),
            // It must also be a number as a moment.
            Unit::Seconds | Unit::Milliseconds => amount_ms
                .checked_add(unix_ms)
                .map(|_| amount_ms)
                .ok_or_else(|| invalid(command))?,
        };
        let after_ms = u64::try_from(after_ms).unwrap_or(0);
        Ok((after_ms > 0).then(|| after_ms.saturating_mul(1_000_000)))
    }
}

/// The condition that the words behind EXPIRE's time make, if there are any.
pub(crate) fn expire_condition(words: &[&[u8]]) -> Result<Option<ExpireCondition>, Refusal> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for word in words {
        match word.to_ascii_lowercase().as_slice() {
            b"nx" => nx = true,
            b"xx" => xx = true,
            b"gt" => gt = true,
            b"lt" => lt = true,
            _ => {
                let word = String::from_utf8_lossy(word);
                return Err(format!("ERR Unsupported option {word}"));
            }
        }
    }
    if nx && (xx || gt || lt) {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(text.to_owned());
    }
    if gt && lt {
        return Err("ERR GT and LT options at the same time are not compatible".to_owned());
    }
    Ok(match (nx, xx, gt, lt) {
        (true, ..) => Some(ExpireCondition::Absent),
        // Only a key with an expiry can get a later one.
        (_, _, true, _) => Some(ExpireCondition::Later),
        (_, true, _, true) => Some(ExpireCondition::PresentAndEarlier),
        (_, false, _, true) => Some(ExpireCondition::Earlier),
        (_, true, ..) => Some(ExpireCondition::Present),
        _ => None,
    })
}

fn invalid(command: &str) -> Refusal {
    format!("ERR invalid expire time in '{command}' command")
}
