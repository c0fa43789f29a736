//! A group of real replica processes on loopback: started, killed, restarted, cleaned up.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use trine_base::announce::note;
use trine_base::interrupt;

use crate::arguments;
use crate::config::{QUIET_LIMIT, STOP_LIMIT_IN_MEMORY, STOP_LIMIT_ON_DISK};
use crate::output::LineSink;
use crate::process::Process;

/// How often an awaited condition is checked.
const POLL: Duration = Duration::from_millis(10);

/// What to run.
#[derive(Clone)]
pub struct GroupConfig {
    /// The `trine` binary that every replica is at first; see [`Group::run_by`].
    pub program: PathBuf,
    /// One address a replica; node `n` (from 1) has `addresses[n - 1]`.
    pub addresses: Vec<SocketAddr>,
    /// Further arguments for each `trine serve`. `{node_id}` is replaced by the replica's node id in the values of
    /// `--metrics` and `--eal`; in that of `--data-dir` only where it stands last.
    pub serve_args: Vec<OsString>,
    /// Sees every line that a replica prints.
    pub sink: Option<LineSink>,
}

impl fmt::Debug for GroupConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupConfig")
            .field("program", &self.program)
            .field("addresses", &self.addresses)
            .field("serve_args", &self.serve_args)
            .finish_non_exhaustive()
    }
}

/// A replica that ended without being asked to.
#[derive(Debug)]
pub struct Exit {
    /// Its node id, from 1.
    pub node_id: usize,
    /// How it ended.
    pub status: ExitStatus,
    /// The last lines it printed.
    pub tail: Vec<String>,
}

/// Why a group cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The process could not be started at all.
    #[error("cannot start {program}: {source}", program = program.display())]
    Start {
        /// The binary.
        program: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A replica ended without being asked to.
    #[error("replica {} ended by itself ({}){}", exit.node_id, exit.status, lines(&exit.tail))]
    Ended {
        /// Which, how, and what it said.
        exit: Exit,
    },
    /// The awaited condition did not come true in time.
    #[error("{what} did not happen within {limit:?}{}", lines(tail))]
    TimedOut {
        /// The condition, in words.
        what: String,
        /// The time it had.
        limit: Duration,
        /// The last lines of all replicas.
        tail: Vec<String>,
    },
    /// Replicas with files did not end in time after the request, and were killed.
    #[error("{}", killed(node_ids, *limit))]
    Killed {
        /// Which, from 1.
        node_ids: Vec<usize>,
        /// The time they had.
        limit: Duration,
        /// Whether their files only count after an orderly end.
        unsynced: bool,
    },
    /// The operating system refused to signal or reap a process.
    #[error("cannot control a replica's process: {0}")]
    Control(#[from] io::Error),
}

/// The lines, indented, each on a line of its own.
fn lines(tail: &[String]) -> String {
    tail.iter().map(|line| format!("\n    {line}")).collect()
}

/// The error of [`LiveError::Killed`].
fn killed(node_ids: &[usize], limit: Duration) -> String {
    let list: Vec<String> = node_ids.iter().map(usize::to_string).collect();
    let (replicas, were) = match list.len() {
        1 => ("replica", "was"),
        _ => ("replicas", "were"),
    };
    let list = list.join(", ");
    format!("{replicas} {list} did not end within {limit:?} after the request, and {were} killed")
}

/// What it means for the files of replicas that they were killed.
pub(super) fn meaning_of_a_kill(unsynced: bool) -> &'static str {
    match unsynced {
        true => {
            "with --fsync none a data directory only counts after an orderly end: at the next start each of these \
             replicas sets its files aside and is a new one, and a group whose replicas all do so begins without data"
        }
        false => {
            "nothing that was acknowledged is lost: at the next start they go on with their data directories"
        }
    }
}

