//! What is to become of a packet, and why one is dropped.

/// What an application decided about a packet. The packet's bytes are already changed as it demands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves by this port, counted from 0 among the output ports.
    Forward(u8),
    /// It leaves by every output port.
    Flood,
    /// It goes no further.
    Drop(Reason),
}

/// Why a packet is dropped.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// It ends before its headers do.
    Short,
    /// It is no packet of the application's protocol.
    Foreign,
    /// Its headers contradict each other, or its addresses are not for forwarding.
    Malformed,
    /// The checksum of its header is wrong.
    Checksum,
    /// Its TTL or hop limit ends here.
    Expired,
    /// The table knows no way.
    Unknown,
    /// It contains a pattern.
    Matched,
}

impl Reason {
    /// All of them, by number.
    pub const ALL: [Self; 7] = [
        Self::Short,
        Self::Foreign,
        Self::Malformed,
        Self::Checksum,
        Self::Expired,
        Self::Unknown,
        Self::Matched,
    ];

    /// The name in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Foreign => "foreign",
            Self::Malformed => "malformed",
            Self::Checksum => "checksum",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
            Self::Matched => "matched",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_stands_at_its_number() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
    }
}
