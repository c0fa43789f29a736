//! A backend around another one that writes every packet to a capture file (pcapng).
//!
//! Each packet gets the IP and UDP headers that it has, or would have, on a network, so that
//! Wireshark shows it with its addresses; `transport/trine.lua` dissects the rest. Outgoing wire
//! packets are written one by one, as the core made them; incoming datagrams as they arrived. A
//! capture that reaches its limit or whose file fails ends; the node goes on.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

use super::{
    Backend, BackendError, BackendStats, Caps, PacketSizes, RingRoute, Route, RxBatch, TxBatch,
    Waker,
};
use crate::buf::Pool;
use crate::time::{Clock, Duration, Instant};
use trine_origin::Origin;

/// Routes that a capture can show as an address.
pub trait CaptureAddress: Route {
    /// The address in the capture's headers.
    fn capture_address(&self) -> SocketAddr;
}

impl CaptureAddress for SocketAddr {
    fn capture_address(&self) -> SocketAddr {
        *self
    }
}

/// Endpoint n of a mesh appears as 10.0.x.y with n in the last two bytes, on port 7471.
impl CaptureAddress for RingRoute {
    fn capture_address(&self) -> SocketAddr {
        let [high, low] = self.0.to_be_bytes();
        ([10, 0, high, low], 7471).into()
    }
}

/// Where and how a capture is written.
#[derive(Debug)]
pub struct Capture<W> {
    /// Some until the file is given back.
    out: Option<W>,
    /// A child must not write what its parent is about to write.
    origin: Origin,
    bytes_left: u64,
    /// Unix time of the clock's epoch.
    epoch_unix: Duration,
    frame: Vec<u8>,
    packets: u64,
    /// Why the capture ended, if it did.
    ended: Option<CaptureEnd>,
}

/// Why no more packets are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CaptureEnd {
    /// The limit of bytes is reached.
    Full,
    /// The file could not be written.
    Failed(io::ErrorKind),
}

/// See the module's description.
#[derive(Debug)]
pub struct Pcap<B, C, W> {
    inner: B,
    clock: C,
    local: SocketAddr,
    capture: Capture<W>,
}

/// The link type "raw IP": a packet begins with its IPv4 or IPv6 header.
const LINKTYPE_RAW: u16 = 101;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const PROTOCOL_UDP: u8 = 17;
/// Blocks around a packet: type, two lengths, interface, time, two packet lengths.
const PACKET_BLOCK_OVERHEAD: usize = 32;

impl<W: Write> Capture<W> {
    /// Starts a capture of at most `bytes_max` bytes. `epoch_unix` is the Unix time at which the
    /// clock's [`Instant`] was zero.
    ///
    /// # Errors
    ///
    /// If the file's head cannot be written.
    pub fn new(mut out: W, bytes_max: u64, epoch_unix: Duration) -> io::Result<Self> {
        let head = file_head();
        out.write_all(&head)?;
        Ok(Self {
            out: Some(out),
            origin: Origin::here(),
            bytes_left: bytes_max.saturating_sub(head.len() as u64),
            epoch_unix,
            frame: Vec::new(),
            packets: 0,
            ended: None,
        })
    }

    /// Packets written so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Why the capture ended; `None` while it goes on.
    pub fn ended(&self) -> Option<&CaptureEnd> {
        self.ended.as_ref()
    }

    fn write(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: SocketAddr,
        ecn: bool,
        payload: [&[u8]; 2],
    ) {
        if self.ended.is_some() {
            return;
        }
        let unix_ns = self.epoch_unix.as_nanos().saturating_add(now.as_nanos());
        write_packet_block(&mut self.frame, unix_ns, from, to, ecn, payload);
        let len = self.frame.len() as u64;
        if len > self.bytes_left {
            self.ended = Some(CaptureEnd::Full);
            return;
        }
        let Some(out) = &mut self.out else {
            return;
        };
        match out.write_all(&self.frame) {
            Ok(()) => {
                self.bytes_left -= len;
                self.packets += 1;
            }
            Err(error) => self.ended = Some(CaptureEnd::Failed(error.kind())),
        }
    }

