//! Tells a child that its parent is gone, however the parent ended.
//!
//! The child asks the kernel (Linux: `PR_SET_PDEATHSIG`) for SIGKILL at its parent's death. Then it
//! checks that the parent it expects is still there, which closes the window between the two. The
//! kernel's "parent" is the thread that spawned the child: start a [`Group`](super::Group) on a
//! thread that lives as long as the group shall.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// The environment variable through which a parent names itself to its child.
pub(super) const PARENT_VARIABLE: &str = "TRINE_DIE_WITH_PARENT";

/// The parent was gone before the child could tie itself to it, or the kernel refused.
#[derive(Debug, thiserror::Error)]
pub enum LifelineError {
    /// The process that started this one has ended already.
    #[error("the process that started this one (pid {expected}) has ended")]
    ParentGone {
        /// The parent's process id that the child was given.
        expected: i32,
    },
    /// The variable does not hold a process id.
    #[error("{PARENT_VARIABLE}={0} is not a process id")]
    BadPid(String),
    /// The kernel refused the request.
    #[error("cannot tie this process to its parent: {0}")]
    Refused(#[from] rustix::io::Errno),
}

/// Ties this process to the one that started it, if that one asked for it through the environment;
/// does nothing otherwise. Call it before anything else in `main`.
pub fn die_with_parent() -> Result<(), LifelineError> {
    let Some(text) = std::env::var_os(PARENT_VARIABLE) else {
        return Ok(());
    };
    let text = text.to_string_lossy();
    let expected: i32 = text
        .parse()
        .map_err(|_| LifelineError::BadPid(text.to_string()))?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(Pid::as_raw_pid) != Some(expected) {
        return Err(LifelineError::ParentGone { expected });
    }
    Ok(())
}
