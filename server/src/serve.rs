//! `trine serve`: one replica, until it is asked to end.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use trine_protocol::message::{
    ClusterId, Discovery, Incarnation, Member, MemberRole, NodeId, RoleCode, RunSecret,
};
use trine_protocol::program::Program;
use trine_protocol::status::{Fsync, ReceivingStatus};
use trine_replica::backup::restore_in_memory;
use trine_replica::disk::{WriterEnd, WriterThread};
use trine_replica::node::LinkNews;
use trine_replica::node::Node;
use trine_replica::{Halt, Replica};
use trine_transport::backend::{
    Backend, CaptureAddress, FaultCounts, Faults, Faulty, MonotonicClock, Waker,
};
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{Config, EventLoop};

use trine_base::announce::Announcer;

use crate::backup_file;
use crate::cluster_check::{self, ClusterCheck};
use crate::companion::Companion;
use crate::data;
use crate::from_file::FromFile;
use crate::injection::{self, Injector};
use crate::key_changes::KeyChanges;
use crate::logs::{AUDIT, Logs, ROLE};
use crate::metrics::{self, Snapshot};
use crate::names::PeerNames;
use crate::options::{ServeArguments, check, replica_config, warn_of_shown_password};
use crate::places;
use crate::resp;
use crate::startup::StartupStatus;
use crate::tls::Tls;
use trine_base::aside::Aside;
use trine_base::capture::{self, CaptureFile};
use trine_base::document::path_text;
use trine_base::endpoint::{backend_failure, random_seed};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::{Network, Opened};
use trine_base::output::Output;
use trine_base::placement;
use trine_base::restoring::Restoring;
use trine_base::units::plural;

/// The start of the line that says where the metrics are.
pub const METRICS_LINE: &str = "metrics at ";
/// The poll interval for changes of role, which are announced.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The pause before a new replica replaces one that cannot continue.
const ANEW_PAUSE: std::time::Duration = std::time::Duration::from_millis(200);
/// The replicas that are told of a death campaign this share of an election timeout after each other.
const STAGGER_DIVISOR: u32 = 5;
/// And not more than this: a service manager waits for all processes of a service.
const STAGGER_MAX: std::time::Duration = std::time::Duration::from_secs(1);
/// The time that a disk has to finish when a replica ends: before a line says that it is waited for, in all, and in all
/// where nothing was synced before. A service manager waits 30 s (`TimeoutStopSec`).
const FINISH_SILENT: std::time::Duration = std::time::Duration::from_millis(500);
const FINISH_MAX: std::time::Duration = std::time::Duration::from_secs(5);
const FINISH_UNSYNCED_MAX: std::time::Duration = std::time::Duration::from_secs(25);
const _: () = assert!(FINISH_MAX.as_nanos() > FINISH_SILENT.as_nanos());
const _: () = assert!(FINISH_UNSYNCED_MAX.as_nanos() > FINISH_MAX.as_nanos());
/// A replica that has been in no group for this long says why.
const PATIENCE: Duration = Duration::from_secs(1);

type ReplicaLoop<B> = EventLoop<B, MonotonicClock, Node<<B as Backend>::Route>>;

