//! `trine backup FILE` writes the whole state of a serving group at one position into a file, and `trine backup verify`
//! checks such a file.

mod partial;
mod reading;
mod replicas;
pub(crate) mod verify;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;
use trine_base::arguments::{ClientArguments, GroupArguments};
use trine_base::capture::CaptureArguments;
use trine_base::client::{CommandClient, open};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::new_file;
use trine_base::output::Output;
use trine_base::survey::ask_everybody;
use trine_base::units::{parse_bytes, parse_positive_duration, plural, show_bytes};
use trine_base::{announce, peers};
use trine_client::Mode;
use trine_kvstore::{Command, Response};
use trine_replica::backup::Header;

use self::partial::Partial;
use self::reading::{BackupStream, Pace, Stop};
use self::replicas::{Candidate, Wanted};
use super::get::ReadFrom;
use trine_base::config::DEFAULT_PEERS;

/// How often all replicas are tried, one after the other, until one of them gives the whole state.
const PASSES: usize = 3;
/// How long a replica may take to make an image while another one can be asked.
const IMAGE_PATIENCE: Duration = Duration::from_secs(2);
/// How long each replica has to say who it is.
const SURVEY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BackupArguments {
    #[command(subcommand)]
    pub(crate) command: Option<BackupCommand>,
    /// The file to create. While the backup runs, its name is FILE.partial; the same command resumes an interrupted
    /// backup.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) file: Option<PathBuf>,
    /// Replica to read from: leader, follower, any, or a node id. Followers are less busy; with `follower` and `any`,
    /// the leader is read only if no other replica is available.
    #[arg(long, default_value = "follower", value_name = "REPLICA")]
    pub(crate) replica: ReadFrom,
    /// What `--replica leader` was before.
    #[arg(long, hide = true, conflicts_with = "replica")]
    pub(crate) from_leader: bool,
    /// Read at most this much per second, for example 100MiB.
    #[arg(long, alias = "rate", value_name = "SIZE", value_parser = parse_rate)]
    pub(crate) max_rate: Option<u64>,
    /// Addresses of the replicas: host:port,...
    #[arg(long, env = "TRINE_PEERS", default_value = DEFAULT_PEERS, value_name = "LIST")]
    pub(crate) peers: String,
    /// Give up after this long without a leader, or without a replica that can start. The backup itself may take
    /// longer.
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Check that a file is a complete backup; if it is damaged, report the first damaged byte and exit with status 1.
    Verify {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

fn parse_rate(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("it must be more than zero; omit --max-rate for as fast as possible".to_owned()),
        rate => Ok(rate),
    }
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &BackupArguments,
    output: Output,
) -> Result<(), Failure> {
    let Some(file) = &arguments.file else {
        unreachable!("the command line requires it");
    };
    interrupt::start_writer()?;
    let began = Instant::now();
    // Before anything is asked.
    new_file::require_name(file, "give the name of a file, or ./- for one of that name")?;
    partial::require_free(file)?;
    let at_least = position(network, arguments)?;
    interrupt::check()?;
    let mut partial = Partial::open(file)?;
    let found = partial.header().copied();
    let mut work = BackupRun {
        network,
        arguments,
        at_least,
        partial: &mut partial,
        output,
    };
    let resumed = match found {
        Some(header) => work.go_on(&header)?,
        None => None,
    };
    let (from, resumed) = match resumed {
        Some(from) => (from, true),
        None => (work.begin()?, false),
    };
    let Some(header) = partial.header().copied() else {
        unreachable!("a backup that was read has a header");
    };
    let bytes = partial.finish(file)?;
    tell(file, &header, bytes, from, resumed, began, output);
    Ok(())
}

/// The index of the last entry that is committed now: everything that was acknowledged before this command is in the
/// state after it.
fn position<N: Network>(network: &N, arguments: &BackupArguments) -> Result<u64, Failure> {
    let client = ClientArguments {
        group: GroupArguments {
            peers: arguments.peers.clone(),
            timeout: arguments.timeout,
        },
        capture: CaptureArguments::default(),
    };
    let mut session: CommandClient = open(network, &client, |_| {})?;
    let answer = session.execute(Mode::Read, &Command::Count)?;
    match answer.response() {
        Ok(Response::Denied { reason }) => Err(refused(reason)),
        _ => Ok(answer.position().index()),
    }
}

fn refused(why: &str) -> Failure {
    Failure::negative(
        format!("denied: {why}; nothing was backed up"),
        "a backup holds all keys and the list of the users: give the group's key file, or the key \
         of a user with role admin, with --key",
    )
}

/// A backup under way.
struct BackupRun<'a, N: Network> {
    network: &'a N,
    arguments: &'a BackupArguments,
    at_least: u64,
    partial: &'a mut Partial,
    output: Output,
}

