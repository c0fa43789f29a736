//! Why no queue pair could be made, with a hint in the message.

use std::fmt;
use std::io;

use crate::one_sided_path::OneSidedPath;
use ibverbs_sys::ibv_wc_status as status;

/// Why a connection of the paths herd and rfp is of no use.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectionFault {
    /// The own device does not connect the queue pair.
    NotConnected,
    /// The server's regions are smaller, or have other slots, than this release needs.
    OtherLayout,
    /// The server's device refuses a READ or a WRITE: the key is wrong, or the place lies beyond the region.
    AccessRefused,
    /// The server's device does not answer.
    NoAnswer,
    /// The own queue pair is in the error state.
    InError,
    /// The own device did not take a request.
    NotTaken,
    /// Another error of a completion (`ibv_wc_status`).
    Other(u32),
}

impl ConnectionFault {
    /// What a completion says; above all numbers of completions: a request was not taken.
    pub(super) fn of_status(number: u32) -> Self {
        match number {
            status::IBV_WC_REM_ACCESS_ERR
            | status::IBV_WC_REM_INV_REQ_ERR
            | status::IBV_WC_REM_OP_ERR => Self::AccessRefused,
            status::IBV_WC_RETRY_EXC_ERR | status::IBV_WC_RNR_RETRY_EXC_ERR => Self::NoAnswer,
            status::IBV_WC_WR_FLUSH_ERR => Self::InError,
            u32::MAX => Self::NotTaken,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for ConnectionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => f.write_str("the device does not connect the queue pair"),
            Self::OtherLayout => {
                f.write_str("the server's region is too small, or divided otherwise; run the same release on both sides")
            }
            Self::AccessRefused => f.write_str(
                "the server's device refused the access: the key is wrong, or the place is not in the region",
            ),
            Self::NoAnswer => f.write_str("the server's device does not answer"),
            Self::InError => f.write_str("the queue pair is in the error state"),
            Self::NotTaken => f.write_str("the device took no further request"),
            Self::Other(number) => write!(f, "a request completed with status {number}"),
        }
    }
}

/// The verbs backend cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VerbsError {
    /// The machine has no RDMA device, or its kernel module is not loaded.
    NoDevice,
    /// There are devices, but none of this name.
    NoSuchDevice {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        available: Vec<String>,
    },
    /// This user may not use the device.
    PermissionDenied {
        /// The device.
        device: String,
    },
    /// The device has no port of this number.
    NoSuchPort {
        /// The device.
        device: String,
        /// The port number that was asked for; they start at 1.
        port: u8,
    },
    /// The port is not active.
    PortDown {
        /// The device.
        device: String,
        /// The port.
        port: u8,
    },
    /// The port's table holds no GID at this index, or none at all.
    NoSuchGid {
        /// The device.
        device: String,
        /// The index that was asked for; `None` if any would have done.
        index: Option<u32>,
        /// The indexes that hold one.
        available: Vec<u32>,
    },
    /// The process may not lock enough memory.
    MemoryLock {
        /// Bytes that were to be registered.
        bytes: usize,
        /// The limit in bytes (RLIMIT_MEMLOCK).
        limit: u64,
    },
    /// Huge pages were asked for, and the system has not enough free ones.
    HugePages {
        /// Pages that were needed at once.
        needed: usize,
    },
    /// The port carries smaller packets than the protocol needs.
    MtuTooSmall {
        /// The port's active MTU in bytes.
        mtu: usize,
    },
    /// A queue pair fell into the error state again each time it was restarted.
    QueuePairDead {
        /// Its number.
        number: u32,
        /// Restarts without a datagram received in between.
        restarts: u32,
    },
    /// The device makes no connected queue pairs of the kind that a path needs.
    NoConnections {
        /// The device.
        device: String,
        /// The path.
        path: OneSidedPath,
        /// The operating system's error number.
        os_error: i32,
    },
    /// A connection between this process and a server is of no use: its session goes on with datagrams.
    ConnectionFailed {
        /// The device.
        device: String,
        /// The path.
        path: OneSidedPath,
        /// What is wrong.
        fault: ConnectionFault,
    },
    /// A work request of the device cannot carry a slot of requests.
    InlineTooSmall {
        /// The device.
        device: String,
        /// The path.
        path: OneSidedPath,
        /// Bytes of a slot.
        needed: u32,
        /// Bytes that a work request carries.
        granted: u32,
    },
    /// The device makes no reliable connected queue pairs, or has no atomic operations: counters need both.
    NoCounters {
        /// The device.
        device: String,
        /// The operating system's error number; 0 if the device has no atomic operations.
        os_error: i32,
    },
    /// A client's queue pair for a counter is of no use.
    CounterFailed {
        /// The device.
        device: String,
        /// What is wrong.
        fault: ConnectionFault,
    },
    /// A counter has passed the end of its numbers. Numbers beyond it belong to no client.
    CounterUsedUp {
        /// The number behind the last.
        end: u64,
    },
    /// A call of libibverbs failed otherwise.
    Call {
        /// The call.
        call: &'static str,
        /// The operating system's error number.
        os_error: i32,
    },
}

