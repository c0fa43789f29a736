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
    /// Held during each action, so that none of them undoes half of another. True once the screen has ended.
    is_over: Mutex<bool>,
}

/// What an action gets once the screen has ended.
const OVER: &str = "the screen has ended";

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
            is_over: Mutex::default(),
        }
    }

    /// Executes a confirmed action, after those that have begun before; returns its result as text.
    pub(super) fn act(&self, action: Action) -> String {
        let is_over = self.take_turn();
        if *is_over {
            return OVER.to_owned();
        }
        let done = match action {
            Action::Stop(node_id) => self.stop(node_id),
            Action::Block(from, to) => self.block(from, to),
            Action::Heal => self.heal(),
            Action::None | Action::Quit | Action::Transfer(_) => {
                unreachable!("{action:?} is not a fault to inject")
            }
        };
        done.unwrap_or_else(|why| why)
    }

    /// Ends the screen's faults: no action begins any more, and those that have begun are waited for. `None` if there is
    /// nothing to remove, else the result of the removal.
    pub(super) fn end(&self) -> Option<Result<String, String>> {
        let mut is_over = self.take_turn();
        *is_over = true;
        self.has_done_anything().then(|| self.heal())
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
        self.pause(node_id, pid, state.address)
    }

    fn pause(&self, node_id: u32, pid: Pid, address: SocketAddr) -> Result<String, String> {
        // It is remembered first: whatever ends this process in between, the screen knows of the pause.
        self.lock().stopped.push((node_id, pid, address));
        if let Err(error) = kill_process(pid, Signal::STOP) {
            self.lock().stopped.retain(|(of, ..)| *of != node_id);
            return Err(format!("cannot stop {pid:?}: {error}"));
        }
        Ok(format!("replica {node_id} is paused; c resumes it"))
    }

    fn block(&self, from: u32, to: u32) -> Result<String, String> {
        let state = self.find(from)?;
        let command = FaultCommand::Set {
            link: Some(to.to_string()),
            way: Way::Both,
            faults: Faults::CUT.to_string(),
        };
        self.lock().blocked.push((from, to));
        if let Err(error) = ask(state.address, &command) {
            // One that took the request and did not answer may have done it.
            if !matches!(error, AskError::NoAnswer(..)) {
                self.lock().blocked.pop();
            }
            return Err(error.to_string());
        }
        Ok(format!(
            "{from} and {to} do not hear each other; c heals that"
        ))
    }

    /// Resumes all replicas and removes all network faults, including those of other programs.
    fn heal(&self) -> Result<String, String> {
        let stopped = std::mem::take(&mut self.lock().stopped);
        for (_, pid, _) in stopped {
            // A replica that has ended meanwhile needs no signal.
            let _ = kill_process(pid, Signal::CONT);
        }
        let mut failed = None;
        for &address in &self.addresses {
            match ask(address, &FaultCommand::Clear { link: None }) {
                Ok(_) | Err(AskError::Nobody(_)) => {}
                Err(error) => {
                    failed.get_or_insert(error.to_string());
                }
            }
        }
        if let Some(why) = failed {
            // What is left is tried again at the next occasion.
            return Err(why);
        }
        self.lock().blocked.clear();
        Ok("all replicas run, and no link has faults".to_owned())
    }

    /// Whether there are faults to remove.
    fn has_done_anything(&self) -> bool {
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

    /// Waits until no action is under way, and keeps others away.
    fn take_turn(&self) -> MutexGuard<'_, bool> {
        self.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// A process that stands for a replica; it ends with the test.
    struct Sleeping(Child);

    impl Sleeping {
        fn start() -> Self {
            let child = Command::new("sleep").arg("600").spawn();
            Self(child.expect("it starts"))
        }

        fn pid(&self) -> Pid {
            Pid::from_child(&self.0)
        }

        fn is_paused(&self) -> bool {
            let path = format!("/proc/{}/stat", self.0.id());
            let stat = std::fs::read_to_string(path).expect("it lives");
            let after_name = stat.rsplit(") ").next();
            after_name.is_some_and(|rest| rest.starts_with('T'))
        }
    }

    impl Drop for Sleeping {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// `y` and then `q`: the screen had healed, and then the thread of the pause sent its signal. Nobody undid that.
    #[test]
    fn what_has_begun_is_waited_for_and_healed_and_nothing_begins_afterwards() {
        let hands = Arc::new(Hands::new(Vec::new()));
        let replica = Sleeping::start();
        let address = SocketAddr::from(([127, 0, 0, 1], 7471));
        let under_way = hands.take_turn();
        let ending = {
            let hands = Arc::clone(&hands);
            thread::spawn(move || hands.end())
        };
        hands.pause(1, replica.pid(), address).expect("paused");
        let until = Instant::now() + Duration::from_secs(60);
        while !replica.is_paused() {
            assert!(Instant::now() < until, "it was not paused");
            thread::yield_now();
        }
        drop(under_way);
        let healed = ending.join().expect("the thread ends");
        assert!(healed.is_some_and(|healed| healed.is_ok()));
        assert!(!replica.is_paused());
        assert_eq!(hands.act(Action::Stop(1)), OVER);
        assert_eq!(hands.end(), None);
    }

    #[test]
    fn a_pause_that_did_not_come_about_is_not_remembered() {
        let hands = Hands::new(Vec::new());
        let mut gone = Sleeping::start();
        let pid = gone.pid();
        gone.0.kill().expect("killed");
        gone.0.wait().expect("ended");
        let address = SocketAddr::from(([127, 0, 0, 1], 7471));
        let failed = hands.pause(1, pid, address).expect_err("nobody is there");
        assert!(failed.contains("cannot stop"), "{failed}");
        assert_eq!(hands.faults(), "");
        assert_eq!(hands.end(), None);
    }
}
