//! Plays a schedule of faults on a cluster.

use super::Host;
use super::cluster::Cluster;
use super::disk::CALM;
use super::network::Cut;
use crate::fault::{Event, Fault, Schedule, Victim};
use std::collections::{BTreeMap, BTreeSet};
use trine_protocol::message::AdminCommand;
use trine_replica::disk::DiskCause;
use trine_transport::time::{Duration, Instant};

/// How often the cluster is checked.
const PROBE: Duration = Duration::from_millis(5);

/// Time until a replica that could not start, or has ended by itself, is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(200);
/// How often a stopping replica is asked whether it has stopped.
const STOPPED_POLL: Duration = Duration::from_millis(20);

/// How long a leader stays cut off after its pause.
const APART: Duration = Duration::from_millis(300);
/// How long a command to transfer leadership is watched, and how often.
const HANDOVER: Duration = Duration::from_millis(20);
const HANDOVER_POLL: Duration = Duration::from_micros(20);

/// How much longer a run may take whose faults kept it from the number of operations that it has to show.
const LONGER_MAX: Duration = Duration::from_secs(30);

/// The end of a fault.
enum End {
    Heal(u64),
    Restart(Host),
    DiskHeals(Host),
    /// A new process replaces a member that was removed.
    Rejoin(Host),
    /// Until the moment given: as soon as leadership is being transferred, the leader is cut off for the span.
    CutOld(Instant, Duration),
    /// A stopping replica dies as soon as it may; it is down for the span.
    Kill(Host, Duration),
}

pub(crate) struct Chaos {
    ends: BTreeMap<(Instant, u64), End>,
    number: u64,
}

impl Chaos {
    pub(crate) fn new() -> Self {
        Self {
            ends: BTreeMap::new(),
            number: 0,
        }
    }

    /// Plays all events of the schedule, and takes every fault away at its end.
    pub(crate) fn play(&mut self, cluster: &mut Cluster, schedule: &Schedule) {
        for (at, event) in &schedule.events {
            self.run_until(cluster, *at);
            if cluster.ended_early {
                return;
            }
            cluster
                .world
                .trace
                .note(*at, || format!("fault: {event:?}"));
            self.apply(cluster, event);
        }
        self.run_until(cluster, schedule.quiet_from);
        self.end_all(cluster);
    }

    /// Runs the quiet time, and longer as long as too few operations were answered.
    pub(crate) fn rest(&mut self, cluster: &mut Cluster, quiet_from: Instant) {
        let quiet_until = quiet_from + cluster.config.quiet;
        self.run_until(cluster, quiet_until);
        let completed = |cluster: &Cluster| cluster.history.borrow().tally().completed;
        while completed(cluster) < cluster.config.operations_min
            && cluster.world.now() < quiet_until + LONGER_MAX
            && cluster.goes_on()
        {
            let step = cluster.world.now() + Duration::from_secs(1);
            self.run_until(cluster, step);
        }
    }

    /// Runs the cluster, ends faults when they are due, and checks the cluster all the time.
    pub(crate) fn run_until(&mut self, cluster: &mut Cluster, until: Instant) {
        while cluster.world.now() < until && cluster.goes_on() {
            let due = self.ends.keys().next().map_or(until, |&(at, _)| at);
            let next = due.min(until).min(cluster.world.now() + PROBE);
            cluster.world.run_until(next);
            self.end_due(cluster);
            cluster.probe();
            self.bury_halted(cluster);
        }
    }

