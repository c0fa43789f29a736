//! TRINE.DO: a write in a session that its client keeps. Each copy names the same session and sequence, on any connection, and
//! the group applies the write once. Nothing is kept here, and nothing on the connection.

use std::fmt;

use trine_kvstore::checksum::command_checksum;

use crate::answer::{Failure, SessionRefusal, failure_text, refusal_text};
use crate::describe::{help, known_command};
use crate::errors::{Refusal, SYNTAX};
use crate::keyspace::flush;
use crate::limits::{SESSION_TTL_MS, SESSION_WINDOW};
use crate::plan::{Clock, Plan};
use crate::reply::Writer;
use crate::table::{DO_WORDS, Verb, whole_number};

/// Ends a session. No command of a client has it, so every answer that the session holds goes.
pub const CLOSING_SEQUENCE: u64 = u64::MAX;

const TOKEN_DIGITS: usize = 32;

/// The name of a session, which is also the secret of its client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The session's client id.
    pub client: u64,
    /// The number that it was opened with.
    pub number: u64,
}

/// It must not get into a log.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Reads 32 hex digits.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let is_hex = text.len() == TOKEN_DIGITS && text.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(text).ok().filter(|_| is_hex)?;
        let (client, number) = text.split_at(TOKEN_DIGITS / 2);
        let read = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Self {
            client: read(client)?,
            number: read(number)?,
        })
    }

    /// 32 hex digits.
    #[must_use]
    pub fn to_text(self) -> String {
        format!("{:016x}{:016x}", self.client, self.number)
    }

    /// The number for a new session, made of random bits. Its lowest bit says whether a user opens it. The group cannot
    /// tell the sessions of clients that are no user from those of the front itself, so the front has to: see
    /// [`Token::is_of_user`].
    #[must_use]
    pub fn number_of(random: u64, is_user: bool) -> u64 {
        match is_user {
            true => (random & !1).max(2),
            false => random | 1,
        }
    }

    /// Whether a user has opened the session. The group checks which one.
    #[must_use]
    pub fn is_of_user(self) -> bool {
        self.number & 1 == 0
    }
}

/// The place of a command in a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// The session.
    pub token: Token,
    /// From 1.
    pub sequence: u64,
    /// The lowest sequence that is awaited: it acknowledges all below.
    pub lowest: u64,
    /// Tells the command from another one under the same sequence. It covers the words as they came, because EXAT becomes a
    /// different time to live in each copy.
    pub checksum: u32,
}

impl Numbered {
    /// The end of a session.
    #[must_use]
    pub const fn closing(token: Token) -> Self {
        Self {
            token,
            sequence: CLOSING_SEQUENCE,
            lowest: CLOSING_SEQUENCE,
            checksum: 0,
        }
    }

    /// Whether the session ends with it.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        self.sequence == CLOSING_SEQUENCE
    }
}

/// A request of TRINE.DO whose words were read.
#[derive(Debug)]
pub struct Once<'r, 'a> {
    numbered: Numbered,
    command: &'r [&'a [u8]],
}

impl<'r, 'a> Once<'r, 'a> {
    /// Reads a request that has as many parts as TRINE.DO takes.
    ///
    /// # Errors
    /// The first word that cannot be what it has to be.
    pub fn read(parts: &'r [&'a [u8]]) -> Result<Self, Refusal> {
        let command = &parts[DO_WORDS..];
        let token = token(parts[1])?;
        let sequence =
            whole_number(parts[2]).filter(|sequence| (1..CLOSING_SEQUENCE).contains(sequence));
        let sequence = sequence.ok_or(NOT_A_SEQUENCE)?;
        let lowest = whole_number(parts[3]).filter(|lowest| (1..=sequence).contains(lowest));
        let lowest = lowest.ok_or(NOT_THE_LOWEST)?;
        if sequence - lowest >= SESSION_WINDOW {
            return Err(refusal_text(SessionRefusal::Window).to_owned());
        }
        let checksum = checksum_of(command);
        let numbered = Numbered {
            token,
            sequence,
            lowest,
            checksum,
        };
        Ok(Self { numbered, command })
    }

    /// Its place in its session.
    #[must_use]
    pub fn numbered(&self) -> Numbered {
        self.numbered
    }

    /// The operations of the write, which the store takes as one command.
    ///
    /// # Errors
    /// The command cannot have a sequence, or is refused as it would be alone.
    pub fn plan(&self, unix_ms: i64) -> Result<Plan<'a>, Refusal> {
        let spec = known_command(self.command)?;
        let mut plan = Plan::default();
        let clock = Clock {
            unix_ms,
            is_repeated: true,
        };
        match (spec.plan(&mut plan, self.command, clock), spec.verb()) {
            (Some(planned), _) => planned?,
            (None, Some(Verb::Flush)) => plan.flush(flush(&self.command[1..])?),
            (None, verb) => return Err(not_a_write(spec.name(), verb)),
        }
        match plan.only_reads() {
            true => Err(format!(
                "ERR TRINE.DO takes one write, and this '{}' only reads: send it without TRINE.DO",
                spec.name()
            )),
            false => Ok(plan),
        }
    }
}

