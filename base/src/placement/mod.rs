//! The processors and the memory of a replica, and whether other machines may reach it.

mod control_group;
mod numa;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use clap::Args;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::Failure;
use crate::units::show_bytes;

pub use self::control_group::{MemoryLimit, memory_limit};

/// Exposure to the network, processors and memory.
#[derive(Clone, Debug, Default, Args)]
pub struct PlacementArguments {
    /// Listen on addresses that other machines can reach, without requiring a key (--key) from callers. Any client that
    /// can send packets to the replica can then read, change and delete everything, and act as a member. With `trine
    /// up`, no key is created.
    #[arg(long)]
    pub insecure: bool,
    /// Former name of --insecure.
    #[arg(long, env = "TRINE_ALLOW_REMOTE", hide = true)]
    pub allow_remote: bool,
    /// Run the replica's thread only on this processor.
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Allocate memory from this NUMA node while it has some; without --cpu, the replica's thread also runs on the
    /// node's processors.
    #[arg(long, value_name = "N")]
    pub numa_node: Option<u32>,
}

/// Places the calling thread as the settings say. Threads that were started before keep their placement.
pub fn apply(arguments: &PlacementArguments) -> Result<(), Failure> {
    if let Some(node) = arguments.numa_node {
        let processors = numa::processors(node)?;
        numa::prefer(node)?;
        if arguments.cpu.is_none() {
            run_on(&processors, &format!("--numa-node {node}"))?;
        }
    }
    match arguments.cpu {
        Some(processor) => run_on(&[processor], &format!("--cpu {processor}")),
        None => Ok(()),
    }
}

/// Restricts the calling thread to `processors`.
fn run_on(processors: &[u32], option: &str) -> Result<(), Failure> {
    let allowed = sched_getaffinity(None)
        .map_err(|error| Failure::usage(format!("{option}: {error}"), ""))?;
    let mut wanted = CpuSet::new();
    for processor in processors {
        let index = usize::try_from(*processor).unwrap_or(usize::MAX);
        if index < CpuSet::MAX_CPU && allowed.is_set(index) {
            wanted.set(index);
        }
    }
    if wanted.count() == 0 {
        let usable: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|index| allowed.is_set(*index))
            .collect();
        return Err(Failure::usage(
            format!("{option}: this process may not run on that processor"),
            format!("it may run on {}", ranges(&usable)),
        ));
    }
    sched_setaffinity(None, &wanted)
        .map_err(|error| Failure::usage(format!("{option}: the kernel rejects it: {error}"), ""))
}

/// "0-3,8": numbers in ascending order, as the kernel writes them.
fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let texts: Vec<String> = parts
        .iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    texts.join(",")
}

/// The address space of a process beside its store: code, stacks, message buffers, allocator arenas.
const ADDRESS_SPACE_BESIDE: u64 = 1 << 30;

/// Checks that the memory of `count` processes of this command fits into the machine, and into the control group of this
/// process. A lack of memory is refused now, so that it does not cause a failure later.
///
/// # Errors
/// Says which limit it exceeds.
pub fn require_memory(each: u64, count: u64) -> Result<(), Failure> {
    let known = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = known.lines().find_map(|line| {
        let rest = line.strip_prefix("MemTotal:")?.trim();
        rest.strip_suffix(" kB")?.parse::<u64>().ok()
    });
    if let Some(total) = total {
        fits(each, count, total << 10, "this machine has")?;
    }
    if let Some(MemoryLimit { bytes, file }) = memory_limit(Path::new("/")) {
        let has = format!("this control group may have ({})", file.display());
        fits(each, count, bytes, &has)?;
    }
    for (resource, option) in [(Resource::As, "-v"), (Resource::Data, "-d")] {
        if let Some(limit) = getrlimit(resource).current {
            fits_limit(each, limit, option)?;
        }
    }
    Ok(())
}

