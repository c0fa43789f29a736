//! One child process: start it tied to its parent, stop it gently or not, know how it ended.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::lifeline::PARENT_VARIABLE;
use crate::output::{ChildOutput, LineSink, Stream};

/// The prefix of all variables that set something for `trine`.
const SETTINGS_PREFIX: &[u8] = b"TRINE_";
/// How often an awaited end is checked.
const POLL: Duration = Duration::from_millis(2);

/// A command that runs `program`, as yet without arguments. Its process has a group of its own, so that a Ctrl-C at the terminal
/// reaches only the parent. Settings of the parent are not the child's: its arguments say everything.
#[must_use]
pub fn own_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(SETTINGS_PREFIX) {
            command.env_remove(name);
        }
    }
    command.process_group(0);
    command
}

/// A running (or just ended) child. Dropping it kills the process and reaps it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: ChildOutput,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `program` with `args`. The child is in a process group of its own, so that a Ctrl-C at the terminal
    /// reaches only the parent, who decides what happens to the child.
    pub fn start(
        program: &Path,
        args: &[OsString],
        node_id: usize,
        sink: Option<LineSink>,
    ) -> io::Result<Self> {
        let mut child = own_command(program)
            .args(args)
            .env(PARENT_VARIABLE, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut output = ChildOutput::default();
        if let Some(stdout) = child.stdout.take() {
            output.collect(node_id, Stream::Out, stdout, sink.clone());
        }
        if let Some(stderr) = child.stderr.take() {
            output.collect(node_id, Stream::Err, stderr, sink);
        }
        Ok(Self {
            child,
            output,
            ended: None,
        })
    }

    /// The operating system's id of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn poll_exit(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Kills it immediately (SIGKILL) and reaps it: on return nothing of it runs any more.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.poll_exit()? {
            return Ok(status);
        }
        self.child.kill()?;
        let status = self.child.wait()?;
        self.ended = Some(status);
        self.output.finish();
        Ok(status)
    }

    /// Asks it to end (SIGTERM), without waiting.
    pub fn ask_to_stop(&mut self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Stops it from running without ending it (SIGSTOP), as a long pause would.
    pub fn pause(&mut self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on after [`pause`](Self::pause).
    pub fn resume(&mut self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits at most `limit` for its end.
    pub fn wait_at_most(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.poll_exit()? {
                self.output.finish();
                return Ok(Some(status));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(POLL);
        }
    }

    /// The last lines that it printed, on both streams.
    #[must_use]
    pub fn tail(&self) -> Vec<String> {
        self.output.tail()
    }

    /// Sends `signal` unless the process was reaped: its id may belong to another one by then.
    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.poll_exit()?.is_some() {
            return Ok(());
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        match pid {
            Some(pid) => Ok(kill_process(pid, signal)?),
            None => Err(io::Error::other("the child's process id is out of range")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error here has no better handling; the child's own lifeline is the second net.
        let _ = self.kill();
        self.output.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let args = [OsString::from("-c"), OsString::from(script)];
        Process::start(Path::new("/bin/sh"), &args, 1, None).expect("a shell")
    }

    #[test]
    fn output_and_status_of_an_ended_child_are_kept() {
        let mut process = shell("echo out; echo err >&2; exit 3");
        let status = process.wait_at_most(Duration::from_secs(10)).expect("wait");
        assert_eq!(status.and_then(|status| status.code()), Some(3));
        let mut tail = process.tail();
        tail.sort();
        assert_eq!(tail, ["err", "out"]);
    }

    #[test]
    fn dropping_a_process_ends_it() {
        let process = shell("exec sleep 600");
        let directory = format!("/proc/{}", process.pid());
        assert!(Path::new(&directory).exists());
        drop(process);
        assert!(!Path::new(&directory).exists());
    }

    #[test]
    fn a_child_that_ignores_the_kind_way_can_still_be_killed() {
        let mut process = shell("trap '' TERM; echo ready; while :; do :; done");
        let until = Instant::now() + Duration::from_secs(10);
        while process.tail().is_empty() && Instant::now() < until {
            std::thread::sleep(POLL);
        }
        process.ask_to_stop().expect("signal");
        assert_eq!(
            process
                .wait_at_most(Duration::from_millis(50))
                .expect("wait"),
            None
        );
        let status = process.kill().expect("kill");
        assert!(!status.success());
    }
}
