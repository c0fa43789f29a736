//! A replica's output: messages to peers, and answers to requests.

use std::net::SocketAddr;

use trine_transport::buf::MsgBuf;
use trine_transport::time::Duration;

use trine_protocol::message::{Incarnation, ReplyToken};

/// Which session to a peer a message takes: bulk data must not delay the heartbeat behind it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Consensus: small, urgent.
    Raft,
    /// Snapshot chunks, bootstrap and join: large or rare.
    Bulk,
}

/// One thing to do. Drained with `Replica::poll_output` after each call into the replica.
#[derive(Debug)]
pub enum Output {
    /// A request to a peer. Its end comes back through `Replica::on_peer_reply` with the same tag, exactly once.
    Send {
        /// Where the peer is reached.
        to: SocketAddr,
        /// The incarnation of the peer; another one must not get the request. `None` while it is not known.
        expect: Option<Incarnation>,
        /// The request type, one of [`trine_protocol::message::kind`].
        kind: u8,
        /// The session to take.
        class: Class,
        /// The request.
        bytes: MsgBuf,
        /// Names the request in `Replica::on_peer_reply`.
        tag: u64,
        /// After this long without an answer the request has failed.
        timeout: Duration,
        /// Most bytes that its answer can have.
        answer_bytes_max: usize,
    },
    /// The answer to a request that came in with this token. Each token is answered exactly once.
    Reply {
        /// The request's token.
        token: ReplyToken,
        /// The answer.
        bytes: MsgBuf,
    },
}
