//! Exactly once: which commands of which client have been applied, and their answers.
//!
//! The sessions are part of the replicated state: every replica has the same sessions at the same log index. If a
//! leader dies after it applied a command, the next leader answers the client's retry from here.
//!
//! A session covers the sequences from the lowest awaited one to 64 above it. Sequences below were answered and will
//! not be asked for again; those above are refused. Sessions are kept in the order of their last use, which is the
//! order of their group time. The first open one is therefore the longest idle.

mod charges;
mod replies;
mod reply_bytes;
mod shares;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use trine_canary as canary;
use trine_kvstore::Position;
use trine_protocol::message::{ClientStatus, NO_CHECK};

use crate::config::{
    IDLE_TO_GIVE_WAY_NS, SessionLimits, VERSION_CLOSED_SESSIONS_STAY, VERSION_SESSIONS_GIVE_WAY,
};
use crate::state_machine::codec::{Cursor, StateError, put_bytes, put_u32, put_u64};
use charges::Charges;
pub(crate) use replies::CachedReply;
use replies::Replies;
pub(crate) use shares::AnswerOwner;

/// Bytes that a session counts beside its cached replies.
pub(crate) const SESSION_CHARGE: u64 = 128;

const NONE: u32 = u32::MAX;

/// In the flags of a session in a snapshot: it is closed.
const CLOSED: u8 = 1;
/// The same: the number of its user (u32) follows.
const OF_A_USER: u8 = 2;
/// The same: each answer has the check of its command (u32) behind its position.
const CHECKED: u8 = 4;

/// A session's decision on a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionVerdict {
    /// New: apply it, then [`ClientSessions::record`] its reply.
    Apply,
    /// Applied before: give this answer ([`ClientSessions::cached`]).
    Duplicate,
    /// Not applied, and answered with this.
    Refuse(ClientStatus),
}

/// How a registration ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Registration {
    /// The session's client id: the position of the (first) registration.
    Session(Position),
    /// Every session is in use.
    Full,
}

#[derive(Debug)]
struct Session {
    client: u64,
    /// The number that the client drew when it registered, so that a repeated registration finds the session again.
    nonce: u64,
    /// The number of the user that registered it, 0 for none: it belongs to that user alone.
    user: u32,
    last_used_ns: u64,
    /// A closed session only answers duplicates, and is the first to go.
    closed: bool,
    replies: Replies,
    /// Neighbours in the list of open or of closed sessions.
    previous: u32,
    next: u32,
}

/// A list through the sessions, least recently used first.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    len: u32,
}

impl List {
    const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
        len: 0,
    };
}

/// Client ids are positions that this state machine has handed out: no client can choose them, so a cheap hash does.
#[derive(Default)]
struct PositionHasher(u64);

impl Hasher for PositionHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(20);
    }
}

/// Counters since the start; not part of the replicated state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct SessionCounters {
    /// Idle sessions that were evicted.
    pub(crate) evicted: u64,
    /// Those of them that gave way before the end of their time to live.
    pub(crate) gave_way: u64,
    /// Registrations that were refused.
    pub(crate) refused: u64,
    /// Commands that were answered from a cached reply.
    pub(crate) duplicates: u64,
    /// Commands whose sequence was used for another one.
    pub(crate) sequences_used: u64,
}

/// Every client's session.
#[derive(Debug)]
pub(crate) struct ClientSessions {
    limits: SessionLimits,
    /// Some exactly for the slots that are in a list.
    slots: Vec<Option<Session>>,
    free: Vec<u32>,
    by_client: HashMap<u64, u32, BuildHasherDefault<PositionHasher>>,
    /// Clients draw these numbers, so this one keeps the standard, keyed hash. It is only ever looked up.
    by_nonce: HashMap<u64, u32>,
    open: List,
    closed: List,
    charges: Charges,
    /// Idle sessions give way to new ones. It follows from the version of the state.
    gives_way: bool,
    /// Closed sessions are kept as [`VERSION_CLOSED_SESSIONS_STAY`] says. It follows from the version of the state.
    remembers_closed: bool,
    counters: SessionCounters,
}

impl ClientSessions {
    /// No sessions yet.
    #[must_use]
    pub(crate) fn new(limits: SessionLimits) -> Self {
        Self {
            limits,
            slots: Vec::new(),
            free: Vec::new(),
            by_client: HashMap::default(),
            by_nonce: HashMap::new(),
            open: List::EMPTY,
            closed: List::EMPTY,
            charges: Charges::default(),
            gives_way: false,
            remembers_closed: false,
            counters: SessionCounters::default(),
        }
    }

