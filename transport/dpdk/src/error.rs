//! Why DPDK or a port cannot be used, with a hint in the message.

use std::fmt;
use std::io;

/// DPDK cannot be started, or a port cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DpdkError {
    /// EAL starts once in a process, and cannot start again after it was stopped.
    AlreadyStarted,
    /// No huge pages, and no option that does without.
    NoHugePages {
        /// What EAL logged.
        log: String,
    },
    /// A device was asked for that no loaded driver knows.
    NoDriver {
        /// The device, as EAL names it.
        device: String,
        /// What EAL logged.
        log: String,
    },
    /// The operating system forbids an operation that EAL or a driver needs.
    NoPermission {
        /// What EAL logged.
        log: String,
    },
    /// EAL refused its arguments, or could not start for another reason.
    Eal {
        /// The operating system's error number.
        os_error: i32,
        /// What EAL logged.
        log: String,
    },
    /// There is no port, or none of that name.
    NoPort {
        /// The port that was asked for.
        asked: String,
        /// The ports that are there.
        present: Vec<String>,
        /// EAL's log of its search for devices.
        log: String,
    },
    /// Every port has an endpoint already.
    AllPortsTaken {
        /// How many ports there are.
        ports: usize,
    },
    /// The port carries only smaller packets.
    MtuTooSmall {
        /// The port.
        port: String,
        /// Its MTU.
        mtu: usize,
        /// The MTU that the configured wire packets need.
        needed: usize,
    },
    /// The port has fewer queues than endpoints were asked for.
    TooFewQueues {
        /// The port.
        port: String,
        /// Queues that it has.
        queues: usize,
        /// Endpoints that were asked for.
        endpoints: usize,
    },
    /// The port cannot steer datagrams by their UDP port, which several endpoints on it need.
    CannotSteer {
        /// The port.
        port: String,
        /// The driver's reason.
        reason: String,
    },
    /// No memory for packet buffers.
    NoMemory {
        /// Packet buffers that were asked for.
        buffers: u32,
        /// The operating system's error number.
        os_error: i32,
    },
    /// The port does not start.
    NotStarted {
        /// The port.
        port: String,
        /// The operating system's error number.
        os_error: i32,
        /// The driver's log.
        log: String,
    },
    /// A call on the port failed.
    Port {
        /// The port.
        port: String,
        /// The call.
        call: &'static str,
        /// The operating system's error number.
        os_error: i32,
    },
    /// The operating system refused something else.
    System {
        /// The call.
        call: &'static str,
        /// The operating system's error number.
        os_error: i32,
    },
}

impl DpdkError {
    /// Why EAL did not start, from its error number and its log.
    #[cfg_attr(
        not(feature = "device"),
        allow(dead_code, reason = "only the feature starts EAL")
    )]
    pub(super) fn from_eal(os_error: i32, log: String) -> Self {
        let says = |text: &str| log.contains(text);
        if says("hugepage") || says("huge page") {
            return Self::NoHugePages { log };
        }
        if let Some(device) = quoted_after(&log, "failed to parse device") {
            return Self::NoDriver { device, log };
        }
        if says("Permission denied") || says("Operation not permitted") {
            return Self::NoPermission { log };
        }
        Self::Eal { os_error, log }
    }

    /// Why a port is missing, from EAL's log of its device probe.
    #[cfg_attr(
        not(feature = "device"),
        allow(dead_code, reason = "only the feature has ports")
    )]
    pub(super) fn missing_port(asked: String, present: Vec<String>, log: String) -> Self {
        let forbidden = [
            "Permission denied",
            "not permitted",
            "Could not open AF_PACKET socket",
        ];
        if present.is_empty() && forbidden.iter().any(|text| log.contains(text)) {
            return Self::NoPermission { log };
        }
        Self::NoPort {
            asked,
            present,
            log,
        }
    }
}

/// The text in quotation marks after `marker`.
fn quoted_after(log: &str, marker: &str) -> Option<String> {
    let rest = log.split_once(marker)?.1;
    let inside = rest.split(['"', '\'']).nth(1)?;
    Some(inside.to_owned())
}

/// Lines of a log that say something went wrong, on one line.
fn gist(log: &str) -> String {
    const QUIET: [&str; 6] = [
        "Detected ",
        "Selected IOVA",
        "Physical addresses",
        "Multi-process",
        "VFIO support",
        "TELEMETRY",
    ];
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !QUIET.iter().any(|quiet| line.contains(quiet)))
        .collect();
    if lines.is_empty() {
        "DPDK logged nothing".to_owned()
    } else {
        format!("DPDK logged: {}", lines.join("; "))
    }
}

