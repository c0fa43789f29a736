//! Named data networking: the longest known prefix of an interest's name chooses the port.
//!
//! Frames carry interests in the TLV encoding of NDN (EtherType 0x8624). What follows an interest in its frame is padding.

mod interest;
mod reference;
mod table;

pub use interest::{Name, encode};
pub use reference::{NamesReference, NamesTraffic, random_names};
pub use table::{NameTable, Prefix};

use crate::application::Application;
use crate::error::TableError;
use crate::verdict::{Reason, Verdict};
use std::future::Future;
use trine_transport::prng::Prng;

/// The application.
pub struct Names {
    table: NameTable,
}

impl Names {
    /// A forwarder that knows these prefixes.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a prefix does not fit the table.
    pub fn new(prefixes: &[Prefix], prng: &mut Prng) -> Result<Self, TableError> {
        Ok(Self {
            table: NameTable::build(prefixes, prng)?,
        })
    }
}

impl Application for Names {
    #[inline(always)]
    fn handle<'a, const N: usize>(
        &'a self,
        frame: &'a mut [u8],
    ) -> impl Future<Output = Verdict> + 'a {
        async move {
            let name = match Name::parse(frame, self.table.seed()) {
                Ok(name) => name,
                Err(reason) => return Verdict::Drop(reason),
            };
            match self.table.find_longest::<N>(&name).await {
                Some(port) => Verdict::Forward(port),
                None => Verdict::Drop(Reason::Unknown),
            }
        }
    }
}
