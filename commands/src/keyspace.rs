//! SCAN, KEYS, RANDOMKEY, FLUSHALL and FLUSHDB: commands about all keys.
//!
//! The first three are walks of the store, a page at a time. SCAN's reply is one page. KEYS and RANDOMKEY ask for pages
//! until they are done, and other clients get their turns in between. A user with a prefix walks below that alone.
//! No walk is part of a transaction, and no flush, because the store takes neither among other operations.

use trine_kvstore::config::{WALK_BYTES_MAX, WALK_ITEMS_MAX};
use trine_kvstore::{Command, Cursor, Found, Page, Prefix, WalkContent, integer};

use crate::errors::{NO_ANSWER, NOT_AN_INTEGER, Refusal, SYNTAX};
use crate::limits::KEYS_BYTES_MAX;
use crate::pattern::Pattern;
use crate::plan::Item;
use crate::reply::Writer;
use crate::shape::Shape;

const INVALID_CURSOR: &str = "ERR invalid cursor";
/// How many items SCAN looks at unless it is told.
const SCAN_COUNT: u32 = 10;
/// How many items RANDOMKEY chooses from.
const RANDOM_COUNT: u32 = 32;
/// About the bytes of a key in a page.
const KEY_BYTES: usize = 64;
/// Bytes by which the next page may exceed the last one.
const SPARE_BYTES: usize = 4096;

/// A walk and what it is for.
#[derive(Debug)]
pub struct Walk {
    aim: Aim,
    /// Only keys that begin with this are asked for.
    prefix: Vec<u8>,
    /// Only keys that fit are told.
    pattern: Option<Pattern>,
    from: Cursor,
    count: u32,
    /// About the bytes of the next page.
    page_bytes: usize,
}

#[derive(Debug)]
enum Aim {
    /// One page. `hides`: only keys of a type that none has are asked for.
    Scan { hides: bool },
    /// All keys: so far these, as bulk strings.
    Keys { reply: Vec<u8>, count: usize },
    /// Any one key, chosen by the dice. `wrapped`: the walk has begun anywhere, and again at the start.
    Any { dice: u64, wrapped: bool },
}

/// The words of SCAN.
struct Scan {
    from: Cursor,
    pattern: Option<Pattern>,
    count: u32,
    hides: bool,
}

