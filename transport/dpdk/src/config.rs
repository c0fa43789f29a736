//! How a DPDK port is used: addresses, sizes, limits, and their text form for a command line.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use super::frame::{IPV4_HEADER, UDP_HEADER};
use super::mac::MacAddr;
use trine_transport::time::Duration;

/// Frames taken from or given to the port in one call. DPDK's drivers are tuned for this number.
pub const BURST: usize = 32;
/// Wire packet that every path carries, the same as on kernel UDP.
pub const MTU_DEFAULT: usize = trine_transport::backend::PACKET_EVERYWHERE;
/// Descriptors of a receive or transmit queue.
pub const DESCRIPTORS_DEFAULT: u16 = 1_024;
/// IPv4 and UDP headers: the port's MTU must have room for them beyond a wire packet.
pub const IP_OVERHEAD: usize = IPV4_HEADER + UDP_HEADER;
/// Peers whose headers are kept ready; more peers work, but build their headers more often.
pub const TEMPLATES: usize = 1_024;
/// Attempts to hand frames to a full transmit queue before they are dropped. A virtual port without a peer stays
/// full for ever.
pub const TX_TRIES: u32 = 64;
/// Receive calls between two readings of the clock, for ARP's timers.
pub const POLLS_PER_CLOCK_READ: u32 = 1_024;
/// Shortest and longest poll interval of an idle endpoint; a port has no event that a sleep could wait for.
pub const SLEEP_MIN: Duration = Duration::from_micros(20);
/// See [`SLEEP_MIN`].
pub const SLEEP_MAX: Duration = Duration::from_micros(500);
/// Queues of one port.
pub const QUEUES_MAX: usize = 64;

const _: () = assert!(TEMPLATES.is_power_of_two());
const _: () = assert!(POLLS_PER_CLOCK_READ.is_power_of_two());

/// Which port.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum PortChoice {
    /// The only one, or the first of several.
    #[default]
    First,
    /// By DPDK's name: `net_memif0`, `0000:3b:00.0`.
    Name(String),
}

/// Who makes UDP checksums. IPv4 headers always have one.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum UdpChecksum {
    /// The port if it can; otherwise no one does, for the CRC32C of every wire packet covers more and better.
    #[default]
    Auto,
    /// The port if it can, otherwise software.
    Always,
    /// Nobody.
    Never,
}

/// How a port is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DpdkConfig {
    /// Which port.
    pub device: PortChoice,
    /// Its IP address. The kernel must not have the same one.
    pub ip: Ipv4Addr,
    /// Length of the network prefix.
    pub prefix: u8,
    /// Next hop for addresses outside the prefix; without one everybody is a neighbour.
    pub gateway: Option<Ipv4Addr>,
    /// Ethernet address to give to the port instead of its own.
    pub mac: Option<MacAddr>,
    /// Neighbours that need no ARP.
    pub neighbours: Vec<(Ipv4Addr, MacAddr)>,
    /// Largest wire packet; the smaller one of both ends of a session counts.
    pub mtu: usize,
    /// Descriptors of each queue.
    pub descriptors: u16,
    /// Who makes UDP checksums.
    pub udp_checksum: UdpChecksum,
    /// How long a port that does not start is tried again: a memif client waits for its server.
    pub start_timeout: Duration,
}

impl DpdkConfig {
    /// The first port, with this address in a /24.
    #[must_use]
    pub fn new(ip: Ipv4Addr) -> Self {
        Self {
            device: PortChoice::First,
            ip,
            prefix: 24,
            gateway: None,
            mac: None,
            neighbours: Vec::new(),
            mtu: MTU_DEFAULT,
            descriptors: DESCRIPTORS_DEFAULT,
            udp_checksum: UdpChecksum::Auto,
            start_timeout: Duration::from_secs(10),
        }
    }

    /// Whose Ethernet address a packet for `ip` carries.
    #[must_use]
    pub fn next_hop(&self, ip: Ipv4Addr) -> Ipv4Addr {
        match self.gateway {
            Some(gateway) if !self.is_neighbour(ip) => gateway,
            _ => ip,
        }
    }

    fn is_neighbour(&self, ip: Ipv4Addr) -> bool {
        let host_bits = 32 - u32::from(self.prefix);
        let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
        (ip.to_bits() ^ self.ip.to_bits()) & mask == 0
    }
}

/// The text is not a port's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseConfigError {
    item: String,
}

/// `ip=10.1.0.1/24,gateway=10.1.0.254,mac=02:..,neighbour=10.1.0.2@02:..,device=net_memif0,mtu=1472,descriptors=1024,
/// udp-checksum=auto|always|never`; only `ip` must be there.
impl FromStr for DpdkConfig {
    type Err = ParseConfigError;

