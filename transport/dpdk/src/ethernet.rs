//! The Ethernet header: its size, and the types of the content after it.

/// Two addresses and the type.
pub const ETHERNET_HEADER: usize = 14;

pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_ARP: u16 = 0x0806;
pub(super) const ETHERTYPE_VLAN: u16 = 0x8100;
pub(super) const ETHERTYPE_QINQ: u16 = 0x88a8;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;
