//! A client of `echo_server`: the round trip of small messages, then the rate of large ones.
//!
//!     cargo run --release -p trine-transport --example echo_client -- 127.0.0.1:7700
//!
//! Exits with an error if the server does not answer.

use std::error::Error;
use std::net::SocketAddr;

use trine_transport::backend::{MonotonicClock, UdpBackend, UdpConfig};
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{
    App, Completion, Config, ConnectError, ConnectParams, Cx, Event, EventLoop, Identity, Reply,
    Request, RpcError, SessionId,
};

const KIND: u8 = 1;
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Client {
    session: Option<SessionId>,
    refused: Option<ConnectError>,
    completed: Option<Result<(), RpcError>>,
}

impl App<SocketAddr> for Client {
    fn on_request(&mut self, _: &mut Cx<'_, SocketAddr>, _: Request<'_>) -> Reply {
        Reply::Later
    }

    fn on_completion(&mut self, _: &mut Cx<'_, SocketAddr>, _: u64, completion: Completion) {
        self.completed = Some(completion.result);
    }

    fn on_event(&mut self, _: &mut Cx<'_, SocketAddr>, event: Event<SocketAddr>) {
        match event {
            Event::Connected { session, .. } => self.session = Some(session),
            Event::ConnectFailed { reason, .. } => self.refused = Some(reason),
            _ => {}
        }
    }
}

type Loop = EventLoop<UdpBackend, MonotonicClock, Client>;

fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args()
        .nth(1)
        .ok_or("usage: echo_client HOST:PORT")?;
    measure(server.parse()?, 10_000, 20)
}

/// So many small round trips, then so many large messages.
pub(crate) fn measure(
    server: SocketAddr,
    small: usize,
    large: usize,
) -> Result<(), Box<dyn Error>> {
    let any = if server.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let udp = UdpConfig {
        // A client is not asked.
        answers_where_asked: false,
        ..UdpConfig::default()
    };
    let backend = UdpBackend::bind(any.parse()?, &udp)?;
    let seed = MonotonicClock.now().as_nanos();
    let identity = Identity {
        cluster: 0,
        incarnation: seed,
    };
    // More packets under way than the default, for the large messages.
    let config = Config {
        credits: 256,
        ..Config::default()
    };
    let mut client = EventLoop::new(
        backend,
        MonotonicClock,
        Client::default(),
        config,
        identity,
        seed,
    )?;
    let session = connect(&mut client, server)?;

    let mut round_trips = Vec::new();
    for _ in 0..small {
        round_trips.push(call(&mut client, session, 32)?);
    }
    round_trips.sort_unstable();
    println!(
        "32 bytes: median round trip {}",
        round_trips[round_trips.len() / 2]
    );

    let (bytes, count) = (8 << 20, large);
    let start = MonotonicClock.now();
    for _ in 0..count {
        call(&mut client, session, bytes)?;
    }
    let elapsed = MonotonicClock.now() - start;
    let rate = (count * bytes) as u64 * 1_000 / elapsed.as_micros().max(1);
    println!("8 MiB: {rate} kB/s each way");
    Ok(())
}

fn connect(client: &mut Loop, server: SocketAddr) -> Result<SessionId, Box<dyn Error>> {
    client
        .with(|_, cx| cx.connect(server, ConnectParams::default()))
        .map_err(|refused| format!("no session possible: {refused:?}"))?;
    let deadline = client.now() + PATIENCE;
    client.run_until(Some(deadline), |app| {
        app.session.is_some() || app.refused.is_some()
    })?;
    client
        .app()
        .session
        .ok_or_else(|| format!("{server} does not answer: {:?}", client.app().refused).into())
}

/// One request of `bytes` bytes and its echo; the time taken.
fn call(client: &mut Loop, session: SessionId, bytes: usize) -> Result<Duration, Box<dyn Error>> {
    client.app_mut().completed = None;
    let start: Instant = MonotonicClock.now();
    client.with(|_, cx| -> Result<(), Box<dyn Error>> {
        let buffers = cx.alloc(bytes).zip(cx.alloc(bytes));
        let (request, response) = buffers.ok_or("the pool's memory is used up")?;
        let deadline = cx.deadline(PATIENCE);
        cx.enqueue_request(session, KIND, request, response, 0, Some(deadline))
            .map_err(|refused| format!("the request was refused: {:?}", refused.reason))?;
        Ok(())
    })?;
    client.run_until(None, |app| app.completed.is_some())?;
    match client.app().completed {
        Some(Ok(())) => Ok(MonotonicClock.now() - start),
        Some(Err(error)) => Err(error.into()),
        None => unreachable!("the loop ran until the completion"),
    }
}
