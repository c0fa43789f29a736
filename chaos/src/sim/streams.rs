//! Clients that read a range of several pages at a pin, in groups with an ordered index.
//!
//! The whole stream is the state of the pin's position. So it is recorded as a read of each key at that position, which was
//! called when the pin was asked for and answered when the pin was, however late its page comes. A page that is torn, or
//! that misses what a sweep has removed meanwhile, is then no read of that moment.

use super::Host;
use crate::history::{Action, Answer, History, OperationIndex};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use trine_client::{
    ClientId, Clients, Finished, Mode, PinnedError, PinnedWalk, RangeWalk, Submission,
};
use trine_kvstore::{Command, KeyRange, Position, Response};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

/// Tags of a stream's commands have this bit.
const STREAM_TAG: u64 = 1 << 59;

/// How often a call of a client is followed by a stream.
const STREAMS: Ratio = Ratio::percent(3);

/// Keys in a page at most: streams take several pages.
const PAGE_KEYS_MAX: u64 = 4;
/// Pause between two pages at most. Keys expire meanwhile, and replicas come and go.
const PAUSE_MAX: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(5);

/// The streams of one machine: one at a time.
pub(crate) struct Streams {
    history: Rc<RefCell<History>>,
    prng: Prng,
    stream: Option<Stream>,
    next_tag: u64,
}

/// A stream that is under way.
struct Stream {
    /// A client of its own: the pin belongs to its session.
    id: ClientId,
    walk: PinnedWalk,
    /// The number in the history of the client on whose behalf it reads.
    number: u64,
    keys: Vec<Vec<u8>>,
    /// The read of each key, from the time on at which the pin was asked for.
    reads: BTreeMap<Vec<u8>, OperationIndex>,
    pinned: bool,
    found: BTreeMap<Vec<u8>, Answer>,
    /// The tag of the command that is under way.
    open: Option<u64>,
    /// When the next one is due otherwise.
    due: Instant,
}

impl Streams {
    pub(crate) fn new(history: Rc<RefCell<History>>, seed: u64) -> Self {
        Self {
            history,
            prng: Prng::new(seed ^ 0x5_7e4_a31),
            stream: None,
            next_tag: 0,
        }
    }

    /// Whether an operation with this tag is one of these.
    pub(crate) fn owns(tag: u64) -> bool {
        tag & STREAM_TAG != 0
    }

    /// Begins a stream on behalf of the client with this number, now and then.
    pub(crate) fn call(
        &mut self,
        clients: &mut Clients<Host>,
        number: u64,
        keys: &[Vec<u8>],
        simulated: Instant,
    ) {
        if self.stream.is_some() || !self.prng.chance(STREAMS) {
            return;
        }
        let Some(id) = clients.open() else { return };
        let mut walk = RangeWalk::over(KeyRange::Prefix(b""))
            .page_keys(self.prng.in_range(1..=PAGE_KEYS_MAX) as u32);
        if self.prng.chance(Ratio::percent(40)) {
            walk = walk.reverse();
        }
        let mode = match self.prng.below(3) {
            0 => Mode::ReadFollower,
            1 => Mode::ReadAnywhere,
            _ => Mode::Read,
        };
        self.stream = Some(Stream {
            id,
            walk: PinnedWalk::over(walk, mode),
            number,
            keys: keys.to_vec(),
            reads: BTreeMap::new(),
            pinned: false,
            found: BTreeMap::new(),
            open: None,
            due: simulated,
        });
    }

    /// When the next command is due.
    pub(crate) fn next_call(&self) -> Option<Instant> {
        let stream = self.stream.as_ref()?;
        stream.open.is_none().then_some(stream.due)
    }

