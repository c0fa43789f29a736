//! A client and a server in one thread, with lists of RPCs between them: all of a list are sent together.

use trine_transport::backend::Backend;
use trine_transport::buf::MsgBuf;
use trine_transport::time::Clock;
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, Event, EventLoop, Identity, Reply, Request,
    SessionId,
};

const BYTES: usize = 32;
/// Turns of both ends until the other one must have answered.
const TURNS_MAX: u32 = 10_000_000;

/// A client and a server, and the session between them.
pub(crate) struct Ends<B: Backend, C: Clock> {
    pub(crate) client: EventLoop<B, C, Echo>,
    pub(crate) server: EventLoop<B, C, Echo>,
    session: SessionId,
    list: usize,
}

/// Answers with the request's bytes; keeps the buffers of RPCs that have ended.
#[derive(Default)]
pub(crate) struct Echo {
    session: Option<SessionId>,
    idle: Vec<(MsgBuf, MsgBuf)>,
}

impl<R: trine_transport::backend::Route> App<R> for Echo {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        let mut response = cx.alloc(request.data.len()).expect("memory");
        response.copy_from_slice(request.data);
        Reply::Now(response)
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, R>, _tag: u64, completion: Completion) {
        completion.result.expect("nothing is lost");
        self.idle.push((completion.request, completion.response));
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, R>, event: Event<R>) {
        if let Event::Connected { session, .. } = event {
            self.session = Some(session);
        }
    }
}

impl<B: Backend, C: Clock + Clone> Ends<B, C> {
    /// With so many RPCs in a list.
    pub(crate) fn connect(client: B, server: B, route: B::Route, clock: C, list: usize) -> Self {
        let end = |backend, incarnation| {
            let identity = Identity {
                cluster: 0,
                incarnation,
            };
            let clock = clock.clone();
            let config = Config {
                slots: list.max(usize::from(Config::default().slots)) as u8,
                ..Config::default()
            };
            EventLoop::new(
                backend,
                clock,
                Echo::default(),
                config,
                identity,
                incarnation,
            )
            .expect("a sound configuration")
        };
        let (mut client, mut server) = (end(client, 1), end(server, 2));
        client
            .with(|_, cx| cx.connect(route, ConnectParams::default()))
            .expect("room for a session");
        for _ in 0..TURNS_MAX {
            if let Some(session) = client.app().session {
                client.with(|app, cx| {
                    let buffers = (0..list).map(|_| cx.alloc(BYTES).zip(cx.alloc(BYTES)));
                    app.idle = buffers.collect::<Option<_>>().expect("memory");
                });
                return Self {
                    client,
                    server,
                    session,
                    list,
                };
            }
            server.turn().expect("a working device");
            client.turn().expect("a working device");
        }
        panic!("no connection");
    }

    /// Sends a list. The one before has ended.
    pub(crate) fn issue(&mut self) {
        let (session, list) = (self.session, self.list);
        self.client.with(|app, cx| {
            assert_eq!(app.idle.len(), list, "the list before has ended");
            for (request, response) in app.idle.drain(..) {
                cx.enqueue_request(session, 1, request, response, 0, None)
                    .expect("room for a request");
            }
        });
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.client.app().idle.len() == self.list
    }
}