/// A store reserves address space before it uses it, twice as much as it holds; the rest of a process needs some, too.
/// `option` is that of `ulimit`.
fn fits_limit(each: u64, limit: u64, option: &str) -> Result<(), Failure> {
    let needed = each.saturating_mul(2).saturating_add(ADDRESS_SPACE_BESIDE);
    if needed <= limit {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "the address space of a process is limited to {} here (ulimit {option}), and --memory {} needs up to {}",
            show_bytes(limit),
            show_bytes(each),
            show_bytes(needed)
        ),
        format!(
            "lift it with `ulimit {option} unlimited`, or reduce --memory; to limit resident \
             memory, use a control group"
        ),
    ))
}

/// `has` says whose `total` that is.
fn fits(each: u64, count: u64, total: u64, has: &str) -> Result<(), Failure> {
    if each.saturating_mul(count) <= total {
        return Ok(());
    }
    let wanted = match count {
        1 => show_bytes(each),
        count => format!("{} for each of {count} replicas", show_bytes(each)),
    };
    Err(Failure::usage(
        format!(
            "--memory {wanted} is more than {has}, {}",
            show_bytes(total)
        ),
        "give it less than is available",
    ))
}

/// Refuses an address that other machines reach, unless the settings permit it.
pub fn require_loopback(what: &str, address: SocketAddr, insecure: bool) -> Result<(), Failure> {
    if insecure || is_loopback(address.ip()) {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "{what} {address} is not a loopback address: other machines would reach it, and it is not sealed by a key"
        ),
        "give a key with --key FILE if it receives packets (`trine key new FILE` creates one), or \
         add --insecure (TRINE_INSECURE=true, or insecure = true in the file) if every machine on \
         the network may read and write",
    ))
}

/// Refuses the former name of --insecure. Who gave it may not know yet that a key makes it needless.
///
/// # Errors
/// If it is given.
pub fn refuse_former_name(allow_remote: bool) -> Result<(), Failure> {
    if !allow_remote {
        return Ok(());
    }
    Err(Failure::usage(
        "there is no --allow-remote (TRINE_ALLOW_REMOTE) any more",
        GONE_HINT,
    ))
}

/// The hint that replaces the former setting `allow-remote`.
pub const GONE_HINT: &str = "with a key (--key FILE, made by `trine key new FILE`) a replica may \
     listen anywhere; without one --insecure lets other machines in, and any client that can send \
     packets can read and write";

/// Whether an address is reached from this machine alone.
#[must_use]
pub fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => {
            ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_replicas_of_one_machine_store_counts_together() {
        let has = "this machine has";
        assert!(fits(4 << 30, 1, 8 << 30, has).is_ok() && fits(4 << 30, 2, 8 << 30, has).is_ok());
        let failure = fits(4 << 30, 3, 8 << 30, has).expect_err("too much");
        assert!(
            failure.message().contains("4.0 GiB for each of 3 replicas"),
            "{failure}"
        );
        assert!(fits(u64::MAX, 7, 8 << 30, has).is_err());
    }

    #[test]
    fn loopback_is_free_and_the_rest_has_to_be_asked_for() {
        for (address, free) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.0.0.1:1", false),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("[fe80::1]:1", false),
        ] {
            let parsed = address.parse().expect("an address");
            assert_eq!(
                require_loopback("x", parsed, false).is_ok(),
                free,
                "{address}"
            );
            assert!(require_loopback("x", parsed, true).is_ok());
        }
    }

    #[test]
    fn a_thread_runs_where_it_is_put() {
        let thread = std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).expect("asked");
            let first = (0..CpuSet::MAX_CPU).find(|index| allowed.is_set(*index));
            let first = first.expect("a processor");
            run_on(&[u32::try_from(first).expect("small")], "--cpu").expect("put there");
            let now = sched_getaffinity(None).expect("asked");
            assert!(now.count() == 1 && now.is_set(first));
            let failure =
                run_on(&[4_000_000], "--cpu 4000000").expect_err("may not run on that processor");
            assert!(failure.to_string().contains("it may run on"), "{failure}");
        });
        thread.join().expect("no panic");
    }

    #[test]
    fn numbers_are_shown_as_the_kernel_shows_them() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[]), "");
    }
}
