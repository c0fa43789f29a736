//! A machine of clients: logical clients of the real client library, each with its stream of operations, and the record
//! of what they saw.

use super::Host;
use super::bursts::Bursts;
use super::copies::Copies;
use super::counts::Counts;
use super::ranges::{self, RangeCall, Ranges};
use super::repeats::Repeats;
use super::streams::Streams;
use super::walks::Walks;
use crate::history::{Action, History, OperationIndex};
use crate::translate::{answer_of, command_of};
use crate::workload::{Request, Workload};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use trine_client::{ClientId, Clients, Finished, Mode, Submission};
use trine_keys::{Fingerprint, GroupId, Issuer, Role, UserName};
use trine_kvstore::{
    Command, Condition, ExecuteMode, ExpireCondition, List, Pair, Position, Rights, SetExpiry,
    SetOptions,
};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

/// How a client calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Mean pause of a client between an answer and its next call.
    pub pause: Duration,
    /// Operations that one client keeps open at most.
    pub open_max: usize,
    /// How often an operation gets little time, so that its outcome may stay unknown.
    pub hasty: Ratio,
    /// Operations of all clients together, after which each of them pauses for [`LEISURE`] on average.
    pub rush: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            pause: Duration::from_millis(20),
            open_max: 3,
            hasty: Ratio::percent(5),
            rush: u64::MAX,
        }
    }
}

/// How long a hasty operation waits, and every other.
const HASTY: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(300));
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a read takes the way through the log instead of ReadIndex.
const LOGGED_READS: Ratio = Ratio::percent(5);
/// How often a read goes to a follower, and how often to any replica, in percent of those that go through no log.
const FOLLOWER_READS_PERCENT: u64 = 20;
const READS_ANYWHERE_PERCENT: u64 = 10;
/// How often a command is called whose answer no checker understands. It still has to leave all replicas in the same
/// state.
const UNJUDGED: Ratio = Ratio::percent(8);
/// Tags of such commands have this bit.
const UNJUDGED_TAG: u64 = 1 << 63;
/// Tags of calls about ranges have this bit.
const RANGE_TAG: u64 = 1 << 62;
/// How often a write is its session's last; the caller continues with a new one.
const LAST_WRITES: Ratio = Ratio::percent(1);

/// Pause of a client whose call the client library has no room for: some call has to be answered first.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// Mean pause of a client behind the rush: some client must still tell whether the group serves.
pub const LEISURE: Duration = Duration::from_millis(100);

pub(crate) struct Callers {
    pub(crate) clients: Clients<Host>,
    callers: Vec<Caller>,
    open: BTreeMap<u64, Open>,
    history: Rc<RefCell<History>>,
    pace: Pace,
    prng: Prng,
    /// Calls about ranges, if the group has an ordered index at any time.
    ranges: Option<Ranges>,
    open_ranges: BTreeMap<u64, RangeCall>,
    /// Streams at a pin, where there are calls about ranges.
    streams: Option<Streams>,
    /// No further calls.
    silent: bool,
    /// What keys of users are made of, in a group that has keys.
    issuer: Option<Issuer>,
    /// Walks and flushes, in a run that has any.
    walks: Option<Walks>,
    /// Counts of ranges, in a run that has any.
    counts: Option<Counts>,
    /// Bursts of keys that expire together, in a run that has any.
    bursts: Option<Bursts>,
    /// Copies of clients, in a run that has any.
    copies: Option<Copies>,
    /// Writes that several machines repeat, in a run that has any.
    repeats: Option<Repeats>,
    notes: Notes,
}

/// Calls and answers, for a trace if there is one.
#[derive(Default)]
struct Notes {
    wanted: bool,
    lines: Vec<String>,
}

impl Notes {
    fn add(&mut self, line: impl FnOnce() -> String) {
        if self.wanted {
            self.lines.push(line());
        }
    }
}

