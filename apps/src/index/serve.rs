//! `trine index serve` runs an index until it is asked to end.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use trine_index::ConcurrentMap;
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::{Config, EventLoop};

use super::args::{IndexServeArguments, Scans};
use super::dispatch::{Dispatch, DispatchServer, Threads};
use crate::event_loop::event_loop;
use crate::rights::Rights;
use crate::threads::{addresses_from, run_all};
use trine_base::announce::Announcer;
use trine_base::endpoint::backend_failure;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::{Network, Opened};
use trine_base::output::Output;
use trine_base::units::{plural, show_count};
use trine_base::{peers, placement};

/// An event loop of a server.
pub(super) type ServerLoop<B> = EventLoop<B, MonotonicClock, DispatchServer<<B as Backend>::Route>>;

pub(super) fn run<N: Network>(
    network: &N,
    arguments: &IndexServeArguments,
    output: Output,
) -> Result<(), Failure> {
    let workers = workers(arguments)?;
    arguments.lines.log_format.begin();
    let announcer = Announcer::start(output.json)?;
    interrupt::start_server()?;
    let listen = peers::resolve_server(&arguments.listen)?;
    if network.keeps_to_loopback() {
        placement::require_loopback("the address of --listen", listen, arguments.insecure)?;
    }
    let rights = Rights::read(network, arguments.users.as_deref())?;
    rights.read_at_hangups(arguments.users.clone(), announcer)?;
    let addresses = addresses_from(listen, arguments.threads)?;
    let map = Arc::new(ConcurrentMap::new(arguments.keys_max));
    let mut loops = Vec::new();
    // Resources that have to outlive the loops.
    let mut kept = Vec::new();
    for opened in network.serve_all(&addresses)? {
        let Opened {
            backend,
            endpoint,
            holder_of,
            keep,
            ..
        } = opened;
        let dispatch = Dispatch::new(Arc::clone(&map), arguments.threads, holder_of);
        let config = Config {
            spin: arguments.spin.into(),
            ..endpoint
        };
        loops.push(assemble(
            backend,
            config,
            dispatch,
            rights.clone(),
            workers,
        )?);
        kept.push(keep);
    }
    tell(&addresses, arguments, workers, announcer);
    run_all(loops).map(|_| ()).map_err(backend_failure)
}

/// The worker threads of each dispatch thread.
fn workers(arguments: &IndexServeArguments) -> Result<u32, Failure> {
    match (arguments.scans, arguments.workers) {
        (Scans::Dispatch, _) => Ok(0),
        (Scans::Workers, 0) => Err(Failure::usage(
            "--workers 0 leaves no thread to run scans",
            "use --workers 1, or --scans dispatch",
        )),
        (Scans::Workers, workers) => Ok(workers),
    }
}

/// Joins backend, dispatch and endpoint. Without workers, dispatch runs the scans.
pub(super) fn assemble<B: Backend>(
    backend: B,
    config: Config,
    dispatch: Dispatch<B::Route>,
    rights: Rights,
    workers: u32,
) -> Result<ServerLoop<B>, Failure> {
    let threads = match workers {
        0 => Threads::Alone(dispatch),
        _ => {
            let spin = std::time::Duration::from_nanos(config.spin.as_nanos());
            let with = dispatch.with_workers(workers, spin, backend.pool(), backend.waker());
            let refused = |error| {
                Failure::usage(format!("no worker threads: {error}"), "use fewer --workers")
            };
            Threads::WithWorkers(with.map_err(refused)?)
        }
    };
    let server = DispatchServer::new(threads, rights);
    event_loop(backend, server, config)
}

fn tell(
    addresses: &[SocketAddr],
    arguments: &IndexServeArguments,
    workers: u32,
    announcer: Announcer,
) {
    announcer.json_line(&json!({
        "listening": addresses,
        "threads": arguments.threads,
        "workers": workers,
        "keys_max": arguments.keys_max,
    }));
    let ports = match addresses {
        [first, .., last] => format!("{first} to port {}", last.port()),
        _ => addresses[0].to_string(),
    };
    let scans = match workers {
        0 => "scans in the same".to_owned(),
        _ => format!("{} each for scans", plural(workers.into(), "worker")),
    };
    announcer.line(format_args!(
        "an index of up to {} keys on {ports}, {}, {scans}, not replicated",
        show_count(arguments.keys_max),
        plural(arguments.threads.into(), "thread"),
    ));
    announcer.line("Ctrl-C stops it and discards its contents.");
}
