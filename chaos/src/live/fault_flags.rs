//! The text form of the faults that a replica's links shall have: `loss=5%,dup=1%,delay=2ms@10%`.
//!
//! `trine chaos` writes it, `trine serve --fault` reads it.

use std::fmt;
use std::str::FromStr;

use trine_transport::prng::Ratio;
use trine_transport::time::Duration;

/// What shall happen to the packets that an endpoint sends.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultFlags {
    /// How many are lost.
    pub loss: Ratio,
    /// How many are sent twice.
    pub duplicate: Ratio,
    /// How many are overtaken by packets sent after them.
    pub reorder: Ratio,
    /// How many arrive damaged.
    pub corrupt: Ratio,
    /// How many are held back, and for how long at most.
    pub delay: Option<(Ratio, Duration)>,
}

/// A fault list that does not parse.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultFlagsError {
    /// An item without `=`.
    #[error("{0:?} is not of the form NAME=VALUE")]
    NoValue(String),
    /// A name that is none of the faults.
    #[error("{0:?} is not a fault; known are loss, dup, reorder, corrupt and delay")]
    UnknownFault(String),
    /// A ratio that does not parse.
    #[error("{0:?} is not a share; write for example 5%, 0.1% or 3/100")]
    BadRatio(String),
    /// A delay that does not parse.
    #[error("{0:?} is not a delay; write for example 2ms, or 2ms@10% for one packet in ten")]
    BadDelay(String),
}

impl FaultFlags {
    /// True if nothing shall happen.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl FromStr for FaultFlags {
    type Err = FaultFlagsError;

    fn from_str(text: &str) -> Result<Self, FaultFlagsError> {
        let mut flags = Self::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) =
                item.split_once('=').ok_or_else(|| FaultFlagsError::NoValue(item.to_owned()))?;
            match name {
                "loss" => flags.loss = ratio(value)?,
                "dup" => flags.duplicate = ratio(value)?,
                "reorder" => flags.reorder = ratio(value)?,
                "corrupt" => flags.corrupt = ratio(value)?,
                "delay" => flags.delay = Some(delay(value)?),
                _ => return Err(FaultFlagsError::UnknownFault(name.to_owned())),
            }
        }
        Ok(flags)
    }
}

fn ratio(text: &str) -> Result<Ratio, FaultFlagsError> {
    text.parse().map_err(|_| FaultFlagsError::BadRatio(text.to_owned()))
}

/// `2ms`, `500us@10%`: how long, and for how many.
fn delay(text: &str) -> Result<(Ratio, Duration), FaultFlagsError> {
    let (time, share) = text.split_once('@').unwrap_or((text, "100%"));
    let bad = || FaultFlagsError::BadDelay(text.to_owned());
    let digits = time.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let (number, unit) = time.split_at(digits);
    let number: u32 = number.parse().map_err(|_| bad())?;
    let duration = match unit {
        "us" => Duration::from_micros(number.into()),
        "ms" => Duration::from_millis(number.into()),
        "s" => Duration::from_secs(number.into()),
        _ => return Err(bad()),
    };
    Ok((ratio(share)?, duration))
}

impl fmt::Display for FaultFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratios = [
            ("loss", self.loss),
            ("dup", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ];
        let mut separator = "";
        for (name, ratio) in ratios.into_iter().filter(|(_, ratio)| !ratio.is_zero()) {
            write!(f, "{separator}{name}={ratio}")?;
            separator = ",";
        }
        if let Some((share, longest)) = self.delay {
            write!(f, "{separator}delay={}us@{share}", longest.as_micros())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_the_same() {
        for text in ["", "loss=5%", "loss=5%,dup=1%,reorder=2%,corrupt=0.1%,delay=2ms@10%", "delay=3s"] {
            let flags: FaultFlags = text.parse().expect(text);
            assert_eq!(flags.to_string().parse(), Ok(flags), "{text} became {flags}");
        }
        assert!("".parse::<FaultFlags>().expect("nothing").is_none());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.parse::<FaultFlags>().expect_err(text);
        assert_eq!(error("loss"), FaultFlagsError::NoValue("loss".into()));
        assert_eq!(error("los=5%"), FaultFlagsError::UnknownFault("los".into()));
        assert_eq!(error("loss=105%"), FaultFlagsError::BadRatio("105%".into()));
        assert_eq!(error("delay=5"), FaultFlagsError::BadDelay("5".into()));
    }
}
