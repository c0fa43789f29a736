//! Who has administrated the group: a line for each admin command that was applied.
//!
//! Every replica writes the lines of the entries that it applies. Changes of the members are written by the leader that was
//! asked for them (`group/members/audit.rs`), and so are commands that were denied to users (`group/service/denials.rs`).
//! An entry names the user of a command, and nobody else. Who gave one without a user only the leader knows that has taken
//! it (`group/service/authors.rs`). A replica that starts again from its disk leaves out the lines of the entries that it
//! had before (`group/replayed.rs`). The trail is bounded: whoever does not read it loses the
//! oldest lines, and learns how many.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use trine_keys::{Credential, UserName};
use trine_kvstore::{Command, Position, Response, StoreError, Users};

use crate::config::AUDIT_LINES_MAX;
use crate::rights::{Caller, Denied};

/// An admin command that was applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Audit {
    /// Where in the log.
    pub position: Position,
    /// By whom.
    pub by: By,
    /// The command, with what it is about.
    pub what: String,
    /// How it ended.
    pub outcome: String,
    /// The limit of the memory in bytes, if the command has set one.
    pub sets_memory: Option<u64>,
    /// The command in the log, if it belongs to no user.
    pub(crate) asked: Option<Asked>,
}

/// A command of a client session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    /// The session.
    pub(crate) client: u64,
    /// The command's number in it.
    pub(crate) sequence: u64,
}

/// What the audit log of before the restart says of an entry.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToldBefore {
    /// Nothing: the entry is new here.
    No,
    /// All there was to say.
    Yes,
    /// As much, unless the process ended between write and line.
    Probably,
}

/// Who gave an admin command: the user of the client session that it came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// No user. That is all a client session says, and all that a replica knows which has not taken the command itself.
    NoUser,
    /// A caller without a key.
    Stranger {
        /// Where it called from, if that is an address.
        from: Option<SocketAddr>,
    },
    /// A holder of the cluster key file.
    Holder,
    /// A member.
    Member,
    /// A user.
    User {
        /// The user's number.
        number: u32,
        /// The name, if the user was still there.
        name: Option<UserName>,
    },
    /// A front that named another user. Its administrative commands are denied, so this stands in lines about denials
    /// alone.
    Front {
        /// The front's name.
        front: UserName,
        /// The number that it named.
        number: u32,
        /// Whose number that is, if there is such a user.
        name: Option<UserName>,
    },
}

impl By {
    /// Whom the session of a message has proven to be.
    pub(crate) fn caller(caller: Caller, users: Option<&Users>) -> Self {
        match caller {
            Caller::Unkeyed(_) => Self::Stranger { from: None },
            Caller::Proven(Credential::Member) => Self::Member,
            Caller::Proven(Credential::Admin) => Self::Holder,
            Caller::Proven(Credential::User { name, .. }) => {
                let user = users.and_then(|users| users.named(name));
                Self::User {
                    number: user.map_or(0, |user| user.number),
                    name: Some(name),
                }
            }
        }
    }

    /// A caller without a key is known by its address alone. It is told once.
    pub(crate) fn came_from(&mut self, address: impl FnOnce() -> Option<SocketAddr>) {
        if let Self::Stranger { from: from @ None } = self {
            *from = address();
        }
    }

    /// Whom a session belongs to.
    pub(crate) fn session_of(number: u32, users: &Users) -> Self {
        match number {
            0 => Self::NoUser,
            number => Self::User {
                number,
                name: users.numbered(number).map(|user| user.name),
            },
        }
    }
}

/// What a command does to the group, in words of bounded length. Nothing for commands about keys and for reads.
pub(crate) fn words_of(command: &Command<'_>) -> Option<String> {
    Some(match command {
        Command::SetLimits { limits } => format!(
            "set limits: memory {} bytes, keys {} bytes, values {} bytes",
            limits.memory_bytes, limits.key_bytes, limits.value_bytes
        ),
        Command::SetMemory { memory_bytes } => format!("set memory to {memory_bytes} bytes"),
        Command::SetOrdered { on: true } => "set ordered on".to_owned(),
        Command::SetOrdered { on: false } => "set ordered off".to_owned(),
        Command::RaiseVersion { version } => format!("raise state-machine version to {version}"),
        Command::AddUser { name, rights, .. } => format!(
            "add user {name}, role {}{}, prefix \"{}\"",
            rights.role,
            if rights.front { ", front" } else { "" },
            rights
                .prefix
                .get(..128)
                .unwrap_or(rights.prefix)
                .escape_ascii()
        ),
        Command::RemoveUser { name } => format!("remove user {name}"),
        Command::RotateUser { name, .. } => format!("rotate the key of user {name}"),
        _ => return None,
    })
}

