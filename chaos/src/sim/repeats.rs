//! Writes that several fronts repeat, in a part of the seeds, as TRINE.DO does. The machines of clients stand for the fronts.
//! They share sessions that none of them keeps for itself, and send copies of each other's commands, at once and late.
//!
//! Each command adds 1 to the counter of its session, which nobody else writes. All copies must have one answer, and the
//! counter must not be larger than the number of commands.

use super::Host;
use crate::checker::Verdict;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use trine_client::{
    ClientId, Clients, EncodedCommand, Error, Finished, NamedSession, Numbered, Obstacle,
    SessionRefusal,
};
use trine_kvstore::checksum::command_checksum;
use trine_kvstore::{Command, Response};
use trine_transport::buf::Pool;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::Instant;

/// Tags of copies have this bit.
const COPY_TAG: u64 = 1 << 56;
/// Tags of sessions that are opened have this one as well.
const SESSION_TAG: u64 = 1 << 55;
/// How often a call of a client is followed by a copy.
const COPIES: Ratio = Ratio::percent(20);
/// How often that is the first copy of a new command.
const NEW: Ratio = Ratio::percent(35);
/// How often a command that is answered comes once more.
const LATE: Ratio = Ratio::percent(30);
/// Sessions that are shared at a time.
const SESSIONS: usize = 2;
/// Commands of a session that have no answer yet.
const UNANSWERED_MAX: u64 = 20;

/// One seed of six has them, where the group knows checks from the beginning. Those that `REFERENCE.md` names for other
/// planted bugs have not, and stay what they are.
pub(crate) fn is_drawn(seed: u64) -> bool {
    matches!(seed % 12, 0 | 8)
}

/// What all fronts know.
#[derive(Default)]
pub(crate) struct Repeated {
    sessions: Vec<Shared>,
    /// Copies under way, by their tags.
    open: BTreeMap<u64, (NamedSession, u64)>,
    next_tag: u64,
    /// Copies that were answered after another one of their command.
    repeats: u64,
    finding: Option<String>,
}

/// A session.
struct Shared {
    name: NamedSession,
    next: u64,
    /// The answers: where, and what.
    answers: BTreeMap<u64, (u64, String)>,
}

impl Shared {
    /// The lowest sequence without an answer.
    fn lowest(&self) -> u64 {
        let unanswered = |sequence: &u64| !self.answers.contains_key(sequence);
        (1..self.next).find(unanswered).unwrap_or(self.next)
    }
}

impl Repeated {
    /// Copies that were answered after another one of their command.
    pub(crate) fn repeats(&self) -> u64 {
        self.repeats
    }

    /// Each command was applied once.
    pub(crate) fn verdict(&self) -> Verdict {
        let finding = self.finding.as_ref();
        finding.map_or(Verdict::Pass, |text| Verdict::violation(text.clone()))
    }

    fn blame(&mut self, session: NamedSession, sequence: u64, what: &str) {
        let NamedSession { client, .. } = session;
        self.finding.get_or_insert_with(|| {
            format!("repeated: sequence {sequence} of session {client} {what}")
        });
    }

    fn on_answer(&mut self, session: NamedSession, sequence: u64, at: u64, text: String) {
        let Some(shared) = self.sessions.iter_mut().find(|one| one.name == session) else {
            return;
        };
        let (given, answer) = (shared.next - 1, (at, text));
        match shared.answers.get(&sequence) {
            Some(before) if *before != answer => {
                let text = format!("was answered with {answer:?} and with {before:?}");
                return self.blame(session, sequence, &text);
            }
            Some(_) => self.repeats += 1,
            None => drop(shared.answers.insert(sequence, answer.clone())),
        }
        let counted = answer
            .1
            .strip_prefix("Number ")
            .and_then(|number| number.parse().ok());
        if counted.is_some_and(|counted: u64| counted > given) {
            let text = format!(
                "counted to {}, and only {given} commands were given",
                answer.1
            );
            self.blame(session, sequence, &text);
        }
    }

    fn on_refusal(&mut self, session: NamedSession, sequence: u64, refusal: SessionRefusal) {
        let Some(place) = self.sessions.iter().position(|one| one.name == session) else {
            return;
        };
        let is_answered = self.sessions[place].answers.contains_key(&sequence);
        match refusal {
            // It was idle while there was no leader.
            SessionRefusal::Lost => drop(self.sessions.remove(place)),
            SessionRefusal::Stale if is_answered => {}
            other => self.blame(session, sequence, &format!("was refused: {other}")),
        }
    }
}

/// One front.
pub(crate) struct Repeats {
    shared: Rc<RefCell<Repeated>>,
    pool: Pool,
    prng: Prng,
    /// Numbers of sessions that are being opened, by their tags.
    opening: BTreeMap<u64, u64>,
}

impl Repeats {
    pub(crate) fn new(shared: Rc<RefCell<Repeated>>, pool: Pool, seed: u64) -> Self {
        Self {
            shared,
            pool,
            prng: Prng::new(seed ^ 0x07ce_0d0f_07ce_0d0f),
            opening: BTreeMap::new(),
        }
    }

    /// Whether an operation with this tag is one of these.
    pub(crate) fn owns(tag: u64) -> bool {
        tag & COPY_TAG != 0
    }

