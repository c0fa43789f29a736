//! Who may do what, and since when, as the administrator of a simulated group knows it; and whether the group held to it.
//! None of this asks the code that is judged.

use trine_keys::{Role, UserName};
use trine_transport::time::Instant;

/// What users ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UserRequest {
    /// To write a key.
    Put(Vec<u8>),
    /// To read keys.
    Get(Vec<Vec<u8>>),
    /// To write a key in a list of operations.
    Execute(Vec<u8>),
    /// To count all keys.
    Count,
    /// To change a limit of the group.
    Administrate,
}

/// How an answer came about.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnswerRoute {
    /// Through the leader.
    Led,
    /// At any replica, with the leader's word: the answer is not older than the call.
    Here,
    /// From what a replica has applied: it may be older.
    Stale,
}

/// A key that was given to a user.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) name: UserName,
    pub(crate) generation: u32,
    pub(crate) role: Role,
    pub(crate) prefix: Vec<u8>,
    /// The user's number, 0 while it does not matter.
    pub(crate) number: u32,
    /// Whether it may act for other users.
    pub(crate) is_front: bool,
    /// When the command that takes it away was first given.
    revoking: Option<Instant>,
    /// When that was first known to be done.
    revoked: Option<Instant>,
    /// The group session of its holder: client id and number.
    pub(crate) session: Option<(u64, u64)>,
}

/// A call of a user.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) grant: usize,
    /// The grant of the user for whom a front asks.
    pub(crate) acting_for: Option<usize>,
    pub(crate) ask: UserRequest,
    pub(crate) way: AnswerRoute,
    at: Instant,
    is_allowed: bool,
}

/// All grants and calls of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    grants: Vec<Grant>,
    calls: Vec<Call>,
    /// Calls that were answered, and those that were denied.
    pub(crate) answered: u64,
    pub(crate) denied: u64,
    wrong: Option<String>,
}

