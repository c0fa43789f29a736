//! Ctrl-C and SIGTERM: one flag that every command can ask, and a hook for those that sleep.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXCPU, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::announce::{note, object, speaks_in_objects};
use crate::failure::Failure;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// A signal has reached the process, and its thread has not come to it yet. A pipe whose writer the same Ctrl-C has ended
/// is at its end before that.
static ARRIVED: AtomicBool = AtomicBool::new(false);
static TERMINATED: AtomicBool = AtomicBool::new(false);
/// The kernel has said that the process has used up its processor time.
static OUT_OF_TIME: AtomicBool = AtomicBool::new(false);
/// See [`taken`].
static TAKEN: AtomicU64 = AtomicU64::new(0);
static HANGUPS: AtomicU64 = AtomicU64::new(0);
static SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
static HOOK: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// What a SIGHUP that is caught means.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Hangup {
    /// The process is to end.
    Ends,
    /// It is counted, see [`hangups`].
    Counts,
}

/// A limit to the size of files (`ulimit -f`) is an error of the write that comes to it, as a full disk is. By default the
/// kernel ends the process, which says nothing.
///
/// # Errors
/// The system takes no handler.
pub fn survive_file_limits() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Watches for Ctrl-C and SIGTERM.
pub fn start() -> Result<(), Failure> {
    watch(&[SIGINT, SIGTERM], Hangup::Counts)
}

/// The same for a screen. A terminal that goes away ends it as SIGTERM does, so that it can undo what it did.
pub fn start_screen() -> Result<(), Failure> {
    watch(&[SIGINT, SIGTERM, SIGHUP], Hangup::Ends)
}

/// The same for a server. Neither a terminal that goes away nor a limit to the size of the file that it logs to ends it. A
/// limit of processor time does, with a word.
pub fn start_server() -> Result<(), Failure> {
    watch(&[SIGINT, SIGTERM, SIGHUP, SIGXFSZ, SIGXCPU], Hangup::Counts)
}

/// The same for a command that writes a file. A limit to the size of files is then an error like a full disk.
pub fn start_writer() -> Result<(), Failure> {
    watch(&[SIGINT, SIGTERM, SIGXFSZ], Hangup::Counts)
}

/// The signals that are caught already. The shell runs commands that watch for Ctrl-C themselves: a second catcher would take
/// one Ctrl-C for two.
static CAUGHT: Mutex<Vec<i32>> = Mutex::new(Vec::new());

fn watch(signals: &[i32], hangup: Hangup) -> Result<(), Failure> {
    let mut caught = CAUGHT.lock().unwrap_or_else(PoisonError::into_inner);
    let further: Vec<i32> = signals
        .iter()
        .copied()
        .filter(|signal| !caught.contains(signal))
        .collect();
    if further.is_empty() {
        return Ok(());
    }
    caught.extend(&further);
    catch(&further, hangup)
        .map_err(|error| Failure::usage(format!("cannot watch for Ctrl-C: {error}"), ""))
}

/// From now on the first Ctrl-C or SIGTERM sets the flag, and the second one ends the process at
/// once, whatever it is doing; its children end with it. Others that are caught do nothing.
fn catch(signals: &[i32], hangup: Hangup) -> io::Result<()> {
    let ends = |signal: i32| match signal {
        SIGHUP => hangup == Hangup::Ends,
        SIGXFSZ | SIGXCPU => false,
        _ => true,
    };
    // The mark is set before the thread can hear of the signal, which takes the mark away.
    for &signal in signals.iter().filter(|signal| ends(**signal)) {
        flag::register(signal, &ARRIVED)?;
    }
    let mut signals = Signals::new(signals)?;
    // One that came between the two has told the thread nothing.
    let has_arrived = ARRIVED.load(Ordering::SeqCst);
    let mut early: Vec<i32> = signals.pending().collect();
    if has_arrived && early.is_empty() {
        early.push(SIGINT);
    }
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut hung_up = false;
            for signal in early.into_iter().chain(signals.forever()) {
                match signal {
                    SIGHUP if hangup == Hangup::Ends => {
                        // A terminal that closes is told several times, and none of them is a second wish of the user.
                        hung_up |= !interrupt();
                    }
                    SIGHUP => {
                        HANGUPS.fetch_add(1, Ordering::SeqCst);
                        tracing::info!(
                            "SIGHUP: reloading files, and continuing even if the terminal was \
                             closed"
                        );
                    }
                    SIGXFSZ => {}
                    SIGXCPU => on_end_of_time(),
                    _ => on_wish_to_end(signal, std::mem::take(&mut hung_up)),
                }
            }
        })?;
    Ok(())
}

/// The soft limit of processor time is reached. The kernel says so again each second, and kills the process at the hard one:
/// what remains is for an orderly end.
fn on_end_of_time() {
    if !OUT_OF_TIME.swap(true, Ordering::SeqCst) {
        note(
            "WARNING: the processor time that this process may use (ulimit -t) is used up: it ends",
        );
        interrupt();
    }
}

