//! The status of a node: its replica, its sessions to peers, and the endpoint under both.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::program::Program;
use crate::status::{Status, coarse};

/// The full status of a node: the answer to a STATUS request in JSON form.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The replica.
    pub replica: Status,
    /// The sessions that this node has opened to present members.
    pub links: Vec<LinkStatus>,
    /// The endpoint under both.
    pub transport: TransportStatus,
    /// The keys of members that it uses and takes; nothing without keys.
    #[serde(default)]
    pub member_roots: Option<MemberRoots>,
    /// Who has come without a key, where keys are accepted; nothing without keys.
    #[serde(default)]
    pub unsealed_callers: Option<UnsealedCallers>,
    /// Which callers it takes, and who has come by role; nothing from a replica of an earlier release.
    #[serde(default)]
    pub keys: Option<KeysStatus>,
    /// The program that runs; nothing from a replica of an earlier release.
    #[serde(default)]
    pub program: Option<Program>,
}

impl NodeStatus {
    /// Leaves out what other callers have and do, for one who may touch the keys of a prefix alone.
    pub fn leave_others_out(&mut self) {
        self.replica.leave_others_out();
        let transport = &mut self.transport;
        transport.buffers.clear();
        for count in [
            &mut transport.packets_sent,
            &mut transport.packets_received,
            &mut transport.buffer_bytes,
            &mut transport.buffer_bytes_given_back,
        ] {
            *count = coarse(*count);
        }
    }

    /// Leaves out who the callers are, for readers who may not list the users. How many they are stays.
    pub fn leave_callers_out(&mut self) {
        if let Some(keys) = &mut self.keys {
            keys.users.clear();
        }
        if let Some(unsealed) = &mut self.unsealed_callers {
            unsealed.from.clear();
        }
    }
}

/// Which callers a node takes, and which sessions others have opened to it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct KeysStatus {
    /// `none`, `accept` or `require`.
    pub stage: String,
    /// Established sessions that others have opened, by what their keys prove.
    pub sessions: SessionsByRole,
    /// The users with most sessions, most first. Told only to those who may administrate.
    #[serde(default)]
    pub users: Vec<UserSessions>,
}

/// How many sessions callers of each role have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SessionsByRole {
    /// Members of the group.
    pub member: u64,
    /// Holders of the key file.
    pub admin: u64,
    /// Users, of all roles.
    pub user: u64,
    /// Callers without a key. In a group without keys these are all, members too.
    pub none: u64,
}

/// The sessions of one user.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct UserSessions {
    /// The user's name.
    pub name: String,
    /// How many.
    pub sessions: u64,
}

/// The member roots of a node, by their fingerprints.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberRoots {
    /// The group whose key it has, as `trine key show` prints it; nothing from a replica of an earlier release.
    #[serde(default)]
    pub group: Option<String>,
    /// `settled`, or the step of the change of the member root: `begun` or `switched`.
    pub step: String,
    /// The root that its own sessions use.
    pub used: String,
    /// A second one that it takes from others, while the root changes.
    pub accepted: Option<String>,
    /// Why it did not take the key file when it was last asked to read it again; nothing if it did.
    #[serde(default)]
    pub not_taken: Option<String>,
}

impl MemberRoots {
    /// Whether it takes sessions of members with this root.
    #[must_use]
    pub fn takes(&self, root: &str) -> bool {
        self.used == root || self.accepted.as_deref() == Some(root)
    }
}

/// Sessions that others have opened to a node without a key.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct UnsealedCallers {
    /// How many.
    pub sessions: u64,
    /// Where the first of them come from.
    pub from: Vec<String>,
}

/// The session to one peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Where the peer is reached.
    pub address: SocketAddr,
    /// `raft` or `bulk`.
    pub class: String,
    /// `up`, `connecting` or `down`.
    pub state: String,
    /// Whether nothing was sent over it of late, as over a follower's links and those of a former leader.
    #[serde(default)]
    pub idle: bool,
    /// Sessions that ended.
    pub sessions_lost: u64,
    /// Smoothed round-trip time, once there is one; nothing while the link is idle, because it would be an old one.
    pub rtt_ns: Option<u64>,
    /// The smallest round-trip time, under the same conditions.
    pub rtt_ns_min: Option<u64>,
    /// Packets retransmitted.
    pub retransmissions: Option<u64>,
    /// Credits agreed on.
    #[serde(default)]
    pub credits: Option<u16>,
    /// Credits in use.
    #[serde(default)]
    pub credits_in_use: Option<u16>,
    /// Times that it had something to send but no credit.
    #[serde(default)]
    pub credit_stalls: Option<u64>,
    /// The present retransmission timeout.
    #[serde(default)]
    pub rto_ns: Option<u64>,
    /// Congestion control's sending rate; zero with congestion control off.
    #[serde(default)]
    pub rate_bytes_per_second: Option<u64>,
    /// Largest packet agreed on.
    #[serde(default)]
    pub packet_bytes: Option<u16>,
}

