//! What only groups with watchers have: machines that watch, the log that their streams are compared with, and the
//! judgement at the end.

use super::{Cluster, POOL_BYTES};
use crate::checker::Verdict;
use crate::sim::Host;
use crate::sim::config::RECOVERY;
use crate::sim::keys::KeyOf;
use crate::sim::member::Member;
use crate::sim::watchers::{Ledger, SEATS, WatchCounts, Watching};
use crate::workload::Workload;
use std::cell::RefCell;
use std::rc::Rc;
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::prng::Prng;
use trine_transport::session::Identity;
use trine_transport::time::{Duration, Instant};

/// How long a stream of a group that has recovered may take to begin, and to tell a change.
const OVERDUE: Duration = Duration::from_secs(4);

/// The watchers of a group.
pub(crate) struct Watched {
    pub(super) ledger: Rc<RefCell<Ledger>>,
    /// Apart from all others: the same streams come whatever else happens.
    prng: Prng,
    /// Where the machines are.
    first: Host,
}

impl Watched {
    pub(super) fn new(seed: u64, first: Host) -> Self {
        Self {
            ledger: Rc::default(),
            prng: Prng::new(seed ^ 0x003a_7c45_003a_7c45),
            first,
        }
    }

    fn hosts(&self) -> impl Iterator<Item = Host> + use<> {
        let first = self.first.0;
        (first..first + SEATS as u16).map(Host)
    }
}

impl Cluster {
    /// A machine whose stream is over begins another one.
    pub(super) fn attend_watchers(&mut self) {
        let Some(watched) = &self.watched else {
            return;
        };
        for host in watched.hosts() {
            match self.world.program(host) {
                Some(Member::Watching(watching)) if !watching.is_over() => {}
                _ => self.start_watching(host),
            }
        }
    }

    fn start_watching(&mut self, host: Host) {
        let (addresses, now) = (self.addresses(), self.world.now());
        let keys = Workload::keys(&self.config.workload);
        let wants_notes = self.world.trace.is_on();
        let Some(watched) = &mut self.watched else {
            return;
        };
        let ledger = Rc::clone(&watched.ledger);
        let prng = watched.prng.fork();
        let history = self.history.borrow();
        let watching = Watching::new(
            (addresses, &keys),
            (ledger, &history),
            prng,
            now,
            wants_notes,
        );
        drop(history);
        let clock = self.world.fresh_clock();
        let pool = Pool::new(PoolConfig {
            bytes_max: POOL_BYTES,
        });
        let identity = Identity {
            cluster: 0,
            incarnation: self.prng.next_u64() | 1,
        };
        let endpoint = self.endpoint(pool, identity, KeyOf::Holder);
        let program = Member::Watching(Box::new(watching));
        self.world.start(host, endpoint, program, clock);
    }

    /// Each stream told exactly what has changed. At the end of a whole run none waits any more, once the group has had
    /// its time to recover.
    pub(crate) fn watch_verdict(&self, quiet_from: Instant, ended_at: Instant) -> Verdict {
        let Some(watched) = &self.watched else {
            return Verdict::Pass;
        };
        let told = watched.ledger.borrow().verdict();
        if ended_at < quiet_from + RECOVERY + OVERDUE {
            return told;
        }
        let latest = Instant::from_nanos((ended_at.as_nanos()) - OVERDUE.as_nanos());
        let overdue = watched.hosts().find_map(|host| {
            let Some(Member::Watching(watching)) = self.world.program(host) else {
                return None;
            };
            let what = watching.overdue(latest)?;
            Some(Verdict::violation(format!(
                "not live: {host}: {what}, {OVERDUE:?} after that"
            )))
        });
        told.and(overdue.unwrap_or(Verdict::Pass))
    }

    /// What the watchers were told.
    pub(crate) fn watch_counts(&self) -> WatchCounts {
        let watched = self.watched.as_ref();
        watched.map_or_else(WatchCounts::default, |watched| {
            watched.ledger.borrow().counts
        })
    }
}
