//! The process that a value belongs to.
//!
//! A child of `fork` has a copy of everything that its parent had: sockets, keys, packet counters, sequences of commands.
//! If both sides used them, replicas would take two commands for one, and one packet counter would seal two packets. So
//! whoever owns such things remembers the process that made them, and does nothing in any other.
//!
//! A check is one load from a page that the kernel empties in every child (`MADV_WIPEONFORK`). So it also notices a raw
//! `clone`, which runs no handlers. A kernel without such pages (before Linux 4.14) runs a handler of `pthread_atfork`
//! instead.
//!
//! `vfork` and `posix_spawn` share the parent's memory until the child executes a program, and are not noticed. They
//! need not be: such a child may do nothing else.

mod descriptor;
mod page;

pub use descriptor::DescriptorRef;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process in which a value was made.
///
/// ```
/// use trine_origin::Origin;
///
/// let origin = Origin::here();
/// assert!(origin.is_here());
/// ```
#[derive(Clone, Copy)]
pub struct Origin {
    /// The number of the process that looks; zero in a child that has not asked for one.
    word: &'static AtomicU64,
    /// The number of the process that made this.
    number: u64,
}

impl Origin {
    /// This process.
    #[must_use]
    pub fn here() -> Self {
        let word = page::word();
        Self {
            word,
            number: page::number(word),
        }
    }

    /// Whether the caller is in the process that made this, and not in a child of it. Takes no lock.
    #[inline(always)]
    #[must_use]
    pub fn is_here(&self) -> bool {
        // A child begins with one thread, and the kernel has emptied the page before that runs.
        self.word.load(Ordering::Relaxed) == self.number
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let here = if self.is_here() { "here" } else { "elsewhere" };
        write!(f, "Origin({here})")
    }
}
