//! The life of a connection.
//!
//! ```text
//!           QUIT, the client's end, too many wrong passwords,
//!           a broken request, a request of HTTP
//!      open ---------------------------------------------> ending ----> over, once the replies are written
//!        |                                                   |
//!        |          the client does not read what it is sent |
//!        +-------------------------> cut off <---------------+
//! ```
//!
//! Invariant: a connection never opens again, and the first cause of its end stays.

/// Where a connection is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Life {
    /// Requests are handled.
    #[default]
    Open,
    /// No more requests are handled. What is under way is still answered.
    Ending(Cause),
    /// Nothing more is sent, whatever is unread.
    CutOff(Cause),
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// The client wants it, or has given too many wrong passwords.
    Farewell,
    /// The client broke the protocol.
    Broken,
    /// The client spoke HTTP.
    Attack,
    /// The client has not read what it was sent without asking.
    Unread,
}

impl Life {
    /// The connection ends, unless it does already.
    pub(super) fn end(&mut self, cause: Cause) {
        if *self == Self::Open {
            *self = Self::Ending(cause);
        }
    }

    /// The connection is cut off.
    pub(super) fn cut_off(&mut self) {
        *self = Self::CutOff(self.cause().unwrap_or(Cause::Unread));
    }

    /// Whether requests are handled.
    pub(super) fn is_open(self) -> bool {
        self == Self::Open
    }

    /// Whether it was cut off.
    pub(super) fn is_cut_off(self) -> bool {
        matches!(self, Self::CutOff(_))
    }

    /// Why it ends, if it does.
    pub(super) fn cause(self) -> Option<Cause> {
        match self {
            Self::Open => None,
            Self::Ending(cause) | Self::CutOff(cause) => Some(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stays() {
        let mut life = Life::default();
        assert!(life.is_open() && life.cause().is_none());
        life.end(Cause::Broken);
        life.end(Cause::Farewell);
        assert_eq!(life, Life::Ending(Cause::Broken));
        life.cut_off();
        assert_eq!(life, Life::CutOff(Cause::Broken));
        life.end(Cause::Attack);
        assert!(life.is_cut_off() && !life.is_open());
        let mut life = Life::default();
        life.cut_off();
        assert_eq!(life.cause(), Some(Cause::Unread));
    }
}
