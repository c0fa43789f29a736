//! IPv6 forwarding: the longest prefix chooses the next hop, the hop limit goes down.

mod reference;
mod table;

pub use reference::{Ipv6Reference, Ipv6Traffic, random_routes};
pub use table::{Route6, Table6};

use crate::application::Application;
use crate::error::TableError;
use crate::frame::{ETHERNET, IPV6, TYPE_IPV6, is_group, set_macs, u16_at};
use crate::hops::Hops;
use crate::verdict::{Reason, Verdict};
use std::future::Future;

/// The application.
pub struct Ipv6 {
    table: Table6,
    hops: Hops,
}

impl Ipv6 {
    /// A router with these routes.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a route does not fit the table.
    pub fn new(routes: &[Route6], ports: u8) -> Result<Self, TableError> {
        Ok(Self {
            table: Table6::build(routes)?,
            hops: Hops::new(ports),
        })
    }
}

impl Application for Ipv6 {
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
            frame[ETHERNET + 7] -= 1;
            set_macs(frame, self.hops.mac(hop));
            Verdict::Forward(self.hops.port(hop))
        }
    }
}

/// Where a packet is to go, if it may go further.
#[inline(always)]
fn destination(frame: &[u8]) -> Result<u128, Reason> {
    if frame.len() < ETHERNET + IPV6 {
        return Err(Reason::Short);
    }
    if u16_at(frame, 12) != TYPE_IPV6 {
        return Err(Reason::Foreign);
    }
    let packet = &frame[ETHERNET..];
    if packet[0] >> 4 != 6 || is_group(frame) {
        return Err(Reason::Malformed);
    }
    if packet.len() < IPV6 + usize::from(u16_at(packet, 4)) {
        return Err(Reason::Short);
    }
    if packet[7] <= 1 {
        return Err(Reason::Expired);
    }
    let bytes = packet[24..].first_chunk().expect("a whole header");
    let destination = u128::from_be_bytes(*bytes);
    let first = (destination >> 112) as u16;
    // Neither groups, nor one link, nor the unspecified address and loopback.
    if first >= 0xff00 || first & 0xffc0 == 0xfe80 || destination <= 1 {
        return Err(Reason::Malformed);
    }
    Ok(destination)
}
