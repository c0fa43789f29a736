//! A process of the benchmark: started with a role, told to go on, and ended whatever happens.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A started process; killed when dropped.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts this program again.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let program = std::env::current_exe().expect("the own program");
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            input: child.stdin.take(),
            child,
            output,
        }
    }

    /// Waits for a line that starts with `word`, and returns it.
    pub(crate) fn expect(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).expect("readable output");
            assert!(count > 0, "a process ended before it said `{word}`");
            if line.starts_with(word) {
                return line.trim().to_owned();
            }
        }
    }

    /// Ends the process's [`wait_for_sign`].
    pub(crate) fn sign(&mut self) {
        let input = self.input.as_mut().expect("not ended yet");
        input.write_all(b"\n").expect("a process that listens");
    }

    /// Ends the process's [`wait_for_end`], and waits for its own.
    pub(crate) fn end(mut self) {
        drop(self.input.take());
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Ended already, or a panic: either way it must not outlive the benchmark.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Blocks until the director calls [`Process::sign`].
pub(crate) fn wait_for_sign() {
    let count = std::io::stdin().read(&mut [0]).expect("a pipe");
    assert_eq!(count, 1, "the director died");
}

/// Blocks until the director calls [`Process::end`].
pub(crate) fn wait_for_end() {
    let count = std::io::stdin().read(&mut [0]).expect("a pipe");
    assert_eq!(count, 0, "the director says nothing, it hangs up");
}