fn not_a_write(name: &str, verb: Option<Verb>) -> Refusal {
    let is_of_transaction = matches!(
        verb,
        Some(Verb::Multi | Verb::Exec | Verb::Discard | Verb::Watch | Verb::Unwatch)
    );
    match is_of_transaction {
        true => format!(
            "ERR TRINE.DO takes one write, and '{name}' belongs to a transaction, which has no sequence"
        ),
        false => {
            format!("ERR TRINE.DO takes one write, and '{name}' is none: send it without TRINE.DO")
        }
    }
}

/// A request of TRINE.SESSION.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionAsked {
    /// A new session.
    Open,
    /// The end of one.
    Close(Token),
}

impl SessionAsked {
    /// Reads the words behind TRINE.SESSION. None if the reply is written.
    ///
    /// # Errors
    /// The word behind CLOSE is not a token.
    pub fn read(words: &[&[u8]], writer: &mut Writer<'_>) -> Result<Option<Self>, Refusal> {
        let subcommand = words.first().map(|word| word.to_ascii_lowercase());
        match (subcommand.as_deref(), words) {
            (None, _) => Ok(Some(Self::Open)),
            (Some(b"close"), [_, text]) => token(text).map(|token| Some(Self::Close(token))),
            (Some(b"help"), [_]) => {
                help(writer, "TRINE.SESSION", &HELP);
                Ok(None)
            }
            _ => Err(SYNTAX.to_owned()),
        }
    }
}

/// The error for a session that could not be opened. One that was opened all the same has no client, and goes by itself.
pub fn not_opened_text(failure: &Failure) -> String {
    match failure {
        Failure::NotApplied(why) | Failure::Unknown(why) => {
            format!("CLUSTERDOWN no session was opened: {why}")
        }
        other => failure_text(other, false),
    }
}

/// Writes the reply to TRINE.SESSION: the token, the milliseconds after which an idle session may go, and the window.
pub fn write_opened(token: Token, writer: &mut Writer<'_>) {
    writer.array(3);
    writer.bulk(token.to_text().as_bytes());
    writer.integer(SESSION_TTL_MS);
    writer.integer(SESSION_WINDOW as i64);
}

fn token(text: &[u8]) -> Result<Token, Refusal> {
    Token::parse(text).ok_or_else(|| NOT_A_TOKEN.to_owned())
}

/// A checksum of the words. The name counts in capitals, as libraries write it in either.
fn checksum_of(command: &[&[u8]]) -> u32 {
    let mut sums = Vec::with_capacity(8 * command.len());
    for (place, part) in command.iter().enumerate() {
        let sum = match place {
            0 => command_checksum(&part.to_ascii_uppercase()),
            _ => command_checksum(part),
        };
        sums.extend_from_slice(&sum.to_le_bytes());
        sums.extend_from_slice(&(part.len() as u32).to_le_bytes());
    }
    command_checksum(&sums)
}

const NOT_A_TOKEN: &str = "ERR a token has 32 hex digits, as TRINE.SESSION answers it";
const NOT_A_SEQUENCE: &str = "ERR a sequence is a number from 1 to 18446744073709551614";
const NOT_THE_LOWEST: &str =
    "ERR the lowest awaited sequence is a number from 1 to the command's own sequence";

const HELP: [&str; 4] = [
    "(no subcommand)",
    "    Open a session for TRINE.DO: its token, its time to live in milliseconds, its window.",
    "CLOSE <token>",
    "    End a session.",
];

#[cfg(test)]
mod tests;
