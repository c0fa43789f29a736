//! `trine rm PREFIX` deletes all keys that begin with PREFIX, or a part of them.

use std::ffi::OsString;

use clap::{ArgGroup, Args};
use serde_json::json;
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::{self, CommandClient};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::units::plural;
use trine_base::words::show;
use trine_client::{Answer, Mode, RangeDeletion};
use trine_kvstore::{Command, KeyRange, Response};

use super::confirm::ConfirmArguments;
use super::range::{Bounds, NamedPrefix, PartArguments};
use super::unordered::{self, UnorderedDeletion};

/// Deletes all keys that begin with PREFIX, or a range of them. On a terminal, it asks for confirmation.
///
/// With an ordered index (`trine config set ordered on`), keys are deleted in order, in steps of at most 1,024. Without
/// one, the group reads all keys, and deletes those with the prefix in steps of 256. Each step is one command, and
/// other clients do not wait for it: a key that is written meanwhile, after the position of the current step, may be
/// deleted as well.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").args(["prefix", "named", "from", "to", "after"]).multiple(true).required(true)))]
pub(crate) struct RmArguments {
    /// Prefix of the keys. `trine flush` deletes all keys.
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: Option<OsString>,
    #[command(flatten)]
    pub(crate) named: NamedPrefix,
    #[command(flatten)]
    pub(crate) part: PartArguments,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArguments,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &RmArguments,
    output: Output,
) -> Result<(), Failure> {
    let prefix = arguments.named.or(arguments.prefix.as_deref());
    let bounds = Bounds::of(prefix, &arguments.part)?;
    if bounds.is_everything() {
        return Err(Failure::usage(
            "an empty prefix matches all keys: nothing was deleted",
            "`trine flush` deletes all keys",
        ));
    }
    let what = what(&bounds);
    arguments.confirm.require_somebody(&what)?;
    interrupt::start()?;
    let mut session = client::open(network, &arguments.client, |_| {})?;
    let is_ordered = unordered::is_ordered(&mut session, Mode::Read, &bounds)?;
    if !arguments.confirm.yes {
        let keys = match is_ordered {
            true => count(&mut session, bounds.range())?,
            false => unordered::count(&mut session, Mode::Read, &bounds)?,
        };
        arguments.confirm.ask(&what, keys)?;
    }
    let removed = match is_ordered {
        true => remove_in_order(&mut session, bounds.range())?,
        false => remove_unordered(&mut session, &bounds)?,
    };
    output.document(&json!({ "deleted": removed }));
    output.line(format_args!("{} deleted", plural(removed, "key")));
    Ok(())
}

/// The keys in the words of a question.
fn what(bounds: &Bounds) -> String {
    let part = match bounds.is_whole_prefix() {
        true => "",
        false => ", between the bounds,",
    };
    match bounds.prefix() {
        [] => "the keys between the bounds".to_owned(),
        prefix => format!("the keys{part} that begin with {}", show(prefix)),
    }
}

fn count(session: &mut CommandClient, range: KeyRange<'_>) -> Result<u64, Failure> {
    let answer = session.execute(Mode::Read, &Command::CountRange { range })?;
    match response_of(&answer)? {
        Response::Count { items } => Ok(items),
        other => Err(unexpected(&other)),
    }
}

fn remove_in_order(session: &mut CommandClient, range: KeyRange<'_>) -> Result<u64, Failure> {
    let mut deletion = RangeDeletion::of(range);
    let mut removed = 0_u64;
    while let Some(answer) = step(session, &deletion) {
        let counted = answer.and_then(|answer| {
            let response = response_of(&answer)?;
            deletion
                .take(&response)
                .ok_or_else(|| unexpected(&response))
        });
        removed += u64::from(counted.map_err(|failure| ended(removed, failure))?);
        go_on(removed, deletion.command().is_none())?;
    }
    Ok(removed)
}

fn remove_unordered(session: &mut CommandClient, bounds: &Bounds) -> Result<u64, Failure> {
    let mut deletion = UnorderedDeletion::of(bounds);
    let mut removed = 0_u64;
    while !deletion.is_over() {
        let counted = deletion.step(session);
        removed += counted.map_err(|failure| ended(removed, failure))?;
        go_on(removed, deletion.is_over())?;
    }
    Ok(removed)
}

/// Ctrl-C between two steps ends the command, unless nothing is left to do.
fn go_on(removed: u64, is_over: bool) -> Result<(), Failure> {
    match interrupt::interrupted() && !is_over {
        true => {
            let done = format!("{} deleted", plural(removed, "key"));
            let hint = "the same command deletes the rest";
            Err(Failure::interrupted_after(done, hint))
        }
        false => Ok(()),
    }
}

/// The failure of a step after so many deleted keys.
fn ended(removed: u64, failure: Failure) -> Failure {
    let done = plural(removed, "key");
    match removed {
        _ if interrupt::interrupted() && failure.is_without_answer() => Failure::outcome_unknown(
            format!("interrupted; {done} deleted, and more may still be"),
            "the same command deletes the rest",
        ),
        0 => failure,
        _ => failure.while_doing(&format!("{done} deleted, then")),
    }
}

fn step(session: &mut CommandClient, deletion: &RangeDeletion) -> Option<Result<Answer, Failure>> {
    let command = deletion.command()?;
    Some(session.execute(Mode::Write, &command))
}
