//! IPv4 forwarding: the header is checked, the longest prefix chooses the next hop, the TTL goes down.

mod dir24;
mod reference;
mod routes;

pub use dir24::Dir24;
pub use reference::{Ipv4Reference, Ipv4Traffic};
pub use routes::{Route4, bgp_like};

use crate::application::Application;
use crate::error::TableError;
use crate::frame::{ETHERNET, IPV4, TYPE_IPV4, is_group, lower_ttl, ones_sum, set_macs, u16_at};
use crate::hops::Hops;
use crate::verdict::{Reason, Verdict};
use std::future::Future;

/// The application.
pub struct Ipv4 {
    table: Dir24,
    hops: Hops,
}

impl Ipv4 {
    /// A router with these routes.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a route does not fit the table.
    pub fn new(routes: &[Route4], ports: u8) -> Result<Self, TableError> {
        Ok(Self {
            table: Dir24::build(routes)?,
            hops: Hops::new(ports),
        })
    }
}

impl Application for Ipv4 {
    #[inline(always)]
    fn handle<'a, const N: usize>(
        &'a self,
        frame: &'a mut [u8],
    ) -> impl Future<Output = Verdict> + 'a {
        async move {
            let destination = match destination(frame) {
                Ok(destination) => destination,
                Err(reason) => return Verdict::Drop(reason),
            };
            let Some(hop) = self.table.find::<N>(destination).await else {
                return Verdict::Drop(Reason::Unknown);
            };
            lower_ttl(&mut frame[ETHERNET..]);
            set_macs(frame, self.hops.mac(hop));
            Verdict::Forward(self.hops.port(hop))
        }
    }
}

/// Where a packet is to go, if it may go further.
#[inline(always)]
fn destination(frame: &[u8]) -> Result<u32, Reason> {
    if frame.len() < ETHERNET + IPV4 {
        return Err(Reason::Short);
    }
    if u16_at(frame, 12) != TYPE_IPV4 {
        return Err(Reason::Foreign);
    }
    let packet = &frame[ETHERNET..];
    let header = usize::from(packet[0] & 0xf) * 4;
    let length = usize::from(u16_at(packet, 2));
    if packet[0] >> 4 != 4 || header < IPV4 || length < header || is_group(frame) {
        return Err(Reason::Malformed);
    }
    if packet.len() < length {
        return Err(Reason::Short);
    }
    if ones_sum(&packet[..header]) != 0xffff {
        return Err(Reason::Checksum);
    }
    if packet[8] <= 1 {
        return Err(Reason::Expired);
    }
    let destination = u32::from_be_bytes([packet[16], packet[17], packet[18], packet[19]]);
    match (destination >> 24) as u8 {
        0 | 127 | 224.. => Err(Reason::Malformed),
        _ => Ok(destination),
    }
}
