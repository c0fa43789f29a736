//! Client requests that came in one message, and are answered in one when the last of them is.

use trine_protocol::message::{
    BATCH_HEADER_SIZE, BATCH_ITEM_HEADER_SIZE, BatchItems, BatchWriter, ClientReply, ClientStatus,
    Encode, ReplyToken, kind,
};
use trine_transport::backend::Route;
use trine_transport::buf::{MESSAGE_BYTES_MAX, MsgBuf};
use trine_transport::slab::Key;
use trine_transport::{Cx, Reply, ResponseHandle};

use super::rights::caller_in;
use super::{Node, ReplyTarget, address_of, caller_of, reply_empty, respond};

/// Vectors of earlier batches that are kept.
const SPARE_MAX: usize = 256;

/// A batch of which not every request is answered yet.
#[derive(Debug)]
pub(super) struct Batch {
    handle: ResponseHandle,
    /// The answers so far, in the order of the requests.
    answers: Vec<Option<MsgBuf>>,
    missing: usize,
    /// Bytes of the answers so far. Above what a message holds they are not kept, because none of them will be sent.
    bytes: usize,
}

impl<R: Route> Node<R> {
    pub(super) fn on_batch(
        &mut self,
        cx: &mut Cx<'_, R>,
        handle: ResponseHandle,
        request: &[u8],
    ) -> Reply {
        let items = match BatchItems::decode(request) {
            Ok(items) if items.len() > 0 => items,
            _ => {
                self.stats.unreadable += 1;
                return reply_empty(cx);
            }
        };
        let count = items.len();
        let mut answers = self.spare.pop().unwrap_or_default();
        answers.resize_with(count, || None);
        let batch = Batch {
            handle,
            answers,
            missing: count,
            bytes: BATCH_HEADER_SIZE,
        };
        let Ok(batch) = self.batches.insert(batch) else {
            self.stats.overloaded += 1;
            return reply_empty(cx);
        };
        for (place, item) in items.enumerate() {
            match self.tokens.insert(ReplyTarget::InBatch { batch, place }) {
                Ok(key) => {
                    let token = ReplyToken(key.to_u64());
                    let caller = caller_in(cx, handle.session());
                    let holder = || caller_of(&self.holder_of, cx, handle.session());
                    let replica = &mut self.replica;
                    replica.on_client_from(cx.now(), token, caller, item, &holder);
                    let address = || address_of(cx, handle.session());
                    replica.came_from(kind::CLIENT, address);
                }
                Err(_) => self.refuse_part(cx, batch, place),
            }
        }
        Reply::Later
    }

    /// Too many requests wait for their answer: the client is asked to come back later.
    fn refuse_part(&mut self, cx: &mut Cx<'_, R>, batch: Key, place: usize) {
        self.stats.overloaded += 1;
        let busy = ClientReply::refusal(ClientStatus::Busy, self.replica.cluster());
        let mut bytes = cx.alloc(busy.encoded_len());
        if let Some(bytes) = &mut bytes {
            busy.encode_to_slice(bytes);
        }
        self.note_part(cx, batch, place, bytes);
    }

    pub(super) fn answer_part(
        &mut self,
        cx: &mut Cx<'_, R>,
        batch: Key,
        place: usize,
        bytes: MsgBuf,
    ) {
        self.note_part(cx, batch, place, Some(bytes));
    }

    fn note_part(&mut self, cx: &mut Cx<'_, R>, key: Key, place: usize, answer: Option<MsgBuf>) {
        let Some(batch) = self.batches.get_mut(key) else {
            debug_assert!(false, "a batch lives until its last answer");
            return;
        };
        batch.bytes += BATCH_ITEM_HEADER_SIZE + answer.as_ref().map_or(0, |answer| answer.len());
        match batch.bytes <= MESSAGE_BYTES_MAX {
            true => batch.answers[place] = answer,
            false => batch.answers.iter_mut().for_each(|answer| *answer = None),
        }
        batch.missing -= 1;
        if batch.missing == 0
            && let Some(mut batch) = self.batches.remove(key)
        {
            respond_to_batch(cx, &batch);
            if self.spare.len() < SPARE_MAX {
                batch.answers.clear();
                self.spare.push(batch.answers);
            }
        }
    }
}

/// One message with all answers. Without a buffer for it the answer is empty, which says nothing of any of them.
fn respond_to_batch<R: Route>(cx: &mut Cx<'_, R>, batch: &Batch) {
    let answers = || {
        batch
            .answers
            .iter()
            .map(|answer| answer.as_deref().unwrap_or_default())
    };
    let bytes = batch.bytes;
    let Some(mut response) = cx.alloc(bytes) else {
        if let Some(empty) = cx.alloc(0) {
            respond(cx, batch.handle, empty);
        }
        return;
    };
    let mut writer = BatchWriter::new(&mut response);
    answers().for_each(|answer| writer.push(answer));
    let written = writer.finish();
    assert_eq!(written, bytes, "the answers fill the response");
    respond(cx, batch.handle, response);
}