impl Ledger {
    /// The first thing that went wrong.
    pub(crate) fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }

    pub(crate) fn blame(&mut self, text: String) {
        self.wrong.get_or_insert(text);
    }

    pub(crate) fn grant(&self, number: usize) -> &Grant {
        &self.grants[number]
    }

    pub(crate) fn grant_mut(&mut self, number: usize) -> &mut Grant {
        &mut self.grants[number]
    }

    /// Grants that nobody has begun to take away.
    pub(crate) fn standing(&self) -> Vec<usize> {
        let stands = |number: &usize| self.grants[*number].revoking.is_none();
        (0..self.grants.len()).filter(stands).collect()
    }

    /// Grants to others than `name` whose group session is known.
    pub(crate) fn sessions_of_others(&self, name: UserName) -> Vec<(u64, u64)> {
        let others = self.grants.iter().filter(|grant| grant.name != name);
        others.filter_map(|grant| grant.session).collect()
    }

    /// A user was added, or got another key.
    pub(crate) fn add(
        &mut self,
        name: UserName,
        generation: u32,
        role: Role,
        prefix: &[u8],
    ) -> usize {
        self.grants.push(Grant {
            name,
            generation,
            role,
            prefix: prefix.to_vec(),
            number: 0,
            is_front: false,
            revoking: None,
            revoked: None,
            session: None,
        });
        self.grants.len() - 1
    }

    /// A command is given after which the keys of `name` are void.
    pub(crate) fn begin_to_revoke(&mut self, name: UserName, now: Instant) {
        for grant in self.grants.iter_mut().filter(|grant| grant.name == name) {
            grant.revoking.get_or_insert(now);
        }
    }

    /// It is done, for all keys of `name` before `generation`.
    pub(crate) fn revoke(&mut self, name: UserName, generation: u32, now: Instant) {
        let of_name = self.grants.iter_mut().filter(|grant| grant.name == name);
        for grant in of_name.filter(|grant| grant.generation < generation) {
            grant.revoked.get_or_insert(now);
        }
    }

    /// Whether a grant is void for all to see, and since when.
    pub(crate) fn void_since(&self, number: usize) -> Option<Instant> {
        self.grants[number].revoked
    }

    /// Standing grants of other users than that of `number`, for whom a front may ask.
    pub(crate) fn others(&self, number: usize) -> Vec<usize> {
        let name = self.grants[number].name;
        let is_other = |other: &usize| {
            let other = &self.grants[*other];
            other.name != name && other.number != 0
        };
        self.standing().into_iter().filter(is_other).collect()
    }

    /// The number of a call: the value that it writes.
    pub(crate) fn call(
        &mut self,
        grant: usize,
        acting_for: Option<usize>,
        ask: UserRequest,
        way: AnswerRoute,
        at: Instant,
    ) -> usize {
        // Nobody administrates the group for another user.
        let may_for =
            |other: usize| may(&self.grants[other], &ask) && ask != UserRequest::Administrate;
        let is_allowed = may(&self.grants[grant], &ask) && acting_for.is_none_or(may_for);
        self.calls.push(Call {
            grant,
            acting_for,
            ask,
            way,
            at,
            is_allowed,
        });
        self.calls.len() - 1
    }

    /// What a call asked for.
    pub(crate) fn ask_of(&self, number: usize) -> Option<UserRequest> {
        self.calls.get(number).map(|call| call.ask.clone())
    }

    /// A call was answered with a denial.
    pub(crate) fn deny(&mut self, number: usize, reason: &str) {
        self.denied += 1;
        let call = &self.calls[number];
        let grant = &self.grants[call.grant];
        let mut both = [Some(call.grant), call.acting_for].into_iter().flatten();
        let all_stand = both.all(|grant| self.grants[grant].revoking.is_none());
        // A replica that has not heard of the user yet may say so of what it has applied.
        if call.is_allowed && all_stand && call.way == AnswerRoute::Led {
            let text = format!(
                "trust: user {} was denied what it may do: call {number}, {:?}: {reason}",
                grant.name, call.ask
            );
            self.blame(text);
        }
    }

    /// A call was answered, and not denied.
    pub(crate) fn answer(&mut self, number: usize) {
        self.answered += 1;
        if let Some(text) = self.what_forbids(number, "was answered") {
            self.blame(text);
        }
    }

    /// A key was read.
    pub(crate) fn read(&mut self, key: &[u8], value: &[u8]) {
        let number = std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse::<usize>().ok());
        let writer = number.and_then(|number| Some((number, self.calls.get(number)?)));
        let key = key.escape_ascii();
        let Some((number, call)) = writer else {
            return self.blame(format!("trust: key {key} has a value that no user wrote"));
        };
        let wrote = matches!(&call.ask, UserRequest::Put(of) | UserRequest::Execute(of) if of.escape_ascii().to_string() == key.to_string());
        let text = match wrote {
            false => Some(format!(
                "trust: key {key} has the value of call {number}, {:?}",
                call.ask
            )),
            true => self.what_forbids(number, "took effect"),
        };
        if let Some(text) = text {
            self.blame(text);
        }
    }

    /// Why a call should not have had what it had.
    fn what_forbids(&self, number: usize, had: &str) -> Option<String> {
        let call = &self.calls[number];
        let grant = &self.grants[call.grant];
        let was_void = |grant: &Grant| grant.revoked.is_some_and(|at| at < call.at);
        let other = call.acting_for.map(|other| &self.grants[other]);
        let why = match other {
            None if !call.is_allowed => "a call beyond its user's rights",
            Some(_) if !call.is_allowed => "a call beyond what a front and its user may both do",
            _ if call.way == AnswerRoute::Stale => return None,
            _ if was_void(grant) => "a call with a key that was void before",
            Some(other) if was_void(other) => "a call for a user whose key was void before",
            _ => return None,
        };
        let shown = |grant: &Grant| {
            format!(
                "user {}, generation {}, role {}, prefix \"{}\"",
                grant.name,
                grant.generation,
                grant.role,
                grant.prefix.escape_ascii()
            )
        };
        let other = other.map_or_else(String::new, |other| format!(", for {}", shown(other)));
        Some(format!(
            "trust: {why} {had}: call {number} of {}{other}, {:?}",
            shown(grant),
            call.ask
        ))
    }
}