struct Caller {
    /// Its number in the history.
    number: u64,
    id: ClientId,
    workload: Workload,
    open: usize,
    next_call: Instant,
    /// Keys that this caller has to read once, ahead of its workload.
    errands: Vec<Vec<u8>>,
}

struct Open {
    caller: usize,
    request: Request,
    operation: OperationIndex,
}

impl Callers {
    pub(crate) fn new(
        clients: Clients<Host>,
        history: Rc<RefCell<History>>,
        pace: Pace,
        prng: Prng,
    ) -> Self {
        Self {
            clients,
            callers: Vec::new(),
            open: BTreeMap::new(),
            history,
            pace,
            prng,
            ranges: None,
            open_ranges: BTreeMap::new(),
            streams: None,
            silent: false,
            issuer: None,
            walks: None,
            counts: None,
            bursts: None,
            copies: None,
            repeats: None,
            notes: Notes::default(),
        }
    }

    /// Adds a client that begins to call at `first_call`.
    pub(crate) fn add(&mut self, number: u64, workload: Workload, first_call: Instant) {
        let Some(id) = self.clients.open() else {
            return;
        };
        self.callers.push(Caller {
            number,
            id,
            workload,
            open: 0,
            next_call: first_call,
            errands: Vec::new(),
        });
    }

    /// Names the key file that all users of this group have their keys from.
    pub(crate) fn issue_with(&mut self, issuer: Issuer) {
        self.issuer = Some(issuer);
    }

    /// Clients also scan and delete ranges, and read streams of pages.
    pub(crate) fn call_ranges(&mut self, ranges: Ranges, seed: u64) {
        self.ranges = Some(ranges);
        self.streams = Some(Streams::new(Rc::clone(&self.history), seed));
    }

    /// Clients also walk over all keys, and flush them. These are those that the history knows.
    pub(crate) fn walk_over(&mut self, keys: Vec<Vec<u8>>, seed: u64) {
        self.walks = Some(Walks::new(keys, Rc::clone(&self.history), seed));
    }

    /// Clients also count ranges.
    pub(crate) fn count_ranges(&mut self, counts: Counts) {
        self.counts = Some(counts);
    }

    /// Clients also write bursts of keys that expire together.
    pub(crate) fn write_bursts(&mut self, bursts: Bursts) {
        self.bursts = Some(bursts);
    }

    /// Clients are copied now and then.
    pub(crate) fn copy(&mut self, copies: Copies) {
        self.copies = Some(copies);
    }

    /// Clients also send copies of writes that other machines have sent.
    pub(crate) fn repeat(&mut self, repeats: Repeats) {
        self.repeats = Some(repeats);
    }