/// Runs one replica until it is asked to end, or cannot continue.
pub fn run<N: Network>(
    network: &N,
    arguments: &ServeArguments,
    from_file: FromFile,
    output: Output,
) -> Result<(), Failure> {
    arguments.watch.log_format.begin();
    if let Some((_, failure)) = check(arguments, network.keeps_to_loopback())
        .into_iter()
        .next()
    {
        return Err(failure);
    }
    arguments.limits.require_memory(1)?;
    tracing::info!(target: ROLE, program = %Program::this(), "starts");
    let announcer = Announcer::start(output.json)?;
    warn_of_shown_password();
    let tls = Tls::open(&arguments.tls)?;
    interrupt::start_server()?;
    let mut waiting = StartupStatus::new(announcer);
    // First, so that it tells what is waited for.
    let Some(mut watch) = Observers::start(arguments, from_file, tls.clone(), &mut waiting)? else {
        return Ok(());
    };
    if let Some(tls) = &tls {
        tls.reload_at_signal()?;
    }
    let is_ip = network.is_ip();
    // This and the next one must be before the replica's thread is bound to its processor, because new threads have to run
    // elsewhere.
    let mut names = PeerNames::start(arguments)?;
    let Some(own) = names.wait(is_ip, &mut waiting)? else {
        return Ok(());
    };
    if network.keeps_to_loopback() {
        require_loopback(own, arguments)?;
    }
    let addresses = names.addresses();
    network.check_paths(&addresses);
    let start = || resp::start(network, arguments, own, &addresses, tls.as_ref(), announcer);
    let Some(resp) = waiting.until_open(start)? else {
        return Ok(());
    };
    watch.resp = resp.as_ref().map(resp::Resp::stats);
    placement::apply(&arguments.placement)?;
    let injector = injector(arguments, own, &names)?;
    let checked = is_ip.then(|| require_loopback(own, arguments));
    let may_accept = checked.unwrap_or(Ok(()));
    let front = resp.as_ref().map(resp::Resp::teller);
    let settings = network.settings();
    let keys = KeyChanges::start(settings, arguments, from_file, front, may_accept)?;
    let startup = Startup {
        own,
        is_ip,
        ask_peers: cluster_check::asker(network, own),
        names: RefCell::new(names),
        bootstrap: arguments.bootstrap,
        lost_memory: None,
        sleeper: Sleeper::default(),
        injector,
        keys: RefCell::new(keys),
    };
    let sleeper = startup.sleeper.clone();
    interrupt::on_interrupt(move || sleeper.wake());
    serve_on(network, startup, waiting, arguments, &watch)
}

/// Runs one incarnation after the other, until the process is asked to end.
fn serve_on<N: Network>(
    network: &N,
    mut startup: Startup,
    mut waiting: StartupStatus,
    arguments: &ServeArguments,
    watch: &Observers,
) -> Result<(), Failure> {
    let announcer = watch.announcer;
    let mut capture = arguments.capture.open()?;
    loop {
        let Some(opened) = waiting.until_open(|| network.serve_at(startup.own))? else {
            return Ok(());
        };
        match live(opened, &startup, capture.take(), arguments, watch)? {
            IncarnationEnd::Asked => return Ok(()),
            IncarnationEnd::Replace { why, bootstrap } => {
                tracing::info!(target: ROLE, why, "continuing as a new replica");
                announcer.json_line(&json!({ "restarted_empty": why }));
                announcer.line_of_role(format_args!("{why}; continuing as a new replica"));
                startup.bootstrap = bootstrap;
                startup.lost_memory = Some(why);
                interrupt::pause(ANEW_PAUSE);
                // A replica does not run for the sake of its capture, so it continues without one.
                capture = arguments.capture.go_on().unwrap_or_else(|failure| {
                    tracing::warn!(why = failure.message(), "no longer captures");
                    None
                });
            }
        }
    }
}

/// Refuses an address that other machines reach, unless the user permits that.
fn require_loopback(own: SocketAddr, arguments: &ServeArguments) -> Result<(), Failure> {
    placement::require_loopback("this replica's address", own, arguments.placement.insecure)
}

/// The state that all incarnations of this process share.
struct Startup {
    own: SocketAddr,
    /// Whether any process of this machine reaches the others by IP.
    is_ip: bool,
    /// The list of peers, and what its names stand for.
    names: RefCell<PeerNames>,
    /// Asks the peers for their group; `None` if they cannot be asked.
    ask_peers: Option<cluster_check::StatusSurvey>,
    bootstrap: bool,
    /// Why this incarnation replaces one that could not continue.
    lost_memory: Option<String>,
    sleeper: Sleeper,
    /// The fault injector, if faults are configured or can be enabled later.
    injector: Option<Arc<Injector>>,
    /// The keys, which change while the process runs.
    keys: RefCell<KeyChanges>,
}

