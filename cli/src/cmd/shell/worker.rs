//! The shell's client, in a separate thread. So a slow command can be abandoned without ending the shell.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel};
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

/// A command, and how it is sent.
type WorkerRequest = (Mode, Vec<u8>);

/// A thread whose client is open.
struct Thread {
    requests: Sender<WorkerRequest>,
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

    /// Opens a client in another thread. Ctrl-C abandons that; nothing was sent then.
    fn start(&mut self) -> Result<Thread, Failure> {
        let (thread, opened) = start(self.network.clone(), self.arguments.clone())?;
        let opened = wait(&opened);
        if let Some(Err(failure)) = opened {
            // The next command tries again, with the capture.
            return Err(failure);
        }
        // An abandoned client may still write to its capture, so the capture ends with it.
        self.arguments.capture.capture = None;
        opened.map(|_| thread).ok_or_else(Failure::interrupted)
    }

    /// Hands the command to the thread, or to a new one: a thread that has ended takes none.
    fn hand_over(&mut self, mut asked: WorkerRequest) -> Result<Thread, Failure> {
        if let Some(thread) = self.thread.take() {
            match thread.requests.send(asked) {
                Ok(()) => return Ok(thread),
                Err(SendError(unsent)) => asked = unsent,
            }
        }
        let thread = self.start()?;
        let ended = |_| Failure::usage("the thread of the client has ended; nothing was sent", "");
        thread.requests.send(asked).map_err(ended)?;
        Ok(thread)
    }

    /// Executes one command. Ctrl-C abandons it; a write may then still be applied.
    pub(super) fn call(&mut self, request: &StoreRequest) -> Result<Answer, Failure> {
        let mode = match request.read_only {
            true => Mode::Read,
            false => Mode::Write,
        };
        let thread = self.hand_over((mode, request.command.clone()))?;
        let answer = wait(&thread.answers).ok_or_else(|| given_up(mode))?;
        self.thread = Some(thread);
        answer
    }
}

/// Waits for what a thread says. `None` after a Ctrl-C, or if the thread has ended.
fn wait<T>(said: &Receiver<T>) -> Option<T> {
    loop {
        match said.recv_timeout(POLL_INTERVAL) {
            Ok(said) => return Some(said),
            Err(RecvTimeoutError::Timeout) if interrupt::take() => return None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

fn given_up(mode: Mode) -> Failure {
    match mode {
        Mode::Read => Failure::interrupted(),
        _ => Failure::outcome_unknown(
            "cancelled; the command was sent and may be applied",
            "read the key to see whether it was",
        ),
    }
}

/// Whether a thread's client is open, once that is known.
type OpenResult = Receiver<Result<(), Failure>>;

/// The thread ends when requests no longer come, at the latest when its last command has timed out. It takes none at all
/// if its client cannot be opened.
fn start<N: Network>(
    network: N,
    arguments: ClientArguments,
) -> Result<(Thread, OpenResult), Failure> {
    let (requests, asked) = channel::<WorkerRequest>();
    let (answered, answers) = channel();
    let (tell, opened) = channel();
    let work = move || {
        let (told, session) = match client::open(&network, &arguments, |_| {}) {
            Ok(session) => (Ok(()), Some(session)),
            Err(failure) => (Err(failure), None),
        };
        let (Ok(()), Some(mut session)) = (tell.send(told), session) else {
            return;
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
    Ok((Thread { requests, answers }, opened))
}