    /// The state has this version.
    pub(crate) fn set_version(&mut self, version: u8) {
        self.gives_way = version >= VERSION_SESSIONS_GIVE_WAY;
        self.remembers_closed = version >= VERSION_CLOSED_SESSIONS_STAY;
    }

    /// [`ClientSessions::register_for`] nobody.
    #[cfg(test)]
    pub(crate) fn register(&mut self, at: Position, nonce: u64, now_ns: u64) -> Registration {
        self.register_for(at, nonce, 0, now_ns)
    }

    /// Opens a session whose client id is `at`, or finds the one that the same client has opened before. It belongs to
    /// the user with this number, 0 for none. A session that is found stays its user's.
    pub(crate) fn register_for(
        &mut self,
        at: Position,
        nonce: u64,
        user: u32,
        now_ns: u64,
    ) -> Registration {
        if nonce != 0
            && let Some(&slot) = self.by_nonce.get(&nonce)
        {
            self.touch(slot, now_ns);
            return Registration::Session(Position::from_u64(self.session(slot).client));
        }
        if !self.make_room(now_ns) {
            self.counters.refused += 1;
            return Registration::Full;
        }
        self.insert(Session {
            client: at.as_u64(),
            nonce,
            user,
            last_used_ns: now_ns,
            closed: false,
            replies: Replies::new(1),
            previous: NONE,
            next: NONE,
        });
        Registration::Session(at)
    }

    /// Judges a command: its client, its sequence and its check. A known session counts as used, and forgets answers that its client no longer awaits.
    pub(crate) fn judge(
        &mut self,
        (client, sequence, check): (u64, u64, u32),
        lowest_awaited: u64,
        now_ns: u64,
    ) -> SessionVerdict {
        let Some(&slot) = self.by_client.get(&client) else {
            return SessionVerdict::Refuse(ClientStatus::SessionExpired);
        };
        self.touch(slot, now_ns);
        // A client awaits at least the command that it sends.
        self.forget_below(slot, lowest_awaited.min(sequence));
        let session = self.session(slot);
        if sequence < session.replies.lowest_awaited() {
            return SessionVerdict::Refuse(ClientStatus::Stale);
        }
        let forgotten = canary::planted("dedup window off by one")
            && sequence == session.replies.lowest_awaited();
        if let Some(reply) = session.replies.get(sequence)
            && !forgotten
        {
            if reply.is_to_another(check) && !canary::planted("a sequence is not one command") {
                self.counters.sequences_used += 1;
                return SessionVerdict::Refuse(ClientStatus::SequenceUsed);
            }
            self.counters.duplicates += 1;
            return SessionVerdict::Duplicate;
        }
        if session.closed {
            return SessionVerdict::Refuse(ClientStatus::SessionExpired);
        }
        if !session.replies.covers(sequence) {
            return SessionVerdict::Refuse(ClientStatus::WindowExceeded);
        }
        if !self.has_reply_room(now_ns) && !self.makes_room(slot, sequence) {
            return SessionVerdict::Refuse(ClientStatus::SessionsFull);
        }
        SessionVerdict::Apply
    }

    /// The number that the client of a session drew when it registered, and the number of the user whom the session
    /// belongs to (0 for none). They never change while the session exists, and no other session ever has the same
    /// client id.
    #[must_use]
    pub(crate) fn owner_of(&self, client: u64) -> Option<(u64, u32)> {
        let session = self.session(*self.by_client.get(&client)?);
        Some((session.nonce, session.user))
    }

    /// The user alone.
    #[must_use]
    pub(crate) fn user_of(&self, client: u64) -> Option<u32> {
        let slot = *self.by_client.get(&client)?;
        Some(self.session(slot).user)
    }

    /// Whether the client that drew this number when it registered has an open session.
    #[must_use]
    pub(crate) fn is_open(&self, nonce: u64) -> bool {
        let slot = self.by_nonce.get(&nonce);
        slot.is_some_and(|&slot| !self.session(slot).closed)
    }

    /// The answer of a command that was judged a duplicate.
    #[must_use]
    pub(crate) fn cached(&self, client: u64, sequence: u64) -> Option<&CachedReply> {
        let slot = *self.by_client.get(&client)?;
        self.session(slot).replies.get(sequence)
    }

