//! Takes a pin for a client, renews it in time, and gives it back.
//!
//! Its owners say which reads follow (`pinned.rs`, `counts.rs`, `whole.rs`).

use std::time::Duration;

use trine_kvstore::{Command, Position, Response, StoreError};

use super::operation::Mode;

/// A pin lives three times as long.
pub(super) const RENEW_AFTER: Duration = Duration::from_secs(10);

/// Answers in a row of replicas that have not kept the state. They are asked by rotation, so all of them were by then.
pub(super) const MISSES_MAX: u32 = 16;

/// A pin, from before it is taken until after it was given back.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    mode: Mode,
    stage: PinStage,
    /// The pin's position, or that of the only answer.
    position: Option<Position>,
    /// When the pin was taken or renewed, by the caller's clock.
    renewed_at: Duration,
    misses: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PinStage {
    /// A read without a pin. If it is all there is, none is needed.
    First,
    Pinning,
    Reading,
    Unpinning,
    Over,
}

/// The subject of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// The pin, or a replica that has not kept its state.
    OfPin,
    /// The read without a pin.
    First,
    /// A read at the pin.
    AtPin,
}

/// Why a walk cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PinnedError {
    /// No replica has kept the state of the position: they were restarted, or too much was overwritten meanwhile.
    #[error("no replica has kept the state of position {0}")]
    Gone(Position),
    /// The pin has ended: it was not renewed in time, or all keys were flushed, or the index was given up.
    #[error("the pin of position {0} has ended")]
    Ended(Position),
    /// The store refused.
    #[error(transparent)]
    Refused(#[from] StoreError),
    /// An answer that does not belong to the command.
    #[error("an answer of another kind")]
    Unexpected,
}

impl Hold {
    pub(super) const fn new(mode: Mode, stage: PinStage) -> Self {
        Self {
            mode,
            stage,
            position: None,
            renewed_at: Duration::ZERO,
            misses: 0,
        }
    }

    pub(super) const fn position(&self) -> Option<Position> {
        self.position
    }

    /// Whether all was read.
    pub(super) const fn is_read(&self) -> bool {
        matches!(self.stage, PinStage::Unpinning | PinStage::Over)
    }

    /// The next command: `first` without a pin, `at` a pin.
    pub(super) fn command<'c>(
        &self,
        now: Duration,
        first: impl FnOnce() -> Option<Command<'c>>,
        at: impl FnOnce(Position) -> Option<Command<'c>>,
    ) -> Option<(Mode, Command<'c>)> {
        match (self.stage, self.position) {
            (PinStage::First, _) => Some((self.mode, first()?)),
            (PinStage::Pinning, _) => Some((Mode::Write, Command::Pin)),
            (PinStage::Reading, Some(position)) if self.is_renewal_due(now) => {
                Some((Mode::Write, Command::RenewPin { position }))
            }
            (PinStage::Reading, Some(position)) => {
                let mode = match self.misses {
                    0 => self.mode,
                    _ => Mode::ReadAnywhere,
                };
                Some((mode, at(position)?))
            }
            (PinStage::Unpinning, Some(position)) => {
                Some((Mode::WriteAndClose, Command::Unpin { position }))
            }
            _ => None,
        }
    }

    fn is_renewal_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.renewed_at) >= RENEW_AFTER
    }

    /// Takes what is about the pin itself, and says of the rest what it is.
    ///
    /// # Errors
    /// When nothing can be read at the pin any more.
    pub(super) fn take(
        &mut self,
        now: Duration,
        response: &Response<'_>,
    ) -> Result<Taken, PinnedError> {
        match (self.stage, response) {
            // The pin ends by itself.
            (PinStage::Unpinning, _) => self.stage = PinStage::Over,
            (_, Response::Error(error)) => self.refused(*error)?,
            (PinStage::Pinning | PinStage::Reading, Response::Pinned { position }) => {
                (self.stage, self.position) = (PinStage::Reading, Some(*position));
                self.renewed_at = now;
            }
            (PinStage::First, _) => return Ok(Taken::First),
            (PinStage::Reading, _) => return Ok(Taken::AtPin),
            _ => return Err(PinnedError::Unexpected),
        }
        Ok(Taken::OfPin)
    }

    /// More is to be read than one answer has.
    pub(super) fn pin(&mut self) {
        self.stage = PinStage::Pinning;
    }

    /// The read without a pin was all.
    pub(super) fn end_at(&mut self, at: Position) {
        (self.stage, self.position) = (PinStage::Over, Some(at));
    }

    /// An answer at the pin was taken.
    pub(super) fn was_read(&mut self, is_last: bool) {
        self.misses = 0;
        if is_last {
            self.stage = PinStage::Unpinning;
        }
    }

    fn refused(&mut self, error: StoreError) -> Result<(), PinnedError> {
        let position = self.position.unwrap_or_default();
        match (self.stage, error) {
            (PinStage::Reading, StoreError::PinNotHere) if self.misses < MISSES_MAX => {
                self.misses += 1;
                Ok(())
            }
            (PinStage::Reading, StoreError::PinNotHere) => Err(PinnedError::Gone(position)),
            (PinStage::Reading, StoreError::PinEnded) => Err(PinnedError::Ended(position)),
            (_, error) => Err(error.into()),
        }
    }
}
