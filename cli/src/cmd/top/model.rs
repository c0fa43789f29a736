//! The contents of the screen, and how keys and news change them. This module reads no clock and draws nothing.

use std::collections::VecDeque;

use trine_client::{Report, leader_of};
use trine_protocol::node_status::{KeysStatus, LinkStatus, NodeStatus, SessionsByRole};
use trine_protocol::status::Status;

use crate::cmd::status::{link_state, node_id_at, role_word, summary};
use crate::config::TOP_HISTORY;
use crate::observe::{Interval, Sample, between, pair, reads};
use trine_base::units::{show_bytes, show_count_within, show_ns};

/// One replica's line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReplicaRow {
    /// `None` while it does not answer.
    pub(super) node_id: Option<u32>,
    pub(super) cells: [String; 9],
}

/// The key presses that the screen understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPress {
    Char(char),
    Up,
    Down,
    Enter,
    Backspace,
    Escape,
    CtrlC,
}

/// The action that a key requests from the screen's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    Quit,
    /// Transfer leadership to this node.
    Transfer(u32),
    /// Pause this node.
    Stop(u32),
    /// Block the link between these nodes.
    Block(u32, u32),
    /// Remove all faults.
    Heal,
}

/// A dialog over the footer or the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialog {
    None,
    Help,
    /// Asks for confirmation of the action.
    Confirm(Action),
    /// Asks for the other end of a blocked link from this node. `typed` is its number so far; 0 is no digit.
    OtherEnd {
        from: u32,
        typed: u64,
    },
}

