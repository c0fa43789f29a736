//! How does a client wait for the answer to its one operation, and when does it give up?
//!
//! It looks again and again whether the user wants the process to end. The blocking client of the library sleeps until the
//! answer or the timeout, and a signal ends neither.

use std::any::Any;

use trine_client::{
    Answer, CallError, ClientConfig, ClientId, Clients, Finished, Mode, Submission, SubmitError,
};
use trine_kvstore::Command;
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{EventLoop, Identity};

use crate::endpoint::random_seed;
use crate::failure::Failure;
use crate::interrupt;
use crate::network::Opened;

/// A client that waits looks at least this often whether the user wants to end it.
const LOOK: Duration = Duration::from_millis(20);
/// How long an operation may still take then. A group that works answers in that time, and nothing is left in doubt.
const INTERRUPT_PATIENCE: Duration = Duration::from_millis(500);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The library's reason.
    Call(CallError),
    /// The user wants the process to end.
    Interrupted,
}

impl From<CallError> for Unanswered {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// A client with an endpoint of its own, and one operation at a time.
pub(crate) struct OneClient<B: Backend> {
    event_loop: EventLoop<B, MonotonicClock, Clients<B::Route>>,
    client: ClientId,
    /// The tag of the present operation. An earlier one that was given up may still be under way.
    tag: u64,
    wants_end: fn() -> bool,
    /// The resources of the backend live as long as the backend.
    _keep: Option<Box<dyn Any + Send>>,
}

impl<B: Backend> OneClient<B> {
    /// A client over an open backend; the first operation connects.
    pub(crate) fn over(opened: Opened<B>, config: ClientConfig) -> Result<Self, Failure> {
        let Opened {
            backend,
            endpoint,
            route_of,
            keep,
            ..
        } = opened;
        let seed = random_seed()?;
        let identity = Identity {
            cluster: config.cluster.0,
            incarnation: seed.max(1),
        };
        let pool = backend.pool().clone();
        let mut clients = Clients::new(config, route_of, pool, seed)
            .map_err(|error| Failure::usage(error.to_string(), ""))?;
        let client = clients.open().expect("a new table has room for one client");
        let event_loop = EventLoop::new(backend, MonotonicClock, clients, endpoint, identity, seed)
            .map_err(|error| Failure::usage(error.to_string(), ""))?;
        Ok(Self {
            event_loop,
            client,
            tag: 0,
            wants_end: interrupt::interrupted,
            _keep: keep,
        })
    }

    /// Does one command. Without `within` it has the configured timeout, and ends soon after the user wants the process to
    /// end. With it, it has this time alone, whatever the user wants.
    pub(crate) fn execute(
        &mut self,
        mode: Mode,
        command: &Command<'_>,
        within: Option<Duration>,
    ) -> Result<Answer, Unanswered> {
        self.begin(mode, command, within)
            .map_err(CallError::NotBegun)?;
        let mut give_up_at = None;
        loop {
            let now = MonotonicClock.now();
            if let Some(finished) = self.wait_until(now + LOOK)? {
                let failed = |error| Unanswered::Call(CallError::Failed(error));
                return finished.result.map_err(failed);
            }
            if within.is_none() && (self.wants_end)() {
                let give_up_at = *give_up_at.get_or_insert(now + INTERRUPT_PATIENCE);
                if now >= give_up_at {
                    return Err(Unanswered::Interrupted);
                }
            }
        }
    }

    fn begin(
        &mut self,
        mode: Mode,
        command: &Command<'_>,
        within: Option<Duration>,
    ) -> Result<(), SubmitError> {
        let client = self.current_client()?;
        self.tag += 1;
        let tag = self.tag;
        self.event_loop.with(|clients, cx| {
            let submission = Submission {
                mode,
                command,
                deadline: within.map(|limit| cx.now() + limit),
                tag,
            };
            clients.submit(cx.now(), client, submission)
        })
    }

    /// The open logical client; another one after a command that closed the last.
    fn current_client(&mut self) -> Result<ClientId, SubmitError> {
        let clients = self.event_loop.app_mut();
        if !clients.is_open(self.client) {
            self.client = clients.open().ok_or(SubmitError::TooMany)?;
        }
        Ok(self.client)
    }

    /// The end of the present operation, if it comes before `until`.
    fn wait_until(&mut self, until: Instant) -> Result<Option<Finished>, CallError> {
        let (mut finished, tag) = (None, self.tag);
        let done = |clients: &mut Clients<B::Route>| {
            while let Some(other) = clients.poll_finished() {
                if other.tag == tag {
                    finished = Some(other);
                }
            }
            finished.is_some()
        };
        self.event_loop
            .run_until(Some(until), done)
            .map_err(CallError::Backend)?;
        Ok(finished)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use trine_transport::Holder;
    use trine_transport::backend::{RingBackend, RingConfig, RingRoute};

    use super::*;

    /// A client of a replica that hears and says nothing. Its user wants it to end, and its timeout is an hour.
    fn interrupted_client() -> OneClient<RingBackend> {
        let (backend, _nobody) = RingBackend::pair(RingConfig::default());
        let replica = SocketAddr::from(([127, 0, 0, 1], 7471));
        let opened = Opened {
            backend,
            endpoint: trine_protocol::endpoint_config(),
            route_of: Box::new(|_| Some(RingRoute(1))),
            is_at: Box::new(|_, _| true),
            holder_of: Box::new(move |_| Holder::of_address(replica)),
            keep: None,
        };
        let mut config = ClientConfig::new(vec![replica]);
        config.operation_timeout = Duration::from_secs(3_600);
        let mut client = OneClient::over(opened, config).expect("a client");
        client.wants_end = || true;
        client
    }

    /// The first Ctrl-C set a flag, which nobody looked at before the end of `--timeout`.
    #[test]
    fn a_wait_for_a_silent_group_ends_when_the_user_wants_it() {
        let mut client = interrupted_client();
        let (key, value) = (&b"key"[..], &b"value"[..]);
        let asked = [
            (Mode::Read, Command::Get { key }),
            (Mode::Write, Command::Put { key, value }),
        ];
        for (mode, command) in asked {
            let done = client.execute(mode, &command, None);
            assert!(matches!(done, Err(Unanswered::Interrupted)), "{mode:?}");
        }
    }

    /// What a command does at its end, as to give a pin back, is done after a Ctrl-C, too.
    #[test]
    fn a_wait_with_a_limit_of_its_own_ends_there() {
        let mut client = interrupted_client();
        let limit = Some(Duration::from_millis(20));
        let done = client.execute(Mode::Read, &Command::Get { key: b"key" }, limit);
        let Err(Unanswered::Call(CallError::Failed(_))) = done else {
            panic!("not the end of the operation's time: {done:?}");
        };
    }
}
