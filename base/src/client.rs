//! One operation of a command on the group, and the report of its failure.

use trine_client::{Answer, CallError, ClientConfig, Error, Mode, Obstacle};
use trine_kvstore::Command;
use trine_transport::KeyObstacle;
use trine_transport::backend::Backend;
use trine_transport::time::Duration;

use crate::arguments::ClientArguments;
use crate::capture;
use crate::failure::Failure;
use crate::network::{Network, Opened};
use crate::one_client::{OneClient, Unanswered};
use crate::output::Output;
use crate::peers;
use crate::progress::Progress;
use crate::survey;
use crate::units::show_ns;
use crate::waiting::while_waiting;

/// Executes one command with its own client and waits for the end. A person at a terminal sees why that takes long.
pub fn call<N: Network>(
    network: &N,
    arguments: &ClientArguments,
    mode: Mode,
    command: &Command<'_>,
    output: Output,
) -> Result<Answer, Failure> {
    call_with(network, arguments, mode, command, output, |_| {})
}

/// Does the same with client settings changed by `tune`.
pub fn call_with<N: Network>(
    network: &N,
    arguments: &ClientArguments,
    mode: Mode,
    command: &Command<'_>,
    output: Output,
    tune: impl FnOnce(&mut ClientConfig),
) -> Result<Answer, Failure> {
    let mut session = open(network, arguments, tune)?;
    let addresses = match Progress::shows(output) {
        true => peers::resolve(&arguments.group.peers)?,
        false => Vec::new(),
    };
    let done = while_waiting(network, &addresses, output, || {
        session.execute(mode, command)
    });
    drop(session);
    done.map_err(|failure| explained(network, arguments, failure))
}

/// How long replicas are asked why a command did not finish in time.
const EXPLANATION_MAX: Duration = Duration::from_millis(300);

/// "Not in time" is a symptom, not a cause. A replica that is running may know the cause; then the message includes it.
fn explained<N: Network>(network: &N, arguments: &ClientArguments, failure: Failure) -> Failure {
    if !failure.is_without_answer() {
        return failure;
    }
    let reports = peers::resolve(&arguments.group.peers)
        .and_then(|addresses| survey::ask_everybody(network, &addresses, EXPLANATION_MAX));
    // An explanation that cannot be found is no further failure.
    match reports
        .ok()
        .and_then(|reports| survey::why_it_stands_still(&reports))
    {
        Some(why) => failure.because(&why),
        None => failure,
    }
}

type Execute = dyn FnMut(Mode, &Command<'_>, Option<Duration>) -> Result<Answer, Unanswered>;

/// A client for several commands, one after the other, over any backend.
pub struct CommandClient(Box<Execute>);

impl CommandClient {
    /// Executes one command and waits for its end. Where Ctrl-C sets a flag (see [`crate::interrupt`]), the wait ends soon after
    /// it: a read is interrupted then, and the outcome of a write is unknown.
    pub fn execute(&mut self, mode: Mode, command: &Command<'_>) -> Result<Answer, Failure> {
        (self.0)(mode, command, None).map_err(|why| unanswered(why, mode))
    }

    /// The same for what is left to do at an end, also after a Ctrl-C. It has this time alone.
    pub fn execute_within(
        &mut self,
        mode: Mode,
        command: &Command<'_>,
        limit: Duration,
    ) -> Result<Answer, Failure> {
        (self.0)(mode, command, Some(limit)).map_err(|why| unanswered(why, mode))
    }
}

/// Opens a client; nothing is sent before its first command.
pub fn open<N: Network>(
    network: &N,
    arguments: &ClientArguments,
    tune: impl FnOnce(&mut ClientConfig),
) -> Result<CommandClient, Failure> {
    let list = &arguments.group.peers;
    let addresses = peers::resolve(list)?;
    let capture = arguments.capture.open()?;
    network.check_paths(&addresses);
    let opened = network.call(&addresses)?;
    let mut config = ClientConfig::new(addresses);
    config.operation_timeout = arguments.group.timeout.into();
    tune(&mut config);
    match capture {
        None => open_over(opened, config, list),
        Some(capture) => {
            let opened = capture::around_opened(network, opened, capture);
            open_over(opened, config, list)
        }
    }
}

fn open_over<B: Backend + 'static>(
    opened: Opened<B>,
    config: ClientConfig,
    list: &str,
) -> Result<CommandClient, Failure> {
    let mut client = OneClient::over(opened, config, list)?;
    Ok(CommandClient(Box::new(move |mode, command, within| {
        client.execute(mode, command, within)
    })))
}