/// Replica processes of one group.
///
/// Dropping it ends all of them. Replicas in memory are killed at once. Those with files end in order, because a kill
/// may cost them what they keep: they are asked to, and killed only after a limit. If this process ends without dropping
/// anything, the kernel kills them (see [`die_with_parent`](super::die_with_parent)).
#[derive(Debug)]
pub struct Group {
    config: GroupConfig,
    /// How long replicas may take to end after the request.
    stop_limit: Duration,
    /// The program of each replica, by node id.
    programs: Vec<PathBuf>,
    /// Words before the command of each replica; every `{node_id}` in them is replaced by its node id.
    launcher: Vec<OsString>,
    /// The replicas' names, by node id, for the list of peers; if there are none, it has addresses.
    names: Vec<String>,
    /// `None` while a replica is down on purpose.
    processes: Vec<Option<Process>>,
}

impl Group {
    /// Starts every replica; the first one bootstraps the group. Returns immediately: the caller decides what "ready"
    /// means, see [`wait_until`](Self::wait_until).
    pub fn start(config: GroupConfig) -> Result<Self, LiveError> {
        Self::start_by(config, Vec::new())
    }

    /// As [`start`](Self::start), but another program starts each replica, such as `ip netns exec replica{node_id}`. That
    /// program has to become the replica: its process id and its end are the replica's.
    pub fn start_by(config: GroupConfig, launcher: Vec<OsString>) -> Result<Self, LiveError> {
        Self::start_as(config, launcher, vec!["--bootstrap".into()])
    }

    /// As [`start_by`](Self::start_by), where the first replica begins the group with these arguments instead of
    /// `--bootstrap`. It has them at its first start alone.
    pub fn start_as(
        config: GroupConfig,
        launcher: Vec<OsString>,
        begin: Vec<OsString>,
    ) -> Result<Self, LiveError> {
        Self::start_named(config, launcher, begin, Vec::new())
    }

    /// As [`start_as`](Self::start_as), where the list of peers has these names, each with its port, in place of addresses.
    /// Whoever starts the group sees to it that they stand for the addresses.
    pub fn start_named(
        config: GroupConfig,
        launcher: Vec<OsString>,
        begin: Vec<OsString>,
        names: Vec<String>,
    ) -> Result<Self, LiveError> {
        let count = config.addresses.len();
        let stop_limit = match arguments::keep_files(&config.serve_args) {
            true => STOP_LIMIT_ON_DISK,
            false => STOP_LIMIT_IN_MEMORY,
        };
        let mut group = Self {
            programs: vec![config.program.clone(); count],
            config,
            stop_limit,
            launcher,
            names,
            processes: Vec::new(),
        };
        group.processes.resize_with(count, || None);
        for node_id in 1..=count {
            let begin = if node_id == 1 { &begin[..] } else { &[] };
            group.launch(node_id, begin)?;
        }
        Ok(group)
    }

