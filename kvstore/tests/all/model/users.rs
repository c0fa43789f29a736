//! Users as a list in which everything is looked for.

use trine_keys::{Issuer, Role, UserName};
use trine_kvstore::{Command, List, Response, Rights, StoreError, User};

#[derive(Clone, Debug)]
struct Known {
    number: u32,
    name: UserName,
    generation: u32,
    role: Role,
    front: bool,
    prefix: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Users {
    known: Vec<Known>,
    issuer: Option<Issuer>,
    issued: u32,
    /// What an answer borrows.
    shown: Vec<Known>,
}

/// The list of an answer lives as long as the model.
fn shown(user: &Known) -> User<'_> {
    User {
        number: user.number,
        name: user.name,
        generation: user.generation,
        role: user.role,
        front: user.front,
        prefix: &user.prefix,
    }
}

impl Users {
    pub(crate) fn apply(&mut self, command: &Command<'_>) -> Response<'_> {
        let changed = match *command {
            Command::AddUser {
                issuer,
                name,
                rights,
            } => self.add(issuer, name, rights),
            Command::RotateUser { issuer, name } => self.rotate(issuer, name),
            Command::RemoveUser { name } => return self.remove(name),
            _ => return self.list(),
        };
        match changed {
            Ok(at) => Response::User(shown(&self.known[at])),
            Err(error) => Response::Error(error),
        }
    }

    /// Every user, for a test that asks for them one by one.
    pub(crate) fn all(&self) -> impl Iterator<Item = User<'_>> {
        self.known.iter().map(shown)
    }

    fn place(&self, name: UserName) -> Option<usize> {
        self.known.iter().position(|user| user.name == name)
    }

    fn is_other(&self, issuer: Issuer) -> Option<StoreError> {
        let known = self.issuer.filter(|known| *known != issuer)?;
        Some(StoreError::OtherClusterKey { root: known.root })
    }

    fn add(
        &mut self,
        issuer: Issuer,
        name: UserName,
        rights: Rights<'_>,
    ) -> Result<usize, StoreError> {
        if rights.prefix.len() > 128 {
            return Err(StoreError::PrefixTooLong { limit: 128 });
        }
        if rights.role == Role::Member || (rights.role == Role::Admin && !rights.prefix.is_empty())
        {
            return Err(StoreError::BadRole);
        }
        if let Some(error) = self.is_other(issuer) {
            return Err(error);
        }
        if self.place(name).is_some() {
            return Err(StoreError::UserExists);
        }
        self.issuer = Some(issuer);
        self.issued += 1;
        self.known.push(Known {
            number: self.issued,
            name,
            generation: self.issued,
            role: rights.role,
            front: rights.front,
            prefix: rights.prefix.to_vec(),
        });
        Ok(self.known.len() - 1)
    }

    fn rotate(&mut self, issuer: Issuer, name: UserName) -> Result<usize, StoreError> {
        let at = self.place(name).ok_or(StoreError::UnknownUser)?;
        if let Some(error) = self.is_other(issuer) {
            return Err(error);
        }
        self.issued += 1;
        self.known[at].generation = self.issued;
        Ok(at)
    }

    fn remove(&mut self, name: UserName) -> Response<'_> {
        let Some(at) = self.place(name) else {
            return Response::Error(StoreError::UnknownUser);
        };
        self.known.remove(at);
        if self.known.is_empty() {
            self.issuer = None;
        }
        Response::Done
    }

    fn list(&mut self) -> Response<'_> {
        self.shown = self.known.clone();
        self.shown.sort_by_key(|user| user.name);
        let encoded: Vec<User<'_>> = self.shown.iter().map(shown).collect();
        // A list borrows a slice; a test may leak a few.
        Response::Users(List::from(&*encoded.leak()))
    }
}
