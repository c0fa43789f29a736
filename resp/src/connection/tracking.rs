//! CLIENT TRACKING and what belongs to it: which of a client's keys are watched for it, and where it wants to hear of them.

use trine_kvstore::{Position, integer};

use super::broker::Broker;
use super::late::{Late, Meanwhile};
use super::run::{LastCall, OnStream, Waiting};
use super::{Connection, Environment, OnBehalf};
use crate::errors::{NOT_AN_INTEGER, Refusal, SYNTAX};
use crate::limits::{CLIENT_PREFIXES_MAX, PREFIX_CHARGE_BYTES};
use crate::table::Spec;

const SWITCHED_BCAST: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and \
    then re-enabling it with a different mode.";
const SWITCHED_OPT: &str = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
    then re-enabling it with a different mode.";

/// Which reads of a client are tracked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Choice {
    #[default]
    All,
    /// Those behind CLIENT CACHING YES.
    Chosen,
    /// All but those behind CLIENT CACHING NO.
    NotExcluded,
}

/// The options of CLIENT TRACKING.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Options {
    broadcast: bool,
    choice: Choice,
    no_loop: bool,
    /// The connection that is told instead.
    redirect: Option<u64>,
    prefixes: Vec<Vec<u8>>,
}

/// A client that tracks.
#[derive(Default, Debug)]
pub(super) struct Tracking {
    options: Options,
    /// CLIENT CACHING was said, and counts for the next command.
    caching: bool,
    /// The same as it was before the call that is under way.
    caching_before: bool,
    /// The connection that is told instead has gone.
    is_broken: bool,
    pub(super) meanwhile: Meanwhile,
}

impl Tracking {
    pub(super) fn held_bytes(&self) -> usize {
        let prefixes = self.options.prefixes.iter();
        let prefixes: usize = prefixes
            .map(|prefix| 2 * prefix.len() + PREFIX_CHARGE_BYTES)
            .sum();
        size_of::<Self>() + prefixes + self.meanwhile.held_bytes()
    }
}

impl Options {
    /// The prefixes that are tracked.
    pub(super) fn prefixes(&self) -> &[Vec<u8>] {
        &self.prefixes
    }

    /// Reads the words behind ON or OFF. `finds` says whether a connection is there that may be told.
    fn read(words: &[&[u8]], finds: &dyn Fn(u64) -> bool) -> Result<Self, Refusal> {
        let (mut options, mut opt_in, mut opt_out) = (Self::default(), false, false);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_slice() {
                b"redirect" => {
                    let number = integer(words.next().ok_or(SYNTAX)?).ok_or(NOT_AN_INTEGER)?;
                    if options.redirect.is_some() {
                        return Err(
                            "ERR A client can only redirect to a single other client".into()
                        );
                    }
                    let found = u64::try_from(number).ok().filter(|id| finds(*id));
                    options.redirect =
                        Some(found.ok_or("ERR The client ID you want redirect to does not exist")?);
                }
                b"bcast" => options.broadcast = true,
                b"optin" => opt_in = true,
                b"optout" => opt_out = true,
                b"noloop" => options.no_loop = true,
                b"prefix" => options.prefixes.push(words.next().ok_or(SYNTAX)?.to_vec()),
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        options.choice = match (opt_in, opt_out) {
            (true, true) => {
                // Redis looks at BCAST first.
                return Err(match options.broadcast {
                    true => "ERR OPTIN and OPTOUT are not compatible with BCAST".into(),
                    false => "ERR You can't specify both OPTIN mode and OPTOUT mode".into(),
                });
            }
            (true, false) => Choice::Chosen,
            (false, true) => Choice::NotExcluded,
            (false, false) => Choice::All,
        };
        Ok(options)
    }

    /// Whether the words fit each other, and what the client has now.
    fn check(&self, now: Option<&Self>) -> Result<(), Refusal> {
        if !self.broadcast && !self.prefixes.is_empty() {
            return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
        }
        if now.is_some_and(|now| now.broadcast != self.broadcast) {
            return Err(SWITCHED_BCAST.into());
        }
        if self.broadcast && self.choice != Choice::All {
            return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
        }
        let switches = |now: &Self| {
            let both = [self.choice, now.choice];
            both.contains(&Choice::Chosen) && both.contains(&Choice::NotExcluded)
        };
        if now.is_some_and(switches) {
            return Err(SWITCHED_OPT.into());
        }
        let existing = now.map_or(&[][..], |now| &now.prefixes);
        if existing.len() + self.prefixes.len() > CLIENT_PREFIXES_MAX {
            return Err(format!(
                "ERR a client tracks at most {CLIENT_PREFIXES_MAX} prefixes"
            ));
        }
        self.check_overlap(existing)
    }

    fn check_overlap(&self, existing: &[Vec<u8>]) -> Result<(), Refusal> {
        let meet = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        let refusal = |a: &[u8], which: &str, b: &[u8]| {
            let shown = |prefix: &[u8]| String::from_utf8_lossy(prefix).into_owned();
            Err(format!(
                "ERR Prefix '{}' overlaps with {which} prefix '{}'. Prefixes for a single client must not overlap.",
                shown(a),
                shown(b)
            ))
        };
        for (place, prefix) in self.prefixes.iter().enumerate() {
            if let Some(other) = existing.iter().find(|other| meet(prefix, other)) {
                return refusal(prefix, "an existing", other);
            }
            let behind = &self.prefixes[place + 1..];
            if let Some(other) = behind.iter().find(|other| meet(prefix, other)) {
                return refusal(prefix, "another provided", other);
            }
        }
        Ok(())
    }
}

impl Connection {
    /// CLIENT TRACKING.
    pub(super) fn client_tracking(&mut self, words: &[&[u8]], environment: &Environment<'_>) {
        let finds =
            |id| id == self.profile.id() || environment.host.is_there(id, self.standing.name());
        let options = match Options::read(&words[1..], &finds) {
            Ok(options) => options,
            Err(text) => return self.replies.error(&text),
        };
        match words[0].to_ascii_lowercase().as_slice() {
            b"on" => {
                let now = self.tracking.as_ref().map(|tracking| &tracking.options);
                if let Err(text) = options.check(now) {
                    return self.replies.error(&text);
                }
                let mut broker = environment.broker.borrow_mut();
                match broker.is_following_for(self.profile.id()) {
                    true => self.track(options, &mut broker),
                    false => self.wait_for_stream(OnStream::Track(options)),
                }
            }
            b"off" => {
                self.untrack(&mut environment.broker.borrow_mut());
                self.replies.ok();
            }
            _ => self.replies.error(SYNTAX),
        }
    }

