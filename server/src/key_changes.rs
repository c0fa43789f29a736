//! The keys of a running replica: read again at SIGHUP, and taken if the group can go on with them.
//!
//! A file that does not fit leaves the keys from before in force. The replica begins to require keys only once it has
//! sealed sessions with all members: those without a key could not reach it any more.

use std::path::PathBuf;

use serde_json::json;
use trine_base::announce::Announcer;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::{EndpointSettings, KeyStage, ServerKeys, replicas_client};
use trine_protocol::node_status::MemberRoots;
use trine_replica::node::{Node, UnsealedMember};
use trine_transport::EventLoop;
use trine_transport::backend::{Backend, Route};
use trine_transport::keys::Keys;
use trine_transport::time::{Clock, Duration, Instant};

use crate::from_file::FromFile;
use crate::logs::AUDIT;
use crate::options::ServeArguments;
use crate::resp::Teller;

/// The part of the log that tells of keys.
const KEYS: &str = "keys";
/// How long members have to come with sealed sessions before keys are not required after all.
const PATIENCE: Duration = Duration::from_secs(5);

/// The keys in force, and those that are to follow.
pub(crate) struct KeyChanges {
    settings: EndpointSettings,
    in_force: Option<ServerKeys>,
    /// Which callers are taken if the settings file does not say so.
    stage_at_start: KeyStage,
    /// The file that may say so.
    settings_file: Option<PathBuf>,
    /// Whether the command line or the environment has named the stage.
    stage_is_named: bool,
    from_file: FromFile,
    /// The thread that serves Redis clients, if there is one.
    front: Option<Teller>,
    /// Whether this replica may serve callers without keys at its address.
    may_accept: Result<(), Failure>,
    hangups: u64,
    /// They require keys, and not all members have come with one.
    waiting: Option<PendingKeys>,
    not_taken: Option<String>,
}

struct PendingKeys {
    keys: ServerKeys,
    until: Instant,
}

impl KeyChanges {
    /// The keys of the start. `may_accept` tells whether callers without a key may be served.
    pub(crate) fn start(
        settings: &EndpointSettings,
        arguments: &ServeArguments,
        from_file: FromFile,
        front: Option<Teller>,
        may_accept: Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let key = settings.server_key();
        let in_force = key
            .map(|(path, stage)| ServerKeys::read(path, stage))
            .transpose()?;
        if key.is_some_and(|(_, stage)| stage == KeyStage::Accept) {
            warn_of_accept();
        }
        Ok(Self {
            settings: settings.clone(),
            in_force,
            stage_at_start: key.map_or(KeyStage::None, |(_, stage)| stage),
            settings_file: arguments.file_unless(arguments.named.keys),
            stage_is_named: arguments.named.keys,
            from_file,
            front,
            may_accept,
            hangups: interrupt::hangups(),
            waiting: None,
            not_taken: None,
        })
    }

    /// The keys in force, for a new endpoint.
    pub(crate) fn keys(&self) -> Result<Option<Keys>, Failure> {
        let of = |keys: &ServerKeys| keys.keys(&self.settings);
        self.in_force.as_ref().map(of).transpose()
    }

    /// The same for the status.
    pub(crate) fn member_roots(&self) -> Option<MemberRoots> {
        let mut roots = self.in_force.as_ref()?.member_roots();
        roots.not_taken.clone_from(&self.not_taken);
        Some(roots)
    }

    /// Does what is to be done about keys.
    pub(crate) fn attend<B: Backend, C: Clock>(
        &mut self,
        event_loop: &mut EventLoop<B, C, Node<B::Route>>,
        announcer: Announcer,
    ) {
        let now = event_loop.clock().now();
        if self.hangups != interrupt::hangups() {
            self.hangups = interrupt::hangups();
            self.waiting = None;
            if let Some(front) = &self.front {
                front.hang_up();
            }
            match self.read_again() {
                Ok(None) => {
                    tracing::info!(target: KEYS, "SIGHUP: this replica has no key to read again")
                }
                Ok(Some(keys)) if self.begins_to_require(&keys) => {
                    let until = now + PATIENCE;
                    self.waiting = Some(PendingKeys { keys, until });
                }
                Ok(Some(keys)) => event_loop.with(|node, cx| self.take(keys, node, cx, announcer)),
                Err(failure) => self.refuse(&failure, event_loop.app_mut(), announcer),
            }
        }
        if self.waiting.is_some() {
            self.require(now, event_loop, announcer);
        }
    }

    /// What the files say now; nothing if no key is used.
    fn read_again(&self) -> Result<Option<ServerKeys>, Failure> {
        let Some(present) = &self.in_force else {
            return Ok(None);
        };
        let stage = match &self.settings_file {
            None => None,
            Some(path) => (self.from_file.key_stage)(path)?,
        };
        let found = present.read_again(stage.unwrap_or(self.stage_at_start))?;
        if found.stage() == KeyStage::Accept {
            self.may_accept.clone()?;
        }
        Ok(Some(found))
    }

