//! The vocabulary of faults, of the simulator and of live chaos, and the schedule that a seed makes of it.

mod draw;
mod kind;
mod schedule;

pub use self::draw::{DRIFT_PER_MILLION_MAX, Draw};
pub use self::kind::{Definition, Event, Fault, Live, Look, Misnaming, Need, Simulated, Strike};
pub use self::schedule::{KINDS_MIN, Schedule, draw_disk_kinds, draw_kinds, draw_sealed_kinds};

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use trine_transport::backend::Faults;
use trine_transport::prng::Ratio;
use trine_transport::time::Duration;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no fault of the simulator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` is not a fault, the nearest is `{nearest}`; there are: {}",
    names()
)]
pub struct UnknownFault {
    /// The text.
    pub name: String,
    /// The fault with the most similar name.
    pub nearest: Fault,
}

fn names() -> String {
    let names: Vec<&str> = Fault::simulated().map(Fault::name).collect();
    names.join(", ")
}

/// Faults of the simulator, by name.
impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(name: &str) -> Result<Self, UnknownFault> {
        let found = Fault::simulated().find(|fault| fault.name() == name);
        let nearest = Fault::simulated().min_by_key(|f| strsim::levenshtein(name, f.name()));
        found.ok_or_else(|| UnknownFault {
            name: name.to_owned(),
            nearest: nearest.expect("there are faults"),
        })
    }
}

/// Kinds of fault as they are named on the command line: `loss,crash`, or `none`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultSet(pub BTreeSet<Fault>);

impl FromStr for FaultSet {
    type Err = UnknownFault;

    fn from_str(names: &str) -> Result<Self, UnknownFault> {
        if names == NO_FAULT {
            return Ok(Self::default());
        }
        names
            .split(',')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for FaultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(NO_FAULT);
        }
        let names: Vec<&str> = self.0.iter().map(|fault| fault.name()).collect();
        f.write_str(&names.join(","))
    }
}

/// The set of no fault.
const NO_FAULT: &str = "none";

/// The random effects of all simulated links on packets.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkFaults {
    /// What the transport's own fault injector does as well. Here the delay has a rate of its own, `delayed`.
    pub usual: Faults,
    /// Packets that are held back for the delay.
    pub delayed: Ratio,
    /// Packets that arrive once more, seconds later.
    pub replay: Ratio,
    /// Packets above this size vanish; zero lets all pass.
    pub mtu: usize,
}

/// Machines of a simulation: replicas first, then the machines that clients run on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Replicas.
    pub replicas: usize,
    /// Machines of clients.
    pub client_machines: usize,
}

impl Topology {
    /// All machines.
    pub fn machines(&self) -> usize {
        self.replicas + self.client_machines
    }
}

/// What happens to a leader amid a change of the members.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Amid {
    /// Nothing.
    Peace,
    /// It is cut off for so long.
    Cut(Duration),
    /// It dies, and is down for so long.
    Death(Duration),
}

/// What a name says of a replica that has got another address.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// The old address, for so long.
    Late(Duration),
    /// The address of another replica, for so long.
    Lies(Duration),
    /// The new one, to each process that asks for the first time. Later lookups fail.
    Vanishes,
}

/// The target of a fault; leaders get more than their share.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Victim {
    /// Who leads at that moment.
    Leader,
    /// The replica with this index; its node id is one more.
    Replica(usize),
    /// All of them.
    All,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_fault_is_refused_with_the_list() {
        let error = "earthquake".parse::<Fault>().unwrap_err();
        assert!(error.to_string().contains("partition"));
        for (wrong, nearest) in [
            ("pause-apart", Fault::Pause),
            ("crush", Fault::Crash),
            ("partitions", Fault::Partition),
            ("disk-fool", Fault::DiskFull),
            ("Version", Fault::Versions),
        ] {
            let error = wrong.parse::<Fault>().unwrap_err();
            assert_eq!(error.nearest, nearest, "{wrong}");
            let told = format!("the nearest is `{nearest}`");
            assert!(error.to_string().contains(&told), "{error}");
        }
        for fault in Fault::simulated() {
            assert_eq!(fault.name().parse::<Fault>().unwrap(), fault);
        }
    }

    #[test]
    fn every_kind_can_happen_somewhere_under_a_name_of_its_own() {
        for fault in Fault::ALL {
            let simulated = Fault::simulated().any(|other| other == fault);
            assert!(simulated || fault.live().is_some(), "{fault}");
            let listed = Fault::LIVE.contains(&fault);
            assert_eq!(fault.live().is_some(), listed, "{fault}");
        }
        let names: BTreeSet<&str> = Fault::ALL.into_iter().map(Fault::name).collect();
        assert_eq!(names.len(), Fault::ALL.len());
    }

    /// The simulator and the transport's injector do the same to packets, so they say it in the same words.
    #[test]
    fn the_transport_knows_the_usual_faults_by_the_same_names() {
        for (fault, value) in [
            (Fault::Loss, "5%"),
            (Fault::Duplication, "5%"),
            (Fault::Reordering, "5%"),
            (Fault::Corruption, "5%"),
            (Fault::Delay, "0s..2ms"),
        ] {
            let text = format!("{fault}={value}");
            let faults: Faults = text.parse().unwrap();
            assert!(!faults.is_none(), "{text}");
        }
    }
}
