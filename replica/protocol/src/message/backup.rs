//! A backup: a replica makes an image of its state, and the caller reads it piece by piece.

use super::MESSAGE_VERSION;
use super::codec::{DecodeError, Encode, Reader, Writer, sentence};
use super::ids::ClusterId;

/// Pieces behind the first one that the caller still needs that it may ask for. The replica holds no more than these.
pub const BACKUP_WINDOW: u32 = 8;
/// Bytes in front of a piece in a reply.
pub const BACKUP_PIECE_HEADER_SIZE: usize = 4;

const BEGIN: u8 = 1;
const PIECE: u8 = 2;
const END: u8 = 3;

/// The wish of a backup's caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BackupStep {
    /// An image of the state after at least this entry.
    Begin {
        /// The index of the entry.
        at_least: u64,
    },
    /// A piece of an image.
    Piece {
        /// The image.
        image: u64,
        /// Which piece, from 0.
        number: u32,
        /// The first piece that the caller does not have yet: those in front of it will not be asked for again. At
        /// most [`BACKUP_WINDOW`] below `number`.
        needed_from: u32,
    },
    /// The image is not needed any more.
    End {
        /// The image.
        image: u64,
    },
}

/// A request about a backup.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BackupRequest {
    /// The cluster that the caller means.
    pub cluster: ClusterId,
    /// What it wants.
    pub step: BackupStep,
}

impl BackupRequest {
    /// Bytes of every request.
    const SIZE: usize = 28;

    /// Reads a request.
    ///
    /// # Errors
    /// When its length, version or a field is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let step = reader.u8()?;
        reader.skip::<2>()?;
        let cluster = ClusterId(reader.u64()?);
        let (value, number, needed_from) = (reader.u64()?, reader.u32()?, reader.u32()?);
        reader.finish()?;
        let step = match step {
            BEGIN => BackupStep::Begin { at_least: value },
            PIECE => BackupStep::Piece {
                image: value,
                number,
                needed_from,
            },
            END => BackupStep::End { image: value },
            _ => return Err(DecodeError::Field { field: "step" }),
        };
        Ok(Self { cluster, step })
    }
}

impl Encode for BackupRequest {
    fn encoded_len(&self) -> usize {
        Self::SIZE
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let (step, value, number, needed_from) = match self.step {
            BackupStep::Begin { at_least } => (BEGIN, at_least, 0, 0),
            BackupStep::Piece {
                image,
                number,
                needed_from,
            } => (PIECE, image, number, needed_from),
            BackupStep::End { image } => (END, image, 0, 0),
        };
        out.u8(MESSAGE_VERSION);
        out.u8(step);
        out.zeros(2);
        out.u64(self.cluster.0);
        out.u64(value);
        out.u32(number);
        out.u32(needed_from);
    }
}

/// The state that an image is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BackupHead {
    /// Names the image to the replica that holds it. No other replica has an image of this name.
    pub image: u64,
    /// The group.
    pub cluster: ClusterId,
    /// The last entry that the state holds.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// Group time in nanoseconds.
    pub group_time_ns: u64,
    /// Items in it.
    pub items: u64,
    /// Bytes of its keys and values, with what the memory limit counts for each item.
    pub logical_bytes: u64,
    /// The state-machine version that the group runs.
    pub state_version: u8,
    /// Users in it.
    pub users: u32,
}