    fn flush(&mut self) {
        if self.ended.is_none()
            && let Some(out) = &mut self.out
            && let Err(error) = out.flush()
        {
            self.ended = Some(CaptureEnd::Failed(error.kind()));
        }
    }
}

impl<B: Backend, C: Clock, W: Write> Pcap<B, C, W>
where
    B::Route: CaptureAddress,
{
    /// Captures what `inner` sends and receives; `local` is its own address.
    pub fn new(inner: B, clock: C, local: SocketAddr, capture: Capture<W>) -> Self {
        Self {
            inner,
            clock,
            local,
            capture,
        }
    }

    /// The capture's state.
    pub fn capture(&self) -> &Capture<W> {
        &self.capture
    }

    /// Ends the capture and gives its file back, everything written.
    pub fn into_writer(mut self) -> W {
        self.capture.flush();
        let out = self.capture.out.take();
        out.expect("it is given back once, together with this value")
    }
}

/// A file that is dropped writes what it still holds. A forked child has a copy of that, and the parent writes it, too.
impl<W> Drop for Capture<W> {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            std::mem::forget(self.out.take());
        }
    }
}

impl<B: Backend, C: Clock, W: Write> Backend for Pcap<B, C, W>
where
    B::Route: CaptureAddress,
{
    type Route = B::Route;

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn packet_sizes(&self) -> PacketSizes<B::Route> {
        self.inner.packet_sizes()
    }

    fn pool(&self) -> &Pool {
        self.inner.pool()
    }

    fn rx_burst(&mut self) -> Result<RxBatch<'_, B::Route>, BackendError> {
        let batch = self.inner.rx_burst()?;
        if !batch.is_empty() {
            let now = self.clock.now();
            for packet in batch.clone() {
                let from = packet.route.capture_address();
                self.capture
                    .write(now, from, self.local, packet.ecn, [packet.bytes, &[]]);
            }
        }
        Ok(batch)
    }

    fn tx_burst(&mut self, tx: &mut TxBatch<B::Route>) -> Result<(), BackendError> {
        let now = self.clock.now();
        for item in tx.iter() {
            let body = item.body.map_or(&[][..], |body| body);
            let to = item.route.capture_address();
            self.capture
                .write(now, self.local, to, false, [item.head, body]);
        }
        self.inner.tx_burst(tx)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    /// A node that is about to sleep has time to bring its capture to disk.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BackendError> {
        self.capture.flush();
        self.inner.wait(timeout)
    }

    fn watch(&mut self, descriptor: std::os::fd::OwnedFd) -> bool {
        self.inner.watch(descriptor)
    }

    fn note_arrivals(&mut self, on: bool) {
        self.inner.note_arrivals(on);
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn stats(&self) -> BackendStats {
        self.inner.stats()
    }
}

/// Section header and the description of one interface with nanosecond times.
fn file_head() -> Vec<u8> {
    let mut head = Vec::new();
    head.extend(0x0a0d_0d0a_u32.to_le_bytes());
    head.extend(28u32.to_le_bytes());
    head.extend(0x1a2b_3c4d_u32.to_le_bytes());
    head.extend([1, 0, 0, 0]); // version 1.0
    head.extend(u64::MAX.to_le_bytes()); // length of the section: unknown
    head.extend(28u32.to_le_bytes());

    head.extend(1u32.to_le_bytes());
    head.extend(32u32.to_le_bytes());
    head.extend(LINKTYPE_RAW.to_le_bytes());
    head.extend([0, 0]);
    head.extend(0u32.to_le_bytes()); // no limit of a packet's length
    head.extend([9, 0, 1, 0, 9, 0, 0, 0]); // option if_tsresol: 10^-9 s
    head.extend([0, 0, 0, 0]); // end of options
    head.extend(32u32.to_le_bytes());
    head
}

