//! What only groups with backups have: the machine that takes them, the log that their files are compared with, and the
//! judgement.

use super::{Cluster, POOL_BYTES};
use crate::checker::Verdict;
use crate::sim::Host;
use crate::sim::backups::{
    BackingUp, BackupCounts, BackupTurn, Candidate, FROM_LEADER, Job, Ledger,
};
use crate::sim::keys::KeyOf;
use crate::sim::member::Member;
use crate::sim::watchers::acknowledged;
use std::cell::RefCell;
use std::rc::Rc;
use trine_client::{ClientConfig, Clients};
use trine_protocol::message::RoleCode;
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::prng::Prng;
use trine_transport::session::Identity;
use trine_transport::time::{Duration, Instant};

/// Between two backups, at most; and between two processes of one.
const PAUSE: Duration = Duration::from_secs(2);
const PROCESS_PAUSE: Duration = Duration::from_millis(300);

/// The backups of a group.
pub(crate) struct BackedUp {
    pub(super) ledger: Rc<RefCell<Ledger>>,
    /// Apart from all others: the same backups come whatever else happens.
    prng: Prng,
    /// Where the machine is.
    pub(super) host: Host,
    /// What the next process is to do, and when it starts.
    next: Option<(Job, BackupTurn)>,
    at: Instant,
}

impl BackedUp {
    pub(super) fn new(seed: u64, host: Host) -> Self {
        Self {
            ledger: Rc::default(),
            prng: Prng::new(seed ^ 0x00ba_c405_00ba_c405),
            host,
            next: None,
            at: Instant::ZERO,
        }
    }

    fn pause(&mut self, now: Instant, most: Duration) {
        self.at = now + Duration::from_nanos(self.prng.below(most.as_nanos()));
    }
}

impl Cluster {
    /// One process follows on another, and one backup on another.
    pub(super) fn attend_backups(&mut self) {
        // It goes back when this is done.
        let Some(mut backed_up) = self.backed_up.take() else {
            return;
        };
        let now = self.world.now();
        match self.world.program(backed_up.host) {
            Some(Member::BackingUp(process)) if process.is_over() => {
                self.follow_process(&mut backed_up, now);
            }
            Some(_) => {}
            None if backed_up.at <= now => self.start_process(&mut backed_up),
            None => {}
        }
        self.backed_up = Some(backed_up);
    }

    fn follow_process(&mut self, backed_up: &mut BackedUp, now: Instant) {
        let Some(Member::BackingUp(process)) = self.world.kill(backed_up.host) else {
            return;
        };
        let survey = |prng: &mut Prng| self.candidates(prng);
        let (job, next) = process.follow(&mut backed_up.ledger.borrow_mut(), survey);
        match next {
            BackupTurn::Over => backed_up.pause(now, PAUSE),
            next => {
                backed_up.pause(now, PROCESS_PAUSE);
                backed_up.next = Some((job, next));
            }
        }
    }

    /// The replicas to ask, in order: followers that have applied most come first, and mostly the leader comes last.
    fn candidates(&self, prng: &mut Prng) -> Vec<Candidate> {
        let leader = self.leader().map(|(host, _)| host);
        let leader_first = prng.chance(FROM_LEADER);
        let mut found: Vec<(bool, u64, Candidate)> = Vec::new();
        for (host, machine) in self.world.machines() {
            let Some(replica) = machine.program.replica().map(|node| node.replica()) else {
                continue;
            };
            let discovery = replica.discovery();
            let has_state = matches!(
                discovery.role,
                RoleCode::Leader | RoleCode::Follower | RoleCode::Learner
            );
            if !has_state || replica.halted().is_some() || discovery.cluster.is_none() {
                continue;
            }
            let leads = leader == Some(host);
            let candidate = Candidate {
                host,
                incarnation: discovery.incarnation,
                cluster: discovery.cluster,
                leads,
            };
            let applied = replica.applied_state().map_or(0, |(index, _)| index);
            found.push((leads != leader_first, u64::MAX - applied, candidate));
        }
        found.sort_by_key(|&(comes_last, lag, candidate)| (comes_last, lag, candidate.host));
        found
            .into_iter()
            .map(|(_, _, candidate)| candidate)
            .collect()
    }

    fn start_process(&mut self, backed_up: &mut BackedUp) {
        let (job, next) = backed_up.next.take().unwrap_or_else(|| {
            let told = acknowledged(&self.history.borrow());
            (
                Job::new(told >> 16, backed_up.prng.fork()),
                BackupTurn::Position,
            )
        });
        let clock = self.world.fresh_clock();
        let pool = Pool::new(PoolConfig {
            bytes_max: POOL_BYTES,
        });
        let seed = self.prng.next_u64();
        let clients = || {
            let config = ClientConfig::new(self.addresses());
            let clients = Clients::new(config, self.route_of(), pool.clone(), seed);
            clients.expect("the simulated settings are sound")
        };
        let process = BackingUp::new(job, next, clients, self.world.now());
        let identity = Identity {
            cluster: 0,
            incarnation: self.prng.next_u64() | 1,
        };
        let endpoint = self.endpoint(pool, identity, KeyOf::Holder);
        let program = Member::BackingUp(Box::new(process));
        self.world.start(backed_up.host, endpoint, program, clock);
    }

    /// Each whole file is the state of its position.
    pub(crate) fn backup_verdict(&self) -> Verdict {
        let backed_up = self.backed_up.as_ref();
        backed_up.map_or(Verdict::Pass, |backed_up| {
            backed_up.ledger.borrow().verdict()
        })
    }

    /// How many backups there were.
    pub(crate) fn backup_counts(&self) -> BackupCounts {
        let backed_up = self.backed_up.as_ref();
        backed_up.map_or_else(BackupCounts::default, |backed_up| {
            backed_up.ledger.borrow().counts
        })
    }

    /// The last whole file, if there is one.
    pub(crate) fn last_backup(&self) -> Option<Vec<u8>> {
        let backed_up = self.backed_up.as_ref()?;
        backed_up.ledger.borrow().last.clone()
    }
}