/// The faults of this replica's network: none, those of `--fault`, or those of later requests.
fn injector(
    arguments: &ServeArguments,
    own: SocketAddr,
    names: &PeerNames,
) -> Result<Option<Arc<Injector>>, Failure> {
    let faults = arguments.fault.unwrap_or(Faults::NONE);
    if faults.is_none() && !arguments.fault_injection {
        return Ok(None);
    }
    let others = names.present();
    let others = others.filter_map(|(node_id, found)| Some((node_id, *found.first()?)));
    let mut all: Vec<_> = others.chain([(NodeId(arguments.id), own)]).collect();
    all.sort_unstable();
    let injector = Injector::new(arguments.id, own, all, faults);
    if arguments.fault_injection {
        injection::serve(own, Arc::clone(&injector))?;
    }
    Ok(Some(injector))
}

/// How an incarnation ended.
enum IncarnationEnd {
    /// The user wants the process to end.
    Asked,
    /// This replica cannot continue under its identity, and a new one replaces it.
    Replace { why: String, bootstrap: bool },
}

/// Wakes the event loop of the present incarnation.
#[derive(Clone, Default)]
struct Sleeper(Arc<Mutex<Option<Waker>>>);

impl Sleeper {
    fn is(&self, waker: Waker) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }

    fn wake(&self) {
        let present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = present.as_ref() {
            waker.wake();
        }
    }
}

/// Runs one incarnation on its socket, until its end.
fn live<B: Backend<Route: CaptureAddress>>(
    opened: Opened<B>,
    startup: &Startup,
    capture: Option<CaptureFile>,
    arguments: &ServeArguments,
    watch: &Observers,
) -> Result<IncarnationEnd, Failure> {
    let Some(capture) = capture else {
        return live_with_faults(opened, startup, arguments, watch);
    };
    // The capture is innermost, so it shows the packets after the faults.
    let opened = opened.around(|backend| capture::around(backend, startup.own, capture));
    live_with_faults(opened, startup, arguments, watch)
}

fn live_with_faults<B: Backend>(
    opened: Opened<B>,
    startup: &Startup,
    arguments: &ServeArguments,
    watch: &Observers,
) -> Result<IncarnationEnd, Failure> {
    let Some(injector) = startup.injector.clone() else {
        return serve(opened, startup, arguments, watch, || {});
    };
    let announcer = watch.announcer;
    // No two replicas of a group draw the same faults.
    let seed = arguments
        .fault_seed
        .wrapping_add(u64::from(arguments.id) << 48);
    let mut opened = opened.around(|backend| Faulty::new(backend, MonotonicClock, seed));
    opened.route_of = injector.attach(opened.backend.handle(), opened.route_of);
    let reported = Cell::new(FaultCounts::default());
    let tell = move || {
        let fired = injector.fired();
        if reported.replace(fired) != fired {
            announcer.line(trine_local::faults::to_line(&fired));
        }
    };
    serve(opened, startup, arguments, watch, tell)
}

/// Runs a replica until its end, and lets its disk finish.
fn serve<B: Backend>(
    mut opened: Opened<B>,
    startup: &Startup,
    arguments: &ServeArguments,
    watch: &Observers,
    tell_faults: impl Fn(),
) -> Result<IncarnationEnd, Failure> {
    let keep = opened.keep.take();
    // Dropped after the replica, as it tells that this one has ended.
    let mut companion = companion(startup, arguments);
    let secret = companion.as_ref().map(Companion::secret);
    let assembled = assemble(opened, startup, arguments, secret, watch.announcer);
    let (event_loop, writer) = match assembled {
        // The user ended it while it read its directory, where it had changed nothing.
        Err(failure) if failure.is_interrupted() => return Ok(IncarnationEnd::Asked),
        other => other?,
    };
    let end = turn(
        event_loop,
        &mut companion,
        startup,
        arguments,
        watch,
        tell_faults,
    );
    drop(keep);
    let fsync = arguments.log.fsync.into();
    let finished = writer.map(|writer| finish_disk(&writer, fsync, watch.announcer));
    // Why it has halted counts for more than how its disk ended.
    let end = end?;
    finished.transpose()?;
    Ok(end)
}

