//! What faults do to a cluster.

mod moves;
mod renumbered;
mod set_back;

use super::Host;
use super::cluster::{Cluster, Settling};
use super::disk::CALM;
use super::member::Member;
use super::network::Cut;
use super::player::{FaultTarget, Player, host, pause};
use super::world::World;
use crate::fault::{Amid, Event, Fault, Schedule, Victim};
use renumbered::COPIED_AFTER;
use std::collections::BTreeSet;
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

/// The end of a fault of replicas.
pub(crate) enum End {
    Restart(Host),
    DiskHeals(Host),
    DiskReturns(Host),
    /// A new process replaces a member that was removed.
    Rejoin(Host),
    /// Until the moment given: as soon as leadership is being transferred, the leader is cut off for the span.
    CutOld(Instant, Duration),
    /// The next machine gets the next key file; the one after it does after the same time.
    NextKeys(Duration),
    /// A stopping replica dies as soon as it may; it is down for the span.
    Kill(Host, Duration),
    /// Until the moment given: as soon as a replica has a joint configuration, the leader is hit.
    Amid(Instant, Amid),
    /// The name of this node says where its replica is.
    NameIsRight(Host),
    /// A lookup of this node's name fails; another one follows.
    NameFails(Host),
    /// Once the group knows where this node's replica is, an old copy of it runs where it was, for the span.
    Copy(Host, Settling, Duration),
    /// The name of this node leads to a copy of its replica.
    CopyByName(Host),
    /// The copy of this node's replica ends.
    CopyEnds(Host),
    /// What this node's replica has applied by now its leader will have heard of. Then its machine dies, to be set back after the
    /// span; whether the leader hands over meanwhile.
    NoteHeardOf(Host, Duration, bool),
    /// The machine dies.
    DieToBeSetBack(Host, Duration, bool),
    /// The machine of this node is there again, with an older copy of its disk.
    StartSetBack(Host),
    /// New processes with new clients ask for the replicas by their names.
    FreshClients,
}

/// The faults of a cluster.
pub(crate) type Chaos = Player<End>;

impl Chaos {
    pub(crate) fn of_cluster() -> Self {
        Self::new(PROBE)
    }

    /// Plays all events of the schedule, and takes every fault away at its end.
    pub(crate) fn play_through(&mut self, cluster: &mut Cluster, schedule: &Schedule) {
        self.play(cluster, schedule);
        if cluster.ended_early {
            return;
        }
        self.run_until(cluster, schedule.quiet_from);
        let now = cluster.world.now();
        let trace = &mut cluster.world.trace;
        trace.note(now, || "all faults end".to_owned());
        // A change of keys may be left half way.
        self.end_all(cluster, |end| {
            matches!(
                end,
                End::CutOld(..)
                    | End::NextKeys(_)
                    | End::Amid(..)
                    | End::Copy(..)
                    | End::NoteHeardOf(..)
                    | End::DieToBeSetBack(..)
            )
        });
        cluster.forget_copies();
        if schedule.enabled.contains(&Fault::Addresses) && cluster.config.has_spares() {
            let seat = cluster.seat_to_copy();
            self.end_later(cluster.world.now(), COPIED_AFTER, End::CopyByName(seat));
        }
        cluster.heal_disks();
        cluster.world.network.calm();
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
}

impl FaultTarget for Cluster {
    type Program = Member;
    type End = End;

    fn world(&mut self) -> &mut World<Member> {
        &mut self.world
    }

    fn goes_on(&mut self) -> bool {
        Cluster::goes_on(self)
    }

    fn attend(&mut self, chaos: &mut Chaos) {
        self.probe();
        chaos.bury_halted(self);
    }

    fn apply(&mut self, chaos: &mut Chaos, event: &Event) {
        chaos.apply(self, event);
    }

