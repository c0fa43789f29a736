//! SCAN, KEYS, RANDOMKEY, FLUSHALL and FLUSHDB: commands about all keys.
//!
//! The first three are walks of the store, a page at a time. SCAN's reply is one page. KEYS and RANDOMKEY ask for pages
//! until they are done, and other clients get their turns in between. A user with a prefix walks below that alone.
//! No walk is part of a transaction, and no flush, because the store takes neither among other operations.

use trine_kvstore::config::{WALK_BYTES_MAX, WALK_ITEMS_MAX};
use trine_kvstore::{Command, Cursor, Found, Page, Prefix, Response, WalkContent, integer};

use super::answer::NO_ANSWER;
use super::{Call, Connection, Environment, Failure, Submit, Waiting};
use crate::errors::{NOT_AN_INTEGER, Refusal, SYNTAX};
use crate::limits::KEYS_BYTES_MAX;
use crate::pattern::Pattern;
use crate::plan::Item;
use crate::reply::Writer;
use crate::shape::Shape;
use crate::table::{Spec, Verb};

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
pub(super) struct Walk {
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

impl Walk {
    /// Bytes of memory that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.aim {
            Aim::Keys { reply, .. } => reply.capacity(),
            Aim::Scan { .. } | Aim::Any { .. } => 0,
        }
    }
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

/// Whether a command is about all keys, so that a transaction cannot have it.
pub(super) fn is_about_all_keys(spec: &Spec) -> bool {
    matches!(
        spec.verb(),
        Some(Verb::Scan | Verb::Keys | Verb::RandomKey | Verb::Flush)
    )
}

impl Connection {
    pub(super) fn scan(&mut self, words: &[&[u8]], submit: &mut dyn Submit) {
        let scan = match Scan::read(words) {
            Ok(scan) => scan,
            Err(text) => return self.replies.error(&text),
        };
        let Scan { from, count, .. } = scan;
        let aim = Aim::Scan { hides: scan.hides };
        match self.walk(aim, scan.pattern, from, count) {
            Some(walk) => self.ask_for_page(walk, submit),
            None => write_scan(Cursor::START, &[], 0, &mut self.replies.writer()),
        }
    }

    pub(super) fn keys(&mut self, text: &[u8], submit: &mut dyn Submit) {
        let pattern = match pattern(text) {
            Ok(pattern) => pattern,
            Err(text) => return self.replies.error(&text),
        };
        let (reply, count) = (Vec::new(), 0);
        let aim = Aim::Keys { reply, count };
        match self.walk(aim, Some(pattern), Cursor::START, WALK_ITEMS_MAX) {
            Some(walk) => self.ask_for_page(walk, submit),
            None => self.replies.writer().array(0),
        }
    }

    /// The store begins at a place that depends on the time and on this connection. A key behind a large gap is chosen
    /// more often than others, as in Redis one in a short chain is.
    pub(super) fn random_key(&mut self, environment: &Environment<'_>, submit: &mut dyn Submit) {
        let time = environment.unix_ms.cast_unsigned();
        let dice = spread(time ^ spread(self.profile.id() ^ spread(self.commands)));
        let wrapped = false;
        let aim = Aim::Any { dice, wrapped };
        if let Some(walk) = self.walk(aim, None, Cursor::anywhere(dice), RANDOM_COUNT) {
            self.ask_for_page(walk, submit);
        }
    }

    /// FLUSHALL and FLUSHDB. The memory is always freed in the background; the words are taken, and mean nothing here.
    pub(super) fn flush(&mut self, words: &[&[u8]], submit: &mut dyn Submit) {
        let is_known = |word: &&[u8]| {
            word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync")
        };
        if words.len() > 1 || !words.iter().all(is_known) {
            return self.replies.error(SYNTAX);
        }
        let call = Call {
            command: &Command::Flush,
            read_only: false,
            response_bytes: self.run.expected_bytes(1, 0),
            for_user: self.standing.on_behalf(),
        };
        let begun = submit.submit(&call);
        let item = Item {
            shape: Shape::Ok,
            operations: 1,
        };
        self.wait_for(begun, Waiting::Run(vec![item]), false);
    }

