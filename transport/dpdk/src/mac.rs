//! An Ethernet address.

use std::fmt;
use std::str::FromStr;

/// A 48-bit Ethernet address.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

/// The text is not six hexadecimal octets joined by colons.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ParseMacError;

impl MacAddr {
    /// Everybody on the segment.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// The zero address; means "not known yet" in an ARP request.
    pub const ZERO: Self = Self([0; 6]);

    /// Whether the address names a group (which broadcast is, too).
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether one single port can own this address.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Self::ZERO
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or(ParseMacError)?;
            if part.is_empty() || part.len() > 2 || part.starts_with('+') {
                return Err(ParseMacError);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?;
        }
        match parts.next() {
            None => Ok(Self(octets)),
            Some(_) => Err(ParseMacError),
        }
    }
}

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an Ethernet address is written as six octets, like 02:00:00:00:00:01")
    }
}

impl std::error::Error for ParseMacError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let mac: MacAddr = "02:00:5e:0A:ff:1".parse().unwrap();
        assert_eq!(mac, MacAddr([2, 0, 0x5e, 10, 255, 1]));
        assert_eq!(mac.to_string(), "02:00:5e:0a:ff:01");
        for bad in [
            "",
            "02:00:5e:0a:ff",
            "02:00:5e:0a:ff:01:02",
            "02:00:5e:0a:ff:001",
            "02-00-5e-0a-ff-01",
            "+2:0:0:0:0:1",
        ] {
            assert_eq!(bad.parse::<MacAddr>(), Err(ParseMacError), "{bad}");
        }
    }

    #[test]
    fn groups_are_not_unicast() {
        assert!(MacAddr::BROADCAST.is_multicast());
        assert!(!MacAddr::BROADCAST.is_unicast());
        assert!(!MacAddr::ZERO.is_unicast());
        assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_unicast());
    }
}
