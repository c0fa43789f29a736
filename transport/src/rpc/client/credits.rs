//! The credits of a client end, and how many of them congestion control leaves to it.

/// What a client end may have under way.
#[derive(Copy, Clone, Debug)]
pub(super) struct Credits {
    /// Credits that are not in use.
    pub(super) left: u16,
    /// So many of them congestion control keeps back; 0 without it.
    pub(super) reserve: u16,
    /// Requests of which the server has said that their handler runs. Each has a credit, and no packet in the network.
    pub(super) held: u16,
}

impl Credits {
    pub(super) fn new(granted: u16) -> Self {
        Self {
            left: granted,
            reserve: 0,
            held: 0,
        }
    }

    /// Packets can be sent while more than so many credits are left.
    #[inline]
    pub(super) fn kept_back(&self) -> u16 {
        self.reserve.saturating_sub(self.held)
    }

    /// The same while only one packet may be under way, of a session with so many credits.
    pub(super) fn kept_back_but_one(&self, granted: u16) -> u16 {
        (granted - 1).saturating_sub(self.held)
    }

    #[inline]
    pub(super) fn may_send(&self) -> bool {
        self.left > self.kept_back()
    }
}