impl<N: Network> BackupRun<'_, N> {
    fn candidates(&self) -> Result<Vec<Candidate>, Failure> {
        let addresses = peers::resolve(&self.arguments.peers)?;
        let limit = self.arguments.timeout.min(SURVEY).into();
        let reports = ask_everybody(self.network, &addresses, limit)?;
        let wanted = match self.arguments.replica {
            _ if self.arguments.from_leader => Wanted::Leader,
            ReadFrom::Leader => Wanted::Leader,
            ReadFrom::Follower | ReadFrom::Any => Wanted::Any,
            ReadFrom::Node(node_id) => Wanted::Node(node_id),
        };
        replicas::choose(&reports, wanted)
    }

    /// Goes on with the image that the partial file has a part of, if its replica still has it.
    fn go_on(&mut self, header: &Header) -> Result<Option<u32>, Failure> {
        let candidates = self.candidates()?;
        let is_its = |candidate: &&Candidate| {
            candidate.incarnation == header.replica && candidate.cluster == header.head.cluster
        };
        let why = match candidates.iter().find(is_its) {
            None => "its replica is not among those to ask".to_owned(),
            Some(candidate) => {
                let shown = self.partial.shown();
                let there = show_bytes(self.partial.bytes());
                announce::note(format_args!("{shown} holds {there}: resuming it"));
                if header.head.index < self.at_least {
                    announce::note(format_args!(
                        "it is the state at entry {}: writes acknowledged after it are not in the \
                         backup; for a later state remove {shown} and start over",
                        header.head.index
                    ));
                }
                match self.read_on(candidate)? {
                    Ok(()) => return Ok(Some(candidate.node_id)),
                    Err(why) => why,
                }
            }
        };
        let shown = self.partial.shown();
        announce::note(format_args!("cannot resume {shown}: {why}; starting over"));
        Ok(None)
    }

    /// Begins with one replica after the other until one has given everything.
    fn begin(&mut self) -> Result<u32, Failure> {
        let mut last = "no replica could be asked".to_owned();
        for _ in 0..PASSES {
            let candidates = self.candidates()?;
            let count = candidates.len();
            for (place, candidate) in candidates.iter().enumerate() {
                let patience = match place + 1 < count {
                    true => IMAGE_PATIENCE.min(self.arguments.timeout),
                    false => self.arguments.timeout,
                };
                let began = self.begin_at(candidate, patience)?;
                let why = match began {
                    Ok(()) => match self.read_on(candidate)? {
                        Ok(()) => return Ok(candidate.node_id),
                        Err(why) => why,
                    },
                    Err(why) => why,
                };
                last = format!("replica {}: {why}", candidate.node_id);
                announce::note(format_args!("{last}; retrying"));
            }
        }
        Err(Failure::not_reachable(
            format!("no replica sent the whole state; the last one, {last}"),
            "`trine status` shows the replicas; --replica ID asks one of them; a longer --timeout waits longer",
        ))
    }

    /// Has an image made, and begins the file with it.
    fn begin_at(
        &mut self,
        candidate: &Candidate,
        patience: Duration,
    ) -> Result<Result<(), String>, Failure> {
        let mut reading = match BackupStream::open(self.network, candidate)? {
            Ok(reading) => reading,
            Err(why) => return Ok(Err(why)),
        };
        let head = match reading.begin(self.at_least, patience) {
            Ok(head) => head,
            Err(stop) => return self.stopped(stop, candidate),
        };
        // The file is begun with it; reading goes on with a session of its own.
        reading.leave();
        let header = Header {
            head,
            made_at_ms: reading::now_ms(),
            replica: candidate.incarnation,
        };
        self.partial.begin(&header)?;
        Ok(Ok(()))
    }

    /// Reads the rest of the image that the file is of. A lost session is no reason to give up: while something comes,
    /// another one follows.
    fn read_on(&mut self, candidate: &Candidate) -> Result<Result<(), String>, Failure> {
        let Some(header) = self.partial.header().copied() else {
            unreachable!("the file was begun");
        };
        let mut progress = reading::progress(&header, self.output);
        let mut pace = Pace::new(self.arguments.max_rate);
        loop {
            let before = self.partial.frames();
            let reading = match BackupStream::open(self.network, candidate)? {
                Ok(reading) => reading,
                Err(why) => return Ok(Err(why)),
            };
            match reading.copy(&header, self.partial, &mut pace, &mut progress) {
                Ok(()) => return Ok(Ok(())),
                Err(Stop::Lost) if self.partial.frames() > before => {}
                Err(stop) => return self.stopped(stop, candidate),
            }
        }
    }

    /// Whether it can go on elsewhere, and why it does not here.
    fn stopped(
        &mut self,
        stop: Stop,
        candidate: &Candidate,
    ) -> Result<Result<(), String>, Failure> {
        match stop {
            Stop::Interrupted => Err(self.interrupted()?),
            Stop::Failed(failure) => Err(failure),
            Stop::Denied(why) if candidate.decides => Err(refused(&why)),
            // A follower may not have heard of a user yet.
            Stop::Denied(why) => Ok(Err(why)),
            Stop::Lost => Ok(Err("it no longer answers".to_owned())),
            Stop::Elsewhere(why) => Ok(Err(why)),
        }
    }

    /// Ctrl-C: what is there stays.
    fn interrupted(&mut self) -> Result<Failure, Failure> {
        let shown = self.partial.shown();
        Ok(match self.partial.keep()? {
            0 => Failure::interrupted_after("no backup was made", ""),
            bytes => Failure::interrupted_after(
                format_args!("{shown} holds {} of the backup", show_bytes(bytes)),
                "the same command resumes it while the replica keeps its image, for a minute; \
                 later it starts over",
            ),
        })
    }
}

fn tell(
    file: &std::path::Path,
    header: &Header,
    bytes: u64,
    from: u32,
    resumed: bool,
    began: Instant,
    output: Output,
) {
    let head = &header.head;
    let mut document = verify::document(file, header, bytes);
    document["replica"] = json!(from);
    document["resumed"] = json!(resumed);
    document["seconds"] = json!(began.elapsed().as_secs_f64());
    output.document(&document);
    output.line(format_args!(
        "{} of cluster {} at entry {} are in {} ({}), from replica {from}",
        plural(head.items, "key"),
        head.cluster,
        head.index,
        file.display(),
        show_bytes(bytes),
    ));
}
