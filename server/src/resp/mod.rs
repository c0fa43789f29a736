//! The Redis protocol at a replica: sockets on one side, a client of the group on the other, in one thread.
//!
//! The server for Redis clients is itself a client of the group, so every replica can run one. Commands go to the
//! leader and are executed exactly once. The commands of all connections in one turn leave together.

mod auth;
mod checker;
mod descriptors;
mod feed;
mod hosted;
pub(crate) mod info;
mod news;
mod openings;
mod passwords;
mod server;
mod stream;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use trine_client::{ClientConfig, Clients};
use trine_protocol::route::RouteOf;
use trine_transport::backend::{MonotonicClock, Route};
use trine_transport::buf::Pool;
use trine_transport::{Config, EventLoop, Identity};

pub use info::{SharedStats, Stats};
pub use passwords::{Generation, PASSWORD_BYTES_MAX, Password, SALT_BYTES, Verifier};

pub(crate) use news::Teller;

use crate::options::{RespArguments, ServeArguments};
use crate::tls::Tls;
use feed::Feed;
use hosted::Hosted;
use news::News;
use passwords::Passwords;
use server::{Options, Server};
use trine_base::announce::{Announcer, note};
use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_base::network::{EndpointSettings, Network, Opened};
use trine_keys::{ClusterKey, KeyRing};

/// Requests of many connections share messages up to this size.
const BATCH_BYTES: usize = 32 * 1024;

/// The thread that serves Redis clients. Dropping it ends the connections.
pub struct Resp {
    stopping: Arc<AtomicBool>,
    teller: Teller,
    thread: Option<JoinHandle<()>>,
    stats: SharedStats,
}

impl Resp {
    /// Counters for other threads.
    pub fn stats(&self) -> SharedStats {
        self.stats.clone()
    }

    /// What tells the thread that something has changed.
    pub(crate) fn teller(&self) -> Teller {
        self.teller.clone()
    }
}

/// Starts the server, if the options ask for it.
pub fn start<N: Network>(
    network: &N,
    arguments: &ServeArguments,
    own: SocketAddr,
    replicas: &[SocketAddr],
    tls: Option<&Tls>,
    announcer: Announcer,
) -> Result<Option<Resp>, Failure> {
    let Some(resp) = arguments.resp.resp else {
        return Ok(None);
    };
    let address = resp.of_node(arguments.id)?;
    let server = open(network.settings(), arguments, address, tls)?;
    let address = server.address();
    let stats = server.shared();
    let Opened {
        backend,
        endpoint,
        route_of,
        keep,
        ..
    } = network.call_as_replica(replicas)?;
    let pool = trine_transport::backend::Backend::pool(&backend).clone();
    let seed = random_seed()?;
    let [routes, own_route] = shared(route_of);
    let clients = clients(arguments, replicas, routes, &pool, seed)?;
    let patience = arguments.resp.resp_timeout.into();
    let feed = Feed::new(own, own_route, random_seed()?, patience);
    let stopping = Arc::new(AtomicBool::new(false));
    let watched = server.descriptor()?;
    let news = News::default();
    let hosted = Hosted::new(
        clients,
        feed,
        pool,
        server,
        stats.clone(),
        news.clone(),
        Arc::clone(&stopping),
    );
    let identity = identity()?;
    let transport = Config {
        spin: arguments.limits.spin.into(),
        ..endpoint
    };
    let mut event_loop = EventLoop::new(backend, MonotonicClock, hosted, transport, identity, seed)
        .map_err(|error| Failure::usage(format!("cannot set up the endpoint: {error}"), ""))?;
    if !event_loop.watch(watched) {
        event_loop.app_mut().poll_often();
    }
    let teller = Teller {
        news,
        waker: event_loop.waker(),
    };
    let drive = move || {
        let done = |hosted: &mut Hosted<_>| hosted.is_stopping();
        if let Err(error) = event_loop.run_until(None, done) {
            tracing::error!(%error, "the Redis protocol is no longer served");
        }
        drop(keep);
    };
    let thread = in_thread(drive)?;
    announcer.line(format_args!("serves Redis clients at {address}"));
    Ok(Some(Resp {
        stopping,
        teller,
        thread: Some(thread),
        stats,
    }))
}

fn identity() -> Result<Identity, Failure> {
    Ok(Identity {
        cluster: 0,
        incarnation: random_seed()?.max(1),
    })
}

