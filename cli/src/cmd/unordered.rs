//! The keys of a range without the ordered index: all keys of the prefix are walked over, in the order of the hash table.

use std::time::Instant;

use trine_base::announce::note;
use trine_base::answers::{response_of, unexpected};
use trine_base::client::CommandClient;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::progress::Progress;
use trine_base::units::plural;
use trine_client::{Mode, WholeWalk};
use trine_kvstore::{
    Command, Cursor, Entry, ExecuteMode, Found, Position, Prefix, Response, StoreError, WalkContent,
};

use super::range::Bounds;
use super::stream::{PinGuard, PinnedRead, response_at_pin};
use crate::config::{UNORDERED_DELETES, UNORDERED_NOTE_AFTER};

/// Whether the group can read a range in its order. An index that is still being built cannot.
pub(super) fn is_ordered(
    session: &mut CommandClient,
    mode: Mode,
    bounds: &Bounds,
) -> Result<bool, Failure> {
    let answer = session.execute(
        mode,
        &Command::CountRange {
            range: bounds.nothing(),
        },
    )?;
    match answer.response() {
        Ok(Response::Error(StoreError::NotOrdered { .. })) => Ok(false),
        _ => response_of(&answer).map(|_| true),
    }
}

/// Tells a person why a walk takes long, and how far it is.
struct Slowly {
    begun: Instant,
    warned: bool,
    progress: Progress,
}

impl Slowly {
    fn new(what: &str) -> Self {
        Self {
            begun: Instant::now(),
            warned: false,
            progress: Progress::towards(what, None),
        }
    }

    fn looked_at(&mut self, keys: u64) {
        if !self.warned && self.begun.elapsed() > UNORDERED_NOTE_AFTER {
            self.warned = true;
            note(
                "the group keeps no ordered index, so all its keys are read; `trine config set \
                 ordered on` builds one",
            );
        }
        self.progress
            .set(keys, || format!("{} found", plural(keys, "key")));
    }
}

/// Hands each item between the bounds to `take`, all as of one moment. Returns its position.
pub(super) fn items_at_once(
    session: &mut CommandClient,
    mode: Mode,
    bounds: &Bounds,
    reading: &PinnedRead,
    mut take: impl FnMut(&Entry<'_>) -> Result<(), Failure>,
) -> Result<Option<Position>, Failure> {
    let begun = Instant::now();
    let mut walk = WholeWalk::over(bounds.prefix(), mode);
    let mut slowly = Slowly::new("reading");
    let mut held = PinGuard::by(session);
    let mut keys = 0;
    while let Some((mode, command)) = walk.command(begun.elapsed()) {
        let Some(answer) = held.step(mode, &command)? else {
            break;
        };
        let response = response_at_pin(&answer)?;
        let page = walk
            .take(begun.elapsed(), answer.position(), &response)
            .map_err(|error| reading.ended(error, &response, keys))?;
        if let Some(page) = page {
            let Found::Items(items) = &page.found else {
                return Err(unexpected(&response));
            };
            for item in items.iter().filter(|item| bounds.contains(item.key)) {
                keys += 1;
                take(&item)?;
            }
        }
        slowly.looked_at(keys);
        interrupt::check()?;
    }
    Ok(walk.position())
}

/// The same with each page as of a moment of its own. Returns the position of the last one.
pub(super) fn items_by_page(
    session: &mut CommandClient,
    mode: Mode,
    bounds: &Bounds,
    mut take: impl FnMut(&Entry<'_>) -> Result<(), Failure>,
) -> Result<Option<Position>, Failure> {
    let mut slowly = Slowly::new("reading");
    let (mut keys, mut position) = (0, None);
    let mut cursor = Some(Cursor::START);
    while let Some(from) = cursor {
        let answer = session.execute(mode, &page_from(from, WalkContent::Items, bounds))?;
        let response = response_of(&answer)?;
        let Response::Page(page) = &response else {
            return Err(unexpected(&response));
        };
        let Found::Items(items) = &page.found else {
            return Err(unexpected(&response));
        };
        for item in items.iter().filter(|item| bounds.contains(item.key)) {
            keys += 1;
            take(&item)?;
        }
        position = Some(answer.position());
        cursor = (page.next != Cursor::START).then_some(page.next);
        slowly.looked_at(keys);
        interrupt::check()?;
    }
    Ok(position)
}

fn page_from<'b>(from: Cursor, content: WalkContent, bounds: &'b Bounds) -> Command<'b> {
    Command::Walk {
        from,
        count: 0,
        content,
        prefix: Prefix(bounds.prefix()),
    }
}

