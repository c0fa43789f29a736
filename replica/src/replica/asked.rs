//! Requests of people and their programs: administration, backups and watches.

use trine_protocol::message::{
    AdminReply, AdminRequest, AdminStatus, BackupReply, BackupRequest, ReplyToken, WatchReply,
    WatchRequest,
};
use trine_protocol::release::Release;
use trine_transport::Holder;
use trine_transport::time::Instant;

use super::Replica;
use crate::config::WATCH_PAUSE_MS;
use crate::rights::Caller;

impl Replica {
    /// An admin command about members, from a session that has proven this. It is answered through
    /// [`Output::Reply`](crate::output::Output::Reply), exactly once.
    pub fn on_admin(&mut self, now: Instant, token: ReplyToken, caller: Caller, request: &[u8]) {
        match AdminRequest::decode(request) {
            Ok(request) => self.on_admin_command(now, token, caller, &request),
            Err(_) => {
                self.out.counters.messages_refused += 1;
                let reply = AdminReply {
                    status: AdminStatus::Refused,
                    leader: None,
                    text: &unreadable(),
                };
                self.out.reply(token, &reply);
            }
        }
    }

    /// A request about a backup, from a session that has proven this and may send it. It is answered through
    /// [`Output::Reply`](crate::output::Output::Reply), exactly once.
    pub fn on_backup(&mut self, now: Instant, token: ReplyToken, caller: Caller, request: &[u8]) {
        match (BackupRequest::decode(request), self.life.group_mut()) {
            (Ok(request), Some(group)) => {
                group.on_backup(now, token, caller, &request, &mut self.out)
            }
            (Ok(_), None) => {
                let text = "this replica belongs to no group yet";
                self.out.reply(token, &BackupReply::Later(text));
            }
            (Err(_), _) => {
                self.out.counters.messages_refused += 1;
                self.out.reply(token, &BackupReply::Refused(&unreadable()));
            }
        }
    }

    /// A watch request, from a session that has proven this. It is answered through
    /// [`Output::Reply`](crate::output::Output::Reply), exactly once: when something has happened, or after a while. `holder`
    /// tells whom it is counted for.
    pub fn on_watch(
        &mut self,
        now: Instant,
        token: ReplyToken,
        caller: Caller,
        holder: Holder,
        request: &[u8],
    ) {
        let why = "this replica belongs to no group yet, or is about to end";
        match (WatchRequest::decode(request), self.life.group_mut()) {
            (Ok(request), Some(group)) if !self.stopping => {
                group.on_watch(now, token, (caller, holder), &request, &mut self.out);
            }
            (Ok(_), _) => {
                let pause_ms = WATCH_PAUSE_MS;
                self.out.reply(token, &WatchReply::Later { pause_ms, why });
            }
            (Err(_), _) => {
                self.out.counters.messages_refused += 1;
                self.out.reply(token, &WatchReply::Refused(&unreadable()));
            }
        }
    }

    pub(super) fn on_admin_command(
        &mut self,
        now: Instant,
        token: ReplyToken,
        caller: Caller,
        request: &AdminRequest,
    ) {
        let ours = request.cluster.is_none() || request.cluster == self.cluster();
        let leaderless = self.life.group().is_some_and(|group| !group.has_leader());
        if let (Some(address), true) = (request.address, ours) {
            // The member itself may be there.
            self.searches.name(now, request.node_id, address);
            if leaderless {
                // The one that can lead may be there, and may need this vote. Where a replica leads, that one judges.
                self.addresses.learn(address);
            }
        }
        match self.life.group_mut() {
            Some(group) => {
                group.on_admin_command(now, token, caller, request, &self.addresses, &mut self.out)
            }
            None => {
                let text = "this replica belongs to no group yet";
                let reply = AdminReply {
                    status: AdminStatus::NotLeader,
                    leader: None,
                    text,
                };
                self.out.reply(token, &reply);
            }
        }
    }
}

/// The sentence for a caller whose request cannot be read: nothing of it was done.
fn unreadable() -> String {
    format!(
        "release {}, which the replica runs, cannot read this request: upgrade the older of the two programs",
        Release::THIS
    )
}
