//! Requests and responses: a file per packet type, and the values that they share (PROTOCOL.md section 5).
//!
//! A request's way: `client/start` puts it into a slot, `client/transmit` sends its packets, the peer's
//! `server/request` receives them, `server/respond` takes the response, `client/response` receives
//! it, `client/completion` hands the buffers back. `client/loss` handles lost packets.

mod budget;
mod client;
mod control;
mod cooling;
mod fast_path;
mod memory;
mod packet;
mod server;
mod sorted;

pub(crate) use budget::SlotId;
#[cfg(test)]
pub(crate) use client::ClientSlot;
pub(crate) use client::{Buffers, ClientEnd, Ended, Finished, NewRequest, Requests, SlotScan};
pub(crate) use control::{Control, ControlQueue};
pub(crate) use fast_path::FastPath;
pub(crate) use memory::Memory;
#[cfg(test)]
pub(crate) use server::ServerSlot;
pub(crate) use server::{Responded, Responses, ServerEnd, Then, Whole};
