//! Messages on the wire above the transport: one file per message, fixed little-endian layouts.
//!
//! Decoding borrows from the received bytes and never panics. Encoding writes straight into the message buffer that
//! is going to be sent. The layouts are drawn in `replica/PROTOCOL.md` and pinned by golden-byte tests.

mod address;
mod admin;
mod agree;
mod append;
mod backup;
mod batch;
mod bootstrap;
mod client;
mod codec;
mod death;
mod ids;
mod join;
mod kinds;
mod other_status;
mod peer;
mod snapshot;
mod status;
mod timing;
mod watch;

#[cfg(test)]
mod tests;

pub use address::ADDRESS_SIZE;
pub use admin::{AdminCommand, AdminReply, AdminRequest, AdminStatus};
pub use agree::StateReport;
pub use append::{APPEND_HEADER_SIZE, AppendFrame, set_stream_position, stream_position};
pub use backup::{
    BACKUP_PIECE_HEADER_SIZE, BACKUP_WINDOW, BackupHead, BackupReply, BackupRequest, BackupStep,
};
pub use batch::{
    BATCH_HEADER_SIZE, BATCH_ITEM_HEADER_SIZE, BATCH_ITEMS_MAX, BatchItems, BatchWriter,
};
pub use bootstrap::{
    BeginRefusal, BootstrapReply, BootstrapRequest, MEMBERS_MAX, Member, MemberRole, Members,
};
pub use client::{
    CLIENT_REPLY_HEADER_SIZE, CLIENT_REQUEST_HEADER_SIZE, CLIENT_REQUEST_USER_SIZE, ClientReply,
    ClientRequest, ClientStatus, ForUser, NO_CHECK, Operation, check_of,
};
pub use codec::{DecodeError, Encode, Writer};
pub use death::{DEATH_NOTICE, LeaderSecret, RunSecret};
pub use ids::{ClusterId, GroupId, Incarnation, NodeId, ReplyToken};
pub use join::{JoinRefusal, JoinReply, JoinRequest};
pub use kinds::KnownKinds;
pub use other_status::{OtherStatus, OtherVersion, StatusClass};
pub use peer::{PEER_HEADER_SIZE, PeerHeader, RaftFrame};
pub use snapshot::{ChunkAck, ChunkOutcome, SNAPSHOT_HEADER_SIZE, SnapshotChunk};
pub use status::{Discovery, PromisedPosition, RoleCode, StatusForm, StatusReply, StatusRequest};
pub use timing::{LeaderTiming, TIMING_SIZE};
pub use watch::{
    EventList, EventWriter, WATCH_REPLY_BYTES, WATCH_REPLY_BYTES_MIN, WATCH_STATUS_MIN,
    WATCHES_MAX, Watch, WatchEvent, WatchReply, WatchRequest, Watched,
};

/// Version of every layout in this module. A message of another version is refused, never guessed at.
pub const MESSAGE_VERSION: u8 = 1;

/// The longest sentence of a refusal in an answer to a client's command. A client of this release has room for one beside
/// each write of a batch.
pub const REFUSAL_TEXT_BYTES_MAX: usize = 256;

/// The request types that a replica registers with the transport.
pub mod kind {
    /// A client's command: [`super::ClientRequest`] answered by [`super::ClientReply`].
    pub const CLIENT: u8 = 1;
    /// Log entries: [`super::AppendFrame`] answered by a [`super::RaftFrame`] or by nothing.
    pub const APPEND: u8 = 2;
    /// Any other raft message: [`super::RaftFrame`] answered by a [`super::RaftFrame`] or by nothing.
    pub const RAFT: u8 = 3;
    /// A piece of a snapshot: [`super::SnapshotChunk`] answered by [`super::ChunkAck`].
    pub const SNAPSHOT: u8 = 4;
    /// Beginning of a group: [`super::BootstrapRequest`] answered by [`super::BootstrapReply`].
    pub const BOOTSTRAP: u8 = 5;
    /// A new incarnation asks to become a member: [`super::JoinRequest`] answered by [`super::JoinReply`].
    pub const JOIN: u8 = 6;
    /// Group discovery and the status page: [`super::StatusRequest`] answered by [`super::StatusReply`].
    pub const STATUS: u8 = 7;
    /// An admin command: [`super::AdminRequest`] answered by [`super::AdminReply`].
    pub const ADMIN: u8 = 8;
    /// A member's state hash at an agreed index: [`super::StateReport`], answered by the receiver's own or by nothing.
    pub const AGREE: u8 = 10;
    /// Several clients' commands: a batch of [`super::ClientRequest`] answered by a batch of [`super::ClientReply`].
    pub const CLIENT_BATCH: u8 = 9;
    /// An image for a backup: [`super::BackupRequest`] answered by [`super::BackupReply`].
    pub const BACKUP: u8 = 12;
    /// What a client watches: [`super::WatchRequest`] answered by [`super::WatchReply`].
    pub const WATCH: u8 = 13;
    /// What will prove that the leader's process has ended: [`super::LeaderSecret`]; the answer is empty.
    pub const LEADER_SECRET: u8 = 14;
}