    /// The calls and answers since the last time.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes.lines)
    }

    /// Whether there is a trace.
    pub(crate) fn trace(&mut self, wanted: bool) {
        self.notes.wanted = wanted;
    }

    /// Gives the first client these keys to read, once each.
    pub(crate) fn send_on_errand(&mut self, keys: Vec<Vec<u8>>, now: Instant) {
        if let Some(caller) = self.callers.first_mut() {
            caller.errands.extend(keys);
            caller.next_call = caller.next_call.min(now);
        }
    }

    /// Whether all errands were called and no operation is open.
    pub(crate) fn is_done(&self) -> bool {
        self.open.is_empty()
            && self.open_ranges.is_empty()
            && !self.streams.as_ref().is_some_and(Streams::awaits_pin)
            && self.callers.iter().all(|caller| caller.errands.is_empty())
    }

    /// From now on every operation has time: one that gives up early would prove nothing about the group.
    pub(crate) fn end_haste(&mut self) {
        self.pace.hasty = Ratio::ZERO;
    }

    /// From now on only errands are called.
    pub(crate) fn silence(&mut self) {
        self.silent = true;
    }

    /// They call again.
    pub(crate) fn resume(&mut self) {
        self.silent = false;
    }

    pub(crate) fn next_call(&self) -> Option<Instant> {
        let wants = |caller: &&Caller| {
            caller.open < self.pace.open_max && (!self.silent || !caller.errands.is_empty())
        };
        let of_callers = self.callers.iter().filter(wants);
        let of_callers = of_callers.map(|caller| caller.next_call);
        let of_walks = self.walks.iter().filter_map(Walks::next_call);
        let of_streams = self.streams.iter().filter_map(Streams::next_call);
        of_callers.chain(of_walks).chain(of_streams).min()
    }

    /// Calls what is due.
    pub(crate) fn call(&mut self, now: Instant, simulated: Instant) {
        if self.history.borrow().len() as u64 >= self.pace.rush {
            self.pace.pause = LEISURE;
        }
        if let Some(walks) = &mut self.walks {
            let callers = &self.callers;
            let id_of = |number| {
                let found = callers.iter().find(|caller| caller.number == number);
                found.expect("the machine's own clients walk").id
            };
            walks.go_on(&mut self.clients, id_of, now, simulated);
        }
        if let Some(streams) = &mut self.streams {
            streams.go_on(&mut self.clients, now, simulated);
        }
        for index in 0..self.callers.len() {
            while self.callers[index].next_call <= simulated
                && self.callers[index].open < self.pace.open_max
            {
                let Some(request) = self.next_request(index) else {
                    break;
                };
                let rest = self.submit(now, simulated, index, request);
                if !self.silent && self.prng.chance(UNJUDGED) {
                    self.submit_unjudged(now, index);
                }
                if !self.silent && self.callers[index].open < self.pace.open_max {
                    self.submit_about_ranges(now, simulated, index);
                }
                if let (false, Some(counts)) = (self.silent, &mut self.counts) {
                    counts.call(&mut self.clients, self.callers[index].id, now);
                }
                if let (false, Some(bursts)) = (self.silent, &mut self.bursts) {
                    bursts.call(&mut self.clients, self.callers[index].id, now, simulated);
                }
                if let (false, Some(repeats)) = (self.silent, &mut self.repeats) {
                    repeats.call(&mut self.clients, self.callers[index].id, now);
                }
                if let (false, Some(walks)) = (self.silent, &mut self.walks) {
                    let Caller { number, id, .. } = self.callers[index];
                    walks.call(&mut self.clients, (number, id), now, simulated);
                }
                if let (false, Some(streams)) = (self.silent, &mut self.streams) {
                    let Caller {
                        number, workload, ..
                    } = &self.callers[index];
                    streams.call(&mut self.clients, *number, workload.all_keys(), simulated);
                }
                let pause =
                    Duration::from_nanos(self.prng.below(self.pace.pause.as_nanos().max(1) * 2));
                self.callers[index].next_call = simulated + pause.max(rest);
            }
        }
    }

    fn next_request(&mut self, index: usize) -> Option<Request> {
        let caller = &mut self.callers[index];
        if let Some(key) = caller.errands.pop() {
            return Some(Request {
                key,
                action: Action::Get,
            });
        }
        (!self.silent).then(|| caller.workload.next_request())
    }

    /// Calls an operation; returns the shortest pause behind it.
    fn submit(
        &mut self,
        now: Instant,
        simulated: Instant,
        index: usize,
        request: Request,
    ) -> Duration {
        let hasty = self.prng.chance(self.pace.hasty);
        let patience = if hasty {
            Duration::from_nanos(self.prng.in_range(HASTY.0.as_nanos()..=HASTY.1.as_nanos()))
        } else {
            PATIENCE
        };
        let mode = self.mode(&request);
        let caller = &mut self.callers[index];
        let mut history = self.history.borrow_mut();
        let operation = history.call(
            caller.number,
            simulated.as_nanos(),
            &request.key,
            request.action.clone(),
        );
        let submission = Submission {
            mode,
            command: &command_of(&request),
            deadline: Some(now + patience),
            tag: operation.0 as u64,
        };
        self.notes.add(|| {
            let called = text_of(&history, operation);
            let called = called.strip_suffix(" -> unknown").unwrap_or(&called);
            format!("calls {called}")
        });
        let id = match &mut self.copies {
            Some(copies) if !self.silent => {
                let call = (&request.action, mode);
                let clients = (&mut self.clients, simulated);
                copies.caller(clients, (caller.number, caller.id), call)
            }
            _ => caller.id,
        };
        match self.clients.submit(now, id, submission) {
            Ok(()) => {
                caller.open += 1;
                if mode == Mode::WriteAndClose {
                    caller.id = self.clients.open().unwrap_or(caller.id);
                }
                self.open.insert(
                    operation.0 as u64,
                    Open {
                        caller: index,
                        request,
                        operation,
                    },
                );
                Duration::ZERO
            }
            Err(error) => {
                history.fail(operation, simulated.as_nanos());
                self.notes.add(|| {
                    let refused = text_of(&history, operation);
                    format!("no room for {refused}: {error}")
                });
                REFUSED_PAUSE
            }
        }
    }

    /// Scans or deletes a range, now and then. Around that the index comes and goes, and deletes are undone.
    fn submit_about_ranges(&mut self, now: Instant, simulated: Instant, index: usize) {
        let Some(ranges) = &mut self.ranges else {
            return;
        };
        let toggle = ranges.toggle();
        let wish = ranges.wish(self.callers[index].workload.all_keys());
        if let Some(on) = toggle {
            self.submit_without_judgement(now, index, &Command::SetOrdered { on });
        }
        let Some(wish) = wish else { return };
        if let ranges::RangeRequest::Scan(_) = wish.kind {
            self.submit_undone(now, index, &wish.keys);
        }
        let command = match wish.kind {
            ranges::RangeRequest::Scan(options) => Command::Scan {
                range: wish.range(),
                options,
            },
            ranges::RangeRequest::Delete(count) => Command::DeleteRange {
                range: wish.range(),
                count,
            },
        };
        let tag = RANGE_TAG | self.history.borrow().len() as u64;
        let submission = Submission {
            mode: match wish.kind {
                ranges::RangeRequest::Scan(_) => self.range_mode(),
                ranges::RangeRequest::Delete(_) => Mode::Write,
            },
            command: &command,
            deadline: Some(now + PATIENCE),
            tag,
        };
        let caller = &mut self.callers[index];
        let number = caller.number;
        self.notes
            .add(|| format!("calls client {number} {command:?}"));
        let submitted = self.clients.submit(now, caller.id, submission);
        let mut history = self.history.borrow_mut();
        let now_ns = simulated.as_nanos();
        let call = wish.called(&mut history, index, number, now_ns);
        match submitted {
            Ok(()) => {
                caller.open += 1;
                self.open_ranges.insert(tag, call);
            }
            Err(_) => call.failed(&mut history, now_ns),
        }
    }

    /// Deletes a key in an EXEC that is always undone: no item has the version that its last operation expects.
    fn submit_undone(&mut self, now: Instant, index: usize, keys: &[Vec<u8>]) {
        let Some(key) = keys.first() else { return };
        let operations = [
            Command::Delete { key },
            Command::CompareAndSwap {
                key: b"x0",
                expected: Position::ZERO,
                value: b"",
            },
        ];
        let command = Command::Execute {
            mode: ExecuteMode::AllOrNothing,
            conditions: List::default(),
            operations: List::from(&operations),
        };
        self.submit_without_judgement(now, index, &command);
    }

    fn submit_without_judgement(&mut self, now: Instant, index: usize, command: &Command<'_>) {
        let submission = Submission {
            mode: Mode::Write,
            command,
            deadline: Some(now + PATIENCE),
            tag: UNJUDGED_TAG,
        };
        let number = self.callers[index].number;
        self.notes
            .add(|| format!("calls client {number} {command:?}, not judged"));
        // A full window refuses it; there will be others.
        let _ = self.clients.submit(now, self.callers[index].id, submission);
    }

    fn collect_range(&mut self, simulated: Instant, finished: &Finished) {
        let call = self.open_ranges.remove(&finished.tag);
        let call = call.expect("each operation ends once, and is known");
        self.callers[call.caller].open -= 1;
        let now_ns = simulated.as_nanos();
        let mut history = self.history.borrow_mut();
        match &finished.result {
            Ok(answer) => {
                let response = answer.response();
                let response = response.expect("the client library has decoded it once");
                let position = answer.position();
                self.notes
                    .add(|| format!("a range is answered {response:?} at position {position}"));
                let position = position.as_u64();
                call.answered(&mut history, now_ns, &response, position);
            }
            Err(error) if error.is_definitely_not_applied() => call.failed(&mut history, now_ns),
            Err(_) => {}
        }
    }

    /// Now and then a limit that refuses most writes; the next change ends that.
    fn memory_change(&mut self) -> Command<'static> {
        let memory_bytes = match self.prng.below(10) {
            0 => self.prng.in_range(1_000..=20_000),
            _ => 1 << 30,
        };
        Command::SetMemory { memory_bytes }
    }

    /// One of a few users comes, goes or gets a new key. Whether the command is refused does not matter: the replicas'
    /// states have to stay alike.
    fn user_change(&mut self) -> Command<'static> {
        const PREFIX: &[u8] = b"x1";
        let drawn = Issuer {
            group: GroupId([self.prng.chance(Ratio::percent(10)).into(); 8]),
            root: Fingerprint([1; 4]),
        };
        let issuer = self.issuer.unwrap_or(drawn);
        let name = UserName::new(&[b'a' + self.prng.below(5) as u8]).expect("a letter is a name");
        let prefix = &PREFIX[..self.prng.below(3) as usize];
        match self.prng.below(4) {
            0 => Command::RotateUser { issuer, name },
            1 => Command::RemoveUser { name },
            _ => Command::AddUser {
                issuer,
                name,
                rights: Rights {
                    role: Role::ALL[self.prng.below(4) as usize],
                    front: self.prng.chance(Ratio::percent(20)),
                    prefix,
                },
            },
        }
    }

    // Long because each kind of command has an arm.
    fn submit_unjudged(&mut self, now: Instant, index: usize) {
        let keys: Vec<Vec<u8>> = (0..2)
            .map(|_| format!("x{}", self.prng.below(6)).into_bytes())
            .collect();
        let (key, other) = (keys[0].as_slice(), keys[1].as_slice());
        let value = &vec![b'x'; self.prng.below(200) as usize][..];
        let after_ns = self.prng.in_range(1_000_000..=3_000_000_000);
        let options = SetOptions {
            expiry: SetExpiry::After(after_ns),
            return_previous: self.prng.chance(Ratio::percent(50)),
            ..SetOptions::default()
        };
        let pairs = [
            Pair { key, value },
            Pair {
                key: other,
                value: b"1",
            },
        ];
        let conditions = [Condition::Present { key: other }];
        let operations = [
            Command::Increment {
                key: other,
                delta: 1,
            },
            Command::Append { key, value: b"." },
        ];
        let mode = match self.prng.below(2) {
            0 => ExecuteMode::AllOrNothing,
            _ => ExecuteMode::Independent,
        };
        let command = match self.prng.below(11) {
            10 => self.user_change(),
            9 => self.memory_change(),
            0 => Command::Expire { key, after_ns },
            8 => Command::ExpireIf {
                key,
                after_ns,
                condition: ExpireCondition::Later,
            },
            1 => Command::Persist { key },
            2 => Command::Append { key, value },
            3 => Command::GetDelete { key },
            4 => Command::MultiPut {
                pairs: List::from(&pairs),
            },
            5 => Command::Execute {
                mode,
                conditions: List::from(&conditions),
                operations: List::from(&operations),
            },
            _ => Command::Set {
                key,
                value,
                options,
            },
        };
        self.submit_without_judgement(now, index, &command);
    }

    /// Of a page. Its own draws: those of the other calls stay as they are.
    fn range_mode(&mut self) -> Mode {
        let ranges = self.ranges.as_mut().expect("a range is called");
        read_mode_of(ranges.percent())
    }

    fn mode(&mut self, request: &Request) -> Mode {
        let logged = self.prng.chance(LOGGED_READS);
        let last = self.prng.chance(LAST_WRITES);
        match (request.action.is_read(), logged, last) {
            (true, false, _) => self.read_mode(),
            (_, _, true) => Mode::WriteAndClose,
            (_, _, false) => Mode::Write,
        }
    }

    fn read_mode(&mut self) -> Mode {
        read_mode_of(self.prng.below(100))
    }

    /// Takes in what is over.
    pub(crate) fn collect(&mut self, simulated: Instant) {
        while let Some(finished) = self.clients.poll_finished() {
            if finished.tag & UNJUDGED_TAG != 0 || Bursts::owns(finished.tag) {
                continue;
            }
            if finished.tag & RANGE_TAG != 0 {
                self.collect_range(simulated, &finished);
                continue;
            }
            if Repeats::owns(finished.tag) {
                let repeats = self.repeats.as_mut().expect("only they have such tags");
                repeats.collect(&finished);
                continue;
            }
            if Counts::owns(finished.tag) {
                let counts = self.counts.as_mut().expect("only they have such tags");
                counts.collect(&finished);
                continue;
            }
            if Walks::owns(finished.tag) {
                let walks = self.walks.as_mut().expect("only they have such tags");
                walks.collect(&finished, simulated);
                continue;
            }
            if Streams::owns(finished.tag) {
                let streams = self.streams.as_mut().expect("only they have such tags");
                streams.collect(&mut self.clients, &finished, simulated);
                continue;
            }
            let open = self
                .open
                .remove(&finished.tag)
                .expect("each operation ends once, and is known");
            let caller = &mut self.callers[open.caller];
            caller.open -= 1;
            let mut history = self.history.borrow_mut();
            record(
                &mut history,
                simulated,
                &open,
                &mut caller.workload,
                &finished,
            );
            self.notes.add(|| {
                let over = text_of(&history, open.operation);
                match &finished.result {
                    Ok(_) => format!("is answered {over}"),
                    Err(error) => format!("gives up {over}: {error}"),
                }
            });
        }
    }
}