/// The whole state of the screen.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) summary: String,
    /// Which callers the replicas take, and the sessions by role; empty if none tells.
    pub(super) keys: String,
    pub(super) replicas: Vec<ReplicaRow>,
    pub(super) links: Vec<[String; 9]>,
    pub(super) interval: Option<Interval>,
    /// Writes a second, the newest last.
    pub(super) history: VecDeque<u64>,
    pub(super) selected: usize,
    pub(super) paused: bool,
    pub(super) dialog: Dialog,
    pub(super) message: String,
    /// Whether faults can be injected.
    pub(super) fault_injection: bool,
    /// The faults that this screen has injected.
    pub(super) faults: String,
    last: Option<Sample>,
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            summary: "asking the replicas".to_owned(),
            keys: String::new(),
            replicas: Vec::new(),
            links: Vec::new(),
            interval: None,
            history: VecDeque::new(),
            selected: 0,
            paused: false,
            dialog: Dialog::None,
            message: String::new(),
            fault_injection: false,
            faults: String::new(),
            last: None,
        }
    }

    /// Makes a screen that can inject faults.
    pub(super) fn with_faults() -> Self {
        Self {
            fault_injection: true,
            ..Self::new()
        }
    }

    /// Takes the result of another poll; a paused screen does not change.
    pub(super) fn on_sample(&mut self, sample: Sample) {
        if self.paused {
            return;
        }
        self.summary = match sample.reports.iter().all(|report| report.answer.is_err()) {
            true => "no replica answers".to_owned(),
            false => summary(&sample.reports),
        };
        self.keys = keys_in_short(&sample.reports);
        let last = self.last.as_ref();
        let row = |report| replica_row(report, &sample, last);
        self.replicas = sample.reports.iter().map(row).collect();
        self.links = link_rows(&sample.reports);
        self.selected = self.selected.min(self.replicas.len().saturating_sub(1));
        self.interval = last.map(|last| between(last, &sample));
        if let Some(interval) = &self.interval {
            let writes = interval.writes_per_second.unwrap_or(0.0);
            self.history.push_back(writes as u64);
            let surplus = self.history.len().saturating_sub(TOP_HISTORY);
            self.history.drain(..surplus);
        }
        self.last = Some(sample);
    }

    /// A key was pressed.
    pub(super) fn on_key(&mut self, key: KeyPress) -> Action {
        if key == KeyPress::CtrlC {
            return Action::Quit;
        }
        match std::mem::replace(&mut self.dialog, Dialog::None) {
            Dialog::Help => return Action::None,
            Dialog::Confirm(action) => {
                return match key {
                    KeyPress::Char('y' | 'Y') => {
                        self.message = begun(action);
                        action
                    }
                    _ => Action::None,
                };
            }
            Dialog::OtherEnd { from, typed } => {
                self.choose_other_end(from, typed, key);
                return Action::None;
            }
            Dialog::None => {}
        }
        self.message.clear();
        match key {
            KeyPress::Char('q') => return Action::Quit,
            KeyPress::Up => self.selected = self.selected.saturating_sub(1),
            KeyPress::Down if self.selected + 1 < self.replicas.len() => self.selected += 1,
            KeyPress::Char('p') => self.paused = !self.paused,
            KeyPress::Char('?' | 'h') => self.dialog = Dialog::Help,
            KeyPress::Char('t') => self.ask(|node_id| Dialog::Confirm(Action::Transfer(node_id))),
            KeyPress::Char('s' | 'b' | 'c') if !self.fault_injection => {
                self.message = "faults are injected with trine top --fault-injection".to_owned();
            }
            KeyPress::Char('s') => self.ask(|node_id| Dialog::Confirm(Action::Stop(node_id))),
            KeyPress::Char('b') => self.ask(|from| Dialog::OtherEnd { from, typed: 0 }),
            KeyPress::Char('c') => {
                self.message = begun(Action::Heal);
                return Action::Heal;
            }
            _ => {}
        }
        Action::None
    }

    /// Opens a dialog about the selected replica.
    fn ask(&mut self, dialog: impl FnOnce(u32) -> Dialog) {
        match self.replicas.get(self.selected).and_then(|row| row.node_id) {
            Some(node_id) => self.dialog = dialog(node_id),
            None => self.message = "that replica does not answer".to_owned(),
        }
    }

    /// Takes the number of the other end, digit by digit. Enter ends it where longer numbers begin in the same way.
    fn choose_other_end(&mut self, from: u32, typed: u64, key: KeyPress) {
        let digit = match key {
            KeyPress::Char(digit) => digit.to_digit(10),
            _ => None,
        };
        let typed = match (digit, key) {
            (Some(digit), _) => typed * 10 + u64::from(digit),
            (None, KeyPress::Backspace) => typed / 10,
            (None, KeyPress::Enter) if typed > 0 => typed,
            _ => return,
        };
        let others = self.replicas.iter().filter_map(|row| row.node_id);
        let others = others.filter(|node_id| *node_id != from);
        let digits = typed.to_string();
        let fitting: Vec<u32> = others
            .filter(|node_id| typed == 0 || node_id.to_string().starts_with(&digits))
            .collect();
        let found = fitting.iter().copied().find(|to| u64::from(*to) == typed);
        let may_go_on = key != KeyPress::Enter && fitting.len() > usize::from(found.is_some());
        self.dialog = match found {
            _ if may_go_on => Dialog::OtherEnd { from, typed },
            Some(to) => Dialog::Confirm(Action::Block(from, to)),
            None => {
                self.message = format!("{typed} is not another replica that answers");
                Dialog::None
            }
        };
    }
}

/// Describes an action that has begun and not ended.
fn begun(action: Action) -> String {
    match action {
        Action::Transfer(node_id) => format!("transferring leadership to replica {node_id}"),
        Action::Stop(node_id) => format!("stopping replica {node_id}"),
        Action::Block(from, to) => format!("blocking the link between {from} and {to}"),
        Action::Heal => "healing".to_owned(),
        Action::None | Action::Quit => String::new(),
    }
}

