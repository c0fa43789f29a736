//! CLIENT TRACKING: which of a client's keys are watched for it, and who hears of them.
//!
//! ```text
//!               ON, once the stream of changes is there                the other connection has gone
//!      off ----------------------------------------------> tracking -------------------------------> tracking for nobody
//!       ^                                                     |  ^                                        |  |
//!       +----------------- OFF, RESET, the end ---------------+  +----------------- ON --------------------+ |
//!       +----------------------------------------------------------------------------------------------------+
//! ```
//!
//! Invariant: the broker knows a client and its prefixes exactly while the client tracks. A key is noted there before its
//! read is sent.

use trine_commands::Writer;
use trine_commands::errors::{NOT_AN_INTEGER, Refusal, SYNTAX};
use trine_commands::table::Spec;
use trine_kvstore::{Position, integer};

use super::broker::Broker;
use super::late::{Late, Meanwhile};
use crate::limits::{CLIENT_PREFIXES_MAX, PREFIX_CHARGE_BYTES};

const SWITCHED_BCAST: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and \
    then re-enabling it with a different mode.";
const SWITCHED_OPT: &str = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
    then re-enabling it with a different mode.";

/// Which reads of a client are tracked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Choice {
    #[default]
    All,
    /// Those after CLIENT CACHING YES.
    Chosen,
    /// All but those after CLIENT CACHING NO.
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

/// What a client tracks, if anything.
#[derive(Default, Debug)]
pub(super) struct Tracker(Option<Box<Tracking>>);

/// A client that tracks.
#[derive(Default, Debug)]
struct Tracking {
    options: Options,
    /// CLIENT CACHING was said, and counts for the next command.
    caching: bool,
    /// The same as it was before the call that is under way.
    caching_before: bool,
    /// The connection that is told instead has gone.
    is_broken: bool,
    meanwhile: Meanwhile,
}

impl Options {
    /// The prefixes that are tracked.
    pub(super) fn prefixes(&self) -> &[Vec<u8>] {
        &self.prefixes
    }

