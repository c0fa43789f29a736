//! Small disks of a run's replicas, which can be filled, and hang.
//!
//! A disk that can hang is a file system in an image, and the image lies on a file system of its own, which is frozen while
//! the disk hangs. So the kernel takes the replica's writes, and its syncs wait for a device that does not finish them. If
//! the upper file system were frozen, writes would wait as well, and syncs would find nothing to do.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::tools::{PRIVATE, is_installed, run};
use trine_base::failure::Failure;

/// The size of each replica's small disk.
const DISK_SIZE: &str = "128M";
/// The size of what lies below it, which has room for the whole image.
const BELOW_SIZE: &str = "160M";
/// The tools that a disk takes that can hang.
const TOOLS: [&str; 4] = ["truncate", "fallocate", "mkfs.ext4", "fsfreeze"];

/// Makes a small disk of each replica's directory.
pub(super) fn build(directory: &Path, count: usize) -> Result<Vec<PathBuf>, Failure> {
    let mut disks = Vec::new();
    for node_id in 1..=count {
        let disk = place(directory, node_id)?;
        let size = format!("size={DISK_SIZE}");
        let options = ["-t", "tmpfs", "-o", &size, "trine"].map(OsStr::new);
        run("mount", options.into_iter().chain([disk.as_os_str()]))?;
        disks.push(disk);
    }
    Ok(disks)
}

/// Makes small disks that can hang. Returns them, and what is to be frozen below each.
pub(super) fn build_hanging(
    directory: &Path,
    count: usize,
) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Failure> {
    let (mut disks, mut belows) = (Vec::new(), Vec::new());
    for node_id in 1..=count {
        let disk = place(directory, node_id)?;
        let below = Path::new(PRIVATE).join(format!("below-{node_id}"));
        let image = below.with_extension("image");
        make_directory(&below)?;
        run(
            "truncate",
            [OsStr::new("-s"), BELOW_SIZE.as_ref(), image.as_ref()],
        )?;
        mount_image(&image, &below)?;
        let image = below.join("image");
        run(
            "fallocate",
            [OsStr::new("-l"), DISK_SIZE.as_ref(), image.as_ref()],
        )?;
        mount_image(&image, &disk)?;
        disks.push(disk);
        belows.push(below);
    }
    Ok((disks, belows))
}

/// Why disks cannot hang here.
pub(super) fn obstacle() -> Option<String> {
    if let Some(tool) = TOOLS.iter().find(|tool| !is_installed(tool)) {
        return Some(format!("skipped, `{tool}` is not installed"));
    }
    let tried = || {
        let image = Path::new(PRIVATE).join("tried.image");
        let at = image.with_extension("");
        make_directory(&at)?;
        run(
            "truncate",
            [OsStr::new("-s"), "8M".as_ref(), image.as_ref()],
        )?;
        mount_image(&image, &at)?;
        run("umount", [&at])
    };
    let failed: Failure = tried().err()?;
    Some(format!(
        "skipped, this machine has no loop devices for it: {}",
        failed.message()
    ))
}

/// Makes an ext4 file system in the image, and mounts it. The loop device goes with the mount.
fn mount_image(image: &Path, at: &Path) -> Result<(), Failure> {
    // No blocks are kept for root, which the replicas may be.
    run(
        "mkfs.ext4",
        [
            OsStr::new("-q"),
            "-m".as_ref(),
            "0".as_ref(),
            image.as_ref(),
        ],
    )?;
    run(
        "mount",
        [
            OsStr::new("-o"),
            "loop".as_ref(),
            image.as_ref(),
            at.as_ref(),
        ],
    )
}

fn place(directory: &Path, node_id: usize) -> Result<PathBuf, Failure> {
    let disk = directory.join(format!("replica-{node_id}"));
    make_directory(&disk)?;
    Ok(disk)
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path)
        .map_err(|error| Failure::usage(format!("cannot make {}: {error}", path.display()), ""))
}

/// A disk that hangs now. Another process ends that as soon as it is told to, or this one has ended, however it has: a
/// file system that is still frozen when the run is over would stay in the kernel.
pub(super) struct Hang {
    keeper: Child,
    /// The name of the disk's block device.
    device: String,
}

/// The keeper's script. It says a word when the disk hangs, and waits for the end of its input.
const KEEPER: &str =
    "fsfreeze --freeze \"$0\" && echo hangs && { read -r _; fsfreeze --unfreeze \"$0\"; }";

impl Hang {
    /// Has the disk hang from now on.
    pub(super) fn begin(disk: &Path, below: &Path) -> Result<Self, Failure> {
        let cannot =
            |error: std::io::Error| Failure::usage(format!("cannot run `fsfreeze`: {error}"), "");
        let device = device_of(disk)?;
        let mut keeper = Command::new("sh")
            .args([OsStr::new("-c"), KEEPER.as_ref(), below.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A Ctrl-C is for the run, which then ends the hanging in order.
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let mut said = keeper.stdout.take().expect("piped");
        if said.read(&mut [0; 16]).map_err(cannot)? == 0 {
            let _ = keeper.wait();
            let message = format!("`fsfreeze` failed for {}", below.display());
            return Err(Failure::usage(message, ""));
        }
        Ok(Self { keeper, device })
    }

    /// Whether the disk has writes that it does not finish.
    pub(super) fn has_waiting_writes(&self) -> bool {
        let path = format!("/sys/block/{}/inflight", self.device);
        let counts = std::fs::read_to_string(path).unwrap_or_default();
        counts.split_whitespace().any(|count| count != "0")
    }

    /// Lets the disk finish its writes.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        drop(self.keeper.stdin.take());
        match self.keeper.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::usage(
                format!("a disk still hangs: `fsfreeze` ended with {status}"),
                "",
            )),
            Err(error) => Err(Failure::usage(format!("a disk still hangs: {error}"), "")),
        }
    }
}

/// The name of the block device that is mounted at a directory.
fn device_of(disk: &Path) -> Result<String, Failure> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let disk = std::fs::canonicalize(disk).unwrap_or_else(|_| disk.to_owned());
    device_in(&mounts, &disk)
        .ok_or_else(|| Failure::usage(format!("nothing is mounted at {}", disk.display()), ""))
}

/// A table of mounts writes a space, a tab, a line's end and a backslash in octal digits.
fn device_in(mounts: &str, disk: &Path) -> Option<String> {
    let escaped = disk.to_str()?.replace('\\', "\\134").replace(' ', "\\040");
    let escaped = escaped.replace('\t', "\\011").replace('\n', "\\012");
    let rows = mounts.lines().map(|line| line.split(' '));
    let mut device = rows.filter_map(|mut row| {
        let device = row.next()?;
        (row.next()? == escaped).then_some(device)
    });
    device.next_back()?.strip_prefix("/dev/").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_of_a_disk_is_the_last_one_mounted_there() {
        let mounts = "trine /run tmpfs rw 0 0\n/dev/loop1 /run/below-1 ext4 rw 0 0\n\
                      /dev/loop2 /tmp/a\\040b/replica-1 ext4 rw 0 0\n/dev/loop4 /tmp/a\\040b/replica-1 ext4 rw 0 0\n";
        let device = |path: &str| device_in(mounts, Path::new(path));
        assert_eq!(device("/tmp/a b/replica-1").as_deref(), Some("loop4"));
        assert_eq!(device("/run"), None, "no block device");
        assert_eq!(device("/tmp"), None);
    }
}
