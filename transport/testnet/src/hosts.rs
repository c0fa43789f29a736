//! Several hosts, each a network namespace, joined by a bridge or by two routers with a narrow link between them.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The interface of each host.
const PORT: &str = "e0";
/// Ethernet's usual MTU.
const USUAL_MTU: u32 = 1_500;
/// An interface below this has no IPv6.
const IPV6_MTU_MIN: u32 = 1_280;

/// Hosts with a network of their own; gone when dropped.
pub struct Hosts {
    prefix: String,
    /// All namespaces: the hosts first.
    namespaces: Vec<String>,
    /// The routed network of each host; one for all where a bridge joins them.
    subnets: Vec<u8>,
}

/// Why the network cannot be made: which command failed, and how.
type SetupFailure = String;

impl Hosts {
    /// Hosts on one bridge; `mtus` has the MTU of each one's link.
    ///
    /// # Errors
    /// Without root, or a kernel that has no such devices.
    pub fn bridged(mtus: &[u32]) -> Result<Self, SetupFailure> {
        let mut hosts = Self::new(vec![0; mtus.len()]);
        let hub = hosts.add("hub")?;
        let widest = mtus.iter().max().copied().unwrap_or(USUAL_MTU).to_string();
        hosts.ip(
            &hub,
            &["link", "add", "br0", "type", "bridge", "forward_delay", "0"],
        )?;
        hosts.ip(&hub, &["link", "set", "br0", "mtu", &widest, "up"])?;
        for (host, mtu) in mtus.iter().enumerate() {
            let name = hosts.add_host(host)?;
            hosts.cable(&name, PORT, &hub, &format!("p{host}"), *mtu)?;
            hosts.ip(&hub, &["link", "set", &format!("p{host}"), "master", "br0"])?;
            hosts.set_addresses(host, *mtu)?;
        }
        Ok(hosts)
    }

    /// Four hosts on links of 1,500 bytes. Hosts 0 and 3 are at one router, 1 and 2 at another, and `middle` is the MTU of
    /// the link between the routers. With `tells` these say by ICMP which packets were too large.
    ///
    /// # Errors
    /// As [`Hosts::bridged`], and without nft if the routers are to be silent.
    pub fn routed(middle: u32, tells: bool) -> Result<Self, SetupFailure> {
        let at_router = [0, 1, 1, 0];
        let mut hosts = Self::new(vec![0, 1, 2, 3]);
        let routers = [hosts.add("r0")?, hosts.add("r1")?];
        for router in &routers {
            for switch in ["ipv4.ip_forward", "ipv6.conf.all.forwarding"] {
                hosts.run_in(router, &["sysctl", "-qw", &format!("net.{switch}=1")])?;
            }
            if !tells {
                hosts.silence(router)?;
            }
        }
        hosts.cable(&routers[0], "mid", &routers[1], "mid", middle)?;
        for (router, number) in routers.iter().zip(1..) {
            hosts.add_address(router, "mid", &format!("10.79.255.{number}/24"))?;
            hosts.add_address_6(router, "mid", &format!("fd79:ff::{number}/64"), middle)?;
        }
        for (host, at) in at_router.into_iter().enumerate() {
            hosts.add_routed(host, &routers[at])?;
            // The other router reaches this host through the middle.
            let (other, next) = (&routers[1 - at], at + 1);
            let (to, via) = (format!("10.79.{host}.0/24"), format!("10.79.255.{next}"));
            hosts.ip(other, &["route", "add", &to, "via", &via])?;
            if middle >= IPV6_MTU_MIN {
                let (to, via) = (format!("fd79:{host}::/64"), format!("fd79:ff::{next}"));
                hosts.ip(other, &["-6", "route", "add", &to, "via", &via])?;
            }
        }
        Ok(hosts)
    }

    /// The address of a host.
    #[must_use]
    pub fn address(&self, host: usize, is_v6: bool) -> IpAddr {
        let (subnet, last) = (self.subnets[host], host as u8 + 1);
        if is_v6 {
            return Ipv6Addr::new(0xfd79, subnet.into(), 0, 0, 0, 0, 0, last.into()).into();
        }
        Ipv4Addr::new(10, 79, subnet, last).into()
    }