    fn end_due(&mut self, cluster: &mut Cluster) {
        let now = cluster.world.now();
        while let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 <= now) {
            let end = entry.remove();
            self.end(cluster, &end);
        }
    }

    fn end_all(&mut self, cluster: &mut Cluster) {
        cluster
            .world
            .trace
            .note(cluster.world.now(), || "all faults end".to_owned());
        for end in std::mem::take(&mut self.ends).into_values() {
            if !matches!(end, End::CutOld(..)) {
                self.end(cluster, &end);
            }
        }
        cluster.heal_disks();
        cluster.world.network.calm();
    }

    fn end(&mut self, cluster: &mut Cluster, end: &End) {
        match end {
            End::Heal(number) => cluster.world.network.heal(*number),
            // An operator may have replaced the member meanwhile; the replica that runs there must not lose its memory
            // unasked.
            End::Restart(host) if cluster.world.program(*host).is_some() => {}
            End::Restart(host) => {
                if !cluster.start_replica(*host, false) {
                    self.end_later(cluster, RESTART_PAUSE, End::Restart(*host));
                }
            }
            End::DiskHeals(host) => {
                if let Some(mut device) = cluster.device(*host) {
                    device.full = false;
                    device.latency = CALM;
                }
            }
            End::Rejoin(host) => self.rejoin(cluster, *host),
            End::CutOld(until, span) => self.cut_old(cluster, *until, *span),
            // It died meanwhile of another fault, which has it started again; the replica that runs there now was not
            // told to stop.
            End::Kill(host, _) if !cluster.is_stopping(*host) => {}
            End::Kill(host, span) if cluster.is_stopped(*host) && may_die(cluster, *host) => {
                cluster.kill_replica(*host, false);
                self.end_later(cluster, *span, End::Restart(*host));
            }
            End::Kill(host, span) => {
                let (stopped, spared) = (cluster.is_stopped(*host), may_die(cluster, *host));
                cluster.world.trace.note(cluster.world.now(), || {
                    format!("{host} is to die: stopped {stopped}, can be spared {spared}")
                });
                self.end_later(cluster, STOPPED_POLL, End::Kill(*host, *span));
            }
        }
    }

    fn end_later(&mut self, cluster: &Cluster, span: Duration, end: End) {
        self.number += 1;
        self.ends
            .insert((cluster.world.now() + span, self.number), end);
    }

    // Long because each kind of event has an arm.
    fn apply(&mut self, cluster: &mut Cluster, event: &Event) {
        match event {
            Event::LinkFaults(link_faults) => cluster.world.network.set_link_faults(*link_faults),
            Event::Partition { side, span } => {
                self.cut(
                    cluster,
                    *span,
                    Cut::Partition(side.iter().map(|&machine| host(machine)).collect()),
                );
            }
            Event::IsolateLeader { with_clients, span } => {
                self.isolate_leader(cluster, *with_clients, *span)
            }
            Event::OneWay { from, to, span } => {
                self.cut(cluster, *span, Cut::OneWay(host(*from), host(*to)))
            }
            Event::Clog { from, to, span } => {
                let until = cluster.world.now() + *span;
                cluster.world.network.clog(host(*from), host(*to), until);
            }
            Event::Crash { victim, span } => self.crash(cluster, *victim, *span),
            Event::Blackout { span } => self.blackout(cluster, *span),
            Event::DiskSlow {
                victim,
                latency,
                span,
            } => self.slow_disk(cluster, *victim, *latency, *span),
            Event::DiskTorn { victim, span } => self.tear(cluster, *victim, *span),
            Event::DiskCorrupt { victim, span } => self.corrupt(cluster, *victim, *span),
            Event::DiskFull { victim, span } => self.fill_disk(cluster, *victim, *span),
            Event::ProcessKill { victim, span } => self.kill_process(cluster, *victim, *span),
            Event::DiskError { victim, full } => {
                let cause = if *full {
                    DiskCause::Full
                } else {
                    DiskCause::Device
                };
                break_disk(cluster, *victim, cause);
            }
            Event::Stop { victim, span } => self.stop(cluster, *victim, *span),
            Event::Pause { victim, span } => {
                let Some(host) = resolve(cluster, *victim) else {
                    return;
                };
                fire_if(cluster, Fault::Pause, |cluster| {
                    cluster.world.pause(host, *span)
                });
            }
            Event::PauseApart { span } => {
                let Some((leader, _)) = cluster.leader() else {
                    return;
                };
                self.isolate_leader(cluster, true, *span + APART);
                fire_if(cluster, Fault::Pause, |cluster| {
                    cluster.world.pause(leader, *span)
                });
            }
            Event::Transfer { to, .. } if cluster.is_leaving(host(*to)) => {}
            Event::Transfer { to, apart, span } => {
                cluster.run_admin(host(*to), AdminCommand::TransferLeadership);
                cluster.world.network.stats.fire(Fault::Transfer);
                if *apart {
                    let until = cluster.world.now() + HANDOVER;
                    self.end_later(cluster, HANDOVER_POLL, End::CutOld(until, *span));
                }
            }
            // A disk keeps the identity of its replica: a process there is not a new member.
            Event::Remove { .. } | Event::Replace { .. } if cluster.config.disk.is_some() => {}
            Event::Remove { node_id, .. } if !cluster.begins_to_leave(host(*node_id)) => {}
            Event::Remove { node_id, span } => {
                cluster.run_admin(host(*node_id), AdminCommand::Remove);
                cluster.world.network.stats.fire(Fault::Members);
                self.end_later(cluster, *span, End::Rejoin(host(*node_id)));
            }
            Event::Replace { node_id } => self.replace(cluster, host(*node_id)),
            Event::Drift {
                machine,
                parts_per_million,
            } => fire_if(cluster, Fault::Drift, |cluster| {
                cluster.world.with_clock(host(*machine), |clock, now| {
                    clock.drift(now, *parts_per_million)
                })
            }),
            Event::Jump { machine, span } => fire_if(cluster, Fault::Jump, |cluster| {
                cluster.jump_clock(host(*machine), *span)
            }),
            Event::ClientCrash { machine } => {
                let host = cluster.caller_host(*machine);
                fire_if(cluster, Fault::ClientCrash, |cluster| {
                    cluster.world.kill(host).is_some()
                });
                cluster.start_callers(*machine);
            }
        }
    }

    fn cut(&mut self, cluster: &mut Cluster, span: Duration, cut: Cut) {
        self.end_later(cluster, span, End::Heal(self.number + 1));
        cluster.world.network.cut(self.number, cut);
    }

    fn isolate_leader(&mut self, cluster: &mut Cluster, with_clients: bool, span: Duration) {
        let Some((leader, _)) = cluster.leader() else {
            return;
        };
        let mut side = BTreeSet::from([leader]);
        if with_clients {
            side.insert(cluster.caller_host(0));
        }
        self.cut(cluster, span, Cut::Partition(side));
    }

    fn crash(&mut self, cluster: &mut Cluster, victim: Victim, span: Duration) {
        let Some(host) = resolve(cluster, victim) else {
            return;
        };
        if cluster.world.program(host).is_none() || !may_die(cluster, host) {
            return;
        }
        cluster.kill_replica(host, false);
        cluster.world.network.stats.fire(Fault::Crash);
        self.end_later(cluster, span, End::Restart(host));
    }
}