/// Waits until the disk has taken what the replica gave it. The replica leads nobody any more.
///
/// # Errors
/// The disk hangs.
fn finish_disk(writer: &WriterEnd, fsync: Fsync, announcer: Announcer) -> Result<(), Failure> {
    let limit = match fsync {
        Fsync::Each | Fsync::Batch => FINISH_MAX,
        // All that there is to sync is synced now.
        Fsync::None => FINISH_UNSYNCED_MAX,
    };
    if writer.wait(FINISH_SILENT) {
        return Ok(());
    }
    announcer.line(format_args!(
        "waits for the disk, for at most {} s",
        limit.as_secs()
    ));
    if writer.wait(limit - FINISH_SILENT) {
        return Ok(());
    }
    let message = format!(
        "the disk has not finished a write for {} s: this replica ends without it",
        limit.as_secs()
    );
    let hint = match fsync {
        Fsync::Each | Fsync::Batch => {
            "nothing that was acknowledged is lost: it is on the disks of a majority; look at the disk before you start the replica again"
        }
        Fsync::None => {
            "with --fsync none the next start takes the memory of this replica for lost; look at the disk first"
        }
    };
    tracing::error!(target: ROLE, hint, "{message}");
    Err(Failure::negative(message, hint))
}

/// Runs a replica on its loop until its end.
fn turn<B: Backend>(
    mut event_loop: ReplicaLoop<B>,
    companion: &mut Option<Companion>,
    startup: &Startup,
    arguments: &ServeArguments,
    watch: &Observers,
    tell_faults: impl Fn(),
) -> Result<IncarnationEnd, Failure> {
    startup.sleeper.is(event_loop.waker());
    let mut reporter = StatusReporter::new(watch.announcer);
    let mut cluster_check = ClusterCheck::default();
    while !interrupt::interrupted() {
        let now = event_loop.clock().now();
        let replica = event_loop.app().replica();
        reporter.tell_receiving(replica.receiving());
        reporter.tell_deaths(replica);
        reporter.tell_changes(replica, now);
        if let Some(companion) = companion {
            companion.attend(replica.successors(now));
        }
        let ask_peers = startup.ask_peers.as_ref().map(|ask| {
            let names = startup.names.borrow();
            move || ask(names.addresses())
        });
        if let Some(found) = cluster_check.check(replica, now, ask_peers) {
            let directory = arguments.log.directory().map(PathBuf::as_path);
            reporter.tell_idle(&found.explain(directory, arguments.rejoin));
        }
        attend_names(&mut event_loop, startup, watch.announcer)?;
        tell_audit(&mut event_loop);
        tell_links(&mut event_loop);
        let replica = event_loop.app_mut().replica_mut();
        places::tell(replica, watch.announcer);
        tell_faults();
        let mut keys = startup.keys.borrow_mut();
        keys.attend(&mut event_loop, watch.announcer);
        drop(keys);
        watch.publish(&mut event_loop, false);
        let next_poll = now + POLL_INTERVAL;
        // A new leader's companion has to know whom to tell.
        let led = event_loop.app().replica().leads_in();
        event_loop
            .run_until(Some(next_poll), |node| {
                interrupt::interrupted() || node.replica().leads_in() != led
            })
            .map_err(backend_failure)?;
        if let Some(end) = end_of(event_loop.app().replica(), startup, arguments) {
            return end;
        }
    }
    watch.publish(&mut event_loop, true);
    stop(&mut event_loop)?;
    if let Some(companion) = companion {
        // A replica that has handed over is not missed: an election would only disturb.
        let now = event_loop.clock().now();
        companion.attend(event_loop.app().replica().successors(now));
    }
    tell_faults();
    Ok(IncarnationEnd::Asked)
}

/// Tells the replica what the names in its list of peers stand for now.
///
/// # Errors
/// The other replicas turn out to be on other machines, which cannot reach the own address. Once it is a member, a name
/// service ends no replica.
fn attend_names<B: Backend>(
    event_loop: &mut ReplicaLoop<B>,
    startup: &Startup,
    announcer: Announcer,
) -> Result<(), Failure> {
    let now = event_loop.clock().now();
    let replica = event_loop.app_mut().replica_mut();
    let somebody_spoke = replica.take_unknown_address();
    let is_member = !replica.cluster().is_none();
    let mut names = startup.names.borrow_mut();
    let is_urgent = |node_id| somebody_spoke || replica.is_silent(now, node_id);
    let changes = names.attend(is_urgent, announcer);
    if changes.is_empty() {
        return Ok(());
    }
    event_loop.with(|node, _| {
        for (node_id, addresses) in &changes {
            node.replica_mut().set_listed(*node_id, addresses);
        }
    });
    match startup.is_ip && !is_member {
        true => names.check_own(),
        false => Ok(()),
    }
}