    /// Changes the MTU of both ends of a host's link to its bridge.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn set_mtu(&self, host: usize, mtu: u32) -> Result<(), SetupFailure> {
        let mtu = mtu.to_string();
        let hub = self.name("hub");
        self.ip(&hub, &["link", "set", &format!("p{host}"), "mtu", &mtu])?;
        self.ip(
            &self.name(&format!("h{host}")),
            &["link", "set", PORT, "mtu", &mtu],
        )
    }

    /// Makes the bridge's port towards a host a link of this speed, with a queue of so many bytes in front.
    ///
    /// # Errors
    /// Without `tc`, or a kernel without its token bucket.
    pub fn shape(&self, host: usize, megabits: u32, queue_bytes: u32) -> Result<(), SetupFailure> {
        let (port, rate) = (format!("p{host}"), format!("{megabits}mbit"));
        let limit = queue_bytes.to_string();
        let bucket = [
            "tc", "qdisc", "replace", "dev", &port, "root", "tbf", "rate", &rate, "burst", "32kb",
            "limit", &limit,
        ];
        self.run_in(&self.name("hub"), &bucket)
    }

    /// Fragments that hosts and routers have made of datagrams.
    ///
    /// # Errors
    /// If the kernel's counters cannot be read.
    pub fn fragments(&self) -> Result<u64, SetupFailure> {
        let mut sum = 0;
        for namespace in &self.namespaces {
            let files = ["cat", "/proc/net/snmp", "/proc/net/snmp6"];
            let inside = ["netns", "exec", namespace];
            let text = output_of(Command::new("ip").args(inside).args(files))?;
            sum += fragments_in(&text);
        }
        Ok(sum)
    }

    /// A command that runs on a host.
    pub fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(&format!("h{host}"))]);
        command.arg(program);
        command
    }

    fn new(subnets: Vec<u8>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            prefix: format!("trine-hosts-{}-{count}", std::process::id()),
            namespaces: Vec::new(),
            subnets,
        }
    }

    fn name(&self, part: &str) -> String {
        format!("{}-{part}", self.prefix)
    }

    fn add(&mut self, part: &str) -> Result<String, SetupFailure> {
        let name = self.name(part);
        run(Command::new("ip").args(["netns", "add", &name]))?;
        self.namespaces.push(name.clone());
        self.ip(&name, &["link", "set", "lo", "up"])?;
        Ok(name)
    }

    fn add_host(&mut self, host: usize) -> Result<String, SetupFailure> {
        self.add(&format!("h{host}"))
    }

    /// A host in a network of its own, behind a router.
    fn add_routed(&mut self, host: usize, router: &str) -> Result<(), SetupFailure> {
        let (name, port) = (self.add_host(host)?, format!("p{host}"));
        self.cable(&name, PORT, router, &port, USUAL_MTU)?;
        self.set_addresses(host, USUAL_MTU)?;
        let (v4, v6) = (format!("10.79.{host}.254"), format!("fd79:{host}::ff"));
        self.add_address(router, &port, &format!("{v4}/24"))?;
        self.add_address_6(router, &port, &format!("{v6}/64"), USUAL_MTU)?;
        self.ip(&name, &["route", "add", "default", "via", &v4])?;
        self.ip(&name, &["-6", "route", "add", "default", "via", &v6])
    }

    /// A cable between two namespaces.
    fn cable(
        &self,
        a: &str,
        at_a: &str,
        b: &str,
        at_b: &str,
        mtu: u32,
    ) -> Result<(), SetupFailure> {
        let cable = [
            "link", "add", at_a, "type", "veth", "peer", "name", at_b, "netns", b,
        ];
        self.ip(a, &cable)?;
        let mtu = mtu.to_string();
        self.ip(b, &["link", "set", at_b, "mtu", &mtu, "up"])?;
        self.ip(a, &["link", "set", at_a, "mtu", &mtu, "up"])
    }

    fn set_addresses(&self, host: usize, mtu: u32) -> Result<(), SetupFailure> {
        let name = self.name(&format!("h{host}"));
        self.add_address(&name, PORT, &format!("{}/24", self.address(host, false)))?;
        self.add_address_6(
            &name,
            PORT,
            &format!("{}/64", self.address(host, true)),
            mtu,
        )
    }

    fn add_address(&self, namespace: &str, port: &str, address: &str) -> Result<(), SetupFailure> {
        self.ip(namespace, &["address", "add", address, "dev", port])
    }

    fn add_address_6(
        &self,
        namespace: &str,
        port: &str,
        address: &str,
        mtu: u32,
    ) -> Result<(), SetupFailure> {
        if mtu < IPV6_MTU_MIN {
            return Ok(());
        }
        // No other host has it, and nobody waits for that to be found out.
        self.ip(
            namespace,
            &["address", "add", address, "dev", port, "nodad"],
        )
    }

    /// The router does not say which packets were too large.
    fn silence(&self, router: &str) -> Result<(), SetupFailure> {
        for rule in [
            "add table inet f",
            "add chain inet f o { type filter hook output priority 0 ; }",
            "add rule inet f o icmp type destination-unreachable drop",
            "add rule inet f o icmpv6 type packet-too-big drop",
        ] {
            self.run_in(router, &["nft", rule])?;
        }
        Ok(())
    }

    fn ip(&self, namespace: &str, arguments: &[&str]) -> Result<(), SetupFailure> {
        run(Command::new("ip").args(["-n", namespace]).args(arguments))
    }

    fn run_in(&self, namespace: &str, arguments: &[&str]) -> Result<(), SetupFailure> {
        let inside = ["netns", "exec", namespace];
        run(Command::new("ip").args(inside).args(arguments))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let _ = run(Command::new("ip").args(["netns", "delete", namespace]));
        }
    }
}

/// `FragCreates` of IPv4, which stands in a table, and `Ip6FragCreates`.
fn fragments_in(text: &str) -> u64 {
    let mut of_v4 = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let names = of_v4.next().unwrap_or_default().split(' ');
    let mut values = names.zip(of_v4.next().unwrap_or_default().split(' '));
    let v4 = values.find(|(name, _)| *name == "FragCreates");
    let mut of_v6 = text
        .lines()
        .filter_map(|line| line.strip_prefix("Ip6FragCreates"));
    let counts = [v4.map(|(_, count)| count), of_v6.next()];
    counts
        .into_iter()
        .map(|count| count.and_then(|count| count.trim().parse::<u64>().ok()))
        .map(|count| count.expect("the kernel counts fragments"))
        .sum()
}

fn run(command: &mut Command) -> Result<(), SetupFailure> {
    output_of(command).map(drop)
}

fn output_of(command: &mut Command) -> Result<String, SetupFailure> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}", errors.trim()))
}
