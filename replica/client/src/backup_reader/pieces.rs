//! The pieces of an image: which ones are to be asked for, and which ones have come.
//!
//! Invariant: at most `BACKUP_WINDOW` pieces are asked for beyond those that the caller has taken. Each piece that was
//! asked for has come, is under way, or is to be asked for again.

use std::collections::{BTreeMap, VecDeque};

use trine_canary as canary;
use trine_protocol::message::{BACKUP_WINDOW, BackupStep};

/// A piece of the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Which one, from 0.
    pub number: u32,
    /// Whether it is the last one.
    pub last: bool,
    /// The piece.
    pub bytes: Vec<u8>,
}

pub(super) struct Pieces {
    image: u64,
    /// Pieces that the caller has.
    taken: u32,
    /// Pieces to ask for now, once more.
    again: VecDeque<u32>,
    /// The first piece that was never asked for.
    next: u32,
    /// The number of pieces, once that is known.
    count: Option<u32>,
    arrived: BTreeMap<u32, Piece>,
}

impl Pieces {
    /// The pieces from `number` on.
    pub(super) fn from(image: u64, number: u32) -> Self {
        let skips = number > 0 && canary::planted("a resumed backup skips a piece");
        let number = number + u32::from(skips);
        Self {
            image,
            taken: number,
            again: VecDeque::new(),
            next: number,
            count: None,
            arrived: BTreeMap::new(),
        }
    }

    pub(super) const fn image(&self) -> u64 {
        self.image
    }

    /// Whether the next piece is here.
    pub(super) fn has_next(&self) -> bool {
        self.arrived.contains_key(&self.taken)
    }

    /// The next piece, if it is here.
    pub(super) fn take(&mut self) -> Option<Piece> {
        let piece = self.arrived.remove(&self.taken)?;
        self.taken += 1;
        assert!(self.taken <= self.next, "what has come was asked for");
        Some(piece)
    }

    /// The piece to ask for now, and how.
    pub(super) fn wanted(&self) -> Option<(u32, BackupStep)> {
        let in_window = self.next - self.taken < BACKUP_WINDOW;
        let exists = self.count.is_none_or(|count| self.next < count);
        let new = || (in_window && exists).then_some(self.next);
        let number = self.again.front().copied().or_else(new)?;
        let step = BackupStep::Piece {
            image: self.image,
            number,
            needed_from: self.taken,
        };
        Some((number, step))
    }

    /// That one was asked for.
    pub(super) fn on_asked(&mut self, number: u32) {
        match self.again.front() {
            Some(&first) if first == number => drop(self.again.pop_front()),
            _ => self.next += 1,
        }
        assert!(
            self.next - self.taken <= BACKUP_WINDOW,
            "no more are asked for"
        );
    }

    /// The replica did not have this piece yet.
    pub(super) fn ask_again(&mut self, number: u32) {
        self.again.push_back(number);
    }

    pub(super) fn on_piece(&mut self, number: u32, last: bool, bytes: &[u8]) {
        // There is none: it was asked for before the end was known.
        if bytes.is_empty() {
            return;
        }
        if last {
            self.count = Some(number + 1);
        }
        if number >= self.taken {
            let bytes = bytes.to_vec();
            let piece = Piece {
                number,
                last,
                bytes,
            };
            self.arrived.insert(number, piece);
        }
    }
}
