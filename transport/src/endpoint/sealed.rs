//! Sealed sessions: packets are sealed as the last step before they are handed out, and opened as the first.

use super::Endpoint;
use crate::app::App;
use crate::backend::{Route, RxPacket, TxBatch};
use crate::keys::{KeyId, Keys, Stage};
use crate::session::{Output, SessionId, Sessions};
use crate::time::{Clock, Instant};
use crate::wire::{
    Opened, RunSealer, SealedRun, SinglePacket, names_session, seal_mark, split_first,
};
use trine_seal::{FAILURES_MAX, NotOpened};

impl<R: Route> Endpoint<R> {
    /// From now on sessions can be sealed, and must be if `keys` say so. Called again, this changes the keys of later
    /// sessions; those that are established stay.
    pub fn set_keys(&mut self, keys: Keys) {
        self.sessions.set_keys(keys);
    }

    /// Changes the keys while sessions stand. Sessions that the new keys would not allow end: those of a key that is not
    /// known any more, and those without a seal where keys are required now. Returns how many these are.
    pub fn change_keys(&mut self, now: Instant, keys: Keys) -> usize {
        let is_over = |key: &KeyId| keys.find(key).is_none();
        self.sessions.set_keys(keys.clone());
        // They would stand with what was asked for.
        for session in self.sessions.asked_with(is_over) {
            self.disconnect(now, session);
        }
        let of_keys = self.end_sessions_of(now, is_over);
        let unsealed = match keys.stage {
            Stage::Accept => 0,
            Stage::Require => self.end_unsealed(now, |_| true),
        };
        of_keys + unsealed
    }

    /// Ends the established sessions without a seal whose peers `are_meant`. Returns how many these are.
    pub fn end_unsealed(&mut self, now: Instant, are_meant: impl Fn(&R) -> bool) -> usize {
        let sessions = self.sessions.unsealed();
        let over: Vec<SessionId> = sessions
            .filter(|(_, route)| are_meant(route))
            .map(|(session, _)| session)
            .collect();
        for session in &over {
            self.disconnect(now, *session);
        }
        over.len()
    }

