//! Kernel namespaces for one run: its own network and its own small disks. The run creates them and changes nothing
//! outside of them. They disappear with the run's last process, however that ends.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use trine_chaos::fault::Fault;

use super::disks;
use super::names::Names;
use super::tools::{PRIVATE, feed, is_installed, run};
use crate::ChaosArguments;
use crate::args::{needs_networks, needs_small_disks};
use trine_base::arguments::replica_count;
use trine_base::failure::Failure;

/// Tells the program within the new namespaces in which namespaces the run began.
const OUTSIDE: &str = "TRINE_CHAOS_OUTSIDE";
/// The first three bytes of every address in the run's own network. The last byte is the node id, or that of the
/// clients.
const NETWORK: [u8; 3] = [10, 77, 0];
const CLIENTS_HOST: u8 = 254;
const PORT: u16 = 7471;
/// What an Ethernet carries.
const USUAL_LINK_BYTES: u32 = 1_500;
/// The headers of IPv4 and UDP.
const HEADER_BYTES: u32 = 28;

/// The private resources of a run.
#[derive(Debug, Default)]
pub(super) struct Sandbox {
    pub(super) network: bool,
    /// The longest packet that the links of its own network carry, with the headers of IP and UDP.
    pub(super) link_bytes: u32,
    /// The directories of the replicas, each a small disk.
    pub(super) disks: Vec<PathBuf>,
    /// What lies below each of these disks, if they can hang.
    pub(super) below: Vec<PathBuf>,
    /// The name service of its own network, if replicas know each other by name.
    pub(super) names: Option<Names>,
    /// Requested features that are impossible here, and why.
    pub(super) skipped: Vec<String>,
}

/// The size of packets on the run's links, if its processes are told that every path carries so many bytes of payload.
pub(super) fn link_bytes(promised: Option<u16>) -> u32 {
    promised.map_or(USUAL_LINK_BYTES, |bytes| {
        USUAL_LINK_BYTES.max(u32::from(bytes) + HEADER_BYTES)
    })
}

/// Creates what the arguments request. The first call replaces this program by itself in new namespaces.
pub(super) fn enter(arguments: &ChaosArguments, link_bytes: u32) -> Result<Sandbox, Failure> {
    let network = arguments.netns;
    let on_disks = arguments.faults_that(needs_small_disks);
    let disks = !on_disks.is_empty();
    if !network && !disks {
        return Ok(Sandbox::default());
    }
    let names = namespaces();
    match std::env::var(OUTSIDE) {
        Ok(outside) if outside == names => Err(Failure::usage(
            "no new namespaces were made, so nothing was begun: the rules of this machine are not to be touched",
            format!("unset {OUTSIDE}, which only this program sets"),
        )),
        Ok(_) => build(arguments, network, disks, link_bytes),
        Err(_) => match obstacle(network) {
            Some(why) => {
                let mut skipped = Vec::new();
                if network {
                    skipped.push(format!(
                        "--netns: {why}; links are cut by the replicas themselves"
                    ));
                }
                for fault in arguments.faults_that(needs_networks) {
                    skipped.push(format!("{fault}: {why}"));
                }
                for fault in on_disks {
                    skipped.push(format!("{fault}: {why}"));
                }
                Ok(Sandbox {
                    skipped,
                    ..Sandbox::default()
                })
            }
            None => Err(begin_again(network, &names)),
        },
    }
}

/// The network and the mounts that this process sees.
fn namespaces() -> String {
    let of = |kind: &str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{kind}"));
        link.map_or_else(|_| "?".to_owned(), |link| link.display().to_string())
    };
    format!("{} {}", of("net"), of("mnt"))
}

/// Why namespaces are impossible here.
fn obstacle(network: bool) -> Option<String> {
    if !geteuid().is_root() {
        return Some("skipped, that takes root".to_owned());
    }
    let tools: &[&str] = match network {
        true => &["unshare", "mount", "ip", "nft"],
        false => &["unshare", "mount"],
    };
    if let Some(tool) = tools.iter().find(|tool| !is_installed(tool)) {
        return Some(format!("skipped, `{tool}` is not installed"));
    }
    // A container may forbid what root may do elsewhere. Besides, nft needs support in the kernel.
    let script = match network {
        true => "ip link add trine0 type bridge && nft add table inet trine",
        false => "true",
    };
    let tried = unshare(network).args(["sh", "-c", script]).output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            Some(format!("skipped, this machine forbids it: {}", why.trim()))
        }
        Err(error) => Some(format!("skipped, {error}")),
    }
}

fn unshare(network: bool) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    if network {
        command.arg("--net");
    }
    command.arg("--").stdin(Stdio::null());
    command
}

