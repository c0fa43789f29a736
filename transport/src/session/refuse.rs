//! REFUSE: why a server makes no session.

use super::ControlOutput;
use crate::backend::Route;
use crate::wire::{Connect, Header, PacketType, Refuse, RefuseReason, Seed};

/// Tells a client that there will be no session.
pub(super) fn refuse<R: Route>(
    route: R,
    connect: &Connect,
    reason: RefuseReason,
    detail: u64,
    out: &mut ControlOutput<'_, R>,
) {
    let header = Header::new(PacketType::Refuse, connect.client_session);
    let body = Refuse { reason, detail }.write();
    out.send(route, header, Seed::of_nonce(connect.nonce), Some(body));
}
