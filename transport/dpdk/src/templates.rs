//! Headers per peer, ready to be sent: a direct-mapped cache that follows the ARP cache.

use std::net::SocketAddrV4;

use super::config::TEMPLATES;
use super::template::Template;

/// The cache of one endpoint. Two peers that fall on one place take turns, which costs time and nothing else.
#[derive(Debug)]
pub struct Templates {
    places: Box<[Option<CachedTemplate>]>,
    /// Entries of another version are not used.
    version: u64,
}

#[derive(Copy, Clone, Debug)]
struct CachedTemplate {
    peer: SocketAddrV4,
    version: u64,
    template: Template,
}

impl Templates {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self {
            places: vec![None; TEMPLATES].into_boxed_slice(),
            version: 0,
        }
    }

    /// Entries made under another version count as missing from now on.
    #[inline]
    pub fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// The headers for `peer`, made by `make` unless they are there.
    #[inline]
    pub fn get(
        &mut self,
        peer: SocketAddrV4,
        make: impl FnOnce(SocketAddrV4) -> Option<Template>,
    ) -> Option<&Template> {
        let place = &mut self.places[index(peer)];
        let fresh = place
            .as_ref()
            .is_some_and(|place| place.peer == peer && place.version == self.version);
        if !fresh {
            let template = make(peer)?;
            *place = Some(CachedTemplate {
                peer,
                version: self.version,
                template,
            });
        }
        place.as_ref().map(|place| &place.template)
    }
}

impl Default for Templates {
    fn default() -> Self {
        Self::new()
    }
}

/// Fibonacci hashing of address and port: consecutive ports, and consecutive addresses, fall on different places.
fn index(peer: SocketAddrV4) -> usize {
    let key = u64::from(peer.ip().to_bits()) << 16 | u64::from(peer.port());
    let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - TEMPLATES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::super::frame::Local;
    use super::super::mac::MacAddr;
    use super::*;
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    const LOCAL: Local = Local {
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        ip: Ipv4Addr::new(10, 0, 0, 1),
        port: 7000,
    };
    const HOP: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn peer(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), port)
    }

    #[test]
    fn headers_are_made_once_per_version() {
        let mut templates = Templates::new();
        let made = Cell::new(0);
        let make = |peer| {
            made.set(made.get() + 1);
            Some(Template::new(&LOCAL, HOP, peer))
        };
        assert!(templates.get(peer(1), make).is_some());
        assert!(templates.get(peer(1), make).is_some());
        assert_eq!(made.get(), 1);
        templates.set_version(1);
        assert!(templates.get(peer(1), make).is_some());
        assert_eq!(made.get(), 2);
    }

    #[test]
    fn an_unknown_peer_is_asked_for_again_and_never_confused_with_another() {
        let mut templates = Templates::new();
        assert!(templates.get(peer(1), |_| None).is_none());
        // More peers than places: some share one, and each must still get its own port.
        for port in 1..=3 * TEMPLATES as u16 {
            let template = templates
                .get(peer(port), |peer| Some(Template::new(&LOCAL, HOP, peer)))
                .copied()
                .unwrap();
            let mut frame = [0; 42];
            template.complete(
                &mut frame,
                super::super::template::Checksums {
                    ip: super::super::template::Fill::Software,
                    udp: super::super::template::Fill::Nobody,
                },
            );
            assert_eq!(frame[36..38], port.to_be_bytes());
        }
    }
}
