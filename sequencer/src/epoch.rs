//! The numbers of a server that keeps its state in a file.
//!
//! The file names the last epoch that was begun. A server begins the next one: it writes the file, has it synced, and may
//! then give out the numbers of that epoch, epoch << 40 and up. Whatever a server gave out before it died belongs to an epoch
//! that the file names. So no number comes twice, and a later server's are larger.

use std::fmt;

use trine_canary as canary;

use crate::config::{EPOCH_BITS, EPOCH_MAX};

const HEAD: &str = "trine sequencer 1";

/// Numbers that follow each other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first of them.
    pub start: u64,
    /// The number behind the last.
    pub end: u64,
}

/// Why a file is no state of a sequencer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadEpoch(String);

impl fmt::Display for BadEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The epoch behind `last`, or the first one, whose numbers are not below `least`; `None` if there is none left.
pub fn next_epoch(last: Option<u64>, least: u64) -> Option<u64> {
    let first = least.div_ceil(1 << EPOCH_BITS);
    let Some(last) = last else {
        return Some(first).filter(|&epoch| epoch <= EPOCH_MAX);
    };
    if canary::planted("an epoch begins twice") {
        return Some(last);
    }
    last.checked_add(1)
        .map(|next| next.max(first))
        .filter(|&epoch| epoch <= EPOCH_MAX)
}

/// The numbers of an epoch.
///
/// # Panics
/// If there is no such epoch.
pub fn block_of(epoch: u64) -> Block {
    assert!(epoch <= EPOCH_MAX, "there is no epoch {epoch}");
    Block {
        start: epoch << EPOCH_BITS,
        end: (epoch + 1) << EPOCH_BITS,
    }
}

/// The content of a file.
pub fn write_epoch(epoch: u64) -> String {
    format!("{HEAD}\nepoch {epoch}\n")
}

/// The epoch that a file names.
///
/// # Errors
/// The text is not what [`write_epoch`] writes.
pub fn read_epoch(text: &str) -> Result<u64, BadEpoch> {
    let rest = text
        .strip_prefix(HEAD)
        .and_then(|rest| rest.strip_prefix('\n'))
        .ok_or_else(|| BadEpoch(format!("its first line is not `{HEAD}`")))?;
    let digits = rest
        .strip_prefix("epoch ")
        .and_then(|rest| rest.strip_suffix('\n'))
        .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or_else(|| {
            BadEpoch("its second line is not `epoch` and a number, or is not the last".to_owned())
        })?;
    let epoch = digits.parse().ok().filter(|&epoch| epoch <= EPOCH_MAX);
    epoch.ok_or_else(|| {
        BadEpoch(format!(
            "epoch {digits} is more than {EPOCH_MAX}, the last there is"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_begin_behind_each_other_and_end() {
        assert_eq!(next_epoch(None, 0), Some(0));
        assert_eq!(next_epoch(Some(0), 0), Some(1));
        assert_eq!(next_epoch(Some(EPOCH_MAX), 0), None);
        assert_eq!(next_epoch(Some(u64::MAX), 0), None);
        assert_eq!(next_epoch(None, 5 << 40), Some(5));
        assert_eq!(next_epoch(Some(2), (5 << 40) + 1), Some(6));
        assert_eq!(next_epoch(Some(9), (5 << 40) + 1), Some(10));
        assert_eq!(next_epoch(None, u64::MAX), None);
        assert_eq!(
            block_of(0),
            Block {
                start: 0,
                end: 1 << 40
            }
        );
        assert_eq!(block_of(6).end, block_of(7).start);
        assert!(block_of(EPOCH_MAX).end > block_of(EPOCH_MAX).start);
    }

    #[test]
    fn a_file_survives_and_a_torn_one_is_refused() {
        for epoch in [0, 9, 10, EPOCH_MAX] {
            let text = write_epoch(epoch);
            assert_eq!(read_epoch(&text), Ok(epoch));
            for length in 0..text.len() {
                assert!(read_epoch(&text[..length]).is_err(), "{length} bytes");
            }
            assert!(read_epoch(&format!("{text}x")).is_err());
            assert!(read_epoch(&format!("{text}{text}")).is_err());
        }
        let over = format!("{HEAD}\nepoch {}\n", EPOCH_MAX + 1);
        assert!(
            read_epoch(&over)
                .expect_err("too large")
                .to_string()
                .contains("16777215")
        );
        for text in [
            "",
            "epoch 1\n",
            "trine sequencer 2\nepoch 1\n",
            "trine sequencer 1\nepoch -1\n",
            "trine sequencer 1\nepoch +1\n",
        ] {
            assert!(read_epoch(text).is_err(), "{text:?}");
        }
    }
}
