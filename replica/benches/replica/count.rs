//! Instructions instead of time: repeatable on a shared machine. Counted by callgrind inside one function and what it
//! calls.

use std::process::Command;

/// The argument in front of a job's name.
pub(crate) const JOB: &str = "--job";

/// User-space instructions that this program executes for `job` inside the function whose name contains `function`.
///
/// # Errors
/// Why they cannot be counted here.
pub(crate) fn in_function(job: &str, function: &str) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect=*{function}*"))
        .arg(program)
        .args([JOB, job])
        .output()
        .map_err(|error| format!("valgrind is needed (Debian's package `valgrind`): {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the job failed under valgrind:\n{text}"
    );
    let counted = text
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let number = counted.and_then(|(_, number)| number.trim().parse().ok());
    number
        .filter(|&count| count > 0)
        .ok_or_else(|| format!("nothing was counted in {function}:\n{text}"))
}