    fn end(&mut self, chaos: &mut Chaos, end: End) {
        chaos.end(self, &end);
    }
}

impl Chaos {
    fn end(&mut self, cluster: &mut Cluster, end: &End) {
        cluster.hangs.disturb();
        match end {
            // An operator may have replaced the member meanwhile; the replica that runs there must not lose its memory
            // unasked.
            End::Restart(host) if cluster.world.program(*host).is_some() => {}
            // It has moved, or has lost its memory and is about to be replaced.
            End::Restart(host) if !cluster.comes_back(*host) => {}
            End::Restart(host) => {
                if !cluster.start_replica(*host, false) {
                    self.end_later(cluster.world.now(), RESTART_PAUSE, End::Restart(*host));
                }
            }
            End::DiskHeals(host) => {
                if let Some(mut device) = cluster.device(*host) {
                    device.full = false;
                    device.latency = CALM;
                }
            }
            End::DiskReturns(host) => cluster.hang_disk(*host, false),
            End::NameIsRight(seat) => cluster.set_name_right(*seat),
            End::NameFails(seat) => self.fail_name(cluster, *seat),
            End::Copy(seat, settling, span) => {
                self.copy_once_settled(cluster, *seat, *settling, *span);
            }
            End::CopyByName(seat) => self.copy_in_quiet(cluster, *seat),
            End::CopyEnds(seat) => cluster.end_copy(*seat),
            End::NoteHeardOf(seat, span, hands_over) => {
                self.note_heard_of(cluster, *seat, (*span, *hands_over));
            }
            End::DieToBeSetBack(seat, span, hands_over) => {
                self.die_to_be_set_back(cluster, *seat, (*span, *hands_over));
            }
            End::StartSetBack(seat) => self.start_set_back(cluster, *seat),
            End::FreshClients => cluster.replace_callers(),
            End::Rejoin(host) => self.rejoin(cluster, *host),
            End::CutOld(until, span) => self.cut_old(cluster, *until, *span),
            End::Amid(until, amid) => self.hit_amid(cluster, *until, *amid),
            End::NextKeys(pause) => {
                if cluster.change_keys_further() {
                    self.end_later(cluster.world.now(), *pause, End::NextKeys(*pause));
                }
            }
            // It died meanwhile of another fault, which has it started again; the replica that runs there now was not
            // told to stop.
            End::Kill(host, _) if !cluster.is_stopping(*host) => {}
            End::Kill(host, span) if cluster.is_stopped(*host) && may_die(cluster, *host) => {
                cluster.kill_replica(*host, false);
                self.end_later(cluster.world.now(), *span, End::Restart(*host));
            }
            End::Kill(host, span) => {
                let (stopped, spared) = (cluster.is_stopped(*host), may_die(cluster, *host));
                cluster.world.trace.note(cluster.world.now(), || {
                    format!("{host} is to die: stopped {stopped}, can be spared {spared}")
                });
                self.end_later(cluster.world.now(), STOPPED_POLL, End::Kill(*host, *span));
            }
        }
    }