/// The same knowledge of routes for two who ask.
fn shared<R: Route>(route_of: RouteOf<R>) -> [RouteOf<R>; 2] {
    let all = Arc::new(Mutex::new(route_of));
    [Arc::clone(&all), all].map(|all| -> RouteOf<R> {
        Box::new(move |address| {
            let route_of = all.lock().unwrap_or_else(PoisonError::into_inner);
            (*route_of)(address)
        })
    })
}

/// The group's client, which waits until its replica has a cluster.
fn clients<R: Route>(
    arguments: &ServeArguments,
    replicas: &[SocketAddr],
    route_of: RouteOf<R>,
    pool: &Pool,
    seed: u64,
) -> Result<Clients<R>, Failure> {
    let mut config = ClientConfig::new(replicas.to_vec());
    config.operation_timeout = arguments.resp.resp_timeout.into();
    config.batch_bytes = BATCH_BYTES;
    let clients = Clients::new(config, route_of, pool.clone(), seed);
    clients
        .map(Clients::awaiting_pin)
        .map_err(|error| Failure::usage(error.to_string(), ""))
}

fn in_thread(drive: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    std::thread::Builder::new()
        .name("trine-resp".to_owned())
        .spawn(drive)
        .map_err(|error| Failure::usage(format!("cannot start a thread: {error}"), ""))
}

/// The sockets, if the address may be reached by whom it is reached.
fn open(
    settings: &EndpointSettings,
    arguments: &ServeArguments,
    address: SocketAddr,
    tls: Option<&Tls>,
) -> Result<Server, Failure> {
    let exposed = arguments.resp.exposed(address, &arguments.tls);
    exposed.check()?;
    let ring = Arc::new(key_ring(settings)?);
    let mut options = options(&arguments.resp, ring, tls.cloned())?;
    let has_metrics = arguments.watch.metrics.is_some();
    options.clients_max = descriptors::clients_max(options.clients_max, has_metrics)?;
    let server = Server::open(address, options)?;
    if let Some(warning) = exposed.warning() {
        note(warning);
    }
    // Without a key there is nothing that the group keeps from them.
    if exposed.is_open_to_local_users() && settings.server_key().is_some() {
        tracing::warn!(
            target: "keys",
            %address,
            "every user of this machine has all rights through Redis clients, although the group has a key: \
             --resp-require-auth leaves it to users of the group, and --resp-password-file FILE asks for a password"
        );
    }
    Ok(server)
}

/// The key file by which users' keys are known. Without keys there are no users.
fn key_ring(settings: &EndpointSettings) -> Result<KeyRing, Failure> {
    let Some((path, _)) = settings.server_key() else {
        return Ok(KeyRing::default());
    };
    let cluster = ClusterKey::read(path).map_err(|error| Failure::usage(error.to_string(), ""))?;
    Ok(KeyRing::new([cluster]))
}

fn options(
    arguments: &RespArguments,
    ring: Arc<KeyRing>,
    tls: Option<Tls>,
) -> Result<Options, Failure> {
    let password = arguments.password()?;
    let requires_auth = password.is_some() || arguments.resp_require_auth;
    if requires_auth && password.is_none() && ring.is_empty() {
        return Err(Failure::usage(
            "--resp-require-auth: no client could authenticate: there is no password, and no key \
             for users",
            "name the group's key file with --key FILE, or give --resp-password-file FILE",
        ));
    }
    Ok(Options {
        passwords: passwords(arguments, &ring)?,
        limits: arguments.limits(),
        password,
        requires_auth,
        ring,
        tls,
        clients_max: arguments.resp_max_clients as usize,
        notify: arguments.resp_notify_keyspace_events,
        slow_reader: arguments.resp_slow_reader.into(),
        memory: usize::try_from(arguments.resp_memory).unwrap_or(usize::MAX),
    })
}

/// The passwords of users, if they have any.
fn passwords(arguments: &RespArguments, ring: &KeyRing) -> Result<Option<Passwords>, Failure> {
    let Some(path) = &arguments.resp_users else {
        return Ok(None);
    };
    if ring.is_empty() {
        return Err(Failure::usage(
            "--resp-users: a group without a key has no users, whose passwords these could be",
            "name the group's key file with --key FILE, or use --resp-password-file FILE",
        ));
    }
    Passwords::read(path).map(Some)
}

impl Drop for Resp {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.teller.waker.wake();
        if let Some(thread) = self.thread.take() {
            // The thread has already printed its panic.
            drop(thread.join());
        }
    }
}
