//! What only sealed groups have: key files that change, users who come and go, an attacker on the network, and the
//! judgement of all that.

use super::{Cluster, POOL_BYTES};
use crate::checker::Verdict;
use crate::fault::Fault;
use crate::sim::Host;
use crate::sim::forger::Forger;
use crate::sim::keeper::{Keeper, USERS_MAX};
use crate::sim::keys::{GroupKeys, KeyOf};
use crate::sim::member::Member;
use crate::sim::trust::Ledger;
use crate::sim::users::User;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use trine_client::{ClientConfig, Clients};
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::prng::Prng;
use trine_transport::session::Identity;
use trine_transport::time::Duration;

/// How long the holder of a void key goes on asking.
const GRACE: Duration = Duration::from_secs(2);

/// The keys and the users of a sealed group.
pub(crate) struct Trust {
    pub(super) keys: GroupKeys,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    /// Apart from all others: the same users come whatever else happens.
    prng: Prng,
    /// The grant of the user at each of their machines.
    seats: [Option<usize>; USERS_MAX],
    /// Changes of users that were counted.
    counted: u64,
}

impl Trust {
    pub(crate) fn new(seed: u64, replicas: usize) -> Self {
        Self {
            keys: GroupKeys::new(seed, replicas),
            ledger: Rc::default(),
            prng: Prng::new(seed ^ 0x0053_e250_0053_e250),
            seats: [None; USERS_MAX],
            counted: 0,
        }
    }
}

impl Cluster {
    /// Starts what the faults of sealed groups need.
    pub(crate) fn prepare_for(&mut self, enabled: &BTreeSet<Fault>) {
        if self.trust.is_none() {
            return;
        }
        if enabled.contains(&Fault::Forged) {
            self.world.forger = Some(Forger::new(self.config.seed));
        }
        if enabled.contains(&Fault::Users) {
            self.start_keeper();
        }
    }

    fn keeper_host(&self) -> Host {
        Host((self.config.topology().machines() + self.config.replicas) as u16)
    }

    fn user_host(&self, seat: usize) -> Host {
        Host(self.keeper_host().0 + 1 + seat as u16)
    }

    fn start_keeper(&mut self) {
        let Some(trust) = &mut self.trust else {
            return;
        };
        let (prng, ledger) = (trust.prng.fork(), Rc::clone(&trust.ledger));
        let host = self.keeper_host();
        let now = self.world.now();
        self.start_client(host, KeyOf::Holder, |clients| {
            let keeper = Keeper::new(clients, ledger, prng, now)?;
            Some(Member::Keeper(Box::new(keeper)))
        });
    }

    fn start_user(&mut self, seat: usize, number: usize) {
        let Some(trust) = &mut self.trust else {
            return;
        };
        let (prng, ledger) = (trust.prng.fork(), Rc::clone(&trust.ledger));
        trust.seats[seat] = Some(number);
        let (name, generation) = {
            let ledger = ledger.borrow();
            let grant = ledger.grant(number);
            (grant.name, grant.generation)
        };
        let host = self.user_host(seat);
        let now = self.world.now();
        self.start_client(host, KeyOf::User(name, generation), |clients| {
            let user = User::new(clients, number, ledger, prng, now)?;
            Some(Member::User(Box::new(user)))
        });
    }

    fn start_client(
        &mut self,
        host: Host,
        whose: KeyOf,
        program: impl FnOnce(Clients<Host>) -> Option<Member>,
    ) {
        let clock = self.world.fresh_clock();
        let pool = Pool::new(PoolConfig {
            bytes_max: POOL_BYTES,
        });
        let config = ClientConfig::new(self.addresses());
        let seed = self.prng.next_u64();
        let clients = Clients::new(config, self.route_of(), pool.clone(), seed);
        let clients = clients.expect("the simulated settings are sound");
        let identity = Identity {
            cluster: 0,
            incarnation: self.prng.next_u64() | 1,
        };
        let endpoint = self.endpoint(pool, identity, whose);
        if let Some(program) = program(clients) {
            self.world.start(host, endpoint, program, clock);
        }
    }

