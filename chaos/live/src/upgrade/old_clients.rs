//! Clients of the old program: processes of it that work as long as the run's own clients, on the same keys, and record what
//! they see.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use trine_base::failure::Failure;
use trine_chaos::history::{Action, History};
use trine_chaos::workload::{Mix, Request, Workload, WorkloadConfig};

use super::judge::Counting;
use super::shell::{End, Shell};
use crate::now;

/// How many there are.
const CLIENTS: u64 = 3;
/// Every so often a client counts.
const COUNT_EVERY: u64 = 4;
/// What every release can be asked for by its shell, and answers with a version.
const MIX: Mix = Mix {
    get: 45,
    put: 35,
    delete: 0,
    cas: 0,
    incr: 20,
    put_for: 0,
};
/// One that is started again more often does no work.
const STARTS_MAX: u64 = 1_000;

/// Shells at work, a thread each. Dropping this has them end after what they do.
pub(crate) struct OldClients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<ClientLog>>,
    counting: Vec<Counting>,
}

/// How the shells are started.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) program: PathBuf,
    pub(super) words: Vec<OsString>,
}

/// What one of them saw.
struct ClientLog {
    history: History,
    trouble: Option<String>,
}

/// What all of them saw.
#[derive(Default)]
pub(crate) struct OldSeen {
    pub(crate) history: History,
    /// What no release says, or why a shell could not be started.
    pub(super) troubles: Vec<String>,
    pub(super) counting: Vec<Counting>,
}

impl OldClients {
    /// Starts clients with numbers from `first` on, whose keys are those of `config`.
    pub(super) fn start(
        start: &Start,
        config: &WorkloadConfig,
        seed: u64,
        first: u64,
    ) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let config = WorkloadConfig {
            mix: MIX,
            ..config.clone()
        };
        let mut clients = Self {
            stop: Arc::clone(&stop),
            threads: Vec::new(),
            counting: Vec::new(),
        };
        for client in first..first + CLIENTS {
            let counting = Counting {
                client,
                key: format!("counted-by-{client}").into_bytes(),
            };
            let worker = Worker {
                start: start.clone(),
                workload: Workload::new(config.clone(), seed, client),
                counting: counting.clone(),
                history: History::new(),
                stop: Arc::clone(&stop),
            };
            let thread = std::thread::Builder::new()
                .name("old client".into())
                .spawn(move || worker.work())
                .map_err(|error| Failure::usage(format!("cannot start a thread: {error}"), ""))?;
            clients.threads.push(thread);
            clients.counting.push(counting);
        }
        Ok(clients)
    }

    /// Ends their work, and collects what they saw.
    pub(crate) fn finish(mut self) -> OldSeen {
        self.stop.store(true, Ordering::SeqCst);
        let mut seen = OldSeen {
            counting: std::mem::take(&mut self.counting),
            ..OldSeen::default()
        };
        let mut histories = Vec::new();
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(log) => {
                    histories.push(log.history);
                    seen.troubles.extend(log.trouble);
                }
                Err(_) => seen.troubles.push("its thread panicked".to_owned()),
            }
        }
        seen.history = History::merge(histories);
        seen
    }
}

impl OldSeen {
    /// The keys that they alone have written.
    pub(crate) fn counters(&self) -> Vec<Vec<u8>> {
        let counters = self.counting.iter();
        counters.map(|counting| counting.key.clone()).collect()
    }
}

impl Drop for OldClients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

struct Worker {
    start: Start,
    workload: Workload,
    counting: Counting,
    history: History,
    stop: Arc<AtomicBool>,
}

impl Worker {
    fn work(mut self) -> ClientLog {
        let trouble = self.work_until_stopped().err();
        ClientLog {
            history: self.history,
            trouble,
        }
    }

    /// Executes one request after the other. A shell ends with a request that has no answer, as every script does, and
    /// another one goes on.
    fn work_until_stopped(&mut self) -> Result<(), String> {
        for _ in 0..STARTS_MAX {
            let Start { program, words } = &self.start;
            let mut shell = Shell::start(program, words)
                .map_err(|error| format!("its shell cannot be started: {error}"))?;
            let mut goes_on = true;
            while goes_on {
                if self.stop.load(Ordering::SeqCst) {
                    return Ok(());
                }
                goes_on = self.execute_next(&mut shell)?;
            }
        }
        Err(format!("its shell ended {STARTS_MAX} times"))
    }

    /// Whether the shell takes another request.
    fn execute_next(&mut self, shell: &mut Shell) -> Result<bool, String> {
        let request = self.next_request();
        let Request { key, action } = &request;
        let called = now().as_nanos();
        let index = self
            .history
            .call(self.counting.client, called, key, action.clone());
        let end = shell.execute(&request);
        let ended = now().as_nanos();
        match end {
            End::Answered(answer, position) => {
                self.history.complete(index, ended, answer, position);
                Ok(true)
            }
            End::Failed => {
                self.history.fail(index, ended);
                Ok(false)
            }
            End::Unknown => Ok(false),
            End::Foreign(what) => Err(what),
        }
    }

    fn next_request(&mut self) -> Request {
        let asked = self.history.len() as u64;
        if asked.is_multiple_of(COUNT_EVERY) {
            return Request {
                key: self.counting.key.clone(),
                action: Action::Incr { by: 1 },
            };
        }
        self.workload.next_request()
    }
}
