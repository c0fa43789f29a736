//! `trine up` runs a local group in the foreground, until Ctrl-C. A replica that dies is restarted and re-joins.

mod args;
mod kept;
mod key;
mod lines;
mod restored;
mod supervisor;

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;
use trine_base::ports::addresses_from;
use trine_client::{Report, leader_of};
use trine_local::{Group, LineSink};

pub(crate) use self::args::UpArguments;
use self::kept::Before;
use self::key::GroupKey;
use crate::cmd::backup::verify;
use crate::config::BASE_PORT;
use trine_base::announce::{self, Announcer};
use trine_base::arguments::replica_count;
use trine_base::document::path_text;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::{KeyChoice, KeyStage, Network};
use trine_base::output::Output;
use trine_base::units::show_duration;
use trine_local::config::START_LIMIT;
use trine_local::start as group;
use trine_server::data;
use trine_server::options::{HiddenPassword, check_common, warn_of_shown_password};

/// The lowest expected read rate of directories, for all replicas together.
const READ_BYTES_PER_SECOND: u64 = 8 << 20;
/// The group's directory holds one directory for each replica.
const DIRECTORY_DEPTH: u32 = 2;

pub(crate) fn run<N: Network>(
    network: &N,
    choice: &KeyChoice,
    arguments: &UpArguments,
    output: Output,
) -> Result<(), Failure> {
    arguments.watch.log_format.begin();
    if let Some((_, failure)) = check(arguments).into_iter().next() {
        return Err(failure);
    }
    let announcer = Announcer::start(output.json)?;
    warn_of_shown_password();
    interrupt::start_server()?;
    let count = replica_count(&arguments.replicas);
    arguments.limits.require_memory(count as u64)?;
    let addresses = addresses(network, arguments, count)?;
    let resp = resp_address(arguments, count)?;
    if let Some(backup) = arguments.restore.as_deref().filter(|path| path.is_file()) {
        // Nothing is begun with a damaged one, of which `trine restore` says the same. A pipe can be read only once.
        verify::check(backup)?;
    }
    let kept = arguments.log.directory();
    if let Some(directory) = kept {
        kept::require_same_group(directory, &addresses)?;
        if arguments.restore.is_some() {
            restored::require_new(directory)?;
        }
        data::make(directory)?;
    }
    if !network.chooses_addresses() {
        // Before a key is made: a group that runs there keeps its own.
        group::ports_are_free(&addresses)?;
    }
    let key = group_key(choice, arguments, &addresses)?;
    let _entries = match &key {
        Some(_) => None,
        None => key::of_none(&addresses)?,
    };
    let network = &network.with_key(match &key {
        Some(key) => KeyChoice::File(key.path.clone()),
        None => KeyChoice::Without,
    });
    let started = Instant::now();
    announcer.line(format_args!("starting {count} replicas ..."));
    // The password is kept for as long as replicas may be started.
    let password = HiddenPassword::of(&arguments.resp)?;
    let serve_args = serve_args(arguments, password.as_ref())?;
    let before = kept.map(|directory| Before::of(directory));
    let sink = lines::sink(announcer, count);
    let group = match start(network, arguments, &addresses, serve_args, sink, announcer) {
        // It is no failure that the user ended it. That a replica had to be killed then is one, and is negative.
        Err(failure) if interrupt::interrupted() && !failure.is_negative() => return Ok(()),
        other => other?,
    };
    let reports = group::survey(network, &addresses)?;
    if let (Some(directory), Some(before)) = (kept, &before) {
        tell_kept(directory, before, &addresses, &reports, announcer);
    }
    welcome(
        &addresses,
        &reports,
        started.elapsed(),
        kept,
        Sealed::new(key.as_ref(), arguments),
        (resp, arguments.tls.tls_cert.as_deref()),
        announcer,
    );
    announcer.keep_out_of_prompts();
    supervisor::supervise(network, group, kept.is_some(), announcer)
}

/// The options of every replica.
fn serve_args(
    arguments: &UpArguments,
    password: Option<&HiddenPassword>,
) -> Result<Vec<OsString>, Failure> {
    let mut serve_args = arguments.limits.as_serve_args();
    serve_args.extend(arguments.reading.as_serve_args());
    serve_args.extend(arguments.timing.as_serve_args());
    serve_args.extend(arguments.watch.as_serve_args()?);
    serve_args.extend(arguments.log.as_serve_args());
    serve_args.extend(arguments.resp.as_serve_args(password));
    serve_args.extend(arguments.tls.as_serve_args());
    serve_args.push("--fault-injection".into());
    Ok(serve_args)
}

