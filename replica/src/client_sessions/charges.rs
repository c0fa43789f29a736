//! Bytes that sessions and their kept answers are charged with: in total, and for each user.
//!
//! They follow from the sessions. No snapshot holds them, and every replica counts them again from the sessions that it
//! receives.

use std::collections::BTreeMap;

/// The charges of all sessions.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Charges {
    total: u64,
    /// By user number, never 0; users without sessions are not here. So there are at most as many as sessions.
    by_user: BTreeMap<u32, u64>,
}

impl Charges {
    /// A session of this user takes so many bytes more.
    pub(super) fn add(&mut self, user: u32, bytes: u64) {
        self.total += bytes;
        if user != 0 {
            *self.by_user.entry(user).or_default() += bytes;
        }
    }

    /// A session of this user gives so many bytes back.
    ///
    /// # Panics
    /// When they were not charged to this user.
    pub(super) fn remove(&mut self, user: u32, bytes: u64) {
        if bytes == 0 {
            return;
        }
        assert!(self.total >= bytes, "what is given back was charged");
        self.total -= bytes;
        if user == 0 {
            return;
        }
        let held = self.by_user.get_mut(&user);
        let held = held.expect("a user with a session is charged for it");
        assert!(*held >= bytes, "what is given back was charged to its user");
        *held -= bytes;
        if *held == 0 {
            self.by_user.remove(&user);
        }
    }

    /// Over all sessions.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Over the sessions of one user; of user 0 nothing is known.
    pub(super) fn of_user(&self, user: u32) -> u64 {
        self.by_user.get(&user).copied().unwrap_or(0)
    }
}
