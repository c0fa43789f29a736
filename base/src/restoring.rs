//! Progress of a replica that gets the group's state.

use trine_protocol::status::ReceivingStatus;

use crate::progress::Progress;
use crate::units::show_bytes;

/// Shown from the first poll that finds a state transfer until the first that finds none.
pub struct Restoring {
    what: String,
    present: Option<(ReceivingStatus, Progress)>,
}

/// For this process itself.
impl Default for Restoring {
    fn default() -> Self {
        Self::of("receiving a snapshot")
    }
}

impl Restoring {
    /// Uses these words.
    pub fn of(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            present: None,
        }
    }

    /// The transfer's progress is now `receiving`.
    pub fn update(&mut self, receiving: Option<ReceivingStatus>) {
        let Some(now) = receiving else {
            self.present = None;
            return;
        };
        let goes_on = |(before, _): &(ReceivingStatus, Progress)| {
            before.bytes <= now.bytes && before.bytes_total == now.bytes_total
        };
        if !self.present.as_ref().is_some_and(goes_on) {
            // This is another transfer; the previous bar goes first.
            self.present = None;
        }
        let begin = || (now, Progress::new(&*self.what, now.bytes_total));
        let (before, progress) = self.present.get_or_insert_with(begin);
        *before = now;
        progress.set(now.bytes, || {
            format!(
                "{} of {}",
                show_bytes(now.bytes),
                show_bytes(now.bytes_total)
            )
        });
    }
}
