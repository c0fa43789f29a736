//! The command line of `trine-packets`.

use clap::{Args, Parser, Subcommand};
use std::time::Duration;
use trine_base::failure::Failure;
use trine_base::placement::require_memory;
use trine_base::units::parse_positive_duration;
use trine_packets::config::{
    BATCH_DEFAULT, BATCHES, CHECK_PACKETS_DEFAULT, CORES_MAX, OUT_PORTS_MAX, WINDOW_DEFAULT,
    WINDOW_MAX,
};
use trine_packets::ports::PortName;
use trine_packets::scenario::{ApplicationName, TableSettings};

/// Packet applications between DPDK ports. They hide memory latency by switching between the packets of a batch.
#[derive(Debug, Parser)]
#[command(name = "trine-packets", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Forward each packet to the port whose number it contains.
    Echo(ForwardArguments),
    /// Forward IPv4 by the longest prefix (DIR-24-8).
    Ipv4(ForwardArguments),
    /// Forward IPv6 by the longest prefix.
    Ipv6(ForwardArguments),
    /// Switch Ethernet frames (cuckoo table of addresses).
    Switch(ForwardArguments),
    /// Forward interests of named data networking by the longest name prefix.
    Names(ForwardArguments),
    /// Drop packets that contain a pattern, and forward the others to the first port.
    Patterns(ForwardArguments),
    /// Send packets to an application and check each one that comes back.
    Generate(GenerateArguments),
    /// Run packets through an application in memory and compare each with a slow reference. Needs no ports.
    Check(CheckArguments),
}

impl Command {
    /// The application that the command runs.
    #[cfg(feature = "dpdk")]
    pub(crate) fn name(&self) -> ApplicationName {
        match self {
            Self::Echo(_) => ApplicationName::Echo,
            Self::Ipv4(_) => ApplicationName::Ipv4,
            Self::Ipv6(_) => ApplicationName::Ipv6,
            Self::Switch(_) => ApplicationName::Switch,
            Self::Names(_) => ApplicationName::Names,
            Self::Patterns(_) => ApplicationName::Patterns,
            Self::Generate(arguments) => arguments.name,
            Self::Check(arguments) => arguments.name,
        }
    }
}

/// The generated table. An application and its generator need the same one.
#[derive(Copy, Clone, Debug, Args)]
pub(crate) struct TableArguments {
    /// Entries of the generated table: prefixes, stations, names or patterns.
    #[arg(long)]
    entries: Option<usize>,
    /// Seed of the generated table. An application and its generator need the same one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl TableArguments {
    /// The settings of an application, checked against its limits and this machine's memory.
    pub(crate) fn settings(
        self,
        name: ApplicationName,
        ports: usize,
    ) -> Result<TableSettings, Failure> {
        let (usual, most) = name.entries();
        let entries = self.entries.unwrap_or(usual);
        if entries > most || (entries == 0 && most > 0) {
            return Err(Failure::usage(
                format!(
                    "--entries {entries}: a table of {} has 1 to {most}",
                    name.text()
                ),
                format!("without --entries it has {usual}"),
            ));
        }
        require_memory(bytes_of(name, entries), 1).map_err(|_| {
            Failure::usage(
                format!("--entries {entries} needs more memory than this machine has"),
                "give it fewer",
            )
        })?;
        Ok(TableSettings {
            entries,
            ports: u8::try_from(ports).expect("at most OUT_PORTS_MAX"),
            seed: self.seed,
        })
    }
}

/// About how much memory a table of these entries needs while it is built.
fn bytes_of(name: ApplicationName, entries: usize) -> u64 {
    let each = match name {
        ApplicationName::Echo => 0,
        ApplicationName::Ipv4 | ApplicationName::Switch => 100,
        ApplicationName::Ipv6 => 6 << 10,
        ApplicationName::Names => 400,
        ApplicationName::Patterns => 16 << 10,
    };
    (64 << 20) + each * entries as u64
}

#[derive(Debug, Args)]
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "only ports need it"))]
pub(crate) struct ForwardArguments {
    /// Receive packets from this port: memif:SOCKET or afpacket:INTERFACE.
    #[arg(long = "in", value_name = "PORT")]
    pub(crate) input: PortName,
    /// Send packets to this port. Up to 8 may be given; their order determines their numbers.
    #[arg(long = "out", value_name = "PORT", required = true)]
    pub(crate) outputs: Vec<PortName>,
    /// Packets in a batch: 1, 4, 8, 16 or 32.
    #[arg(long, value_name = "N", default_value_t = BATCH_DEFAULT, value_parser = parse_batch)]
    pub(crate) batch: usize,
    /// Run a thread on each of these processors, each with its own queue at every port.
    #[arg(long, value_name = "LIST", default_value = "0", value_parser = parse_cores)]
    pub(crate) cores: Cores,
    /// Stop after this time; by default at Ctrl-C.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive_duration)]
    pub(crate) time: Option<Duration>,
    #[command(flatten)]
    pub(crate) table: TableArguments,
}

