//! A server of `trine cache`: each client has a session with each of its threads.

use std::any::Any;
use std::net::SocketAddr;

use trine_apps::cache::wire::{COMMAND, DONE, HELLO, HELLO_BYTES, Hello};
use trine_apps::event_loop::{event_loop, turn_until};
use trine_base::answers::store_failure;
use trine_base::endpoint::backend_failure;
use trine_base::failure::Failure;
use trine_base::network::{Network, Opened};
use trine_base::{load, peers};
use trine_kvstore::cache::shard_of;
use trine_kvstore::{Command, Response};
use trine_transport::backend::{Backend, MonotonicClock, Route};
use trine_transport::buf::MsgBuf;
use trine_transport::slab::{Key, Slab};
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{
    App, Completion, ConnectParams, Cx, Event, EventLoop, RefusedReason, Reply, SessionId,
};

use super::{BenchRequest, Finished, IN_FLIGHT_MAX, OperationOutcome, StoreTarget, silence};

/// The bytes of an answer beside its value; a denial fits, too.
const ANSWER_BYTES_LEAST: usize = 128;
const START_ONE: &str =
    "start a cache with `trine cache serve`, or name the right one: cache://HOST:PORT";

/// Sessions of one endpoint with all threads of a cache.
pub(crate) struct Cache<B: Backend> {
    event_loop: EventLoop<B, MonotonicClock, Callers>,
    shards: u32,
    /// Operations of each client in flight.
    under_way: Vec<usize>,
    answer_bytes: usize,
    /// The first thread's address, and how long the cache may be silent.
    server: String,
    limit: Duration,
    sealed: bool,
    _keep: Option<Box<dyn Any + Send>>,
}

impl<B: Backend> Cache<B> {
    /// Asks the first thread how many there are, and connects each client with all of them. Values have `value_bytes` at
    /// most.
    pub(crate) fn connect<N: Network<Backend = B>>(
        network: &N,
        server: &str,
        clients: usize,
        value_bytes: u64,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let first = peers::resolve_server(server)?;
        let value_bytes = usize::try_from(value_bytes).expect("checked against the limit");
        let answer_bytes = ANSWER_BYTES_LEAST + value_bytes;
        let mut alone = Self::open(network, &[first], 1, answer_bytes, limit)?;
        let Some(Hello { shard: 0, shards }) = Hello::decode(&alone.hello(limit)?) else {
            return Err(Failure::usage(
                format!("{first} is not the first thread of a cache"),
                START_ONE,
            ));
        };
        drop(alone);
        let address = |shard: u32| {
            let port = u16::try_from(shard)
                .ok()
                .and_then(|shard| first.port().checked_add(shard));
            port.map(|port| SocketAddr::new(first.ip(), port))
        };
        let addresses: Option<Vec<SocketAddr>> = (0..shards).map(address).collect();
        let addresses = addresses.ok_or_else(|| {
            Failure::usage(format!("{first} names threads without ports"), START_ONE)
        })?;
        Self::open(network, &addresses, clients, answer_bytes, limit)
    }

    fn open<N: Network<Backend = B>>(
        network: &N,
        addresses: &[SocketAddr],
        clients: usize,
        answer_bytes: usize,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let Opened {
            backend,
            endpoint,
            route_of,
            keep,
            ..
        } = network.call(addresses)?;
        let sealed = endpoint.keys.is_some();
        let callers = Callers {
            sessions: Vec::new(),
            connected: 0,
            queue: Vec::new(),
            flights: Slab::new(clients * IN_FLIGHT_MAX),
            over: Vec::new(),
            hello: None,
            failure: None,
        };
        let mut event_loop = event_loop(backend, callers, endpoint)?;
        let params = ConnectParams {
            timeout: Some(limit),
            ..ConnectParams::default()
        };
        let mut count = 0;
        for _ in 0..clients {
            for &address in addresses {
                let unknown =
                    || Failure::not_reachable(format!("no way to {address} is known"), START_ONE);
                let route = route_of(address).ok_or_else(unknown)?;
                let session =
                    event_loop
                        .with(|_, cx| cx.connect(route, params))
                        .map_err(|refused| {
                            Failure::usage(
                                format!("cannot connect: {refused:?}"),
                                "lower --clients",
                            )
                        })?;
                event_loop.app_mut().sessions.push(session);
                count += 1;
            }
        }
        // Ends without a limit here, because connecting has a timeout.
        turn_until(&mut event_loop, |callers| {
            callers.failure.is_some() || callers.connected == count
        })?;
        if let Some(failure) = event_loop.app_mut().failure.take() {
            return Err(failure);
        }
        Ok(Self {
            event_loop,
            shards: u32::try_from(addresses.len()).expect("ports are fewer"),
            under_way: vec![0; clients],
            answer_bytes,
            server: addresses[0].to_string(),
            limit,
            sealed,
            _keep: keep,
        })
    }