    /// Keeps the answer of a command that was judged new and has been applied.
    ///
    /// # Panics
    /// When the session does not exist: [`ClientSessions::judge`] has just used it.
    pub(crate) fn record(
        &mut self,
        (client, sequence, check): (u64, u64, u32),
        position: Position,
        response: &[u8],
    ) {
        let slot = self.by_client[&client];
        let reply = CachedReply {
            position,
            check,
            response: response.into(),
        };
        let session = self.session_mut(slot);
        let (user, charge) = (session.user, session.replies.insert(sequence, reply));
        self.charges.add(user, charge);
    }

    /// Ends a session: it still answers duplicates until its room is needed.
    pub(crate) fn close(&mut self, client: u64) {
        let Some(&slot) = self.by_client.get(&client) else {
            return;
        };
        if !self.session(slot).closed {
            self.unlink(slot);
            self.session_mut(slot).closed = true;
            self.link_last(slot);
        }
    }

    /// Open sessions.
    #[must_use]
    pub(crate) fn open_count(&self) -> u64 {
        u64::from(self.open.len)
    }

    /// Closed sessions that are still remembered.
    #[must_use]
    pub(crate) fn closed_count(&self) -> u64 {
        u64::from(self.closed.len)
    }

    /// The total of sessions and cached replies.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.charges.total()
    }

    /// Counters since the start.
    #[must_use]
    pub(crate) fn counters(&self) -> SessionCounters {
        self.counters
    }

    /// The limits, which are replicated state.
    #[must_use]
    pub(crate) fn limits(&self) -> SessionLimits {
        self.limits
    }

    fn make_room(&mut self, now_ns: u64) -> bool {
        while self.open.len + self.closed.len >= self.limits.count_max {
            if !self.evict_one(now_ns) {
                return false;
            }
        }
        self.has_reply_room(now_ns)
    }

    fn has_reply_room(&mut self, now_ns: u64) -> bool {
        while self.charges.total() >= self.limits.reply_bytes_max {
            if !self.evict_one(now_ns) {
                return false;
            }
        }
        true
    }

    /// Whether there would be room without the answers that the command's own session holds behind it. Those are
    /// answers to later commands, which all go as soon as their client has this one's answer. If the command were
    /// refused, it would wait for them and they for it. This is always true of the session that was let in last, so at
    /// least one session can go on. All sessions together never hold more than the bound and that session's window.
    fn makes_room(&self, slot: u32, sequence: u64) -> bool {
        let replies = &self.session(slot).replies;
        sequence == replies.lowest_awaited()
            && self.charges.total() - replies.charge() < self.limits.reply_bytes_max
    }

    /// Makes room: removes the session that was used longest ago of those that may go. Says whether there was one.
    fn evict_one(&mut self, now_ns: u64) -> bool {
        let (open, closed) = (self.open_to_evict(now_ns), self.closed_to_evict(now_ns));
        let last_used_ns = |slot: u32| self.session(slot).last_used_ns;
        let slot = match (open, closed) {
            (None, None) => return false,
            (Some(slot), None) | (None, Some(slot)) => slot,
            (Some(open), Some(closed))
                if self.remembers_closed && last_used_ns(open) < last_used_ns(closed) =>
            {
                open
            }
            (Some(_), Some(closed)) => closed,
        };
        let session = self.session(slot);
        if !session.closed {
            let idle_ns = now_ns.saturating_sub(session.last_used_ns);
            self.counters.evicted += 1;
            self.counters.gave_way += u64::from(idle_ns < self.limits.ttl_ns);
        }
        self.remove(slot);
        true
    }

    /// The open session that was used longest ago, if it has been idle for long enough. A session that is used at this
    /// very moment is never chosen. It was the whole time to live once: then 65,536 registrations, which take less than a
    /// second, kept all new clients out for a minute.
    fn open_to_evict(&self, now_ns: u64) -> Option<u32> {
        let ttl_ns = self.limits.ttl_ns;
        let least_ns = match self.gives_way {
            true => ttl_ns.min(IDLE_TO_GIVE_WAY_NS),
            false => ttl_ns,
        };
        self.first_idle_for(self.open, least_ns.max(1), now_ns)
    }

    /// The closed session that was used longest ago. One that was closed at this very moment stays: its last answer is
    /// taken from here once the whole entry is applied.
    fn closed_to_evict(&self, now_ns: u64) -> Option<u32> {
        self.first_idle_for(self.closed, u64::from(self.remembers_closed), now_ns)
    }

    fn first_idle_for(&self, list: List, least_ns: u64, now_ns: u64) -> Option<u32> {
        let first = (list.first != NONE).then_some(list.first)?;
        let idle_ns = now_ns.saturating_sub(self.session(first).last_used_ns);
        (idle_ns >= least_ns).then_some(first)
    }

    fn forget_below(&mut self, slot: u32, lowest: u64) {
        let session = self.session_mut(slot);
        let (user, freed) = (session.user, session.replies.forget_below(lowest));
        self.charges.remove(user, freed);
    }

    fn touch(&mut self, slot: u32, now_ns: u64) {
        let session = self.session_mut(slot);
        session.last_used_ns = now_ns;
        // The last one of its list stays there: a client that sends many commands at once is moved once.
        if session.next != NONE {
            self.unlink(slot);
            self.link_last(slot);
        }
    }

    fn insert(&mut self, session: Session) {
        let (client, nonce) = (session.client, session.nonce);
        self.charges.add(session.user, session.charge());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(session);
        let before = self.by_client.insert(client, slot);
        assert_eq!(before, None, "a client id is of one session");
        if nonce != 0 {
            self.by_nonce.insert(nonce, slot);
        }
        self.link_last(slot);
    }

    fn remove(&mut self, slot: u32) {
        self.unlink(slot);
        let Some(session) = self.slots[slot as usize].take() else {
            return;
        };
        self.charges.remove(session.user, session.charge());
        let found = self.by_client.remove(&session.client);
        assert_eq!(found, Some(slot), "a session is found by its client id");
        if session.nonce != 0 {
            self.by_nonce.remove(&session.nonce);
        }
        self.free.push(slot);
    }

    fn session(&self, slot: u32) -> &Session {
        self.slots[slot as usize]
            .as_ref()
            .expect("the maps and lists name only slots in use")
    }

    fn session_mut(&mut self, slot: u32) -> &mut Session {
        self.slots[slot as usize]
            .as_mut()
            .expect("the maps and lists name only slots in use")
    }

    fn list_mut(&mut self, closed: bool) -> &mut List {
        if closed {
            &mut self.closed
        } else {
            &mut self.open
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Session {
            previous,
            next,
            closed,
            ..
        } = *self.session(slot);
        match previous {
            NONE => self.list_mut(closed).first = next,
            previous => self.session_mut(previous).next = next,
        }
        match next {
            NONE => self.list_mut(closed).last = previous,
            next => self.session_mut(next).previous = previous,
        }
        self.list_mut(closed).len -= 1;
    }

    fn link_last(&mut self, slot: u32) {
        let closed = self.session(slot).closed;
        let last = self.list_mut(closed).last;
        let session = self.session_mut(slot);
        (session.previous, session.next) = (last, NONE);
        match last {
            NONE => self.list_mut(closed).first = slot,
            last => self.session_mut(last).next = slot,
        }
        let list = self.list_mut(closed);
        list.last = slot;
        list.len += 1;
    }

    /// Writes every session into pieces of about `piece_bytes`, at most one reply more, in the order that decides
    /// evictions. A session whose replies do not fit goes on in the next piece, after its head once more.
    #[must_use]
    pub(crate) fn to_pieces(&self, piece_bytes: usize) -> Vec<Vec<u8>> {
        debug_assert_eq!(self.recount(), self.charges, "the charges are exact");
        let mut pieces = Vec::new();
        let mut piece = Vec::new();
        for list in [self.closed, self.open] {
            let mut slot = list.first;
            while slot != NONE {
                let session = self.session(slot);
                session.write(piece_bytes, &mut piece, &mut pieces);
                if piece.len() >= piece_bytes {
                    pieces.push(std::mem::take(&mut piece));
                }
                slot = session.next;
            }
        }
        if !piece.is_empty() {
            pieces.push(piece);
        }
        pieces
    }

    /// Adds the sessions of one piece; pieces come in their order.
    ///
    /// # Errors
    /// When the piece was not made by [`ClientSessions::to_pieces`].
    pub(crate) fn add_piece(&mut self, piece: &[u8]) -> Result<(), StateError> {
        let mut cursor = Cursor::new(piece, "client sessions");
        while !cursor.is_at_end() {
            let session = Session::read(&mut cursor)?;
            let fits = match self.by_client.get(&session.client) {
                Some(&slot) => self.go_on(slot, session),
                None if self.open.len + self.closed.len >= self.limits.count_max => false,
                None => {
                    self.insert(session);
                    true
                }
            };
            if !fits {
                return Err(cursor.error());
            }
        }
        Ok(())
    }

    /// More replies of the session that was read last; says whether they are that.
    fn go_on(&mut self, slot: u32, more: Session) -> bool {
        let is_last = self.list_mut(more.closed).last == slot;
        let session = self.session_mut(slot);
        let known = |(sequence, _): (u64, &CachedReply)| session.replies.get(sequence).is_some();
        let same = session.head() == more.head();
        let has_new = more.replies.iter().next().is_some() && !more.replies.iter().any(known);
        if !is_last || !same || !has_new {
            return false;
        }
        self.charges.add(more.user, more.replies.charge());
        let session = self.session_mut(slot);
        for (sequence, reply) in more.replies.iter() {
            session.replies.insert(sequence, reply.clone());
        }
        true
    }
}

