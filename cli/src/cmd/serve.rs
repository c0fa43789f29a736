//! `trine serve`: one replica, until it is asked to end.

use std::net::SocketAddr;

use serde_json::json;
use trine_replica::Replica;
use trine_replica::config::ReplicaConfig;
use trine_replica::message::{Discovery, Incarnation, PlaceId, RoleCode};
use trine_replica::node::{Node, endpoint_config};
use trine_transport::backend::{Backend, Direction, Faulty, MonotonicClock, UdpBackend, UdpConfig};
use trine_transport::time::{Clock, Duration};
use trine_transport::{Config, EventLoop};

use crate::args::ServeArguments;
use crate::client::{backend_failure, random_seed};
use crate::cmd::chaos::Fired;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use crate::peers;

/// How often a change of role is looked for, to tell it.
const LOOK_EVERY: Duration = Duration::from_millis(250);

type ReplicaLoop<B> = EventLoop<B, MonotonicClock, Node<SocketAddr>>;

pub(crate) fn run(arguments: &ServeArguments, output: Output) -> Result<(), Failure> {
    interrupt::start()?;
    let addresses = peers::resolve(&arguments.peers)?;
    let own = own_address(arguments.id, &addresses)?;
    let backend = UdpBackend::bind(own, &UdpConfig::default()).map_err(backend_failure)?;
    let Some(faults) = arguments.fault.filter(|faults| !faults.is_none()) else {
        return serve(backend, own, &addresses, arguments, output, || {});
    };
    // No two replicas of a group draw the same faults.
    let seed = arguments
        .fault_seed
        .wrapping_add(u64::from(arguments.id) << 48);
    let backend = Faulty::new(backend, MonotonicClock, seed);
    let handle = backend.handle();
    handle.set(Direction::Outbound, faults);
    let tell = move || output.line(Fired::from(handle.total()).to_line());
    serve(backend, own, &addresses, arguments, output, tell)
}

/// The place's address in the list.
fn own_address(place: u32, addresses: &[SocketAddr]) -> Result<SocketAddr, Failure> {
    let index = usize::try_from(place).unwrap_or(usize::MAX) - 1;
    addresses.get(index).copied().ok_or_else(|| {
        let count = addresses.len();
        Failure::usage(
            format!("--id {place} names no place in a list of {count} peers"),
            format!("--id counts from 1 to {count}; the list has to name this replica too"),
        )
    })
}

fn serve<B: Backend<Route = SocketAddr>>(
    backend: B,
    own: SocketAddr,
    addresses: &[SocketAddr],
    arguments: &ServeArguments,
    output: Output,
    tell_faults: impl Fn(),
) -> Result<(), Failure> {
    let mut event_loop = assemble(backend, own, addresses, arguments)?;
    let waker = event_loop.waker();
    interrupt::on_interrupt(move || waker.wake());
    let mut told = Told::new(output);
    while !interrupt::interrupted() {
        told.tell_changes(&event_loop.app().replica().discovery());
        tell_faults();
        let look_at = event_loop.clock().now() + LOOK_EVERY;
        event_loop
            .run_until(Some(look_at), |_| interrupt::interrupted())
            .map_err(backend_failure)?;
    }
    stop(&mut event_loop)?;
    tell_faults();
    Ok(())
}

/// Joins backend, replica and endpoint.
fn assemble<B: Backend<Route = SocketAddr>>(
    backend: B,
    own: SocketAddr,
    addresses: &[SocketAddr],
    arguments: &ServeArguments,
) -> Result<ReplicaLoop<B>, Failure> {
    let replica_config = ReplicaConfig {
        bootstrap: arguments.bootstrap,
        ..ReplicaConfig::default()
    };
    let peers = (1..).map(PlaceId).zip(addresses.iter().copied()).collect();
    let incarnation = Incarnation(random_seed()?.max(1));
    let seed = random_seed()?;
    let pool = backend.pool().clone();
    let place = PlaceId(arguments.id);
    let now = MonotonicClock.now();
    let replica = Replica::new(
        replica_config,
        incarnation,
        place,
        own,
        peers,
        pool,
        seed,
        now,
    )
    .map_err(|error| Failure::usage(error.to_string(), ""))?;
    let node = Node::new(replica, Box::new(Some), seed);
    let identity = node.identity();
    let config = Config {
        spin: arguments.limits.spin.into(),
        ..endpoint_config()
    };
    EventLoop::new(backend, MonotonicClock, node, config, identity, seed)
        .map_err(|error| Failure::usage(format!("cannot set up the endpoint: {error}"), ""))
}

/// Hands the lead over, if this replica has it, and ends.
fn stop<B: Backend<Route = SocketAddr>>(event_loop: &mut ReplicaLoop<B>) -> Result<(), Failure> {
    event_loop.with(|node, cx| node.replica_mut().stop(cx.now()));
    let clock = MonotonicClock;
    event_loop
        .run_until(None, |node| node.replica().is_stopped(clock.now()))
        .map(|_| ())
        .map_err(backend_failure)
}

/// What was told last about the replica's part in the group.
struct Told {
    output: Output,
    last: Option<(RoleCode, u64, Option<SocketAddr>)>,
}

impl Told {
    fn new(output: Output) -> Self {
        Self { output, last: None }
    }

    /// A line for each change of role, term or leader.
    fn tell_changes(&mut self, discovery: &Discovery) {
        let now = (discovery.role, discovery.term, discovery.leader);
        if self.last == Some(now) {
            return;
        }
        self.last = Some(now);
        let (role, leader) = (role_word(discovery.role), discovery.leader);
        self.output.json_line(&json!({
            "place": discovery.place.0, "role": role, "term": discovery.term,
            "leader": leader.map(|leader| leader.to_string()),
        }));
        let followed = match (discovery.role, leader) {
            (RoleCode::Follower | RoleCode::Learner, Some(leader)) => format!(" of {leader}"),
            _ => String::new(),
        };
        self.output
            .line(format_args!("{role}{followed}, term {}", discovery.term));
    }
}

/// A role in a word.
fn role_word(role: RoleCode) -> &'static str {
    match role {
        RoleCode::Unattached => "in no group yet",
        RoleCode::Joining => "joining",
        RoleCode::Learner => "learner",
        RoleCode::Follower => "follower",
        RoleCode::Candidate => "candidate",
        RoleCode::Leader => "leader",
    }
}
