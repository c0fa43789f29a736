//! `--capture FILE` writes every packet of this process to a file that Wireshark opens.

use std::fs::File;
use std::io::{self, BufWriter};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use trine_transport::backend::{Backend, Capture, CaptureAddress, MonotonicClock, Pcap};
use trine_transport::time::{Clock, Duration};

use crate::failure::Failure;
use crate::network::{Network, Opened};
use crate::units::parse_bytes;

/// Whether, where and how much to capture.
#[derive(Clone, Debug, Default, Args)]
pub struct CaptureArguments {
    /// Write every packet of this process into this file (pcapng): Wireshark shows it with
    /// transport/trine.lua. Keys and values are in it as they are.
    #[arg(long, value_name = "FILE", help_heading = "Packet capture")]
    pub capture: Option<PathBuf>,
    /// The capture ends at this size; the process goes on.
    #[arg(
        long,
        default_value = "64MiB",
        value_name = "SIZE",
        value_parser = parse_bytes,
        help_heading = "Packet capture"
    )]
    pub capture_limit: u64,
}

/// A capture that has started.
pub type CaptureFile = Capture<BufWriter<File>>;
/// A backend whose packets are captured.
pub type Captured<B> = Pcap<B, MonotonicClock, BufWriter<File>>;

impl CaptureArguments {
    /// Opens the capture's file and writes its start; `None` if no capture is wanted.
    pub fn open(&self) -> Result<Option<CaptureFile>, Failure> {
        self.begin(|path| Ok((File::create(path)?, 0)))
    }

    /// Opens another section of the same file, for the endpoint that replaces a process's first one.
    pub fn go_on(&self) -> Result<Option<CaptureFile>, Failure> {
        self.begin(|path| {
            let file = File::options().append(true).create(true).open(path)?;
            let written = file.metadata()?.len();
            Ok((file, written))
        })
    }

    /// `open` returns a file and the bytes that are in it.
    fn begin(
        &self,
        open: impl Fn(&Path) -> io::Result<(File, u64)>,
    ) -> Result<Option<CaptureFile>, Failure> {
        let Some(path) = &self.capture else {
            return Ok(None);
        };
        let begin = |path| {
            let (file, written) = open(path)?;
            let bytes_max = self.capture_limit.saturating_sub(written);
            Capture::new(BufWriter::new(file), bytes_max, epoch())
        };
        begin(path).map(Some).map_err(|error| {
            Failure::usage(
                format!(
                    "the capture file {} cannot be written: {error}",
                    path.display()
                ),
                "name a file in a directory that this user may write to",
            )
        })
    }
}

/// Wraps a backend that others reach at `local` in the capture.
pub fn around<B: Backend>(backend: B, local: SocketAddr, capture: CaptureFile) -> Captured<B>
where
    B::Route: CaptureAddress,
{
    Pcap::new(backend, MonotonicClock, local, capture)
}

/// Does the same with what a client has opened.
pub fn around_opened<N: Network>(
    network: &N,
    opened: Opened<N::Backend>,
    capture: CaptureFile,
) -> Opened<Captured<N::Backend>> {
    let local = network.local_address(&opened.backend);
    opened.around(|backend| around(backend, local, capture))
}

/// The Unix time at which the monotonic clock was zero.
fn epoch() -> Duration {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    let unix_ns = unix.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    });
    Duration::from_nanos(unix_ns.saturating_sub(MonotonicClock.now().as_nanos()))
}