/// The rules, once more.
fn may(grant: &Grant, ask: &UserRequest) -> bool {
    let writes = matches!(grant.role, Role::Write | Role::Admin);
    let own = |key: &Vec<u8>| key.starts_with(&grant.prefix);
    match ask {
        UserRequest::Put(key) | UserRequest::Execute(key) => writes && own(key),
        UserRequest::Get(keys) => keys.iter().all(own),
        UserRequest::Count => grant.prefix.is_empty(),
        UserRequest::Administrate => grant.role == Role::Admin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(role: Role, prefix: &[u8]) -> Ledger {
        let mut ledger = Ledger::default();
        let name = UserName::new(b"a").expect("a name");
        ledger.add(name, 1, role, prefix);
        ledger
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn what_is_beyond_the_rights_must_not_be_answered_nor_take_effect() {
        for (ask, is_wrong) in [
            (UserRequest::Put(b"a/1".to_vec()), false),
            (UserRequest::Put(b"b/1".to_vec()), true),
            (UserRequest::Execute(b"b/1".to_vec()), true),
            (
                UserRequest::Get(vec![b"a/1".to_vec(), b"b/1".to_vec()]),
                true,
            ),
            (UserRequest::Count, true),
            (UserRequest::Administrate, true),
        ] {
            let mut ledger = ledger(Role::Write, b"a/");
            let call = ledger.call(0, None, ask.clone(), AnswerRoute::Led, at(1));
            ledger.answer(call);
            assert_eq!(ledger.wrong().is_some(), is_wrong, "{ask:?}");
        }
        let mut ledger = ledger(Role::Read, b"a/");
        ledger.call(
            0,
            None,
            UserRequest::Put(b"a/1".to_vec()),
            AnswerRoute::Led,
            at(1),
        );
        ledger.read(b"a/1", b"0");
        assert!(
            ledger
                .wrong()
                .is_some_and(|text| text.contains("took effect"))
        );
    }

    #[test]
    fn a_front_may_do_what_both_may_while_both_keys_count() {
        let put = |key: &[u8]| UserRequest::Put(key.to_vec());
        for (role, prefix, ask, is_wrong) in [
            (Role::Write, b"".as_slice(), put(b"a/1"), false),
            (Role::Write, b"", put(b"b/1"), true),
            (Role::Read, b"", put(b"a/1"), true),
            (Role::Admin, b"", UserRequest::Administrate, true),
        ] {
            let mut ledger = ledger(role, prefix);
            let other = UserName::new(b"b").expect("a name");
            let other = ledger.add(other, 2, Role::Write, b"a/");
            ledger.grant_mut(other).number = 2;
            assert_eq!(ledger.others(0), [other]);
            let call = ledger.call(0, Some(other), ask.clone(), AnswerRoute::Led, at(1));
            ledger.answer(call);
            assert_eq!(ledger.wrong().is_some(), is_wrong, "{ask:?}");
            if !is_wrong {
                ledger.begin_to_revoke(ledger.grant(other).name, at(2));
                ledger.revoke(ledger.grant(other).name, 3, at(2));
                let late = ledger.call(0, Some(other), ask, AnswerRoute::Led, at(3));
                ledger.deny(late, "void");
                assert_eq!(ledger.wrong(), None);
                ledger.answer(late);
                assert!(ledger.wrong().is_some_and(|text| text.contains("void")));
            }
        }
    }

    #[test]
    fn a_void_key_is_denied_from_the_moment_on_at_which_that_is_known() {
        let mut ledger = ledger(Role::Write, b"");
        let name = ledger.grant(0).name;
        ledger.begin_to_revoke(name, at(1));
        let amid = ledger.call(
            0,
            None,
            UserRequest::Put(b"x".to_vec()),
            AnswerRoute::Led,
            at(2),
        );
        ledger.revoke(name, 2, at(3));
        ledger.deny(amid, "amid");
        ledger.answer(amid);
        let stale = ledger.call(
            0,
            None,
            UserRequest::Get(vec![b"x".to_vec()]),
            AnswerRoute::Stale,
            at(4),
        );
        ledger.answer(stale);
        assert_eq!(ledger.wrong(), None);
        ledger.call(
            0,
            None,
            UserRequest::Put(b"x".to_vec()),
            AnswerRoute::Led,
            at(4),
        );
        ledger.read(b"x", b"2");
        assert!(ledger.wrong().is_some_and(|text| text.contains("void")));
    }

    #[test]
    fn what_is_allowed_must_not_be_denied_while_the_key_counts() {
        let mut ledger = ledger(Role::Write, b"");
        let call = ledger.call(
            0,
            None,
            UserRequest::Put(b"x".to_vec()),
            AnswerRoute::Led,
            at(2),
        );
        ledger.deny(call, "why");
        assert!(ledger.wrong().is_some_and(|text| text.contains("denied")));
    }
}
