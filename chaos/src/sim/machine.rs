//! One machine: a program on an endpoint, its receive queue, and its clock.

use super::clock::LocalClock;
use super::paths::DEVICE_BYTES;
use super::seals::Seals;
use super::{Host, Program};
use trine_transport::app::Cx;
use trine_transport::backend::{RxBatch, RxPacket, TxBatch};
use trine_transport::backend_api::Datagrams;
use trine_transport::endpoint::Endpoint;
use trine_transport::time::Instant;

/// Datagrams that wait to be received; more are lost, as in a socket's buffer.
const INBOX_MAX: usize = 4_096;
/// Datagrams that one turn takes in.
const BURST_MAX: usize = 64;
/// Buffers of datagrams that are kept for later ones.
const SPARE_MAX: usize = 256;
/// Transmit batches of one turn; the rest goes with the next.
const TRANSMITS_MAX: usize = 16;

pub(crate) struct Machine<P> {
    pub(crate) endpoint: Endpoint<Host>,
    pub(crate) program: P,
    pub(crate) clock: LocalClock,
    inbox: Vec<(Host, Vec<u8>)>,
    tx: TxBatch<Host>,
    /// The machine pauses until then.
    pub(crate) paused_until: Instant,
    /// The next turn has read the clock then, in simulated time: the machine was paused behind that.
    pub(crate) begun: Option<Instant>,
    /// The processor is busy with the last turn until then.
    pub(crate) busy_until: Instant,
    /// The sealed packets that came, if the simulation has keys.
    pub(crate) seals: Option<Seals>,
    /// Where paths carry little: the datagrams of a batch.
    pub(crate) datagrams: Option<Datagrams<Host>>,
    /// A turn is wanted whatever the deadlines say: the first one, or after a call from outside.
    pub(crate) woken: bool,
}

/// A wire packet that leaves.
pub(crate) struct Sent {
    pub(crate) to: Host,
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the datagram that it is a part of, where paths carry little; otherwise 0.
    pub(crate) datagram_bytes: usize,
}

impl<P: Program> Machine<P> {
    pub(crate) fn new(endpoint: Endpoint<Host>, program: P, clock: LocalClock) -> Self {
        Self {
            endpoint,
            program,
            clock,
            inbox: Vec::new(),
            tx: TxBatch::new(),
            paused_until: Instant::ZERO,
            begun: None,
            busy_until: Instant::ZERO,
            seals: None,
            datagrams: None,
            woken: true,
        }
    }

    /// Takes a datagram into the receive queue; false if the queue is full.
    pub(crate) fn receive(&mut self, from: Host, bytes: Vec<u8>) -> bool {
        let room = self.inbox.len() < INBOX_MAX;
        if room {
            if let Some(seals) = &mut self.seals {
                seals.note(&bytes);
            }
            self.inbox.push((from, bytes));
        }
        room
    }

    /// One turn of the event loop, in the order of `trine_transport::event_loop`. Appends wire
    /// packets to `sent`, in buffers of `spare` as long as there are some; buffers of received
    /// datagrams go there. Returns the number of datagrams received.
    pub(crate) fn turn(
        &mut self,
        simulated: Instant,
        sent: &mut Vec<Sent>,
        spare: &mut Vec<Vec<u8>>,
    ) -> usize {
        self.woken = false;
        // The program may read the clock again within the turn.
        self.program
            .before_turn(self.clock.local(simulated), simulated);
        let begun = self.begun.take();
        let now = self.clock.local(begun.unwrap_or(simulated));
        let mut taken = self.take_in(now, spare);
        // One receive call takes in trains of packets: all that came during the pause, requests and retransmissions.
        while begun.is_some() && !self.inbox.is_empty() {
            taken += self.take_in(now, spare);
        }
        self.endpoint.on_timeout(now, &mut self.program);
        while let Some(event) = self.endpoint.poll_event() {
            self.program
                .on_event(&mut Cx::new(&mut self.endpoint, now), event);
        }
        self.program.on_turn(&mut Cx::new(&mut self.endpoint, now));
        self.transmit(now, sent, spare);
        self.program.look_at_sessions(&self.endpoint);
        self.program.after_turn(now, simulated);
        taken
    }

    fn take_in(&mut self, now: Instant, spare: &mut Vec<Vec<u8>>) -> usize {
        let count = self.inbox.len().min(BURST_MAX);
        let packets: Vec<RxPacket<'_, Host>> = self.inbox[..count]
            .iter()
            .map(|(from, bytes)| RxPacket {
                bytes,
                route: *from,
                ecn: false,
            })
            .collect();
        self.endpoint
            .on_packets(now, &mut RxBatch::from_packets(&packets), &mut self.program);
        spare.extend(self.inbox.drain(..count).map(|(_, bytes)| bytes));
        spare.truncate(SPARE_MAX);
        count
    }

    fn transmit(&mut self, now: Instant, sent: &mut Vec<Sent>, spare: &mut Vec<Vec<u8>>) {
        for _ in 0..TRANSMITS_MAX {
            let transmit = self.endpoint.poll_transmit(now, &mut self.tx);
            let datagrams = self.datagrams.as_mut();
            let joined = datagrams.map(|datagrams| datagrams.bytes_of(&self.tx, DEVICE_BYTES));
            for (index, item) in self.tx.iter().enumerate() {
                let mut bytes = spare.pop().unwrap_or_default();
                bytes.clear();
                bytes.reserve(item.len());
                item.copy_to(&mut bytes);
                sent.push(Sent {
                    to: item.route,
                    bytes,
                    datagram_bytes: joined.map_or(0, |joined| joined[index]),
                });
            }
            self.tx.clear();
            // Everything was copied out, so there is no reference to a buffer any more.
            if transmit.flush_first {
                self.endpoint.on_tx_flushed();
            }
            if transmit.count == 0 {
                return;
            }
        }
    }

    /// When the machine has to act next, in simulated time.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        if self.woken || !self.inbox.is_empty() {
            return Some(self.busy_until.max(self.paused_until));
        }
        let local = [self.endpoint.next_timeout(), self.program.next_timeout()]
            .into_iter()
            .flatten()
            .min();
        let due = local.map(|local| self.clock.simulated(local));
        let due = [due, self.program.next_call()]
            .into_iter()
            .flatten()
            .min()?;
        Some(due.max(self.busy_until).max(self.paused_until))
    }
}