    /// A walk over the keys that the client may know of; none if no key there can fit the pattern.
    fn walk(
        &self,
        aim: Aim,
        pattern: Option<Pattern>,
        from: Cursor,
        count: u32,
    ) -> Option<Box<Walk>> {
        let own = self.standing.key_prefix();
        let asked = pattern.as_ref().map_or(&[][..], Pattern::prefix);
        let prefix = match (asked.starts_with(own), own.starts_with(asked)) {
            (true, _) => asked,
            (false, true) => own,
            (false, false) => return None,
        };
        let count = count.min(WALK_ITEMS_MAX);
        Some(Box::new(Walk {
            aim,
            prefix: prefix.to_vec(),
            pattern,
            from,
            count,
            page_bytes: (count as usize + 1) * KEY_BYTES,
        }))
    }

    pub(super) fn ask_for_page(&mut self, walk: Box<Walk>, submit: &mut dyn Submit) {
        let command = Command::Walk {
            from: walk.from,
            count: walk.count,
            content: WalkContent::Keys,
            prefix: Prefix(&walk.prefix),
        };
        let call = Call {
            command: &command,
            read_only: true,
            response_bytes: walk.page_bytes,
            for_user: self.standing.on_behalf(),
        };
        let begun = submit.submit(&call);
        self.wait_for(begun, Waiting::Walk(walk), true);
    }

    pub(super) fn on_page(&mut self, walk: Box<Walk>, result: Result<Response<'_>, Failure>) {
        match result {
            Ok(Response::Page(page)) => self.take_page(walk, &page),
            other => self.write_failed_read(other),
        }
    }

    fn take_page(&mut self, mut walk: Box<Walk>, page: &Page<'_>) {
        let Found::Keys(keys) = &page.found else {
            return self.replies.error(NO_ANSWER);
        };
        let fits = |key: &&[u8]| {
            walk.pattern
                .as_ref()
                .is_none_or(|pattern| pattern.fits(key))
        };
        let ended = page.next == Cursor::START;
        let mut bytes = 0;
        let all = keys.iter().inspect(|key| bytes += key.len());
        match &mut walk.aim {
            Aim::Scan { hides } => {
                let is_told = |key: &&[u8]| !*hides && fits(key);
                let (reply, count) = bulks(all.filter(is_told));
                return write_scan(page.next, &reply, count, &mut self.replies.writer());
            }
            Aim::Keys { reply, count } => {
                let (more, found) = bulks(all.filter(fits));
                reply.extend_from_slice(&more);
                *count += found;
                if reply.len() > KEYS_BYTES_MAX {
                    let text = format!(
                        "ERR the reply to KEYS would be larger than {KEYS_BYTES_MAX} bytes: use SCAN"
                    );
                    return self.replies.error(&text);
                }
                if ended {
                    let (reply, count) = (std::mem::take(reply), *count);
                    let mut writer = self.replies.writer();
                    writer.array(count);
                    return writer.encoded(&reply);
                }
            }
            Aim::Any { dice, wrapped } => {
                let chosen = (*dice % keys.len().max(1) as u64) as usize;
                if let Some(key) = keys.iter().nth(chosen) {
                    return self.replies.writer().bulk(key);
                }
                if ended && *wrapped {
                    return self.replies.writer().null();
                }
                *wrapped |= ended;
                // None of the few is there: below a prefix keys may be rare, and pages as large as can be find one sooner.
                walk.count = WALK_ITEMS_MAX;
            }
        }
        walk.from = page.next;
        let expected = bytes + bytes / 4 + SPARE_BYTES;
        walk.page_bytes = expected.min(2 * WALK_BYTES_MAX);
        self.run.walk_on(walk);
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