/// An enhanced packet block with made-up IP and UDP headers.
fn write_packet_block(
    block: &mut Vec<u8>,
    unix_ns: u64,
    from: SocketAddr,
    to: SocketAddr,
    ecn: bool,
    payload: [&[u8]; 2],
) {
    let udp_len = UDP_HEADER + payload[0].len() + payload[1].len();
    // Both ends of a packet have one family; a mapped address has been made IPv4 before.
    let v4 = match (from.ip().to_canonical(), to.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Some((from, to)),
        _ => None,
    };
    let packet_len = udp_len
        + if v4.is_some() {
            IPV4_HEADER
        } else {
            IPV6_HEADER
        };
    let padding = packet_len.next_multiple_of(4) - packet_len;
    let block_len = (PACKET_BLOCK_OVERHEAD + packet_len + padding) as u32;
    block.clear();
    block.extend(6u32.to_le_bytes());
    block.extend(block_len.to_le_bytes());
    block.extend(0u32.to_le_bytes()); // interface
    block.extend(((unix_ns >> 32) as u32).to_le_bytes());
    block.extend((unix_ns as u32).to_le_bytes());
    block.extend((packet_len as u32).to_le_bytes());
    block.extend((packet_len as u32).to_le_bytes());
    let traffic_class = if ecn { 0b11 } else { 0 };
    let addresses = block.len();
    match v4 {
        Some((from, to)) => {
            write_ipv4(block, traffic_class, packet_len, from.octets(), to.octets())
        }
        None => write_ipv6(block, traffic_class, udp_len, from.ip(), to.ip()),
    }
    let udp = block.len();
    block.extend(from.port().to_be_bytes());
    block.extend(to.port().to_be_bytes());
    block.extend((udp_len as u16).to_be_bytes());
    block.extend([0, 0]);
    payload
        .iter()
        .for_each(|part| block.extend_from_slice(part));
    if v4.is_none() {
        // IPv6 knows no UDP packet without a checksum. The pseudo header is both addresses, the
        // length and the protocol.
        let seed = udp_len as u32 + u32::from(PROTOCOL_UDP);
        let sum = internet_checksum(
            seed,
            [
                &block[addresses + 8..addresses + IPV6_HEADER],
                &block[udp..],
            ],
        );
        let sum = if sum == 0 { 0xffff } else { sum };
        block[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
    block.extend(&[0; 3][..padding]);
    block.extend(block_len.to_le_bytes());
}

fn write_ipv4(out: &mut Vec<u8>, traffic_class: u8, len: usize, from: [u8; 4], to: [u8; 4]) {
    let start = out.len();
    let [len_high, len_low] = (len as u16).to_be_bytes();
    // Version and header words, length, identification 0, "do not fragment", 64 hops.
    out.extend([
        0x45,
        traffic_class,
        len_high,
        len_low,
        0,
        0,
        0x40,
        0,
        64,
        PROTOCOL_UDP,
        0,
        0,
    ]);
    out.extend(from);
    out.extend(to);
    let sum = internet_checksum(0, [&out[start..], &[]]);
    out[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
}

fn write_ipv6(out: &mut Vec<u8>, traffic_class: u8, payload_len: usize, from: IpAddr, to: IpAddr) {
    let octets = |address| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    out.extend([0x60 | traffic_class >> 4, traffic_class << 4, 0, 0]);
    out.extend((payload_len as u16).to_be_bytes());
    out.extend([PROTOCOL_UDP, 64]);
    out.extend(octets(from));
    out.extend(octets(to));
}

/// The ones' complement sum of RFC 1071 over two parts, the first of even length.
fn internet_checksum(seed: u32, parts: [&[u8]; 2]) -> u16 {
    let mut sum = u64::from(seed);
    for part in parts {
        let (pairs, rest) = part.as_chunks::<2>();
        sum += pairs
            .iter()
            .map(|pair| u64::from(u16::from_be_bytes(*pair)))
            .sum::<u64>();
        sum += rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Body, MonotonicClock, RingBackend, RingConfig};

    fn capture(bytes_max: u64) -> Pcap<RingBackend, MonotonicClock, Vec<u8>> {
        let (backend, _) = RingBackend::pair(RingConfig::default());
        let capture = Capture::new(Vec::new(), bytes_max, Duration::ZERO).unwrap();
        Pcap::new(
            backend,
            MonotonicClock,
            RingRoute(0).capture_address(),
            capture,
        )
    }

    fn send(pcap: &mut Pcap<RingBackend, MonotonicClock, Vec<u8>>, bytes: &[u8]) {
        let mut tx = TxBatch::new();
        tx.push(RingRoute(0), bytes, Body::None);
        pcap.tx_burst(&mut tx).unwrap();
    }

    /// Types and lengths of the blocks, both lengths of each compared.
    fn blocks(mut file: &[u8]) -> Vec<(u32, usize)> {
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
        let mut blocks = Vec::new();
        while !file.is_empty() {
            let (kind, len) = (word(file), word(&file[4..]) as usize);
            assert_eq!(word(&file[len - 4..]) as usize, len);
            blocks.push((kind, len));
            file = &file[len..];
        }
        blocks
    }

    #[test]
    fn sent_and_received_packets_are_written() {
        let mut pcap = capture(1 << 20);
        send(&mut pcap, b"hello");
        assert_eq!(pcap.rx_burst().unwrap().len(), 1);
        assert_eq!(pcap.capture().packets(), 2);
        let file = pcap.into_writer();
        assert_eq!(
            blocks(&file),
            [(0x0a0d_0d0a, 28), (1, 32), (6, 68), (6, 68)]
        );
        let packet = &file[60 + 28..60 + 28 + 33];
        assert_eq!(packet[..2], [0x45, 0]);
        assert_eq!(
            internet_checksum(0, [&packet[..20], &[]]),
            0,
            "the IPv4 header's checksum"
        );
        assert_eq!(&packet[28..], b"hello");
    }

    #[test]
    fn the_limit_ends_the_capture_and_not_the_node() {
        let mut pcap = capture(150);
        for _ in 0..5 {
            send(&mut pcap, b"hello");
        }
        assert_eq!(pcap.capture().ended(), Some(&CaptureEnd::Full));
        assert_eq!(pcap.stats().tx_packets, 5);
        assert!(pcap.into_writer().len() <= 150);
    }

    #[test]
    fn ipv6_packets_carry_a_valid_checksum() {
        let mut block = Vec::new();
        let [from, to] = ["[::1]:1", "[fe80::2]:2"].map(|text| text.parse().unwrap());
        write_packet_block(&mut block, 0, from, to, true, [b"odd", b"part"]);
        let packet = &block[28..28 + IPV6_HEADER + UDP_HEADER + 7];
        assert_eq!(
            packet[0..2],
            [0x60, 0x30],
            "version and the congestion mark"
        );
        let seed = UDP_HEADER as u32 + 7 + u32::from(PROTOCOL_UDP);
        assert_eq!(internet_checksum(seed, [&packet[8..40], &packet[40..]]), 0);
    }

    #[test]
    fn a_failing_file_ends_the_capture_and_not_the_node() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if self.0 == 0 {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                self.0 -= 1;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (backend, _) = RingBackend::pair(RingConfig::default());
        let capture = Capture::new(Full(1), 1 << 20, Duration::ZERO).unwrap();
        let mut pcap = Pcap::new(
            backend,
            MonotonicClock,
            RingRoute(0).capture_address(),
            capture,
        );
        let mut tx = TxBatch::new();
        tx.push(RingRoute(0), b"hello", Body::None);
        pcap.tx_burst(&mut tx).unwrap();
        assert_eq!(
            pcap.capture().ended(),
            Some(&CaptureEnd::Failed(io::ErrorKind::StorageFull))
        );
        assert_eq!(pcap.rx_burst().unwrap().len(), 1);
    }
}