/// Faults of disks and of the files on them.
impl Chaos {
    fn blackout(&mut self, cluster: &mut Cluster, span: Duration) {
        if !cluster.keeps_memory() || !cluster.has_begun() {
            return;
        }
        cluster.world.network.stats.fire(Fault::Blackout);
        for host in cluster.replica_hosts() {
            if cluster.world.program(host).is_some() {
                cluster.kill_replica(host, false);
                self.end_later(cluster, span, End::Restart(host));
            }
        }
    }

    fn slow_disk(&mut self, cluster: &mut Cluster, victim: Victim, most: Duration, span: Duration) {
        let Some(host) = resolve(cluster, victim) else {
            return;
        };
        if let Some(mut device) = cluster.device(host) {
            device.latency = (Duration::from_micros(1_000), most);
        } else {
            return;
        }
        cluster.world.network.stats.fire(Fault::DiskSlow);
        self.end_later(cluster, span, End::DiskHeals(host));
    }

    fn tear(&mut self, cluster: &mut Cluster, victim: Victim, span: Duration) {
        let Some(host) = resolve(cluster, victim) else {
            return;
        };
        if cluster.world.program(host).is_none() || !may_die(cluster, host) {
            return;
        }
        cluster.kill_replica(host, true);
        cluster.world.network.stats.fire(Fault::DiskTorn);
        self.end_later(cluster, span, End::Restart(host));
    }

