//! Takes the calls of one connection, and finds out which user of the group it is.

use std::net::IpAddr;

use trine_base::endpoint::random_seed;
use trine_keys::KeyRing;
use trine_kvstore::Command;
use trine_resp::{Call, Failure as CallFailure, NotKnown, OnBehalf, Submit, Token};

use super::super::auth::Claim;
use super::super::checker::Checker;
use super::client::Client;
use super::{ASKS_USERS, USERS_BYTES};

/// What the group is to do for a connection.
pub(crate) enum Task<'a> {
    Call(&'a Call<'a>),
    /// A session with this number.
    Session {
        number: u64,
        for_user: Option<OnBehalf>,
    },
}

/// Begins a task whose answer comes with the tag.
pub(crate) type Begin<'a> = dyn FnMut(u64, Task<'_>) -> Result<(), CallFailure> + 'a;

/// One connection's turn.
pub(super) struct Tagged<'a, 'b> {
    pub(super) tag: u64,
    /// Where the client is.
    pub(super) peer: IpAddr,
    pub(super) begin: &'a mut Begin<'b>,
    pub(super) ring: &'a KeyRing,
    /// Compares passwords, if users have any.
    pub(super) checker: Option<&'a mut Checker>,
    /// Which user the client says it is.
    pub(super) claim: Option<Claim>,
}

impl Tagged<'_, '_> {
    /// A client whose password was right goes on: the group is asked about the user.
    pub(super) fn go_on(&mut self, client: &mut Client) {
        if let Some(claim) = client.claims.verified.take()
            && let Err(why) = self.ask(claim)
        {
            client.connection.on_known(Err(why));
        }
    }

    /// Asks the group about its users.
    fn ask(&mut self, claim: Claim) -> Result<(), NotKnown> {
        let call = Call {
            command: &Command::ListUsers,
            read_only: true,
            response_bytes: USERS_BYTES,
            for_user: None,
            numbered: None,
        };
        (self.begin)(self.tag | ASKS_USERS, Task::Call(&call)).map_err(NotKnown::Unavailable)?;
        self.claim = Some(claim);
        Ok(())
    }
}

impl Submit for Tagged<'_, '_> {
    fn submit(&mut self, call: &Call<'_>) -> Result<(), CallFailure> {
        (self.begin)(self.tag, Task::Call(call))
    }

    fn open_session(&mut self, for_user: Option<OnBehalf>) -> Result<u64, CallFailure> {
        // Whoever guessed the number could read the answers of its client.
        let random = random_seed().map_err(|why| CallFailure::NotApplied(why.in_one_line()))?;
        let number = Token::number_of(random, for_user.is_some());
        (self.begin)(self.tag, Task::Session { number, for_user })?;
        Ok(number)
    }

    fn authenticate(&mut self, user: &[u8], secret: &[u8]) -> Result<(), NotKnown> {
        match (Claim::of(self.ring, user, secret), &mut self.checker) {
            (Some(claim), _) => self.ask(claim),
            (None, Some(checker)) => checker.begin(self.tag, self.peer, user, secret),
            (None, None) => Err(NotKnown::Wrong),
        }
    }
}
