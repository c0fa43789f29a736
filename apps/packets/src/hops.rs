//! Next hops: port and Ethernet address.

use crate::frame::Mac;

/// All next hops. Each is behind the port that its number gives, and has an address made of its number.
pub struct Hops {
    ports: u8,
}

impl Hops {
    /// Next hops behind this many ports, at least one.
    #[must_use]
    pub fn new(ports: u8) -> Self {
        assert!(ports > 0, "a router has a port");
        Self { ports }
    }

    /// The port.
    #[inline(always)]
    #[must_use]
    pub fn port(&self, hop: u16) -> u8 {
        (hop % u16::from(self.ports)) as u8
    }

    /// The address.
    #[inline(always)]
    #[must_use]
    pub fn mac(&self, hop: u16) -> Mac {
        let [high, low] = hop.to_be_bytes();
        [0x02, 0, 0, 1, high, low]
    }
}
