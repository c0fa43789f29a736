//! A packet with a part of a message, put into a batch.

use std::ops::Range;

use crate::backend::{Body, Route, TxBatch};
use crate::buf::MsgBuf;
use crate::session::peer::SessionPeer;
use crate::wire::{EXTENSION_BYTES, Header};

/// Adds a packet with a part of a message: written into the batch if it is short, else referred to.
#[inline(always)]
pub(super) fn push_data<R: Route>(
    tx: &mut TxBatch<R>,
    to: &SessionPeer<R>,
    header: &Header,
    extension: Option<[u8; EXTENSION_BYTES]>,
    message: &MsgBuf,
    range: Range<usize>,
) {
    if range.len() <= TxBatch::<R>::COPY_MAX {
        let len = header.write_packet(to.seed, extension, &message[range], tx.next_room());
        return tx.push_written(to.route, len, to.terms.mtu);
    }
    let head = header.write(to.seed, extension, &message[range.clone()]);
    let body = Body::Message(message, range);
    tx.push_within(to.route, &head, body, to.terms.mtu);
}
