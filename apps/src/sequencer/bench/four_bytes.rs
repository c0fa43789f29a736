//! How does the benchmark send requests of four bytes?

use std::collections::VecDeque;
use std::net::SocketAddr;

use trine_base::endpoint::backend_failure;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_sequencer::speculative::{ClientEnd, Told, Way};
use trine_transport::backend::{Backend, MonotonicClock, RingBackend, RingConfig};
use trine_transport::time::{Clock, Duration, Instant};

use super::driver::{Load, Measured, Numbers};
use super::setup::shared;
use crate::bench::{Setup, Work};
use crate::config::SEQUENCER_IN_PROCESS_WAYS;
use crate::sequencer::args::SequencerBenchArguments;
use crate::sequencer::client::SEQUENCER;
use crate::sequencer::speculative::{Opener, connect, server_end};

/// A client, and what turns the server if that runs in this thread.
pub(super) struct FourBytes<B: Backend> {
    client: ClientEnd<B, Opener<B>>,
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
            Failure::not_reachable(
                "this process stands still for long, again and again",
                "run it on a machine with less to do",
            )
        })?;
        Ok(Way {
            backend,
            route,
            keep: None,
        })
    });
    let client = ClientEnd::new(open, 0, arguments.client.timeout.into())?;
    let mut server = server_end(server, &shared(arguments.lease_check));
    let serve = move || server.turn().map(|_| ()).map_err(backend_failure);
    Ok(FourBytes::new(client, Box::new(serve), arguments))
}

impl<B: Backend> FourBytes<B> {
    fn new(
        client: ClientEnd<B, Opener<B>>,
        serve: Box<dyn FnMut() -> Result<(), Failure>>,
        arguments: &SequencerBenchArguments,
    ) -> Self {
        Self {
            client,
            serve,
            numbers: Numbers::new(1),
            window: arguments.window as usize,
            leasts: VecDeque::new(),
            timeout: arguments.client.timeout.into(),
        }
    }

    /// Sends requests as long as the load goes on and the window has room.
    fn ask(&mut self, now: Instant) -> Result<(), Failure> {
        let mut wanted = 0;
        while self.client.under_way() + wanted < self.window
            && self.numbers.next_due(now, 0).is_some()
        {
            wanted += 1;
            self.numbers.on_sent();
        }
        let sent = self.client.ask(now, wanted)?;
        debug_assert_eq!(sent, wanted, "a turn has just opened a way");
        let least = self.numbers.next_ask();
        self.leasts.extend(std::iter::repeat_n(least, sent));
        Ok(())
    }

    /// Takes answers. True if there were any.
    fn take(&mut self, now: Instant) -> Result<bool, Failure> {
        let (numbers, leasts) = (&mut self.numbers, &mut self.leasts);
        let mut wrong = None;
        let mut answered = false;
        self.client.turn(now, |told| {
            let checked = match told {
                Told::Number(number, asked) => {
                    answered = true;
                    let least = leasts.pop_front().unwrap_or(0);
                    let latency = MonotonicClock.now().saturating_since(asked).as_nanos();
                    numbers.record_first(least, number, latency)
                }
                Told::None(why) => Err(super::driver::without(why)),
                Told::Nothing => Ok(()),
            };
            if let Err(failure) = checked {
                wrong.get_or_insert(failure);
            }
        })?;
        wrong.map_or(Ok(answered), Err)
    }
}

impl<B: Backend> Setup<Numbers> for FourBytes<B> {
    fn run(&mut self, load: Load) -> Result<Measured, Failure> {
        self.numbers.begin(load);
        let mut answered_at = MonotonicClock.now();
        loop {
            let now = MonotonicClock.now();
            self.ask(now)?;
            (self.serve)()?;
            if self.take(now)? {
                answered_at = now;
            }
            if self.numbers.is_sent() && self.client.under_way() == 0 {
                return Ok(self.numbers.take_measured());
            }
            interrupt::check()?;
            if now.saturating_since(answered_at) > self.timeout {
                return Err(Failure::not_reachable(
                    "the sequencer does not answer requests of four bytes any more",
                    SEQUENCER.start_one,
                ));
            }
        }
    }
}
