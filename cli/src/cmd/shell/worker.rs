//! The shell's client, in a separate thread. So a slow command can be abandoned without ending the shell.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use trine_client::{Answer, Mode};
use trine_kvstore::Command;

use super::parse::StoreRequest;
use trine_base::arguments::ClientArguments;
use trine_base::client;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;

/// The interval at which a waiting shell checks for an interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Executes commands one after the other.
pub(super) struct Worker<N: Network> {
    network: N,
    arguments: ClientArguments,
    thread: Option<Thread>,
}

struct Thread {
    requests: Sender<(Mode, Vec<u8>)>,
    answers: Receiver<Result<Answer, Failure>>,
}

impl<N: Network> Worker<N> {
    pub(super) fn new(network: &N, arguments: &ClientArguments) -> Self {
        Self {
            network: network.clone(),
            arguments: arguments.clone(),
            thread: None,
        }
    }

    fn start(&mut self) -> Result<Thread, Failure> {
        let thread = start(self.network.clone(), self.arguments.clone())?;
        // An abandoned client may still write to its capture, so the capture ends with it.
        self.arguments.capture.capture = None;
        Ok(thread)
    }

    /// Executes one command. Ctrl-C abandons it; a write may then still be applied.
    pub(super) fn call(&mut self, request: &StoreRequest) -> Result<Answer, Failure> {
        let mode = match request.read_only {
            true => Mode::Read,
            false => Mode::Write,
        };
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None => self.start()?,
        };
        // A thread that has ended has left the reason in its answers.
        let _ = thread.requests.send((mode, request.command.clone()));
        loop {
            match thread.answers.recv_timeout(POLL_INTERVAL) {
                Ok(answer) => {
                    self.thread = Some(thread);
                    return answer;
                }
                Err(RecvTimeoutError::Timeout) if interrupt::take() => return Err(given_up(mode)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(given_up(mode)),
            }
        }
    }
}

fn given_up(mode: Mode) -> Failure {
    match mode {
        Mode::Read => Failure::interrupted(),
        _ => Failure::outcome_unknown(
            "given up; the command was sent and may be applied",
            "read the key to see whether it was",
        ),
    }
}

/// The thread ends when requests no longer come, at the latest when its last command has timed out.
fn start<N: Network>(network: N, arguments: ClientArguments) -> Result<Thread, Failure> {
    let (requests, asked) = channel::<(Mode, Vec<u8>)>();
    let (answered, answers) = channel();
    let work = move || {
        let mut session = match client::open(&network, &arguments, |_| {}) {
            Ok(session) => session,
            Err(failure) => {
                let _ = answered.send(Err(failure));
                return;
            }
        };
        for (mode, bytes) in asked {
            let command = Command::decode(&bytes).expect("the parser has encoded it");
            if answered.send(session.execute(mode, &command)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("client".into())
        .spawn(work)
        .map_err(|error| Failure::usage(format!("cannot start a thread: {error}"), ""))?;
    Ok(Thread { requests, answers })
}