/// Replaces this process, which keeps its id and its parent. Returns only on failure.
fn begin_again(network: bool, outside: &str) -> Failure {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            return Failure::usage(format!("cannot find the path of this program: {error}"), "");
        }
    };
    let mut command = unshare(network);
    command
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(OUTSIDE, outside);
    let error = command.exec();
    Failure::usage(format!("cannot start `unshare`: {error}"), "")
}

fn build(
    arguments: &ChaosArguments,
    network: bool,
    disks: bool,
    link_bytes: u32,
) -> Result<Sandbox, Failure> {
    let count = replica_count(&arguments.replicas);
    let mut sandbox = Sandbox {
        network,
        link_bytes,
        ..Sandbox::default()
    };
    let wanted = |fault| arguments.faults.contains(&fault);
    if network || wanted(Fault::DiskHang) {
        // Names of network namespaces and images of disks are files. They are in a directory that only this run sees.
        run("mount", ["-t", "tmpfs", "trine", PRIVATE])?;
    }
    if network {
        build_network(count, link_bytes)?;
        if wanted(Fault::Addresses) || wanted(Fault::Resolver) {
            sandbox.names = Some(Names::build(&addresses(count))?);
        }
    }
    let Some(directory) = arguments.log.directory().filter(|_| disks) else {
        return Ok(sandbox);
    };
    if wanted(Fault::DiskHang) {
        match disks::obstacle() {
            None => {
                (sandbox.disks, sandbox.below) = disks::build_hanging(directory, count)?;
                return Ok(sandbox);
            }
            Some(why) => sandbox.skipped.push(format!("{}: {why}", Fault::DiskHang)),
        }
    }
    if wanted(Fault::DiskFull) {
        sandbox.disks = disks::build(directory, count)?;
    }
    Ok(sandbox)
}

/// Builds a bridge with the clients on it. Each replica gets a namespace with a link to the bridge.
fn build_network(count: usize, link_bytes: u32) -> Result<(), Failure> {
    let [a, b, c] = NETWORK;
    let mut script = format!(
        "link set lo up\nlink add trine0 type bridge\nlink set trine0 up\n\
         address add {a}.{b}.{c}.{CLIENTS_HOST}/24 dev trine0\n"
    );
    for node_id in 1..=count {
        script.push_str(&format!(
            "netns add replica{node_id}\n\
             link add cable{node_id} mtu {link_bytes} type veth peer name cable mtu {link_bytes} netns replica{node_id}\n\
             link set cable{node_id} master trine0 up\n"
        ));
    }
    feed("ip", &["-batch", "-"], &script)?;
    for node_id in 1..=count {
        let script = format!(
            "link set lo up\naddress add {a}.{b}.{c}.{node_id}/24 dev cable\nlink set cable up\n"
        );
        feed("ip", &["-n", &namespace(node_id), "-batch", "-"], &script)?;
        // Only incoming packets are filtered, because a packet that is refused on its way out is an error for its
        // sender.
        let table =
            "add table inet trine\nadd chain inet trine cut { type filter hook input priority 0; }";
        nft(node_id, table)?;
    }
    Ok(())
}

/// The addresses of the replicas in the run's own network.
pub(super) fn addresses(count: usize) -> Vec<SocketAddr> {
    let [a, b, c] = NETWORK;
    let node_ids = 1..=u8::try_from(count).expect("few replicas");
    node_ids
        .map(|node_id| SocketAddr::from(([a, b, c, node_id], PORT)))
        .collect()
}

/// The prefix of a replica's command that makes it run in the namespace of its node, with its names if it has any.
pub(super) fn launcher(names: Option<&Names>) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["ip", "netns", "exec", "replica{node_id}"]
        .map(OsString::from)
        .into();
    words.extend(names.into_iter().flat_map(Names::launcher));
    words
}

/// The address that a replica at `old` gets next. It has had none of the last 30.
pub(super) fn next_address(old: SocketAddr) -> SocketAddr {
    let [a, b, c] = NETWORK;
    let last = match old.ip() {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(_) => unreachable!("the run's own network is IPv4"),
    };
    // Node ids are below 8, and the clients' host is above all.
    let next = if last + 8 < 248 { last + 8 } else { last % 8 };
    SocketAddr::from(([a, b, c, next], old.port()))
}

/// Gives the interface of a replica another address in place of its present one.
pub(super) fn readdress(node_id: usize, old: IpAddr, new: IpAddr) -> Result<(), Failure> {
    let script = format!("address del {old}/24 dev cable\naddress add {new}/24 dev cable\n");
    feed("ip", &["-n", &namespace(node_id), "-batch", "-"], &script)
}