/// The limit of the memory in bytes that a command asks for.
pub(crate) fn memory_asked_for(command: &Command<'_>) -> Option<u64> {
    match command {
        Command::SetLimits { limits } => Some(limits.memory_bytes),
        Command::SetMemory { memory_bytes } => Some(*memory_bytes),
        _ => None,
    }
}

/// What the outcome of a command begins with that was denied to its sender.
const DENIED: &str = "denied";

/// The outcome of a command that its sender has no right to.
pub(crate) fn denied(why: &Denied) -> String {
    format!("{DENIED}: {why}")
}

impl Audit {
    /// What is said of a command that was in the log before a restart, and of which nobody knows any more whether it was told
    /// then. Told once more, it would pass for a new one.
    pub(crate) fn of_before(self) -> Self {
        Self {
            what: "an administrative command of before the restart".to_owned(),
            outcome: "the line of this position is in the log of before, unless the process ended just then".to_owned(),
            sets_memory: None,
            ..self
        }
    }

    /// Whether the command was denied to its sender. Every other one got as far as the group.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        self.outcome.starts_with(DENIED)
    }
}

/// The outcome of an admin command, in words.
pub(crate) fn outcome_of(response: &Response<'_>) -> String {
    match response {
        Response::User(user) => format!(
            "done, number {}, generation {}",
            user.number, user.generation
        ),
        Response::Error(error) => refused(*error),
        _ => "done".to_owned(),
    }
}

fn refused(error: StoreError) -> String {
    format!("refused: {error}")
}

/// `user alice (number 3): remove user bob: done`.
impl fmt::Display for Audit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}: {}", self.by, self.what, self.outcome)
    }
}

impl fmt::Display for By {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUser => write!(formatter, "no user"),
            Self::Stranger { from: None } => write!(formatter, "a caller without a key"),
            Self::Stranger {
                from: Some(address),
            } => write!(formatter, "a caller without a key at {address}"),
            Self::Holder => write!(formatter, "the holder of the cluster key file"),
            Self::Member => write!(formatter, "a member"),
            Self::User {
                number,
                name: Some(name),
            } => write!(formatter, "user {name} (number {number})"),
            Self::User { number, name: None } => write!(formatter, "user number {number}, removed"),
            Self::Front {
                front,
                number,
                name: Some(name),
            } => write!(
                formatter,
                "user {front}, acting for user {name} (number {number})"
            ),
            Self::Front {
                front,
                number,
                name: None,
            } => write!(
                formatter,
                "user {front}, acting for user number {number}, which does not exist"
            ),
        }
    }
}

/// The lines that were not read yet. Not part of the replicated state.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    lines: VecDeque<Audit>,
    lost: u64,
}

impl Trail {
    pub(crate) fn push(&mut self, line: Audit) {
        if self.lines.len() >= AUDIT_LINES_MAX {
            self.lines.pop_front();
            self.lost += 1;
        }
        self.lines.push_back(line);
    }

    /// The command of the last line came from this address.
    pub(crate) fn came_from(&mut self, address: impl FnOnce() -> Option<SocketAddr>) {
        if let Some(line) = self.lines.back_mut() {
            line.by.came_from(address);
        }
    }

    /// A line is left out. The next one that is read says so.
    pub(crate) fn leave_out(&mut self) {
        self.lost += 1;
    }

