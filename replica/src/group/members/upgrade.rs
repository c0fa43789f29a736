//! When a leader switches the group to a newer state-machine version.
//!
//! All members have to have understood it for a while, by this leader's clock. Until the switch the way back to the older
//! release is open. A new leader counts anew: it does not know what its predecessor has heard, so it is later, never earlier.

use trine_canary as canary;
use trine_protocol::message::Member;
use trine_protocol::status::UpgradeStatus;
use trine_transport::time::{Duration, Instant};

use super::admin::{AdminVerdict, SIGN_OF_LIFE_PATIENCE, done, refused, under_way};
use super::{Membership, lately};
use crate::group::cx::Cx;
use crate::group::local::Local;
use crate::group::service::NextSwitch;
use crate::state_machine::StateMachine;
use crate::state_machine::entry::raise_version;

/// What a leader remembers about the next switch.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Upgrade {
    /// The state-machine version that this leader has proposed to switch to.
    pub(super) raising: Option<u8>,
    /// The newest version that all members understand, and since when this leader has known it.
    understood: Option<(u8, Instant)>,
    /// The version that an operator wants now, and until when without being asked again.
    wanted: Option<(u8, Instant)>,
}

impl Upgrade {
    /// All members understand this version now.
    fn note(&mut self, now: Instant, version: u8) {
        if self.understood.is_none_or(|(known, _)| known != version) {
            self.understood = Some((version, now));
        }
    }

    /// How long is left until the switch; `None` if only an operator switches.
    fn left(&self, now: Instant, after: Option<Duration>, version: u8) -> Option<Duration> {
        let is_wanted = |(wanted, until): (u8, Instant)| wanted <= version && now < until;
        if self.wanted.is_some_and(is_wanted) {
            return Some(Duration::ZERO);
        }
        let since = match self.understood {
            Some((known, since)) if known == version => since,
            _ => now,
        };
        Some(since.saturating_add(after?).saturating_since(now))
    }
}

impl Membership {
    /// The newest version that all members understand. `None` without a state.
    fn common_version(
        &self,
        now: Instant,
        local: &Local,
        state: Option<&StateMachine>,
    ) -> Option<u8> {
        let members = state?.members().all().iter();
        let asked = members.filter(|member| {
            !canary::planted("a switch forgets who is silent")
                || !self.is_silent(member, now, local)
        });
        asked
            .map(|member| self.understands(member.incarnation, local))
            .min()
    }

    /// Whether a member has not said lately what it understands. It may come back with another release.
    fn is_silent(&self, member: &Member, now: Instant, local: &Local) -> bool {
        member.incarnation != local.own.incarnation
            && !self
                .liveness
                .has_said_version_since(member.incarnation, lately(now, local))
    }

    /// Rolling upgrades: proposes the switch to the newest state-machine version that all members understand, if it is
    /// newer than the present one, and if all have understood it for long enough or an operator wants it.
    ///
    /// Every message between members says which version its sender understands at most. The leader proposes the switch
    /// as an entry of its own once it has heard that of every member, learners included. It admits no replica
    /// afterwards that understands less. A member that meets a version beyond its own all the same stops, and says why.
    pub(in crate::group) fn raise_version(&mut self, cx: &mut Cx<'_>, stopping: bool) {
        if !cx.raft().leads_with_commit() {
            return;
        }
        let required = self.required_version(cx.state);
        let common = self.common_version(cx.now, cx.local, cx.state);
        let version = match common {
            Some(common) if common > required => common,
            // A member that is new, as a replica in memory that was started again, has not said yet what it understands.
            None | Some(0) => return,
            Some(_) => {
                (self.upgrade.understood, self.upgrade.wanted) = (None, None);
                return;
            }
        };
        self.upgrade.note(cx.now, version);
        let after = cx.local.config.upgrade_after;
        let left = self.upgrade.left(cx.now, after, version);
        // A replica that is being admitted at the moment is not in the list yet, and one that is silent may go back to the
        // older release at the moment.
        let settled = !cx.raft().has_pending_conf() && !stopping && !self.has_silent(cx);
        if left != Some(Duration::ZERO) || !settled {
            return;
        }
        let entry = raise_version(cx.clock.stamp(cx.now), version);
        if cx.consensus.propose(entry).is_ok() {
            self.upgrade.raising = Some(version);
        }
    }

    fn has_silent(&self, cx: &Cx<'_>) -> bool {
        let silent = |state: &StateMachine| {
            let mut all = state.members().all().iter();
            all.any(|member| self.is_silent(member, cx.now, cx.local))
        };
        !canary::planted("a switch forgets who is silent") && cx.state.is_some_and(silent)
    }

    /// The switch that this leader waits for, if all members understand a newer version.
    pub(in crate::group) fn next_switch(&self, cx: &Cx<'_>) -> Option<NextSwitch> {
        let version = self.common_version(cx.now, cx.local, cx.state)?;
        (version > self.required_version(cx.state) && !self.has_silent(cx)).then_some(())?;
        let left = self
            .upgrade
            .left(cx.now, cx.local.config.upgrade_after, version);
        let at = left.map(|left| cx.now.saturating_add(left));
        Some(NextSwitch { version, at })
    }

    /// `trine upgrade finish`.
    pub(super) fn finish_upgrade(&mut self, cx: &mut Cx<'_>) -> AdminVerdict {
        let Some(state) = cx.state else {
            return refused("this replica has no state yet");
        };
        let status = self.upgrade_status(cx.now, cx.local, state);
        let active = state.version();
        match (&status.silent[..], &status.lacking[..]) {
            ([], _) if status.newest <= active => done(format!(
                "the group uses state version {active}, and no member understands a newer one"
            )),
            ([], []) => {
                self.upgrade.wanted = Some((status.newest, cx.now + SIGN_OF_LIFE_PATIENCE));
                under_way(format!("switching to state version {}", status.newest))
            }
            ([first, ..], _) => refused(format!(
                "node {first} is silent, and could not come back with an older release: start it, or remove it with \
                 `trine member remove {first}`"
            )),
            (_, [first, ..]) => refused(format!(
                "node {first} does not understand state version {}: upgrade it first",
                status.newest
            )),
        }
    }

    /// What is known about the next switch.
    pub(in crate::group) fn upgrade_status(
        &self,
        now: Instant,
        local: &Local,
        state: &StateMachine,
    ) -> UpgradeStatus {
        let all = || state.members().all().iter();
        let version_of = |member: &Member| self.understands(member.incarnation, local);
        let newest = all().map(version_of).max().unwrap_or_default();
        let common = self
            .common_version(now, local, Some(state))
            .unwrap_or_default();
        let node_ids = |is: &dyn Fn(&Member) -> bool| {
            let found = all().filter(|member| is(member));
            found.map(|member| member.node_id.0).collect()
        };
        let after = local.config.upgrade_after;
        let left = || {
            self.upgrade
                .left(now, after, common)
                .map(Duration::as_nanos)
        };
        UpgradeStatus {
            newest,
            understood_by_all: common,
            lacking: node_ids(&|member| version_of(member) < newest),
            silent: node_ids(&|member| self.is_silent(member, now, local)),
            left_ns: (common > state.version()).then(left).flatten(),
            by_hand: after.is_none(),
        }
    }
}
