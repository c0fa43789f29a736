//! Waits for the answer to a client's one operation, and decides when to give up.
//!
//! It looks again and again whether the user wants the process to end: a signal does not end a sleep of the library's client.

use std::any::Any;

use trine_client::{Answer, BlockingClient, CallError, ClientConfig, Mode};
use trine_kvstore::Command;
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::time::{Clock, Duration, Instant};

use crate::config::{CLIENT_LOOK, INTERRUPT_PATIENCE, SILENCE};
use crate::endpoint::random_seed;
use crate::failure::Failure;
use crate::interrupt;
use crate::network::Opened;
use crate::renewal::Renewal;

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

/// A client with one operation at a time, for one user.
pub(crate) struct OneClient<B: Backend> {
    client: BlockingClient<B, MonotonicClock>,
    wants_end: fn() -> bool,
    renewal: Renewal,
    /// The first command since the last answer was begun then.
    silent_since: Option<Instant>,
    /// The resources of the backend live as long as the backend.
    _keep: Option<Box<dyn Any + Send>>,
}

impl<B: Backend> OneClient<B> {
    /// A client over an open backend; the first operation connects. `list` is what `config` has the addresses of.
    pub(crate) fn over(
        opened: Opened<B>,
        config: ClientConfig,
        list: &str,
    ) -> Result<Self, Failure> {
        let renewal = Renewal::of(list, &config.peers);
        let Opened {
            backend,
            endpoint,
            route_of,
            keep,
            ..
        } = opened;
        let (clock, seed) = (MonotonicClock, random_seed()?);
        let client = BlockingClient::new(backend, clock, config, endpoint, route_of, seed)
            .map_err(|error| Failure::usage(error.to_string(), ""))?;
        Ok(Self {
            client,
            wants_end: interrupt::interrupted,
            renewal,
            silent_since: None,
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
        let begun = self.client.begin(mode, command, within);
        begun.map_err(CallError::NotBegun)?;
        let mut give_up_at = None;
        let silent_since = *self.silent_since.get_or_insert(MonotonicClock.now());
        loop {
            let now = MonotonicClock.now();
            if now.saturating_since(silent_since) >= SILENCE.into() {
                for address in self.renewal.poll() {
                    self.client.add_peer(address);
                }
            }
            if let Some(answer) = self.client.answer_by(Some(now + CLIENT_LOOK.into()))? {
                self.silent_since = None;
                return Ok(answer);
            }
            if within.is_none() && (self.wants_end)() {
                let give_up_at = *give_up_at.get_or_insert(now + INTERRUPT_PATIENCE.into());
                if now >= give_up_at {
                    return Err(Unanswered::Interrupted);
                }
            }
        }
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
        let mut client = OneClient::over(opened, config, "127.0.0.1:7471").expect("a client");
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
