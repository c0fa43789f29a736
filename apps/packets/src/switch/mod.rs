//! A layer-2 switch: the destination's Ethernet address chooses the port. Frames to groups and to unknown stations leave
//! by all ports.

mod reference;
mod stations;

pub use reference::{SwitchReference, SwitchTraffic, random_stations};
pub use stations::{Station, Stations};

use crate::application::Application;
use crate::error::TableError;
use crate::frame::{ETHERNET, is_group, mac_at};
use crate::verdict::{Reason, Verdict};
use std::future::Future;
use trine_transport::prng::Prng;

/// The application.
pub struct Switch {
    stations: Stations,
}

impl Switch {
    /// A switch that knows these stations.
    ///
    /// # Errors
    ///
    /// [`TableError`] if the table has no room, or if an address belongs to no station.
    pub fn new(stations: &[Station], prng: &mut Prng) -> Result<Self, TableError> {
        Ok(Self {
            stations: Stations::build(stations, prng)?,
        })
    }
}

impl Application for Switch {
    #[inline(always)]
    fn handle<'a, const N: usize>(
        &'a self,
        frame: &'a mut [u8],
    ) -> impl Future<Output = Verdict> + 'a {
        async move {
            if frame.len() < ETHERNET {
                return Verdict::Drop(Reason::Short);
            }
            // No station sends from the address of a group.
            if is_group(&frame[6..]) {
                return Verdict::Drop(Reason::Malformed);
            }
            if is_group(frame) {
                return Verdict::Flood;
            }
            match self.stations.find::<N>(mac_at(frame, 0)).await {
                Some(port) => Verdict::Forward(port),
                None => Verdict::Flood,
            }
        }
    }
}
