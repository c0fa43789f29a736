//! Ports on the command line, and the arguments of DPDK that they become.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The longest name that the kernel gives a device.
const INTERFACE_BYTES_MAX: usize = 15;
/// The longest name of a memif socket.
const SOCKET_BYTES_MAX: usize = 100;
/// Megabytes of packet buffers for a queue of a port.
const MEGABYTES_PER_QUEUE: usize = 32;

/// A port as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortName {
    /// `memif:SOCKET`: memory shared with one other process.
    Memif(String),
    /// `afpacket:INTERFACE`: a device of the kernel.
    AfPacket(String),
}

/// Which end of a memif pair this process is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MemifRole {
    /// It is there first.
    Server,
    /// It connects.
    Client,
}

/// The text names no port.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{text:?} is no port: {cause}; write memif:SOCKET (for example memif:@a) or afpacket:INTERFACE (for example \
     afpacket:veth0)"
)]
pub struct ParsePortError {
    text: String,
    cause: &'static str,
}

impl FromStr for PortName {
    type Err = ParsePortError;

    fn from_str(text: &str) -> Result<Self, ParsePortError> {
        let wrong = |cause| ParsePortError {
            text: text.to_owned(),
            cause,
        };
        let (kind, name) = text
            .split_once(':')
            .ok_or_else(|| wrong("it has no kind and colon"))?;
        // The name becomes a part of an argument of DPDK, which separates its parts by commas.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b",=\"'\\".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_plain) {
            return Err(wrong(
                "its name is empty or has a character that DPDK cannot take",
            ));
        }
        match kind {
            "memif" if name.len() > SOCKET_BYTES_MAX => {
                Err(wrong("its name is longer than a socket's"))
            }
            "memif" => Ok(Self::Memif(name.to_owned())),
            "afpacket" if name.len() > INTERFACE_BYTES_MAX => {
                Err(wrong("its name is longer than an interface's"))
            }
            "afpacket" => Ok(Self::AfPacket(name.to_owned())),
            _ => Err(wrong("its kind is neither memif nor afpacket")),
        }
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memif(socket) => write!(f, "memif:{socket}"),
            Self::AfPacket(interface) => write!(f, "afpacket:{interface}"),
        }
    }
}

impl PortName {
    /// DPDK's name for it, as the port with this number.
    #[must_use]
    pub fn device(&self, number: usize) -> String {
        match self {
            Self::Memif(_) => format!("net_memif{number}"),
            Self::AfPacket(_) => format!("net_af_packet{number}"),
        }
    }

    fn argument(&self, number: usize, role: MemifRole, queues: usize) -> String {
        let device = self.device(number);
        match (self, role) {
            (Self::Memif(socket), MemifRole::Server) => {
                format!("--vdev={device},role=server,socket={socket}")
            }
            (Self::Memif(socket), MemifRole::Client) => {
                format!("--vdev={device},role=client,socket={socket}")
            }
            (Self::AfPacket(interface), _) => {
                format!("--vdev={device},iface={interface},qpairs={queues}")
            }
        }
    }
}

/// EAL's arguments for these ports: virtual devices alone, and memory without huge pages.
#[must_use]
pub fn eal_arguments(ports: &[PortName], role: MemifRole, queues: usize) -> Vec<String> {
    let megabytes = MEGABYTES_PER_QUEUE * (queues + 1) * (ports.len() + 1);
    let mut arguments = vec!["--no-pci".to_owned(), "--no-huge".to_owned()];
    arguments.extend(["-m".to_owned(), megabytes.to_string()]);
    let devices = ports.iter().enumerate();
    arguments.extend(devices.map(|(number, port)| port.argument(number, role, queues)));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_become_virtual_devices() {
        let ports: Vec<PortName> = ["memif:@a", "afpacket:veth0"]
            .map(|text| {
                let port: PortName = text.parse().expect("a port");
                assert_eq!(port.to_string(), text);
                port
            })
            .into();
        assert_eq!(
            eal_arguments(&ports, MemifRole::Server, 2).join(" "),
            "--no-pci --no-huge -m 288 --vdev=net_memif0,role=server,socket=@a \
             --vdev=net_af_packet1,iface=veth0,qpairs=2"
        );
        assert!(eal_arguments(&ports, MemifRole::Client, 1)[4].contains("role=client"));
    }

    #[test]
    fn what_is_no_port_is_refused_with_the_right_form() {
        for text in [
            "",
            "memif",
            "memif:",
            "memif:a b",
            "memif:a,role=client",
            "afpacket:eth0,qpairs=9",
            "afpacket:a-very-long-interface",
            "vhost:@a",
            "memif:a=b",
        ] {
            let error = text.parse::<PortName>().expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
            assert!(error.contains("write memif:SOCKET"), "{error}");
        }
        let long = format!("memif:{}", "a".repeat(SOCKET_BYTES_MAX + 1));
        assert!(long.parse::<PortName>().is_err());
    }
}
