//! Reasons why a table cannot be built.

use thiserror::Error;

/// A table that cannot be built as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// A prefix is longer than an address.
    #[error("a prefix of {length} bits is longer than an address of {most} bits")]
    PrefixTooLong {
        /// Its length.
        length: u8,
        /// The length of an address.
        most: u8,
    },
    /// A next hop has a number that an entry cannot hold.
    #[error("next hop {hop} is larger than the last one, {most}")]
    HopTooLarge {
        /// Its number.
        hop: u16,
        /// The last one.
        most: u16,
    },
    /// More groups of long prefixes than an entry can name.
    #[error("the prefixes longer than {bits} bits need more than {most} groups")]
    TooManyGroups {
        /// The bits that the first table covers.
        bits: u32,
        /// The limit.
        most: usize,
    },
    /// A cuckoo table found no place for an entry. The table is as it was before.
    #[error("the table is full: no place was found in {kicks} displacements")]
    Full {
        /// Displacements that were tried and undone.
        kicks: usize,
    },
    /// An address or a name that no table takes.
    #[error("{0}")]
    Key(&'static str),
    /// More than the limit in `config.rs`.
    #[error("{what} needs more than {most}")]
    TooMuch {
        /// The part of the table.
        what: &'static str,
        /// The limit.
        most: usize,
    },
}