/// The process that tells of this one's end, if there is to be one. Without it a dead leader is missed after an election
/// timeout.
fn companion(startup: &Startup, arguments: &ServeArguments) -> Option<Companion> {
    if !arguments.timing.death_notice || !startup.is_ip {
        return None;
    }
    let stagger = (arguments.timing.election_timeout / STAGGER_DIVISOR).min(STAGGER_MAX);
    match Companion::start(stagger) {
        Ok(companion) => Some(companion),
        Err(failure) => {
            tracing::warn!(why = failure.message(), "goes on without");
            None
        }
    }
}

/// How the process continues after the replica has halted.
fn end_of(
    replica: &Replica,
    startup: &Startup,
    arguments: &ServeArguments,
) -> Option<Result<IncarnationEnd, Failure>> {
    let halt = replica.halted()?;
    let why = halt.to_string();
    let on_disk = arguments.log.directory().is_some();
    let bootstrap = match halt {
        // It has promised nothing to any other replica, so the user need not decide.
        Halt::NeverBegan { .. } => Some(startup.bootstrap),
        // Its memory is of no use any more.
        Halt::Removed { .. }
        | Halt::Diverged { .. }
        | Halt::RolledBack { .. }
        | Halt::OlderCopy { .. } => arguments.rejoin.then_some(false),
        // In disk mode it has lost nothing: its disk fails, and the group still counts on what it has acknowledged.
        Halt::Disk(_) | Halt::Broken(_) => (arguments.rejoin && !on_disk).then_some(false),
        // Whatever this release begins anew, it is too old for it.
        Halt::TooOld | Halt::Entry(_) => None,
    };
    if let Some(bootstrap) = bootstrap {
        return Some(Ok(IncarnationEnd::Replace { why, bootstrap }));
    }
    let (node_id, own) = (arguments.id, startup.own);
    let hint = match (halt, on_disk) {
        (Halt::Diverged { .. } | Halt::RolledBack { .. }, true) => data::REJOIN.to_owned(),
        (Halt::OlderCopy { .. }, true) => data::QUARANTINED.to_owned(),
        (Halt::Removed { .. }, false) => format!(
            "if this was unintended: `trine member add {node_id} --address {own}`, and start it \
             again; with --rejoin it waits for that by itself"
        ),
        (Halt::Removed { .. }, true) => format!(
            "its directory is no longer of use; if the removal was unintended: `trine member add \
             {node_id} --address {own}`, and start it again with an empty directory; with \
             --rejoin it does so by itself"
        ),
        (Halt::TooOld | Halt::Entry(_), _) => data::newer_release(&arguments.log),
        _ => data::way_out(&arguments.log),
    };
    let message = format!("this replica has halted: {why}");
    Some(Err(Failure::negative(message, hint)))
}

/// The outputs that show this replica: its lines, its log, its metrics.
struct Observers {
    announcer: Announcer,
    endpoint: Option<metrics::Endpoint>,
    /// The counters of the server for Redis clients, if there is one.
    resp: Option<resp::SharedStats>,
}

impl Observers {
    fn start(
        arguments: &ServeArguments,
        from_file: FromFile,
        tls: Option<Tls>,
        waiting: &mut StartupStatus,
    ) -> Result<Option<Self>, Failure> {
        let announcer = waiting.announcer();
        let settings = &arguments.watch;
        let logs = Logs::start(&settings.log_level, settings.log_format)?;
        let file = arguments.file_unless(arguments.named.log_level);
        logs.reload_at_signal(move || match &file {
            Some(path) => (from_file.log_level)(path),
            None => Ok(None),
        })?;
        let guard = metrics::Guard {
            password: settings.metrics_password()?,
            tls,
            asks_certificate: arguments.tls.asks_certificate(),
            names: arguments.own_names(),
        };
        let endpoint = match &settings.metrics {
            None => None,
            Some(listen) => {
                let Some(listener) = waiting.until_open(|| metrics::open(listen, &guard))? else {
                    return Ok(None);
                };
                Some(metrics::start(
                    listener,
                    guard,
                    Some(logs),
                    arguments.log.directory().cloned(),
                )?)
            }
        };
        if let Some(endpoint) = &endpoint {
            waiting.publish_at(&endpoint.published);
            announcer.json_line(&json!({ "metrics": endpoint.url }));
            announcer.line(format_args!("{METRICS_LINE}{}/metrics", endpoint.url));
        }
        Ok(Some(Self {
            announcer,
            endpoint,
            resp: None,
        }))
    }

