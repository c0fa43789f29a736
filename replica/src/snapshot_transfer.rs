//! The whole replicated state on its way to a replica that the log can no longer help.
//!
//! Raft's own snapshot message carries metadata only. The state travels in front of it in chunks, each answered before
//! the next one leaves, so a lost chunk is simply retransmitted. Chunk 0 is the raft message, which the receiver steps
//! once it holds everything. The others are the [`Image`].

mod image;
mod incoming;
mod outgoing;

#[cfg(test)]
pub(crate) use image::checksum;
pub(crate) use image::{Image, ImageReader, Piece};
pub(crate) use incoming::{Incoming, ended};
pub(crate) use outgoing::{Outgoing, TransferState};
