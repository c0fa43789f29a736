//! `trine down` ends what `trine up` of the same user has started on this machine.

use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use trine_base::config::DEFAULT_PEERS;
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_base::units::{parse_positive_duration, show_duration};
use trine_base::{interrupt, local_key, peers};

/// The pause between two looks whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub(crate) struct DownArguments {
    /// Addresses of the replicas: host:port,...; one of them is enough.
    #[arg(long, env = "TRINE_PEERS", default_value = DEFAULT_PEERS, value_name = "LIST")]
    peers: String,
    /// Stop waiting after this long. By then the group has been told to stop, and may still do so.
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = parse_positive_duration)]
    timeout: Duration,
}

pub(crate) fn run(arguments: &DownArguments, output: Output) -> Result<(), Failure> {
    let addresses = peers::resolve(&arguments.peers)?;
    interrupt::start()?;
    let list = &arguments.peers;
    let running = local_key::holders(&addresses);
    if running.is_empty() {
        return Err(Failure::negative(
            format!("no `trine up` of this user runs a group at {list} on this machine"),
            "name its replicas with --peers or TRINE_PEERS; a replica of `trine serve` ends at SIGTERM",
        ));
    }
    for pid in &running {
        ask_to_end(*pid)?;
    }
    let begun = Instant::now();
    while !local_key::holders(&addresses).is_empty() {
        interrupt::check()?;
        if begun.elapsed() > arguments.timeout {
            let waited = show_duration(arguments.timeout);
            return Err(Failure::outcome_unknown(
                format!(
                    "the group at {list} was told to stop, and has not stopped within {waited}"
                ),
                "--timeout waits longer; `trine status` shows which replicas are left",
            ));
        }
        interrupt::pause(LOOK_EVERY);
    }
    output.document(&json!({ "ended": running }));
    output.line(format_args!("the group at {list} has ended"));
    Ok(())
}

/// What Ctrl-C is to one in the foreground.
fn ask_to_end(pid: u32) -> Result<(), Failure> {
    let named = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(named) = named else {
        return Err(Failure::usage(
            "the `trine up` of this group runs in another container (PID namespace)",
            "end it there",
        ));
    };
    match kill_process(named, Signal::TERM) {
        // It has just ended by itself.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(Failure::usage(
            format!("process {pid} of `trine up` cannot be told to end: {error}"),
            "",
        )),
    }
}