    /// Publishes the replica's numbers for the metrics endpoint and for Redis clients, if they are served.
    fn publish<B: Backend>(&self, event_loop: &mut ReplicaLoop<B>, stopping: bool) {
        if self.endpoint.is_none() && self.resp.is_none() {
            return;
        }
        let (status, stats) = event_loop.with(|node, cx| (node.status(cx), cx.stats()));
        if let Some(resp) = &self.resp {
            resp.set_cluster(event_loop.app().replica().discovery().cluster);
            resp.set_store(status.replica.store);
            resp.set_has_leader(status.replica.leader.is_some());
        }
        let Some(endpoint) = &self.endpoint else {
            return;
        };
        endpoint.published.publish(Snapshot {
            taken: std::time::Instant::now(),
            stopping,
            status,
            node: event_loop.app().stats(),
            endpoint: stats,
            backend: event_loop.backend().stats(),
            event_loop: event_loop.stats(),
            resp: self.resp.as_ref().map(resp::SharedStats::get),
        });
    }
}

/// Joins backend, replica and endpoint.
fn assemble<B: Backend>(
    opened: Opened<B>,
    startup: &Startup,
    arguments: &ServeArguments,
    secret: Option<RunSecret>,
    announcer: Announcer,
) -> Result<(ReplicaLoop<B>, Option<WriterEnd>), Failure> {
    let Opened {
        backend,
        endpoint,
        route_of,
        is_at,
        holder_of,
        ..
    } = opened;
    let mut config = replica_config(&arguments.reading, &arguments.timing);
    config.bootstrap = startup.bootstrap;
    config.store_limits.memory_bytes = arguments.limits.memory;
    config.ordered = arguments.limits.ordered;
    let fresh = Incarnation(random_seed()?.max(1));
    let seed = random_seed()?;
    let data = data::open(arguments, fresh, startup.lost_memory.as_deref(), announcer)?;
    let incarnation = data.as_ref().map_or(fresh, |data| data.incarnation);
    let now = MonotonicClock.now();
    let mut replica = Replica::new(
        config,
        incarnation,
        NodeId(arguments.id),
        startup.own,
        vec![(NodeId(arguments.id), startup.own)],
        backend.pool().clone(),
        seed,
        now,
    )
    .map_err(|error| Failure::usage(error.to_string(), ""))?
    .with_secret(secret);
    if arguments.listen.is_some() {
        replica = replica.with_peers_anywhere();
    }
    list_peers(&mut replica, startup);
    replica.lend_stopwatch(|| MonotonicClock.now());
    let (node, writer) = match data {
        None => {
            let replica = begun_from_backup(replica, startup, arguments, announcer)?;
            (Node::new(replica, route_of, is_at, seed), None)
        }
        Some(data) => {
            let fsync = arguments.log.fsync.into();
            let replica = replica.on_disk(data.restored, now).synced(fsync);
            let (queue, writer) = WriterThread::start(data.writer, backend.waker())
                .map_err(|error| Failure::usage(error.to_string(), ""))?;
            let node = Node::new(replica, route_of, is_at, seed).with_disk(Box::new(queue));
            (node, Some(writer))
        }
    };
    let keys = startup.keys.borrow();
    let node = node
        .with_holders(holder_of)
        .with_member_roots(keys.member_roots());
    let identity = node.identity();
    assert_eq!(identity.incarnation, incarnation.0, "as the files have it");
    let config = Config {
        spin: arguments.limits.spin.into(),
        keys: keys.keys()?,
        ..endpoint
    };
    let event_loop = EventLoop::new(backend, MonotonicClock, node, config, identity, seed)
        .map_err(|error| Failure::usage(format!("cannot set up the endpoint: {error}"), ""))?;
    Ok((event_loop, writer))
}

