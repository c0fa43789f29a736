//! Faults of the ordinary world around a replica: what its link carries, a disk that hangs.

use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::units::show_ns;
use trine_transport::time::Duration as Nanos;

use super::{Clock, Hit, Nemesis};
use crate::disks::Hang;
use crate::{now, sandbox};

/// What every path carries.
const LEAST_LINK_BYTES: u32 = 1_280;

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
}
