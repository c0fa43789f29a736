//! Reads a backup file from bytes that come in any portions, and says where the first damage is.

use super::damage::{Damage, WhatIsWrong};
use super::encoder::Encoder;
use super::header::{self, Header};
use super::{FRAME_BYTES_MAX, FRAME_HEADER, FileProgress, TRAILER};

/// A part of a backup file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// The first one.
    Header(Header),
    /// The content of a frame.
    Frame(Vec<u8>),
    /// The last one: everything was there.
    End,
}

/// Takes bytes, and gives parts.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Bytes that are not taken yet, from `taken` on.
    bytes: Vec<u8>,
    taken: usize,
    /// Some behind the header.
    place: Option<FileProgress>,
    ended: bool,
}

impl Decoder {
    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next part; nothing while there are too few bytes for it.
    ///
    /// # Errors
    /// The next part is damaged. The decoder gives nothing else from then on.
    pub fn part(&mut self) -> Result<Option<Part>, Damage> {
        let offset = self.offset();
        self.next_part().map_err(|what| Damage { offset, what })
    }

    /// Bytes of the parts so far: where the next one begins.
    #[must_use]
    pub fn offset(&self) -> u64 {
        let end = if self.ended { TRAILER as u64 } else { 0 };
        self.place.map_or(0, |place| place.bytes) + end
    }

    /// The file has ended.
    ///
    /// # Errors
    /// It is not whole.
    pub fn finish(&self) -> Result<(), Damage> {
        let left = self.bytes.len() - self.taken;
        let offset = self.offset() + left as u64;
        match self.ended {
            true => Ok(()),
            false => Err(Damage {
                offset,
                what: WhatIsWrong::Cut,
            }),
        }
    }

    /// Writes on behind the frames that were taken; nothing before the header is, or after the end.
    #[must_use]
    pub fn into_encoder(self) -> Option<Encoder> {
        let place = self.place.filter(|_| !self.ended)?;
        Some(Encoder::at(place))
    }

    fn next_part(&mut self) -> Result<Option<Part>, WhatIsWrong> {
        if self.ended {
            return match self.rest().is_empty() {
                true => Ok(None),
                false => Err(WhatIsWrong::Trailing),
            };
        }
        let Some(mut place) = self.place else {
            return self.header();
        };
        let Some(&head) = self.rest().first_chunk::<FRAME_HEADER>() else {
            return Ok(None);
        };
        let [l0, l1, l2, l3, crc @ ..] = head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length == 0 {
            return self.trailer(place);
        }
        let number = place.frames;
        let size = length as usize;
        if size > FRAME_BYTES_MAX {
            return Err(WhatIsWrong::Length { number, length });
        }
        let Some(content) = self.rest().get(FRAME_HEADER..FRAME_HEADER + size) else {
            return Ok(None);
        };
        if place.checksum([l0, l1, l2, l3], content) != crc {
            return Err(WhatIsWrong::Frame { number, length });
        }
        let content = content.to_vec();
        place.pass(head, size);
        self.place = Some(place);
        self.taken += FRAME_HEADER + size;
        Ok(Some(Part::Frame(content)))
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn header(&mut self) -> Result<Option<Part>, WhatIsWrong> {
        let Some(bytes) = self.rest().first_chunk::<{ header::SIZE }>() else {
            return match self.rest().is_empty() || header::may_begin(self.rest()) {
                true => Ok(None),
                false => Err(WhatIsWrong::NoBackup),
            };
        };
        let header = Header::decode(bytes)?;
        self.place = Some(FileProgress::behind(bytes));
        self.taken += header::SIZE;
        Ok(Some(Part::Header(header)))
    }

    fn trailer(&mut self, place: FileProgress) -> Result<Option<Part>, WhatIsWrong> {
        let Some(found) = self.rest().first_chunk::<TRAILER>() else {
            return Ok(None);
        };
        if *found != place.trailer() {
            return Err(WhatIsWrong::Trailer);
        }
        self.taken += TRAILER;
        self.ended = true;
        Ok(Some(Part::End))
    }
}
