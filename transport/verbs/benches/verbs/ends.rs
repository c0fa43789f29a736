//! A client and a server in one thread, with one RPC at a time between them.

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

/// A client and a server, and the buffers of the one RPC between them.
pub(crate) struct Ends<B: Backend, C: Clock> {
    pub(crate) client: EventLoop<B, C, Echo>,
    pub(crate) server: EventLoop<B, C, Echo>,
    session: SessionId,
}

/// Answers with the request's bytes; keeps the buffers of an RPC that has ended.
#[derive(Default)]
pub(crate) struct Echo {
    session: Option<SessionId>,
    idle: Option<(MsgBuf, MsgBuf)>,
}

impl<R: trine_transport::backend::Route> App<R> for Echo {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        let mut response = cx.alloc(request.data.len()).expect("memory");
        response.copy_from_slice(request.data);
        Reply::Now(response)
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, R>, _tag: u64, completion: Completion) {
        completion.result.expect("nothing is lost");
        self.idle = Some((completion.request, completion.response));
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, R>, event: Event<R>) {
        if let Event::Connected { session, .. } = event {
            self.session = Some(session);
        }
    }
}

impl<B: Backend, C: Clock + Clone> Ends<B, C> {
    pub(crate) fn connect(client: B, server: B, route: B::Route, clock: C) -> Self {
        let end = |backend, incarnation| {
            let identity = Identity {
                cluster: 0,
                incarnation,
            };
            let (clock, config) = (clock.clone(), Config::default());
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
                let buffers = client.with(|_, cx| cx.alloc(BYTES).zip(cx.alloc(BYTES)));
                client.app_mut().idle = buffers;
                return Self {
                    client,
                    server,
                    session,
                };
            }
            server.turn().expect("a working device");
            client.turn().expect("a working device");
        }
        panic!("no connection");
    }

    pub(crate) fn issue(&mut self) {
        let session = self.session;
        self.client.with(|app, cx| {
            let (request, response) = app.idle.take().expect("the RPC before has ended");
            cx.enqueue_request(session, 1, request, response, 0, None)
                .expect("room for a request");
        });
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.client.app().idle.is_some()
    }
}