impl VerbsError {
    /// The failure of `call` that errno describes.
    pub(super) fn last(call: &'static str) -> Self {
        Self::Call {
            call,
            os_error: io::Error::last_os_error().raw_os_error().unwrap_or(0),
        }
    }

    /// Why there is no connected queue pair, as errno describes it.
    pub(super) fn no_connections(device: &str, path: OneSidedPath) -> Self {
        let os_error = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Self::NoConnections {
            device: device.to_owned(),
            path,
            os_error,
        }
    }

    /// Why there is no queue pair for a counter, as errno describes it.
    pub(super) fn no_counters(device: &str) -> Self {
        let os_error = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Self::NoCounters {
            device: device.to_owned(),
            os_error,
        }
    }

    /// `Ok` for a zero `result`, otherwise the failure of `call` with that error number.
    pub(super) fn check(result: i32, call: &'static str) -> Result<(), Self> {
        match result {
            0 => Ok(()),
            os_error => Err(Self::Call { call, os_error }),
        }
    }
}

impl fmt::Display for VerbsError {
    // Long because it holds every error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice => f.write_str(
                "this machine has no RDMA device; load its driver, or for soft-RoCE `modprobe rdma_rxe` and \
                 `rdma link add rxe0 type rxe netdev IF` (`rdma link` lists devices)",
            ),
            Self::NoSuchDevice { name, available } => {
                write!(f, "no RDMA device is called '{name}'; there are: {}", available.join(", "))
            }
            Self::PermissionDenied { device } => write!(
                f,
                "the operating system forbids the use of RDMA device {device}; make /dev/infiniband/uverbs* readable \
                 and writable for this user (group 'rdma' on many systems)"
            ),
            Self::NoSuchPort { device, port } => {
                write!(f, "RDMA device {device} has no port {port}; ports count from 1 (`rdma link` lists them)")
            }
            Self::PortDown { device, port } => write!(
                f,
                "port {port} of RDMA device {device} is not active; connect it, bring its network interface up, or \
                 on InfiniBand start a subnet manager"
            ),
            Self::NoSuchGid { device, index, available } => {
                match index {
                    Some(index) => write!(f, "RDMA device {device} has no GID at index {index}")?,
                    None => write!(f, "RDMA device {device} has no usable GID; give its network interface an address")?,
                }
                write!(f, "; there are GIDs at: {available:?}")
            }
            Self::MemoryLock { bytes, limit } => write!(
                f,
                "{bytes} bytes of memory could not be registered, {limit} may be locked; raise it with `ulimit -l` or \
                 LimitMEMLOCK= of the systemd unit (8 MiB or more)"
            ),
            Self::HugePages { needed } => write!(
                f,
                "{needed} huge pages of 2 MiB were wanted, and the system has fewer free ones; reserve some with \
                 `sysctl vm.nr_hugepages=64`, or leave --huge-pages out"
            ),
            Self::MtuTooSmall { mtu } => write!(
                f,
                "the port's active MTU of {mtu} bytes is too small; raise the MTU of its network interface \
                 (1500 gives 1024, 4200 or more gives 4096)"
            ),
            Self::QueuePairDead { number, restarts } => write!(
                f,
                "queue pair {number} fell into the error state again after {restarts} restarts; look for the device's \
                 or its driver's fault (`dmesg`, `rdma link`), then start this process anew: peers find it under its \
                 new queue pair"
            ),
            Self::NoConnections { device, path, os_error } => write!(
                f,
                "RDMA device {device} makes no {} queue pair, which the path {} needs: {}; use --path ud, which every \
                 device has",
                match path {
                    OneSidedPath::Herd => "unreliable connected (UC)",
                    OneSidedPath::Rfp => "reliable connected (RC)",
                },
                path.name(),
                io::Error::from_raw_os_error(*os_error)
            ),
            Self::ConnectionFailed { device, path, fault } => write!(
                f,
                "a connection of the path {} on RDMA device {device} failed: {fault}; its session goes on with \
                 datagrams, as with --path ud, which works here",
                path.name()
            ),
            Self::InlineTooSmall { device, path, needed, granted } => write!(
                f,
                "the path {} needs work requests that carry {needed} bytes, those of RDMA device {device} carry \
                 {granted}; use --path ud, which works with any number",
                path.name()
            ),
            Self::NoCounters { device, os_error: 0 } => write!(
                f,
                "RDMA device {device} has no atomic operations, which a counter needs; `trine sequencer` works without"
            ),
            Self::NoCounters { device, os_error } => write!(
                f,
                "RDMA device {device} makes no reliable connected (RC) queue pair, which a counter needs: {}; \
                 `trine sequencer` works without",
                io::Error::from_raw_os_error(*os_error)
            ),
            Self::CounterFailed { device, fault } => write!(
                f,
                "the queue pair of a counter on RDMA device {device} failed: {fault}; connect again"
            ),
            Self::CounterUsedUp { end } => write!(
                f,
                "the counter has reached {end}, the end of its numbers; begin another one behind it"
            ),
            Self::Call { call, os_error } => {
                write!(f, "{call} failed: {}", io::Error::from_raw_os_error(*os_error))
            }
        }
    }
}