    /// The replicas' addresses, by node id.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.config.addresses
    }

    /// The names or the addresses as the `--peers` option takes them.
    #[must_use]
    pub fn peers(&self) -> String {
        if !self.names.is_empty() {
            return self.names.join(",");
        }
        let texts: Vec<String> = self
            .config
            .addresses
            .iter()
            .map(SocketAddr::to_string)
            .collect();
        texts.join(",")
    }

    /// From now on the replica at `node_id` is expected at another address.
    pub fn move_to(&mut self, node_id: usize, address: SocketAddr) {
        self.config.addresses[node_id - 1] = address;
    }

    /// The node id of the replica at `address`.
    #[must_use]
    pub fn node_id_of(&self, address: SocketAddr) -> Option<usize> {
        self.config
            .addresses
            .iter()
            .position(|own| *own == address)
            .map(|index| index + 1)
    }

    /// The process at `node_id`, unless it is down on purpose.
    pub fn process(&mut self, node_id: usize) -> Option<&mut Process> {
        self.processes.get_mut(node_id.checked_sub(1)?)?.as_mut()
    }

    /// The process ids of the replicas that are up.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().flatten().map(Process::pid).collect()
    }

    /// Kills the replica at `node_id` with SIGKILL; nothing of it runs on return.
    pub fn kill(&mut self, node_id: usize) -> Result<(), LiveError> {
        if let Some(mut process) = self.processes[node_id - 1].take() {
            process.kill()?;
        }
        Ok(())
    }

    /// Starts the replica at `node_id` again, empty: it re-joins under a new identity.
    pub fn restart(&mut self, node_id: usize) -> Result<(), LiveError> {
        self.kill(node_id)?;
        self.launch(node_id, &[])
    }

    /// From its next start on, `program` is the replica at `node_id`.
    pub fn run_by(&mut self, node_id: usize, program: PathBuf) {
        self.programs[node_id - 1] = program;
    }

    /// The replicas that ended by themselves since the last call; they are then down.
    pub fn take_exits(&mut self) -> Result<Vec<Exit>, LiveError> {
        let mut exits = Vec::new();
        for (index, slot) in self.processes.iter_mut().enumerate() {
            let Some(process) = slot else { continue };
            let Some(status) = process.wait_at_most(Duration::ZERO)? else {
                continue;
            };
            exits.push(Exit {
                node_id: index + 1,
                status,
                tail: process.tail(),
            });
            *slot = None;
        }
        Ok(exits)
    }

    /// Evaluates `condition` until it answers, at most for `limit`. If a replica ends by itself meanwhile, the call
    /// returns that error without waiting out the limit.
    pub fn wait_until<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut condition: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, LiveError> {
        let until = Instant::now() + limit;
        loop {
            if let Some(exit) = self.take_exits()?.into_iter().next() {
                return Err(LiveError::Ended { exit });
            }
            if let Some(answer) = condition(self) {
                return Ok(answer);
            }
            if Instant::now() >= until {
                return Err(LiveError::TimedOut {
                    what: what.to_owned(),
                    limit,
                    tail: self.tails(),
                });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Asks all replicas to end, waits for them, and kills the rest. Replicas in memory have a moment; those with files
    /// have as long as their last sync may take.
    ///
    /// # Errors
    /// A replica with files had to be killed.
    pub fn stop(mut self) -> Result<(), LiveError> {
        self.end_all()
    }

    /// As [`stop`](Self::stop). No replica is up on return, unless the operating system refused to signal one.
    fn end_all(&mut self) -> Result<(), LiveError> {
        for process in self.processes.iter_mut().flatten() {
            process.ask_to_stop()?;
            // One that stands still would not hear of it.
            process.resume()?;
        }
        let now = Instant::now();
        let until = now + self.stop_limit;
        if self.keeps_files() {
            self.wait_for_ends(now + QUIET_LIMIT.min(self.stop_limit))?;
        }
        let mut node_ids = Vec::new();
        for (node_id, slot) in (1..).zip(&mut self.processes) {
            let Some(mut process) = slot.take() else {
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if process.wait_at_most(left)?.is_none() {
                process.kill()?;
                node_ids.push(node_id);
            }
        }
        if node_ids.is_empty() || !self.keeps_files() {
            return Ok(());
        }
        Err(LiveError::Killed {
            node_ids,
            limit: self.stop_limit,
            unsynced: arguments::sync_at_the_end_alone(&self.config.serve_args),
        })
    }

    /// Waits until `until` for replicas that end, and says for whom there is more to wait.
    fn wait_for_ends(&mut self, until: Instant) -> Result<(), LiveError> {
        let mut late = Vec::new();
        for (node_id, slot) in (1..).zip(&mut self.processes) {
            let Some(process) = slot else {
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            match process.wait_at_most(left)? {
                Some(_) => *slot = None,
                None => late.push(node_id.to_string()),
            }
        }
        if !late.is_empty() {
            let meaning =
                meaning_of_a_kill(arguments::sync_at_the_end_alone(&self.config.serve_args));
            let kills = match interrupt::interrupted() {
                true => "another Ctrl-C kills them",
                false => "Ctrl-C, twice, kills them",
            };
            note(format_args!(
                "waiting for replicas to write their files: {}; {kills}: {meaning}",
                late.join(", ")
            ));
        }
        Ok(())
    }

    /// Whether the replicas keep their logs in files.
    fn keeps_files(&self) -> bool {
        arguments::keep_files(&self.config.serve_args)
    }

    /// The last lines of every replica that is up, each with its node id in front.
    #[must_use]
    pub fn tails(&self) -> Vec<String> {
        let of_one = |(index, process): (usize, &Process)| -> Vec<String> {
            process
                .tail()
                .iter()
                .map(|line| format!("{}: {line}", index + 1))
                .collect()
        };
        let up = self.processes.iter().enumerate();
        up.filter_map(|(index, slot)| Some((index, slot.as_ref()?)))
            .flat_map(of_one)
            .collect()
    }

    /// Starts the process of `node_id`.
    fn launch(&mut self, node_id: usize, begin: &[OsString]) -> Result<(), LiveError> {
        let mut args: Vec<OsString> = vec![
            "serve".into(),
            "--id".into(),
            node_id.to_string().into(),
            "--peers".into(),
            self.peers().into(),
        ];
        args.extend_from_slice(begin);
        args.extend(arguments::of_node(&self.config.serve_args, node_id));
        let (program, args) = self.launched(args, node_id);
        let process = Process::start(&program, &args, node_id, self.config.sink.clone())
            .map_err(|source| LiveError::Start { program, source })?;
        self.processes[node_id - 1] = Some(process);
        Ok(())
    }

    /// The program to start and its arguments: the replica's own, or the launcher with the replica's behind it.
    fn launched(&self, args: Vec<OsString>, node_id: usize) -> (PathBuf, Vec<OsString>) {
        let own = self.programs[node_id - 1].clone();
        let Some((launcher, words)) = self.launcher.split_first() else {
            return (own, args);
        };
        let words = words
            .iter()
            .map(|word| arguments::with_node_id(word, node_id));
        let all = words.chain([own.into_os_string()]).chain(args);
        (launcher.into(), all.collect())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Each of the others is killed as its process is dropped.
        if !self.keeps_files() {
            return;
        }
        let Err(error) = self.end_all() else {
            return;
        };
        // There is nobody to return it to.
        match &error {
            LiveError::Killed { unsynced, .. } => {
                let meaning = meaning_of_a_kill(*unsynced);
                note(format_args!("trine: {error}\n  {meaning}"));
            }
            _ => note(format_args!("trine: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_base::ports::free_addresses;

    /// A group of scripts that play `trine`, in memory.
    fn group_of(name: &str, script: &str) -> Group {
        group_with(name, script, &["--metrics=at+{node_id}"])
    }

    fn script_of(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("trine-live-{}-{name}", std::process::id()))
    }

    fn group_with(name: &str, script: &str, serve_args: &[&str]) -> Group {
        let path = script_of(name);
        trine_child::script(&path, script);
        let addresses = free_addresses(3).expect("ports");
        let config = GroupConfig {
            program: path,
            addresses,
            serve_args: serve_args.iter().map(OsString::from).collect(),
            sink: None,
        };
        Group::start(config).expect("start")
    }

    #[test]
    fn only_the_first_replica_bootstraps_and_none_after_a_restart() {
        let mut group = group_of("arguments", "echo \"$*\"; exec sleep 600");
        let limit = Duration::from_secs(10);
        let printed = |group: &mut Group| Some(group.tails()).filter(|tails| tails.len() == 3);
        let tails = group
            .wait_until("every script speaking", limit, printed)
            .expect("output");
        let peers = group.peers();
        assert_eq!(
            tails[0],
            format!("1: serve --id 1 --peers {peers} --bootstrap --metrics=at+1")
        );
        assert_eq!(
            tails[2],
            format!("3: serve --id 3 --peers {peers} --metrics=at+3")
        );
        group.restart(1).expect("restart");
        let tails = group
            .wait_until("the script speaking", limit, printed)
            .expect("output");
        assert_eq!(
            tails[0],
            format!("1: serve --id 1 --peers {peers} --metrics=at+1")
        );
        let pids = group.pids();
        drop(group);
        for pid in pids {
            assert!(!PathBuf::from(format!("/proc/{pid}")).exists());
        }
    }

    #[test]
    fn a_launcher_stands_before_the_command_of_each_replica() {
        let config = GroupConfig {
            program: "/bin/echo".into(),
            addresses: free_addresses(3).expect("ports"),
            serve_args: Vec::new(),
            sink: None,
        };
        let launcher = [
            "env",
            "NODE={node_id}",
            "sh",
            "-c",
            "echo $NODE $1; exec sleep 600",
            "-",
        ];
        let launcher = launcher.map(OsString::from).into();
        let mut group = Group::start_by(config, launcher).expect("start");
        let printed = |group: &mut Group| Some(group.tails()).filter(|tails| tails.len() == 3);
        let tails = group.wait_until("every script speaking", Duration::from_secs(10), printed);
        assert_eq!(tails.expect("output")[1], "2: 2 /bin/echo");
    }

    #[test]
    fn a_replica_is_another_program_from_its_next_start_on() {
        let mut group = group_of("one-program", "echo one; exec sleep 600");
        let other = script_of("other-program");
        trine_child::script(&other, "echo other; exec sleep 600");
        group.run_by(2, other);
        wait_until_all_speak(&mut group);
        assert_eq!(group.tails(), ["1: one", "2: one", "3: one"]);
        for node_id in [2, 3] {
            group.restart(node_id).expect("restart");
        }
        wait_until_all_speak(&mut group);
        assert_eq!(group.tails(), ["1: one", "2: other", "3: one"]);
    }

    #[test]
    fn a_replica_that_ends_by_itself_is_reported_with_its_last_words() {
        let mut group = group_of("exit", "echo 'port in use' >&2; exit 2");
        let error = group
            .wait_until("never", Duration::from_secs(10), |_| None::<()>)
            .expect_err("ended");
        let text = error.to_string();
        assert!(
            text.contains("ended by itself") && text.contains("port in use"),
            "{text}"
        );
    }

    /// Waits until each of the three scripts has said something.
    fn wait_until_all_speak(group: &mut Group) {
        let limit = Duration::from_secs(10);
        let spoke = |group: &mut Group| (group.tails().len() >= 3).then_some(());
        let what = "every script speaking";
        group.wait_until(what, limit, spoke).expect("output");
    }

    /// A start that ended early dropped the group, which killed the replicas. With `--fsync none` they had then lost
    /// everything that an earlier, orderly end had kept.
    #[test]
    fn replicas_with_files_end_in_order_also_when_the_group_is_dropped() {
        let name = "in-order";
        let ended = |node_id: usize| {
            let path = script_of(name).into_os_string();
            PathBuf::from(format!("{}-ended-{node_id}", path.to_string_lossy()))
        };
        // The third word is the node id.
        let script =
            "trap 'echo > \"$0-ended-$3\"; exit 0' TERM\necho ready\nwhile :; do sleep 0.01; done";
        let mut group = group_with(name, script, &["--data-dir", "replica-{node_id}"]);
        wait_until_all_speak(&mut group);
        let process = group.process(2).expect("it is up");
        process.pause().expect("it stands still");
        drop(group);
        for node_id in 1..=3 {
            let path = ended(node_id);
            assert!(path.exists(), "replica {node_id} was killed");
            std::fs::remove_file(path).expect("removed");
        }
    }

    /// `trine up` ended with 0 and without a word after it had killed a replica that still synced.
    #[test]
    fn a_replica_with_files_that_had_to_be_killed_is_a_failure() {
        let script = "trap '' TERM\necho ready\nwhile :; do sleep 0.01; done";
        let kept = ["--fsync", "none", "--data-dir=replica-{node_id}"];
        let mut group = group_with("stubborn", script, &kept);
        wait_until_all_speak(&mut group);
        group.stop_limit = Duration::from_millis(50);
        let error = group.stop().expect_err("they were killed");
        assert!(
            matches!(&error, LiveError::Killed { node_ids, unsynced: true, .. } if *node_ids == [1, 2, 3]),
            "{error:?}"
        );
        let text = error.to_string();
        let expected =
            "replicas 1, 2, 3 did not end within 50ms after the request, and were killed";
        assert_eq!(text, expected);
        // Nothing is lost in memory that an orderly end would have kept.
        let mut group = group_of("stubborn-in-memory", script);
        wait_until_all_speak(&mut group);
        group.stop_limit = Duration::from_millis(50);
        group.stop().expect("all the same");
    }
}