    // Long because each kind of event has an arm.
    fn apply(&mut self, cluster: &mut Cluster, event: &Event) {
        cluster.hangs.disturb();
        match event {
            Event::LinkFaults(_)
            | Event::Partition { .. }
            | Event::OneWay { .. }
            | Event::Clog { .. } => self.change_links(&mut cluster.world, event),
            Event::IsolateLeader { with_clients, span } => {
                self.isolate_leader(cluster, *with_clients, *span)
            }
            Event::Crash { victim, span } => each(cluster, *victim, |cluster, host| {
                self.crash(cluster, host, *span)
            }),
            Event::Blackout { span } => self.blackout(cluster, *span),
            Event::DiskSlow {
                victim,
                latency,
                span,
            } => each(cluster, *victim, |cluster, host| {
                self.slow_disk(cluster, host, *latency, *span)
            }),
            Event::DiskHang {
                victim,
                alone,
                span,
            } => self.hang_disks(cluster, *victim, *alone, *span),
            Event::DiskTorn { victim, span } => each(cluster, *victim, |cluster, host| {
                self.tear(cluster, host, *span)
            }),
            Event::DiskCorrupt { victim, span } => each(cluster, *victim, |cluster, host| {
                self.corrupt(cluster, host, *span)
            }),
            Event::DiskFull { victim, span } => each(cluster, *victim, |cluster, host| {
                self.fill_disk(cluster, host, *span)
            }),
            Event::ProcessKill { victim, span } => each(cluster, *victim, |cluster, host| {
                self.kill_process(cluster, host, *span)
            }),
            Event::DiskError { victim, full } => {
                let cause = if *full {
                    DiskCause::Full
                } else {
                    DiskCause::Device
                };
                each(cluster, *victim, |cluster, host| {
                    break_disk(cluster, host, cause)
                });
            }
            Event::Stop { victim, span } => each(cluster, *victim, |cluster, host| {
                self.stop(cluster, host, *span)
            }),
            Event::Pause { victim, span } => each(cluster, *victim, |cluster, host| {
                pause(&mut cluster.world, host, *span)
            }),
            Event::PauseApart { span } => {
                let Some((leader, _)) = cluster.leader() else {
                    return;
                };
                self.isolate_leader(cluster, true, *span + APART);
                pause(&mut cluster.world, leader, *span);
            }
            Event::Transfer { to, .. } if cluster.is_leaving(host(*to)) => {}
            Event::Transfer { to, apart, span } => {
                cluster.run_admin(host(*to), AdminCommand::TransferLeadership);
                cluster.world.network.stats.fire(Fault::Transfer);
                if *apart {
                    let until = cluster.world.now() + HANDOVER;
                    self.end_later(
                        cluster.world.now(),
                        HANDOVER_POLL,
                        End::CutOld(until, *span),
                    );
                }
            }
            // A disk keeps the identity of its replica: a process there is not a new member.
            Event::Remove { .. } | Event::Replace { .. } if cluster.config.disk.is_some() => {}
            Event::Remove { node_id, .. } if cluster.is_moving(host(*node_id)) => {}
            Event::Remove { node_id, .. } if !cluster.begins_to_leave(host(*node_id)) => {}
            Event::Remove { node_id, span } => {
                cluster.run_admin(host(*node_id), AdminCommand::Remove);
                cluster.world.network.stats.fire(Fault::Members);
                self.end_later(cluster.world.now(), *span, End::Rejoin(host(*node_id)));
            }
            Event::Replace { node_id } => self.replace(cluster, host(*node_id)),
            Event::Move { node_id, amid } => self.move_replica(cluster, host(*node_id), *amid),
            Event::Renumber {
                victim,
                name,
                span,
                copied,
            } => self.renumber(cluster, *victim, *name, (*span, *copied)),
            Event::SetBack {
                node_id,
                age,
                span,
                hands_over,
            } => self.set_back(cluster, host(*node_id), (*age, *span), *hands_over),
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
            Event::Forged { packets } => {
                for _ in 0..cluster.world.forge(*packets) {
                    cluster.world.network.stats.fire(Fault::Forged);
                }
            }
            Event::RotateKeys { pause } => {
                if cluster.begin_to_change_keys() {
                    cluster.world.network.stats.fire(Fault::RotateKeys);
                    self.end_later(cluster.world.now(), *pause, End::NextKeys(*pause));
                }
            }
            Event::ClientCrash { machine } => {
                let host = cluster.caller_host(*machine);
                fire_if(cluster, Fault::ClientCrash, |cluster| {
                    cluster.world.kill(host).is_some()
                });
                cluster.start_callers(*machine);
            }
        }
    }

    fn isolate_leader(&mut self, cluster: &mut Cluster, with_clients: bool, span: Duration) {
        let Some((leader, _)) = cluster.leader() else {
            return;
        };
        let mut side = BTreeSet::from([leader]);
        if with_clients {
            side.insert(cluster.caller_host(0));
        }
        self.cut(&mut cluster.world, span, Cut::Partition(side));
        cluster.tell_false_death(leader);
    }

