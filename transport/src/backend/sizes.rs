//! The largest packet to wish for, by the route that it takes.

/// Bytes of UDP payload that every path carries whole: IPv6's minimum of 1,280 bytes without the headers of IPv6 and UDP.
pub const PACKET_EVERYWHERE: usize = 1_280 - 40 - 8;

/// How large packets may be on the way to a route. Both ends of a session ask it when they make the session, and the
/// smaller answer counts for as long as the session lives.
#[derive(Debug)]
pub struct PacketSizes<R> {
    /// For routes within this machine.
    near: u16,
    /// For all others.
    far: u16,
    /// `None`: no route stays within this machine.
    is_near: Option<fn(&R) -> bool>,
}

impl<R> Copy for PacketSizes<R> {}

impl<R> Clone for PacketSizes<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> PacketSizes<R> {
    /// One size for all routes. It is the device's own, so no path can break it.
    #[must_use]
    pub fn of_device(bytes: u16) -> Self {
        Self {
            near: bytes,
            far: bytes,
            is_near: None,
        }
    }

    /// `near` bytes for the routes of which `is_near` says that their packets do not leave this machine, `far` for the
    /// others. `is_near` is asked once or twice a session, so it may take some microseconds.
    #[must_use]
    pub fn by_route(near: u16, far: u16, is_near: fn(&R) -> bool) -> Self {
        Self {
            near,
            far,
            is_near: Some(is_near),
        }
    }

    /// Whether packets on this route do not leave the machine.
    pub(crate) fn is_near(&self, route: &R) -> bool {
        self.is_near.is_some_and(|is_near| is_near(route))
    }

    /// Bytes of the largest packet to wish for.
    #[must_use]
    pub fn of(&self, route: &R) -> u16 {
        if self.is_near.is_none() || self.is_near(route) {
            self.near
        } else {
            self.far
        }
    }

    /// Whether packets of `bytes` on this route rest on somebody's promise that all paths carry them.
    pub(crate) fn is_promise(&self, route: &R, bytes: usize) -> bool {
        bytes > PACKET_EVERYWHERE && self.is_near.is_some_and(|is_near| !is_near(route))
    }

    /// Bytes that a datagram may have on any of the routes.
    pub(crate) fn anywhere(&self) -> u16 {
        self.near.min(self.far).min(PACKET_EVERYWHERE as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_size_above_what_every_path_carries_is_a_promise() {
        let sizes = PacketSizes::by_route(1_472, 8_952, |route: &u8| *route == 0);
        assert_eq!((sizes.of(&0), sizes.of(&1)), (1_472, 8_952));
        assert!(!sizes.is_promise(&0, 1_472), "within the machine");
        assert!(sizes.is_promise(&1, 1_233));
        assert!(!sizes.is_promise(&1, PACKET_EVERYWHERE));
        assert!(!PacketSizes::of_device(4_096).is_promise(&1, 4_096));
        assert_eq!(sizes.anywhere(), 1_232);
        assert_eq!(PacketSizes::<u8>::of_device(600).anywhere(), 600);
    }
}
