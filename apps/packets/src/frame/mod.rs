//! Offsets of header fields, and checksums that are adjusted in place.

pub mod build;

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
/// Bytes of an IPv4 header without options.
pub const IPV4: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6: usize = 40;
/// EtherType of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const TYPE_IPV6: u16 = 0x86dd;
/// EtherType of named data networking.
pub const TYPE_NDN: u16 = 0x8624;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// The address that routers of these applications send from.
pub const OWN_MAC: Mac = [0x02, 0, 0, 0, 0, 0xfe];

/// Two bytes as a number. The caller has checked that they are there.
#[inline(always)]
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The address at `at` as a number of 48 bits.
#[inline(always)]
#[must_use]
pub fn mac_at(frame: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[2..].copy_from_slice(&frame[at..at + 6]);
    u64::from_be_bytes(bytes)
}

/// Whether the frame is for a group of stations.
#[inline(always)]
#[must_use]
pub fn is_group(frame: &[u8]) -> bool {
    frame[0] & 1 != 0
}

/// Writes destination and source of a frame.
#[inline(always)]
pub fn set_macs(frame: &mut [u8], destination: Mac) {
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&OWN_MAC);
}

/// The sum of a header's 16-bit words in one's complement: 0xffff if the header's checksum is right.
#[inline(always)]
#[must_use]
pub fn ones_sum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

/// Lowers the TTL by one and keeps the header's checksum right (RFC 1624, equation 3).
#[inline(always)]
pub fn lower_ttl(header: &mut [u8]) {
    const TTL: usize = 8;
    const CHECKSUM: usize = 10;
    let old = u16_at(header, TTL);
    header[TTL] -= 1;
    let new = u16_at(header, TTL);
    let sum = u32::from(!u16_at(header, CHECKSUM)) + u32::from(!old) + u32::from(new);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lowered_ttl_keeps_every_checksum_right() {
        for seed in 0..=u16::MAX {
            let mut header = build::ipv4_header(u32::from(seed), !u32::from(seed), 20, 64);
            header[4..6].copy_from_slice(&seed.to_be_bytes());
            build::seal_ipv4(&mut header);
            assert_eq!(ones_sum(&header), 0xffff);
            lower_ttl(&mut header);
            assert_eq!((header[8], ones_sum(&header)), (63, 0xffff), "{seed}");
        }
    }

    #[test]
    fn addresses_are_numbers() {
        let frame = [1, 2, 3, 4, 5, 6, 7];
        assert_eq!(mac_at(&frame, 0), 0x0102_0304_0506);
        assert!(is_group(&frame) && !is_group(&frame[1..]));
    }
}
