//! The command line: the clap definition of every command.

mod examples;
mod help;
mod line;
#[cfg(test)]
mod options;
mod parse;
mod shell;

pub(crate) use self::line::{command_line, needless_option};
pub(crate) use self::parse::parse;
pub(crate) use self::shell::in_shell;

use clap::{Parser, Subcommand};

use crate::cmd::backup::BackupArguments;
use crate::cmd::cache::CacheCommand;
use crate::cmd::completions::CompletionsArguments;
use crate::cmd::count::CountArguments;
use crate::cmd::debug::DebugCommand;
use crate::cmd::del::DelArguments;
use crate::cmd::demo::DemoArguments;
use crate::cmd::doctor::DoctorArguments;
use crate::cmd::down::DownArguments;
use crate::cmd::export::ExportArguments;
use crate::cmd::flush::FlushArguments;
use crate::cmd::get::GetArguments;
use crate::cmd::import::ImportArguments;
use crate::cmd::key::KeyCommand;
use crate::cmd::latency::LatencyArguments;
use crate::cmd::leader::LeaderCommand;
use crate::cmd::log_level::LogLevelArguments;
use crate::cmd::man::ManArguments;
use crate::cmd::member::MemberCommand;
use crate::cmd::net::NetCommand;
use crate::cmd::put::PutArguments;
use crate::cmd::recover::RecoverArguments;
use crate::cmd::restore::RestoreArguments;
use crate::cmd::rm::RmArguments;
use crate::cmd::scan::ScanArguments;
use crate::cmd::shell::ShellArguments;
use crate::cmd::sim::SimArguments;
use crate::cmd::stat::StatArguments;
use crate::cmd::status::StatusArguments;
use crate::cmd::top::TopArguments;
use crate::cmd::up::UpArguments;
use crate::cmd::upgrade::UpgradeCommand;
use crate::cmd::user::UserCommand;
use crate::cmd::version::VersionArguments;
use crate::cmd::watch::WatchArguments;
use crate::settings::ConfigCommand;
use trine_apps::index::IndexArguments;
use trine_apps::sequencer::SequencerArguments;
use trine_base::arguments::GlobalArguments;
use trine_base::network::KeyStage;
use trine_bench::BenchArguments;
use trine_live::ChaosArguments;
use trine_protocol::program::Program;
use trine_server::options::ServeArguments;

const EXAMPLES: &str = "\
Examples:
  trine demo                        see a group survive the death of its leader
  trine up                          run a local group until Ctrl-C
  trine put greeting hello          write; the value can also be - (stdin) or @file
  trine get greeting                read; prints the raw bytes
  trine                             a shell for such commands, on a terminal or from a pipe
  trine status                      who leads, and how far each replica is
  trine top                         the same and more, live on one screen
  trine member list                 the members of the group

Exit status: 0 done; 1 negative result (no such key, check failed); 2 wrong usage or
configuration; 3 cluster not reachable or outcome unknown (the text says which).";

/// A strongly consistent, in-memory key-value store that replicates every write.
#[derive(Debug, Parser)]
#[command(name = "trine", version = Program::this().to_string(), after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The shell if absent.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) global: GlobalArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start three replicas, kill the leader, show that nothing was lost.
    Demo(DemoArguments),
    /// Run a local group in the foreground until Ctrl-C.
    Up(UpArguments),
    /// Stop the group that `trine up` started on this machine.
    Down(DownArguments),
    /// Run one replica.
    Serve(ServeArguments),
    /// Write a value.
    Put(PutArguments),
    /// Read a value and print its raw bytes.
    Get(GetArguments),
    /// Delete a key; exit status 1 if it did not exist.
    Del(DelArguments),
    /// Print the keys with a prefix in order, with their values.
    Scan(ScanArguments),
    /// Print every change to the keys with a prefix, as it happens.
    Watch(WatchArguments),
    /// Count all keys, or those with a prefix.
    Count(CountArguments),
    /// Delete all keys that begin with a prefix.
    Rm(RmArguments),
    /// Delete every key of the group.
    Flush(FlushArguments),
    /// Write keys with their values and expiries to a file, as JSON lines.
    Export(ExportArguments),
    /// Write the keys from such a file.
    Import(ImportArguments),
    /// Read commands from a terminal or standard input; `trine` alone does the same.
    Shell(ShellArguments),
    /// Show the state of every replica: role, term, log, round-trip times, retransmissions.
    Status(StatusArguments),
    /// Show the group on one screen: roles, lag, throughput, stages of writes, links.
    Top(TopArguments),
    /// Print a line each second: rates, percentiles of the stages of writes, lag, retransmissions.
    Stat(StatArguments),
    /// Measure round trips between replicas, and writes and reads of a test key.
    Latency(LatencyArguments),
    /// Show or change the members of the group.
    #[command(subcommand)]
    Member(MemberCommand),
    /// Transfer leadership.
    #[command(subcommand)]
    Leader(LeaderCommand),
    /// Show a group's state version, or switch to a newer one.
    #[command(subcommand)]
    Upgrade(UpgradeCommand),
    /// Create a group's key, or show which keys a file holds.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Add, list and remove users, and create their keys.
    #[command(subcommand)]
    User(UserCommand),
    /// Show or change the network faults that replicas inject, by link and direction.
    #[command(subcommand)]
    Net(NetCommand),
    /// Write all keys and users of a group to a file, as of one position; or verify such a file.
    Backup(BackupArguments),
    /// Create the data directory of a new group's first replica from a backup.
    Restore(RestoreArguments),
    /// Create a new group from one replica's data directory, after the loss of a majority.
    Recover(RecoverArguments),
    /// Measure throughput and latency of a running group.
    Bench(BenchArguments),
    /// Inject faults into a group of real processes, and check what its clients observed.
    Chaos(ChaosArguments),
    /// Simulate whole groups with faults on virtual time; a seed reproduces its run byte for byte.
    Sim(SimArguments),
    /// Serve a cache without replication, and access it.
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Serve an ordered index without replication, access it, and measure it.
    Index(IndexArguments),
    /// Run a sequencer: serve unique, increasing numbers.
    Sequencer(SequencerArguments),
    /// Check and show the settings of a machine, and show and change those of a group.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show or change the log level of a running replica.
    LogLevel(LogLevelArguments),
    /// Check whether this machine is suitable for trine. With --peers, also check a group's keys. Each finding includes
    /// the command that fixes it.
    Doctor(DoctorArguments),
    /// Collect a support bundle.
    #[command(subcommand)]
    Debug(DebugCommand),
    /// Print a completion script for commands and options.
    Completions(CompletionsArguments),
    /// Write the manual pages.
    Man(ManArguments),
    /// Show the release, the commit, and the state and message versions of this program.
    Version(VersionArguments),
}

