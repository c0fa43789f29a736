//! A pseudo-terminal for programs that behave differently at one.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

/// How long a program may take to print what a test waits for.
const LIMIT: Duration = Duration::from_secs(60);

/// The two ends of a new terminal: the user's, and the program's.
pub fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let user = openpt(flags).expect("a terminal");
    grantpt(&user).expect("ours");
    unlockpt(&user).expect("ours");
    let program = ioctl_tiocgptpeer(&user, flags).expect("its other end");
    (user, program)
}

/// An interactive shell, whose terminal becomes that of its jobs. Groups that it starts have the state of these tests.
pub fn shell() -> Command {
    let mut command = Command::new("setsid");
    command
        .args([
            "--ctty",
            "bash",
            "--noprofile",
            "--norc",
            "--noediting",
            "-i",
        ])
        .env("XDG_STATE_HOME", super::state());
    command
}

/// A program that runs at a terminal of its own.
pub struct AtTerminal {
    child: Child,
    keys: File,
    printed: Receiver<Vec<u8>>,
    text: String,
}

impl AtTerminal {
    /// Starts the program.
    pub fn start(mut command: Command) -> Self {
        let (user, program) = terminal();
        let copy = || Stdio::from(program.try_clone().expect("copied"));
        command.env("TERM", "xterm");
        command.stdin(copy()).stdout(copy()).stderr(copy());
        let child = command.spawn().expect("the program starts");
        let keys = File::from(user.try_clone().expect("copied"));
        let mut screen = File::from(user);
        let (told, printed) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The read fails when no program holds the other end any longer.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if told.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            keys,
            printed,
            text: String::new(),
        }
    }

    /// The program's process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends keys, all in one write.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("written");
    }

    /// Waits until the program has printed `text`, and forgets everything up to there.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        self.until(text);
    }

    /// The same; returns what it printed before.
    #[track_caller]
    pub fn until(&mut self, text: &str) -> String {
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(at) = self.text.find(text) {
                let before = self.text[..at].to_owned();
                self.text.drain(..at + text.len());
                return before;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.printed.recv_timeout(left) {
                Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("{text:?} was not printed ({error}), but {:?}", self.text),
            }
        }
    }

    /// The same, where nothing else may be printed before `text`.
    #[track_caller]
    pub fn expect_next(&mut self, text: &str) {
        let until = Instant::now() + LIMIT;
        while self.text.len() < text.len() {
            let left = until.saturating_duration_since(Instant::now());
            match self.printed.recv_timeout(left) {
                Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("{text:?} was not printed ({error}), but {:?}", self.text),
            }
        }
        assert!(
            self.text.starts_with(text),
            "{text:?} is not what follows, but {:?}",
            self.text
        );
        self.text.drain(..text.len());
    }
}

impl Drop for AtTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