    /// The first thread's answer to a HELLO.
    fn hello(&mut self, limit: Duration) -> Result<Vec<u8>, Failure> {
        let session = self.event_loop.app().sessions[0];
        self.event_loop.with(|callers, cx| {
            let (request, response) = (cx.alloc(0)?, cx.alloc(HELLO_BYTES)?);
            let deadline = Some(cx.deadline(limit));
            callers.hello = None;
            cx.enqueue_request(session, HELLO, request, response, u64::MAX, deadline)
                .ok()
        });
        let until = MonotonicClock.now() + limit;
        turn_until(&mut self.event_loop, |callers| {
            callers.hello.is_some() || MonotonicClock.now() >= until
        })?;
        let told = self.event_loop.app_mut().hello.take();
        told.ok_or_else(|| Failure::not_reachable("the cache does not answer", START_ONE))
    }
}

impl<B: Backend> StoreTarget for Cache<B> {
    fn submit(
        &mut self,
        client: usize,
        tag: u64,
        request: BenchRequest<'_>,
    ) -> Result<(), Failure> {
        let (command, key, answer_bytes) = match request {
            BenchRequest::Read { key } => (Command::Get { key }, key, self.answer_bytes),
            BenchRequest::Write { key, value } => {
                (Command::Put { key, value }, key, ANSWER_BYTES_LEAST)
            }
            BenchRequest::Delete { key } => (Command::Delete { key }, key, ANSWER_BYTES_LEAST),
            BenchRequest::Scan { .. } => {
                return Err(Failure::usage("a cache keeps no order of keys to scan", ""));
            }
        };
        let pool = self.event_loop.backend().pool();
        let buffers = pool
            .alloc(command.encoded_len())
            .zip(pool.alloc(answer_bytes));
        let (mut request, response) = buffers.ok_or_else(|| {
            Failure::usage("no memory for requests", "lower --clients or --pipeline")
        })?;
        let mut bytes = Vec::with_capacity(command.encoded_len());
        command.encode(&mut bytes);
        request.copy_from_slice(&bytes);
        self.under_way[client] += 1;
        let session = client * self.shards as usize + shard_of(key, self.shards) as usize;
        self.event_loop.app_mut().queue.push(Queued {
            session,
            request,
            response,
            client,
            tag,
        });
        Ok(())
    }

    fn is_sealed(&mut self) -> Option<bool> {
        Some(self.sealed)
    }
}

impl<B: Backend> load::Target for Cache<B> {
    type Outcome = OperationOutcome;

    fn has_room(&self, client: usize) -> bool {
        self.under_way[client] < IN_FLIGHT_MAX
    }

    fn poll(&mut self, until: Instant, finished: &mut Vec<Finished>) -> Result<(), Failure> {
        // What waits to be sent leaves in the turn, all of it together.
        self.event_loop
            .run_until(Some(until), |callers| {
                !callers.over.is_empty() || callers.failure.is_some()
            })
            .map_err(backend_failure)?;
        let callers = self.event_loop.app_mut();
        for (client, tag, outcome) in callers.over.drain(..) {
            self.under_way[client] -= 1;
            finished.push((tag, outcome));
        }
        callers.failure.take().map_or(Ok(()), Err)
    }

    fn patience(&self) -> Option<(Duration, OperationOutcome)> {
        Some(silence("a cache", &self.server, self.limit))
    }
}

/// A request that has not been given to its session.
struct Queued {
    /// Its place among the sessions.
    session: usize,
    request: MsgBuf,
    response: MsgBuf,
    client: usize,
    tag: u64,
}

