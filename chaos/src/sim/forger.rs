//! An attacker on the network: it records packets, and sends what no machine has sent, in the name of any of them.

use super::Host;
use super::network::REPLAY_NS;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::Duration;
use trine_transport::wire::{
    Connect, Features, Header, PacketType, Probe, RequestNumber, Seed, split_first,
};

/// Packets that are remembered.
const RECORDED_MAX: usize = 256;
/// How often one is.
const RECORDED: Ratio = Ratio::percent(10);
/// CONNECTs that are remembered: they tell the nonces of sessions, and where their packets go.
const CONNECTS_MAX: usize = 32;
/// Indexes of sessions that forged packets name.
const SESSIONS: u64 = 12;
/// A forged packet comes at most so late. A replayed one has the time of the fault `replay`.
const LATE_NS: u64 = 200_000_000;

/// A packet, from where to where it is said to go, and how late it comes.
pub(crate) struct Forged {
    pub(crate) from: Host,
    pub(crate) to: Host,
    pub(crate) bytes: Vec<u8>,
    pub(crate) after: Duration,
}

struct Recorded {
    from: Host,
    to: Host,
    bytes: Vec<u8>,
}

pub(crate) struct Forger {
    prng: Prng,
    recorded: Vec<Recorded>,
    connects: Vec<(Host, Host, Connect)>,
}

impl Forger {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            prng: Prng::new(seed ^ 0x0f0e_6ed0_0f0e_6ed0),
            recorded: Vec::new(),
            connects: Vec::new(),
        }
    }

    /// Sees a packet on its way.
    pub(crate) fn observe(&mut self, from: Host, to: Host, bytes: &[u8]) {
        if let Ok((packet, _)) = split_first(bytes)
            && packet.header.packet_type == PacketType::Connect
            && let Some((connect, _)) = Connect::read(packet.payload)
        {
            let place = self.place(self.connects.len(), CONNECTS_MAX);
            put(&mut self.connects, place, (from, to, connect));
        }
        if !self.prng.chance(RECORDED) {
            return;
        }
        let place = self.place(self.recorded.len(), RECORDED_MAX);
        let bytes = bytes.to_vec();
        put(&mut self.recorded, place, Recorded { from, to, bytes });
    }

    /// Where the next one goes: behind the others, or in the place of one of them.
    fn place(&mut self, count: usize, most: usize) -> usize {
        match count < most {
            true => count,
            false => self.prng.below(most as u64) as usize,
        }
    }

    /// The next packet that nobody has sent, or not now. None before it has seen any.
    pub(crate) fn forge(&mut self) -> Option<Forged> {
        if self.recorded.is_empty() || self.connects.is_empty() {
            return None;
        }
        let which = self.prng.below(10);
        let late = match which {
            0..=2 => self.prng.in_range(REPLAY_NS.0..=REPLAY_NS.1),
            _ => self.prng.below(LATE_NS),
        };
        let (from, to, bytes) = match which {
            0..=2 => self.replayed(),
            3 | 4 => self.flipped(),
            5 => self.spliced(),
            6 => self.misdirected(),
            7 => self.connect(),
            _ => self.control(),
        };
        let after = Duration::from_nanos(late);
        let forged = Forged {
            from,
            to,
            bytes,
            after,
        };
        (!forged.bytes.is_empty()).then_some(forged)
    }

    fn any(&mut self) -> &Recorded {
        let place = self.prng.below(self.recorded.len() as u64) as usize;
        &self.recorded[place]
    }

    fn replayed(&mut self) -> (Host, Host, Vec<u8>) {
        let one = self.any();
        (one.from, one.to, one.bytes.clone())
    }

    fn flipped(&mut self) -> (Host, Host, Vec<u8>) {
        let (from, to, mut bytes) = self.replayed();
        for _ in 0..=self.prng.below(3) {
            let bit = self.prng.below(bytes.len() as u64 * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        (from, to, bytes)
    }

    /// The front of one packet and the end of another, as long as the first.
    fn spliced(&mut self) -> (Host, Host, Vec<u8>) {
        let (from, to, mut bytes) = self.replayed();
        let other = self.any().bytes.clone();
        let keep = self.prng.below(bytes.len() as u64) as usize;
        let end = bytes.len().min(other.len());
        if keep < end {
            bytes[keep..end].copy_from_slice(&other[keep..end]);
        }
        (from, to, bytes)
    }

    /// A packet of one session in another one's name, or at another machine.
    fn misdirected(&mut self) -> (Host, Host, Vec<u8>) {
        let (from, _, mut bytes) = self.replayed();
        let to = self.any().to;
        let session = self.prng.below(SESSIONS) as u16;
        if self.prng.chance(Ratio::percent(50))
            && let Some(index) = bytes.get_mut(2..4)
        {
            index.copy_from_slice(&session.to_le_bytes());
        }
        (from, to, bytes)
    }

    /// The CONNECT of a session that there is, changed and with a good checksum: another client's, one without a key, or
    /// the same for other terms.
    fn connect(&mut self) -> (Host, Host, Vec<u8>) {
        let place = self.prng.below(self.connects.len() as u64) as usize;
        let (from, to, mut connect) = self.connects[place];
        match self.prng.below(4) {
            0 => connect.nonce = self.prng.next_u64(),
            1 => connect.features = Features::CUMULATIVE_CREDITS,
            2 => connect.incarnation = self.prng.next_u64() | 1,
            _ => connect.cookie = self.prng.next_u64(),
        }
        let header = Header::new(PacketType::Connect, connect.client_session);
        (from, to, written(&header, Seed::NONE, &connect.write()))
    }

    /// A packet about a session without a seal: both its nonce and its index can be seen on the network.
    fn control(&mut self) -> (Host, Host, Vec<u8>) {
        let place = self.prng.below(self.connects.len() as u64) as usize;
        let (client, server, connect) = self.connects[place];
        let to_server = self.prng.chance(Ratio::percent(50));
        let (from, to) = match to_server {
            true => (client, server),
            false => (server, client),
        };
        let session = match to_server {
            true => self.prng.below(SESSIONS) as u16,
            false => connect.client_session,
        };
        let types = [
            PacketType::Ping,
            PacketType::Disconnect,
            PacketType::Reset,
            PacketType::Pong,
            PacketType::Disconnected,
            PacketType::Refuse,
        ];
        let packet_type = types[self.prng.below(types.len() as u64) as usize];
        let mut header = Header::new(packet_type, session);
        header.request = RequestNumber::token(self.prng.next_u64());
        let probe = Probe {
            sender_session: connect.client_session,
            nonce: connect.nonce,
        };
        let seed = match self.prng.chance(Ratio::percent(50)) {
            true => Seed::NONE,
            false => Seed::of_nonce(connect.nonce),
        };
        (from, to, written(&header, seed, &probe.write()))
    }
}

fn written(header: &Header, seed: Seed, body: &[u8]) -> Vec<u8> {
    [&header.write(seed, None, body)[..], body].concat()
}

fn put<T>(list: &mut Vec<T>, place: usize, item: T) {
    match list.get_mut(place) {
        Some(old) => *old = item,
        None => list.push(item),
    }
}