fn unanswered(why: Unanswered, mode: Mode) -> Failure {
    match why {
        Unanswered::Call(error) => call_failure(error, mode),
        Unanswered::Interrupted => given_up(mode),
    }
}

/// An operation that was under way when the user ended the command.
fn given_up(mode: Mode) -> Failure {
    match mode {
        Mode::Write | Mode::WriteAndClose => Failure::outcome_unknown(
            "interrupted; the command may have been sent, and may be applied",
            "check the current state before you repeat the command",
        ),
        _ => Failure::interrupted(),
    }
}

fn call_failure(error: CallError, mode: Mode) -> Failure {
    match error {
        CallError::Failed(error) => operation_failure(error, mode),
        CallError::NotBegun(error) => Failure::usage(error.to_string(), ""),
        CallError::Backend(_) | CallError::Stopped => {
            Failure::outcome_unknown(error.to_string(), "read the key to see whether it was")
        }
    }
}

/// Reports an operation without an answer, and says only what is certain.
fn operation_failure(error: Error, mode: Mode) -> Failure {
    let hint = advice(error.obstacle());
    let write = matches!(mode, Mode::Write | Mode::WriteAndClose);
    match error {
        Error::NotReachable { obstacle, waited } => {
            let certain = if write {
                "nothing was written"
            } else {
                "nothing was read"
            };
            let waited = show_ns(waited.as_nanos());
            Failure::not_reachable(format!("{obstacle}; {certain} (tried for {waited})"), hint)
        }
        Error::OutcomeUnknown { obstacle, waited } => {
            let waited = show_ns(waited.as_nanos());
            Failure::outcome_unknown(
                format!(
                    "{obstacle}; the command was sent and may have been applied (waited {waited})"
                ),
                "read the key to see whether it was",
            )
        }
        Error::Refused { obstacle } => match obstacle {
            Obstacle::WrongCluster { .. }
            | Obstacle::VersionMismatch { .. }
            | Obstacle::OtherVersion(_)
            | Obstacle::BadTerms { .. }
            | Obstacle::Key(_) => Failure::usage(format!("{obstacle}; nothing was done"), hint),
            _ => Failure::negative(format!("{obstacle}; nothing was done"), hint),
        },
    }
}

