//! Memory, files and the limits on them.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use super::machine::{Limit, Machine};
use super::{Finding, shown};
use trine_base::failure::Failure;
use trine_base::new_file;
use trine_base::placement::MemoryLimit;
use trine_base::units::{plural, show_bytes, show_duration};
use trine_replica::disk::files_set_aside;
use trine_server::options::default_store_bytes;

/// Connections of Redis clients and the replica's own files fit below this.
const OPEN_FILES: u64 = 16_384;
/// A verbs endpoint registers its frames and message buffers.
const LOCKED_BYTES: u64 = 256 << 20;

/// What a replica may take: the machine's memory, or what its control group has of it.
pub(super) fn total(machine: &Machine) -> Finding {
    const CHECK: &str = "memory";
    let of_machine = machine
        .entry("proc/meminfo", "MemTotal")
        .map(|kib| kib << 10);
    let limit = machine.memory_limit();
    let limit = limit.filter(|limit| of_machine.is_none_or(|total| limit.bytes < total));
    let (bytes, found) = match (limit, of_machine) {
        (None, None) => return Finding::not_here(CHECK, "not reported by this kernel"),
        (None, Some(bytes)) => (bytes, show_bytes(bytes)),
        (Some(MemoryLimit { bytes, file }), _) => {
            let of = file.display();
            let found = format!(
                "{}, the limit of this control group ({of})",
                show_bytes(bytes)
            );
            (bytes, found)
        }
    };
    let needed = default_store_bytes();
    if bytes > needed {
        return Finding::good(CHECK, found);
    }
    Finding::better(
        CHECK,
        found,
        &format!(
            "a store may grow to {} by default, and the kernel kills a replica that needs more \
             than is available",
            show_bytes(needed)
        ),
        &format!("trine serve --memory {}MiB", (bytes / 2) >> 20),
    )
}

pub(super) fn open_files(machine: &Machine) -> Finding {
    match machine.soft_limit("Max open files") {
        Limit::At(files) if files < OPEN_FILES => Finding::better(
            "open files",
            files.to_string(),
            "each Redis connection takes one",
            &format!("ulimit -n {OPEN_FILES}    # systemd: LimitNOFILE={OPEN_FILES}"),
        ),
        Limit::At(files) => Finding::good("open files", files.to_string()),
        Limit::None => Finding::good("open files", "unlimited"),
        Limit::Unknown => Finding::not_here("open files", "limit not reported by this kernel"),
    }
}

pub(super) fn locked(machine: &Machine) -> Finding {
    match machine.soft_limit("Max locked memory") {
        _ if !cfg!(any(feature = "verbs", feature = "dpdk")) => {
            Finding::not_here("locked memory", "UDP locks none")
        }
        Limit::At(bytes) if bytes < LOCKED_BYTES => Finding::wrong(
            "locked memory",
            format!("{bytes} bytes"),
            "RDMA devices and huge pages need memory that stays where it is",
            "ulimit -l unlimited    # systemd: LimitMEMLOCK=infinity",
        ),
        Limit::At(bytes) => Finding::good("locked memory", format!("{bytes} bytes")),
        Limit::None => Finding::good("locked memory", "unlimited"),
        Limit::Unknown => Finding::not_here("locked memory", "limit not reported by this kernel"),
    }
}

pub(super) fn huge_pages(machine: &Machine) -> Finding {
    let reserved = machine.entry("proc/meminfo", "HugePages_Total");
    let transparent = machine.text("sys/kernel/mm/transparent_hugepage/enabled");
    let transparent_on = transparent
        .as_deref()
        .is_some_and(|modes| !modes.contains("[never]"));
    let hint = format!("echo 512 > {}", shown("proc/sys/vm/nr_hugepages").display());
    match reserved {
        Some(pages) if pages > 0 => Finding::good("huge pages", format!("{pages} reserved")),
        _ if cfg!(feature = "dpdk") => Finding::better(
            "huge pages",
            "none reserved",
            "DPDK runs without them (--no-huge in --eal), but not with a physical NIC",
            &hint,
        ),
        _ if transparent_on => Finding::good("huge pages", "transparent ones"),
        _ => Finding::better(
            "huge pages",
            "neither reserved nor transparent",
            "a large table misses the TLB with every access",
            &format!(
                "echo madvise > {}",
                shown("sys/kernel/mm/transparent_hugepage/enabled").display()
            ),
        ),
    }
}

pub(super) fn swap(machine: &Machine) -> Finding {
    match machine.entry("proc/meminfo", "SwapTotal") {
        None => Finding::not_here("swap", "not reported by this kernel"),
        Some(0) => Finding::good("swap", "none"),
        Some(kib) => Finding::better(
            "swap",
            format!("{} MiB", kib / 1024),
            "a replica whose memory is swapped out misses heartbeats and loses leadership",
            "swapoff -a    # or MemorySwapMax=0 in the systemd unit",
        ),
    }
}

/// Files that a replica has set aside in its directory.
///
/// # Errors
/// When the directory cannot be read.
pub(super) fn set_aside(directory: &Path) -> Result<Finding, Failure> {
    let shown = directory.display();
    let found = files_set_aside(directory).map_err(|error| {
        let message = format!("{shown} cannot be read: {error}");
        Failure::usage(message, "name another with --data-dir")
    })?;
    if found.is_empty() {
        return Ok(Finding::good("old files", "none"));
    }
    let bytes = found.iter().map(|file| file.bytes).sum();
    Ok(Finding::better(
        "old files",
        format!(
            "{} of lost-*, {}",
            plural(found.len() as u64, "file"),
            show_bytes(bytes)
        ),
        "--rejoin or trine recover has set them aside for inspection; nothing reads them",
        &format!("trine recover --remove-lost --data-dir {shown}"),
    ))
}

/// Measures how long a write takes to be durable in the directory of `--log disk`.
///
/// # Errors
/// When nothing can be written there.
pub(super) fn data_directory(directory: &Path) -> Result<Finding, Failure> {
    const ROUNDS: u32 = 32;
    let path = directory.join(".trine-doctor");
    let failed = |error: std::io::Error| {
        Failure::usage(
            format!("{} cannot be written: {error}", path.display()),
            "give the directory to the user that runs trine, or name another with --data-dir",
        )
    };
    let mut file = new_file::emptied(&path).map_err(failed)?;
    let mut slowest = Duration::ZERO;
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let from = Instant::now();
        let written = file.write_all(&[0; 512]).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // The failure itself is reported, so a leftover file does not matter.
            let _ = std::fs::remove_file(&path);
            return Err(failed(error));
        }
        slowest = slowest.max(from.elapsed());
    }
    let mean = began.elapsed() / ROUNDS;
    std::fs::remove_file(&path).map_err(failed)?;
    let found = format!(
        "a synced write takes {}, at worst {}",
        show_duration(mean),
        show_duration(slowest)
    );
    if mean <= Duration::from_millis(2) {
        return Ok(Finding::good("data directory", found));
    }
    Ok(Finding::better(
        "data directory",
        found,
        "every write waits for this on a majority of the replicas",
        "trine serve --data-dir DIR    # on a device with a write cache that survives power loss",
    ))
}
