//! The damage of a backup file, and where it is.

/// The newest format that this release reads and the one that it writes.
pub const FORMAT: u16 = 1;

/// A kind of damage of a backup file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WhatIsWrong {
    /// The first bytes are other ones.
    #[error("it is no backup of trine's")]
    NoBackup,
    /// A later release has written it.
    #[error("it has format {format}, this release reads formats up to {FORMAT}")]
    Newer {
        /// Its format.
        format: u16,
    },
    /// The header does not have its checksum.
    #[error("the header is damaged")]
    Header,
    /// A frame's length is none.
    #[error("frame {number} is damaged: it cannot be {length} bytes long")]
    Length {
        /// The number of the frame.
        number: u64,
        /// What it says.
        length: u32,
    },
    /// A frame does not have its checksum.
    #[error("frame {number} is damaged: its {length} bytes have another checksum")]
    Frame {
        /// The number of the frame.
        number: u64,
        /// Its length.
        length: u32,
    },
    /// The trailer does not have its checksum, or is of another file.
    #[error("the trailer is damaged, or frames in front of it are missing")]
    Trailer,
    /// The file ends in the midst.
    #[error("the file is cut off here")]
    Cut,
    /// There is something after the end.
    #[error("there are bytes behind the end")]
    Trailing,
}

/// The first damage of a backup file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {offset}: {what}")]
pub struct Damage {
    /// Where the damaged part begins, or where the file ends too early.
    pub offset: u64,
    /// What is wrong.
    pub what: WhatIsWrong,
}
