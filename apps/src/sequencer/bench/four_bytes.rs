//! The benchmark's requests of four bytes.

use std::collections::VecDeque;
use std::net::SocketAddr;

use trine_base::endpoint::backend_failure;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_sequencer::speculative::{AnswerEffect, ClientEnd, ServerPath};
use trine_transport::backend::{Backend, MonotonicClock, RingBackend, RingConfig};
use trine_transport::time::{Clock, Duration};

use super::driver::{LoadLimit, Measured, Numbers};
use super::setup::shared;
use crate::bench::{Setup, Work};
use crate::config::SEQUENCER_IN_PROCESS_WAYS;
use crate::sequencer::args::SequencerBenchArguments;
use crate::sequencer::service::SEQUENCER;
use crate::sequencer::speculative::{
    Opener, SpeculativeClient, connect, server_end, unless_unanswered,
};

/// A client, and what turns the server if that runs in this thread.
pub(super) struct FourBytes<B: Backend> {
    client: SpeculativeClient<B>,
    serve: Box<dyn FnMut() -> Result<(), Failure>>,
    numbers: Numbers,
    window: usize,
    /// The least numbers that the requests under way may get, in their order.
    leasts: VecDeque<u64>,
    timeout: Duration,
}

/// A client of the server at this address.
pub(super) fn remote<N: Network>(
    network: &N,
    address: SocketAddr,
    arguments: &SequencerBenchArguments,
) -> Result<FourBytes<N::Backend>, Failure> {
    let client = connect(network, address, arguments.client.timeout)?;
    Ok(FourBytes::new(client, Box::new(|| Ok(())), arguments))
}

/// A client with a server in this thread.
pub(super) fn in_process(
    arguments: &SequencerBenchArguments,
) -> Result<FourBytes<RingBackend>, Failure> {
    let mut backends = RingBackend::mesh(1 + SEQUENCER_IN_PROCESS_WAYS, RingConfig::default());
    let server = backends.remove(0);
    let route = server.route();
    let mut ways = backends.into_iter();
    let open: Opener<RingBackend> = Box::new(move || {
        let backend = ways.next().ok_or_else(|| {
            Failure::usage(
                format!(
                    "a client in one process has {SEQUENCER_IN_PROCESS_WAYS} endpoints, and took another one each time that the \
                     low half of numbers wrapped or this process stood still"
                ),
                "take fewer --rounds, or less time",
            )
        })?;
        Ok(ServerPath {
            backend,
            route,
            keep: None,
        })
    });
    let client = ClientEnd::new(open, MonotonicClock, 0, arguments.client.timeout.into())?;
    let mut server = server_end(server, &shared(arguments.lease_check));
    let serve = move || server.turn().map(|_| ()).map_err(backend_failure);
    Ok(FourBytes::new(client, Box::new(serve), arguments))
}

impl<B: Backend> FourBytes<B> {
    fn new(
        client: SpeculativeClient<B>,
        serve: Box<dyn FnMut() -> Result<(), Failure>>,
        arguments: &SequencerBenchArguments,
    ) -> Self {
        Self {
            client,
            serve,
            numbers: Numbers::new(1),
            window: arguments.pipeline as usize,
            leasts: VecDeque::new(),
            timeout: arguments.client.timeout.into(),
        }
    }

    /// Sends requests as long as the load goes on and the window has room.
    fn ask(&mut self) -> Result<(), Failure> {
        let now = MonotonicClock.now();
        let room = self.window - self.client.under_way();
        let wanted = self.numbers.wanted(now, room);
        let least = self.numbers.next_ask();
        let sent = unless_unanswered(self.client.ask(wanted), 0)?;
        for _ in 0..sent {
            self.numbers.on_sent();
            self.leasts.push_back(least);
        }
        Ok(())
    }

    /// Takes answers. True if there were any.
    fn take(&mut self) -> Result<bool, Failure> {
        let (numbers, leasts) = (&mut self.numbers, &mut self.leasts);
        let mut wrong = None;
        let mut answered = false;
        let turned = self.client.turn(|told| {
            let checked = match told {
                AnswerEffect::Number(number, asked) => {
                    answered = true;
                    let least = leasts.pop_front().unwrap_or(0);
                    let latency = MonotonicClock.now().saturating_since(asked).as_nanos();
                    numbers.record_first(least, number, latency)
                }
                AnswerEffect::None(why) => Err(super::driver::without(why)),
                AnswerEffect::Nothing => Ok(()),
            };
            if let Err(failure) = checked {
                wrong.get_or_insert(failure);
            }
        });
        unless_unanswered(turned, false)?;
        wrong.map_or(Ok(answered), Err)
    }
}

impl<B: Backend> Setup<Numbers> for FourBytes<B> {
    fn run(&mut self, load: LoadLimit) -> Result<Measured, Failure> {
        self.numbers.begin(load);
        let mut answered_at = MonotonicClock.now();
        loop {
            self.ask()?;
            (self.serve)()?;
            let now = MonotonicClock.now();
            if self.take()? {
                answered_at = now;
            }
            if self.numbers.is_sent() && self.client.under_way() == 0 {
                return Ok(self.numbers.take_measured());
            }
            interrupt::check()?;
            if now.saturating_since(answered_at) > self.timeout {
                return Err(Failure::not_reachable(
                    "the sequencer no longer answers requests of four bytes",
                    SEQUENCER.start_one,
                ));
            }
        }
    }
}
