//! `trine sequencer serve` runs a sequencer until it is asked to end.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use serde_json::json;
use trine_sequencer::config::{EPOCH_LOW, LEASE_MAX, LEASE_MIN};
use trine_sequencer::wire::Keeping;
use trine_sequencer::{Denial, Dispatch, Gate, Need, Supply, Terms};
use trine_transport::backend::{Backend, BackendError, BackendStats, MonotonicClock, Route, Waker};
use trine_transport::time::Duration;
use trine_transport::{Config, Cx, EventLoop, Holder, SessionId};

use super::args::SequencerServeArguments;
use super::epoch_file::EpochFile;
use super::group_record::{GroupRecord, SequenceLocation, check_name};
use super::reserve::{Desk, reserve};
use super::server_state::ServerState;
use super::speculative::{self, FourBytes};
use crate::event_loop::event_loop;
use crate::rights::Rights;
use crate::threads::{ServerThread, addresses_from, run_all};
use trine_base::announce::Announcer;
use trine_base::document::path_text;
use trine_base::endpoint::{backend_failure, random_seed};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::{Network, Opened};
use trine_base::output::Output;
use trine_base::units::{plural, show_ns};
use trine_base::{peers, placement};
use trine_keys::Role;
use trine_protocol::route::HolderOf;

/// Callers with the role may take numbers.
pub(super) struct Door<R> {
    pub(super) rights: Rights,
    /// Whom the sessions from a route are counted for.
    pub(super) holder_of: HolderOf<R>,
}

impl<R: Route> Gate<R> for Door<R> {
    fn check(&self, cx: &mut Cx<'_, R>, session: SessionId, need: Need) -> Result<(), Denial> {
        let role = match need {
            Need::Read => Role::Read,
            Need::Write => Role::Write,
        };
        self.rights
            .check(cx, session, role)
            .map_err(|denied| Denial(denied.answer(cx)))
    }

    fn holder(&self, route: &R) -> Holder {
        (self.holder_of)(route)
    }
}

/// An event loop of a server.
pub(super) type ServerLoop<B> =
    EventLoop<B, MonotonicClock, Dispatch<MonotonicClock, Door<<B as Backend>::Route>>>;

/// A thread of a server.
struct Thread<B: Backend> {
    serves: Serves<B>,
    /// A resource that has to live as long as the backend is in use.
    _keep: Option<Box<dyn Any + Send>>,
}

/// What a thread answers.
enum Serves<B: Backend> {
    /// Requests of sessions.
    Sessions(Box<ServerLoop<B>>),
    /// Requests of four bytes.
    FourBytes(Box<FourBytes<B>>),
}

impl<B: Backend + Send> ServerThread for Thread<B> {
    fn waker(&self) -> Waker {
        match &self.serves {
            Serves::Sessions(server) => server.waker(),
            Serves::FourBytes(server) => server.waker(),
        }
    }

    fn run(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), BackendError> {
        match &mut self.serves {
            Serves::Sessions(server) => server.run(is_over),
            Serves::FourBytes(server) => server.run(is_over),
        }
    }

    fn backend_stats(&self) -> BackendStats {
        match &self.serves {
            Serves::Sessions(server) => server.backend_stats(),
            Serves::FourBytes(server) => server.backend_stats(),
        }
    }
}

/// Where reservations are stored; the arguments are checked.
enum ReservationStore {
    File(EpochFile),
    Group(SequenceLocation, Terms),
}

pub(super) fn run<N: Network>(
    network: &N,
    arguments: &SequencerServeArguments,
    output: Output,
) -> Result<(), Failure> {
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
    if arguments.speculative {
        speculative::check(network)?;
    }
    let (kept, keeping, low) = kept(arguments)?;
    let shared = ServerState {
        supply: Arc::new(Supply::new(low)),
        keeping,
        desk: Desk::default(),
    };
    let threads = threads(network, arguments, &addresses, &rights, &shared)?;
    let place = Described::of(arguments, &kept);
    let tell = || tell(&addresses, arguments, &place, announcer);
    serve(network, kept, threads, &shared, announcer, tell)
}

/// The threads at these addresses, and those for requests of four bytes at the ports that follow.
fn threads<N: Network>(
    network: &N,
    arguments: &SequencerServeArguments,
    addresses: &[SocketAddr],
    rights: &Rights,
    shared: &ServerState,
) -> Result<Vec<Thread<N::Backend>>, Failure> {
    let (mut threads, mut four_bytes) = (Vec::new(), Vec::new());
    if arguments.speculative {
        for address in speculative::addresses_behind(addresses)? {
            // A key of this life alone: an answer to a request of an earlier one reaches nobody. Keys from 2^31 on are for
            // privileged processes.
            let key = (random_seed()? as u32 & 0x7fff_ffff).max(1);
            let opened = network.serve_plain(address, key)?;
            let server = FourBytes::new(opened.backend, arguments.spin.into(), shared);
            four_bytes.push((address.port(), server.published()));
            threads.push(Thread {
                serves: Serves::FourBytes(Box::new(server)),
                _keep: opened.keep,
            });
        }
    }
    let mut four_bytes = four_bytes.into_iter();
    for Opened {
        backend,
        endpoint,
        holder_of,
        keep,
        ..
    } in network.serve_all(addresses)?
    {
        let config = Config {
            spin: arguments.spin.into(),
            ..endpoint
        };
        let door = Door {
            rights: rights.clone(),
            holder_of,
        };
        let mut dispatch = dispatch(door, shared);
        if let Some((port, published)) = four_bytes.next() {
            dispatch = dispatch.with_speculation(port, published);
        }
        let server = event_loop(backend, dispatch, config)?;
        threads.push(Thread {
            serves: Serves::Sessions(Box::new(server)),
            _keep: keep,
        });
    }
    Ok(threads)
}

