//! Why a backend cannot be opened or used, with a hint in the message.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// A backend cannot be opened, or became unusable.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BackendError {
    /// Another process has the address.
    AddressInUse {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The address belongs to no interface of this machine.
    AddressNotAvailable {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The operating system forbids it.
    PermissionDenied {
        /// What was attempted.
        what: String,
    },
    /// The device does not work any more.
    DeviceFailed {
        /// Which part, why, and what to do.
        reason: String,
    },
    /// This process is a child of the one that opened it, by `fork`. Nothing was sent, and nothing will be.
    OtherProcess,
    /// A system call failed in a way that retrying does not repair.
    System {
        /// The call that failed.
        call: &'static str,
        /// The operating system's error number.
        os_error: i32,
    },
}

/// Why a child of `fork` does nothing with what its parent has opened, and what to do.
#[doc(hidden)]
pub const OTHER_PROCESS: &str = "this client belongs to another process, which has forked this one; open a new client after fork() or daemon()";

impl BackendError {
    /// The failure of `call` as the operating system reported it.
    #[doc(hidden)]
    pub fn from_io(call: &'static str, error: &io::Error) -> Self {
        Self::System {
            call,
            os_error: error.raw_os_error().unwrap_or(0),
        }
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressInUse { address } => write!(
                f,
                "{address} is in use by another process; stop it (`ss -ulpn 'sport = :{}'` shows which) or choose another port",
                address.port()
            ),
            Self::AddressNotAvailable { address } => write!(
                f,
                "{} belongs to no interface of this machine; `ip addr` lists those that do",
                address.ip()
            ),
            Self::PermissionDenied { what } => {
                write!(f, "the operating system forbids to {what}")
            }
            Self::DeviceFailed { reason } => f.write_str(reason),
            Self::OtherProcess => f.write_str(OTHER_PROCESS),
            Self::System { call, os_error } => write!(
                f,
                "{call} failed: {}",
                io::Error::from_raw_os_error(*os_error)
            ),
        }
    }
}

impl std::error::Error for BackendError {}