// Long because it holds one text for each cause.
impl fmt::Display for DpdkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyStarted => {
                f.write_str("DPDK starts once in a process and was started before")
            }
            Self::NoHugePages { log } => write!(
                f,
                "no huge pages. Reserve some with `echo 512 | sudo tee \
                 /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages` (1 GiB), or do without: add `--no-huge` to the \
                 EAL arguments, which is enough for virtual devices. {}",
                gist(log)
            ),
            Self::NoDriver { device, log } => write!(
                f,
                "no driver for the device `{device}`: its name is wrong, or the driver's library \
                 (librte_net_NAME.so in DPDK's directory pmds-*; on Debian from `apt-get install dpdk`) is missing; \
                 `-d FILE` among the EAL arguments loads one. {}",
                gist(log)
            ),
            Self::NoPermission { log } => write!(
                f,
                "the operating system forbids what DPDK or its driver needs. AF_PACKET wants CAP_NET_RAW, AF_XDP \
                 CAP_NET_ADMIN and CAP_BPF, a PCI device access to /dev/vfio, huge pages a writable hugetlbfs mount; \
                 memif with `--no-huge` wants nothing. {}",
                gist(log)
            ),
            Self::Eal { os_error, log } => {
                write!(
                    f,
                    "DPDK does not start ({}): EAL's arguments are wrong, or ask for what this machine lacks; the page \
                     \"EAL parameters\" of DPDK's guide lists them. {}",
                    io::Error::from_raw_os_error(*os_error),
                    gist(log)
                )
            }
            Self::NoPort {
                asked,
                present,
                log,
            } if present.is_empty() => write!(
                f,
                "DPDK found no port at all{asked}. A NIC must be bound to vfio-pci (`dpdk-devbind.py --status`; Mellanox \
                 keeps its kernel driver), a virtual device is added with `--vdev=...`. {}",
                gist(log)
            ),
            Self::NoPort {
                asked,
                present,
                log,
            } => {
                write!(
                    f,
                    "DPDK found no port{asked}; it found {}. {}",
                    present.join(", "),
                    gist(log)
                )
            }
            Self::AllPortsTaken { ports } => write!(
                f,
                "all {ports} ports of this process are in use, and every endpoint needs one: add a `--vdev=...` (or a \
                 NIC's port) to the EAL arguments, or use fewer threads"
            ),
            Self::MtuTooSmall { port, mtu, needed } => write!(
                f,
                "{port} has an MTU of {mtu} bytes and the configured packets need {needed}: raise it (for a kernel \
                 device `ip link set DEVICE mtu {needed}`), or configure mtu={} here and at every peer",
                mtu.saturating_sub(super::config::IP_OVERHEAD)
            ),
            Self::TooFewQueues {
                port,
                queues,
                endpoints,
            } => write!(
                f,
                "{port} has {queues} queue(s), too few for {endpoints} endpoints: use fewer threads, or a port for each"
            ),
            Self::CannotSteer { port, reason } => write!(
                f,
                "{port} cannot steer datagrams to queues by their UDP port ({reason}): use one endpoint thread on it, \
                 or a port for each"
            ),
            Self::NoMemory { buffers, os_error } => write!(
                f,
                "no memory for {buffers} packet buffers ({}): reserve more huge pages, or give EAL more without them \
                 (`--no-huge -m 128`), or configure fewer descriptors",
                io::Error::from_raw_os_error(*os_error)
            ),
            Self::NotStarted {
                port,
                os_error,
                log,
            } => write!(
                f,
                "{port} does not start ({}); a memif client needs its server to run. {}",
                io::Error::from_raw_os_error(*os_error),
                gist(log)
            ),
            Self::Port {
                port,
                call,
                os_error,
            } => {
                write!(
                    f,
                    "{port}: {call} failed ({})",
                    io::Error::from_raw_os_error(*os_error)
                )
            }
            Self::System { call, os_error } => write!(
                f,
                "{call} failed: {}",
                io::Error::from_raw_os_error(*os_error)
            ),
        }
    }
}

impl std::error::Error for DpdkError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eal_failures_are_told_apart_by_its_log() {
        let log = "EAL: Detected CPU lcores: 4\nEAL: FATAL: Cannot get hugepage information.\n";
        let error = DpdkError::from_eal(13, log.into());
        assert_eq!(error, DpdkError::NoHugePages { log: log.into() });
        let text = error.to_string();
        assert!(
            text.contains("nr_hugepages") && text.contains("--no-huge"),
            "{text}"
        );
        assert!(!text.contains("Detected CPU"), "{text}");

        let log =
            "EAL: failed to parse device \"net_foo0\"\nEAL: Unable to parse device 'net_foo0'\n";
        match DpdkError::from_eal(19, log.into()) {
            DpdkError::NoDriver { device, .. } => assert_eq!(device, "net_foo0"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            DpdkError::from_eal(1, "x: Permission denied".into()),
            DpdkError::NoPermission { .. }
        ));
        assert!(matches!(
            DpdkError::from_eal(22, "EAL: invalid core list".into()),
            DpdkError::Eal { os_error: 22, .. }
        ));
    }

    #[test]
    fn a_missing_port_says_what_is_there() {
        let log = "rte_pmd_init_internals(): net_af_packet0: ioctl failed (SIOCGIFINDEX):No such device\n";
        let error = DpdkError::missing_port(String::new(), vec![], log.into());
        assert!(error.to_string().contains("No such device"), "{error}");
        let error = DpdkError::missing_port(" named `b`".into(), vec!["a".into()], String::new());
        assert!(
            error.to_string().contains("no port named `b`; it found a"),
            "{error}"
        );
        let log = "open_packet_iface(): Could not open AF_PACKET socket\n";
        let error = DpdkError::missing_port(String::new(), vec![], log.into());
        assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
    }
}