    /// Damage is loss of memory, so the group has to be able to spare the replica.
    fn corrupt(&mut self, cluster: &mut Cluster, victim: Victim, span: Duration) {
        let Some(host) = resolve(cluster, victim) else {
            return;
        };
        if cluster.world.program(host).is_none() || !cluster.survives_without(host) {
            return;
        }
        cluster.kill_replica(host, false);
        let damaged = cluster
            .device(host)
            .is_some_and(|mut device| device.corrupt());
        if damaged {
            cluster.world.network.stats.fire(Fault::DiskCorrupt);
        }
        self.end_later(cluster, span, End::Restart(host));
    }

    fn fill_disk(&mut self, cluster: &mut Cluster, victim: Victim, span: Duration) {
        if !cluster.keeps_memory() {
            return;
        }
        let Some(host) = resolve(cluster, victim) else {
            return;
        };
        if let Some(mut device) = cluster.device(host) {
            device.full = true;
        } else {
            return;
        }
        cluster.world.network.stats.fire(Fault::DiskFull);
        self.end_later(cluster, span, End::DiskHeals(host));
    }

    fn kill_process(&mut self, cluster: &mut Cluster, victim: Victim, span: Duration) {
        let Some(host) = resolve(cluster, victim) else {
            return;
        };
        if cluster.world.program(host).is_none() || !may_die(cluster, host) {
            return;
        }
        cluster.world.kill(host);
        let Some(mut device) = cluster.device(host) else {
            return;
        };
        device.lose_process();
        drop(device);
        cluster.world.network.stats.fire(Fault::ProcessKill);
        self.end_later(cluster, span, End::Restart(host));
    }

    /// The process of a halted replica would have ended, and been started again.
    fn bury_halted(&mut self, cluster: &mut Cluster) {
        if !cluster.keeps_memory() {
            cluster.refill_nodes();
            return;
        }
        for host in cluster.halted() {
            cluster
                .world
                .trace
                .note(cluster.world.now(), || format!("{host} has halted"));
            let failure = cluster.device(host).and_then(|device| device.failure());
            if let Some(fault) = failure {
                cluster.world.network.stats.fire(fault);
            }
            cluster.kill_replica(host, false);
            self.end_later(cluster, RESTART_PAUSE, End::Restart(host));
        }
    }
}

/// One of the next operations of a replica's disk fails.
fn break_disk(cluster: &mut Cluster, victim: Victim, cause: DiskCause) {
    if !cluster.keeps_memory() {
        return;
    }
    let running = |host: &Host| cluster.world.program(*host).is_some();
    if let Some(host) = resolve(cluster, victim).filter(running)
        && let Some(mut device) = cluster.device(host)
    {
        device.fail_soon(cause);
    }
}

/// Whether the group can recover if this replica dies now.
fn may_die(cluster: &Cluster, host: Host) -> bool {
    if cluster.keeps_memory() {
        return cluster.has_begun();
    }
    cluster.survives_without(host)
}

impl Chaos {
    /// Starts a new process with the node id of a member that was to be removed. If it was not removed, the next
    /// command changes nothing, and the process replaces its dead predecessor as after a crash.
    fn rejoin(&mut self, cluster: &mut Cluster, host: Host) {
        // It stays as it is while it cannot be spared: then the command finds a member, and changes nothing.
        let gone = cluster.world.program(host).is_none();
        if gone || cluster.is_no_voter(host) || cluster.survives_without(host) {
            cluster.world.kill(host);
            cluster.start_replica(host, false);
        }
        cluster.run_admin(host, AdminCommand::Add { voter: true });
    }

    fn replace(&mut self, cluster: &mut Cluster, host: Host) {
        let busy = cluster.world.program(host).is_none() || cluster.is_leaving(host);
        if busy || !cluster.survives_without(host) {
            return;
        }
        cluster.run_admin(host, AdminCommand::Replace);
        cluster.world.network.stats.fire(Fault::Members);
        cluster.world.kill(host);
        cluster.start_replica(host, false);
    }