/// The endpoint's counters that matter to people.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TransportStatus {
    /// Sessions that peers and clients opened.
    pub sessions_server: u64,
    /// Sessions that this node opened.
    pub sessions_client: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Packets retransmitted.
    pub retransmissions: u64,
    /// Received packets that were dropped for whatever reason.
    pub packets_dropped: u64,
    /// Memory that message buffers have taken; as much of each size as was ever needed at one time.
    #[serde(default)]
    pub buffer_bytes: u64,
    /// Those of them that went back to the system after a burst.
    #[serde(default)]
    pub buffer_bytes_given_back: u64,
    /// The parts of that memory.
    #[serde(default)]
    pub buffers: Vec<BufferStatus>,
}

/// The message buffers of one size.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct BufferStatus {
    /// Bytes of a message that one of them holds.
    pub capacity: u64,
    /// Memory that they take.
    pub bytes: u64,
    /// How many there are.
    pub count: u64,
    /// How many of them hold a message at the moment.
    pub in_use: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of the release before `keys`, as its replicas send it.
    const BEFORE: &str = r#"{
        "replica": {
            "node_id": 1, "incarnation": "a", "cluster": "c", "address": "127.0.0.1:1", "role": "leader",
            "not_serving": null, "term": 7, "leader": "127.0.0.1:1", "committed": 100, "applied": 99,
            "group_time_ns": 1, "members": [], "change_in_progress": false,
            "log": { "first_index": 1, "last_index": 100, "entries": 100, "bytes": 1000, "compactions": 0 },
            "sessions": { "open": 1, "closed": 0, "reply_bytes": 0, "evicted": 0, "refused": 0, "duplicates": 0 },
            "store": { "items": 1, "logical_bytes": 2, "memory_bytes": 3 },
            "counters": {
                "writes_proposed": 1, "entries_proposed": 1, "commands_applied": 1, "reads_linearizable": 1,
                "reads_stale": 0, "read_rounds": 0, "busy": 0, "redirected": 0, "messages_refused": 0,
                "messages_foreign": 0, "messages_unsent": 0, "elections_won": 1, "snapshots_sent": 0,
                "snapshots_installed": 0, "snapshots_failed": 0
            }
        },
        "links": [],
        "transport": {
            "sessions_server": 3, "sessions_client": 2, "packets_sent": 10, "packets_received": 10,
            "retransmissions": 0, "packets_dropped": 0
        },
        "member_roots": { "step": "settled", "used": "01020304", "accepted": null, "not_taken": null },
        "unsealed_callers": { "sessions": 1, "from": ["127.0.0.1:9"] }
    }"#;

    #[test]
    fn a_status_of_an_earlier_release_is_taken() {
        let status: NodeStatus = serde_json::from_str(BEFORE).expect("a status");
        assert_eq!(status.keys, None);
        assert_eq!(status.member_roots.expect("roots").group, None);
    }

    /// A later release may add fields here, too.
    #[test]
    fn the_part_about_keys_goes_there_and_back() {
        let mut status: NodeStatus = serde_json::from_str(BEFORE).expect("a status");
        let text = r#"{ "stage": "accept", "sessions": { "member": 4, "admin": 1, "user": 2, "none": 1, "robot": 9 },
            "users": [{ "name": "bob", "sessions": 2, "since": 7 }], "more": true }"#;
        let keys: KeysStatus = serde_json::from_str(text).expect("the part");
        assert_eq!((keys.sessions.member, keys.sessions.none), (4, 1));
        status.keys = Some(keys);
        let bytes = serde_json::to_vec(&status).expect("plain data");
        let again: NodeStatus = serde_json::from_slice(&bytes).expect("a status");
        assert_eq!(again, status);
        status.leave_callers_out();
        let keys = status.keys.expect("keys");
        assert_eq!((keys.users.len(), keys.sessions.user), (0, 2));
        let unsealed = status.unsealed_callers.expect("unsealed callers");
        assert_eq!((unsealed.from.len(), unsealed.sessions), (0, 1));
    }
    #[test]
    fn words_of_a_later_release_are_unknown() {
        use crate::status::{FsyncStatus, OrderedStatus, Role};
        for ordered in [
            r#""frozen""#,
            r#"{ "merging": { "parts": 3 } }"#,
            r#"{ "building": {} }"#,
        ] {
            let later = BEFORE
                .replace(r#""role": "leader""#, r#""role": "witness""#)
                .replace(
                    r#""compactions": 0"#,
                    r#""compactions": 0, "fsync": "group""#,
                )
                .replace(
                    r#""memory_bytes": 3"#,
                    &format!(r#""memory_bytes": 3, "ordered": {ordered}"#),
                );
            let status: NodeStatus = serde_json::from_str(&later).expect("a status");
            let replica = &status.replica;
            assert_eq!(replica.role, Role::Unknown);
            assert_eq!(replica.log.fsync, Some(FsyncStatus::Unknown));
            assert_eq!(replica.store.ordered, OrderedStatus::Unknown);
            let shown = serde_json::to_value(&status).expect("plain data");
            for word in [
                "/replica/role",
                "/replica/log/fsync",
                "/replica/store/ordered",
            ] {
                assert_eq!(shown.pointer(word), Some(&"unknown".into()), "{word}");
            }
        }
    }
}
