//! Sealed sessions: packets are sealed as the last step before they are handed out, and opened as the first.

use super::Endpoint;
use super::chains::{Chains, SendPath};
use super::seal_memory::SealMemory;
use crate::app::App;
use crate::backend::{Route, RxPacket, TxBatch, TxItem};
use crate::keys::{KeyId, Keys, Stage};
use crate::session::{ControlOutput, SessionId, Sessions};
use crate::time::{Clock, Instant};
use crate::wire::{
    OpenedPackets, RunSealer, SealedRun, SinglePacket, names_session, seal_mark, split_first,
};
use trine_seal::{FAILURES_MAX, NotOpened, Sealer};

impl<R: Route> Endpoint<R> {
    /// From now on sessions can be sealed, and must be if `keys` say so. Called again, this changes the keys of later
    /// sessions; those that are established stay.
    pub fn set_keys(&mut self, keys: Keys) {
        self.sessions.set_keys(keys);
    }

    /// Forgets all keys, in a forked child. What was sealed with them cannot be read or continued here; the sessions are the
    /// parent's.
    pub(crate) fn forget_keys(&mut self) {
        self.config.keys = None;
        self.sessions.forget_keys();
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

    /// The keys of the established sealed sessions that others have opened, one for each session.
    pub fn sealed_callers(&self) -> impl Iterator<Item = KeyId> + '_ {
        let sessions = self.sessions.sealed();
        sessions
            .filter(|(session, _)| self.sessions.is_server_end(*session))
            .map(|(_, key)| key)
    }

    /// Whether sessions without keys are allowed. `None` if this endpoint has no keys.
    #[must_use]
    pub fn key_stage(&self) -> Option<Stage> {
        self.sessions.stage()
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
        let SealMemory { chains, sealer, .. } = &mut self.seal_memory;
        seal_all(&mut self.sessions, chains, sealer, &unsealed, tx);
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
        opened: &mut OpenedPackets,
    ) -> Option<SessionId> {
        let (index, route) = (run.session(), datagram.route);
        let out = &mut ControlOutput::new(&mut self.control, &mut self.counters.stats);
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
        let out = &mut ControlOutput::new(&mut self.control, &mut self.counters.stats);
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
            let single = match self.arrived_at {
                None => SinglePacket::cut_opened(rest),
                Some(_) => None,
            };
            rest = match single {
                Some((packet, after)) if self.on_single(now, &packet, datagram, app) => after,
                _ => {
                    let cut = split_first(rest).map(|(packet, after)| (packet.opened(), after));
                    self.on_cut(now, cut, datagram, app)
                }
            };
        }
    }
}

/// Seals what has to be sealed. Packets of one session share a tag, up to a datagram.
fn seal_all<R: Route>(
    sessions: &mut Sessions<R>,
    chains: &mut Chains,
    sealer: &mut RunSealer,
    unsealed: &TxBatch<R>,
    tx: &mut TxBatch<R>,
) {
    chains.link(unsealed.iter().map(|item| seal_mark(item.head)));
    for (index, item) in unsealed.iter().enumerate() {
        match chains.part(index) {
            SendPath::Unsealed => tx.push_item(&item),
            SendPath::Later => {}
            SendPath::First(mark) => {
                // A session may end between the writing of a packet and its sealing.
                if let Some(session) = sessions.marked(mark) {
                    let bytes_max = session.mtu();
                    if let Some(sealed) = session.sealed() {
                        let sealer = (&mut *sealer, &mut sealed.sealer);
                        seal_chain(sealer, bytes_max, unsealed, chains, index, tx);
                    }
                }
            }
        }
    }
}

fn body_of<'a, R>(item: &TxItem<'a, R>) -> &'a [u8] {
    item.body.map_or(&[], |body| body)
}

/// Seals the packets of a session, as many together as a run and a datagram of `bytes_max` take.
fn seal_chain<R: Route>(
    (run_sealer, sealer): (&mut RunSealer, &mut Sealer),
    bytes_max: usize,
    unsealed: &TxBatch<R>,
    chains: &Chains,
    first: usize,
    tx: &mut TxBatch<R>,
) {
    let item_at = |index| unsealed.get(index).expect("chains are of this batch");
    let mut next = Some(first);
    while let Some(begin) = next {
        let item = item_at(begin);
        let (mut packets, mut len) = (1, item.len() + RunSealer::EXTRA);
        next = chains.after(begin);
        while let Some(index) = next
            && run_sealer.has_room(packets)
            && len + item_at(index).len() <= bytes_max
        {
            packets += 1;
            len += item_at(index).len();
            next = chains.after(index);
        }
        let out = tx.room_for(len);
        let is_sealed = if packets == 1 {
            run_sealer.seal_one(sealer, item.head, body_of(&item), out)
        } else {
            let run = chains.from(begin).take(packets).map(item_at);
            let run = run.map(|item| (item.head, body_of(&item)));
            run_sealer.seal_several(sealer, run, out)
        };
        if !is_sealed {
            return;
        }
        // Sessions agree on 16 bits.
        tx.push_room(item.route, len, bytes_max as u16);
    }
}
