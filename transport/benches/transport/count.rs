//! Instructions instead of time: repeatable on a shared machine. Counted by callgrind.

use std::process::Command;

/// The argument in front of a job's name.
pub(crate) const JOB: &str = "--job";

/// User-space instructions that this program executes for `job`; `None` without valgrind.
pub(crate) fn instructions(job: &str) -> Option<u64> {
    let program = std::env::current_exe().expect("the running program has a path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([JOB, job])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the job failed under valgrind:\n{text}"
    );
    let counted = text
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let (_, number) = counted.expect("callgrind prints what it collected");
    Some(number.trim().parse().expect("callgrind prints a number"))
}
