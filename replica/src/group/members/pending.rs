//! Admin commands that a leader was told and cannot follow yet.
//!
//! It remembers them for a while and for itself only. After a change of leader the next question of the admin client
//! tells the new one.

use std::net::SocketAddr;

use trine_protocol::message::{AdminCommand, Incarnation, Member, NodeId};
use trine_protocol::route::is_same_address;
use trine_transport::time::{Duration, Instant};

/// An admin client asks many times a second. After so long without a question, the next one is a new command.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Most commands that are remembered.
const PENDING_MAX: usize = 16;

/// The commands that wait, at most [`PENDING_MAX`].
#[derive(Default)]
pub(super) struct PendingCommands {
    list: Vec<Pending>,
}

/// A command that waits: for a process to ask for its node id, or for signs of life of those that a removal would
/// leave.
#[derive(Clone, Copy, Debug)]
struct Pending {
    node_id: NodeId,
    command: AdminCommand,
    /// The member that the command is about; none with a command to add. The command must not be done to the next
    /// member with the node id: the question may come once more while the change is in the log.
    of: Incarnation,
    /// Where the admin client has said that the node's next replica will be.
    address: Option<SocketAddr>,
    /// When it was asked for first, without a pause longer than [`PAUSE_MAX`].
    since: Instant,
    asked_at: Instant,
    /// When a replica at that address has asked to be taken in.
    newcomer_at: Option<Instant>,
    until: Instant,
}

impl PendingCommands {
    /// Remembers a command. Returns when it was asked for first by those who are asking still.
    pub(super) fn remember(
        &mut self,
        now: Instant,
        (node_id, command, of): (NodeId, AdminCommand, Incarnation),
        address: Option<SocketAddr>,
        until: Instant,
    ) -> Instant {
        let is_it = |other: &&Pending| other.is(now, node_id, command) && other.of == of;
        let before = self.list.iter().find(is_it);
        let goes_on = before.filter(|before| {
            before.address == address && now.saturating_since(before.asked_at) <= PAUSE_MAX
        });
        let since = goes_on.map_or(now, |before| before.since);
        let newcomer_at = goes_on.and_then(|before| before.newcomer_at);
        // To add a voter means to promote it in the end; any other command replaces the earlier one.
        let replaces =
            |other: &Pending| command != AdminCommand::Promote || other.command == command;
        self.list
            .retain(|other| other.until > now && !(other.node_id == node_id && replaces(other)));
        assert!(self.list.len() <= PENDING_MAX);
        if self.list.len() < PENDING_MAX {
            self.list.push(Pending {
                node_id,
                command,
                of,
                address,
                since,
                asked_at: now,
                newcomer_at,
                until,
            });
        }
        since
    }

    /// Whether an admin client has asked for this lately.
    pub(super) fn wants(&self, now: Instant, node_id: NodeId, command: AdminCommand) -> bool {
        self.list
            .iter()
            .any(|other| other.is(now, node_id, command))
    }

    /// Whether an admin client has asked for this lately, of this very member.
    pub(super) fn wants_of(&self, now: Instant, member: &Member, command: AdminCommand) -> bool {
        let is_it = |other: &Pending| {
            other.is(now, member.node_id, command) && other.of == member.incarnation
        };
        self.list.iter().any(is_it)
    }

    /// Whether an admin client has said lately that the node's next replica will be at this address.
    pub(super) fn expects_at(&self, now: Instant, node_id: NodeId, address: SocketAddr) -> bool {
        let mut named = self.list.iter().filter_map(|other| {
            let counts = other.node_id == node_id && other.until > now;
            other.address.filter(|_| counts)
        });
        named.any(|named| is_same_address(named, address))
    }

    /// A replica with this node id asks to be taken in, from this address.
    pub(super) fn on_newcomer(&mut self, now: Instant, node_id: NodeId, address: SocketAddr) {
        let is_it = |named: SocketAddr| is_same_address(named, address);
        for pending in &mut self.list {
            if pending.node_id == node_id && pending.address.is_some_and(is_it) {
                pending.newcomer_at = Some(now);
            }
        }
    }

    /// When a replica was last heard of that asks for what is pending for this node, or else the command was asked for first.
    pub(super) fn nobody_since(&self, node_id: NodeId, since: Instant) -> Instant {
        let of_node = self.list.iter().filter(|other| other.node_id == node_id);
        let newcomers = of_node.filter_map(|other| other.newcomer_at);
        newcomers.max().map_or(since, |at| at.max(since))
    }

    pub(super) fn forget(&mut self, node_id: NodeId, command: AdminCommand) {
        let is_it = |other: &Pending| other.node_id == node_id && other.command == command;
        self.list.retain(|other| !is_it(other));
    }