impl Scan {
    fn read(words: &[&[u8]]) -> Result<Self, Refusal> {
        let mut scan = Self {
            from: cursor(words[0]).ok_or(INVALID_CURSOR)?,
            pattern: None,
            count: SCAN_COUNT,
            hides: false,
        };
        // Made once, behind the loop: a line of a thousand patterns would cost a thousand times as much.
        let mut matched = None;
        for option in words[1..].chunks(2) {
            let [name, value] = option else {
                return Err(SYNTAX.to_owned());
            };
            match name.to_ascii_lowercase().as_slice() {
                b"match" => matched = Some(*value),
                b"count" => {
                    let count = integer(value).ok_or(NOT_AN_INTEGER)?;
                    if count < 1 {
                        return Err(SYNTAX.to_owned());
                    }
                    scan.count = u32::try_from(count).unwrap_or(u32::MAX);
                }
                b"type" => scan.hides = !value.eq_ignore_ascii_case(b"string"),
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        scan.pattern = matched.map(pattern).transpose()?;
        Ok(scan)
    }
}

/// The cursor that a client has sent.
fn cursor(text: &[u8]) -> Option<Cursor> {
    let is_digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(text).ok().filter(|_| is_digits)?;
    Cursor::new(number.parse().ok()?)
}

fn pattern(text: &[u8]) -> Result<Pattern, Refusal> {
    Pattern::new(text).map_err(|why| format!("ERR {why}"))
}

/// A walk of a client that may know of keys that begin with `own`.
pub enum Begun {
    /// It has a page to ask for.
    Walk(Box<Walk>),
    /// No key there can fit: the reply is written.
    Replied,
}

impl Walk {
    /// SCAN, or what its reply is at once.
    pub fn scan(words: &[&[u8]], own: &[u8], writer: &mut Writer<'_>) -> Result<Begun, Refusal> {
        let scan = Scan::read(words)?;
        let aim = Aim::Scan { hides: scan.hides };
        Ok(
            match Self::new(aim, scan.pattern, own, scan.from, scan.count) {
                Some(walk) => Begun::Walk(walk),
                None => {
                    write_scan(Cursor::START, &[], 0, writer);
                    Begun::Replied
                }
            },
        )
    }

    /// KEYS, or what its reply is at once.
    pub fn keys(text: &[u8], own: &[u8], writer: &mut Writer<'_>) -> Result<Begun, Refusal> {
        let (reply, count) = (Vec::new(), 0);
        let aim = Aim::Keys { reply, count };
        let pattern = Some(pattern(text)?);
        Ok(
            match Self::new(aim, pattern, own, Cursor::START, WALK_ITEMS_MAX) {
                Some(walk) => Begun::Walk(walk),
                None => {
                    writer.array(0);
                    Begun::Replied
                }
            },
        )
    }

    /// RANDOMKEY. The store begins at a place that depends on the seeds. A key after a large gap is chosen more often than
    /// others, as in Redis one in a short chain is.
    pub fn any(seeds: [u64; 3], own: &[u8]) -> Box<Self> {
        let [time, id, commands] = seeds;
        let dice = spread(time ^ spread(id ^ spread(commands)));
        let wrapped = false;
        let aim = Aim::Any { dice, wrapped };
        Self::new(aim, None, own, Cursor::anywhere(dice), RANDOM_COUNT)
            .expect("without a pattern every key fits")
    }

    /// A walk over keys that begin with `own`; none if no key there can fit the pattern.
    fn new(
        aim: Aim,
        pattern: Option<Pattern>,
        own: &[u8],
        from: Cursor,
        count: u32,
    ) -> Option<Box<Self>> {
        let asked = pattern.as_ref().map_or(&[][..], Pattern::prefix);
        let prefix = match (asked.starts_with(own), own.starts_with(asked)) {
            (true, _) => asked,
            (false, true) => own,
            (false, false) => return None,
        };
        let count = count.min(WALK_ITEMS_MAX);
        Some(Box::new(Self {
            aim,
            prefix: prefix.to_vec(),
            pattern,
            from,
            count,
            page_bytes: (count as usize + 1) * KEY_BYTES,
        }))
    }

    /// The command that asks for the next page.
    pub fn command(&self) -> Command<'_> {
        Command::Walk {
            from: self.from,
            count: self.count,
            content: WalkContent::Keys,
            prefix: Prefix(&self.prefix),
        }
    }

    /// About the bytes of the next page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Takes a page. The walk goes on, or the reply is written.
    pub fn on_page(
        mut self: Box<Self>,
        page: &Page<'_>,
        writer: &mut Writer<'_>,
    ) -> Option<Box<Self>> {
        let Found::Keys(keys) = &page.found else {
            writer.error(NO_ANSWER);
            return None;
        };
        let fits = |key: &&[u8]| {
            self.pattern
                .as_ref()
                .is_none_or(|pattern| pattern.fits(key))
        };
        let ended = page.next == Cursor::START;
        let mut bytes = 0;
        let all = keys.iter().inspect(|key| bytes += key.len());
        match &mut self.aim {
            Aim::Scan { hides } => {
                let is_told = |key: &&[u8]| !*hides && fits(key);
                let (reply, count) = bulks(all.filter(is_told));
                write_scan(page.next, &reply, count, writer);
                return None;
            }
            Aim::Keys { reply, count } => {
                let (more, found) = bulks(all.filter(fits));
                reply.extend_from_slice(&more);
                *count += found;
                if reply.len() > KEYS_BYTES_MAX {
                    writer.error(&format!(
                        "ERR the reply to KEYS would be larger than {KEYS_BYTES_MAX} bytes: use SCAN"
                    ));
                    return None;
                }
                if ended {
                    writer.array(*count);
                    writer.encoded(reply);
                    return None;
                }
            }
            Aim::Any { dice, wrapped } => {
                let chosen = (*dice % keys.len().max(1) as u64) as usize;
                if let Some(key) = keys.iter().nth(chosen) {
                    writer.bulk(key);
                    return None;
                }
                if ended && *wrapped {
                    writer.null();
                    return None;
                }
                *wrapped |= ended;
                // None of the few is there: below a prefix keys may be rare, and pages as large as can be find one sooner.
                self.count = WALK_ITEMS_MAX;
            }
        }
        self.from = page.next;
        let expected = bytes + bytes / 4 + SPARE_BYTES;
        self.page_bytes = expected.min(2 * WALK_BYTES_MAX);
        Some(self)
    }

    /// Bytes of memory that it holds.
    pub fn held_bytes(&self) -> usize {
        match &self.aim {
            Aim::Keys { reply, .. } => reply.capacity(),
            Aim::Scan { .. } | Aim::Any { .. } => 0,
        }
    }
}

/// FLUSHALL and FLUSHDB: how their reply is made. Their words mean nothing here: the memory is always freed in the
/// background.
///
/// # Errors
/// When the words are not theirs.
pub fn flush(words: &[&[u8]]) -> Result<Item, Refusal> {
    let is_known =
        |word: &&[u8]| word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync");
    match words.len() <= 1 && words.iter().all(is_known) {
        true => Ok(Item {
            shape: Shape::Ok,
            operations: 1,
        }),
        false => Err(SYNTAX.to_owned()),
    }
}

/// Keys as bulk strings, and how many there are.
fn bulks<'k>(keys: impl Iterator<Item = &'k [u8]>) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, false);
    let count = keys.map(|key| writer.bulk(key)).count();
    (bytes, count)
}

fn write_scan(next: Cursor, keys: &[u8], count: usize, writer: &mut Writer<'_>) {
    writer.array(2);
    writer.bulk(next.as_u64().to_string().as_bytes());
    writer.array(count);
    writer.encoded(keys);
}

/// A number whose bits all depend on all bits of this one (the last step of SplitMix64).
fn spread(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