    /// The command goes on when the stream of changes is there.
    pub(super) fn wait_for_stream(&mut self, then: OnStream) {
        self.run.begin(Waiting::Stream(then), true);
    }

    pub(super) fn track(&mut self, options: Options, broker: &mut Broker) {
        let mut options = options;
        if options.broadcast && options.prefixes.is_empty() && self.prefixes().is_empty() {
            options.prefixes.push(Vec::new());
        }
        if !broker.has_room_for_prefixes(options.prefixes.len()) {
            let text = "ERR too many prefixes are tracked at this server";
            return self.replies.error(text);
        }
        broker.track(self.profile.id(), &options.prefixes);
        let mut before = self.tracking.take().unwrap_or_default();
        let mut prefixes = std::mem::take(&mut before.options.prefixes);
        prefixes.append(&mut options.prefixes);
        options.prefixes = prefixes;
        (before.options, before.is_broken) = (options, false);
        self.tracking = Some(before);
        self.replies.ok();
    }

    fn prefixes(&self) -> &[Vec<u8>] {
        let tracking = self.tracking.as_ref();
        tracking.map_or(&[], |tracking| &tracking.options.prefixes)
    }

    /// The client tracks nothing any more.
    pub(super) fn untrack(&mut self, broker: &mut Broker) {
        if let Some(tracking) = self.tracking.take() {
            broker.untrack(self.profile.id(), tracking.options.prefixes.iter());
        }
    }

    /// CLIENT CACHING.
    pub(super) fn client_caching(&mut self, word: &[u8]) {
        let Some(tracking) = &mut self.tracking else {
            let text = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
                mode enabled";
            return self.replies.error(text);
        };
        let (needed, text) = match word.to_ascii_lowercase().as_slice() {
            b"yes" => (
                Choice::Chosen,
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ),
            b"no" => (
                Choice::NotExcluded,
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ),
            _ => return self.replies.error(SYNTAX),
        };
        if tracking.options.choice != needed {
            return self.replies.error(text);
        }
        tracking.caching = true;
        self.replies.ok();
    }

    /// CLIENT GETREDIR.
    pub(super) fn redirected_to(&self) -> i64 {
        match &self.tracking {
            None => -1,
            Some(tracking) => tracking.options.redirect.map_or(0, |id| id as i64),
        }
    }

    /// CLIENT TRACKINGINFO.
    pub(super) fn client_tracking_info(&mut self) {
        let redirect = self.redirected_to();
        let prefixes = self.prefixes().to_vec();
        let flags = self
            .tracking
            .as_deref()
            .map_or(vec!["off"], Tracking::flags);
        let mut writer = self.replies.writer();
        writer.map(3);
        writer.bulk(b"flags");
        writer.set(flags.len());
        flags.iter().for_each(|flag| writer.bulk(flag.as_bytes()));
        writer.bulk(b"redirect");
        writer.integer(redirect);
        writer.bulk(b"prefixes");
        writer.array(prefixes.len());
        prefixes.iter().for_each(|prefix| writer.bulk(prefix));
    }

    /// A new call is put together.
    pub(super) fn begin_reads(&mut self) {
        if let Some(tracking) = &mut self.tracking {
            tracking.meanwhile.begin();
            tracking.caching_before = tracking.caching;
        }
    }