    fn cut_old(&mut self, cluster: &mut Cluster, until: Instant, span: Duration) {
        if let Some(old) = cluster.handing_over() {
            let side = BTreeSet::from([old, cluster.caller_host(0)]);
            self.cut(cluster, span, Cut::Partition(side));
        } else if cluster.world.now() < until {
            self.end_later(cluster, HANDOVER_POLL, End::CutOld(until, span));
        }
    }

    fn stop(&mut self, cluster: &mut Cluster, victim: Victim, span: Duration) {
        let Some(host) = resolve(cluster, victim) else {
            return;
        };
        if cluster.is_stopping(host) || !may_die(cluster, host) || !cluster.stop(host) {
            return;
        }
        cluster.world.network.stats.fire(Fault::Stop);
        self.end_later(cluster, STOPPED_POLL, End::Kill(host, span));
    }
}

fn host(machine: usize) -> Host {
    Host(machine as u16)
}

fn resolve(cluster: &Cluster, victim: Victim) -> Option<Host> {
    match victim {
        Victim::Leader => cluster.leader().map(|(host, _)| host),
        Victim::Replica(index) => Some(host(index)),
    }
}

fn fire_if(cluster: &mut Cluster, fault: Fault, act: impl FnOnce(&mut Cluster) -> bool) {
    if act(cluster) {
        cluster.world.network.stats.fire(fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{SimConfig, Trace};
    use trine_protocol::message::NodeId;

    /// A replica that was told to stop died of another fault, and the command to kill it was put off forever, fifty
    /// times a simulated second. It would immediately have hit a later incarnation that was told to stop for reasons of
    /// its own.
    #[test]
    fn the_planned_kill_goes_with_the_replica_that_was_stopping() {
        let mut config = SimConfig::from_seed(1);
        (config.replicas, config.disk) = (3, None);
        let mut cluster = Cluster::new(config, Trace::Off, || true);
        let mut chaos = Chaos::new();
        let formed = cluster.world.now() + Duration::from_secs(2);
        chaos.run_until(&mut cluster, formed);
        let (leader, _) = cluster
            .leader()
            .expect("nothing keeps them from electing one");
        chaos.stop(&mut cluster, Victim::Replica(leader.index()), APART);
        assert!(matches!(chaos.ends.values().next(), Some(End::Kill(..))));
        cluster.kill_replica(leader, false);
        chaos.end_later(&cluster, APART, End::Restart(leader));
        let started = cluster.world.now() + APART * 2;
        chaos.run_until(&mut cluster, started);
        assert!(cluster.world.program(leader).is_some() && chaos.ends.is_empty());
    }

    #[test]
    fn a_node_counts_as_a_voter_when_the_process_that_runs_there_votes() {
        let mut config = SimConfig::from_seed(1);
        (config.replicas, config.disk) = (3, None);
        let mut cluster = Cluster::new(config, Trace::Off, || true);
        let mut chaos = Chaos::new();
        let mut run_for = |cluster: &mut Cluster, seconds| {
            let until = cluster.world.now() + Duration::from_secs(seconds);
            chaos.run_until(cluster, until);
        };
        run_for(&mut cluster, 2);
        assert_eq!(cluster.nodes_without_vote(), []);
        let (leader, _) = cluster
            .leader()
            .expect("nothing keeps them from electing one");
        let victim = cluster.replica_hosts().find(|host| *host != leader);
        let victim = victim.expect("three replicas");
        let node_id = [NodeId(u32::from(victim.0) + 1)];
        cluster.kill_replica(victim, false);
        assert_eq!(cluster.nodes_without_vote(), node_id);
        // Its node id has a voter, the incarnation that died.
        cluster.start_replica(victim, false);
        assert_eq!(cluster.nodes_without_vote(), node_id);
        run_for(&mut cluster, 3);
        assert_eq!(cluster.nodes_without_vote(), []);
    }
}
