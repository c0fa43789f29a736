//! A server of one of the applications, such as `trine cache serve`.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use trine_base::ports::free_addresses;

use super::{Ran, command, finish, signal};

/// A running server; it is killed if a test fails before its end.
pub struct Serving {
    pub child: Option<Child>,
    /// Where its first thread listens.
    pub address: SocketAddr,
}

impl Serving {
    /// Starts the server of an application with these options and waits until it prints that it listens.
    pub fn start(application: &str, threads: usize, options: &[&str]) -> Self {
        let address = free_addresses(threads).expect("free ports")[0];
        let threads = threads.to_string();
        let options = [&["--threads", &threads], options].concat();
        Self::start_by(command(&[], ""), application, address, &options)
    }

    /// Starts it at `address` by a command that has no arguments yet, or those of a program that starts it elsewhere.
    pub fn start_by(
        mut command: Command,
        application: &str,
        address: SocketAddr,
        options: &[&str],
    ) -> Self {
        let mut child = command
            .args([application, "serve", "--listen", &address.to_string()])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut said = BufReader::new(child.stdout.as_mut().expect("piped"));
        let mut line = String::new();
        while !line.contains("Ctrl-C stops it") {
            line.clear();
            let read = said.read_line(&mut line).expect("output");
            assert!(read > 0, "the server ended: {:?}", finish(child));
        }
        Self {
            child: Some(child),
            address,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("running").id()
    }

    /// Ends it by a signal.
    pub fn end(&mut self, name: &str) -> Ran {
        let child = self.child.take().expect("running");
        signal(child.id(), name);
        finish(child)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