#[derive(Debug, Args)]
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "only ports need it"))]
pub(crate) struct GenerateArguments {
    /// The application whose packets are sent and checked.
    pub(crate) name: ApplicationName,
    /// Send packets to this port, the other end of the application's --in.
    #[arg(long = "out", value_name = "PORT")]
    pub(crate) output: PortName,
    /// Expect packets at this port. Give one for each --out of the application, in the same order.
    #[arg(long = "in", value_name = "PORT", required = true)]
    pub(crate) inputs: Vec<PortName>,
    /// Send this many packets, instead of sending for a time.
    #[arg(long)]
    pub(crate) packets: Option<u64>,
    /// Send for this long.
    #[arg(long = "for", value_name = "TIME", default_value = "5s", conflicts_with = "packets",
          value_parser = parse_positive_duration)]
    pub(crate) time: Duration,
    /// Maximum number of packets per second. By default only the window limits the rate.
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) rate: Option<u64>,
    /// Maximum number of packets in flight per queue.
    #[arg(long, default_value_t = WINDOW_DEFAULT as u64,
          value_parser = clap::value_parser!(u64).range(1..=WINDOW_MAX as u64))]
    pub(crate) window: u64,
    /// Number of queues: as many as the application has cores.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=CORES_MAX as u64))]
    pub(crate) queues: u64,
    /// Run on this processor.
    #[arg(long, value_name = "N")]
    pub(crate) core: Option<u32>,
    /// Send no malformed packets.
    #[arg(long)]
    pub(crate) plain: bool,
    #[command(flatten)]
    pub(crate) table: TableArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The application.
    pub(crate) name: ApplicationName,
    /// Number of packets.
    #[arg(long, default_value_t = CHECK_PACKETS_DEFAULT)]
    pub(crate) packets: u64,
    /// Packets in a batch: 1, 4, 8, 16 or 32.
    #[arg(long, value_name = "N", default_value_t = BATCH_DEFAULT, value_parser = parse_batch)]
    pub(crate) batch: usize,
    /// Output ports.
    #[arg(long, default_value_t = 4, value_parser = parse_ports)]
    pub(crate) ports: usize,
    #[command(flatten)]
    pub(crate) table: TableArguments,
}

fn parse_batch(text: &str) -> Result<usize, String> {
    let size = text.parse().ok();
    size.filter(|size| BATCHES.contains(size))
        .ok_or_else(|| "a batch is 1, 4, 8, 16 or 32 packets".to_owned())
}

fn parse_ports(text: &str) -> Result<usize, String> {
    let ports = text.parse().ok();
    ports
        .filter(|ports| (1..=OUT_PORTS_MAX).contains(ports))
        .ok_or_else(|| format!("there are 1 to {OUT_PORTS_MAX} output ports"))
}

/// Processors, a thread on each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(pub(crate) Vec<u32>);

fn parse_cores(text: &str) -> Result<Cores, String> {
    let cores: Option<Vec<u32>> = text.split(',').map(|core| core.parse().ok()).collect();
    let mut cores = cores.ok_or("write numbers of processors, joined by commas: 0,1")?;
    let count = cores.len();
    cores.sort_unstable();
    cores.dedup();
    if cores.len() < count {
        return Err("a processor is named twice".to_owned());
    }
    if count > CORES_MAX {
        return Err(format!("there are at most {CORES_MAX} threads"));
    }
    Ok(Cores(cores))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn complaint(line: &str) -> String {
        let words = std::iter::once("trine-packets").chain(line.split_whitespace());
        Arguments::try_parse_from(words)
            .expect_err(line)
            .to_string()
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn wrong_flags_are_named_with_what_is_right() {
        let ports = "--in memif:@a --out memif:@b";
        for (line, says) in [
            ("ipv4 --in memif:@a".to_owned(), "--out"),
            (format!("ipv4 {ports} --batch 3"), "1, 4, 8, 16 or 32"),
            (format!("ipv4 {ports} --cores 0,x"), "joined by commas"),
            (format!("ipv4 {ports} --cores 1,1"), "named twice"),
            (format!("ipv4 {ports} --for 0s"), "longer than zero"),
            (
                "echo --in eth0 --out memif:@b".to_owned(),
                "afpacket:INTERFACE",
            ),
            (format!("generate nobody {ports}"), "possible values"),
            (format!("generate ipv4 {ports} --window 600"), "1..=512"),
            (format!("generate ipv4 {ports} --rate 0"), "1..=1000000000"),
            (
                format!("generate ipv4 {ports} --packets 5 --for 5s"),
                "cannot be used with",
            ),
            ("check ipv6 --ports 9".to_owned(), "1 to 8"),
        ] {
            let said = complaint(&line);
            assert!(said.contains(says), "{line}: {said}");
        }
    }

    #[test]
    fn entries_have_limits() {
        let table = |entries| TableArguments { entries, seed: 1 };
        for (name, entries) in [
            (ApplicationName::Ipv4, 0),
            (ApplicationName::Ipv4, 2_000_001),
            (ApplicationName::Echo, 1),
        ] {
            let failure = table(Some(entries))
                .settings(name, 1)
                .expect_err("out of range");
            assert!(failure.message().contains(name.text()), "{failure}");
        }
        let usual = table(None)
            .settings(ApplicationName::Ipv4, 2)
            .expect("the default");
        assert_eq!((usual.entries, usual.ports), (500_000, 2));
    }
}