/// How many keys there are between the bounds; those that have expired do not count.
pub(super) fn count(
    session: &mut CommandClient,
    mode: Mode,
    bounds: &Bounds,
) -> Result<u64, Failure> {
    let mut slowly = Slowly::new("counting");
    let (mut keys, mut cursor) = (0, Some(Cursor::START));
    while let Some(from) = cursor {
        let (found, next) = keys_of_page(session, mode, from, bounds)?;
        keys += found.len() as u64;
        cursor = next;
        slowly.looked_at(keys);
        interrupt::check()?;
    }
    Ok(keys)
}

/// The keys of one page, and where the next page begins.
fn keys_of_page(
    session: &mut CommandClient,
    mode: Mode,
    from: Cursor,
    bounds: &Bounds,
) -> Result<(Vec<Vec<u8>>, Option<Cursor>), Failure> {
    let answer = session.execute(mode, &page_from(from, WalkContent::Keys, bounds))?;
    let response = response_of(&answer)?;
    let Response::Page(page) = &response else {
        return Err(unexpected(&response));
    };
    let Found::Keys(keys) = &page.found else {
        return Err(unexpected(&response));
    };
    let within = keys.iter().filter(|key| bounds.contains(key));
    let next = (page.next != Cursor::START).then_some(page.next);
    Ok((within.map(<[u8]>::to_vec).collect(), next))
}

/// A removal of keys that are found by walking over all of them.
pub(super) struct UnorderedDeletion<'b> {
    bounds: &'b Bounds,
    cursor: Option<Cursor>,
    /// Found and not deleted yet.
    found: Vec<Vec<u8>>,
    slowly: Slowly,
    removed: u64,
}

impl<'b> UnorderedDeletion<'b> {
    pub(super) fn of(bounds: &'b Bounds) -> Self {
        Self {
            bounds,
            cursor: Some(Cursor::START),
            found: Vec::new(),
            slowly: Slowly::new("deleting"),
            removed: 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.found.is_empty() && self.cursor.is_none()
    }

    /// Looks for keys, or deletes some of those that were found. Returns how many it has deleted.
    pub(super) fn step(&mut self, session: &mut CommandClient) -> Result<u64, Failure> {
        if let (true, Some(from)) = (self.found.is_empty(), self.cursor) {
            (self.found, self.cursor) = keys_of_page(session, Mode::Read, from, self.bounds)?;
            self.slowly.looked_at(self.removed);
            return Ok(0);
        }
        let rest = self.found.len().saturating_sub(UNORDERED_DELETES);
        let removed = delete(session, &self.found[rest..])?;
        self.found.truncate(rest);
        self.removed += removed;
        Ok(removed)
    }
}

fn delete(session: &mut CommandClient, keys: &[Vec<u8>]) -> Result<u64, Failure> {
    let operations: Vec<Command<'_>> = keys.iter().map(|key| Command::Delete { key }).collect();
    let command = Command::Execute {
        mode: ExecuteMode::Independent,
        conditions: trine_kvstore::List::default(),
        operations: trine_kvstore::List::from(operations.as_slice()),
    };
    let answer = session.execute(Mode::Write, &command)?;
    if let Ok(Response::Error(StoreError::ExecuteTooLarge)) = answer.response() {
        // The values are larger than what one command may have to undo. A part alone may fit.
        return match keys.split_at(keys.len() / 2) {
            ([], _) => response_of(&answer).map(|_| 0),
            (first, second) => Ok(delete(session, first)? + delete(session, second)?),
        };
    }
    let answers = match response_of(&answer)? {
        Response::List(answers) => answers,
        other => return Err(unexpected(&other)),
    };
    let mut removed = 0;
    for answer in answers.iter() {
        match answer {
            Response::Deleted { existed } => removed += u64::from(existed),
            Response::Error(error) => return Err(trine_base::answers::store_failure(error)),
            other => return Err(unexpected(&other)),
        }
    }
    Ok(removed)
}