    fn crash(&mut self, cluster: &mut Cluster, host: Host, span: Duration) {
        if cluster.world.program(host).is_none() || !may_die(cluster, host) {
            return;
        }
        cluster.kill_replica(host, false);
        cluster.world.network.stats.fire(Fault::Crash);
        self.end_later(cluster.world.now(), span, End::Restart(host));
    }
}

/// Faults of disks and of the files on them.
impl Chaos {
    fn blackout(&mut self, cluster: &mut Cluster, span: Duration) {
        if !cluster.keeps_memory() || !cluster.has_begun() {
            return;
        }
        cluster.world.network.stats.fire(Fault::Blackout);
        for host in cluster.places() {
            if cluster.world.program(host).is_some() {
                cluster.kill_replica(host, false);
                self.end_later(cluster.world.now(), span, End::Restart(host));
            }
        }
    }

    fn slow_disk(&mut self, cluster: &mut Cluster, host: Host, most: Duration, span: Duration) {
        if let Some(mut device) = cluster.device(host) {
            device.latency = (Duration::from_micros(1_000), most);
        } else {
            return;
        }
        cluster.world.network.stats.fire(Fault::DiskSlow);
        self.end_later(cluster.world.now(), span, End::DiskHeals(host));
    }

    /// Where nothing else happens, as many disks hang as the group can do without.
    fn hang_disks(&mut self, cluster: &mut Cluster, victim: Victim, alone: bool, span: Duration) {
        let mut hosts = targets(cluster, victim);
        let others = cluster.places().into_iter();
        if alone && !hosts.is_empty() {
            let minority = (cluster.config.replicas - 1) / 2;
            let further: Vec<Host> = others.filter(|host| !hosts.contains(host)).collect();
            hosts.extend(further);
            hosts.truncate(minority);
        }
        for host in hosts {
            cluster.hang_disk(host, true);
            cluster.world.network.stats.fire(Fault::DiskHang);
            self.end_later(cluster.world.now(), span, End::DiskReturns(host));
        }
    }

    fn tear(&mut self, cluster: &mut Cluster, host: Host, span: Duration) {
        if cluster.world.program(host).is_none() || !may_die(cluster, host) {
            return;
        }
        cluster.kill_replica(host, true);
        cluster.world.network.stats.fire(Fault::DiskTorn);
        self.end_later(cluster.world.now(), span, End::Restart(host));
    }

    /// Damage is loss of memory, so the group has to be able to spare the replica.
    fn corrupt(&mut self, cluster: &mut Cluster, host: Host, span: Duration) {
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
        self.end_later(cluster.world.now(), span, End::Restart(host));
    }

    fn fill_disk(&mut self, cluster: &mut Cluster, host: Host, span: Duration) {
        if !cluster.keeps_memory() {
            return;
        }
        if let Some(mut device) = cluster.device(host) {
            device.full = true;
        } else {
            return;
        }
        cluster.world.network.stats.fire(Fault::DiskFull);
        self.end_later(cluster.world.now(), span, End::DiskHeals(host));
    }

    fn kill_process(&mut self, cluster: &mut Cluster, host: Host, span: Duration) {
        if cluster.world.program(host).is_none() || !may_die(cluster, host) {
            return;
        }
        cluster.kill(host);
        let Some(mut device) = cluster.device(host) else {
            return;
        };
        device.lose_process();
        drop(device);
        cluster.world.network.stats.fire(Fault::ProcessKill);
        self.end_later(cluster.world.now(), span, End::Restart(host));
    }

