//! The setting of the examples in this module's documentation: two nodes in one process.

use super::{Client, Node, Rpc, Session};
use trine_transport::backend::{RingBackend, RingConfig, RingRoute};

/// Answers in capitals.
pub struct Shout;

impl Rpc for Shout {
    const KIND: u8 = 1;
    type Request = String;
    type Response = String;
}

/// Never answers.
pub struct Sleepy;

impl Rpc for Sleepy {
    const KIND: u8 = 2;
    type Request = ();
    type Response = ();
}

/// A server that shouts and sleeps, and a client.
pub struct DocNodes {
    client: Node<RingRoute>,
    _server: Node<RingRoute>,
    route: RingRoute,
}

impl DocNodes {
    /// Starts both.
    #[must_use]
    pub fn start() -> Self {
        let (ours, theirs) = RingBackend::pair(RingConfig::default());
        let route = theirs.route();
        let server = Node::builder(theirs)
            .handle::<Shout, _>(|text, _| text.to_uppercase())
            .handle_async::<Sleepy, _, _>(|(), _| std::future::pending())
            .start()
            .expect("a server over a ring");
        let client = Node::builder(ours).start().expect("a client over a ring");
        Self {
            client,
            _server: server,
            route,
        }
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> Client<RingRoute> {
        self.client.client()
    }

    /// Where the server is.
    #[must_use]
    pub fn route(&self) -> RingRoute {
        self.route
    }

    /// A session from one to the other.
    #[must_use]
    pub fn session(&self) -> Session<RingRoute> {
        pollster_free::wait(self.client().connect(self.route)).expect("the server is there")
    }
}

/// Waits for a future in this thread.
mod pollster_free {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread::Thread;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    pub(super) fn wait<F: Future>(future: F) -> F::Output {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}