/// Runs the threads, and beside them the thread that reserves numbers. That one takes the first numbers, or looks at the
/// group for the first time, before `tell` is called: what fails until then ends the server, and nothing has been said.
fn serve<N: Network>(
    network: &N,
    kept: ReservationStore,
    threads: Vec<Thread<N::Backend>>,
    shared: &ServerState,
    announcer: Announcer,
    tell: impl FnOnce(),
) -> Result<(), Failure> {
    let wakers: Vec<Waker> = threads.iter().map(ServerThread::waker).collect();
    let (desk, supply) = (&shared.desk, &*shared.supply);
    let (ready, is_ready) = channel();
    // A client of a group stays in its thread, so it is opened there.
    let network = network.clone();
    let reserving = move || match kept {
        ReservationStore::File(mut file) => {
            supply.add(&file.begin()?);
            // Nobody has to hear it: without a receiver the server has ended, and the desk says so.
            let _ = ready.send(());
            reserve(file, supply, desk, &wakers, announcer);
            Ok(())
        }
        ReservationStore::Group(location, terms) => {
            let mut record = GroupRecord::open(&network, &location, terms)?;
            record
                .look()
                .map_err(|failure| failure.while_doing("the group of --group"))?;
            let _ = ready.send(());
            reserve(record, supply, desk, &wakers, announcer);
            Ok(())
        }
    };
    thread::scope(|scope| {
        let reserver = scope.spawn(reserving);
        let ran = match is_ready.recv() {
            Ok(()) => {
                tell();
                run_all(threads).map(|_| ()).map_err(backend_failure)
            }
            // It has ended, and gives its failure below.
            Err(_) => Ok(()),
        };
        // No number is given out any more, so another server may begin.
        desk.end();
        let reserved = reserver
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ran.and(reserved)
    })
}

/// Where the numbers are kept, and with how few left more are reserved.
fn kept(arguments: &SequencerServeArguments) -> Result<(ReservationStore, Keeping, u64), Failure> {
    let Some(peers) = &arguments.group else {
        let path = arguments
            .state
            .as_deref()
            .expect("clap requires one of the two");
        return Ok((
            ReservationStore::File(EpochFile::open(path, arguments.at_least)?),
            Keeping::File,
            EPOCH_LOW,
        ));
    };
    check_name(&arguments.name)?;
    let lease = match arguments.strict {
        true => Duration::from(arguments.lease),
        false => Duration::ZERO,
    };
    if arguments.strict && !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
        let (least, most) = (show_ns(LEASE_MIN.as_nanos()), show_ns(LEASE_MAX.as_nanos()));
        return Err(Failure::usage(
            format!("--lease {} is not possible", show_ns(lease.as_nanos())),
            format!("take {least} to {most}"),
        ));
    }
    let location = SequenceLocation {
        peers: peers.clone(),
        name: arguments.name.clone(),
        // A question that takes longer than this is repeated before the lease has ended.
        patience: arguments.lease / 2,
    };
    let terms = Terms {
        me: random_seed()?.max(1),
        lease,
        block: arguments.block,
        least: arguments.at_least,
    };
    let keeping = match arguments.strict {
        true => Keeping::Strict,
        false => Keeping::Loose,
    };
    Ok((
        ReservationStore::Group(location, terms),
        keeping,
        arguments.block,
    ))
}

/// The application of a thread.
pub(super) fn dispatch<R: Route>(
    door: Door<R>,
    shared: &ServerState,
) -> Dispatch<MonotonicClock, Door<R>> {
    let desk = shared.desk.clone();
    let call = Box::new(move || desk.call());
    let supply = Arc::clone(&shared.supply);
    Dispatch::new(supply, shared.keeping, MonotonicClock, door, call)
}

/// Where the numbers come from, in words.
struct Described {
    strict: bool,
    from: String,
}

impl Described {
    fn of(arguments: &SequencerServeArguments, kept: &ReservationStore) -> Self {
        let strict = matches!(kept, ReservationStore::Group(_, terms) if !terms.lease.is_zero());
        let from = match kept {
            ReservationStore::File(_) => {
                let path = arguments
                    .state
                    .as_deref()
                    .unwrap_or_else(|| unreachable!("clap requires it"));
                format!("state in {}", path.display())
            }
            ReservationStore::Group(location, _) => {
                let rule = if strict {
                    "one server at a time"
                } else {
                    "beside other servers"
                };
                format!(
                    "blocks of {} out of {}, {rule}",
                    arguments.block,
                    location.key_text()
                )
            }
        };
        Self { strict, from }
    }
}

fn tell(
    addresses: &[SocketAddr],
    arguments: &SequencerServeArguments,
    place: &Described,
    announcer: Announcer,
) {
    announcer.json_line(&json!({
        "listening": addresses,
        "threads": arguments.threads,
        "state": arguments.state.as_deref().map(path_text),
        "group": arguments.group,
        "strict": place.strict,
        "speculative": arguments.speculative,
    }));
    let ports = match addresses {
        [first, .., last] => format!("{first} to port {}", last.port()),
        _ => addresses[0].to_string(),
    };
    announcer.line(format_args!(
        "a sequencer on {ports}, {}, {}",
        plural(arguments.threads.into(), "thread"),
        place.from,
    ));
    if arguments.speculative {
        announcer.line(format_args!(
            "requests of four bytes go to as many ports from {} on",
            addresses[0].port() + addresses.len() as u16
        ));
    }
    announcer.line("Ctrl-C stops it; no number is ever reused.");
}
