//! A group that `trine up` runs.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use trine_base::ports::free_addresses;

use super::{LIMIT, command, signal, wait_for};

/// `trine up` on free ports, after its welcome.
pub struct Up {
    pub child: Child,
    pub peers: String,
    /// What it has printed until it was ready.
    pub welcome: String,
    lines: Receiver<String>,
}

impl Up {
    pub fn start() -> Self {
        let addresses = free_addresses(3).expect("free ports");
        Self::start_at(&addresses, &[])
    }

    pub fn start_at(addresses: &[SocketAddr], more: &[&str]) -> Self {
        Self::start_with(addresses, more, None)
    }

    /// The same, with another place for the user's state.
    pub fn start_with(addresses: &[SocketAddr], more: &[&str], state: Option<&Path>) -> Self {
        let mut command = command(&[], "");
        if let Some(state) = state {
            command.env("XDG_STATE_HOME", state);
        }
        Self::start_by(command, addresses, more)
    }

    /// The same, with a command that has no arguments yet.
    pub fn start_by(mut command: Command, addresses: &[SocketAddr], more: &[&str]) -> Self {
        let base = addresses[0].port().to_string();
        let mut child = command
            .args(["up", "--base-port", &base])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut lines = stdout.lines().map_while(Result::ok);
            lines.all(|line| sender.send(line).is_ok())
        });
        let peers: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let mut up = Self {
            child,
            peers: peers.join(","),
            welcome: String::new(),
            lines,
        };
        up.welcome = up.wait_for_line("Ctrl-C ends the group");
        up
    }

    /// Waits for a line with `part` in it; returns all until then.
    #[track_caller]
    pub fn wait_for_line(&self, part: &str) -> String {
        let mut all = String::new();
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => {
                    all.push_str(&line);
                    all.push('\n');
                    if line.contains(part) {
                        return all;
                    }
                }
                Err(error) => panic!("`trine up` did not say {part:?}: {error}"),
            }
        }
    }

    /// Ends it with Ctrl-C.
    pub fn stop(mut self) {
        signal(self.child.id(), "INT");
        let status = wait_for("the end", || self.child.try_wait().expect("wait"));
        assert!(status.success(), "{status}");
    }

    /// Ends it with SIGKILL; its replicas end with it.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // This happens after a failure. The replicas end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
