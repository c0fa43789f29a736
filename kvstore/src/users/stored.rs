//! The users in a snapshot, and their part of the state's hash.
//!
//! The body of the first chunk begins with the last number that was given (u32), the position of the last change (u64)
//! and the issuer: a flag (u8), then group and fingerprint if there is one. Behind that, and in each further chunk, users
//! follow in the order of their names. A table that never had a user has no chunk, so groups of earlier versions write
//! what they always wrote.

use std::collections::VecDeque;

use trine_keys::{Issuer, UserName};

use super::{Rights, User, UserEntry, Users};
use crate::codec::{DecodeError, Field, Reader, Sink};
use crate::config::{CHUNK_BODY_BYTES, USERS_MAX};
use crate::hash::Hasher;
use crate::position::Position;

/// What reading found wrong; chunks are checksummed, so no damage does this.
const BAD: DecodeError = DecodeError::BadField { field: "users" };

impl Users {
    /// Whether there never was a user.
    pub(crate) fn is_untouched(&self) -> bool {
        self.issued == 0
    }

    /// The bodies of the chunks, each with its number of users. None if there never was one.
    pub(crate) fn to_bodies(&self) -> VecDeque<(Vec<u8>, u32)> {
        let mut bodies = VecDeque::new();
        if self.is_untouched() {
            return bodies;
        }
        let (mut body, mut count) = (Vec::new(), 0);
        body.put_u32(self.issued);
        body.put_u64(self.changed_at.as_u64());
        body.put_u8(u8::from(self.issuer.is_some()));
        if let Some(issuer) = self.issuer {
            issuer.write_field(&mut body);
        }
        for user in self.iter() {
            if body.len() > CHUNK_BODY_BYTES {
                bodies.push_back((std::mem::take(&mut body), count));
                count = 0;
            }
            user.write_field(&mut body);
            count += 1;
        }
        bodies.push_back((body, count));
        bodies
    }

    /// Takes the body of the next chunk.
    pub(crate) fn add_body(&mut self, body: &[u8], count: u32) -> Result<(), DecodeError> {
        let mut reader = Reader::new(body);
        if self.is_untouched() {
            self.issued = reader.u32()?;
            self.changed_at = Position::from_u64(reader.u64()?);
            if reader.flag("issuer")? {
                self.issuer = Some(Issuer::read_field(&mut reader)?);
            }
            if self.is_untouched() {
                return Err(BAD);
            }
        } else if count == 0 {
            return Err(BAD);
        }
        for _ in 0..count {
            let user = User::read_field(&mut reader)?;
            self.restore(user)?;
        }
        reader.finish()
    }

    /// Whether what the chunks held is a table that commands can make.
    pub(crate) fn is_whole(&self) -> bool {
        self.issuer.is_some() != self.is_empty()
    }

    fn restore(&mut self, user: User<'_>) -> Result<(), DecodeError> {
        let is_behind = |last: &UserName| *last < user.name;
        let fits = self
            .by_name
            .last_key_value()
            .is_none_or(|(last, _)| is_behind(last))
            && self.len() < USERS_MAX
            && (1..=user.generation).contains(&user.number)
            && user.generation <= self.issued
            && !self.names.contains_key(&user.number);
        let rights = Rights {
            role: user.role,
            front: user.front,
            prefix: user.prefix,
        };
        if !fits || rights.check().is_err() {
            return Err(BAD);
        }
        let entry = UserEntry {
            number: user.number,
            generation: user.generation,
            role: user.role,
            front: user.front,
            prefix: user.prefix.into(),
        };
        self.insert(user.name, entry);
        Ok(())
    }

    /// Their part of the state's hash; 0 if there never was a user.
    pub(crate) fn hash(&self, hasher: &Hasher) -> u128 {
        let bodies = self.to_bodies();
        bodies.iter().fold(0, |sum, (body, _)| {
            // The order of the bodies counts.
            u128::rotate_left(sum, 1).wrapping_add(hasher.bytes(body))
        })
    }
}
