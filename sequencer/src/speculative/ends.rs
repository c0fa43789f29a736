//! The use by client and server of a backend that hands over each packet as a datagram of its own.

use std::any::Any;
use std::collections::VecDeque;

use trine_transport::backend::{Backend, BackendError, Body, TxBatch};
use trine_transport::time::{Clock, Duration, Instant};

use super::{AnswerEffect, Answerer, Asker};
use crate::config::{SPECULATIVE_EARLIER_WAYS, SPECULATIVE_LATE_MAX, SPECULATIVE_WINDOW_MAX};

/// A thread of a server.
pub struct ServerEnd<B: Backend, C> {
    /// Sends and receives.
    pub backend: B,
    /// Has the requests.
    pub answerer: Answerer<B::Route, C>,
    clock: C,
    batch: TxBatch<B::Route>,
    /// Wakes the thread that reserves numbers.
    call: Box<dyn Fn() + Send>,
}

impl<B: Backend, C: Clock> ServerEnd<B, C> {
    /// A thread that calls `call` when numbers are missing.
    pub fn new(
        backend: B,
        answerer: Answerer<B::Route, C>,
        clock: C,
        call: Box<dyn Fn() + Send>,
    ) -> Self {
        Self {
            backend,
            answerer,
            clock,
            batch: TxBatch::new(),
            call,
        }
    }

    /// Takes the requests that have come and answers them. True if there was one.
    ///
    /// # Errors
    /// The backend cannot be used any more.
    pub fn turn(&mut self) -> Result<bool, BackendError> {
        let begun = self.clock.now();
        let burst = self.backend.rx_burst()?;
        let came = !burst.is_empty();
        for packet in burst {
            self.answerer.on_datagram(begun, packet.route, packet.bytes);
        }
        let mut failed = None;
        let (backend, batch) = (&mut self.backend, &mut self.batch);
        let missing = self.answerer.turn(begun, |to, bytes| {
            batch.push(to, bytes, Body::None);
            if batch.is_full()
                && let Err(error) = backend.tx_burst(batch)
            {
                failed.get_or_insert(error);
                batch.clear();
            }
        });
        if missing {
            (self.call)();
        }
        if !batch.is_empty() {
            backend.tx_burst(batch)?;
        }
        failed.map_or(Ok(came), Err)
    }
}

/// A client's path to a server: an endpoint of its own, at which only answers to requests from it arrive.
pub struct ServerPath<B: Backend> {
    /// Sends and receives.
    pub backend: B,
    /// Where the server is.
    pub route: B::Route,
    /// A resource that has to live as long as the backend is in use.
    pub keep: Option<Box<dyn Any + Send>>,
}

/// A client, which opens ways as it needs them.
pub struct ClientEnd<B: Backend, C, O> {
    way: ServerPath<B>,
    /// Ways that were given up, and when. They are kept for a while, so that no fresh one gets the name of one for which
    /// answers may still be under way.
    earlier: VecDeque<(Instant, ServerPath<B>)>,
    open: O,
    clock: C,
    asker: Asker,
    batch: TxBatch<B::Route>,
}

impl<B, C, E, O> ClientEnd<B, C, O>
where
    B: Backend,
    C: Clock,
    E: From<BackendError>,
    O: FnMut() -> Result<ServerPath<B>, E>,
{
    /// A client that opens its ways by `open`. See [`Asker::new`].
    ///
    /// # Errors
    /// The first way could not be opened.
    pub fn new(mut open: O, clock: C, guess: u32, patience: Duration) -> Result<Self, E> {
        Ok(Self {
            way: open()?,
            earlier: VecDeque::new(),
            open,
            clock,
            asker: Asker::new(guess, patience),
            batch: TxBatch::new(),
        })
    }

    /// Requests without an answer.
    pub fn under_way(&self) -> usize {
        self.asker.under_way()
    }

    /// Ways that were opened.
    pub fn ways(&self) -> u64 {
        self.asker.way() + 1
    }

    /// The backend of the present way.
    pub fn backend(&self) -> &B {
        &self.way.backend
    }

    /// Sends so many requests, or as many as may be under way together. Returns how many were sent. There is none while the
    /// next turn has to open a fresh way, or while too many were opened lately.
    ///
    /// # Errors
    /// The backend cannot be used any more, or a fresh way could not be opened.
    pub fn ask(&mut self, requests: usize) -> Result<usize, E> {
        let requests = requests.min(SPECULATIVE_WINDOW_MAX.saturating_sub(self.under_way()));
        if requests == 0 {
            return Ok(0);
        }
        // Where answers are awaited, the turn moves: it has read those that have come.
        let has_way = !self.asker.is_over() || self.under_way() == 0 && self.move_to_fresh_way()?;
        if !has_way {
            return Ok(0);
        }
        let now = self.clock.now();
        for _ in 0..requests {
            let request = self.asker.ask(now).expect("the way is not over");
            self.push(request)?;
        }
        self.flush()?;
        Ok(requests)
    }

    /// Takes the answers that have come, and hands on what they bring. Moves to a fresh way if requests wait in vain. True
    /// if there was an answer.
    ///
    /// # Errors
    /// The backend cannot be used any more, or a fresh way could not be opened. The next turn tries it again.
    pub fn turn(&mut self, mut told: impl FnMut(AnswerEffect)) -> Result<bool, E> {
        let mut came = false;
        let burst = self.way.backend.rx_burst()?;
        let now = self.clock.now();
        for packet in burst {
            if packet.route == self.way.route {
                came = true;
                told(self.asker.on_datagram(now, packet.bytes));
            }
        }
        // More may have come already, where this has.
        if !came && self.asker.needs_fresh_way(now) {
            self.move_to_fresh_way()?;
        }
        Ok(came)
    }

    /// Sleeps until something has come or `until`, or until the way has to be given up.
    ///
    /// # Errors
    /// The backend cannot be used any more.
    pub fn wait(&mut self, until: Instant) -> Result<(), E> {
        let due = self
            .asker
            .timeout()
            .map_or(until, |timeout| timeout.min(until));
        let timeout = due.saturating_since(self.clock.now());
        self.way.backend.wait(Some(timeout))?;
        Ok(())
    }

    /// False if it has to wait, because too many ways were given up lately.
    #[cold]
    fn move_to_fresh_way(&mut self) -> Result<bool, E> {
        let now = self.clock.now();
        let is_old = |(since, _): &(Instant, ServerPath<B>)| {
            now.saturating_since(*since) >= SPECULATIVE_LATE_MAX
        };
        while self.earlier.front().is_some_and(is_old) {
            self.earlier.pop_front();
        }
        if self.earlier.len() == SPECULATIVE_EARLIER_WAYS {
            return Ok(false);
        }
        // The new one is opened while the old ones are there: it gets another name.
        let fresh = (self.open)()?;
        let old = std::mem::replace(&mut self.way, fresh);
        // Opening takes time.
        let now = self.clock.now();
        self.earlier.push_back((now, old));
        for request in self.asker.move_to_fresh_way(now) {
            self.push(request)?;
        }
        self.flush()?;
        Ok(true)
    }

    fn push(&mut self, request: [u8; 4]) -> Result<(), E> {
        self.batch.push(self.way.route, &request, Body::None);
        match self.batch.is_full() {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), E> {
        if !self.batch.is_empty() {
            self.way.backend.tx_burst(&mut self.batch)?;
        }
        Ok(())
    }
}