/// Starts the replicas, and waits until all of them vote.
fn start<N: Network>(
    network: &N,
    arguments: &UpArguments,
    addresses: &[SocketAddr],
    serve_args: Vec<OsString>,
    sink: LineSink,
    announcer: Announcer,
) -> Result<Group, Failure> {
    let kept = arguments.log.directory();
    let limit = start_limit(kept.map(PathBuf::as_path));
    let unfinished = match kept {
        Some(directory) => restored::is_unfinished(directory, arguments.restore.is_some())?,
        None => false,
    };
    let (begin, bytes) = match &arguments.restore {
        None if !unfinished => {
            let config = group::config(network, addresses.to_vec(), serve_args, Some(sink))?;
            return group::start_by(network, config, Vec::new(), Vec::new(), limit);
        }
        None => {
            announcer.line("resuming an interrupted restore");
            (Vec::new(), 0)
        }
        Some(file) => (
            restored::prepare(file, kept, addresses, arguments.expiry, announcer)?,
            std::fs::metadata(file).map_or(0, |about| about.len()),
        ),
    };
    // Each replica reads it, or gets as much over the network.
    let limit = limit + Duration::from_secs(bytes / READ_BYTES_PER_SECOND);
    restored::start(network, (addresses, kept), serve_args, sink, begin, limit)
}

/// Where the replicas will be.
fn addresses<N: Network>(
    network: &N,
    arguments: &UpArguments,
    count: usize,
) -> Result<Vec<SocketAddr>, Failure> {
    if network.chooses_addresses() {
        return network.group_addresses(count);
    }
    addresses_from(arguments.base_port, count).ok_or_else(|| {
        let message = format!("{count} ports from {} run past 65535", arguments.base_port);
        Failure::usage(message, "choose a smaller --base-port")
    })
}

/// The group's key, unless it is to have none.
fn group_key(
    choice: &KeyChoice,
    arguments: &UpArguments,
    addresses: &[SocketAddr],
) -> Result<Option<GroupKey>, Failure> {
    if arguments.keys == Some(KeyStage::None) {
        return Ok(None);
    }
    let key = match (choice, arguments.log.directory()) {
        (KeyChoice::File(path), _) => GroupKey::named(path, addresses),
        (KeyChoice::Without, _) => return Ok(None),
        (KeyChoice::OfLocalGroup, _) if arguments.insecure => return Ok(None),
        (KeyChoice::OfLocalGroup, Some(directory)) => GroupKey::kept_in(directory, addresses),
        (KeyChoice::OfLocalGroup, None) => GroupKey::of_this_run(addresses),
    };
    key.map(Some)
}

/// Whether packets of the group are sealed, for whom.
struct Sealed {
    key: Option<PathBuf>,
    accepts_all: bool,
}

impl Sealed {
    fn new(key: Option<&GroupKey>, arguments: &UpArguments) -> Self {
        Self {
            key: key.map(|key| key.path.clone()),
            accepts_all: arguments.keys == Some(KeyStage::Accept),
        }
    }
}

impl fmt::Display for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            None => f.write_str(
                "Packets are not sealed: any client that can send packets to these ports can read \
                 and write.",
            ),
            Some(path) if self.accepts_all => write!(
                f,
                "The group's key is in {}. Callers without it are accepted, too: --key-stage \
                 accept.",
                path.display()
            ),
            Some(path) => write!(
                f,
                "Packets are sealed with the key in {}, which your commands on this machine find.",
                path.display()
            ),
        }
    }
}

/// Which settings are wrong on any machine? Returns every mistake, with its setting.
pub(crate) fn check(arguments: &UpArguments) -> Vec<(&'static str, Failure)> {
    let count = replica_count(&arguments.replicas);
    let resp = resp_address(arguments, count);
    let mut found = Vec::new();
    found.extend(resp.err().map(|failure| ("resp", failure)));
    found.extend(check_common(
        &arguments.log,
        &arguments.resp,
        &arguments.reading,
        &arguments.timing,
        (&arguments.watch, &arguments.tls),
    ));
    found
}