impl std::error::Error for VerbsError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cause and hint of each error, in the words that a user sees.
    // Long because it holds every error.
    #[test]
    fn every_error_names_its_cause_and_its_hint() {
        let device = || "mlx5_0".to_owned();
        let cases = [
            (VerbsError::NoDevice, "no RDMA device", "modprobe rdma_rxe"),
            (
                VerbsError::NoSuchDevice {
                    name: "mlx5_7".into(),
                    available: vec!["rxe0".into(), "rxe1".into()],
                },
                "no RDMA device is called 'mlx5_7'",
                "there are: rxe0, rxe1",
            ),
            (
                VerbsError::PermissionDenied { device: device() },
                "forbids the use of RDMA device mlx5_0",
                "/dev/infiniband/uverbs*",
            ),
            (
                VerbsError::NoSuchPort {
                    device: device(),
                    port: 3,
                },
                "mlx5_0 has no port 3",
                "`rdma link`",
            ),
            (
                VerbsError::PortDown {
                    device: device(),
                    port: 1,
                },
                "port 1 of RDMA device mlx5_0 is not active",
                "bring its network interface up",
            ),
            (
                VerbsError::NoSuchGid {
                    device: device(),
                    index: Some(9),
                    available: vec![0, 1],
                },
                "no GID at index 9",
                "there are GIDs at: [0, 1]",
            ),
            (
                VerbsError::NoSuchGid {
                    device: device(),
                    index: None,
                    available: vec![],
                },
                "no usable GID",
                "give its network interface an address",
            ),
            (
                VerbsError::MemoryLock {
                    bytes: 4096,
                    limit: 64,
                },
                "4096 bytes of memory could not be registered, 64 may be locked",
                "`ulimit -l`",
            ),
            (
                VerbsError::HugePages { needed: 3 },
                "3 huge pages of 2 MiB were wanted",
                "vm.nr_hugepages",
            ),
            (
                VerbsError::MtuTooSmall { mtu: 256 },
                "active MTU of 256",
                "raise the MTU",
            ),
            (
                VerbsError::NoConnections {
                    device: device(),
                    path: OneSidedPath::Herd,
                    os_error: libc::EOPNOTSUPP,
                },
                "mlx5_0 makes no unreliable connected (UC) queue pair, which the path herd needs",
                "--path ud",
            ),
            (
                VerbsError::NoConnections {
                    device: device(),
                    path: OneSidedPath::Rfp,
                    os_error: libc::EOPNOTSUPP,
                },
                "mlx5_0 makes no reliable connected (RC) queue pair, which the path rfp needs",
                "--path ud",
            ),
            (
                VerbsError::InlineTooSmall {
                    device: device(),
                    path: OneSidedPath::Herd,
                    needed: 320,
                    granted: 64,
                },
                "those of RDMA device mlx5_0 carry 64",
                "--path ud",
            ),
            (
                VerbsError::NoCounters {
                    device: device(),
                    os_error: 0,
                },
                "mlx5_0 has no atomic operations",
                "`trine sequencer` works without",
            ),
            (
                VerbsError::NoCounters {
                    device: device(),
                    os_error: libc::EOPNOTSUPP,
                },
                "mlx5_0 makes no reliable connected (RC) queue pair",
                "`trine sequencer` works without",
            ),
            (
                VerbsError::CounterFailed {
                    device: device(),
                    fault: ConnectionFault::AccessRefused,
                },
                "the key is wrong",
                "connect again",
            ),
            (
                VerbsError::CounterUsedUp { end: 7 },
                "reached 7",
                "begin another one",
            ),
            (
                VerbsError::QueuePairDead {
                    number: 17,
                    restarts: 16,
                },
                "queue pair 17 fell into the error state",
                "start this process anew",
            ),
        ];
        for (error, cause, hint) in cases {
            let text = error.to_string();
            assert!(text.contains(cause) && text.contains(hint), "{text}");
        }
    }

    #[test]
    fn a_connection_that_fails_names_the_device_what_is_wrong_and_the_path_that_works() {
        for (number, cause) in [
            (
                status::IBV_WC_REM_ACCESS_ERR,
                "the key is wrong, or the place is not in the region",
            ),
            (status::IBV_WC_RETRY_EXC_ERR, "does not answer"),
            (status::IBV_WC_WR_FLUSH_ERR, "in the error state"),
            (u32::MAX, "took no further request"),
            (999, "status 999"),
        ] {
            let error = VerbsError::ConnectionFailed {
                device: "mlx5_0".to_owned(),
                path: OneSidedPath::Rfp,
                fault: ConnectionFault::of_status(number),
            };
            let text = error.to_string();
            for words in [
                "path rfp on RDMA device mlx5_0",
                cause,
                "as with --path ud, which works",
            ] {
                assert!(text.contains(words), "{text}");
            }
        }
    }
}