/// `Err` if the process ends because it has used up its processor time.
///
/// # Errors
/// It has.
pub fn check_processor_time() -> Result<(), Failure> {
    match OUT_OF_TIME.load(Ordering::SeqCst) {
        false => Ok(()),
        true => Err(Failure::negative(
            "the processor time that this process may use (ulimit -t) is used up",
            "start it with `ulimit -t unlimited`",
        )),
    }
}

/// Ctrl-C or SIGTERM. `hung_up` says that only a terminal that went away has set the flag so far.
fn on_wish_to_end(signal: i32, hung_up: bool) {
    if signal == SIGTERM {
        TERMINATED.store(true, Ordering::SeqCst);
    }
    if interrupt() && !hung_up {
        say_that_it_ends();
        std::process::exit(i32::from(Failure::interrupted().exit_status()));
    }
}

/// Sets the flag, and wakes those that sleep. True if it was set before; then nobody is woken.
fn interrupt() -> bool {
    let before = INTERRUPTED.swap(true, Ordering::SeqCst);
    ARRIVED.store(false, Ordering::SeqCst);
    if before {
        return true;
    }
    drop(SLEEPERS.0.lock().unwrap_or_else(PoisonError::into_inner));
    SLEEPERS.1.notify_all();
    if let Some(hook) = HOOK.get() {
        hook();
    }
    false
}

/// Where a bar stood, so that what follows does not stand beside half of it.
fn say_that_it_ends() {
    let stderr = io::stderr();
    // Neither the lock nor room is waited for: what holds the one, or fills the other, may be why the user gave up.
    let mut room = [PollFd::new(&stderr, PollFlags::OUT)];
    if !matches!(poll(&mut room, Some(&Timespec::default())), Ok(1)) {
        return;
    }
    let clear = if stderr.is_terminal() {
        "\r\u{1b}[2K"
    } else {
        ""
    };
    let said = "trine: interrupted again, ended at once";
    let text = match speaks_in_objects() {
        true => object("INFO", said, ""),
        false => format!("{clear}{said}\n"),
    };
    // There is nobody left to tell that it failed.
    let _ = rustix::io::write(&stderr, text.as_bytes());
}

/// Calls `hook` at the first signal, from another thread: for a loop that sleeps in the kernel.
/// Only the first hook of a process counts.
pub fn on_interrupt(hook: impl Fn() + Send + Sync + 'static) {
    // A second hook would be a mistake in this crate; serving is the one thing that needs it.
    let fresh = HOOK.set(Box::new(hook)).is_ok();
    assert!(fresh, "one hook a process");
    if interrupted()
        && let Some(hook) = HOOK.get()
    {
        hook();
    }
}

/// Whether the user wants the process to end.
pub fn interrupted() -> bool {
    // In this order: the thread of the signals sets the one before it takes the other away.
    ARRIVED.load(Ordering::SeqCst) || INTERRUPTED.load(Ordering::SeqCst)
}

/// Whether there was a Ctrl-C since the last check; for a shell, where it ends a command and not the process.
pub fn take() -> bool {
    // Otherwise the thread of the signals would set the flag afterwards, and one Ctrl-C would count twice.
    while ARRIVED.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let interrupted = INTERRUPTED.swap(false, Ordering::SeqCst);
    TAKEN.fetch_add(interrupted.into(), Ordering::SeqCst);
    interrupted
}

/// Sets the flag again that [`take`] has taken: what had to be done after the Ctrl-C is done.
pub fn put_back() {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// How often [`take`] has found a Ctrl-C.
pub fn taken() -> u64 {
    TAKEN.load(Ordering::SeqCst)
}

/// SIGHUPs so far, of a server: each one asks it to read again what may change while it runs.
pub fn hangups() -> u64 {
    HANGUPS.load(Ordering::SeqCst)
}

/// Calls `read` at each SIGHUP from now on, in a thread of this name: a file may take its time.
///
/// # Errors
/// The system does not let this process watch for the signal.
pub fn at_hangups(name: &'static str, read: impl Fn() + Send + 'static) -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::usage(format!("cannot watch for SIGHUP: {error}"), "");
    let mut signals = Signals::new([SIGHUP]).map_err(cannot)?;
    std::thread::Builder::new()
        .name(name.into())
        .spawn(move || signals.forever().for_each(|_| read()))
        .map(drop)
        .map_err(cannot)
}

/// Whether there was a SIGTERM.
pub fn terminated() -> bool {
    TERMINATED.load(Ordering::SeqCst)
}

/// `Err` once the user wants the process to end.
pub fn check() -> Result<(), Failure> {
    if interrupted() {
        Err(Failure::interrupted())
    } else {
        Ok(())
    }
}

/// Sleeps for `pause`, or until the first signal.
pub fn pause(pause: Duration) {
    let until = Instant::now() + pause;
    let mut guard = SLEEPERS.0.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if interrupted() || left.is_zero() {
            return;
        }
        guard = SLEEPERS
            .1
            .wait_timeout(guard, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}
