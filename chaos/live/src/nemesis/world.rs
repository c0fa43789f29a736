//! Faults of the ordinary world around a replica: what its link carries, a disk that hangs, addresses and names that
//! change.

use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::units::show_ns;
use trine_chaos::fault::Misnaming;
use trine_local::start as group;
use trine_transport::time::Duration as Nanos;

use super::{Clock, END_LIMIT, Hit, Nemesis, POLL_INTERVAL, is_down};
use crate::disks::Hang;
use crate::names::Names;
use crate::{now, sandbox};

/// What every path carries.
const LEAST_LINK_BYTES: u32 = 1_280;
/// The beginning of the line of a replica that waits for a name.
const NOT_YET: &str = "not serving yet";

impl<N: Network> Nemesis<'_, N> {
    /// Has the victim's link carry less for a while.
    pub(super) fn shrink_link(
        &mut self,
        clock: &mut Clock,
        victim: usize,
        hold: Nanos,
        bytes: u32,
        silent: bool,
    ) -> Result<Hit, Failure> {
        let usual = self.sandbox.link_bytes;
        let bytes = if bytes < usual {
            bytes
        } else {
            LEAST_LINK_BYTES
        };
        sandbox::set_link_bytes(victim, bytes, silent)?;
        let before = sandbox::packets_on_link(victim)?;
        let waited = self.wait_until(clock, now() + hold);
        let after = sandbox::packets_on_link(victim)?;
        sandbox::set_link_bytes(victim, usual, silent)?;
        waited?;
        let told = if silent {
            ", of which its interface does not know,"
        } else {
            ""
        };
        let hold = show_ns(hold.as_nanos());
        Ok(Hit {
            fired: after > before,
            ..Hit::new(format!(
                "link of replica {victim} with packets of {bytes} of {usual} bytes{told} for {hold}"
            ))
        })
    }

    /// Has the victim's disk hang for a while.
    pub(super) fn hang_disk(
        &mut self,
        clock: &mut Clock,
        victim: usize,
        hold: Nanos,
    ) -> Result<Hit, Failure> {
        let (disk, below) = (
            &self.sandbox.disks[victim - 1],
            &self.sandbox.below[victim - 1],
        );
        let hang = Hang::begin(disk, below)?;
        let waited = self.wait_until(clock, now() + hold);
        let fired = hang.has_waiting_writes();
        // It ends even if the wait was cut short: a process that waits for a disk cannot end.
        hang.end()?;
        waited?;
        let hold = show_ns(hold.as_nanos());
        Ok(Hit {
            fired,
            ..Hit::new(format!("disk of replica {victim} hung for {hold}"))
        })
    }

    /// Gives the victim another address. With `under` its interface changes while it still runs. The others' names follow at
    /// once or, with `late`, after a while.
    pub(super) fn readdress(
        &mut self,
        clock: &mut Clock,
        victim: usize,
        hold: Nanos,
        under: bool,
        late: bool,
    ) -> Result<Hit, Failure> {
        let old = self.group.addresses()[victim - 1];
        let new = sandbox::next_address(old);
        let change = || sandbox::readdress(victim, old.ip(), new.ip());
        if under {
            change()?;
        }
        self.stop(victim)?;
        if !under {
            change()?;
        }
        self.group.move_to(victim, new);
        self.names()?.tell(victim, self.group.addresses())?;
        if !late {
            self.tell_names()?;
        }
        self.group.restart(victim).map_err(group::live_failure)?;
        self.wait_until(clock, now() + hold)?;
        self.tell_names()?;
        let under = if under { ", its interface first" } else { "" };
        let late = match late {
            true => format!(", names followed after {}", show_ns(hold.as_nanos())),
            false => String::new(),
        };
        let (old, new) = (old.ip(), new.ip());
        Ok(Hit::new(format!(
            "replica {victim} moved from {old} to {new}{under}{late}"
        )))
    }

    /// Breaks the names for a while, and starts the victim again meanwhile. The others need none.
    pub(super) fn misname(
        &mut self,
        clock: &mut Clock,
        victim: usize,
        hold: Nanos,
        how: Misnaming,
    ) -> Result<Hit, Failure> {
        let addresses = self.group.addresses().to_vec();
        for node_id in 1..=addresses.len() {
            self.names()?.damage(node_id, &addresses, how)?;
        }
        self.stop(victim)?;
        self.group.restart(victim).map_err(group::live_failure)?;
        // Only then the start has met the broken names, however slow this machine is.
        let until = now() + Nanos::from(END_LIMIT);
        let mut waits = false;
        while !waits && now() < until {
            self.wait_until(clock, now() + Nanos::from(POLL_INTERVAL))?;
            let said = self.group.process(victim).ok_or_else(is_down)?.tail();
            waits = said.iter().any(|line| line.contains(NOT_YET));
        }
        self.wait_until(clock, now() + hold)?;
        self.tell_names()?;
        let how = match how {
            Misnaming::Fails => "failed",
            Misnaming::Late => "were not answered",
            Misnaming::Lies => "lied",
        };
        let hold = show_ns(hold.as_nanos());
        Ok(Hit {
            fired: waits,
            ..Hit::new(format!(
                "names {how}, and replica {victim} was started meanwhile and waited for {hold}"
            ))
        })
    }

    /// Tells all replicas where each of them is.
    fn tell_names(&self) -> Result<(), Failure> {
        let addresses = self.group.addresses();
        (1..=addresses.len()).try_for_each(|node_id| self.names()?.tell(node_id, addresses))
    }

    fn names(&self) -> Result<&Names, Failure> {
        let names = self.sandbox.names.as_ref();
        names.ok_or_else(|| Failure::usage("the run has no names", ""))
    }
}
