//! A group that begins with the last backup of another one, on the same machines and at the same addresses.
//!
//! The old group has died as a whole, amid the calls of its clients. They go on calling, and packets that they have sent
//! arrive at the new group.

use super::{Cluster, Leaders, Upgrades, disk_options, node_id_of};
use crate::checker::Verdict;
use crate::checker::backups::{Beginning as Began, RESTORED, judge_beginning, judge_two_lives};
use crate::checker::changes::walk;
use crate::history::{Action, Answer, History};
use crate::sim::Host;
use crate::sim::backups::content_of;
use crate::sim::disk::SimDisk;
use crate::sim::member::Member;
use crate::workload::Workload;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use trine_kvstore::Store;
use trine_protocol::message::{
    AdminCommand, ClusterId, Incarnation, Member as GroupMember, MemberRole,
};
use trine_replica::backup::{Content, TimeToLive, restore, restore_in_memory};
use trine_replica::disk::Restored;

/// What came of a restore: the entry that the new group's log goes on behind, or what is wrong.
type Outcome = Rc<RefCell<Option<Result<u64, String>>>>;

/// What the first replica of a new group is to begin with.
pub(crate) struct Beginning {
    content: Content,
    /// The same, read from the file once more.
    expected: Content,
    cluster: ClusterId,
    outcome: Outcome,
}

/// What it has begun with.
pub(crate) struct Begun {
    expected: Content,
    /// Of a group in memory.
    restored: Option<Restored>,
    outcome: Outcome,
}

impl Begun {
    /// Compares the state with that of the backup.
    pub(super) fn judge(&self, restored: &Restored) {
        let store = restored.store().ok_or("it has no state".to_owned());
        let judged = store.and_then(|store| judge_beginning(self.expected.store(), store));
        if let Err(wrong) = judged {
            *self.outcome.borrow_mut() = Some(Err(wrong));
        }
    }

    pub(super) fn in_memory(self) -> Option<Restored> {
        self.judge(self.restored.as_ref()?);
        self.restored
    }
}

/// The old group's part in the judgement of the new one.
pub(crate) struct OldLife {
    history: Rc<RefCell<History>>,
    began: Began,
}

impl OldLife {
    /// The two groups share no position, and no client.
    pub(crate) fn verdict(&self, restored: &History) -> Verdict {
        judge_two_lives(&self.history.borrow(), restored, self.began)
    }
}

impl Cluster {
    /// The clients of a run that was judged call again, under what was recorded of it.
    pub(crate) fn resume_callers(&mut self, history: &History) {
        *self.history.borrow_mut() = history.clone();
        let hosts: Vec<Host> = self.caller_hosts().collect();
        for host in hosts {
            if let Some(callers) = self.world.program_mut(host).and_then(Member::callers_mut) {
                callers.resume();
            }
            self.world.poke(host);
        }
    }

    /// Ends this group, and begins another one with the state of a backup.
    ///
    /// # Errors
    /// What is wrong with how it begins.
    pub(crate) fn restored(mut self, file: &[u8]) -> Result<(Self, OldLife), String> {
        self.end_group();
        let history = std::mem::take(&mut self.history);
        let mut new = self.without_history();
        let read = || content_of(file).map_err(|error| error.to_string());
        let (content, expected) = (read()?, read()?);
        new.record_state(content.store());
        let outcome = Outcome::default();
        new.beginning = Some(Beginning {
            content,
            expected,
            cluster: ClusterId(new.prng.next_u64() | 1),
            outcome: Rc::clone(&outcome),
        });
        for host in new.replica_hosts() {
            new.start_replica(host, false);
        }
        let begun = outcome.borrow_mut().take();
        let index = begun.unwrap_or_else(|| Err("no replica has begun with it".to_owned()))?;
        // As an operator does: the first replica is the only member.
        for host in new.replica_hosts().skip(1) {
            new.run_admin(host, AdminCommand::Add { voter: true });
        }
        for machine in 0..new.config.client_machines {
            new.start_callers(machine);
        }
        let began = Began {
            at_ns: new.world.now().as_nanos(),
            first: index << 16,
        };
        Ok((new, OldLife { history, began }))
    }

