//! What a caller may do, in four words.

use std::fmt;
use std::str::FromStr;

/// A role. Each has the rights of those below it, so roles have an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads values.
    Read,
    /// Reads and writes values.
    Write,
    /// Does everything with keys and values, and changes the group: members, limits, users.
    Admin,
    /// Is a replica of the group. Members trust each other wholly.
    Member,
}

/// A text that names no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a role: write admin, write or read")]
pub struct RoleError(pub String);

impl Role {
    /// All roles, the one with the most rights first.
    pub const ALL: [Self; 4] = [Self::Member, Self::Admin, Self::Write, Self::Read];

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Write => "write",
            Self::Read => "read",
        }
    }

    /// Its number in messages and snapshots.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::Admin => 3,
            Self::Member => 4,
        }
    }

    /// The role of a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.number() == number)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.word())
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(word: &str) -> Result<Self, RoleError> {
        let named = Self::ALL.into_iter().find(|role| role.word() == word);
        named.ok_or_else(|| RoleError(word.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_an_order_words_and_numbers() {
        assert!(
            Role::Member > Role::Admin && Role::Admin > Role::Write && Role::Write > Role::Read
        );
        for role in Role::ALL {
            assert_eq!(role.word().parse(), Ok(role));
            assert_eq!(Role::from_number(role.number()), Some(role));
        }
        assert_eq!(Role::from_number(0), None);
        assert_eq!(Role::from_number(5), None);
        let error = "root".parse::<Role>().expect_err("no role");
        assert_eq!(
            error.to_string(),
            "\"root\" is not a role: write admin, write or read"
        );
    }
}
