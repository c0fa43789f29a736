//! DPDK's environment abstraction layer: started once in a process, stopped when nothing uses it any more.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trine_dpdk_sys as sys;

use super::error::DpdkError;

/// Bytes of log text kept when something goes wrong.
const LOG_BYTES: usize = 8 * 1024;

/// EAL starts once, and cannot start again after its clean-up.
static STARTED: AtomicBool = AtomicBool::new(false);

/// The running EAL. Ports keep it alive; the last to go stops it.
#[derive(Debug)]
pub struct Eal {
    /// EAL's log of its start: it goes on when a device does not come up, and says so only here.
    log: String,
    arguments: Vec<String>,
}

impl Eal {
    /// Starts EAL with `arguments` (no program name), completed as [`super::arguments::complete`] says.
    ///
    /// EAL binds the calling thread to the cores that the arguments name.
    ///
    /// # Errors
    ///
    /// [`DpdkError`] with cause and hint.
    pub fn start(arguments: &[String]) -> Result<Arc<Self>, DpdkError> {
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(DpdkError::AlreadyStarted);
        }
        let complete = super::arguments::complete(arguments, &super::arguments::own_cpus()?);
        let argv = std::iter::once("trine".to_owned()).chain(complete);
        // EAL keeps pointers into its arguments and permutes them: they live, and stay writable, for ever.
        let mut argv: Vec<*mut c_char> = argv
            .map(|argument| CString::new(argument).map(CString::into_raw))
            .collect::<Result<_, _>>()
            .map_err(|_| DpdkError::Eal {
                os_error: libc::EINVAL,
                log: "an argument contains a zero byte".to_owned(),
            })?;
        let count = i32::try_from(argv.len()).expect("a command line's worth of arguments");
        argv.push(std::ptr::null_mut());
        let argv = Vec::leak(argv).as_mut_ptr();
        let (result, log) = logged(|| {
            // SAFETY: `argv` holds `count` strings and a null pointer, all leaked above; this is the only call in the
            // process, as `STARTED` proves.
            unsafe { sys::trine_eal_init(count, argv) }
        });
        if result < 0 {
            // SAFETY: reads a thread-local variable.
            let os_error = unsafe { sys::trine_errno() };
            return Err(DpdkError::from_eal(os_error, log));
        }
        // SAFETY: sets a number.
        unsafe { sys::rte_log_set_global_level(sys::RTE_LOG_WARNING) };
        Ok(Arc::new(Self {
            log,
            arguments: arguments.to_vec(),
        }))
    }

    /// The user's arguments.
    #[must_use]
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// EAL's log of its start.
    #[must_use]
    pub fn log(&self) -> &str {
        &self.log
    }
}

impl Drop for Eal {
    fn drop(&mut self) {
        // SAFETY: EAL was started when this value was made. Ports and packet buffers hold an `Arc` of it, so none is
        // left.
        unsafe { sys::rte_eal_cleanup() };
    }
}

/// Runs `work` and returns what DPDK logged meanwhile. Calls must not overlap: EAL's start precedes every port, and
/// ports are opened under a lock.
pub(super) fn logged<T>(work: impl FnOnce() -> T) -> (T, String) {
    let mut text = vec![0_u8; LOG_BYTES];
    // SAFETY: no capture is active, as the contract above says.
    let begun = unsafe { sys::trine_log_capture_begin() };
    let result = work();
    if begun == 0 {
        // SAFETY: `text` is that long, and the capture was begun.
        unsafe { sys::trine_log_capture_end(text.as_mut_ptr().cast(), text.len()) };
    }
    let length = text
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(text.len());
    text.truncate(length);
    (result, String::from_utf8_lossy(&text).into_owned())
}
