//! How far is the group's state, on its way over the network to a replica that has none, or too old a one?

use trine_protocol::status::ReceivingStatus;

use crate::progress::Progress;
use crate::units::show_bytes;

/// Shown from the first look that finds a state on its way until the first that finds none.
pub struct Restoring {
    what: String,
    present: Option<(ReceivingStatus, Progress)>,
}

/// Of this process itself.
impl Default for Restoring {
    fn default() -> Self {
        Self::of("receiving a snapshot")
    }
}

impl Restoring {
    /// In these words.
    pub fn of(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            present: None,
        }
    }

    /// The state stands at `receiving` now.
    pub fn look(&mut self, receiving: Option<ReceivingStatus>) {
        let Some(now) = receiving else {
            self.present = None;
            return;
        };
        let goes_on = |(before, _): &(ReceivingStatus, Progress)| {
            before.bytes <= now.bytes && before.bytes_total == now.bytes_total
        };
        if !self.present.as_ref().is_some_and(goes_on) {
            // Another one: the bar of the one before goes first.
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
