//! Requests and responses: a file per packet type, and what they share (PROTOCOL.md section 5).
//!
//! A request's way: `enqueue` puts it into a slot, `transmit` sends its packets, the peer's
//! `request` receives them and calls the handler, `respond` takes the response, `response` receives
//! it, `completion` hands the buffers back. `loss` does what nobody hopes for.

mod answers;
mod busy;
mod client_end;
mod common_case;
mod completion;
mod control;
mod credit_return;
mod enqueue;
mod fast_path;
mod hold;
#[cfg(test)]
mod invariants;
mod loss;
mod memory;
mod ready;
mod receive;
mod request;
mod request_for_response;
mod request_table;
mod respond;
mod response;
mod server_end;
mod transmit;

pub(crate) use answers::{Answer, AnswerQueue, What};
pub(crate) use client_end::ClientEnd;
#[cfg(test)]
pub(crate) use client_end::ClientSlot;
pub(crate) use control::{Control, ControlQueue};
pub(crate) use fast_path::{FastPath, Peer};
pub(crate) use memory::Memory;
pub(crate) use ready::ReadyList;
pub(crate) use receive::Received;
pub(crate) use request_table::{Buffers, ClientRequest, Finished, NO_REQUEST, Place, RequestTable};
pub(crate) use server_end::{ServerEnd, ServerSlot, ServerSlotState};
