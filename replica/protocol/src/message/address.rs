//! The encoding of a `host:port`: 24 bytes, whatever the family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::codec::{DecodeError, Reader, Writer};

/// Bytes of an address on the wire.
pub const ADDRESS_SIZE: usize = 24;

const FAMILY_NONE: u8 = 0;
const FAMILY_V4: u8 = 4;
const FAMILY_V6: u8 = 6;

pub(super) fn encode(address: Option<SocketAddr>, out: &mut Writer<'_>) {
    let (family, scope, octets) = match address {
        None => (FAMILY_NONE, 0, [0; 16]),
        Some(SocketAddr::V4(v4)) => (FAMILY_V4, 0, v4_octets(*v4.ip())),
        Some(SocketAddr::V6(v6)) => (FAMILY_V6, v6.scope_id(), v6.ip().octets()),
    };
    out.u8(family);
    out.zeros(1);
    out.u16(address.map_or(0, |address| address.port()));
    out.u32(scope);
    out.bytes(&octets);
}

pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Option<SocketAddr>, DecodeError> {
    decode_as(reader, true)
}

/// An address in a reply: one of a family that a later release has added counts as not known.
pub(super) fn decode_known(reader: &mut Reader<'_>) -> Result<Option<SocketAddr>, DecodeError> {
    decode_as(reader, false)
}

fn decode_as(reader: &mut Reader<'_>, is_strict: bool) -> Result<Option<SocketAddr>, DecodeError> {
    let family = reader.u8()?;
    reader.skip::<1>()?;
    let port = reader.u16()?;
    let scope = reader.u32()?;
    let octets = reader.octets()?;
    match family {
        FAMILY_NONE => Ok(None),
        FAMILY_V4 => Ok(Some(SocketAddr::new(IpAddr::V4(v4_address(octets)), port))),
        FAMILY_V6 => Ok(Some(SocketAddr::V6(SocketAddrV6::new(
            Ipv6Addr::from(octets),
            port,
            0,
            scope,
        )))),
        _ if is_strict => Err(DecodeError::Field {
            field: "address family",
        }),
        _ => Ok(None),
    }
}

/// An address that has to be there.
pub(super) fn decode_present(reader: &mut Reader<'_>) -> Result<SocketAddr, DecodeError> {
    decode(reader)?.ok_or(DecodeError::Field {
        field: "address family",
    })
}

fn v4_octets(address: Ipv4Addr) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[..4].copy_from_slice(&address.octets());
    octets
}

fn v4_address(octets: [u8; 16]) -> Ipv4Addr {
    let [a, b, c, d, ..] = octets;
    Ipv4Addr::new(a, b, c, d)
}
