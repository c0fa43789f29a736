//! The faults of `trine top --fault-injection`: it pauses replicas and blocks their links, and removes both again.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use trine_transport::backend::Faults;

use super::model::Action;
use trine_local::faults::{AskError, FaultCommand, State, Way, ask};

/// Injects the faults, and remembers them for removal.
pub(super) struct Hands {
    addresses: Vec<SocketAddr>,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    /// Paused replicas.
    stopped: Vec<(u32, Pid, SocketAddr)>,
    blocked: Vec<(u32, u32)>,
}

impl Hands {
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            addresses,
            done: Mutex::default(),
        }
    }

    /// Executes a confirmed action; returns its result as text.
    pub(super) fn act(&self, action: Action) -> String {
        let done = match action {
            Action::Stop(node_id) => self.stop(node_id),
            Action::Block(from, to) => self.block(from, to),
            Action::Heal => self.heal(),
            Action::None | Action::Quit | Action::Transfer(_) => {
                unreachable!("{action:?} is no fault to inject")
            }
        };
        done.unwrap_or_else(|why| why)
    }

    /// The faults that are to be removed, in a few words.
    pub(super) fn faults(&self) -> String {
        let done = self.lock();
        let stopped = done
            .stopped
            .iter()
            .map(|(node_id, ..)| format!("{node_id} is paused"));
        let blocked = done
            .blocked
            .iter()
            .map(|(from, to)| format!("{from}-{to} blocked"));
        stopped.chain(blocked).collect::<Vec<_>>().join(", ")
    }

    fn stop(&self, node_id: u32) -> Result<String, String> {
        let state = self.find(node_id)?;
        let pid = i32::try_from(state.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or("the replica told no process id")?;
        kill_process(pid, Signal::STOP).map_err(|error| format!("cannot stop {pid:?}: {error}"))?;
        self.lock().stopped.push((node_id, pid, state.address));
        Ok(format!("replica {node_id} is paused; c resumes it"))
    }

    fn block(&self, from: u32, to: u32) -> Result<String, String> {
        let state = self.find(from)?;
        let command = FaultCommand::Set {
            link: Some(to.to_string()),
            way: Way::Both,
            faults: Faults::CUT.to_string(),
        };
        ask(state.address, &command).map_err(|error| error.to_string())?;
        self.lock().blocked.push((from, to));
        Ok(format!(
            "{from} and {to} do not hear each other; c heals that"
        ))
    }

    /// Resumes all replicas and removes all network faults, including those of other programs.
    pub(super) fn heal(&self) -> Result<String, String> {
        let done = std::mem::take(&mut *self.lock());
        for (_, pid, _) in done.stopped {
            // A replica that has ended meanwhile needs no signal.
            let _ = kill_process(pid, Signal::CONT);
        }
        for &address in &self.addresses {
            match ask(address, &FaultCommand::Clear { link: None }) {
                Ok(_) | Err(AskError::Nobody(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok("everybody goes on, and no link has faults".to_owned())
    }

    /// Whether there are faults to remove.
    pub(super) fn has_done_anything(&self) -> bool {
        let done = self.lock();
        !done.stopped.is_empty() || !done.blocked.is_empty()
    }

    fn find(&self, node_id: u32) -> Result<State, String> {
        let still: Vec<(u32, SocketAddr)> = {
            let done = self.lock();
            let stopped = done.stopped.iter();
            stopped.map(|(node_id, _, at)| (*node_id, *at)).collect()
        };
        if still.iter().any(|(of, _)| *of == node_id) {
            return Err(format!("replica {node_id} is paused; c resumes it"));
        }
        // A paused replica would not answer.
        let answers = |at: &&SocketAddr| still.iter().all(|(_, stopped)| stopped != *at);
        let asked = self.addresses.iter().filter(answers);
        let asked = asked.filter_map(|&at| ask(at, &FaultCommand::Show).ok());
        let mut found = asked.filter(|state| state.node_id == node_id);
        found.next().ok_or_else(|| {
            format!("replica {node_id} does not accept fault injection: it was not started with --fault-injection")
        })
    }

    fn lock(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
