//! What the session of a request has proven, and whether its message is allowed to it.

use trine_canary as canary;
use trine_keys::Credential;
use trine_protocol::message::kind;
use trine_protocol::message::{
    AdminReply, AdminStatus, BackupReply, Incarnation, PromisedPosition,
};
use trine_protocol::node_status::NodeStatus;
use trine_transport::backend::Route;
use trine_transport::keys::KeyId;
use trine_transport::{Cx, Reply, SessionId};

use super::{Node, reply_empty, reply_with};
use crate::rights::{Caller, Denied, MessageClass, What};

/// What a session has proven. The transport lets a session without a key in only where none is required.
#[inline]
pub(super) fn caller_in<R: Route>(cx: &Cx<'_, R>, session: SessionId) -> Caller {
    match cx.key(session) {
        None => Caller::default(),
        Some(key) => caller_with(&key),
    }
}

/// A key id that names nobody is a stranger's: the key ring finds none such.
#[cold]
fn caller_with(key: &KeyId) -> Caller {
    Credential::parse(key).map_or(
        Caller::Unkeyed(crate::rights::KeyStage::Require),
        Caller::Proven,
    )
}

impl<R: Route> Node<R> {
    /// The answer to a message that is none of a client's and that its sender has no right to send.
    pub(super) fn denial(
        &mut self,
        cx: &mut Cx<'_, R>,
        session: SessionId,
        message_kind: u8,
    ) -> Option<Reply> {
        let caller = caller_in(cx, session);
        if caller == Caller::default() || caller == Caller::Proven(Credential::Member) {
            return None;
        }
        let what = match MessageClass::of(message_kind) {
            MessageClass::Admin => What::Admin,
            MessageClass::Backup => What::Backup,
            MessageClass::Peer => What::Peer,
            MessageClass::Client | MessageClass::Status | MessageClass::Watch => return None,
        };
        let denied = self.replica.denies(caller, what)?;
        Some(match message_kind {
            kind::ADMIN => refuse_admin(cx, &denied),
            kind::BACKUP => reply_with(cx, &BackupReply::Denied(&denied.to_string())),
            _ => reply_empty(cx),
        })
    }

    /// The status, as far as the caller in this session may know it. `None` if it may know nothing.
    pub(super) fn status_for(&mut self, cx: &Cx<'_, R>, session: SessionId) -> Option<NodeStatus> {
        let caller = caller_in(cx, session);
        if self.replica.denies(caller, What::Status).is_some() {
            return None;
        }
        let mut status = self.status(cx);
        if !self.replica.permits(caller, What::Admin) {
            status.leave_callers_out();
        }
        if self.replica.has_prefix(caller) {
            status.leave_others_out();
        }
        Some(status)
    }

    /// What the member at the other end of a session has promised to this one. Each member is told of itself alone: how
    /// far the log goes is not for others, and with all members' an answer would be too long for release 0.1.0. Who asks is proven
    /// only where members need keys. Else it is what the session claims.
    pub(super) fn promised_in(
        &self,
        cx: &Cx<'_, R>,
        session: SessionId,
    ) -> Option<PromisedPosition> {
        let asker = Incarnation(cx.peer(session)?.identity.incarnation);
        let promised = self.replica.promised_by(asker)?;
        let may_know = self.replica.permits(caller_in(cx, session), What::Peer);
        may_know.then_some(promised)
    }

    /// Whether this is a user's key that counts no more, as this replica knows. One that it has not heard of may be too new for
    /// it: the rights are checked with each request.
    pub(super) fn is_void(&self, key: &KeyId) -> bool {
        match (Credential::parse(key), self.replica.users()) {
            (Some(Credential::User { name, generation }), Some(users)) => {
                users.is_void(name, generation) && !keeps_its_session()
            }
            _ => false,
        }
    }

    /// Ends the sessions of users who were removed, and of keys that were replaced, once that is applied here.
    pub(super) fn end_revoked(&mut self, cx: &mut Cx<'_, R>) {
        let changed_at = self.replica.users().map(trine_kvstore::Users::changed_at);
        if changed_at.is_none() || changed_at == self.users_seen {
            return;
        }
        self.users_seen = changed_at;
        if keeps_its_session() {
            return;
        }
        let replica = &self.replica;
        cx.end_sessions_of(|key| match Credential::parse(key) {
            Some(Credential::User { name, generation }) => {
                replica.is_current(name, generation).is_none()
            }
            _ => false,
        });
    }
}

fn refuse_admin<R: Route>(cx: &mut Cx<'_, R>, denied: &Denied) -> Reply {
    let reply = AdminReply {
        status: AdminStatus::Refused,
        leader: None,
        text: &format!("denied: {denied}"),
    };
    reply_with(cx, &reply)
}

fn keeps_its_session() -> bool {
    canary::planted("a revoked user keeps its session")
}