/// The answer to a [`BackupRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackupReply<'a> {
    /// The image is there.
    Begun(BackupHead),
    /// Not yet: ask again after a pause. The text says why.
    Later(&'a str),
    /// A piece of it.
    Piece {
        /// Whether it is the last one.
        last: bool,
        /// The piece; nothing of one behind the last.
        bytes: &'a [u8],
    },
    /// The image is not there, or not any more: begin again. The text says why.
    Gone(&'a str),
    /// This will not be. The text says why.
    Refused(&'a str),
    /// The caller has no right to it. The text says what is missing.
    Denied(&'a str),
    /// The image was given up as the caller wished.
    Ended,
}

/// Bytes of [`BackupReply::Begun`].
const HEAD_SIZE: usize = 4 + 7 * 8 + 4;

impl<'a> BackupReply<'a> {
    /// Reads a reply.
    ///
    /// # Errors
    /// When it is cut short, of another version, or a field has no meaning.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let (status, field) = (reader.u8()?, reader.array::<2>()?);
        let detail = field[0];
        let text = |mut reader: Reader<'a>| reader.text(u16::from_le_bytes(field));
        Ok(match status {
            0 => {
                let head = BackupHead {
                    image: reader.u64()?,
                    cluster: ClusterId(reader.u64()?),
                    index: reader.u64()?,
                    term: reader.u64()?,
                    group_time_ns: reader.u64()?,
                    items: reader.u64()?,
                    logical_bytes: reader.u64()?,
                    state_version: detail,
                    users: reader.u32()?,
                };
                Self::Begun(head)
            }
            1 => Self::Later(text(reader)?),
            2 if detail <= 1 && field[1] == 0 => Self::Piece {
                last: detail == 1,
                bytes: reader.rest(),
            },
            3 => Self::Gone(text(reader)?),
            4 => Self::Refused(text(reader)?),
            6 => Self::Denied(text(reader)?),
            5 => Self::Ended,
            _ => return Err(DecodeError::Field { field: "status" }),
        })
    }
}

impl<'a> Encode for BackupReply<'a> {
    fn encoded_len(&self) -> usize {
        match self {
            Self::Begun(_) => HEAD_SIZE,
            Self::Later(text) | Self::Gone(text) | Self::Refused(text) | Self::Denied(text) => {
                4 + sentence(text).1.len()
            }
            Self::Piece { bytes, .. } => BACKUP_PIECE_HEADER_SIZE + bytes.len(),
            Self::Ended => 4,
        }
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let says = |status: u8, text: &'a str| {
            let (len, text) = sentence(text);
            (status, len, text.as_bytes())
        };
        let (status, field, rest): (u8, u16, &[u8]) = match self {
            Self::Begun(head) => (0, u16::from(head.state_version), &[]),
            Self::Later(text) => says(1, text),
            Self::Piece { last, bytes } => (2, u16::from(*last), bytes),
            Self::Gone(text) => says(3, text),
            Self::Refused(text) => says(4, text),
            Self::Denied(text) => says(6, text),
            Self::Ended => (5, 0, &[]),
        };
        out.u8(MESSAGE_VERSION);
        out.u8(status);
        out.u16(field);
        out.bytes(rest);
        if let Self::Begun(head) = self {
            out.u64(head.image);
            out.u64(head.cluster.0);
            out.u64(head.index);
            out.u64(head.term);
            out.u64(head.group_time_ns);
            out.u64(head.items);
            out.u64(head.logical_bytes);
            out.u32(head.users);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_are_pinned() {
        let request = BackupRequest {
            cluster: ClusterId(0x0102),
            step: BackupStep::Piece {
                image: 9,
                number: 7,
                needed_from: 5,
            },
        };
        let bytes = request.encode_to_vec();
        let mut expected = vec![1, 2, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
        expected.extend([9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(bytes, expected);
        assert_eq!(BackupRequest::decode(&bytes), Ok(request));
        let begun = BackupReply::Begun(BackupHead {
            image: 1,
            cluster: ClusterId(2),
            index: 3,
            term: 4,
            group_time_ns: 5,
            items: 6,
            logical_bytes: 7,
            state_version: 8,
            users: 9,
        });
        let bytes = begun.encode_to_vec();
        let mut expected = vec![1, 0, 8, 0];
        (1..=7u64).for_each(|field| expected.extend(field.to_le_bytes()));
        expected.extend([9, 0, 0, 0]);
        assert_eq!(bytes, expected);
        assert_eq!(BackupReply::decode(&bytes), Ok(begun));
        let piece = BackupReply::Piece {
            last: true,
            bytes: b"xy",
        };
        assert_eq!(piece.encode_to_vec(), [1, 2, 1, 0, b'x', b'y']);
    }

    #[test]
    fn every_step_and_reply_survives_and_others_are_refused() {
        for step in [
            BackupStep::Begin { at_least: 77 },
            BackupStep::Piece {
                image: 1,
                number: 2,
                needed_from: 1,
            },
            BackupStep::End { image: 3 },
        ] {
            let request = BackupRequest {
                cluster: ClusterId(5),
                step,
            };
            let mut bytes = request.encode_to_vec();
            assert_eq!(BackupRequest::decode(&bytes), Ok(request));
            assert!(BackupRequest::decode(&bytes[..27]).is_err());
            bytes[1] = 4;
            assert!(BackupRequest::decode(&bytes).is_err());
        }
        for reply in [
            BackupReply::Later("not yet"),
            BackupReply::Gone("why"),
            BackupReply::Refused("no"),
            BackupReply::Denied("not you"),
            BackupReply::Ended,
            BackupReply::Piece {
                last: false,
                bytes: b"",
            },
        ] {
            let mut bytes = reply.encode_to_vec();
            assert_eq!(BackupReply::decode(&bytes), Ok(reply));
            if !matches!(reply, BackupReply::Piece { .. }) {
                bytes.extend(b"of a later release");
                assert_eq!(BackupReply::decode(&bytes), Ok(reply));
            }
        }
        for bytes in [
            &[1, 7, 0, 0][..],
            &[1, 2, 2, 0],
            &[1, 2, 1, 7],
            &[1, 5],
            &[1, 4],
        ] {
            assert!(BackupReply::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
