//! Requests of four bytes: the threads that take them, and how a command sends them.

use std::net::SocketAddr;
use std::sync::Arc;

use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::units::show_duration;
use trine_sequencer::config::{SPECULATIVE_LATE_MAX, SPECULATIVE_PATIENCE};
use trine_sequencer::speculative::{
    AnswerEffect, Answerer, ClientEnd, Published, ServerEnd, ServerPath,
};
use trine_sequencer::wire::{SPECULATE, Speculation};
use trine_transport::backend::{Backend, BackendError, BackendStats, MonotonicClock, Waker};
use trine_transport::time::{Clock, Duration, Instant};

use super::server_state::ServerState;
use super::service::{NoNumbers, SEQUENCER, open as open_line};
use crate::event_loop::next_look;
use crate::rights::DENIED_BYTES_MAX;
use crate::threads::{ServerThread, address_of};

/// Refuses a network over which such requests cannot go, and a key, which they could not prove.
pub(super) fn check<N: Network>(network: &N) -> Result<(), Failure> {
    if !network.has_plain_datagrams() {
        return Err(Failure::usage(
            "--speculative needs verbs and its path ud: elsewhere packets share datagrams",
            "use --transport verbs, or omit --speculative",
        ));
    }
    if network.settings().server_key().is_some() {
        return Err(Failure::usage(
            "--speculative and a key exclude each other: a request of four bytes cannot show that its sender has the key",
            "omit one of them",
        ));
    }
    Ok(())
}

/// The addresses of as many threads as there are `addresses`: the ports that follow.
pub(super) fn addresses_behind(addresses: &[SocketAddr]) -> Result<Vec<SocketAddr>, Failure> {
    let (first, threads) = (addresses[0], addresses.len() as u32);
    let ports = (threads..2 * threads).map(|thread| {
        address_of(first, thread).ok_or_else(|| {
            let message = format!(
                "{threads} threads with --speculative need twice as many ports from {} on",
                first.port()
            );
            Failure::usage(message, "use a lower port, or fewer threads")
        })
    });
    ports.collect()
}

/// A thread that answers requests of four bytes.
pub(super) struct FourBytes<B: Backend> {
    end: ServerEnd<B, MonotonicClock>,
    /// How long it polls before it sleeps.
    spin: Duration,
}

impl<B: Backend> FourBytes<B> {
    pub(super) fn new(backend: B, spin: Duration, shared: &ServerState) -> Self {
        Self {
            end: server_end(backend, shared),
            spin,
        }
    }

    /// Its counters, for other threads.
    pub(super) fn published(&self) -> Arc<Published> {
        self.end.answerer.published()
    }
}

/// A server's end over any backend.
pub(super) fn server_end<B: Backend>(
    backend: B,
    shared: &ServerState,
) -> ServerEnd<B, MonotonicClock> {
    let desk = shared.desk.clone();
    let answerer = Answerer::new(Arc::clone(&shared.supply), MonotonicClock);
    ServerEnd::new(
        backend,
        answerer,
        MonotonicClock,
        Box::new(move || desk.call()),
    )
}

impl<B: Backend + Send> ServerThread for FourBytes<B> {
    fn waker(&self) -> Waker {
        self.end.backend.waker()
    }

    fn run(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), BackendError> {
        let mut active_at = MonotonicClock.now();
        loop {
            let came = self.end.turn()?;
            if is_over() {
                return Ok(());
            }
            if came {
                active_at = MonotonicClock.now();
            } else if MonotonicClock.now().saturating_since(active_at) < self.spin {
                // A client may need this processor.
                std::thread::yield_now();
            } else {
                self.end.backend.wait(None)?;
            }
        }
    }

    fn backend_stats(&self) -> BackendStats {
        self.end.backend.stats()
    }
}

/// Opens ways to a server.
pub(super) type Opener<B> = Box<dyn FnMut() -> Result<ServerPath<B>, Failure>>;

/// A client of a server.
pub(super) type SpeculativeClient<B> = ClientEnd<B, MonotonicClock, Opener<B>>;

/// Opens the first way to the server at `address`, and others when they are needed.
pub(super) fn connect<N: Network>(
    network: &N,
    address: SocketAddr,
    patience: std::time::Duration,
) -> Result<SpeculativeClient<N::Backend>, Failure> {
    check(network)?;
    let speculation = ask_where(network, address, patience)?;
    let guess = speculation.guess;
    // The server may have begun another life since it was asked, with other ports.
    let mut asked = Some(speculation);
    let network = network.clone();
    let open: Opener<N::Backend> = Box::new(move || {
        let speculation = match asked.take() {
            Some(speculation) => speculation,
            // Requests that wait for longer than this are of no use.
            None => ask_where(&network, address, patience.min(SPECULATIVE_LATE_MAX.into()))?,
        };
        let server = SocketAddr::new(address.ip(), speculation.port);
        let (opened, route) = network.call_plain(server)?;
        let route = route.ok_or_else(|| {
            let message = format!("no way to {server} is known");
            Failure::not_reachable(message, SEQUENCER.start_one)
        })?;
        Ok(ServerPath {
            backend: opened.backend,
            route,
            keep: opened.keep,
        })
    });
    ClientEnd::new(open, MonotonicClock, guess, SPECULATIVE_PATIENCE)
}

/// Asks a server where it takes requests of four bytes.
fn ask_where<N: Network>(
    network: &N,
    address: SocketAddr,
    patience: std::time::Duration,
) -> Result<Speculation, Failure> {
    let mut line = open_line(network, address, patience)?;
    let bytes = Speculation::BYTES.max(DENIED_BYTES_MAX);
    let answer = line.ask(SPECULATE, &[], bytes, false)?;
    Speculation::decode(&answer).ok_or_else(|| {
        Failure::usage(
            format!("{address} does not accept requests of four bytes; nothing was done"),
            "start it with --speculative, or omit the option here",
        )
    })
}

/// Takes one number.
pub(super) fn next<N: Network>(
    network: &N,
    address: SocketAddr,
    patience: std::time::Duration,
) -> Result<Result<u64, NoNumbers>, Failure> {
    let deadline: Instant = MonotonicClock.now() + Duration::from(patience);
    let mut client = connect(network, address, patience)?;
    client.ask(1)?;
    let mut told = AnswerEffect::Nothing;
    loop {
        let turned = client.turn(|news| {
            if told == AnswerEffect::Nothing {
                told = news;
            }
        });
        match told {
            AnswerEffect::Number(number, _) => return Ok(Ok(number)),
            AnswerEffect::None(why) => return Ok(Err(NoNumbers(address, why))),
            AnswerEffect::Nothing => {}
        }
        interrupt::check()?;
        if MonotonicClock.now() >= deadline {
            return Err(Failure::not_reachable(
                format!(
                    "{address} does not answer requests of four bytes (tried for {})",
                    show_duration(patience)
                ),
                SEQUENCER.start_one,
            ));
        }
        if !unless_unanswered(turned, true)? {
            client.wait(deadline.min(next_look()))?;
        }
    }
}

/// A fresh way could not be opened, because nobody answered: `nothing` has happened, and it is tried again.
pub(super) fn unless_unanswered<T>(outcome: Result<T, Failure>, nothing: T) -> Result<T, Failure> {
    match outcome {
        Err(failure) if failure.is_without_answer() => Ok(nothing),
        outcome => outcome,
    }
}