/// The way of a read that goes through no log, by a number below 100.
fn read_mode_of(percent: u64) -> Mode {
    match percent {
        0..FOLLOWER_READS_PERCENT => Mode::ReadFollower,
        percent if percent < FOLLOWER_READS_PERCENT + READS_ANYWHERE_PERCENT => Mode::ReadAnywhere,
        _ => Mode::Read,
    }
}

/// An operation, as verdicts show it.
fn text_of(history: &History, operation: OperationIndex) -> String {
    history.operations()[operation.0].to_string()
}

fn record(
    history: &mut History,
    simulated: Instant,
    open: &Open,
    workload: &mut Workload,
    finished: &Finished,
) {
    let now_ns = simulated.as_nanos();
    match &finished.result {
        Ok(answer) => {
            let response = answer
                .response()
                .expect("the client library has decoded it once");
            let position = answer.position().as_u64();
            let answer = answer_of(&response)
                .unwrap_or_else(|| panic!("nothing asked for is answered with {response:?}"));
            workload.observe(&open.request, &answer);
            history.complete(open.operation, now_ns, answer, Some(position));
        }
        Err(error) if error.is_definitely_not_applied() => history.fail(open.operation, now_ns),
        // It stays open until the end: its outcome will never be known.
        Err(_) => {}
    }
}
