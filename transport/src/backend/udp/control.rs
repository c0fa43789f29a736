//! Control messages: what a system call says of a datagram beside its bytes and its peer's address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Room for the control messages of one datagram, as the kernel lays them out.
#[derive(Copy, Clone)]
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; CONTROL_BYTES],
}

/// Enough for the longest that is received: the time of arrival, the size of merged datagrams, the address that was asked,
/// and the traffic class.
pub(super) const CONTROL_BYTES: usize = 32 + 24 + 40 + 24 + 8;

/// `struct cmsghdr`: length, level, type.
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
const _: () = assert!(HEADER_BYTES == 16);
const _: () = assert!(size_of::<libc::in_pktinfo>() == 12);
const _: () = assert!(size_of::<libc::in6_pktinfo>() == 20);

/// ECN field of the traffic class: "congestion experienced".
const ECN_CE: u8 = 0b11;

impl Control {
    pub(super) const EMPTY: Self = Self {
        bytes: [0; CONTROL_BYTES],
    };

    /// Has the kernel cut a train into datagrams of this size. Returns the bytes of messages after `used` ones.
    pub(super) fn add_segmentation(&mut self, used: usize, segment_bytes: usize) -> usize {
        // At most a datagram's 65,507 bytes.
        let value = (segment_bytes as u16).to_ne_bytes();
        self.add(used, libc::SOL_UDP, libc::UDP_SEGMENT, &value)
    }

    /// Sends from this address of the machine. Returns the bytes of messages after `used` ones.
    pub(super) fn add_source(&mut self, used: usize, source: IpAddr, v6_socket: bool) -> usize {
        // The interface stays 0: the route decides, and the scope of a link-local peer.
        match source {
            IpAddr::V4(ip) if !v6_socket => {
                let mut info = [0; size_of::<libc::in_pktinfo>()];
                info[4..8].copy_from_slice(&ip.octets());
                self.add(used, libc::IPPROTO_IP, libc::IP_PKTINFO, &info)
            }
            _ => {
                let ip = match source {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                let mut info = [0; size_of::<libc::in6_pktinfo>()];
                info[..16].copy_from_slice(&ip.octets());
                self.add(used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info)
            }
        }
    }

    fn add(&mut self, used: usize, level: i32, kind: i32, value: &[u8]) -> usize {
        let length = HEADER_BYTES + value.len();
        let message = &mut self.bytes[used..][..length.next_multiple_of(8)];
        message[0..8].copy_from_slice(&length.to_ne_bytes());
        message[8..12].copy_from_slice(&level.to_ne_bytes());
        message[12..16].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER_BYTES..length].copy_from_slice(value);
        message[length..].fill(0);
        used + message.len()
    }

    /// Whether the traffic class among `len` bytes of messages marks congestion.
    pub(super) fn congestion_experienced(&self, len: usize) -> bool {
        self.messages(len).any(|(level, kind, value)| {
            let position = match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) => 0,
                // A native integer, unlike for IPv4.
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if cfg!(target_endian = "big") => 3,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => 0,
                _ => return false,
            };
            value
                .get(position)
                .is_some_and(|class| class & ECN_CE == ECN_CE)
        })
    }

    /// When the kernel took the datagram from the network, in nanoseconds of the wall clock.
    pub(super) fn arrival(&self, len: usize) -> Option<u64> {
        self.messages(len).find_map(|(level, kind, value)| {
            if (level, kind) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
                return None;
            }
            let part = |bytes: &[u8]| bytes.try_into().map(i64::from_ne_bytes).ok();
            let (seconds, nanos) = (part(value.get(..8)?)?, part(value.get(8..16)?)?);
            let (seconds, nanos) = (u64::try_from(seconds).ok()?, u64::try_from(nanos).ok()?);
            seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
        })
    }

    /// The address of this machine that a datagram with `len` bytes of messages was sent to. For a broadcast it is the
    /// interface's own. `None` if the kernel was not asked, or if nobody can answer from that address.
    pub(super) fn local_address(&self, len: usize) -> Option<IpAddr> {
        let local_address = self.messages(len).find_map(|(level, kind, value)| {
            match (level, kind) {
                // The second field is the address to answer from, the third that of the packet.
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let octets: [u8; 4] = value.get(4..8)?.try_into().ok()?;
                    Some(Ipv4Addr::from(octets).into())
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let octets: [u8; 16] = value.get(..16)?.try_into().ok()?;
                    Some(Ipv6Addr::from(octets).to_canonical())
                }
                _ => None,
            }
        });
        local_address.filter(|ip| !ip.is_multicast() && !ip.is_unspecified())
    }

    /// Level, type and value of each message in the first `len` bytes.
    fn messages(&self, len: usize) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let mut rest = &self.bytes[..len.min(CONTROL_BYTES)];
        std::iter::from_fn(move || {
            let header = rest.get(..HEADER_BYTES)?;
            let length = usize::from_ne_bytes(header[0..8].try_into().expect("eight bytes"));
            let level = i32::from_ne_bytes(header[8..12].try_into().expect("four bytes"));
            let kind = i32::from_ne_bytes(header[12..16].try_into().expect("four bytes"));
            let value = rest.get(HEADER_BYTES..length)?;
            rest = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
            Some((level, kind, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_as_it_was_written() {
        for (text, v6_socket, bytes) in [
            ("127.0.0.2", false, 32),
            ("127.0.0.2", true, 40),
            ("2001:db8::1", true, 40),
        ] {
            let source: IpAddr = text.parse().unwrap();
            let mut control = Control::EMPTY;
            let before = control.add_segmentation(0, 1_448);
            assert_eq!(before, 24);
            assert_eq!(control.local_address(before), None);
            let used = control.add_source(before, source, v6_socket);
            assert_eq!(used, before + bytes);
            assert_eq!(control.local_address(used), Some(source), "{text}");
            assert!(!control.congestion_experienced(used));
        }
    }

    #[test]
    fn the_traffic_class_is_found_behind_other_messages() {
        let mut control = Control::EMPTY;
        let used = control.add_source(0, Ipv4Addr::LOCALHOST.into(), false);
        for (class, marked) in [(0b11, true), (0b10, false)] {
            let used = control.add(used, libc::IPPROTO_IP, libc::IP_TOS, &[class]);
            assert_eq!(control.congestion_experienced(used), marked);
        }
    }

    #[test]
    fn the_time_of_arrival_is_found_behind_other_messages() {
        let stamp = |seconds: i64, nanos: i64| {
            let mut control = Control::EMPTY;
            let used = control.add_source(0, Ipv4Addr::LOCALHOST.into(), true);
            let time = [seconds.to_ne_bytes(), nanos.to_ne_bytes()].concat();
            let used = control.add(used, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time);
            (control.arrival(used), control.arrival(used - 32))
        };
        assert_eq!(stamp(7, 9), (Some(7_000_000_009), None));
        assert_eq!(stamp(-1, 0), (None, None), "before 1970");
        assert_eq!(stamp(i64::MAX, 0), (None, None));
    }

    #[test]
    fn nobody_answers_from_a_group() {
        let mut control = Control::EMPTY;
        for group in ["224.0.0.1", "ff02::1", "0.0.0.0"] {
            let used = control.add_source(0, group.parse().unwrap(), true);
            assert_eq!(control.local_address(used), None, "{group}");
        }
    }

    #[test]
    fn lengths_that_lie_end_the_search() {
        for length in [0, 8, 15, CONTROL_BYTES + 1, usize::MAX] {
            let mut control = Control::EMPTY;
            control.bytes[0..8].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(control.messages(CONTROL_BYTES).count(), 0, "{length}");
        }
    }
}
