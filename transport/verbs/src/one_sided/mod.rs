//! HERD and RFP as ways for requests and answers, as far as they need no device.
//!
//! A client writes its requests into memory of the server, which polls that memory. Receiving a request then costs the
//! server no work request, neither before nor after. The two paths differ in the answers:
//!
//! - herd: they are datagrams (Kalia, Kaminsky, Andersen, "Using RDMA Efficiently for Key-Value Services", SIGCOMM 2014).
//! - rfp: the server leaves them in memory of its own, and the client fetches them by READs (Su et al., "RFP: A Remote
//!   Fetching Paradigm for RDMA-Accelerated Systems"). So an answer costs the server no work request either.
//!
//! A *connection* is a queue pair at each end, unreliable (UC) for herd and reliable (RC) for rfp, and a *request region*
//! of eight slots at the server. It carries one packet of a session in each slot, from the session's client end to its
//! server end. With rfp a second region has eight slots for answers. All other packets are datagrams. Any packet may be a
//! datagram at any time, so a connection that fails costs speed alone.
//!
//! ```text
//!   client                                            server
//!   CONNECT with cookie | terms        -- datagram -->
//!                                      <- datagram --  ACCEPT | grant: queue pair, addresses, rkeys
//!   REQUEST into slot n mod 8          ---- WRITE --->
//!                                      <- datagram --  RESPONSE (herd)
//!                                      <--- READ ----  RESPONSE in slot m mod 8 (rfp)
//!                                      <- datagram --  notice: I sleep, and have read everything before n
//!   REQUEST                            -- datagram -->
//!   notice: answers are slow, send them -- datagram -->
//!                                      <- datagram --  RESPONSE
//! ```

mod answers;
mod arrivals;
mod device;
mod fetcher;
mod incoming;
mod names;
mod outgoing;
mod path;
mod sizes;
mod slot;
mod terms;
mod window;

use self::arrivals::Arrivals;
use self::incoming::{Assignment, Incoming};
use self::outgoing::{Outgoing, RequestPath};

pub(crate) use self::device::{Fetched, OneSidedDevice, Written};
pub(crate) use self::path::{OneSided, PathFailure, PathSettings, Sending};
pub(crate) use self::slot::{ANSWER_BYTES, HEAD_BYTES, SLOT_BYTES, Slots};
pub(crate) use self::terms::{Area, ConnectionOffer, Grant, NOTICE_BYTES};

#[cfg(test)]
mod tests;
