//! `trine top` shows the present state of the group on one screen.

mod args;
mod columns;
mod hands;
mod model;
mod view;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

pub(crate) use self::args::TopArguments;
use self::hands::Hands;
use self::model::{Action, KeyPress, Model};
use super::member::{Wanted, execute};
use super::net::FaultyGroup;
use crate::config::{TOP_KEYS_EVERY, TOP_TRANSFER_LIMIT};
use crate::observe::Sample;
use trine_base::arguments::AdminArguments;
use trine_base::capture::CaptureArguments;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::survey::{SURVEY_TIMEOUT, Survey};

/// Messages from other threads to the screen's thread.
enum News {
    Sample(Result<Sample, Failure>),
    /// The result of an admin command.
    AdminCommand(String),
    /// A key, or another event of the terminal; or it can be read no longer.
    Terminal(io::Result<Event>),
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &TopArguments,
    output: Output,
) -> Result<(), Failure> {
    if output.json || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "trine top draws on a terminal",
            "`trine stat` prints lines, `trine status --json` a document",
        ));
    }
    interrupt::start_screen()?;
    let survey = Survey::of(&arguments.group.peers)?;
    let hands = match arguments.fault_injection {
        true => {
            FaultyGroup::find(network, &arguments.group.peers)?;
            Some(Arc::new(Hands::new(survey.addresses().to_vec())))
        }
        false => None,
    };
    let (news, incoming) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    watch(network, survey, arguments, &news, &stop)?;
    let unusable = |error| Failure::usage(format!("the terminal cannot be used: {error}"), "");
    // Also restores the terminal in a panic.
    let mut terminal = ratatui::try_init().map_err(unusable)?;
    let ended = show(
        &mut terminal,
        network,
        arguments,
        hands.as_ref(),
        &news,
        &incoming,
    );
    restore(terminal);
    stop.store(true, Ordering::Relaxed);
    // No other program knows the faults of this screen.
    match hands.and_then(|hands| hands.end()) {
        None => {}
        Some(Ok(healed)) => output.line(healed),
        Some(Err(why)) => {
            let hint = "`trine net show` shows the remaining faults, `trine net clear` clears them";
            return Err(Failure::negative(format!("cannot heal: {why}"), hint));
        }
    }
    ended
}

/// Gives the terminal back. One that was closed takes nothing any more. That must not end the process before it has healed,
/// so the library gets no chance to print that it failed.
fn restore(mut terminal: DefaultTerminal) {
    let _ = ratatui::try_restore();
    if terminal.show_cursor().is_err() {
        // It would try again, and print.
        std::mem::forget(terminal);
    }
}

/// Polls the group in a separate thread. A silent replica delays the next poll, never the screen.
fn watch<N: Network>(
    network: &N,
    mut survey: Survey,
    arguments: &TopArguments,
    news: &Sender<News>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let (network, news, stop) = (network.clone(), news.clone(), stop.clone());
    let every = arguments.every;
    let limit = arguments.group.timeout.min(SURVEY_TIMEOUT).into();
    let work = move || {
        while !stop.load(Ordering::Relaxed) && !interrupt::interrupted() {
            let reports = survey.ask(&network, limit);
            let at = Instant::now();
            let sample = reports.map(|reports| Sample { at, reports });
            if news.send(News::Sample(sample)).is_err() {
                return;
            }
            interrupt::pause(every);
        }
    };
    spawn("watch", work)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread
        .map(drop)
        .map_err(|error| Failure::usage(format!("cannot start a thread: {error}"), ""))
}

/// Reads the terminal in a separate thread: the read of one that was closed does not come back.
fn read_terminal(news: &Sender<News>) -> Result<(), Failure> {
    let news = news.clone();
    spawn("keys", move || {
        loop {
            let read = event::read();
            let is_last = read.is_err();
            if news.send(News::Terminal(read)).is_err() || is_last {
                return;
            }
        }
    })
}

/// Draws until the user quits.
fn show<N: Network>(
    terminal: &mut DefaultTerminal,
    network: &N,
    arguments: &TopArguments,
    hands: Option<&Arc<Hands>>,
    news: &Sender<News>,
    incoming: &Receiver<News>,
) -> Result<(), Failure> {
    let unusable = |error| Failure::usage(format!("the terminal cannot be used: {error}"), "");
    let mut model = match hands {
        Some(_) => Model::with_faults(),
        None => Model::new(),
    };
    read_terminal(news)?;
    while !interrupt::interrupted() {
        model.faults = hands.map(|hands| hands.faults()).unwrap_or_default();
        terminal
            .draw(|frame| view::draw(frame, &model))
            .map_err(unusable)?;
        let first = match incoming.recv_timeout(TOP_KEYS_EVERY) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("this function has a sender"),
        };
        for message in first.into_iter().chain(incoming.try_iter()) {
            let pressed = match message {
                News::Sample(Ok(sample)) => {
                    model.on_sample(sample);
                    continue;
                }
                News::Sample(Err(failure)) => return Err(failure),
                News::AdminCommand(text) => {
                    model.message = text;
                    continue;
                }
                News::Terminal(Ok(Event::Key(pressed))) => pressed,
                News::Terminal(Ok(_)) => continue,
                News::Terminal(Err(error)) => return Err(unusable(error)),
            };
            match key_of(pressed).map_or(Action::None, |key| model.on_key(key)) {
                Action::None => {}
                Action::Quit => return Ok(()),
                Action::Transfer(node_id) => transfer(network, arguments, node_id, news)?,
                action => {
                    if let Some(hands) = hands {
                        act(hands, action, news)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn key_of(pressed: KeyEvent) -> Option<KeyPress> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    let control = pressed.modifiers.contains(KeyModifiers::CONTROL);
    match pressed.code {
        KeyCode::Char('c') if control => Some(KeyPress::CtrlC),
        KeyCode::Char(_) if control => None,
        KeyCode::Char(c) => Some(KeyPress::Char(c)),
        KeyCode::Up => Some(KeyPress::Up),
        KeyCode::Down => Some(KeyPress::Down),
        KeyCode::Enter => Some(KeyPress::Enter),
        KeyCode::Backspace => Some(KeyPress::Backspace),
        KeyCode::Esc => Some(KeyPress::Escape),
        _ => None,
    }
}

/// Transfers leadership, in a separate thread.
fn transfer<N: Network>(
    network: &N,
    arguments: &TopArguments,
    node_id: u32,
    news: &Sender<News>,
) -> Result<(), Failure> {
    let target = AdminArguments {
        peers: arguments.group.peers.clone(),
        timeout: TOP_TRANSFER_LIMIT,
        capture: CaptureArguments::default(),
    };
    let (network, news) = (network.clone(), news.clone());
    spawn("transfer", move || {
        let text = match execute(&network, &target, Wanted::transfer(node_id)) {
            Ok(done) => done.text,
            Err(failure) => failure.message().to_owned(),
        };
        // There is no receiver once the screen is gone.
        let _ = news.send(News::AdminCommand(text));
    })
}

/// Injects or heals faults, in a separate thread.
fn act(hands: &Arc<Hands>, action: Action, news: &Sender<News>) -> Result<(), Failure> {
    let (hands, news) = (Arc::clone(hands), news.clone());
    spawn("hands", move || {
        // There is no receiver once the screen is gone.
        let _ = news.send(News::AdminCommand(hands.act(action)));
    })
}

#[cfg(test)]
pub(in crate::cmd) mod tests;