/// Tells a replica where the names in its list of peers lead.
fn list_peers(replica: &mut Replica, startup: &Startup) {
    for (node_id, addresses) in startup.names.borrow().present() {
        replica.set_listed(node_id, &addresses);
    }
}

/// In memory mode: the replica with the state of a backup, if it is to begin with one. An incarnation that replaces
/// another one joins the group that this one has begun.
fn begun_from_backup(
    replica: Replica,
    startup: &Startup,
    arguments: &ServeArguments,
    announcer: Announcer,
) -> Result<Replica, Failure> {
    let Some(file) = &arguments.restore else {
        return Ok(replica);
    };
    if startup.lost_memory.is_some() {
        return Ok(replica);
    }
    let content = backup_file::read(file)?;
    let member = Member {
        node_id: NodeId(arguments.id),
        role: MemberRole::Voter,
        incarnation: replica.incarnation(),
        address: startup.own,
    };
    let cluster = ClusterId(random_seed()?.max(1));
    let ttl = arguments.expiry.by_now();
    let (begun, restored) = restore_in_memory(content, cluster, member, ttl)
        .map_err(|error| backup_file::failure(file, &error))?;
    announcer.json_line(&json!({
        "begun_from": path_text(file), "cluster": cluster.to_string(), "old_cluster": begun.old.to_string(),
        "old_index": begun.old_index, "index": begun.index, "keys": begun.items,
    }));
    announcer.line(format_args!(
        "begins cluster {cluster} with {} of cluster {} as of entry {}; writes acknowledged there \
         after it are lost",
        plural(begun.items, "key"),
        begun.old,
        begun.old_index
    ));
    Ok(replica.begun_from_backup(restored, MonotonicClock.now()))
}

/// Transfers leadership, if this replica is the leader, and ends.
fn stop<B: Backend>(event_loop: &mut ReplicaLoop<B>) -> Result<(), Failure> {
    event_loop.with(|node, cx| node.replica_mut().stop(cx.now()));
    let clock = MonotonicClock;
    event_loop
        .run_until(None, |node| node.replica().is_stopped(clock.now()))
        .map(|_| ())
        .map_err(backend_failure)
}

/// Reports changes of the replica's part in the group, and remembers what it has reported.
struct StatusReporter {
    announcer: Announcer,
    /// The progress of a state transfer to this replica, as last posted.
    receiving: Option<ReceivingStatus>,
    restoring: Aside<Option<ReceivingStatus>>,
    last: Option<(RoleCode, u64, Option<SocketAddr>)>,
    /// Deaths of leaders that were reported.
    deaths: u64,
    /// The time since which the replica has been in no group, and whether that was reported.
    idle: Option<(Instant, bool)>,
}

impl StatusReporter {
    fn new(announcer: Announcer) -> Self {
        let mut restoring = Restoring::default();
        Self {
            announcer,
            receiving: None,
            restoring: Aside::start(move |receiving| restoring.update(receiving)),
            last: None,
            deaths: 0,
            idle: None,
        }
    }

    fn tell_receiving(&mut self, receiving: Option<ReceivingStatus>) {
        if self.receiving != receiving {
            self.receiving = receiving;
            self.restoring.post(receiving);
        }
    }

    /// Writes a line for each change of role, term or leader, and one when the replica finds no group.
    fn tell_changes(&mut self, replica: &Replica, now: Instant) {
        let discovery = replica.discovery();
        if matches!(discovery.role, RoleCode::Unattached | RoleCode::Joining) {
            return self.tell_waiting(replica, now);
        }
        self.idle = None;
        let state = (discovery.role, discovery.term, discovery.leader);
        if self.last != Some(state) {
            self.last = Some(state);
            self.tell(&discovery);
        }
    }

