//! `--capture FILE` writes every packet of this process to a file that Wireshark opens.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use rustix::fs::OFlags;
use trine_keys::own_file::{self, AllowedFile};
use trine_transport::backend::{Backend, Capture, CaptureAddress, MonotonicClock, Pcap};
use trine_transport::time::{Clock, Duration};

use crate::failure::Failure;
use crate::network::{Network, Opened};
use crate::new_file::OWN_FILE_HINT;
use crate::units::parse_bytes;

/// The file and the limit of a packet capture.
#[derive(Clone, Debug, Default, Args)]
pub struct CaptureArguments {
    /// Write every packet of this process to this file (pcapng), for Wireshark with transport/trine.lua. The file holds
    /// keys and values in clear text, and only its owner can read it. An earlier capture is overwritten. A file with
    /// other content is rejected, and so is a file or link owned by another user.
    #[arg(long, value_name = "FILE", help_heading = "Packet capture")]
    pub capture: Option<PathBuf>,
    /// Stop the capture at this size; the process continues.
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

/// Keys and values are in a capture.
const MODE: u32 = 0o600;
/// The type of the block that a pcapng file begins with, and how our captures show the order of their bytes: in the last
/// four of the first [`HEAD_BYTES`].
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const BYTE_ORDER: [u8; 4] = [0x4d, 0x3c, 0x2b, 0x1a];
const HEAD_BYTES: usize = 12;

/// Where a section of a capture begins.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum At {
    /// An earlier capture makes room.
    Start,
    /// Behind the sections that are there.
    End,
}

impl CaptureArguments {
    /// Opens the capture's file and writes its start; `None` if no capture is wanted.
    pub fn open(&self) -> Result<Option<CaptureFile>, Failure> {
        self.begin(At::Start)
    }

    /// Opens another section of the same file, for the endpoint that replaces a process's first one.
    pub fn go_on(&self) -> Result<Option<CaptureFile>, Failure> {
        self.begin(At::End)
    }

    fn begin(&self, at: At) -> Result<Option<CaptureFile>, Failure> {
        let Some(path) = &self.capture else {
            return Ok(None);
        };
        let file = open_file(path, at)?;
        let begin = || {
            let bytes_max = self.capture_limit.saturating_sub(file.metadata()?.len());
            Capture::new(BufWriter::new(file), bytes_max, epoch())
        };
        begin().map(Some).map_err(|error| cannot(path, &error))
    }
}

/// Opens the file of a capture, for its owner alone. A file that is no capture stays as it is: it was named by mistake.
fn open_file(path: &Path, at: At) -> Result<File, Failure> {
    let flags = match at {
        At::Start => OFlags::RDWR,
        At::End => OFlags::RDWR | OFlags::APPEND,
    };
    let opened = own_file::open(path, flags, MODE, AllowedFile::Any);
    let file = opened.map_err(|error| cannot(path, &error))?.file;
    // A pipe or a device keeps nothing that could be lost, and its permissions are somebody else's affair.
    if file.metadata().is_ok_and(|about| !about.is_file()) {
        return Ok(file);
    }
    if !is_replaceable(&file).map_err(|error| cannot(path, &error))? {
        return Err(Failure::usage(
            format!(
                "{} is not a capture, and is not overwritten",
                path.display()
            ),
            "name a new file with --capture, or one that an earlier --capture has written",
        ));
    }
    let about = file.metadata().map_err(|error| cannot(path, &error))?;
    if about.permissions().mode() & 0o077 != 0 {
        let private = file.set_permissions(Permissions::from_mode(MODE));
        private.map_err(|error| {
            Failure::usage(
                format!(
                    "the capture file {} can be read by others, and this cannot be changed: {error}",
                    path.display()
                ),
                "name a new file, or one of this user, with --capture",
            )
        })?;
    }
    if at == At::Start {
        file.set_len(0).map_err(|error| cannot(path, &error))?;
    }
    Ok(file)
}

/// Whether the file is empty or begins as a capture does.
fn is_replaceable(file: &File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut head = [0; HEAD_BYTES];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) => Ok(head.starts_with(&SECTION_HEADER) && head.ends_with(&BYTE_ORDER)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(
        format!(
            "the capture file {} cannot be written: {error}",
            path.display()
        ),
        OWN_FILE_HINT,
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A path at which nothing is, until the value goes.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("trine-capture-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_file(&path);
            Self(path)
        }

        fn arguments(&self) -> CaptureArguments {
            CaptureArguments {
                capture: Some(self.0.clone()),
                capture_limit: 1 << 20,
            }
        }

        fn write(&self, bytes: &[u8], mode: u32) {
            std::fs::write(&self.0, bytes).expect("written");
            std::fs::set_permissions(&self.0, Permissions::from_mode(mode)).expect("changed");
        }

        fn bytes(&self) -> Vec<u8> {
            std::fs::read(&self.0).expect("there")
        }

        fn mode(&self) -> u32 {
            let about = std::fs::metadata(&self.0).expect("there");
            about.permissions().mode() & 0o7777
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// Everybody on the machine could read the keys and values in it.
    #[test]
    fn a_capture_is_its_owners_alone_and_overwritten_by_the_next_one() {
        let file = Scratch::new("next");
        drop(file.arguments().open().expect("made"));
        let head = file.bytes();
        assert!(head.len() > HEAD_BYTES && file.mode() == MODE);

        let longer = [&head[..], b"packets of an earlier run"].concat();
        file.write(&longer, 0o644);
        drop(file.arguments().open().expect("opened"));
        assert_eq!((file.bytes(), file.mode()), (head.clone(), MODE));

        file.write(&head, 0o644);
        drop(file.arguments().go_on().expect("opened"));
        let sections = [&head[..], &head].concat();
        assert_eq!((file.bytes(), file.mode()), (sections, MODE));

        file.write(b"", 0o666);
        drop(file.arguments().open().expect("opened"));
        assert_eq!((file.bytes(), file.mode()), (head, MODE));
    }

    /// `--capture` with the name of another file by mistake emptied that one.
    #[test]
    fn a_file_that_is_no_capture_stays_as_it_is() {
        let file = Scratch::new("other");
        for text in [
            b"x".as_slice(),
            &SECTION_HEADER,
            b"\n\r\r\nfour thousand words",
        ] {
            file.write(text, 0o644);
            for opened in [file.arguments().open(), file.arguments().go_on()] {
                let refused = opened.expect_err("refused");
                let text = refused.to_string();
                assert!(text.contains("is not a capture") && text.contains("--capture"));
                assert_eq!(refused.exit_status(), 2);
            }
            assert_eq!((file.bytes(), file.mode()), (text.to_vec(), 0o644));
        }
    }

    #[test]
    fn a_device_takes_a_capture() {
        let arguments = CaptureArguments {
            capture: Some("/dev/null".into()),
            capture_limit: 1 << 20,
        };
        assert!(arguments.open().expect("opened").is_some());
        let after = std::fs::metadata("/dev/null").expect("there");
        assert_ne!(after.permissions().mode() & 0o7777, MODE);
    }
}
