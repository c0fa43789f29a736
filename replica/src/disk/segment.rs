//! Segment files: a header sector, then frames; and the rule that tells an unfinished write from damage.

use super::error::{LostMemory, OpenError};
use super::frame::{SECTOR, Sector, read, sectors_of};
use trine_kvstore::checksum::crc32c;

/// Newest format of the files.
pub(crate) const FORMAT: u16 = 1;
const MAGIC: &[u8; 8] = b"trinelog";
/// The part that the header's checksum covers, and where the checksum is. Every format has it there, or damage could
/// not be told from a newer format.
const SUMMED: usize = 32;
const PREFIX: &str = "segment-";
const SUFFIX: &str = ".log";

/// The name of a segment.
pub(crate) fn name(number: u64) -> String {
    format!("{PREFIX}{number:016x}{SUFFIX}")
}

/// The number in a segment's name.
pub(crate) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    // Nothing but what `name` writes: no sign, no capitals.
    let number = u64::from_str_radix(digits, 16).ok()?;
    (self::name(number) == name).then_some(number)
}

/// The first sector of a segment of that many sectors, itself included.
pub(crate) fn header(number: u64, sectors: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(SECTOR);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&[0; 6]);
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&sectors.to_le_bytes());
    assert_eq!(out.len(), SUMMED, "the checksum covers what is before it");
    let crc = crc32c([&out]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.resize(SECTOR, 0);
    out
}

fn check_header(bytes: &[u8], number: u64, file: &str) -> Result<(), OpenError> {
    let lost = |what: &str| Err(LostMemory::new(file, what).into());
    let Some(found) = bytes.get(..SECTOR) else {
        return lost("it is shorter than its header");
    };
    let format = u16::from_le_bytes([found[8], found[9]]);
    let crc = found[SUMMED..].first_chunk().copied();
    let intact = crc == Some(crc32c([&found[..SUMMED]]).to_le_bytes());
    if found[..8] == *MAGIC && intact && format > FORMAT {
        return Err(OpenError::Newer {
            file: file.to_owned(),
            found: format,
            known: FORMAT,
        });
    }
    if !bytes.len().is_multiple_of(SECTOR) || found != header(number, (bytes.len() / SECTOR) as u64)
    {
        return lost("its header is damaged, or its end is missing");
    }
    Ok(())
}

/// Walks over the frames of all segments, in order.
#[derive(Default)]
pub(crate) struct Scan {
    /// The sequence that the next frame has to have; nothing before the first one.
    pub(crate) expected: Option<u64>,
    /// A frame is incomplete: nothing may come after it.
    torn: bool,
    /// The segment before this one, and its first sector that holds no complete frame.
    before: Option<(String, usize)>,
    /// The contents of the present frame.
    content: Vec<u8>,
}

/// Where a segment's complete frames end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentEnd {
    /// The first sector of the last complete frame; `sector` if there is none.
    pub(crate) last_frame: usize,
    /// The first sector that holds no complete frame.
    pub(crate) sector: usize,
    /// Sectors up to here hold parts of a frame that was never complete.
    pub(crate) torn_until: usize,
}

impl Scan {
    /// Takes the next segment and hands out its complete frames.
    pub(crate) fn segment(
        &mut self,
        bytes: &[u8],
        number: u64,
        file: &str,
        mut frame: impl FnMut(&[u8]) -> Result<(), LostMemory>,
    ) -> Result<SegmentEnd, OpenError> {
        check_header(bytes, number, file)?;
        let total = bytes.len() / SECTOR;
        let (mut at, mut last_frame) = (1, None);
        while !self.torn && at < total {
            let Some(next) = self.frame_at(bytes, number, at) else {
                break;
            };
            frame(&self.content)?;
            last_frame = Some(at);
            at = next;
        }
        let torn_until = self.check_tail(bytes, number, file, at)?;
        assert!(
            (at..=total).contains(&torn_until),
            "the tail is in the segment"
        );
        self.torn |= torn_until > at;
        self.before = Some((file.to_owned(), at));
        Ok(SegmentEnd {
            last_frame: last_frame.unwrap_or(at),
            sector: at,
            torn_until,
        })
    }

    /// Puts the frame together that begins at sector `at`, if all of it is there; the sector after it.
    fn frame_at(&mut self, bytes: &[u8], segment: u64, at: usize) -> Option<usize> {
        let total = bytes.len() / SECTOR;
        let Sector::Valid {
            sequence,
            frame_bytes,
            number: 0,
            ..
        } = read(bytes, segment, at)
        else {
            return None;
        };
        let count = sectors_of(frame_bytes);
        if self.expected.is_some_and(|expected| expected != sequence) || at + count > total {
            return None;
        }
        self.content.clear();
        for place in 0..count {
            match read(bytes, segment, at + place) {
                Sector::Valid {
                    sequence: own,
                    frame_bytes: all,
                    number,
                    content,
                } if own == sequence && all == frame_bytes && number == place => {
                    self.content.extend_from_slice(content);
                }
                _ => return None,
            }
        }
        self.content.truncate(frame_bytes);
        self.expected = Some(sequence + 1);
        Some(at + count)
    }

    /// After the complete frames there may be sectors of the next one, and nothing else. A frame further on shows that
    /// those in front of it are gone: the damage is where they were, which may be in the segment before.
    fn check_tail(
        &self,
        bytes: &[u8],
        segment: u64,
        file: &str,
        from: usize,
    ) -> Result<usize, OpenError> {
        let mut torn_until = from;
        for at in from..bytes.len() / SECTOR {
            let fits = match read(bytes, segment, at) {
                Sector::Zero => continue,
                Sector::Valid {
                    sequence, number, ..
                } => {
                    !self.torn
                        && number == at - from
                        && self.expected.is_none_or(|expected| expected == sequence)
                }
                Sector::Damaged => false,
            };
            if !fits {
                let is_intact = matches!(read(bytes, segment, at), Sector::Valid { .. });
                let (file, sector) = match &self.before {
                    _ if !is_intact => (file, at),
                    Some((before, sector)) if at == 1 => (&**before, *sector),
                    _ => (file, torn_until),
                };
                let offset = sector * SECTOR;
                let what = format!("damaged at byte {offset}: no unfinished write leaves this");
                return Err(LostMemory::new(file, what).into());
            }
            torn_until = at + 1;
        }
        Ok(torn_until)
    }
}