    fn begins_to_require(&self, keys: &ServerKeys) -> bool {
        let present = self.in_force.as_ref().map(ServerKeys::stage);
        present == Some(KeyStage::Accept) && keys.stage() == KeyStage::Require
    }

    /// Requires keys once all members have come with one.
    fn require<B: Backend, C: Clock>(
        &mut self,
        now: Instant,
        event_loop: &mut EventLoop<B, C, Node<B::Route>>,
        announcer: Announcer,
    ) {
        let missing = event_loop.with(|node, cx| node.unsealed_members(cx));
        let is_over = |waiting: &mut PendingKeys| missing.is_empty() || waiting.until <= now;
        let Some(PendingKeys { keys, .. }) = self.waiting.take_if(is_over) else {
            return;
        };
        if missing.is_empty() {
            return event_loop.with(|node, cx| self.take(keys, node, cx, announcer));
        }
        let failure = Failure::usage(
            format!(
                "keys cannot be required yet: no sealed session with {}, or some that are not sealed",
                names_of(&missing)
            ),
            "give these replicas the group's key (--key FILE, and keys = \"accept\" in their settings file), and send SIGHUP \
             again; to do it nevertheless, start this replica again with --key-stage require",
        );
        self.refuse(&failure, event_loop.app_mut(), announcer);
    }

    fn take<R: Route>(
        &mut self,
        keys: ServerKeys,
        node: &mut Node<R>,
        cx: &mut trine_transport::Cx<'_, R>,
        announcer: Announcer,
    ) {
        let given = match keys.keys(&self.settings) {
            Ok(given) => given,
            Err(failure) => return self.refuse(&failure, node, announcer),
        };
        if let Some(front) = &self.front {
            front.change_keys(replicas_client(given.clone()));
        }
        let roots = keys.member_roots();
        let ended = node.change_keys(cx, given, roots.clone());
        self.not_taken = None;
        assert!(self.waiting.is_none(), "no older keys follow these");
        let stage = keys.stage().name();
        let lowered = stage == KeyStage::Accept.name();
        let (old, new) = (self.in_force.as_ref().map(in_words), in_words(&keys));
        self.in_force = Some(keys);
        if let Some(old) = old.filter(|old| *old != new) {
            // Who can send the signal and write the file has changed who gets in.
            tracing::warn!(target: AUDIT, from = "SIGHUP", old, new, "the keys were changed");
        }
        let by = match self.stage_is_named {
            true => {
                " (as --key-stage or TRINE_KEY_STAGE said at the start, whatever the settings file says)"
            }
            false => "",
        };
        let (step, used) = (&roots.step, &roots.used);
        let accepted = roots.accepted.as_deref().unwrap_or("none");
        tracing::info!(
            target: KEYS, stage, step, member_root = used, accepted, sessions_ended = ended, "the keys were read again"
        );
        if lowered {
            warn_of_accept();
        }
        announcer.json_line(&json!({
            "keys": { "stage": stage, "step": step, "used": used, "accepted": roots.accepted, "sessions_ended": ended }
        }));
        announcer.line(format_args!(
            "keys read again: {stage}{by}, change of the member root {step}, uses {used}, accepts {accepted}, \
             {ended} sessions ended"
        ));
    }

    /// The keys from before stay in force.
    fn refuse<R: Route>(&mut self, failure: &Failure, node: &mut Node<R>, announcer: Announcer) {
        let why = failure.in_one_line();
        tracing::error!(target: KEYS, why, "the keys stay as they were");
        announcer.json_line(&json!({ "keys_not_taken": why }));
        announcer.line(format_args!("the keys stay as they were: {why}"));
        assert!(self.waiting.is_none(), "no keys follow that were refused");
        node.keep_keys(why.clone());
        self.not_taken = Some(why);
    }
}

/// Which callers these keys let in, for the audit.
fn in_words(keys: &ServerKeys) -> String {
    let roots = keys.member_roots();
    let accepted = roots
        .accepted
        .map_or_else(String::new, |root| format!(", accepts {root}"));
    format!(
        "stage {}, member root {}{accepted}",
        keys.stage().name(),
        roots.used
    )
}

fn warn_of_accept() {
    tracing::warn!(
        target: KEYS,
        "callers without a key are served, with all rights: `trine status` counts them, and --key-stage require keeps them out"
    );
}

fn names_of(members: &[UnsealedMember]) -> String {
    let names: Vec<String> = members
        .iter()
        .map(|UnsealedMember { node_id, address }| format!("replica {node_id} ({address})"))
        .collect();
    names.join(", ")
}