    /// Sends a copy now and then, over the connection of `id`.
    pub(crate) fn call(&mut self, clients: &mut Clients<Host>, id: ClientId, now: Instant) {
        if !self.prng.chance(COPIES) {
            return;
        }
        let mut shared = self.shared.borrow_mut();
        shared.next_tag += 1;
        let tag = COPY_TAG | shared.next_tag;
        if shared.sessions.len() < SESSIONS && self.opening.is_empty() {
            let number = self.prng.next_u64() | 1;
            if clients
                .open_session(now, id, number, None, tag | SESSION_TAG)
                .is_ok()
            {
                self.opening.insert(tag | SESSION_TAG, number);
            }
            return;
        }
        if shared.sessions.is_empty() {
            return;
        }
        let place = self.prng.below(shared.sessions.len() as u64) as usize;
        let one = &mut shared.sessions[place];
        let lowest = one.lowest();
        let room = lowest + UNANSWERED_MAX - one.next;
        let is_new = one.next == 1 || (room > 0 && self.prng.chance(NEW));
        let sequence = match is_new {
            true => {
                one.next += 1;
                one.next - 1
            }
            false => {
                let first = if self.prng.chance(LATE) {
                    1
                } else {
                    lowest.min(one.next - 1)
                };
                self.prng.in_range(first..=one.next - 1)
            }
        };
        // A front may have heard less of the answers than another one.
        let lowest = lowest.min(sequence);
        let numbered = Numbered {
            session: one.name,
            sequence,
            lowest: self.prng.in_range(lowest.saturating_sub(2).max(1)..=lowest),
        };
        let key = format!("o{:x}", one.name.number).into_bytes();
        let command = Command::Increment {
            key: &key,
            delta: 1,
        };
        let checksum = command_checksum(&sequence.to_le_bytes());
        let Ok(command) = EncodedCommand::for_sender(&self.pool, None, checksum, &command) else {
            return;
        };
        // A full window refuses it; there will be others.
        if clients
            .submit_numbered(now, id, command, numbered, tag)
            .is_ok()
        {
            shared.open.insert(tag, (numbered.session, sequence));
        }
    }

    /// Takes in what is over.
    pub(crate) fn collect(&mut self, finished: &Finished) {
        let mut shared = self.shared.borrow_mut();
        if finished.tag & SESSION_TAG != 0 {
            let number = self.opening.remove(&finished.tag);
            let number = number.expect("each is opened once, and is known");
            if let Ok(answer) = &finished.result {
                let client = answer.position().as_u64();
                shared.sessions.push(Shared {
                    name: NamedSession { client, number },
                    next: 1,
                    answers: BTreeMap::new(),
                });
            }
            return;
        }
        let open = shared.open.remove(&finished.tag);
        let (session, sequence) = open.expect("each copy ends once, and is known");
        match &finished.result {
            Ok(answer) => {
                let at = answer.position().as_u64();
                let text = match answer.response() {
                    Ok(Response::Number { value, .. }) => format!("Number {value}"),
                    other => format!("{other:?}"),
                };
                // Without a position it is the leader's, which has not asked the session.
                if at != 0 {
                    shared.on_answer(session, sequence, at, text);
                }
            }
            Err(
                Error::Refused {
                    obstacle: Obstacle::NamedSession(refusal),
                }
                | Error::OutcomeUnknown {
                    obstacle: Obstacle::NamedSession(refusal),
                    ..
                },
            ) => shared.on_refusal(session, sequence, *refusal),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: NamedSession = NamedSession {
        client: 7,
        number: 9,
    };

    fn given(commands: u64) -> Repeated {
        Repeated {
            sessions: vec![Shared {
                name: NAME,
                next: commands + 1,
                answers: BTreeMap::new(),
            }],
            ..Repeated::default()
        }
    }

    fn number(value: u64) -> String {
        format!("Number {value}")
    }

    #[test]
    fn copies_have_one_answer() {
        let mut repeated = given(2);
        repeated.on_answer(NAME, 1, 65_536, number(1));
        repeated.on_answer(NAME, 1, 65_536, number(1));
        assert_eq!(repeated.verdict(), Verdict::Pass);
        repeated.on_answer(NAME, 1, 65_536, number(2));
        assert!(matches!(repeated.verdict(), Verdict::Violation(_)));
        let mut repeated = given(2);
        repeated.on_answer(NAME, 1, 65_536, number(1));
        repeated.on_answer(NAME, 1, 65_537, number(1));
        assert!(matches!(repeated.verdict(), Verdict::Violation(_)));
    }

    #[test]
    fn no_more_is_counted_than_was_given() {
        let mut repeated = given(2);
        repeated.on_answer(NAME, 2, 65_536, number(2));
        assert_eq!(repeated.verdict(), Verdict::Pass);
        repeated.on_answer(NAME, 1, 65_537, number(3));
        assert!(matches!(repeated.verdict(), Verdict::Violation(_)));
    }

    #[test]
    fn only_a_late_copy_is_stale_and_nothing_is_another_command() {
        let mut repeated = given(2);
        repeated.on_answer(NAME, 1, 65_536, number(1));
        repeated.on_refusal(NAME, 1, SessionRefusal::Stale);
        assert_eq!(repeated.verdict(), Verdict::Pass);
        repeated.on_refusal(NAME, 2, SessionRefusal::Stale);
        assert!(matches!(repeated.verdict(), Verdict::Violation(_)));
        let mut repeated = given(2);
        repeated.on_refusal(NAME, 1, SessionRefusal::SequenceUsed);
        assert!(matches!(repeated.verdict(), Verdict::Violation(_)));
        let mut repeated = given(2);
        repeated.on_refusal(NAME, 1, SessionRefusal::Lost);
        assert!(repeated.sessions.is_empty() && repeated.verdict() == Verdict::Pass);
    }
}