    /// The command for a node is being executed, and must not be executed on the next member with its node id, too.
    pub(super) fn forget_all_of(&mut self, node_id: NodeId) {
        self.list.retain(|other| other.node_id != node_id);
    }

    /// The command about this member is done.
    pub(super) fn forget_of(&mut self, member: Incarnation) {
        self.list.retain(|other| other.of != member);
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }
}

impl Pending {
    fn is(&self, now: Instant, node_id: NodeId, command: AdminCommand) -> bool {
        self.node_id == node_id && self.command == command && self.until > now
    }
}

#[cfg(test)]
mod tests {
    use trine_protocol::message::MemberRole;

    use super::*;

    const ADD: AdminCommand = AdminCommand::Add { voter: true };
    const NONE: Incarnation = Incarnation::NONE;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn a_command_that_is_asked_again_keeps_its_first_time_until_it_is_over() {
        let (mut pending, node_id) = (PendingCommands::default(), NodeId(4));
        let remove = (node_id, AdminCommand::Remove, Incarnation(1));
        let mut ask = |now, until| pending.remember(at(now), remove, None, at(until));
        assert_eq!(ask(1, 10), at(1));
        assert_eq!(ask(5, 20), at(1));
        assert_eq!(ask(20, 30), at(20));
        assert!(pending.wants(at(29), node_id, AdminCommand::Remove));
        assert!(!pending.wants(at(30), node_id, AdminCommand::Remove));
    }

    /// An operator who gave up, and repeats the command after a while, begins to wait anew.
    #[test]
    fn a_command_that_comes_after_a_pause_is_new() {
        let mut pending = PendingCommands::default();
        let replace = (NodeId(4), AdminCommand::Replace, Incarnation(1));
        let second = |number| Instant::ZERO + Duration::from_secs(number);
        let mut ask = |now| pending.remember(second(now), replace, None, second(now + 60));
        assert_eq!(ask(1), second(1));
        assert_eq!(ask(3), second(1));
        assert_eq!(ask(6), second(6));
    }

    /// A command with a corrected address begins to wait anew. And a replica that asks is somebody, whatever it still waits for.
    #[test]
    fn a_command_waits_for_somebody_at_its_own_address() {
        let mut pending = PendingCommands::default();
        let node_id = NodeId(4);
        let replace = (node_id, AdminCommand::Replace, Incarnation(1));
        let second = |number| Instant::ZERO + Duration::from_secs(number);
        let address = |port| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        let mut ask = |now, port| {
            let until = second(now + 60);
            let since = pending.remember(second(now), replace, address(port), until);
            pending.on_newcomer(second(now), node_id, ([127, 0, 0, 1], 8).into());
            (since, pending.nobody_since(node_id, since))
        };
        assert_eq!(ask(1, 7), (second(1), second(1)));
        assert_eq!(ask(2, 7), (second(1), second(1)));
        assert_eq!(ask(3, 8), (second(3), second(3)));
        assert_eq!(ask(4, 8), (second(3), second(4)));
    }

    /// To add a voter means to promote it in the end: the promotion must not end the invitation.
    #[test]
    fn a_promotion_leaves_the_addition_and_any_other_command_replaces_it() {
        let (mut pending, node_id) = (PendingCommands::default(), NodeId(4));
        let mut ask = |command| pending.remember(at(1), (node_id, command, NONE), None, at(9));
        ask(ADD);
        ask(AdminCommand::Promote);
        assert!(pending.wants(at(2), node_id, ADD));
        let remove = (node_id, AdminCommand::Remove, NONE);
        pending.remember(at(1), remove, None, at(9));
        assert!(!pending.wants(at(2), node_id, ADD));
        assert!(!pending.wants(at(2), node_id, AdminCommand::Promote));
    }

    /// A question to replace a member came once more while the change was in the log. It was remembered for the node id,
    /// so the member that had come was replaced by the one that had gone.
    #[test]
    fn a_command_about_a_member_is_none_about_the_next_one() {
        let mut pending = PendingCommands::default();
        let member = |incarnation| Member {
            node_id: NodeId(2),
            role: MemberRole::Voter,
            incarnation: Incarnation(incarnation),
            address: ([127, 0, 0, 1], 7471).into(),
        };
        let (old, new) = (member(20), member(21));
        let replace = (old.node_id, AdminCommand::Replace, old.incarnation);
        pending.remember(at(1), replace, None, at(9));
        let wants = |pending: &PendingCommands, member| {
            pending.wants_of(at(2), member, AdminCommand::Replace)
        };
        assert!(wants(&pending, &old) && !wants(&pending, &new));
        // A sign of life counts from the question about this member.
        let replace = (new.node_id, AdminCommand::Replace, new.incarnation);
        assert_eq!(pending.remember(at(3), replace, None, at(9)), at(3));
    }
}