/// The endpoint's application: what was sent, and what became of it.
struct Callers {
    /// Of client 0 with all threads, then of client 1, ...
    sessions: Vec<SessionId>,
    connected: usize,
    queue: Vec<Queued>,
    /// Client and tag of the requests under way. Their keys are the tags of the transport.
    flights: Slab<(usize, u64)>,
    over: Vec<(usize, u64, OperationOutcome)>,
    hello: Option<Vec<u8>>,
    failure: Option<Failure>,
}

impl Callers {
    fn send<R: Route>(&mut self, cx: &mut Cx<'_, R>, queued: Queued) {
        let Queued {
            session,
            request,
            response,
            client,
            tag,
        } = queued;
        let flight = self.flights.insert((client, tag));
        let key = flight.expect("no client has more requests under way than it may");
        let Err(refused) = cx.enqueue_request(
            self.sessions[session],
            COMMAND,
            request,
            response,
            key.to_u64(),
            None,
        ) else {
            return;
        };
        self.flights.remove(key);
        match refused.reason {
            RefusedReason::QueueFull => self.queue.push(Queued {
                session,
                request: refused.request,
                response: refused.response,
                client,
                tag,
            }),
            reason => self.fail(format!("a request was not taken: {reason:?}")),
        }
    }

    fn fail(&mut self, message: String) {
        self.failure
            .get_or_insert_with(|| Failure::not_reachable(message, START_ONE));
    }
}

/// What a cache's answer to a command means.
fn outcome(answer: &[u8]) -> OperationOutcome {
    let failed =
        |message: String, hint: &str| OperationOutcome::Failed(Failure::negative(message, hint));
    match answer.split_first() {
        Some((&DONE, response)) => match Response::decode(response) {
            Ok(
                Response::Value { .. }
                | Response::Written { .. }
                | Response::Deleted { existed: true },
            ) => OperationOutcome::Done,
            Ok(Response::NotFound | Response::Deleted { existed: false }) => {
                OperationOutcome::Missing
            }
            Ok(Response::Error(error)) => OperationOutcome::Failed(store_failure(error)),
            other => failed(
                format!("an answer that does not fit: {other:?}"),
                "run the same release on both sides",
            ),
        },
        _ => failed(
            "the cache refused the command".to_owned(),
            "`trine cache get KEY` with the same --key says why",
        ),
    }
}

impl<R: Route> App<R> for Callers {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, _: trine_transport::Request<'_>) -> Reply {
        cx.alloc(0).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        if tag == u64::MAX {
            self.hello = completion
                .result
                .ok()
                .map(|()| completion.response.to_vec());
            return;
        }
        let flight = self.flights.remove(Key::from_u64(tag));
        let (client, tag) = flight.expect("a request ends once");
        match completion.result {
            Ok(()) => self.over.push((client, tag, outcome(&completion.response))),
            Err(error) => {
                let lost = Failure::not_reachable(
                    format!("the cache does not answer: {error}"),
                    START_ONE,
                );
                self.over
                    .push((client, tag, OperationOutcome::Failed(lost)));
            }
        }
    }

    fn on_event(&mut self, _: &mut Cx<'_, R>, event: Event<R>) {
        match event {
            Event::Connected { .. } => self.connected += 1,
            Event::ConnectFailed { reason, .. } => {
                self.fail(format!("no session with the cache: {reason:?}"))
            }
            Event::Down { .. } => self.fail("the cache ended a session".to_owned()),
            Event::Accepted { .. } => {}
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        if self.failure.is_none() {
            for queued in std::mem::take(&mut self.queue) {
                self.send(cx, queued);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_cache_are_what_they_say() {
        let done = |response: &Response<'_>| {
            let mut bytes = vec![0; 1 + response.encoded_len()];
            response.encode_into(&mut bytes[1..]).expect("long enough");
            outcome(&bytes)
        };
        assert_eq!(done(&Response::NotFound), OperationOutcome::Missing);
        assert_eq!(
            done(&Response::Deleted { existed: true }),
            OperationOutcome::Done
        );
        assert!(matches!(
            done(&Response::Count { items: 3 }),
            OperationOutcome::Failed(_)
        ));
        for refused in [&[][..], &[1], &[6, 1, 2, 0, 0, 0, 0]] {
            assert!(
                matches!(outcome(refused), OperationOutcome::Failed(_)),
                "{refused:?}"
            );
        }
    }
}
