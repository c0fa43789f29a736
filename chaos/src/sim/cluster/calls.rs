//! What a machine of clients calls beside its operations.

use super::Cluster;
use crate::sim::bursts::Bursts;
use crate::sim::callers::Callers;
use crate::sim::config::OrderedFrom;
use crate::sim::copies::Copies;
use crate::sim::counts::Counts;
use crate::sim::ranges::Ranges;
use crate::sim::repeats::Repeats;
use crate::workload::Workload;
use std::rc::Rc;
use trine_transport::buf::Pool;
use trine_transport::time::Instant;

impl Cluster {
    /// Adds the kinds of calls that this run has.
    pub(super) fn add_calls(&self, callers: &mut Callers, pool: &Pool) {
        if let Some(from) = self.config.ordered {
            let seed = self.config.seed ^ (self.clients_made + 1).wrapping_mul(0x5ca9_5ca9_5ca9);
            callers.call_ranges(Ranges::new(seed, from == OrderedFrom::Clients), seed);
            if self.config.counts {
                let keys = Workload::keys(&self.config.workload);
                callers.count_ranges(Counts::new(keys, Rc::clone(&self.counts), seed));
            }
        }
        if self.config.bursts {
            callers.write_bursts(Bursts::new(self.config.seed ^ self.clients_made));
        }
        if self.config.copies {
            let until = Instant::ZERO + self.config.forming + self.config.faulty;
            callers.copy(Copies::new(self.config.seed ^ self.clients_made, until));
        }
        if self.config.repeats {
            let seed = self.config.seed ^ self.clients_made;
            let shared = Rc::clone(&self.repeated);
            callers.repeat(Repeats::new(shared, pool.clone(), seed));
        }
        if self.config.walks {
            let keys = Workload::keys(&self.config.workload);
            callers.walk_over(keys, self.config.seed ^ self.clients_made);
        }
    }
}