    /// Writes a line when this replica has campaigned because the leader's process had ended.
    fn tell_deaths(&mut self, replica: &Replica) {
        let deaths = replica.counters().leader_deaths;
        if std::mem::replace(&mut self.deaths, deaths) == deaths {
            return;
        }
        let text = "campaigned at once: the leader's process has ended";
        tracing::info!(target: ROLE, "{text}");
        self.announcer
            .json_line(&json!({ "leader_has_ended": true }));
        self.announcer.line_of_role(text);
    }

    fn tell_waiting(&mut self, replica: &Replica, now: Instant) {
        let (since, reported) = self.idle.get_or_insert((now, false));
        if *reported || now.saturating_since(*since) < PATIENCE {
            return;
        }
        *reported = true;
        if let Some(reason) = replica.status(now).not_serving {
            self.tell_idle(&reason);
        }
    }

    fn tell_idle(&self, reason: &str) {
        tracing::info!(target: ROLE, reason, "not serving yet");
        self.announcer.json_line(&json!({ "waiting": reason }));
        self.announcer
            .line_of_role(format_args!("not serving yet: {reason}"));
    }

    fn tell(&self, discovery: &Discovery) {
        let Discovery {
            node_id,
            role,
            term,
            leader,
            members,
            ..
        } = discovery;
        let mut members = members.0.iter();
        let leads = leader.and_then(|at| members.find(|member| member.address == at));
        let leads = leads.map(|member| member.node_id.0);
        let leads_at = leader.map(tracing::field::display);
        tracing::info!(
            target: ROLE,
            replica = node_id.0,
            role = role.word(),
            term,
            leader = leads,
            leader_address = leads_at,
            "changed"
        );
        let text = match (role, leader) {
            (RoleCode::Leader, _) => format!("leads in term {term}"),
            (RoleCode::Follower, Some(leader)) => format!("follows {leader} in term {term}"),
            (RoleCode::Follower, None) => format!("waits for a leader in term {term}"),
            _ => format!("{} in term {term}", role.word()),
        };
        self.announcer.json_line(&json!({
            "replica": node_id.0, "role": role.word(), "term": term, "leader": leads, "leader_address": leader,
        }));
        self.announcer.line_of_role(text);
    }
}

/// Writes a line for each admin command that was applied, or denied to a user. The log's own thread writes to the outside,
/// so this never waits.
fn tell_audit<B: Backend>(event_loop: &mut ReplicaLoop<B>) {
    let replica = event_loop.app_mut().replica_mut();
    while let Some((audit, lost)) = replica.next_audit() {
        if lost > 0 {
            tracing::warn!(target: AUDIT, lost, "audit lines were lost");
        }
        let (by, what) = (audit.by.to_string(), audit.what.as_str());
        let (outcome, position) = (audit.outcome.as_str(), audit.position);
        match audit.is_denial() {
            true => tracing::warn!(target: AUDIT, by, what, outcome, %position, "denied"),
            false => {
                tracing::info!(target: AUDIT, by, what, outcome, %position, "applied");
                warn_of_memory(audit.sets_memory);
            }
        }
    }
}

/// `trine config set memory` asks no machine whether it has so much. Each replica says so for its own.
fn warn_of_memory(bytes: Option<u64>) {
    if let Some(failure) = bytes.and_then(|bytes| placement::require_memory(bytes, 1).err()) {
        tracing::warn!(
            why = failure.message(),
            hint =
                "lower the limit with `trine config set memory`, or give this machine more memory",
            "the group's memory limit is more than this machine has; a replica that needs more than there is ends"
        );
    }
}

/// Writes a line for each change of the packets of a link.
fn tell_links<B: Backend>(event_loop: &mut ReplicaLoop<B>) {
    while let Some(news) = event_loop.app_mut().next_link_news() {
        match news {
            LinkNews::PacketSize {
                address,
                bytes,
                before,
            } => tracing::info!(peer = %address, bytes, before, "packets have another size now"),
            LinkNews::BlackHole { address, bytes } => tracing::warn!(
                peer = %address,
                bytes,
                hint = "lower --mtu, or raise the MTU of the links and routers on the way",
                "packets of this size vanish on the way to the peer, smaller ones arrive"
            ),
        }
    }
}