    /// The oldest line, and how many were lost before it.
    pub(crate) fn pop(&mut self) -> Option<(Audit, u64)> {
        let line = self.lines.pop_front()?;
        Some((line, std::mem::take(&mut self.lost)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_keys::{Fingerprint, GroupId, Issuer, Role};
    use trine_kvstore::config::USER_PREFIX_BYTES_MAX;
    use trine_kvstore::{Kind, Limits, Rights};

    const ISSUER: Issuer = Issuer {
        group: GroupId([1; 8]),
        root: Fingerprint([2; 4]),
    };

    fn line(position: u64) -> Audit {
        Audit {
            position: Position::new(position, 0),
            by: By::NoUser,
            what: "set memory to 1 bytes".to_owned(),
            outcome: "done".to_owned(),
            sets_memory: Some(1),
            asked: None,
        }
    }

    #[test]
    fn a_line_says_who_what_and_how_it_ended() {
        let name: UserName = "alice".parse().expect("a name");
        let by = By::User {
            number: 3,
            name: Some(name),
        };
        let what = words_of(&Command::RotateUser {
            issuer: ISSUER,
            name,
        });
        let outcome = outcome_of(&Response::Error(StoreError::UnknownUser));
        let audit = Audit {
            by,
            what: what.expect("an admin command"),
            outcome,
            ..line(1)
        };
        assert_eq!(
            audit.to_string(),
            "user alice (number 3): rotate the key of user alice: refused: there is no user with this name"
        );
        assert_eq!(line(1).to_string(), "no user: set memory to 1 bytes: done");
    }

    /// The server found the limit in the words of the line.
    #[test]
    fn a_command_that_sets_the_memory_says_how_much() {
        let limits = Limits::default();
        let all = Command::SetLimits { limits };
        assert_eq!(memory_asked_for(&all), Some(limits.memory_bytes));
        let memory = Command::SetMemory { memory_bytes: 77 };
        assert_eq!(memory_asked_for(&memory), Some(77));
        assert_eq!(memory_asked_for(&Command::SetOrdered { on: true }), None);
        assert_eq!(line(1).of_before().sets_memory, None);
    }

    #[test]
    fn the_longest_line_is_short() {
        let prefix = [0xff; 10 * USER_PREFIX_BYTES_MAX];
        let what = words_of(&Command::AddUser {
            issuer: ISSUER,
            name: UserName::new(&[b'x'; 32]).expect("a name"),
            rights: Rights {
                role: Role::Write,
                front: true,
                prefix: &prefix,
            },
        });
        assert!(what.expect("an admin command").len() < 700);
    }

    /// Each write from kind 64 on is administrative, and only those.
    #[test]
    fn every_admin_command_has_words() {
        let name: UserName = "alice".parse().expect("a name");
        let commands = [
            Command::SetLimits {
                limits: Limits::default(),
            },
            Command::SetMemory { memory_bytes: 1 },
            Command::SetOrdered { on: true },
            Command::RaiseVersion { version: 5 },
            Command::AddUser {
                issuer: ISSUER,
                name,
                rights: Rights {
                    role: Role::Read,
                    front: false,
                    prefix: b"",
                },
            },
            Command::RemoveUser { name },
            Command::RotateUser {
                issuer: ISSUER,
                name,
            },
        ];
        let is_admin = |kind: &&Kind| **kind as u8 >= 64 && **kind != Kind::ListUsers;
        let kinds: Vec<Kind> = Kind::ALL.iter().filter(is_admin).copied().collect();
        assert_eq!(
            kinds.len(),
            commands.len(),
            "a new kind needs words: {kinds:?}"
        );
        for command in &commands {
            assert!(kinds.contains(&command.kind()));
            assert!(words_of(command).is_some(), "{command:?}");
        }
        assert_eq!(words_of(&Command::Get { key: b"k" }), None);
        assert_eq!(words_of(&Command::ListUsers), None);
    }

    #[test]
    fn a_trail_that_is_not_read_loses_its_oldest_lines_and_says_so() {
        let mut trail = Trail::default();
        for position in 0..AUDIT_LINES_MAX as u64 + 3 {
            trail.push(line(position));
        }
        let (first, lost) = trail.pop().expect("a line");
        assert_eq!((first.position, lost), (Position::new(3, 0), 3));
        assert_eq!(trail.pop().map(|(_, lost)| lost), Some(0));
    }
}
