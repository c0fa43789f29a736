//! Finds the keys that begin with what was typed, when the user presses Tab.
//!
//! A thread with a client of its own asks, so that nothing holds the line editor up for longer than
//! [`COMPLETION_WAIT_MAX`]. A group that does not answer, or an error, is no key: the editor has no place to say more.

use std::cell::{Cell, RefCell};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

use trine_base::arguments::ClientArguments;
use trine_base::capture::CaptureArguments;
use trine_base::client::{self, CommandClient};
use trine_base::network::Network;
use trine_client::Mode;
use trine_kvstore::{
    Command, Cursor, Found, KeyRange, Prefix, Response, ScanOptions, StoreError, WalkContent,
};

use crate::config::{COMPLETION_KEYS_MAX, COMPLETION_WAIT_MAX};

/// Finds keys by what they begin with.
pub(super) struct Finder<N: Network> {
    network: N,
    arguments: ClientArguments,
    thread: RefCell<Option<Thread>>,
    /// Questions without an answer.
    open: Cell<u32>,
}

struct Thread {
    questions: Sender<(Vec<u8>, Instant)>,
    answers: Receiver<Vec<Vec<u8>>>,
}

impl<N: Network> Finder<N> {
    pub(super) fn new(network: &N, arguments: &ClientArguments) -> Self {
        let arguments = ClientArguments {
            // The file is that of the shell's own client.
            capture: CaptureArguments::default(),
            ..arguments.clone()
        };
        Self {
            network: network.clone(),
            arguments,
            thread: RefCell::new(None),
            open: Cell::new(0),
        }
    }

    /// Some of the keys that begin so, in no order; none if the group does not say so soon.
    pub(super) fn keys(&self, prefix: &[u8]) -> Vec<Vec<u8>> {
        self.ask(prefix).unwrap_or_default()
    }

    fn ask(&self, prefix: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut held = self.thread.borrow_mut();
        let thread = match held.take() {
            Some(thread) => thread,
            None => {
                self.open.set(0);
                start(self.network.clone(), self.arguments.clone())?
            }
        };
        // Answers that came too late belong to another line.
        while thread.answers.try_recv().is_ok() {
            self.open.set(self.open.get().saturating_sub(1));
        }
        if self.open.get() > 0 {
            // It waits for the group. One question is enough for that.
            *held = Some(thread);
            return None;
        }
        let until = Instant::now() + COMPLETION_WAIT_MAX;
        thread.questions.send((prefix.to_vec(), until)).ok()?;
        match thread.answers.recv_timeout(COMPLETION_WAIT_MAX) {
            Ok(keys) => {
                *held = Some(thread);
                Some(keys)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.open.set(1);
                *held = Some(thread);
                None
            }
            // It has ended, and the next question begins another one.
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

/// The thread ends when questions no longer come, or when no client can be opened.
fn start<N: Network>(network: N, arguments: ClientArguments) -> Option<Thread> {
    let (questions, asked) = channel::<(Vec<u8>, Instant)>();
    let (answered, answers) = channel();
    let work = move || {
        let patience = |config: &mut trine_client::ClientConfig| {
            config.operation_timeout = COMPLETION_WAIT_MAX.into();
        };
        let Ok(mut session) = client::open(&network, &arguments, patience) else {
            return;
        };
        for (prefix, until) in asked {
            let keys = find(&mut session, &prefix, until).unwrap_or_default();
            if answered.send(keys).is_err() {
                return;
            }
        }
    };
    let builder = std::thread::Builder::new().name("completion".into());
    builder.spawn(work).ok()?;
    Some(Thread { questions, answers })
}

/// In the ordered index if there is one. Without it pages of all keys are looked through, as long as there is time.
fn find(session: &mut CommandClient, prefix: &[u8], until: Instant) -> Option<Vec<Vec<u8>>> {
    let scan = Command::Scan {
        range: KeyRange::Prefix(prefix),
        options: ScanOptions {
            limit: COMPLETION_KEYS_MAX as u32,
            keys_only: true,
            ..ScanOptions::default()
        },
    };
    let answer = session.execute(Mode::Read, &scan).ok()?;
    match answer.response().ok()? {
        Response::Items { items, .. } => Some(items.iter().map(|item| item.key.to_vec()).collect()),
        Response::Error(
            StoreError::NotOrdered { .. }
            | StoreError::VersionNotActive { .. }
            | StoreError::SwitchWaits { .. },
        ) => walk(session, prefix, until),
        _ => None,
    }
}

fn walk(session: &mut CommandClient, prefix: &[u8], until: Instant) -> Option<Vec<Vec<u8>>> {
    let (mut keys, mut from) = (Vec::new(), Cursor::START);
    loop {
        let page = Command::Walk {
            from,
            count: 0,
            content: WalkContent::Keys,
            prefix: Prefix(prefix),
        };
        let answer = session.execute(Mode::Read, &page).ok()?;
        let Response::Page(page) = answer.response().ok()? else {
            return None;
        };
        if let Found::Keys(found) = &page.found {
            keys.extend(found.iter().map(<[u8]>::to_vec));
        }
        keys.truncate(COMPLETION_KEYS_MAX);
        from = page.next;
        let is_enough = keys.len() == COMPLETION_KEYS_MAX;
        if from == Cursor::START || is_enough || Instant::now() >= until {
            return Some(keys);
        }
    }
}
