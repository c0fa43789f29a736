//! Cuts, damages and repairs links between replicas.

use std::net::IpAddr;

use trine_local::Group;
use trine_transport::backend::Faults;

use super::sandbox;
use trine_base::failure::Failure;
use trine_local::faults::{FaultCommand, Way, ask};

/// The mechanism that changes links.
pub(super) enum Links {
    /// The replicas' own fault injectors; they continue with these faults afterwards.
    Injectors(Faults),
    /// The kernel, by nftables, in the run's own network.
    Kernel,
}

impl Links {
    /// Cuts the victim off from the others, in both directions. If wanted, it also cuts clients off from the victim.
    pub(super) fn part(&self, group: &Group, victim: usize, clients: bool) -> Result<(), Failure> {
        match self {
            Self::Injectors(_) if clients => block(group, victim, None, Way::Both),
            Self::Injectors(_) => others(group, victim)
                .try_for_each(|other| block(group, victim, Some(other), Way::Both)),
            Self::Kernel => {
                self.cut_off(group, victim, true)?;
                self.cut_off(group, victim, false)?;
                match clients {
                    true => sandbox::lose(sandbox::clients(), victim, 1_000),
                    false => Ok(()),
                }
            }
        }
    }

    /// Cuts one direction: the victim receives nothing from the others, or they receive nothing from it.
    pub(super) fn cut_off(&self, group: &Group, victim: usize, deaf: bool) -> Result<(), Failure> {
        let way = if deaf { Way::In } else { Way::Out };
        others(group, victim).try_for_each(|other| match (self, deaf) {
            (Self::Injectors(_), _) => block(group, victim, Some(other), way),
            (Self::Kernel, true) => sandbox::lose(at(group, other), victim, 1_000),
            (Self::Kernel, false) => sandbox::lose(at(group, victim), other, 1_000),
        })
    }

    /// The possible part of these faults: the kernel can only lose packets.
    pub(super) fn able(&self, faults: Faults) -> Faults {
        match self {
            Self::Injectors(_) => faults,
            Self::Kernel => Faults::loss(faults.loss),
        }
    }

    /// Applies these faults to packets from one replica to another.
    pub(super) fn damage(
        &self,
        group: &Group,
        from: usize,
        to: usize,
        faults: &Faults,
    ) -> Result<(), Failure> {
        match self {
            Self::Injectors(_) => {
                let link = Some(group.addresses()[to - 1].to_string());
                let (way, faults) = (Way::Out, faults.to_string());
                give(group, from, &FaultCommand::Set { link, way, faults }).map(drop)
            }
            Self::Kernel => {
                let per_mille = (faults.loss.as_f64() * 1_000.0).ceil() as u32;
                sandbox::lose(at(group, from), to, per_mille)
            }
        }
    }

    /// The number of packets that the replica with this node id has damaged so far.
    pub(super) fn damaged(&self, group: &Group, node_id: usize) -> Result<u64, Failure> {
        match self {
            Self::Injectors(_) => Ok(give(group, node_id, &FaultCommand::Show)?.fired.damaged()),
            Self::Kernel => Ok(0),
        }
    }

    /// Restores the initial state. Returns how many packets the kernel lost meanwhile.
    pub(super) fn heal(&self, group: &Group, victim: usize) -> Result<u64, Failure> {
        match self {
            Self::Injectors(faults) => {
                give(group, victim, &FaultCommand::Clear { link: None })?;
                if !faults.is_none() {
                    let (way, faults) = (Way::Out, faults.to_string());
                    let link = None;
                    give(group, victim, &FaultCommand::Set { link, way, faults })?;
                }
                Ok(0)
            }
            Self::Kernel => (1..=group.addresses().len()).map(sandbox::heal).sum(),
        }
    }
}

fn at(group: &Group, node_id: usize) -> IpAddr {
    group.addresses()[node_id - 1].ip()
}

fn others(group: &Group, node_id: usize) -> impl Iterator<Item = usize> + use<> {
    (1..=group.addresses().len()).filter(move |other| *other != node_id)
}

fn block(group: &Group, victim: usize, other: Option<usize>, way: Way) -> Result<(), Failure> {
    let link = other.map(|other| group.addresses()[other - 1].to_string());
    let faults = Faults::CUT.to_string();
    give(group, victim, &FaultCommand::Set { link, way, faults }).map(drop)
}

fn give(
    group: &Group,
    node_id: usize,
    command: &FaultCommand,
) -> Result<trine_local::faults::State, Failure> {
    ask(group.addresses()[node_id - 1], command)
        .map_err(|error| Failure::usage(format!("replica {node_id}: {error}"), ""))
}
