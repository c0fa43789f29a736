//! The server end of a session: a slot per concurrent request, its response kept until the next one.
//!
//! [`ServerEnd`] is one end. [`Responses`] is the state that all server ends of an endpoint share: the queue of
//! answers and the limits of requests. The files beside this one add an operation or a packet type each.

mod answers;
mod count;
mod hold;
mod request;
mod request_for_response;
mod respond;
mod slot;
mod transmit;

pub(crate) use answers::ReplyPacket;
pub(crate) use request::Whole;
pub(crate) use respond::Responded;
pub(crate) use slot::ServerSlot;

use self::answers::{AnswerQueue, ReplyKind};
use crate::config::Config;
use crate::prefetch::prefetch;
use crate::rpc::budget::{Account, SlotId};
use crate::session::api::DownReason;
use crate::session::peer::Received;
use crate::session::shares::Holder;
use crate::session::terms::Terms;
use crate::stats::Drops;
use crate::time::{Duration, Instant};

/// State of a server end: slots, nothing else. The client drives the protocol.
#[derive(Default)]
pub(crate) struct ServerEnd {
    slots: Box<[ServerSlot]>,
    /// When to scan what the slots hold; `FAR_FUTURE` exactly while none holds anything.
    scan_at: Instant,
    /// Requests in a row that the client began and never finished.
    strikes: u8,
    /// Whom its memory is counted for.
    account: Account,
}

/// State that the server ends of an endpoint share.
pub(crate) struct Responses {
    answers: AnswerQueue,
    /// The largest request.
    message_bytes: usize,
    /// The interval of the scans of what slots hold.
    hold_timeout: Duration,
}

/// The effect of a client's packet.
#[must_use]
pub(crate) struct RequestEffect {
    /// A request made progress: the peer is alive.
    pub(crate) is_progress: bool,
    /// Memory is held from now on; it must be scanned then.
    pub(crate) scan_at: Option<Instant>,
    pub(crate) then: Then,
}

/// The caller's next step.
pub(crate) enum Then {
    Nothing,
    /// The client broke the protocol, or goes on with what is not here any more.
    EndSession(DownReason),
    /// There is room for the request when this place has given its memory up: take the packet then.
    MakeRoom(SlotId),
    /// The request is complete: call its handler.
    Call(Whole),
}

impl RequestEffect {
    const NOTHING: Self = Self {
        is_progress: false,
        scan_at: None,
        then: Then::Nothing,
    };
    const VIOLATION: Self = Self {
        is_progress: false,
        scan_at: None,
        then: Then::EndSession(DownReason::Violation),
    };
    const GAVE_WAY: Self = Self {
        is_progress: false,
        scan_at: None,
        then: Then::EndSession(DownReason::GaveWay),
    };
}

impl ServerEnd {
    pub(crate) fn new(terms: &Terms) -> Self {
        Self {
            slots: (0..terms.slots).map(|_| ServerSlot::new()).collect(),
            scan_at: Instant::FAR_FUTURE,
            strikes: 0,
            account: Account::default(),
        }
    }

    /// The session has this index, and counts for this holder.
    pub(crate) fn count_for(&mut self, holder: Holder, session: u16) {
        self.account = Account { holder, session };
    }

    /// When the next scan of what the slots hold is due.
    pub(crate) fn scan_at(&self) -> Instant {
        self.scan_at
    }

    /// Begins to fetch a slot.
    #[inline]
    pub(crate) fn prefetch_slot(&self, slot: u8) {
        if let Some(slot) = self.slots.get(usize::from(slot)) {
            prefetch::<_, 2>(slot);
        }
    }
}

impl Responses {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            answers: AnswerQueue::new(config.answers),
            message_bytes: config.message_bytes,
            hold_timeout: config.hold_timeout,
        }
    }

    /// Whether no answer waits to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// The next answer to send.
    pub(crate) fn next(&self) -> Option<ReplyPacket> {
        self.answers.front()
    }

    /// The next answer has been sent, but for this rest.
    pub(crate) fn on_sent(&mut self, rest: Option<ReplyKind>) {
        match rest {
            None => self.answers.pop_front(),
            Some(rest) => self.answers.set_front(rest),
        }
    }

    /// Queues the answer to a packet. Without room the client will ask again.
    fn answer(&mut self, rx: &Received<'_>, what: ReplyKind, drops: &mut Drops) {
        let header = &rx.packet.header;
        let answer = ReplyPacket {
            session: rx.session,
            slot: header.request.slot(),
            round: header.flags.round(),
            ecn: rx.ecn,
            sequence: header.request.sequence(),
            arrived_at: rx.arrived_at,
            what,
        };
        self.push(answer, drops);
    }

    fn push(&mut self, answer: ReplyPacket, drops: &mut Drops) {
        if !self.answers.push(answer) {
            drops.answers_full += 1;
        }
    }
}

#[cfg(test)]
impl ServerEnd {
    /// Memory of requests that are being received.
    pub(crate) fn assembly_bytes(&self) -> usize {
        let slots = self.slots.iter();
        let parts = slots.filter_map(|slot| slot.assembly.as_ref());
        parts.map(|part| part.len()).sum()
    }

    /// Memory of responses that are counted.
    pub(crate) fn response_bytes(&self) -> usize {
        let counted = |slot: &&ServerSlot| slot.counted == slot::Counted::Response;
        let slots = self.slots.iter().filter(counted);
        let responses = slots.map(|slot| slot.response.as_ref().map_or(0, |held| held.len()));
        responses.sum()
    }

    /// Whom the session is counted for.
    pub(crate) fn account(&self) -> Account {
        self.account
    }

    /// The first slot, in words.
    pub(crate) fn describe_slot(&self) -> String {
        let slot = &self.slots[0];
        format!("{:?} {}.{}", slot.state, slot.sequence, slot.received)
    }
}
