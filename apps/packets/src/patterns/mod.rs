//! Pattern matching: a packet whose content contains a pattern is dropped, the others leave by the first port.

mod dfa;
mod reference;

pub use dfa::Dfa;
pub use reference::{PatternsReference, PatternsTraffic, random_patterns};

use crate::application::Application;
use crate::error::TableError;
use crate::frame::ETHERNET;
use crate::verdict::{Reason, Verdict};
use std::future::Future;

/// The application.
pub struct Patterns {
    dfa: Dfa,
}

impl Patterns {
    /// A filter for these patterns.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a pattern is empty or too long, or if they need too many states.
    pub fn new<P: AsRef<[u8]>>(patterns: &[P]) -> Result<Self, TableError> {
        Ok(Self {
            dfa: Dfa::build(patterns)?,
        })
    }
}

impl Application for Patterns {
    #[inline(always)]
    fn handle<'a, const N: usize>(
        &'a self,
        frame: &'a mut [u8],
    ) -> impl Future<Output = Verdict> + 'a {
        async move {
            let Some(content) = frame.get(ETHERNET..) else {
                return Verdict::Drop(Reason::Short);
            };
            match self.dfa.is_match::<N>(content).await {
                true => Verdict::Drop(Reason::Matched),
                false => Verdict::Forward(0),
            }
        }
    }
}
