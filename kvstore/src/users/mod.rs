//! The users of the group: replicated, and without anything secret.
//!
//! A user's key is derived from the cluster key file, the user's name and the generation. So this table says which keys
//! count, and holds none. One counter gives numbers and generations. A name that is added again after it was removed
//! therefore never gets an old generation, and an old key stays void.

mod codec;
mod stored;

use std::collections::BTreeMap;
use std::ops::Bound;

use trine_keys::{Issuer, Role, UserName};

use crate::config::{USER_PREFIX_BYTES_MAX, USERS_MAX};
use crate::error::StoreError;
use crate::position::Position;

/// A user as answers show it.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct User<'a> {
    /// From 1, and never given twice in a group.
    pub number: u32,
    /// The name.
    pub name: UserName,
    /// Which key of the user counts. Grows with each rotation.
    pub generation: u32,
    /// What the user may do.
    pub role: Role,
    /// Whether the user is a front, whose word on other users is believed.
    pub front: bool,
    /// The keys that the user may touch begin with it; empty for all keys.
    pub prefix: &'a [u8],
}

/// What a new user may do.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Rights<'a> {
    /// The role.
    pub role: Role,
    /// Whether the user is a front.
    pub front: bool,
    /// The prefix; empty for all keys.
    pub prefix: &'a [u8],
}

/// A user in the table.
#[derive(Clone, Eq, PartialEq, Debug)]
struct UserEntry {
    number: u32,
    generation: u32,
    role: Role,
    front: bool,
    prefix: Box<[u8]>,
}

/// All users.
#[derive(Clone, Eq, PartialEq, Default, Debug)]
pub struct Users {
    /// The last number or generation that was given.
    issued: u32,
    /// Where the table was changed last.
    changed_at: Position,
    /// The cluster key file whose keys count, while there is a user.
    issuer: Option<Issuer>,
    by_name: BTreeMap<UserName, UserEntry>,
    names: BTreeMap<u32, UserName>,
}

impl Users {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether a user was ever added.
    #[must_use]
    pub fn has_given_numbers(&self) -> bool {
        self.issued > 0
    }

    /// The cluster key file whose user keys count. None while there is no user.
    #[must_use]
    pub fn issuer(&self) -> Option<Issuer> {
        self.issuer
    }

    /// Where the table was changed last. While this stays the same, everything that was found in the table still holds.
    #[must_use]
    pub fn changed_at(&self) -> Position {
        self.changed_at
    }

    /// The user with this name.
    #[must_use]
    pub fn named(&self, name: UserName) -> Option<User<'_>> {
        self.by_name.get(&name).map(|entry| entry.user(name))
    }

    /// The user with this number.
    #[must_use]
    pub fn numbered(&self, number: u32) -> Option<User<'_>> {
        self.named(*self.names.get(&number)?)
    }

    /// The user whose key of this generation counts. None for removed users and for keys that were rotated away.
    #[must_use]
    pub fn is_current(&self, name: UserName, generation: u32) -> Option<User<'_>> {
        self.named(name)
            .filter(|user| user.generation == generation)
    }

    /// Whether the key of this generation was given up to here, and does not count any more. Then it never will again: no
    /// generation is given twice. A key that this table has not heard of may only be too new for it.
    #[must_use]
    pub fn is_void(&self, name: UserName, generation: u32) -> bool {
        generation <= self.issued && self.is_current(name, generation).is_none()
    }

    /// All users, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = User<'_>> {
        self.by_name.iter().map(|(name, entry)| entry.user(*name))
    }

    /// The users behind `name`, in the order of their names.
    pub fn behind(&self, name: UserName) -> impl Iterator<Item = User<'_>> {
        let range = (Bound::Excluded(name), Bound::Unbounded);
        self.by_name
            .range(range)
            .map(|(name, entry)| entry.user(*name))
    }

    pub(crate) fn add(
        &mut self,
        at: Position,
        issuer: Issuer,
        name: UserName,
        rights: Rights<'_>,
    ) -> Result<User<'_>, StoreError> {
        rights.check()?;
        self.check_issuer(issuer)?;
        if self.by_name.contains_key(&name) {
            return Err(StoreError::UserExists);
        }
        if self.len() >= USERS_MAX {
            return Err(StoreError::TooManyUsers {
                limit: USERS_MAX as u32,
            });
        }
        let issued = self.issue(at)?;
        self.issuer = Some(issuer);
        let entry = UserEntry {
            number: issued,
            generation: issued,
            role: rights.role,
            front: rights.front,
            prefix: rights.prefix.into(),
        };
        Ok(self.insert(name, entry))
    }

    pub(crate) fn rotate(
        &mut self,
        at: Position,
        issuer: Issuer,
        name: UserName,
    ) -> Result<User<'_>, StoreError> {
        if !self.by_name.contains_key(&name) {
            return Err(StoreError::UnknownUser);
        }
        self.check_issuer(issuer)?;
        let generation = self.issue(at)?;
        let entry = self.by_name.get_mut(&name).ok_or(StoreError::UnknownUser)?;
        entry.generation = generation;
        Ok(entry.user(name))
    }

    pub(crate) fn remove(&mut self, at: Position, name: UserName) -> Result<(), StoreError> {
        let entry = self.by_name.remove(&name).ok_or(StoreError::UnknownUser)?;
        self.names.remove(&entry.number);
        self.changed_at = at;
        if self.is_empty() {
            self.issuer = None;
        }
        Ok(())
    }

    /// Another file's keys would not open a session, and the mistake would be found late.
    fn check_issuer(&self, issuer: Issuer) -> Result<(), StoreError> {
        match self.issuer {
            Some(known) if known != issuer => Err(StoreError::OtherClusterKey { root: known.root }),
            _ => Ok(()),
        }
    }

    /// The next `count` numbers are given to nobody.
    pub(crate) fn leave_out(&mut self, count: u32) {
        if self.issued > 0 {
            self.issued = self.issued.saturating_add(count);
        }
    }

    fn issue(&mut self, at: Position) -> Result<u32, StoreError> {
        self.issued = self.issued.checked_add(1).ok_or(StoreError::NumbersUsed)?;
        self.changed_at = at;
        Ok(self.issued)
    }

    fn insert(&mut self, name: UserName, entry: UserEntry) -> User<'_> {
        self.names.insert(entry.number, name);
        // The caller has checked that the name is free.
        self.by_name.entry(name).or_insert(entry).user(name)
    }
}

impl UserEntry {
    fn user(&self, name: UserName) -> User<'_> {
        User {
            number: self.number,
            name,
            generation: self.generation,
            role: self.role,
            front: self.front,
            prefix: &self.prefix,
        }
    }
}

impl Rights<'_> {
    /// A user is no member, and administrators have no prefix: their commands are about the whole group. A front needs
    /// no rights of its own beside a role.
    fn check(&self) -> Result<(), StoreError> {
        if self.prefix.len() > USER_PREFIX_BYTES_MAX {
            return Err(StoreError::PrefixTooLong {
                limit: USER_PREFIX_BYTES_MAX as u32,
            });
        }
        let is_odd =
            self.role == Role::Member || (self.role == Role::Admin && !self.prefix.is_empty());
        if is_odd {
            return Err(StoreError::BadRole);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