    /// Notes the keys that a command reads, before it is sent.
    pub(super) fn note_reads(&mut self, spec: &Spec, parts: &[&[u8]], broker: &mut Broker) {
        let id = self.profile.id();
        // The user is told of no other key, and the read will be denied.
        let prefix = self.standing.key_prefix();
        let Some(tracking) = &mut self.tracking else {
            return;
        };
        if !spec.flags.contains(&"readonly") {
            return;
        }
        tracking.meanwhile.note_reads();
        let options = &tracking.options;
        let is_broadcast = |key: &[u8]| {
            let mut prefixes = options.prefixes.iter();
            options.broadcast && prefixes.any(|prefix| key.starts_with(prefix))
        };
        let is_tracked = match options.choice {
            // Without the stream nobody will tell of a change: the answer has to be invalid at once.
            _ if options.broadcast => !broker.is_following(),
            Choice::All => true,
            Choice::Chosen => tracking.caching,
            Choice::NotExcluded => !tracking.caching,
        };
        if !is_tracked {
            return;
        }
        for key in spec.keys_of(parts) {
            if !key.starts_with(prefix) {
                continue;
            }
            match options.broadcast {
                true if !is_broadcast(key) => continue,
                true => {}
                false => broker.register(key, id),
            }
            tracking.meanwhile.reads(key);
        }
    }

    /// CLIENT CACHING counts for one command, and for a transaction as a whole.
    pub(super) fn end_caching(&mut self) {
        if let Some(tracking) = &mut self.tracking
            && !self.transaction.is_open()
        {
            tracking.caching = false;
        }
    }

    /// The call was not answered: its commands are sent once more.
    pub(super) fn repeat_caching(&mut self) {
        if let Some(tracking) = &mut self.tracking {
            tracking.caching = tracking.caching_before;
        }
    }

    /// The call is over: what its reads have seen, and which invalidations follow its replies.
    pub(crate) fn take_late(&mut self, position: Position) -> Late {
        // Commands that are sent once more are not answered yet.
        if self.run.last() == LastCall::Split || self.run.is_busy() {
            return Late::default();
        }
        let Some(tracking) = &mut self.tracking else {
            return Late::default();
        };
        let writes = self.run.last() == LastCall::Write;
        if writes && tracking.options.no_loop {
            tracking.meanwhile.note_own(position);
        }
        let broadcast = tracking.options.broadcast;
        Late {
            broadcast,
            ..tracking.meanwhile.end(position, writes)
        }
    }

    /// Whether the client is told of a change now: it may know the key, and the change is not its own.
    pub(crate) fn is_to_be_told(&mut self, key: &[u8], at: Position) -> bool {
        let call_reads = self.run.call_reads();
        let may = key.starts_with(self.standing.key_prefix());
        let Some(tracking) = self.tracking.as_mut().filter(|_| may) else {
            return false;
        };
        let no_loop = tracking.options.no_loop;
        if no_loop && tracking.meanwhile.is_own(at) {
            return false;
        }
        match call_reads {
            // Perhaps it is of the write that is under way.
            Some(false) if no_loop => {
                tracking.meanwhile.hold(key, at);
                false
            }
            // Which keys are read is known with the table alone.
            Some(_) if tracking.options.broadcast => {
                tracking.meanwhile.note(key, at);
                true
            }
            _ => true,
        }
    }

    /// All that a client knows is invalid. Says whether it is to be told.
    pub(crate) fn note_all_invalid(&mut self, at: Position, broadcast_only: bool) -> bool {
        let calls = self.run.call_reads().is_some();
        let Some(tracking) = &mut self.tracking else {
            return false;
        };
        let is_meant = tracking.options.broadcast || !broadcast_only;
        if is_meant && calls && tracking.options.broadcast {
            tracking.meanwhile.note_all(at);
        }
        is_meant
    }

    /// The connection that is told instead of this one, and as whom that one has to act.
    pub(crate) fn redirection(&self) -> Option<(u64, Option<OnBehalf>)> {
        let redirect = self.tracking.as_ref()?.options.redirect?;
        Some((redirect, self.standing.on_behalf()))
    }

    /// Whether it acts as this user.
    pub(crate) fn acts_as(&self, user: Option<OnBehalf>) -> bool {
        self.standing.on_behalf() == user
    }

    /// The connection that was told instead has gone.
    pub(crate) fn break_redirection(&mut self) {
        let Some(tracking) = &mut self.tracking else {
            return;
        };
        if std::mem::replace(&mut tracking.is_broken, true) {
            return;
        }
        let redirect = tracking.options.redirect.unwrap_or(0) as i64;
        if self.replies.push_broken_redirection(redirect) {
            self.end_if_unread();
        }
    }
}

impl Tracking {
    fn flags(&self) -> Vec<&'static str> {
        let options = &self.options;
        let chosen = match (options.choice, self.caching) {
            (Choice::All, _) => &[][..],
            (Choice::Chosen, false) => &["optin"],
            (Choice::Chosen, true) => &["optin", "caching-yes"],
            (Choice::NotExcluded, false) => &["optout"],
            (Choice::NotExcluded, true) => &["optout", "caching-no"],
        };
        let mut flags = vec!["on"];
        flags.extend(options.broadcast.then_some("bcast"));
        flags.extend(chosen);
        flags.extend(options.no_loop.then_some("noloop"));
        flags.extend(self.is_broken.then_some("broken_redirect"));
        flags
    }
}