    fn from_str(text: &str) -> Result<Self, ParseConfigError> {
        let mut config = Self::new(Ipv4Addr::UNSPECIFIED);
        for item in text.split(',').filter(|item| !item.is_empty()) {
            config.set(item).ok_or_else(|| ParseConfigError {
                item: item.to_owned(),
            })?;
        }
        if config.ip.is_unspecified() {
            return Err(ParseConfigError {
                item: "ip=ADDRESS/PREFIX is missing".to_owned(),
            });
        }
        Ok(config)
    }
}

impl DpdkConfig {
    fn set(&mut self, item: &str) -> Option<()> {
        let (key, value) = item.split_once('=')?;
        match key {
            "ip" => {
                let (ip, prefix) = value.split_once('/').unwrap_or((value, "24"));
                self.ip = ip.parse().ok()?;
                self.prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
            }
            "gateway" => self.gateway = Some(value.parse().ok()?),
            "mac" => {
                self.mac = Some(
                    value
                        .parse()
                        .ok()
                        .filter(|mac: &MacAddr| mac.is_unicast())?,
                )
            }
            "neighbour" => {
                let (ip, mac) = value.split_once('@')?;
                self.neighbours.push((ip.parse().ok()?, mac.parse().ok()?));
            }
            "device" => self.device = PortChoice::Name(value.to_owned()),
            "mtu" => {
                self.mtu = value
                    .parse()
                    .ok()
                    .filter(|mtu| (64..=9_000).contains(mtu))?
            }
            "descriptors" => self.descriptors = value.parse().ok().filter(|count| *count >= 64)?,
            "udp-checksum" => {
                self.udp_checksum = match value {
                    "auto" => UdpChecksum::Auto,
                    "always" => UdpChecksum::Always,
                    "never" => UdpChecksum::Never,
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(())
    }
}

impl fmt::Display for ParseConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}`: a DPDK port is described by ip=ADDRESS/PREFIX and, joined by commas, any of gateway=IP, mac=MAC, \
             neighbour=IP@MAC, device=NAME, mtu=BYTES, descriptors=COUNT, udp-checksum=auto|always|never",
            self.item
        )
    }
}

impl std::error::Error for ParseConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form() {
        let text = "ip=10.1.0.1/16,gateway=10.1.0.254,mac=02:00:00:00:00:01,neighbour=10.1.0.2@02:00:00:00:00:02,\
                    device=net_memif0,mtu=1000,descriptors=512,udp-checksum=always";
        let config: DpdkConfig = text.parse().unwrap();
        let expected = DpdkConfig {
            device: PortChoice::Name("net_memif0".into()),
            prefix: 16,
            gateway: Some(Ipv4Addr::new(10, 1, 0, 254)),
            mac: Some(MacAddr([2, 0, 0, 0, 0, 1])),
            neighbours: vec![(Ipv4Addr::new(10, 1, 0, 2), MacAddr([2, 0, 0, 0, 0, 2]))],
            mtu: 1000,
            descriptors: 512,
            udp_checksum: UdpChecksum::Always,
            ..DpdkConfig::new(Ipv4Addr::new(10, 1, 0, 1))
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for bad in [
            "",
            "ip=10.0.0.1/33",
            "ip=nobody",
            "ip=10.0.0.1,mac=01:00:00:00:00:01",
            "ip=10.0.0.1,speed=fast",
            "ip=10.0.0.1,mtu=9001",
            "ip=10.0.0.1,neighbour=10.0.0.2",
            "ip=10.0.0.1,fast",
        ] {
            let error = bad.parse::<DpdkConfig>().expect_err(bad).to_string();
            let wrong = bad.rsplit(',').next().unwrap();
            assert!(error.contains(wrong), "{bad}: {error}");
        }
    }

    #[test]
    fn other_networks_are_reached_through_the_gateway() {
        let mut config: DpdkConfig = "ip=10.1.2.3/24".parse().unwrap();
        let (near, far) = (Ipv4Addr::new(10, 1, 2, 200), Ipv4Addr::new(10, 1, 3, 1));
        assert_eq!(config.next_hop(far), far, "no gateway, no stranger");
        config.gateway = Some(Ipv4Addr::new(10, 1, 2, 254));
        assert_eq!(config.next_hop(near), near);
        assert_eq!(config.next_hop(far), Ipv4Addr::new(10, 1, 2, 254));
        config.prefix = 0;
        assert_eq!(config.next_hop(far), far);
        config.prefix = 32;
        assert_eq!(config.next_hop(near), Ipv4Addr::new(10, 1, 2, 254));
    }
}