    /// Reads the words behind ON or OFF. `finds` says whether a connection is there that may be told.
    pub(super) fn read(words: &[&[u8]], finds: &dyn Fn(u64) -> bool) -> Result<Self, Refusal> {
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

impl Tracker {
    /// Whether the client tracks.
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether these options fit what the client tracks already.
    pub(super) fn check(&self, options: &Options) -> Result<(), Refusal> {
        options.check(self.0.as_ref().map(|tracking| &tracking.options))
    }

    /// CLIENT TRACKING ON of the client with number `id`.
    pub(super) fn turn_on(
        &mut self,
        id: u64,
        mut options: Options,
        broker: &mut Broker,
    ) -> Result<(), Refusal> {
        if options.broadcast && options.prefixes.is_empty() && self.prefixes().is_empty() {
            options.prefixes.push(Vec::new());
        }
        if !broker.has_room_for_prefixes(options.prefixes.len()) {
            return Err("ERR too many prefixes are tracked at this server".to_owned());
        }
        broker.track(id, &options.prefixes);
        let tracking = self.0.get_or_insert_default();
        let mut prefixes = std::mem::take(&mut tracking.options.prefixes);
        prefixes.append(&mut options.prefixes);
        options.prefixes = prefixes;
        assert_eq!(
            options.broadcast,
            !options.prefixes.is_empty(),
            "broadcasts are of prefixes"
        );
        (tracking.options, tracking.is_broken) = (options, false);
        Ok(())
    }

    /// The client tracks nothing any more.
    pub(super) fn turn_off(&mut self, id: u64, broker: &mut Broker) {
        if let Some(tracking) = self.0.take() {
            broker.untrack(id, tracking.options.prefixes.iter());
        }
    }

    /// CLIENT CACHING.
    pub(super) fn choose(&mut self, word: &[u8]) -> Result<(), Refusal> {
        let Some(tracking) = &mut self.0 else {
            return Err("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
                mode enabled"
                .to_owned());
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
            _ => return Err(SYNTAX.to_owned()),
        };
        if tracking.options.choice != needed {
            return Err(text.to_owned());
        }
        tracking.caching = true;
        Ok(())
    }

    /// CLIENT GETREDIR.
    pub(super) fn redirected_to(&self) -> i64 {
        match &self.0 {
            None => -1,
            Some(tracking) => tracking.options.redirect.map_or(0, |id| id as i64),
        }
    }

    /// The reply to CLIENT TRACKINGINFO.
    pub(super) fn write_info(&self, writer: &mut Writer<'_>) {
        let flags = self.0.as_deref().map_or(vec!["off"], Tracking::flags);
        writer.map(3);
        writer.bulk(b"flags");
        writer.set(flags.len());
        flags.iter().for_each(|flag| writer.bulk(flag.as_bytes()));
        writer.bulk(b"redirect");
        writer.integer(self.redirected_to());
        writer.bulk(b"prefixes");
        writer.array(self.prefixes().len());
        self.prefixes()
            .iter()
            .for_each(|prefix| writer.bulk(prefix));
    }

    fn prefixes(&self) -> &[Vec<u8>] {
        let tracking = self.0.as_ref();
        tracking.map_or(&[], |tracking| &tracking.options.prefixes)
    }

    /// A new call is put together.
    pub(super) fn begin_reads(&mut self) {
        if let Some(tracking) = &mut self.0 {
            tracking.meanwhile.begin();
            tracking.caching_before = tracking.caching;
        }
    }

    /// Notes the keys that a command of the client with number `id` reads, before it is sent. A user is told of no key
    /// without this `prefix`, and such a read will be denied.
    pub(super) fn note_reads(
        &mut self,
        spec: &Spec,
        parts: &[&[u8]],
        id: u64,
        prefix: &[u8],
        broker: &mut Broker,
    ) {
        let Some(tracking) = &mut self.0 else {
            return;
        };
        if !spec.reads() {
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

    /// What CLIENT CACHING said counts no more.
    pub(super) fn end_caching(&mut self) {
        if let Some(tracking) = &mut self.0 {
            tracking.caching = false;
        }
    }

    /// The call was not answered: its commands are sent once more.
    pub(super) fn repeat_caching(&mut self) {
        if let Some(tracking) = &mut self.0 {
            tracking.caching = tracking.caching_before;
        }
    }

    /// The call is over, which had writes or not: what its reads have seen, and which invalidations follow its replies.
    pub(super) fn take_late(&mut self, position: Position, writes: bool) -> Late {
        let Some(tracking) = &mut self.0 else {
            return Late::default();
        };
        if writes && tracking.options.no_loop {
            tracking.meanwhile.note_own(position);
        }
        let broadcast = tracking.options.broadcast;
        Late {
            broadcast,
            ..tracking.meanwhile.end(position, writes)
        }
    }

    /// Whether the client is told of a change now: the change is not its own. `call_reads`: whether the call that is under
    /// way only reads, if there is one.
    pub(super) fn is_to_be_told(
        &mut self,
        key: &[u8],
        at: Position,
        call_reads: Option<bool>,
    ) -> bool {
        let Some(tracking) = &mut self.0 else {
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

    /// All that the client knows is invalid. Says whether it is to be told.
    pub(super) fn note_all_invalid(
        &mut self,
        at: Position,
        broadcast_only: bool,
        has_call: bool,
    ) -> bool {
        let Some(tracking) = &mut self.0 else {
            return false;
        };
        let is_meant = tracking.options.broadcast || !broadcast_only;
        if is_meant && has_call && tracking.options.broadcast {
            tracking.meanwhile.note_all(at);
        }
        is_meant
    }

    /// The connection that is told instead of this one.
    pub(super) fn redirect(&self) -> Option<u64> {
        self.0.as_ref()?.options.redirect
    }

    /// The connection that was told instead has gone. Its number, the first time.
    pub(super) fn break_redirection(&mut self) -> Option<i64> {
        let tracking = self.0.as_mut()?;
        let was_broken = std::mem::replace(&mut tracking.is_broken, true);
        let redirect = tracking.options.redirect.unwrap_or(0) as i64;
        (!was_broken).then_some(redirect)
    }

    /// Bytes of memory that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |tracking| tracking.held_bytes())
    }
}

impl Tracking {
    fn held_bytes(&self) -> usize {
        let prefixes = self.options.prefixes.iter();
        let prefixes: usize = prefixes
            .map(|prefix| 2 * prefix.len() + PREFIX_CHARGE_BYTES)
            .sum();
        size_of::<Self>() + prefixes + self.meanwhile.held_bytes()
    }

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