    /// Users whose keys have been void for a while go, and those who have got one come.
    pub(crate) fn attend_users(&mut self) {
        if self.trust.is_none() {
            return;
        }
        self.count_changes();
        for seat in 0..USERS_MAX {
            self.dismiss_user(seat);
            if let Some(number) = self.next_to_start(seat) {
                self.start_user(seat, number);
            }
        }
    }

    fn keeper(&mut self) -> Option<&mut Keeper> {
        match self.world.program_mut(self.keeper_host()) {
            Some(Member::Keeper(keeper)) => Some(keeper),
            _ => None,
        }
    }

    /// Nobody is at the machines of users any more, or administrates them.
    pub(super) fn forget_users(&mut self) {
        if let Some(trust) = &mut self.trust {
            trust.seats = [None; USERS_MAX];
            trust.counted = 0;
        }
    }

    fn count_changes(&mut self) {
        let done = self.keeper().map_or(0, |keeper| keeper.done);
        if let Some(trust) = &mut self.trust {
            for _ in trust.counted..done {
                self.world.network.stats.fire(Fault::Users);
            }
            trust.counted = done;
        }
    }

    fn dismiss_user(&mut self, seat: usize) {
        let (now, host) = (self.world.now(), self.user_host(seat));
        let Some(trust) = &mut self.trust else {
            return;
        };
        let Some(number) = trust.seats[seat] else {
            return;
        };
        let void_since = trust.ledger.borrow().void_since(number);
        if void_since.is_some_and(|since| since + GRACE < now) {
            trust.seats[seat] = None;
            self.world.kill(host);
        }
    }

    fn next_to_start(&mut self, seat: usize) -> Option<usize> {
        let trust = self.trust.as_ref()?;
        match trust.seats[seat] {
            Some(_) => None,
            None => self.keeper()?.next_to_start(),
        }
    }

    /// Begins to change the member root, unless a change is under way.
    pub(crate) fn begin_to_change_keys(&mut self) -> bool {
        let trust = self.trust.as_mut();
        trust.is_some_and(|trust| trust.keys.begin_change())
    }

    /// The next machine gets its next key file, and its replica is told to read it. False if there is none.
    pub(crate) fn change_keys_further(&mut self) -> bool {
        let next = self.trust.as_mut().and_then(|trust| trust.keys.go_on());
        let Some((host, keys)) = next else {
            return false;
        };
        let places: Vec<Host> = self.machines_of(host);
        let now = self.world.now();
        let note = || format!("{host} reads its next key file");
        self.world.trace.note(now, note);
        for place in places {
            let keys = keys.clone();
            self.world
                .with_endpoint(place, |endpoint, local| endpoint.change_keys(local, keys));
        }
        true
    }

    /// How many calls of users were answered, and how many were denied.
    pub(crate) fn users_calls(&self) -> (u64, u64) {
        self.trust.as_ref().map_or((0, 0), |trust| {
            let ledger = trust.ledger.borrow();
            (ledger.answered, ledger.denied)
        })
    }

    /// Nobody got more than its rights, and nobody less.
    pub(crate) fn trust_verdict(&self) -> Verdict {
        let Some(trust) = &self.trust else {
            return Verdict::Pass;
        };
        if let Some(wrong) = trust.ledger.borrow().wrong() {
            return Verdict::violation(wrong);
        }
        for (host, machine) in self.world.machines() {
            if host.index() >= self.config.replicas {
                continue;
            }
            let mut keys = machine.endpoint.sealed_sessions().map(|(_, key)| key);
            if let Some(key) = keys.find(|key| !trust.keys.knows(host, key)) {
                return Verdict::violation(format!(
                    "trust: {host} has a session of the key {key:?}, which its file does not have"
                ));
            }
        }
        Verdict::Pass
    }
}
