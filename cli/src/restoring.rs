//! How far is the group's state, on its way over the network to a replica that has none, or too old a one?

use trine_replica::status::ReceivingStatus;

use crate::progress::Progress;
use crate::units::show_bytes;

/// Shown from the first look that finds a state on its way until the first that finds none.
#[derive(Default)]
pub(crate) struct Restoring(Option<(ReceivingStatus, Progress)>);

impl Restoring {
    /// The state stands at `receiving` now.
    pub(crate) fn look(&mut self, receiving: Option<ReceivingStatus>) {
        let Some(now) = receiving else {
            self.0 = None;
            return;
        };
        let goes_on = |(before, _): &(ReceivingStatus, Progress)| {
            before.bytes <= now.bytes && before.bytes_total == now.bytes_total
        };
        if !self.0.as_ref().is_some_and(goes_on) {
            // Another one: the bar of the one before goes first.
            self.0 = None;
        }
        let begin = || (now, Progress::new("receiving a snapshot", now.bytes_total));
        let (before, progress) = self.0.get_or_insert_with(begin);
        *before = now;
        progress.set(now.bytes, || {
            format!(
                "{} of {}",
                show_bytes(now.bytes),
                show_bytes(now.bytes_total)
            )
        });
    }

    /// Prints something above the bar, if there is one.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        match &self.0 {
            Some((_, progress)) => progress.suspend(print),
            None => print(),
        }
    }
}