impl Session {
    /// Bytes that count for it.
    fn charge(&self) -> u64 {
        SESSION_CHARGE + self.replies.charge()
    }

    /// Everything but the replies and the place in a list.
    fn head(&self) -> ([u64; 4], bool, u32) {
        let lowest_awaited = self.replies.lowest_awaited();
        let numbers = [self.client, self.nonce, self.last_used_ns, lowest_awaited];
        (numbers, self.closed, self.user)
    }

    /// Appends the session to `piece`; a piece that is full goes to `pieces`.
    fn write(&self, piece_bytes: usize, piece: &mut Vec<u8>, pieces: &mut Vec<Vec<u8>>) {
        let is_checked = self
            .replies
            .iter()
            .any(|(_, reply)| reply.check != NO_CHECK);
        let mut replies = self.replies.iter().peekable();
        loop {
            let (numbers, closed, user) = self.head();
            numbers.iter().for_each(|&number| put_u64(piece, number));
            // Members of earlier versions read the sessions that belong to no user, and those without checks.
            let of_a_user = if user == 0 { 0 } else { OF_A_USER };
            let checked = if is_checked { CHECKED } else { 0 };
            piece.push(u8::from(closed) | of_a_user | checked);
            if user != 0 {
                put_u32(piece, user);
            }
            let (count_at, mut count) = (piece.len(), 0_u32);
            put_u32(piece, 0);
            for (sequence, reply) in replies.by_ref() {
                put_u64(piece, sequence);
                put_u64(piece, reply.position.as_u64());
                if is_checked {
                    put_u32(piece, reply.check);
                }
                put_bytes(piece, &reply.response);
                count += 1;
                if piece.len() >= piece_bytes {
                    break;
                }
            }
            piece[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
            if replies.peek().is_none() {
                return;
            }
            pieces.push(std::mem::take(piece));
        }
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, StateError> {
        let (client, nonce) = (cursor.u64()?, cursor.u64()?);
        let (last_used_ns, lowest_awaited) = (cursor.u64()?, cursor.u64()?);
        let flags = cursor.u8()?;
        if flags & !(CLOSED | OF_A_USER | CHECKED) != 0 {
            return Err(cursor.error());
        }
        let closed = flags & CLOSED != 0;
        let user = match flags & OF_A_USER {
            0 => 0,
            _ => cursor.u32()?,
        };
        if user == 0 && flags & OF_A_USER != 0 {
            return Err(cursor.error());
        }
        let mut replies = Replies::new(lowest_awaited);
        for _ in 0..cursor.u32()? {
            let (sequence, reply) = read_reply(cursor, flags & CHECKED != 0)?;
            if !replies.covers(sequence) || replies.get(sequence).is_some() {
                return Err(cursor.error());
            }
            replies.insert(sequence, reply);
        }
        Ok(Self {
            client,
            nonce,
            user,
            last_used_ns,
            closed,
            replies,
            previous: NONE,
            next: NONE,
        })
    }
}

fn read_reply(cursor: &mut Cursor<'_>, is_checked: bool) -> Result<(u64, CachedReply), StateError> {
    let (sequence, position) = (cursor.u64()?, Position::from_u64(cursor.u64()?));
    let check = match is_checked {
        true => cursor.u32()?,
        false => NO_CHECK,
    };
    let response = cursor.bytes()?.into();
    let reply = CachedReply {
        position,
        check,
        response,
    };
    Ok((sequence, reply))
}

#[cfg(test)]
mod tests;
