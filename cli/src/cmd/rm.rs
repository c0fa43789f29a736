//! `trine rm --prefix P` deletes all keys that begin with P.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use clap::Args;
use serde_json::json;
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::{self, Session};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::units::plural;
use trine_base::values::key_bytes;
use trine_base::words::show;
use trine_client::{Answer, Mode, RangeDeletion};
use trine_kvstore::{Command, KeyRange, Response};

/// Deletes all keys that begin with a prefix. It asks before, at a terminal.
///
/// The group has to keep an ordered index: `trine config set ordered on`. The keys go in steps of at most 1,024, in their
/// order. Each step is one command, and the others do not wait for it: a key that is written meanwhile, behind the step that is
/// under way, is deleted as well.
#[derive(Debug, Args)]
pub(crate) struct RmArguments {
    /// What the keys begin with. `trine flush` deletes all keys.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: OsString,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &RmArguments,
    output: Output,
) -> Result<(), Failure> {
    let prefix = key_bytes(&arguments.prefix)?;
    if prefix.is_empty() {
        return Err(Failure::usage(
            "an empty prefix is that of all keys: nothing was deleted",
            "`trine flush` deletes all keys",
        ));
    }
    let range = KeyRange::Prefix(prefix);
    if !arguments.yes && !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "nobody is there to say yes: nothing was deleted",
            "add --yes",
        ));
    }
    let mut session = client::open(network, &arguments.client, |_| {})?;
    if !arguments.yes && !confirmed(count(&mut session, range)?, prefix)? {
        return Err(Failure::negative("nothing was deleted", ""));
    }
    interrupt::start()?;
    let removed = remove(&mut session, range)?;
    output.document(&json!({ "deleted": removed }));
    output.line(format_args!("{} deleted", plural(removed, "key")));
    Ok(())
}

fn count(session: &mut Session, range: KeyRange<'_>) -> Result<u64, Failure> {
    let answer = session.execute(Mode::Read, &Command::CountRange { range })?;
    match response_of(&answer)? {
        Response::Count { items } => Ok(items),
        other => Err(unexpected(&other)),
    }
}

/// The question goes to standard error: standard output is for the answer.
fn confirmed(items: u64, prefix: &[u8]) -> Result<bool, Failure> {
    let which = match prefix {
        [] => "all keys of the group".to_owned(),
        prefix => format!("the keys that begin with {}", show(prefix)),
    };
    let asked = write!(
        io::stderr(),
        "delete {which}, {items} at the moment? [y/N] "
    );
    let mut line = String::new();
    let read = asked.and_then(|()| io::stdin().read_line(&mut line));
    read.map_err(|error| Failure::usage(format!("cannot ask: {error}"), "add --yes"))?;
    Ok(matches!(
        line.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

fn remove(session: &mut Session, range: KeyRange<'_>) -> Result<u64, Failure> {
    let mut deletion = RangeDeletion::of(range);
    let mut removed = 0_u64;
    while let Some(answer) = step(session, &deletion) {
        let counted = answer.and_then(|answer| {
            let response = response_of(&answer)?;
            deletion
                .take(&response)
                .ok_or_else(|| unexpected(&response))
        });
        let counted = counted.map_err(|failure| match removed {
            _ if interrupt::interrupted() && failure.is_without_answer() => {
                let done = plural(removed, "key");
                Failure::outcome_unknown(
                    format!("interrupted; {done} deleted, and further ones may be"),
                    "the same command deletes the rest",
                )
            }
            0 => failure,
            removed => {
                let done = plural(removed, "key");
                failure.while_doing(&format!("{done} deleted, then"))
            }
        })?;
        removed += u64::from(counted);
        if interrupt::interrupted() && deletion.command().is_some() {
            let done = format!("{} deleted", plural(removed, "key"));
            let hint = "the same command deletes the rest";
            return Err(Failure::interrupted_after(done, hint));
        }
    }
    Ok(removed)
}

fn step(session: &mut Session, deletion: &RangeDeletion) -> Option<Result<Answer, Failure>> {
    let command = deletion.command()?;
    Some(session.execute(Mode::Write, &command))
}
