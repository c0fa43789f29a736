//! The automaton of Aho and Corasick with all its transitions in one table: a state is a row of 256 entries.
//!
//! States are numbered by their depth. So those near the root, where most content stays, lie together, and a lookup waits
//! for the others alone.

use crate::config::{PATTERN_BYTES, STATES_MAX, STATES_NEAR};
use crate::error::TableError;
use std::future::Future;
use trine_kvstore::interleave::fetch;
use trine_kvstore::memory::Region;

const ROW: usize = 256;
const ROOT: u32 = 0;
/// The state that an entry leads to ends a pattern.
const MATCH: u32 = 1 << 31;
/// States for which room is made at a time, 2 MiB.
const STATES_STEP: usize = 2_048;

/// The automaton.
pub struct Dfa {
    next: Region<u32>,
    states: usize,
}

/// What is known of a state while the automaton is built.
#[derive(Copy, Clone)]
struct Origin {
    parent: u32,
    byte: u8,
    /// Whether a pattern ends here, or in the state of a suffix.
    ends: bool,
    /// The state of the longest proper suffix.
    failure: u32,
}

impl Dfa {
    /// Builds the automaton of some patterns.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a pattern is empty or too long, or if they need too many states.
    pub fn build<P: AsRef<[u8]>>(patterns: &[P]) -> Result<Self, TableError> {
        let lengths = patterns.iter().map(|pattern| pattern.as_ref().len());
        if !lengths
            .clone()
            .all(|length| PATTERN_BYTES.contains(&length))
        {
            return Err(TableError::Key("a pattern has 1 to 256 bytes"));
        }
        let mut dfa = Self {
            next: Region::empty(),
            states: 0,
        };
        let root = Origin {
            parent: ROOT,
            byte: 0,
            ends: false,
            failure: ROOT,
        };
        let mut origins = Vec::new();
        dfa.add(&mut origins, root)?;
        let mut at = vec![ROOT; patterns.len()];
        for depth in 0..lengths.max().unwrap_or(0) {
            for (pattern, at) in patterns.iter().zip(&mut at) {
                let pattern = pattern.as_ref();
                if let Some(&byte) = pattern.get(depth) {
                    *at = dfa.child(&mut origins, *at, byte)?;
                    origins[*at as usize].ends |= depth + 1 == pattern.len();
                }
            }
        }
        dfa.close(&mut origins);
        dfa.mark(&origins);
        Ok(dfa)
    }

    fn add(&mut self, origins: &mut Vec<Origin>, origin: Origin) -> Result<u32, TableError> {
        if self.states == STATES_MAX {
            let (what, most) = ("the automaton of the patterns", STATES_MAX);
            return Err(TableError::TooMuch { what, most });
        }
        if self.states.is_multiple_of(STATES_STEP) {
            self.next.grow_to((self.states + STATES_STEP) * ROW);
        }
        origins.push(origin);
        self.states += 1;
        Ok((self.states - 1) as u32)
    }

    /// The state behind `parent`, made if there is none. No transition of the trie leads to the root: 0 is none.
    fn child(
        &mut self,
        origins: &mut Vec<Origin>,
        parent: u32,
        byte: u8,
    ) -> Result<u32, TableError> {
        let entry = index(parent, byte);
        if self.next[entry] == ROOT {
            let origin = Origin {
                parent,
                byte,
                ends: false,
                failure: ROOT,
            };
            self.next[entry] = self.add(origins, origin)?;
        }
        Ok(self.next[entry])
    }

    /// Gives every state a transition for every byte. Parents and suffixes are less deep, so they come first.
    fn close(&mut self, origins: &mut [Origin]) {
        for state in 1..self.states {
            let Origin { parent, byte, .. } = origins[state];
            let failure = match parent {
                ROOT => ROOT,
                parent => self.next[index(origins[parent as usize].failure, byte)],
            };
            let ends = origins[failure as usize].ends;
            let origin = &mut origins[state];
            origin.failure = failure;
            origin.ends |= ends;
            let (before, from) = self.next.split_at_mut(state * ROW);
            let suffix = &before[failure as usize * ROW..][..ROW];
            for (entry, next) in from[..ROW].iter_mut().zip(suffix) {
                if *entry == ROOT {
                    *entry = *next;
                }
            }
        }
    }

    /// Marks the transitions to states that end a pattern.
    fn mark(&mut self, origins: &[Origin]) {
        for entry in &mut self.next[..self.states * ROW] {
            if origins[*entry as usize].ends {
                *entry |= MATCH;
            }
        }
    }

    /// How many states there are, a KiB each.
    #[must_use]
    pub fn states(&self) -> usize {
        self.states
    }

    /// The entry for a state and the next byte.
    #[inline(always)]
    #[must_use]
    pub fn entry(&self, state: u32, byte: u8) -> &u32 {
        &self.next[index(state, byte)]
    }

    /// Whether an entry leads to the end of a pattern.
    #[inline(always)]
    #[must_use]
    pub fn ends(entry: u32) -> bool {
        entry & MATCH != 0
    }

    /// Whether the content contains a pattern.
    #[inline(always)]
    pub fn is_match<const N: usize>(&self, content: &[u8]) -> impl Future<Output = bool> {
        async move {
            let mut state = ROOT;
            for &byte in content {
                let place = self.entry(state, byte);
                if state >= STATES_NEAR {
                    fetch(place).await;
                }
                state = *place;
                if Self::ends(state) {
                    return true;
                }
            }
            false
        }
    }
}

#[inline(always)]
fn index(state: u32, byte: u8) -> usize {
    state as usize * ROW + usize::from(byte)
}