    /// Established sessions without a seal that others have opened, and where these are.
    pub fn unsealed_callers(&self) -> impl Iterator<Item = (SessionId, R)> + '_ {
        let sessions = self.sessions.unsealed();
        sessions.filter(|(session, _)| self.sessions.is_server_end(*session))
    }

    /// The key that the peer of an established session has proven to hold. `None` if the session is not sealed.
    #[must_use]
    pub fn key(&self, session: SessionId) -> Option<KeyId> {
        self.sessions.key(session)
    }

    /// The established sessions that are sealed, of both directions, each with the key of its peer.
    pub fn sealed_sessions(&self) -> impl Iterator<Item = (SessionId, KeyId)> {
        self.sessions.sealed()
    }

    /// Ends the sealed sessions whose keys are over. Returns how many these are.
    pub fn end_sessions_of(&mut self, now: Instant, is_over: impl Fn(&KeyId) -> bool) -> usize {
        self.sessions.end_halves_of(&is_over);
        let over = self.sessions.of_keys(is_over);
        for session in &over {
            self.disconnect(now, *session);
        }
        over.len()
    }

    /// As `transmit_messages`, and seals the packets of sealed sessions on their way into `tx`.
    pub(super) fn transmit_sealed(&mut self, clock: &impl Clock, tx: &mut TxBatch<R>) -> usize {
        let empty = TxBatch::with_capacity(0);
        let mut unsealed = std::mem::replace(&mut self.seal_memory.unsealed, empty);
        if unsealed.capacity() != tx.capacity() {
            unsealed = TxBatch::with_capacity(tx.capacity());
        }
        unsealed.leave_room(tx.len());
        self.fast_path.transmit(&mut unsealed);
        self.transmit_messages(clock, &mut unsealed);
        let count = unsealed.len();
        seal_all(
            &mut self.sessions,
            &mut self.seal_memory.sealer,
            &unsealed,
            tx,
        );
        unsealed.clear();
        self.seal_memory.unsealed = unsealed;
        count
    }

    /// Takes in a run of sealed packets at the front of `bytes`. Returns the bytes after it; `None` if there is none, and
    /// nothing is done.
    pub(super) fn on_sealed<'a>(
        &mut self,
        now: Instant,
        bytes: &'a [u8],
        datagram: &RxPacket<'_, R>,
        app: &mut impl App<R>,
    ) -> Option<&'a [u8]> {
        let index = names_session(bytes)?;
        let session = self.sessions.at(index);
        let is_sealed = session.is_some_and(|session| session.is_sealed());
        if !is_sealed && seal_mark(bytes).is_none() {
            return None;
        }
        let Some((run, after)) = SealedRun::cut(bytes) else {
            self.counters.stats.drops.forged += 1;
            return Some(&[]);
        };
        let mut opened = std::mem::take(&mut self.seal_memory.opened);
        if let Some(session) = self.open(now, &run, datagram, &mut opened) {
            self.on_opened(now, session, opened.packets(), datagram, app);
        }
        self.seal_memory.opened = opened;
        Some(after)
    }

    /// Opens a run. Returns its session.
    fn open(
        &mut self,
        now: Instant,
        run: &SealedRun<'_>,
        datagram: &RxPacket<'_, R>,
        opened: &mut Opened,
    ) -> Option<SessionId> {
        let (index, route) = (run.session(), datagram.route);
        let out = &mut Output::new(&mut self.control, &mut self.counters.stats);
        let known = self.sessions.at(index).filter(|session| {
            session.is_sealed()
                && run
                    .clear_body()
                    .is_none_or(|body| session.is_probed_by(body))
        });
        let Some(session) = known else {
            match run.clear_body() {
                Some(body) => self
                    .sessions
                    .reset_sealed(now, route, body, run.token(), out),
                None => out.count_drops().no_session += 1,
            }
            return None;
        };
        if session.peer_of(index).route != route {
            out.count_drops().wrong_route += 1;
            return None;
        }
        let (id, is_proven) = (session.id(index), session.is_open() || session.is_closing());
        let opener = &mut session.sealed()?.opener;
        if let Err(error) = opened.open(run, opener) {
            let is_over = opener.failures() >= FAILURES_MAX;
            match error {
                NotOpened::Replayed => out.count_drops().replayed += 1,
                NotOpened::Forged => out.count_drops().forged += 1,
            }
            if is_over && is_proven {
                self.end_for_violation(index);
            }
            return None;
        }
        self.counters.stats.sealed_opened += 1;
        if is_proven {
            return Some(id);
        }
        let out = &mut Output::new(&mut self.control, &mut self.counters.stats);
        let (gave_way, stands) = self.sessions.on_proven(now, index, out);
        self.discard(gave_way);
        stands.then_some(id)
    }

    /// Takes opened packets in. A handler may end their session in the middle.
    fn on_opened(
        &mut self,
        now: Instant,
        session: SessionId,
        packets: &[u8],
        datagram: &RxPacket<'_, R>,
        app: &mut impl App<R>,
    ) {
        let mut rest = packets;
        while !rest.is_empty() && self.sessions.get(session).is_some() {
            rest = match SinglePacket::cut_opened(rest) {
                Some((packet, after)) if self.on_single(now, &packet, datagram, app) => after,
                _ => {
                    let cut = split_first(rest).map(|(packet, after)| (packet.opened(), after));
                    self.on_cut(now, cut, datagram, app)
                }
            };
        }
    }
}

/// Seals what has to be sealed. Packets of one session that lie side by side share a tag, up to a datagram.
fn seal_all<R: Route>(
    sessions: &mut Sessions<R>,
    sealer: &mut RunSealer,
    unsealed: &TxBatch<R>,
    tx: &mut TxBatch<R>,
) {
    let mut next = 0;
    while let Some(item) = unsealed.get(next) {
        let Some(mark) = seal_mark(item.head) else {
            tx.push_item(&item);
            next += 1;
            continue;
        };
        // A session may end between the writing of a packet and its sealing.
        let Some(session) = sessions.marked(mark) else {
            next += 1;
            continue;
        };
        let bytes_max = session.mtu();
        let Some(sealed) = session.sealed() else {
            next += 1;
            continue;
        };
        let run = unsealed.copied_while(next, |packets, bytes, head| {
            RunSealer::has_room(packets)
                && bytes + head.len() + RunSealer::EXTRA <= bytes_max
                && seal_mark(head) == Some(mark)
        });
        match run {
            Some((packets, count)) if count > 1 => {
                let out = tx.room_for(packets.len() + RunSealer::EXTRA);
                sealer.seal_several(&mut sealed.sealer, packets, out);
                tx.push_room(item.route, packets.len() + RunSealer::EXTRA);
                next += count;
            }
            _ => {
                let len = item.len() + RunSealer::EXTRA;
                let body: &[u8] = item.body.map_or(&[], |body| body);
                sealer.seal_one(&mut sealed.sealer, item.head, body, tx.room_for(len));
                tx.push_room(item.route, len);
                next += 1;
            }
        }
    }
}
