//! `trine watch` prints every change of some keys, in the order of the log, for as long as it runs.

mod line;
mod stream;

use std::ffi::OsString;

use clap::Args;
use serde_json::json;
use trine_base::arguments::ClientArguments;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::{Output, print_all};
use trine_base::renewal::Renewal;
use trine_base::values::key_bytes;
use trine_base::{announce, peers};
use trine_client::{WatchBatch, WatchConfig, WatchError, WatchFrom, WatchTarget};
use trine_kvstore::Position;
use trine_transport::time::Duration;

use self::stream::Changes;
use super::range::{Bounds, PartArguments};

/// How long one look for the next events takes: then Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// A replica is found and asked in less; what takes longer is told.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Prints every change to the keys that begin with a prefix, or to a range of them, as it happens, in log order.
///
/// No change is missed or repeated, even if the replica that serves the watch dies: another one takes over. A line has
/// the position of the change, its kind (written, deleted, expired, flushed), the key and the new value, separated by
/// tabs. Keys and values that are not plain text are in double quotes, with escapes. With --json, each change is a
/// document on its own line, and {"seen": POSITION} follows once everything up to a position has been printed.
///
/// Ctrl-C ends the watch, and prints the --since with which another watch resumes.
#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// Prefix of the keys; may be given several times. Without it and without --exact, all keys.
    #[arg(value_name = "PREFIX")]
    pub(crate) prefixes: Vec<OsString>,
    /// Only this key; may be given several times.
    #[arg(long = "exact", value_name = "KEY")]
    pub(crate) keys: Vec<OsString>,
    #[command(flatten)]
    pub(crate) part: PartArguments,
    /// Start after this position, printed by an earlier watch, write or read, instead of now.
    #[arg(long, value_name = "POSITION", value_parser = parse_position)]
    pub(crate) since: Option<Position>,
    /// Stop after this many changes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Omit values.
    #[arg(long)]
    pub(crate) keys_only: bool,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// A position as `trine` prints it, or as log index and place.
fn parse_position(text: &str) -> Result<Position, String> {
    let wrong = || {
        "a position is a number, such as the version that `trine put` prints, or INDEX.PLACE"
            .to_owned()
    };
    let position = match text.split_once('.') {
        None => Position::from_u64(text.parse().map_err(|_| wrong())?),
        Some((index, place)) => {
            let index: u64 = index.parse().map_err(|_| wrong())?;
            let place = place.parse().map_err(|_| wrong())?;
            match index <= Position::INDEX_MAX {
                true => Position::new(index, place),
                false => return Err(wrong()),
            }
        }
    };
    Ok(position)
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &WatchArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let addresses = peers::resolve(&arguments.client.group.peers)?;
    let mut renewal = Renewal::of(&arguments.client.group.peers, &addresses);
    let config = WatchConfig {
        addresses,
        targets: targets(arguments)?,
        from: arguments.since.map_or(WatchFrom::Now, WatchFrom::Behind),
        keys_only: arguments.keys_only,
    };
    let mut changes = Changes::open(network, &arguments.client, config)?;
    let mut printer = WatchPrinter {
        output,
        left: arguments.limit.unwrap_or(u64::MAX),
        seen: None,
        served: false,
        in_trouble: false,
    };
    while printer.left > 0 {
        if interrupt::interrupted() {
            printer.say_where_it_ends();
            break;
        }
        match changes.next(LOOK).map_err(|error| failure(&error))? {
            Some(batch) => printer.tell(&batch),
            None => printer.watch_over(&changes, arguments)?,
        }
        if changes.trouble().is_some() {
            for address in renewal.poll() {
                changes.add_address(address);
            }
        }
    }
    changes.leave();
    Ok(())
}

fn targets(arguments: &WatchArguments) -> Result<Vec<(u32, WatchTarget)>, Failure> {
    if arguments.part.is_named() {
        return part(arguments);
    }
    let prefix = |text: &OsString| Ok(WatchTarget::Prefix(key_bytes(text)?.to_vec()));
    let key = |text: &OsString| Ok(WatchTarget::Key(key_bytes(text)?.to_vec()));
    let prefixes = arguments.prefixes.iter().map(prefix);
    let targets: Result<Vec<_>, Failure> = prefixes.chain(arguments.keys.iter().map(key)).collect();
    let mut targets = targets?;
    if targets.is_empty() {
        targets.push(WatchTarget::Prefix(Vec::new()));
    }
    if targets.len() > trine_protocol::message::WATCHES_MAX {
        return Err(Failure::usage(
            format!(
                "one watch has at most {} keys and prefixes",
                trine_protocol::message::WATCHES_MAX
            ),
            "give a prefix that they have in common, or run several watches",
        ));
    }
    Ok((0..).zip(targets).collect())
}