    /// The process of a halted replica would have ended, and been started again.
    fn bury_halted(&mut self, cluster: &mut Cluster) {
        if !cluster.keeps_memory() {
            cluster.refill_nodes();
            return;
        }
        for host in cluster.halted() {
            if cluster.is_writing_that_it_was_set_back(host) {
                continue;
            }
            cluster
                .world
                .trace
                .note(cluster.world.now(), || format!("{host} has halted"));
            let failure = cluster.device(host).and_then(|device| device.failure());
            if let Some(fault) = failure {
                cluster.world.network.stats.fire(fault);
            }
            cluster.kill_replica(host, false);
            // A replica that was removed because it has moved does not come back: the move ends.
            self.end_later(cluster.world.now(), RESTART_PAUSE, End::Restart(host));
        }
    }
}

/// One of the next operations of a replica's disk fails.
fn break_disk(cluster: &mut Cluster, host: Host, cause: DiskCause) {
    if cluster.keeps_memory()
        && cluster.world.program(host).is_some()
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
    fn rejoin(&mut self, cluster: &mut Cluster, seat: Host) {
        let host = cluster.place_of(seat);
        // It stays as it is while it cannot be spared: then the command finds a member, and changes nothing.
        let gone = cluster.world.program(host).is_none();
        if gone || cluster.is_no_voter(host) || cluster.survives_without(host) {
            cluster.kill(host);
            cluster.start_replica(host, false);
        }
        cluster.run_admin(seat, AdminCommand::Add { voter: true });
    }

    fn replace(&mut self, cluster: &mut Cluster, seat: Host) {
        let host = cluster.place_of(seat);
        let busy = cluster.world.program(host).is_none()
            || cluster.is_leaving(seat)
            || cluster.is_moving(seat);
        if busy || !cluster.survives_without(host) {
            return;
        }
        cluster.run_admin(seat, AdminCommand::Replace);
        cluster.world.network.stats.fire(Fault::Members);
        cluster.kill(host);
        cluster.start_replica(host, false);
    }

    fn cut_old(&mut self, cluster: &mut Cluster, until: Instant, span: Duration) {
        if let Some(old) = cluster.handing_over() {
            let side = BTreeSet::from([old, cluster.caller_host(0)]);
            self.cut(&mut cluster.world, span, Cut::Partition(side));
        } else if cluster.world.now() < until {
            self.end_later(cluster.world.now(), HANDOVER_POLL, End::CutOld(until, span));
        }
    }

    fn stop(&mut self, cluster: &mut Cluster, host: Host, span: Duration) {
        if cluster.is_stopping(host) || !may_die(cluster, host) || !cluster.stop(host) {
            return;
        }
        cluster.world.network.stats.fire(Fault::Stop);
        self.end_later(cluster.world.now(), STOPPED_POLL, End::Kill(host, span));
    }
}

fn targets(cluster: &Cluster, victim: Victim) -> Vec<Host> {
    match victim {
        Victim::Leader => cluster.leader().map(|(host, _)| host).into_iter().collect(),
        Victim::Replica(index) => vec![cluster.place_of(host(index))],
        Victim::All => cluster.places(),
    }
}

fn each(cluster: &mut Cluster, victim: Victim, mut act: impl FnMut(&mut Cluster, Host)) {
    for host in targets(cluster, victim) {
        act(cluster, host);
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
        let mut chaos = Chaos::of_cluster();
        let formed = cluster.world.now() + Duration::from_secs(2);
        chaos.run_until(&mut cluster, formed);
        let (leader, _) = cluster
            .leader()
            .expect("nothing keeps them from electing one");
        chaos.stop(&mut cluster, leader, APART);
        assert!(matches!(chaos.ends()[..], [End::Kill(..)]));
        cluster.kill_replica(leader, false);
        chaos.end_later(cluster.world.now(), APART, End::Restart(leader));
        let started = cluster.world.now() + APART * 2;
        chaos.run_until(&mut cluster, started);
        assert!(cluster.world.program(leader).is_some() && chaos.ends().is_empty());
    }

    #[test]
    fn a_node_counts_as_a_voter_when_the_process_that_runs_there_votes() {
        let mut config = SimConfig::from_seed(1);
        (config.replicas, config.disk) = (3, None);
        let mut cluster = Cluster::new(config, Trace::Off, || true);
        let mut chaos = Chaos::of_cluster();
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
