//! Sessions that are left over when the keys change.

use super::{SessionId, SessionState, Sessions};
use crate::backend::Route;
use crate::keys::KeyId;

impl<R: Route> Sessions<R> {
    /// Established sessions whose peers have proven a key that `is_over`.
    pub(crate) fn of_keys(&self, is_over: impl Fn(&KeyId) -> bool) -> Vec<SessionId> {
        let over = self.sealed().filter(|(_, key)| is_over(key));
        over.map(|(id, _)| id).collect()
    }

    /// The established sealed sessions, with their keys.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = (SessionId, KeyId)> {
        let open = self.table.open();
        open.filter_map(|(index, session)| Some((session.id(index), session.key()?)))
    }

    /// Established sessions without a seal, and their peers.
    pub(crate) fn unsealed(&self) -> impl Iterator<Item = (SessionId, R)> + '_ {
        self.table
            .open()
            .filter(|(_, session)| !session.is_sealed())
            .map(|(index, session)| (session.id(index), session.route))
    }

    /// Sessions that this end has asked for, and that do not stand yet: those asked for without a key, and those with a
    /// key that `is_over`.
    pub(crate) fn asked_with(&self, is_over: impl Fn(&KeyId) -> bool) -> Vec<SessionId> {
        self.table
            .asking()
            .filter(|(_, session)| session.asked_key().is_none_or(|key| is_over(&key)))
            .map(|(index, session)| session.id(index))
            .collect()
    }

    /// Whether a session is one that another end has asked for.
    pub(crate) fn is_server_end(&self, id: SessionId) -> bool {
        self.get(id)
            .is_some_and(|session| matches!(session.role(), super::Role::Server(_)))
    }

    /// Ends the half-open sessions of keys that are over.
    pub(crate) fn end_halves_of(&mut self, is_over: impl Fn(&KeyId) -> bool) {
        let over: Vec<u16> = self
            .table
            .in_state(|state| state == SessionState::HalfOpen)
            .filter(|(_, session)| session.key().is_some_and(|key| is_over(&key)))
            .map(|(index, _)| index)
            .collect();
        for index in over {
            self.end_half(index);
        }
    }
}