fn namespace(node_id: usize) -> String {
    format!("replica{node_id}")
}

/// The address of the clients.
pub(super) fn clients() -> IpAddr {
    let [a, b, c] = NETWORK;
    IpAddr::from([a, b, c, CLIENTS_HOST])
}

/// From now on the replica `to` loses this share of the packets from an address.
pub(super) fn lose(from: IpAddr, to: usize, per_mille: u32) -> Result<(), Failure> {
    let share = match per_mille {
        1_000.. => String::new(),
        share => format!("numgen random mod 1000 < {share} "),
    };
    let rule = format!("add rule inet trine cut ip saddr {from} {share}counter drop");
    nft(to, &rule)
}

/// Ends the loss for the replica with this node id. Returns how many packets were lost.
pub(super) fn heal(node_id: usize) -> Result<u64, Failure> {
    let listed = Command::new("ip")
        .args([
            "netns",
            "exec",
            &namespace(node_id),
            "nft",
            "list",
            "table",
            "inet",
            "trine",
        ])
        .output()
        .map_err(|error| Failure::usage(format!("cannot run `nft`: {error}"), ""))?;
    nft(node_id, "flush chain inet trine cut")?;
    Ok(packets_in(&String::from_utf8_lossy(&listed.stdout)))
}

/// The sum of all counters in a list of rules.
fn packets_in(listed: &str) -> u64 {
    let behind = listed.split("counter packets ").skip(1);
    let counts = behind.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    counts.sum()
}

/// From now on the link of a replica carries packets of so many bytes at most. `silent` leaves its own interface as it is:
/// longer packets are then lost without a word, as in a tunnel or a switch on the way.
pub(super) fn set_link_bytes(node_id: usize, bytes: u32, silent: bool) -> Result<(), Failure> {
    let bytes = bytes.to_string();
    let far = format!("cable{node_id}");
    run("ip", ["link", "set", &far, "mtu", &bytes])?;
    if silent {
        return Ok(());
    }
    let own = namespace(node_id);
    run("ip", ["-n", &own, "link", "set", "cable", "mtu", &bytes])
}

/// How many packets the far end of a replica's link has carried, in both directions.
pub(super) fn packets_on_link(node_id: usize) -> Result<u64, Failure> {
    // /sys would show the interfaces of the namespace in which it was mounted.
    let table = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    packets_of(&table, &format!("cable{node_id}"))
        .ok_or_else(|| Failure::usage(format!("replica {node_id} has no link any more"), ""))
}

/// The packets of an interface in the kernel's table of them: the second and the tenth number.
fn packets_of(table: &str, interface: &str) -> Option<u64> {
    let rows = table.lines().filter_map(|line| line.split_once(':'));
    let (_, numbers) = rows
        .into_iter()
        .find(|(name, _)| name.trim() == interface)?;
    let numbers: Vec<u64> = numbers
        .split_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect();
    Some(numbers.get(1)? + numbers.get(9)?)
}

fn nft(node_id: usize, script: &str) -> Result<(), Failure> {
    let words = ["netns", "exec", &namespace(node_id), "nft", "-f", "-"];
    feed("ip", &words, &format!("{script}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn counters_of_rules_are_added_up() {
        let listed = "table inet trine {\n chain cut {\n ip saddr 10.77.0.2 counter packets 17 bytes 1700 drop\n \
                      ip saddr 10.77.0.3 numgen random mod 1000 < 40 counter packets 3 bytes 90 drop\n }\n}\n";
        assert_eq!(packets_in(listed), 20);
        assert_eq!(packets_in(""), 0);
    }

    #[test]
    fn packets_of_an_interface_are_counted_in_both_directions() {
        let table = "Inter-|   Receive\n face |bytes packets\n  lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n\
                     cable3: 9000 12 0 0 0 0 0 0 700 5 0 0 0 0 0 0\n";
        assert_eq!(packets_of(table, "cable3"), Some(17));
        assert_eq!(packets_of(table, "cable"), None);
    }

    #[test]
    fn every_replica_has_an_address_and_clients_have_another() {
        let addresses = addresses(7);
        assert_eq!(addresses[6].to_string(), "10.77.0.7:7471");
        let mut hosts: BTreeSet<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
        hosts.insert(clients());
        assert_eq!(hosts.len(), 8);
    }

    #[test]
    fn replicas_that_move_never_meet() {
        let mut addresses = addresses(7);
        let mut seen = BTreeSet::from([clients()]);
        for _ in 0..31 {
            for address in &mut addresses {
                assert!(seen.insert(address.ip()), "{address} twice");
                *address = next_address(*address);
            }
        }
        assert!(addresses.iter().all(|address| seen.contains(&address.ip())));
    }
}