    /// Sends the next command of the stream, if it is due.
    pub(crate) fn go_on(&mut self, clients: &mut Clients<Host>, now: Instant, simulated: Instant) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        if stream.open.is_some() || stream.due > simulated {
            return;
        }
        let Some((mode, command)) = stream.walk.command(std_time(simulated)) else {
            return self.end(clients);
        };
        self.next_tag += 1;
        let tag = STREAM_TAG | self.next_tag;
        let submission = Submission {
            mode,
            command: &command,
            deadline: Some(now + PATIENCE),
            tag,
        };
        let is_pin = command == Command::Pin;
        if clients.submit(now, stream.id, submission).is_err() {
            return self.end(clients);
        }
        stream.open = Some(tag);
        if is_pin {
            let mut history = self.history.borrow_mut();
            for key in &stream.keys {
                let read = history.call(stream.number, simulated.as_nanos(), key, Action::Get);
                stream.reads.insert(key.clone(), read);
            }
        }
    }

    /// Takes in an answer.
    pub(crate) fn collect(
        &mut self,
        clients: &mut Clients<Host>,
        finished: &Finished,
        simulated: Instant,
    ) {
        let stream = self.stream.as_mut();
        let Some(stream) = stream.filter(|stream| stream.open == Some(finished.tag)) else {
            return;
        };
        stream.open = None;
        let answer = match &finished.result {
            Ok(answer) => answer,
            Err(error) => {
                if error.is_definitely_not_applied() {
                    self.end_unread(
                        |history, read, now_ns| history.fail(read, now_ns),
                        simulated,
                    );
                }
                return self.end(clients);
            }
        };
        let response = answer.response();
        let response = response.expect("the client library has decoded it once");
        let taken = stream.take(answer.position(), &response, simulated);
        let is_pin = matches!(response, Response::Pinned { .. }) && !stream.pinned;
        match taken {
            Ok(()) => {
                let pause = self.prng.below(PAUSE_MAX.as_nanos());
                stream.due = simulated + Duration::from_nanos(pause);
                if is_pin {
                    self.note_pinned(answer.position(), simulated);
                }
            }
            Err(PinnedError::Unexpected) => panic!("a stream is answered with {response:?}"),
            // What it has read by then was read at its position all the same.
            Err(_) => {
                let refuse = |history: &mut History, read, now_ns| {
                    history.complete(read, now_ns, Answer::Refused, None);
                };
                self.end_unread(refuse, simulated);
                self.end(clients);
            }
        }
    }

    /// Records what the stream has read. A key that it has not come to is not read.
    fn end(&mut self, clients: &mut Clients<Host>) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        clients.close(stream.id);
        let is_whole = stream.walk.is_read();
        let mut history = self.history.borrow_mut();
        for (key, read) in stream.reads {
            match (stream.found.remove(&key), stream.pinned, is_whole) {
                (Some(answer), ..) => history.tell(read, answer),
                (None, true, true) => history.tell(read, Answer::NotFound),
                // The stream has not come to it, or it never began and the outcome of the pin does not matter.
                _ => {}
            }
        }
    }

    /// Whether there are reads of which nothing is known before a pin is answered.
    pub(crate) fn awaits_pin(&self) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|stream| !stream.pinned && !stream.reads.is_empty())
    }

    /// If no pin was taken, nothing was read.
    fn end_unread(&mut self, end: impl Fn(&mut History, OperationIndex, u64), simulated: Instant) {
        let stream = self.stream.as_mut().filter(|stream| !stream.pinned);
        let Some(stream) = stream else { return };
        let mut history = self.history.borrow_mut();
        for read in std::mem::take(&mut stream.reads).into_values() {
            end(&mut history, read, simulated.as_nanos());
        }
    }

    /// The pin was taken: from here on it is certain what the stream reads.
    fn note_pinned(&mut self, position: Position, simulated: Instant) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        stream.pinned = true;
        let mut history = self.history.borrow_mut();
        for read in stream.reads.values() {
            let (now_ns, position) = (simulated.as_nanos(), Some(position.as_u64()));
            history.complete(*read, now_ns, Answer::Refused, position);
        }
    }
}

impl Stream {
    fn take(
        &mut self,
        at: Position,
        response: &Response<'_>,
        simulated: Instant,
    ) -> Result<(), PinnedError> {
        let found = &mut self.found;
        self.walk.take(std_time(simulated), at, response, |item| {
            let value = item.item.expect("values were asked for");
            let answer = Answer::Value {
                value: value.value.to_vec(),
                version: Some(value.version.as_u64()),
            };
            let twice = found.insert(item.key.to_vec(), answer);
            assert_eq!(twice, None, "a stream tells a key once");
        })
    }
}

fn std_time(at: Instant) -> std::time::Duration {
    std::time::Duration::from_nanos(at.as_nanos())
}