/// The stages, and the sessions that others have opened at all replicas together.
fn keys_in_short(reports: &[Report]) -> String {
    let nodes = reports
        .iter()
        .filter_map(|report| report.answer.as_deref().ok());
    let known: Vec<&KeysStatus> = nodes.filter_map(|node| node.keys.as_ref()).collect();
    let mut stages: Vec<&str> = known.iter().map(|keys| keys.stage.as_str()).collect();
    stages.sort_unstable();
    stages.dedup();
    if stages.is_empty() || stages == ["none"] {
        return stages.concat();
    }
    let sum = |of: fn(&SessionsByRole) -> u64| {
        show_count_within(known.iter().map(|keys| of(&keys.sessions)).sum(), 6)
    };
    format!(
        "{}: {} member, {} admin, {} user, {} no key",
        stages.join("/"),
        sum(|sessions| sessions.member),
        sum(|sessions| sessions.admin),
        sum(|sessions| sessions.user),
        sum(|sessions| sessions.none),
    )
}

fn dash<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// Node id, address, role, term, applied, lag, reads a second, keys, retransmitted.
fn replica_row(report: &Report, sample: &Sample, last: Option<&Sample>) -> ReplicaRow {
    let Ok(node) = &report.answer else {
        let mut cells: [String; 9] = Default::default();
        cells[0] = " ?".to_owned();
        cells[1] = report.address.to_string();
        cells[2] = "silent".to_owned();
        return ReplicaRow {
            node_id: None,
            cells,
        };
    };
    let replica = &node.replica;
    let before = last.and_then(|last| Some((last.at, pair(last, node)?)));
    let rate = before.map(|(at, before)| {
        let seconds = (sample.at - at).as_secs_f64().max(1e-9);
        reads(replica).saturating_sub(reads(&before.replica)) as f64 / seconds
    });
    let cells = [
        format!(" {}", replica.node_id),
        replica.address.to_string(),
        role_or_receiving(replica),
        replica.term.to_string(),
        // As wide as the columns of a screen of 80 columns.
        show_count_within(replica.applied, 10),
        dash(lag(node, sample), |lag| show_count_within(lag, 5)),
        dash(rate, |rate| show_count_within(rate as u64, 7)),
        show_count_within(replica.store.items, 6),
        show_count_within(node.transport.retransmissions, 5),
    ];
    ReplicaRow {
        node_id: Some(replica.node_id),
        cells,
    }
}

/// The role of a replica, or the progress of the group's state on its way to it.
fn role_or_receiving(replica: &Status) -> String {
    match replica.receiving {
        None => role_word(replica.role).to_owned(),
        Some(state) => format!("gets {} %", state.percent()),
    }
}

/// The entries that the replica lacks, as its leader knows it.
fn lag(node: &NodeStatus, sample: &Sample) -> Option<u64> {
    let leader = leader_of(&sample.reports)?;
    let mut members = leader.members.iter();
    let own = members.find(|member| member.incarnation == node.replica.incarnation)?;
    own.lag
}

fn link_rows(reports: &[Report]) -> Vec<[String; 9]> {
    let mut rows = Vec::new();
    for report in reports {
        let Ok(node) = &report.answer else { continue };
        let raft = node.links.iter().filter(|link| link.class == "raft");
        let mut links: Vec<&LinkStatus> = raft.collect();
        links.sort_by_key(|link| link.address);
        rows.extend(links.into_iter().map(|link| link_row(node, link, reports)));
    }
    rows
}

/// Link, state, round trip, minimum, timeout, retransmitted, credits in use, largest packet, pacing rate.
fn link_row(node: &NodeStatus, link: &LinkStatus, reports: &[Report]) -> [String; 9] {
    let to = node_id_at(link.address, reports);
    let to = to.map_or_else(|| link.address.to_string(), |node_id| node_id.to_string());
    let credits = link.credits_in_use.zip(link.credits);
    [
        format!(" {} to {to}", node.replica.node_id),
        link_state(link).to_owned(),
        dash(link.rtt_ns, show_ns),
        dash(link.rtt_ns_min.filter(|ns| *ns > 0), show_ns),
        dash(link.rto_ns, show_ns),
        dash(link.retransmissions, |count| show_count_within(count, 6)),
        dash(credits, |(used, all)| format!("{used}/{all}")),
        dash(link.packet_bytes, |bytes| bytes.to_string()),
        dash(link.rate_bytes_per_second, |rate| match rate {
            0 => "off".to_owned(),
            rate => format!("{}/s", show_bytes(rate)),
        }),
    ]
}
