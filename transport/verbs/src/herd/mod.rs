//! HERD as a way for requests, as far as it needs no device.
//!
//! A client writes its requests into memory of the server, which polls that memory and answers by datagrams (Kalia,
//! Kaminsky, Andersen, "Using RDMA Efficiently for Key-Value Services", SIGCOMM 2014). Receiving a request then costs
//! the server no work request, neither before nor after.
//!
//! A *connection* is an unreliable connected (UC) queue pair at each end and a *request region* of eight slots at the
//! server. It carries one packet of a session in each slot, from the session's client end to its server end. All other
//! packets are datagrams. Any packet may be a datagram at any time, so a connection that fails costs speed alone.
//!
//! ```text
//!   client                                            server
//!   CONNECT with cookie | terms        -- datagram -->
//!                                      <- datagram --  ACCEPT | grant: queue pair, address, rkey
//!   REQUEST into slot n mod 8          ---- WRITE --->
//!                                      <- datagram --  RESPONSE
//!                                      <- datagram --  notice: I sleep, and have read everything before n
//!   REQUEST                            -- datagram -->
//! ```

mod arrivals;
mod incoming;
mod names;
mod outgoing;
mod path;
mod slot;
mod terms;
mod window;

use self::arrivals::Arrivals;
use self::incoming::{Incoming, Place};
use self::outgoing::{Outgoing, Way};

pub(crate) use self::path::{Device, Herd, Sending, Written};
pub(crate) use self::slot::{HEAD_BYTES, SLOT_BYTES, Slots};
pub(crate) use self::terms::{Grant, NOTICE_BYTES, Wish};

#[cfg(test)]
mod tests;