impl Command {
    /// Which callers the replicas that it starts take, if the user has said so.
    pub(crate) fn key_stage(&self) -> Option<KeyStage> {
        match self {
            Self::Serve(arguments) => arguments.keys,
            Self::Up(arguments) => arguments.keys,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::time::Duration;
    use trine_transport::prng::Ratio;

    #[test]
    fn the_definition_is_consistent() {
        command_line().debug_assert();
    }

    /// The settings read `serve` and `up` through a separate definition. It repeats what this one says of them and
    /// lists the other commands.
    #[test]
    fn the_settings_know_the_commands_as_the_whole_line_does() {
        let help = |mut line: clap::Command, name: &str| {
            line.build();
            let command = line.find_subcommand_mut(name).expect("the command");
            command.render_long_help().to_string()
        };
        for name in ["serve", "up"] {
            let settings = crate::settings::command_line();
            assert_eq!(help(settings, name), help(Arguments::command(), name));
        }
    }

    #[test]
    fn the_chaos_line_of_the_documents_parses() {
        let line = "trine chaos --loss 5% --dup 1% --reorder 2% --clients 8 --for 20s --seed 7 --kill-leader-every 5s";
        let arguments = Arguments::try_parse_from(line.split(' ')).expect("parses");
        let Some(Command::Chaos(chaos)) = arguments.command else {
            panic!("not chaos")
        };
        assert_eq!(chaos.loss, Ratio::percent(5));
        assert_eq!(chaos.kill_leader_every, Some(Duration::from_secs(5)));
        assert_eq!((chaos.clients, chaos.seed), (8, 7));
    }

    /// `trine sequencer serve --state FILE --name NAME` was accepted, and the name meant nothing: clap forgets what an option
    /// requires if something that excludes it is given.
    #[test]
    fn what_an_option_needs_is_missed_also_beside_what_excludes_it() {
        for line in [
            "sequencer serve --state f --name n",
            "sequencer serve --state f --lease 2s",
            "sequencer serve --state f --block 9",
            "sequencer serve --state f --strict",
            "sim --seeds 3 --trace",
            "sim --twice --print-history",
            "sim --threads 2 --shrink",
            "sim --planted-bugs --faulty 2s",
            "serve --id 1 --peers 127.0.0.1:1 --bootstrap --expiry wall",
        ] {
            let line = format!("trine {line}");
            let refused = Arguments::try_parse_from(line.split(' ')).expect_err(&line);
            assert_eq!(
                refused.kind(),
                clap::error::ErrorKind::ArgumentConflict,
                "{line}"
            );
        }
    }

    /// `trine status --capture FILE` was accepted and left no file, because commands that ask each replica separately
    /// capture nothing.
    #[test]
    fn what_would_capture_nothing_takes_no_capture() {
        for line in ["status", "member list", "stat", "top", "debug bundle"] {
            let line = format!("trine {line} --capture x");
            let refused = Arguments::try_parse_from(line.split(' ')).expect_err(&line);
            assert_eq!(refused.kind(), clap::error::ErrorKind::UnknownArgument);
        }
    }
}
