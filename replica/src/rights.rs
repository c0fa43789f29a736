//! Rights of callers: one pure function decides for every message and every key of every command.
//!
//! ```text
//! Caller            what a session has proven
//!    | of           the applied user table says whether the key still counts
//! Subject           whose rights count
//!    | acting_for   a front or a member says for which user a request is
//! Subject           of a front: only what both of them may
//!    | may          the check
//! ```
//!
//! Whatever is not listed here is denied to everybody but members.

use std::fmt;

use trine_canary as canary;
use trine_keys::{Credential, Role, UserName};
use trine_kvstore::{Access, Command, Kind, User, Users};
use trine_protocol::message::{ForUser, Watch, Watched, kind};

use crate::config::DENIED_KEY_BYTES_MAX;

/// What a replica makes of connections without a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyStage {
    /// There are no keys: everybody may do everything.
    #[default]
    None,
    /// Connections with and without a key are served, and those without one may do everything.
    Accept,
    /// A connection without a key may only ask who the members are.
    Require,
}

/// What the session of a request has proven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    /// Nothing.
    Unkeyed(KeyStage),
    /// To have a key.
    Proven(Credential),
}

impl Caller {
    /// Whether it is no user, and may give every command of the store: then the users need not be looked at.
    #[must_use]
    pub(crate) fn may_give_every_command(self) -> bool {
        matches!(
            self,
            Self::Unkeyed(KeyStage::None | KeyStage::Accept)
                | Self::Proven(Credential::Member | Credential::Admin)
        )
    }
}

impl Default for Caller {
    fn default() -> Self {
        Self::Unkeyed(KeyStage::None)
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// Who the members are and who leads.
    Discovery,
    /// The whole status of a replica.
    Status,
    /// A client session.
    Session,
    /// A command of the store.
    Command(&'a Command<'a>),
    /// A change of the members, or of who leads.
    Admin,
    /// An image of all keys and users.
    Backup,
    /// To hear of every change of these keys.
    Watch(&'a [Watch<'a>]),
    /// A message between members.
    Peer,
}

/// What a message is about, before its content is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageClass {
    /// Client requests: each is checked by itself.
    Client,
    /// A status request: its form decides.
    Status,
    /// An admin command.
    Admin,
    /// A request about a backup.
    Backup,
    /// What a client watches: its content decides.
    Watch,
    /// Between members.
    Peer,
}

impl MessageClass {
    /// The class of a message kind. A kind that is not known here is between members.
    #[must_use]
    pub fn of(message_kind: u8) -> Self {
        match message_kind {
            kind::CLIENT | kind::CLIENT_BATCH => Self::Client,
            kind::STATUS => Self::Status,
            kind::ADMIN => Self::Admin,
            kind::BACKUP => Self::Backup,
            kind::WATCH => Self::Watch,
            _ => Self::Peer,
        }
    }
}

/// Whose rights count for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject<'a> {
    /// Without a key, where none is required: everything.
    Anybody,
    /// Without a key, where one is required.
    Stranger,
    /// A member of the group.
    Member,
    /// A holder of the cluster key file.
    Holder,
    /// A user.
    User(User<'a>),
    /// A front that acts for another user. It has the rights that both have, and administrates nothing.
    Front {
        /// Whose key the session has proven.
        front: User<'a>,
        /// For whom the request is.
        user: User<'a>,
    },
}

impl<'a> Subject<'a> {
    /// Who a caller is, by the user table that this replica has applied.
    ///
    /// # Errors
    /// A user's key that was rotated away, or whose user was removed.
    pub fn of(caller: Caller, users: &'a Users) -> Result<Self, Denied> {
        Ok(match caller {
            Caller::Unkeyed(KeyStage::None | KeyStage::Accept) => Self::Anybody,
            Caller::Unkeyed(KeyStage::Require) => Self::Stranger,
            Caller::Proven(Credential::Member) => Self::Member,
            Caller::Proven(Credential::Admin) => Self::Holder,
            Caller::Proven(Credential::User { name, generation }) => {
                let current = users.is_current(name, generation);
                Self::User(
                    current.ok_or(Denied::new(Who::User(name), Missing::Key { generation }))?,
                )
            }
        })
    }

