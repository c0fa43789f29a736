//! All applications, with their generated tables, references and packets.

use crate::application::Application;
use crate::echo::{Echo, EchoReference, EchoTraffic};
use crate::error::TableError;
use crate::ipv4::{Ipv4, Ipv4Reference, Ipv4Traffic, bgp_like};
use crate::ipv6::{Ipv6, Ipv6Reference, Ipv6Traffic, random_routes};
use crate::names::{Names, NamesReference, NamesTraffic, random_names};
use crate::patterns::{Patterns, PatternsReference, PatternsTraffic, random_patterns};
use crate::reference::{Reference, Traffic};
use crate::switch::{Switch, SwitchReference, SwitchTraffic, random_stations};
use clap::ValueEnum;
use trine_transport::prng::Prng;

/// An application.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum ApplicationName {
    /// The port is a number in the packet.
    Echo,
    /// IPv4 forwarding by the longest prefix.
    Ipv4,
    /// IPv6 forwarding by the longest prefix.
    Ipv6,
    /// A layer-2 switch.
    Switch,
    /// Named data networking.
    Names,
    /// A filter for patterns in the content.
    Patterns,
}

/// What the table of an application is generated from. Equal settings give equal tables.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TableSettings {
    /// Entries of the table.
    pub entries: usize,
    /// Output ports, at least one.
    pub ports: u8,
    /// The seed of the entries.
    pub seed: u64,
}

impl ApplicationName {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Echo,
        Self::Ipv4,
        Self::Ipv6,
        Self::Switch,
        Self::Names,
        Self::Patterns,
    ];

    /// The name on the command line.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Switch => "switch",
            Self::Names => "names",
            Self::Patterns => "patterns",
        }
    }

    /// Entries of the table unless told otherwise, and at most.
    #[must_use]
    pub const fn entries(self) -> (usize, usize) {
        match self {
            Self::Echo => (0, 0),
            Self::Ipv4 => (500_000, 2_000_000),
            Self::Ipv6 => (200_000, 800_000),
            Self::Switch => (1_000_000, 1 << 26),
            Self::Names => (1_000_000, 1 << 24),
            Self::Patterns => (23_331, 60_000),
        }
    }
}

/// Work on an application whose type is known only when the program runs.
pub trait OnApplication {
    /// The result of the work.
    type Output;
    /// Does the work.
    fn on<A: Application>(self, application: &A) -> Self::Output;
}

/// Keys of hashes come from another seed than the entries.
fn hash_keys(settings: &TableSettings) -> Prng {
    Prng::new(settings.seed ^ 0x5eed)
}

/// Builds an application and does the work with it.
///
/// # Errors
///
/// [`TableError`] if the table cannot be built.
pub fn on_application<W: OnApplication>(
    name: ApplicationName,
    settings: &TableSettings,
    work: W,
) -> Result<W::Output, TableError> {
    let TableSettings {
        entries,
        ports,
        seed,
    } = *settings;
    let prng = &mut Prng::new(seed);
    let keys = &mut hash_keys(settings);
    Ok(match name {
        ApplicationName::Echo => work.on(&Echo { ports }),
        ApplicationName::Ipv4 => work.on(&Ipv4::new(&bgp_like(entries, prng), ports)?),
        ApplicationName::Ipv6 => work.on(&Ipv6::new(&random_routes(entries, prng), ports)?),
        ApplicationName::Switch => {
            work.on(&Switch::new(&random_stations(entries, ports, prng), keys)?)
        }
        ApplicationName::Names => work.on(&Names::new(&random_names(entries, ports, prng), keys)?),
        ApplicationName::Patterns => work.on(&Patterns::new(&random_patterns(entries, prng))?),
    })
}

/// The reference of an application, and the packets that it is checked with.
#[must_use]
pub fn referee(
    name: ApplicationName,
    settings: &TableSettings,
) -> (Box<dyn Reference>, Box<dyn Traffic>) {
    (reference(name, settings), traffic(name, settings))
}

fn reference(name: ApplicationName, settings: &TableSettings) -> Box<dyn Reference> {
    let TableSettings {
        entries,
        ports,
        seed,
    } = *settings;
    let prng = &mut Prng::new(seed);
    match name {
        ApplicationName::Echo => Box::new(EchoReference { ports }),
        ApplicationName::Ipv4 => Box::new(Ipv4Reference::new(&bgp_like(entries, prng), ports)),
        ApplicationName::Ipv6 => Box::new(Ipv6Reference::new(&random_routes(entries, prng), ports)),
        ApplicationName::Switch => {
            let stations = random_stations(entries, ports, prng);
            Box::new(SwitchReference::new(&stations))
        }
        ApplicationName::Names => {
            Box::new(NamesReference::new(&random_names(entries, ports, prng)))
        }
        ApplicationName::Patterns => {
            Box::new(PatternsReference::new(&random_patterns(entries, prng)))
        }
    }
}

/// The packets of an application.
#[must_use]
pub fn traffic(name: ApplicationName, settings: &TableSettings) -> Box<dyn Traffic> {
    let TableSettings {
        entries,
        ports,
        seed,
    } = *settings;
    let prng = &mut Prng::new(seed);
    match name {
        ApplicationName::Echo => Box::new(EchoTraffic),
        ApplicationName::Ipv4 => Box::new(Ipv4Traffic::new(bgp_like(entries, prng))),
        ApplicationName::Ipv6 => Box::new(Ipv6Traffic::new(random_routes(entries, prng))),
        ApplicationName::Switch => {
            Box::new(SwitchTraffic::new(random_stations(entries, ports, prng)))
        }
        ApplicationName::Names => Box::new(NamesTraffic::new(random_names(entries, ports, prng))),
        ApplicationName::Patterns => Box::new(PatternsTraffic::new(random_patterns(entries, prng))),
    }
}
