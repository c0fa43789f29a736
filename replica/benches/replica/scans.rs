//! A stream of pages through a group, and the two things that it cannot be faster than: copying the same items, and
//! responses of that size by the transport.

use std::hint::black_box;
use std::time::Instant;

use trine_client::{Mode, PinnedWalk, RangeWalk};
use trine_kvstore::config::SCAN_PAGE_BYTES;
use trine_kvstore::{Command, KeyRange, Limits, Position, Store};
use trine_protocol::endpoint_config;
use trine_transport::backend::{MonotonicClock, RingBackend, RingConfig, RingRoute};
use trine_transport::buf::MsgBuf;
use trine_transport::event_loop::EventLoop;
use trine_transport::{
    App, Completion, ConnectParams, Cx, Event, Identity, Reply, Request, SessionId,
};

use crate::group::{Group, Writes};
use crate::{BATCH, KEY, VALUE};

/// Items that are read.
const ITEMS: u64 = 200_000;
/// Request type of the bare transport.
const KIND: u8 = 1;
/// Responses of the bare transport in a run.
const RESPONSES: u64 = 200;

/// Bytes of keys and values a second.
pub(crate) struct Rates {
    group: Group,
    store: Store,
    /// The keys in an order that has nothing to do with where they lie.
    keys: Vec<[u8; KEY]>,
    bare: Bare,
}

impl Rates {
    pub(crate) fn new() -> Self {
        let mut group = Group::start_with(true, true);
        group.go_on_with(Writes::NewKeys);
        group.write(ITEMS, BATCH);
        let mut store = Store::new(Limits::default(), [1, 2]);
        let mut keys: Vec<_> = (0..ITEMS).map(crate::group::key_of).collect();
        for (index, key) in keys.iter().enumerate() {
            let value = &[7; VALUE];
            let at = Position::new(index as u64 + 1, 0);
            store.apply(at, &Command::Put { key, value });
        }
        // In the order of their bytes, which are mixed: as a scan reads them.
        keys.sort_unstable();
        let bare = Bare::new();
        Self {
            group,
            store,
            keys,
            bare,
        }
    }

    /// All pages of a scan at one position, pin and all.
    pub(crate) fn stream(&mut self) -> f64 {
        let begun = Instant::now();
        let mut walk = PinnedWalk::over(RangeWalk::over(KeyRange::Prefix(b"")), Mode::Read);
        let (mut bytes, mut items) = (0, 0);
        while let Some((mode, command)) = walk.command(begun.elapsed()) {
            // An answer of one write closes the client's session; the group's client writes on.
            let mode = match mode {
                Mode::WriteAndClose => Mode::Write,
                mode => mode,
            };
            let answer = self.group.answer(mode, &command);
            let response = answer.response().expect("it can be read");
            let taken = walk.take(begun.elapsed(), answer.position(), &response, |item| {
                items += 1;
                bytes += item.key.len() + item.item.map_or(0, |item| item.value.len());
            });
            taken.expect("the scan goes on");
        }
        assert!(items >= ITEMS, "{items}");
        bytes as f64 / begun.elapsed().as_secs_f64()
    }

    /// A loop that copies each of the items into a page.
    pub(crate) fn copy(&self) -> f64 {
        let begun = Instant::now();
        let (mut page, mut bytes) = (Vec::with_capacity(SCAN_PAGE_BYTES), 0);
        for key in &self.keys {
            let item = self.store.get(key).expect("it was written");
            if page.len() + KEY + VALUE > SCAN_PAGE_BYTES {
                black_box(&page);
                page.clear();
            }
            page.extend_from_slice(key);
            page.extend_from_slice(item.value);
            bytes += KEY + item.value.len();
        }
        black_box(&page);
        bytes as f64 / begun.elapsed().as_secs_f64()
    }

    /// Responses of 256 KiB, one at a time, without anything behind them.
    pub(crate) fn bare(&mut self) -> f64 {
        self.bare.rate()
    }
}

/// Answers each request with as many bytes as a page has.
struct Pages;

impl App<RingRoute> for Pages {
    fn on_request(&mut self, cx: &mut Cx<'_, RingRoute>, _request: Request<'_>) -> Reply {
        let response = cx.alloc(SCAN_PAGE_BYTES);
        Reply::Now(response.expect("the server's pool is large enough"))
    }

    fn on_completion(&mut self, _: &mut Cx<'_, RingRoute>, _: u64, _: Completion) {}
}

/// Asks for the next page once it has one.
#[derive(Default)]
struct Asker {
    session: Option<SessionId>,
    completed: u64,
}

impl Asker {
    fn ask(&self, cx: &mut Cx<'_, RingRoute>, request: MsgBuf, response: MsgBuf) {
        let session = self.session.expect("it is connected");
        cx.enqueue_request(session, KIND, request, response, 0, None)
            .expect("the session takes a request");
    }
}

impl App<RingRoute> for Asker {
    fn on_request(&mut self, _: &mut Cx<'_, RingRoute>, _: Request<'_>) -> Reply {
        Reply::Later
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, RingRoute>, _: u64, completion: Completion) {
        completion.result.expect("rings lose nothing");
        self.completed += 1;
        self.ask(cx, completion.request, completion.response);
    }

    fn on_event(&mut self, _: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
        match event {
            Event::Connected { session, .. } => self.session = Some(session),
            other => panic!("the benchmark's session failed: {other:?}"),
        }
    }
}

type Loop<A> = EventLoop<RingBackend, MonotonicClock, A>;

/// Two endpoints, driven by one thread.
struct Bare {
    client: Loop<Asker>,
    server: Loop<Pages>,
}

impl Bare {
    fn new() -> Self {
        let mut mesh = RingBackend::mesh(2, RingConfig::default());
        let (other, own) = (mesh.pop().expect("two"), mesh.pop().expect("two"));
        let mut bare = Self {
            client: event_loop(own, Asker::default(), 1),
            server: event_loop(other, Pages, 2),
        };
        let connected = |_: &mut Asker, cx: &mut Cx<'_, RingRoute>| {
            cx.connect(RingRoute(1), ConnectParams::default())
        };
        bare.client.with(connected).expect("room for a session");
        while bare.client.app().session.is_none() {
            bare.turn();
        }
        bare.client.with(|asker, cx| {
            let buffers = cx.alloc(1).zip(cx.alloc(SCAN_PAGE_BYTES));
            let (request, response) = buffers.expect("the client's pool is large enough");
            asker.ask(cx, request, response);
        });
        bare
    }

    fn turn(&mut self) {
        self.client.turn().expect("rings do not fail");
        self.server.turn().expect("rings do not fail");
    }

    fn rate(&mut self) -> f64 {
        let (begun, before) = (Instant::now(), self.client.app().completed);
        while self.client.app().completed < before + RESPONSES {
            self.turn();
        }
        let bytes = (RESPONSES as usize * SCAN_PAGE_BYTES) as f64;
        bytes / begun.elapsed().as_secs_f64()
    }
}

fn event_loop<A: App<RingRoute>>(backend: RingBackend, app: A, seed: u64) -> Loop<A> {
    let identity = Identity {
        cluster: 1,
        incarnation: seed,
    };
    let made = EventLoop::new(
        backend,
        MonotonicClock,
        app,
        endpoint_config(),
        identity,
        seed,
    );
    made.expect("the configuration is sound")
}
