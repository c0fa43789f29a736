//! The system's tools, which make and change what a run has of its own.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};

use trine_base::failure::Failure;

/// A directory that the run hides behind one of its own.
pub(super) const PRIVATE: &str = "/run";

/// Whether the system has a program.
pub(super) fn is_installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(tool).is_file())
}

/// Runs a program to its end.
pub(super) fn run(
    program: &str,
    words: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<(), Failure> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    finish(program, command.output())
}

/// Runs a program with a script on its standard input.
pub(super) fn feed(program: &str, words: &[&str], script: &str) -> Result<(), Failure> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let fed = command.spawn().and_then(|mut child| {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(script.as_bytes())?;
        }
        child.wait_with_output()
    });
    finish(program, fed)
}

fn finish(program: &str, output: std::io::Result<std::process::Output>) -> Result<(), Failure> {
    let why = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Failure::usage(
        format!("`{program}` failed in the run's namespaces: {why}"),
        "",
    ))
}