/// Advice for an obstacle; empty where the obstacle's own message contains it.
pub fn advice(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::NoConnection | Obstacle::NoRoute { .. } => {
            "start a group with `trine up`, or name the right one with --peers or TRINE_PEERS"
        }
        Obstacle::NoLeader | Obstacle::NoQuorum => {
            "`trine status` shows which replicas answer; a majority is needed"
        }
        Obstacle::NoAnswer => "`trine status` shows the group; --timeout waits longer",
        Obstacle::NotAttached => "`trine status` shows the group; `trine up` starts a complete one",
        Obstacle::Busy => "the group is overloaded; try again, or wait longer with --timeout",
        Obstacle::Full => {
            "other callers hold all of its sessions; the metric trine_transport_sessions_server counts them"
        }
        Obstacle::Key(KeyObstacle::Required) => {
            "give a key with --key PATH or TRINE_KEY; commands find the key of `trine up` if the \
             same user runs it on this machine"
        }
        Obstacle::Key(KeyObstacle::Unknown | KeyObstacle::Wrong) => {
            "`trine key show PATH` shows which key this is, and `trine user list` which keys are \
             valid"
        }
        Obstacle::Key(KeyObstacle::NotTaken) => {
            "the replica runs without keys: omit --key, or start it with one"
        }
        Obstacle::SessionsFull => {
            "the session that is idle longest is evicted a second after its last use: try again; \
             `trine status` counts the sessions"
        }
        Obstacle::SessionShareTaken => {
            "run fewer clients from this address, or let them close their sessions; `trine status` \
             counts the sessions"
        }
        Obstacle::WrongCluster { .. } => "the list of peers mixes groups; list the replicas of one",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_certain_and_what_is_not_is_said() {
        let (obstacle, waited) = (Obstacle::NoAnswer, Duration::from_millis(5));
        let unknown = CallError::Failed(Error::OutcomeUnknown { obstacle, waited });
        let failure = call_failure(unknown, Mode::Write);
        assert_eq!(failure.exit_status(), 3);
        let text = failure.to_string();
        assert!(
            text.contains("outcome unknown") && text.contains("may have been"),
            "{text}"
        );

        let certain = CallError::Failed(Error::NotReachable { obstacle, waited });
        let failure = call_failure(certain.clone(), Mode::Write);
        assert_eq!(failure.exit_status(), 3);
        assert!(
            failure.to_string().contains("nothing was written"),
            "{failure}"
        );
        assert!(
            call_failure(certain, Mode::Read)
                .to_string()
                .contains("nothing was read")
        );
    }

    /// A Ctrl-C was told only when the time was over, and a write may be applied all the same.
    #[test]
    fn a_write_that_is_interrupted_may_be_applied() {
        for mode in [Mode::Write, Mode::WriteAndClose] {
            let failure = unanswered(Unanswered::Interrupted, mode);
            assert_eq!(failure.exit_status(), 3);
            let text = failure.to_string();
            assert!(
                text.contains("interrupted") && text.contains("may be applied"),
                "{text}"
            );
        }
        for mode in [Mode::Read, Mode::ReadAnywhere, Mode::ReadStale] {
            let failure = unanswered(Unanswered::Interrupted, mode);
            assert_eq!(failure, Failure::interrupted());
        }
    }

    /// The command line called a group whose sessions are all in use silent.
    #[test]
    fn each_refusal_names_what_there_is_no_room_for() {
        let waited = Duration::from_millis(5);
        let said = |obstacle| {
            let error = Error::NotReachable { obstacle, waited };
            call_failure(CallError::Failed(error), Mode::Write).to_string()
        };
        let cases = [
            (
                Obstacle::Full,
                "no room for another session",
                "trine_transport_sessions_server",
            ),
            (
                Obstacle::SessionsFull,
                "every client session of the group is in use",
                "idle longest is evicted",
            ),
            (
                Obstacle::SessionShareTaken,
                "this address has its share of them",
                "run fewer clients",
            ),
        ];
        for (obstacle, reason, hint) in cases {
            let text = said(obstacle);
            assert!(text.contains(reason) && text.contains(hint), "{text}");
            assert!(text.contains("nothing was written"), "{text}");
            assert!(!text.contains("in time"), "{text}");
        }
    }

    #[test]
    fn another_cluster_or_version_is_a_matter_of_configuration() {
        for obstacle in [
            Obstacle::VersionMismatch { theirs: 9 },
            Obstacle::WrongCluster {
                theirs: trine_protocol::message::ClusterId(9),
            },
        ] {
            let failure = call_failure(CallError::Failed(Error::Refused { obstacle }), Mode::Read);
            assert_eq!(failure.exit_status(), 2, "{failure}");
            assert!(
                failure.to_string().contains("nothing was done"),
                "{failure}"
            );
        }
    }
}
