//! One request to one replica: how a message becomes one, and the question where the group is.

use trine_kvstore::{Command, List};
use trine_protocol::message::{CLIENT_REPLY_HEADER_SIZE, ClientRequest, Encode, Operation, kind};
use trine_transport::backend::Route;
use trine_transport::time::Duration;
use trine_transport::{Cx, SessionId};

/// Bytes of an answer to a command that has none of its own.
const BARE_ANSWER_BYTES: usize = CLIENT_REPLY_HEADER_SIZE + 1024;

/// A request without its message.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The kind of message.
    pub kind: u8,
    /// Bytes of the longest answer.
    pub room: usize,
    /// Its completion comes with this tag.
    pub tag: u64,
    /// It fails when no answer has come after this time.
    pub patience: Duration,
}

impl Ask {
    /// Sends a message. False if there is no memory for it, or no place for one more request: the caller tries again.
    pub fn send<R: Route>(
        self,
        cx: &mut Cx<'_, R>,
        session: SessionId,
        message: &impl Encode,
    ) -> bool {
        let buffers = (cx.alloc(message.encoded_len()), cx.alloc(self.room));
        let (Some(mut bytes), Some(response)) = buffers else {
            return false;
        };
        message.encode_to_slice(&mut bytes);
        let deadline = Some(cx.now() + self.patience);
        cx.enqueue_request(session, self.kind, bytes, response, self.tag, deadline)
            .is_ok()
    }
}

/// Asks where the group is, by a linearizable read of nothing. A `ClientReply` comes. Whatever was acknowledged before is at its
/// position or before it. False as of [`Ask::send`].
pub fn ask_position<R: Route>(
    cx: &mut Cx<'_, R>,
    session: SessionId,
    tag: u64,
    patience: Duration,
) -> bool {
    let mut command = Vec::new();
    let keys = List::default();
    Command::MultiGet { keys }.encode(&mut command);
    let request = ClientRequest {
        command: &command,
        ..ClientRequest::bare(Operation::ReadHere)
    };
    let ask = Ask {
        kind: kind::CLIENT,
        room: BARE_ANSWER_BYTES,
        tag,
        patience,
    };
    ask.send(cx, session, &request)
}