    /// The number of the user, 0 if it is none. A client session belongs to the number that registered it.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::User(user) | Self::Front { user, .. } => user.number,
            _ => 0,
        }
    }

    /// The subject of a request that says for which user it is. A member lends the user its own word, so the user's rights
    /// count. A front is a user itself, and gains nothing by naming another: the rights of both count.
    ///
    /// # Errors
    /// The caller is neither a member nor a front, there is no such user any more, or the key that it has shown to the
    /// front was rotated away.
    pub fn acting_for(self, for_user: ForUser, users: &'a Users) -> Result<Self, Denied> {
        let ForUser { number, generation } = for_user;
        if number == self.number() {
            return Ok(self);
        }
        // Who may do everything gives rights away by it.
        if !self.is_believed() && self != Self::Anybody {
            return Err(self.denied(Missing::Front));
        }
        let user = users.numbered(number);
        let user = user.ok_or(Denied::new(Who::Number(number), Missing::User))?;
        if generation != 0 && generation != user.generation {
            return Err(Denied::new(
                Who::User(user.name),
                Missing::Key { generation },
            ));
        }
        Ok(match self {
            Self::User(_) if canary::planted("a front has the rights of whomever it names") => {
                Self::User(user)
            }
            Self::User(front) => Self::Front { front, user },
            _ => Self::User(user),
        })
    }

    /// Whether its word on other users counts.
    fn is_believed(&self) -> bool {
        match self {
            Self::Member => true,
            Self::User(user) => user.front,
            Self::Anybody | Self::Stranger | Self::Holder | Self::Front { .. } => false,
        }
    }

    /// Whether it may use a client session that this number has registered. A front may use those of users, and none of
    /// members and holders of the key file.
    #[must_use]
    pub fn may_use_session_of(&self, number: u32) -> bool {
        let is_open_to_fronts = *self == Self::Member || number != 0;
        number == self.number() || (self.is_believed() && is_open_to_fronts)
    }

    /// Decides.
    ///
    /// # Errors
    /// Says who lacks what.
    pub fn may(&self, what: What<'_>) -> Result<(), Denied> {
        if let Self::Front { front, user } = *self {
            return may_both(front, user, what);
        }
        match what {
            // Before anything is looked at: a write of a group without keys pays nothing for this.
            _ if matches!(self, Self::Anybody | Self::Member) => Ok(()),
            What::Discovery => Ok(()),
            What::Status | What::Session => self.needs(Role::Read),
            What::Admin => self.needs(Role::Admin),
            What::Backup => {
                self.needs(Role::Admin)?;
                self.may_all_keys()
            }
            What::Watch(watches) => {
                self.needs(Role::Read)?;
                watches.iter().try_for_each(|watch| self.may_watch(watch))
            }
            What::Peer => self.needs(Role::Member),
            What::Command(command) => self.may_command(command),
        }
    }

    fn may_command(&self, command: &Command<'_>) -> Result<(), Denied> {
        match need(command.kind()) {
            Need::Keys(role) => {
                self.needs(role)?;
                self.may_keys(command)
            }
            Need::Range(role) => {
                self.needs(role)?;
                self.may_range(command)
            }
            Need::WholeSpace(role) => {
                self.needs(role)?;
                self.may_all_keys()
            }
            Need::Admin => self.needs(Role::Admin),
            Need::Operations => self.may_operations(command),
        }
    }

    fn may_watch(&self, watch: &Watch<'_>) -> Result<(), Denied> {
        let prefix = self.prefix();
        match watch.watched {
            Watched::Key(key) if key.starts_with(prefix) => Ok(()),
            Watched::Range(range) if range.is_within(prefix) => Ok(()),
            Watched::Key(key) => Err(self.denied(Missing::KeyOutside {
                key: short(key),
                prefix: short(prefix),
            })),
            Watched::Range(_) => Err(self.denied(Missing::RangeOutside {
                prefix: short(prefix),
            })),
        }
    }

    fn may_all_keys(&self) -> Result<(), Denied> {
        match self.prefix() {
            [] => Ok(()),
            prefix => Err(self.denied(Missing::AllKeys {
                prefix: short(prefix),
            })),
        }
    }

    fn may_range(&self, command: &Command<'_>) -> Result<(), Denied> {
        let prefix = self.prefix();
        match command.range() {
            Some(range) if range.is_within(prefix) => Ok(()),
            _ => Err(self.denied(Missing::RangeOutside {
                prefix: short(prefix),
            })),
        }
    }

    fn may_operations(&self, command: &Command<'_>) -> Result<(), Denied> {
        // Conditions read, also where there is no operation.
        self.needs(Role::Read)?;
        if let Command::Execute { operations, .. } = command {
            operations
                .iter()
                .try_for_each(|operation| self.may_command(&operation))?;
        }
        self.may_keys(command)
    }

    fn may_keys(&self, command: &Command<'_>) -> Result<(), Denied> {
        let prefix = self.prefix();
        command.each_key(|key, access| {
            self.needs(role_of(access))?;
            if key.starts_with(prefix) {
                return Ok(());
            }
            Err(self.denied(Missing::KeyOutside {
                key: short(key),
                prefix: short(prefix),
            }))
        })
    }

    fn needs(&self, needed: Role) -> Result<(), Denied> {
        let has = match self {
            Self::Anybody | Self::Member => Some(Role::Member),
            Self::Holder => Some(Role::Admin),
            Self::User(user) => Some(user.role),
            // A front is judged in two parts, neither of which comes here as one.
            Self::Stranger | Self::Front { .. } => None,
        };
        if has.is_some_and(|has| has >= needed) {
            return Ok(());
        }
        Err(self.denied(Missing::Role { needed, has }))
    }

    /// What the caller's keys begin with; nothing if it may touch all.
    pub(crate) fn prefix(&self) -> &'a [u8] {
        match self {
            Self::User(user) => user.prefix,
            _ => &[],
        }
    }

    fn denied(&self, missing: Missing) -> Denied {
        let who = match self {
            Self::Anybody | Self::Stranger => Who::Stranger,
            Self::Member => Who::Member,
            Self::Holder => Who::Holder,
            Self::User(user) => Who::User(user.name),
            Self::Front { front, user } => Who::Front {
                front: front.name,
                user: user.name,
            },
        };
        Denied::new(who, missing)
    }

    /// The refusal of a command that administrates, where it would not be clear whose command it is.
    pub(crate) fn may_not_administrate(&self) -> Denied {
        self.denied(Missing::OwnSession)
    }
}