    /// All replicas die at once, and all machines go but those of clients, which get other addresses.
    fn end_group(&mut self) {
        let callers: BTreeSet<Host> = self.caller_hosts().collect();
        let all: Vec<Host> = self.world.machines().map(|(host, _)| host).collect();
        for host in all.into_iter().filter(|host| !callers.contains(host)) {
            self.kill(host);
        }
        if let Some(backed_up) = &self.backed_up {
            let places = (backed_up.host.0 + 1..).map(Host);
            for (host, place) in callers.into_iter().zip(places) {
                self.world.readdress(host, place);
            }
        }
        self.forget_users();
        self.world.count_anew();
    }

    /// The same machines, with new disks, and nothing that has happened to them.
    fn without_history(mut self) -> Self {
        for disk in self.disks.values_mut() {
            *disk = SimDisk::new(self.prng.fork());
        }
        self.config.first_state_version = self.config.replica.state_version;
        Self {
            history: Rc::default(),
            counts: Rc::default(),
            repeated: Rc::default(),
            log: Rc::default(),
            leaders: Leaders::default(),
            jumps_ns: Vec::new(),
            leaving: BTreeSet::new(),
            rejoining: BTreeSet::new(),
            incarnations: BTreeMap::new(),
            upgrades: Upgrades::new(self.config.seed),
            seats: Rc::default(),
            watched: None,
            backed_up: None,
            is_restored: true,
            ..self
        }
    }

    /// What the backup holds was written before anything else in the new group.
    fn record_state(&mut self, store: &Store) {
        let keys: BTreeSet<Vec<u8>> = Workload::keys(&self.config.workload).into_iter().collect();
        let now_ns = self.world.now().as_nanos();
        let mut history = self.history.borrow_mut();
        walk(store, |key, value, version, remaining_ns| {
            if keys.contains(key) {
                let version = version.as_u64();
                let (action, answer) = writing(value, version, remaining_ns);
                let index = history.call(RESTORED, now_ns, key, action);
                history.complete(index, now_ns, answer, Some(version));
            }
        });
    }

    /// Makes the state, or in disk mode the directory, that the first replica begins with.
    pub(super) fn restore(
        &mut self,
        beginning: Beginning,
        host: Host,
        incarnation: Incarnation,
    ) -> Begun {
        let Beginning {
            content,
            expected,
            cluster,
            outcome,
        } = beginning;
        let member = GroupMember {
            node_id: node_id_of(host),
            role: MemberRole::Voter,
            incarnation,
            address: host.address(),
        };
        let ttl = TimeToLive::Stands;
        let made = match &self.config.disk {
            None => restore_in_memory(content, cluster, member, ttl)
                .map(|(begun, restored)| (begun, Some(restored))),
            Some(config) => {
                let options = disk_options(config, host, incarnation);
                let disk = self.disks[&host].clone();
                let made = restore(disk.clone(), options, content, cluster, member, ttl);
                disk.settle();
                made.map(|begun| (begun, None))
            }
        };
        let (told, restored) = match made {
            Ok((begun, restored)) => (Ok(begun.index), restored),
            Err(error) => (Err(error.to_string()), None),
        };
        *outcome.borrow_mut() = Some(told);
        Begun {
            expected,
            restored,
            outcome,
        }
    }
}

/// How an item of a backup is recorded. A number that does not expire was counted: another one may come to the same.
fn writing(value: &[u8], version: u64, remaining_ns: Option<u64>) -> (Action, Answer) {
    let number = std::str::from_utf8(value).ok();
    let number = number.and_then(|text| text.parse::<i64>().ok());
    let version = Some(version);
    let value = value.to_vec();
    match (remaining_ns, number) {
        (Some(ttl_ns), _) => {
            let action = Action::PutFor { value, ttl_ns };
            (action, Answer::Written { version })
        }
        (None, Some(value)) => {
            let action = Action::Incr { by: value };
            (action, Answer::Number { value, version })
        }
        (None, None) => (Action::Put { value }, Answer::Written { version }),
    }
}