/// A part of the keys of one prefix.
fn part(arguments: &WatchArguments) -> Result<Vec<(u32, WatchTarget)>, Failure> {
    let prefix = match (arguments.prefixes.as_slice(), arguments.keys.as_slice()) {
        ([], []) => None,
        ([prefix], []) => Some(prefix.as_os_str()),
        _ => {
            return Err(Failure::usage(
                "--from, --to and --after apply to a single prefix",
                "run a watch for each prefix; a key of --exact needs none of them",
            ));
        }
    };
    let (start, end) = Bounds::of(prefix, &arguments.part)?.ends();
    if end.as_ref() == Some(&start) {
        return Err(Failure::usage(
            "no key can be in this range, so there is nothing to watch",
            "--from, --to and --after are complete keys that begin with PREFIX",
        ));
    }
    Ok(vec![(0, WatchTarget::Range { start, end })])
}

/// Prints the changes, and remembers how far it got.
struct WatchPrinter {
    output: Output,
    left: u64,
    seen: Option<Position>,
    /// A replica has served the watch once.
    served: bool,
    in_trouble: bool,
}

impl WatchPrinter {
    fn tell(&mut self, batch: &WatchBatch) {
        self.served = true;
        if std::mem::take(&mut self.in_trouble) {
            announce::note("the watch resumes");
        }
        let mut text = String::new();
        for event in &batch.events {
            if self.left == 0 {
                // What is left of the batch is not told, so its position is not seen.
                break;
            }
            self.left -= 1;
            text.push_str(&line::line(event, self.output.json));
            text.push('\n');
        }
        print_all(text.as_bytes());
        if self.left > 0 {
            self.seen = Some(batch.position);
            self.output
                .json_line(&json!({ "seen": batch.position.as_u64() }));
        }
    }

    /// Nothing has come for a while: that is so, or nobody serves the watch.
    fn watch_over(&mut self, changes: &Changes, arguments: &WatchArguments) -> Result<(), Failure> {
        self.seen = self.seen.or(changes.began());
        let Some((why, lasts)) = changes.trouble() else {
            self.served |= changes.served_by().is_some();
            return Ok(());
        };
        let timeout = arguments.client.group.timeout;
        if !self.served && lasts > Duration::from(timeout) {
            return Err(Failure::not_reachable(
                format!("no replica serves the watch: {why}; nothing was printed"),
                "`trine status` shows the group; --timeout waits longer",
            ));
        }
        if lasts > SILENCE_MAX && self.served && !self.in_trouble {
            self.in_trouble = true;
            announce::note(format_args!(
                "no replica serves the watch: {why}; it resumes as soon as one does"
            ));
        }
        Ok(())
    }

    fn say_where_it_ends(&self) {
        if let Some(seen) = self.seen {
            let seen = seen.as_u64();
            announce::note(format_args!(
                "everything up to position {seen} was printed; `--since {seen}` resumes after it"
            ));
        }
    }
}

fn failure(error: &WatchError) -> Failure {
    let hint = match error {
        WatchError::Compacted { oldest, .. } => format!(
            "earlier changes can no longer be watched: read the keys, and resume with --since {}. \
             A larger --watch-history keeps more changes",
            oldest.as_u64()
        ),
        WatchError::Future { applied, .. } => format!(
            "--since {} is the group's current position; a position of another group, or from \
             before a restore, means nothing here",
            applied.as_u64()
        ),
        WatchError::NotServed(obstacle) => trine_base::client::advice(*obstacle).to_owned(),
        WatchError::Denied { .. } => "`trine user list` shows the rights of a user".to_owned(),
        _ => String::new(),
    };
    match error {
        WatchError::Transport(_)
        | WatchError::Backend(_)
        | WatchError::Stopped
        | WatchError::NotServed(_) => Failure::usage(error.to_string(), hint),
        WatchError::Compacted { .. }
        | WatchError::Future { .. }
        | WatchError::Refused { .. }
        | WatchError::Denied { .. } => Failure::negative(error.to_string(), hint),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_in_both_forms() {
        assert_eq!(parse_position("65537"), Ok(Position::new(1, 1)));
        assert_eq!(parse_position("1.1"), Ok(Position::new(1, 1)));
        for wrong in ["", "x", "-1", "1.", "1.65536", "281474976710656.0", "1.1.1"] {
            assert!(parse_position(wrong).is_err(), "{wrong}");
        }
    }
}