/// What a front may do for another user: what both may, and nothing that administrates the group.
fn may_both(front: User<'_>, user: User<'_>, what: What<'_>) -> Result<(), Denied> {
    let both = Subject::Front { front, user };
    let administrates = match what {
        What::Command(command) => need(command.kind()) == Need::Admin,
        What::Admin | What::Backup | What::Peer => true,
        What::Discovery | What::Status | What::Session | What::Watch(_) => false,
    };
    if administrates {
        return Err(both.may_not_administrate());
    }
    // The front first: its refusal names both.
    let of_front = Subject::User(front).may(what);
    of_front.map_err(|Denied { missing, .. }| both.denied(missing))?;
    Subject::User(user).may(what)
}

/// Whether a command changes the group itself. An audit line tells of it.
pub(crate) fn administrates(command: &Command<'_>) -> bool {
    need(command.kind()) == Need::Admin && !command.is_read_only()
}

/// What a kind of command needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    /// The role, and each key.
    Keys(Role),
    /// The role, and every key of a range, whether it is there or not.
    Range(Role),
    /// The role, and all keys at once.
    WholeSpace(Role),
    /// To administrate.
    Admin,
    /// What its operations and conditions need.
    Operations,
}

/// Without a default: a new kind of command does not compile until it has its line here.
fn need(kind: Kind) -> Need {
    match kind {
        // The prefix of a walk counts as a key: whoever may touch it may touch all keys that begin with it.
        Kind::Get | Kind::MultiGet | Kind::TimeToLive | Kind::Walk | Kind::WalkAt => {
            Need::Keys(Role::Read)
        }
        Kind::Put
        | Kind::Delete
        | Kind::Set
        | Kind::GetDelete
        | Kind::CompareAndSwap
        | Kind::Increment
        | Kind::Append
        | Kind::MultiPut
        | Kind::Expire
        | Kind::ExpireIf
        | Kind::ExpireIfBeyond
        | Kind::Persist => Need::Keys(Role::Write),
        Kind::Count => Need::WholeSpace(Role::Read),
        // They touch no key, and whoever may read needs them. The pages are checked.
        Kind::Pin | Kind::RenewPin | Kind::Unpin => Need::Keys(Role::Read),
        Kind::Scan | Kind::ScanAt | Kind::CountRange | Kind::CountAt => Need::Range(Role::Read),
        Kind::DeleteRange => Need::Range(Role::Write),
        Kind::Flush => Need::WholeSpace(Role::Write),
        Kind::Execute => Need::Operations,
        Kind::SetLimits
        | Kind::SetMemory
        | Kind::SetOrdered
        | Kind::RaiseVersion
        | Kind::AddUser
        | Kind::RemoveUser
        | Kind::RotateUser
        | Kind::ListUsers => Need::Admin,
    }
}