/// The address at which the first replica serves Redis clients, if it does and the port is known. Checks first that all
/// replicas have a port.
fn resp_address(arguments: &UpArguments, count: usize) -> Result<Option<SocketAddr>, Failure> {
    let Some(resp) = arguments.resp.resp else {
        return Ok(None);
    };
    let resp = resp.counting_on();
    let last = resp.of_node(u32::try_from(count).expect("at most 7"))?;
    arguments.resp.exposed(last, &arguments.tls).check()?;
    // With port 0 the system chooses a port for each replica.
    Ok(Some(resp.of_node(1)?).filter(|address| address.port() > 0))
}

/// How long the replicas may take until they vote. Replicas with a kept directory have to read it first.
fn start_limit(kept: Option<&Path>) -> Duration {
    let bytes = kept.map_or(0, |directory| bytes_below(directory, DIRECTORY_DEPTH));
    START_LIMIT + Duration::from_secs(bytes / READ_BYTES_PER_SECOND)
}

/// The bytes of all files below a directory; unreadable files count nothing.
fn bytes_below(directory: &Path, depth: u32) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_file() => found.len(),
        Ok(found) if found.is_dir() && depth > 1 => bytes_below(&entry.path(), depth - 1),
        _ => 0,
    };
    entries.map(size).sum()
}

/// Warns if nothing of what the directory held goes on, and writes down where its group is from now on.
fn tell_kept(
    directory: &Path,
    before: &Before,
    addresses: &[SocketAddr],
    reports: &[Report],
    announcer: Announcer,
) {
    let mut known = reports.iter().filter_map(Report::status);
    let now = known.find_map(|status| status.cluster.as_deref());
    let set_aside = before.lost(directory, now);
    if !set_aside.is_empty() {
        announcer.event(format_args!(
            "warning: the group starts without data: no replica continues with its files, and each \
             prints the reason. The old files are kept: {}",
            set_aside.join(" ")
        ));
    }
    if let Err(failure) = kept::remember(directory, addresses) {
        announcer.event(format_args!("warning: {}", failure.in_one_line()));
    }
}

fn welcome(
    addresses: &[SocketAddr],
    reports: &[Report],
    took: Duration,
    kept: Option<&PathBuf>,
    sealed: Sealed,
    (resp, tls): (Option<SocketAddr>, Option<&Path>),
    announcer: Announcer,
) {
    let leader = leader_of(reports).map(|leader| leader.node_id);
    let list: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let took = show_duration(took);
    let key = sealed.key.as_deref().map(path_text);
    announcer.document(&json!({ "peers": list, "leader": leader, "key": key }));
    let leader = leader.map_or(String::new(), |node_id| {
        format!("; replica {node_id} leads")
    });
    announcer.line(format_args!(
        "ready after {took}: {}{leader}",
        list.join(" ")
    ));
    announcer.line("");
    announcer.line("In another terminal:");
    if addresses[0].port() != BASE_PORT || addresses.len() != 3 {
        announcer.line(format_args!("  export TRINE_PEERS={}", list.join(",")));
    }
    announcer.line("  trine put greeting hello");
    announcer.line("  trine get greeting");
    announcer.line("  trine status");
    if let Some(resp) = resp {
        let tls = match tls {
            Some(certificate) => format!(" --tls --cacert {}", certificate.display()),
            None => String::new(),
        };
        announcer.line(format_args!("  redis-cli{tls} -p {}", resp.port()));
    }
    announcer.line("");
    announcer.line(sealed);
    // No Ctrl-C comes to one in the background.
    let end = match announce::is_in_background() {
        true => "`trine down`",
        false => "Ctrl-C",
    };
    announcer.line(match kept {
        None => format!("{end} ends the group, and with it the data: it is in memory only."),
        Some(directory) => format!(
            "{end} ends the group. The data stays in {}: the same command continues with it.",
            directory.display()
        ),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `trine up` gave up after 20 s, however much there was to read. It could never start a group with a large enough
    /// directory again.
    #[test]
    fn a_group_with_much_to_read_has_longer_to_start() {
        let directory = std::env::temp_dir().join(format!("trine-up-{}", std::process::id()));
        let replica = directory.join("replica-1");
        std::fs::create_dir_all(&replica).expect("made");
        let file = std::fs::File::create(replica.join("segment")).expect("made");
        file.set_len(1 << 30).expect("a sparse file");
        let limit = start_limit(Some(&directory));
        std::fs::remove_dir_all(&directory).expect("removed");
        assert_eq!(limit, START_LIMIT + Duration::from_secs(128));
        assert_eq!(start_limit(Some(&directory)), START_LIMIT);
        assert_eq!(start_limit(None), START_LIMIT);
    }
}