/// What touching a key takes. An EXEC's access to a key is that of its operation; if it is not known, it counts as a
/// write.
fn role_of(access: Access) -> Role {
    match access {
        Access::Read => Role::Read,
        Access::Write | Access::OfOperations => Role::Write,
    }
}

/// Whom something was denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// A caller without a key.
    Stranger,
    /// A member.
    Member,
    /// A holder of the cluster key file.
    Holder,
    /// A user.
    User(UserName),
    /// A front that acts for another user.
    Front {
        /// The front.
        front: UserName,
        /// The user that it names.
        user: UserName,
    },
    /// A user that is not there any more.
    Number(u32),
}

/// What is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// A role. `has` is none without a key.
    Role {
        /// The least that does.
        needed: Role,
        /// What it is.
        has: Option<Role>,
    },
    /// A key of a generation that counts.
    Key {
        /// The generation that was shown.
        generation: u32,
    },
    /// The right to a key.
    KeyOutside {
        /// The key; the first part of a long one.
        key: Box<[u8]>,
        /// What the caller's keys begin with.
        prefix: Box<[u8]>,
    },
    /// The right to every key of a range.
    RangeOutside {
        /// What the caller's keys begin with.
        prefix: Box<[u8]>,
    },
    /// The right to all keys at once.
    AllKeys {
        /// What the caller's keys begin with.
        prefix: Box<[u8]>,
    },
    /// To be a front, whose word on other users counts.
    Front,
    /// The user for whom a front asks.
    User,
    /// A session of one's own, over which the group is administrated.
    OwnSession,
}

/// A refusal: who lacks what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// Whom.
    pub who: Who,
    /// What is missing.
    pub missing: Missing,
}

impl Denied {
    fn new(who: Who, missing: Missing) -> Self {
        Self { who, missing }
    }
}

/// Of a long key the first part: a refusal is short.
fn short(key: &[u8]) -> Box<[u8]> {
    key[..key.len().min(DENIED_KEY_BYTES_MAX)].into()
}

impl fmt::Display for Who {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stranger => write!(formatter, "a caller without a key"),
            Self::Member => write!(formatter, "a member"),
            Self::Holder => write!(formatter, "the holder of the cluster key file"),
            Self::User(name) => write!(formatter, "user {name}"),
            Self::Front { front, user } => {
                write!(formatter, "user {front}, acting for user {user},")
            }
            Self::Number(number) => write!(formatter, "user number {number}"),
        }
    }
}

/// `user alice may not touch key "b/1": its keys begin with "a/"`.
impl fmt::Display for Denied {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = self.who;
        match &self.missing {
            Missing::Role { needed, has: None } => {
                write!(
                    formatter,
                    "{who} may do nothing here: role {needed} is needed"
                )
            }
            Missing::Role {
                needed,
                has: Some(has),
            } => write!(
                formatter,
                "{who} has role {has}, and role {needed} is needed"
            ),
            Missing::Key { generation } => write!(
                formatter,
                "the key of {who}, generation {generation}, does not count any more"
            ),
            Missing::KeyOutside { key, prefix } => write!(
                formatter,
                "{who} may not touch key \"{}\": its keys begin with \"{}\"",
                key.escape_ascii(),
                prefix.escape_ascii()
            ),
            Missing::RangeOutside { prefix } => write!(
                formatter,
                "{who} may not touch every key of that range: its keys begin with \"{}\", so name that prefix or a part \
                 of it",
                prefix.escape_ascii()
            ),
            Missing::AllKeys { prefix } => write!(
                formatter,
                "{who} has no right to all keys at once: its keys begin with \"{}\"",
                prefix.escape_ascii()
            ),
            Missing::Front => write!(
                formatter,
                "{who} may not act for other users: it is no front"
            ),
            Missing::User => write!(formatter, "{who} does not exist any more"),
            Missing::OwnSession => write!(
                formatter,
                "{who} may not administrate the group: such a command needs the sender's own session, and is for nobody else"
            ),
        }
    }
}

impl std::error::Error for Denied {}

#[cfg(test)]
mod tests;
