//! The settings of an endpoint, and the hard limits that no configuration can pass.

pub use crate::congestion::CongestionConfig;
use crate::keys::Keys;
use crate::time::Duration;

/// Slots (concurrent requests) that one session can have at most: six bits of the request number.
pub const SLOTS_MAX: usize = 64;
/// Sessions that one endpoint can have at most; the index has 16 bits and `0xffff` means "none yet".
pub const SESSIONS_MAX: usize = 65_535;
/// The largest message, request or response.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// The largest packet that every backend must carry.
pub const MTU_MIN: usize = 512;
/// The largest packet that the header's length field and the backends allow.
pub const MTU_MAX: usize = 9_000;
/// Packets in flight that one session may be granted.
pub const CREDITS_MAX: u16 = 1_024;
/// Credits that a session can work with: less than one packet in flight is nothing.
pub const CREDITS_MIN: u16 = 1;
/// A session of which a slot has had so many requests ends: the request number has 42 bits for them. The rest is for
/// those that come before the next scan, with the keepalive: in a day no slot has as many.
pub const SEQUENCES_MAX: u64 = crate::wire::RequestNumber::SEQUENCE_MAX - (1 << 40);
/// A client end takes the path for a black hole of full packets after so many time-outs of one in a row, while the peer
/// shows that it is alive.
pub const BLACK_HOLE_TIMEOUTS: u8 = 3;
/// The same for a request whose response may have full packets: nobody knows yet whether it has.
pub const BLACK_HOLE_TIMEOUTS_UNSURE: u8 = 5;
/// So long sessions on that route have packets that every path carries. Doubles each time.
pub const BLACK_HOLE_SPAN: Duration = Duration::from_secs(60);
/// See [`BLACK_HOLE_SPAN`]. A route that was well for so long after its span begins anew.
pub const BLACK_HOLE_SPAN_MAX: Duration = Duration::from_secs(600);
/// Routes of which that is remembered; of more, the one whose span ends first is forgotten.
pub const BLACK_HOLES_MAX: usize = 64;
/// Among more sessions none is sought that shows that another one's peer lives.
pub const SIBLINGS_SOUGHT_MAX: usize = 64;
/// Idle sessions of an endpoint together send no more keepalives a second: with many sessions each
/// waits longer. A session with a request in flight is watched by that request's timer.
pub const KEEPALIVES_PER_SECOND: u64 = 2_000;
/// No timer may be set further ahead.
pub const TIMER_MAX: Duration = Duration::from_secs(24 * 3600);
/// Nonces of sessions ended within two seconds that a server remembers, so that a late CONNECT brings none back. When there
/// are more, all cookies so far are void instead, and clients get new ones.
pub const ENDED_NONCES_MAX: usize = 65_536;
/// A request that a handler holds is probed at this part of the time since it was sent, and at least this often. A lost
/// response is asked for that much later, and a thousand held requests cost few packets. Several probes fit into
/// `hold_timeout`.
pub const HELD_PROBE_PART: u64 = 4;
/// See [`HELD_PROBE_PART`].
pub const HELD_PROBE_MAX: Duration = Duration::from_millis(500);
/// Rollbacks for a gap that a request makes without any progress in between; from then on its timer alone rolls back.
pub const GAP_ROLLBACKS_MAX: u8 = 3;
/// Transmission times that a request remembers: one for each packet under way, as long as the session has no more
/// credits than this. With more, neighbours share one.
pub const RTT_STAMPS: usize = 64;

/// Sessions that wait for the first packet that their keys sealed; of more, the oldest is given up.
pub const HALF_OPEN_MAX: usize = 256;
/// Those of them that are kept for keys that go first; others never get them.
pub const HALF_OPEN_RESERVE: usize = 64;
/// The time that a handshake takes its server: two multiplications on a curve.
pub const HANDSHAKE_COST: Duration = Duration::from_micros(70);
/// Handshakes may take one part in so many of an endpoint's time.
pub const HANDSHAKE_SHARE: u64 = 10;
/// Handshakes may take so long without a pause.
pub const HANDSHAKE_SPAN: Duration = Duration::from_millis(1);
/// The part of that time that is kept for handshakes that go first.
pub const HANDSHAKE_RESERVE: Duration = Duration::from_micros(280);
/// An endpoint proves once in so long that it does not know a sealed session.
pub const PROOF_INTERVAL: Duration = Duration::from_millis(1);
/// Such proofs that it makes at once.
pub const PROOFS_AT_ONCE: u64 = 64;
/// A client ends a sealed session after so many packets, and connects again.
pub const SEALED_PACKETS_MAX: u64 = trine_seal::PACKETS_MAX;
/// A client ends a sealed session after so long, and connects again.
pub const SEALED_SESSION_MAX: Duration = Duration::from_secs(24 * 3600);
/// A server waits so much longer: a client that ends its session itself connects again without losing a request.
pub const SEALED_SESSION_GRACE: Duration = Duration::from_secs(3600);
/// A server lets a client seal so many more packets, for the same reason.
pub const SEALED_PACKETS_GRACE: u64 = 1 << 32;

/// Up to so many sessions stay in a processor's own cache; of more, those that a datagram names are
/// fetched ahead.
pub const SESSIONS_CACHED: usize = 1_024;
/// Packets of a datagram whose sessions are fetched ahead: as many as a processor fetches at once.
pub const PREFETCH_PACKETS_MAX: usize = 32;

/// A response buffer up to this capacity is kept for the next response instead of going to the pool.
pub const SPARE_BYTES_MAX: usize = 2 << 10;

/// A request that is being received must grow by one part in so many in each hold timeout.
pub const HOLD_PARTS: u32 = 64;
/// Requests in a row that a client may begin and leave alone before that costs it the session.
pub const HOLD_STRIKES_MAX: u8 = 16;

/// A caller pushes so many sessions of others out at once.
pub const PUSHED_OUT_AT_ONCE: u64 = 64;
/// After that it pushes one out in this time: so callers with several addresses cannot keep all sessions coming and
/// going.
pub const PUSHED_OUT_EVERY: Duration = Duration::from_micros(62_500);
/// Callers of whom that is remembered.
pub(crate) const PUSHERS_MAX: usize = 4_096;

/// Message memory is free for all to take up to this part of it; beyond it holders have shares.
pub(crate) const BUDGET_FREE_OF_SHARES: (usize, usize) = (3, 4);
/// One part in so many is the share of a caller that has proven who it is.
pub const SHARE_OF_IDENTITY: usize = 4;
/// One part in so many is the share of the callers of an address.
pub const SHARE_OF_ADDRESS: usize = 16;
/// A request that waits for memory and was not sent again for so long does not wait any more. Longer than the default
/// `rto_max`.
pub const WAITING_FOR_ROOM: Duration = Duration::from_millis(1_000);

/// Message memory is given back after half of it was free at so many looks more than one.
pub(crate) const COOLING_LOOKS: u32 = 4;
/// From one look to the next: ten seconds for all.
pub(crate) const COOLING_PAUSE: Duration = Duration::from_millis(2_500);
/// It goes in pieces of about this size, so that the event loop is not held up for longer than a millisecond.
pub(crate) const COOLING_BYTES: usize = 4 << 20;
/// From one piece to the next.
pub(crate) const COOLING_STEP: Duration = Duration::from_millis(10);
/// So much memory is always kept.
pub(crate) const COOLING_FLOOR: usize = 4 << 20;

const _: () = assert!(RTT_STAMPS.is_power_of_two());
const _: () = assert!(SLOTS_MAX <= 64, "a session's slots are one 64-bit map");
const _: () = assert!(SLOTS_MAX <= crate::wire::RequestNumber::SLOTS);
// Every packet number of the largest message over the smallest MTU fits the header's 16 bits.
const _: () = assert!(
    MESSAGE_BYTES_MAX.div_ceil(MTU_MIN - crate::wire::PACKET_OVERHEAD) * 2 < 65_535,
    "packet numbers have 16 bits"
);
const _: () = assert!(MESSAGE_BYTES_MAX < 1 << 24, "the message size has 24 bits");

/// Settings of an [`crate::Endpoint`]; `Config::default()` suits a three-node group on kernel UDP.
#[derive(Clone, Debug)]
pub struct Config {
    /// Packets that a client session may have unanswered, offered at connect; the smaller offer wins.
    pub credits: u16,
    /// Concurrent requests of a session, offered at connect; the smaller offer wins.
    pub slots: u8,
    /// Largest packet in bytes (UDP payload), whatever the route; `None` takes what the backend says of each route.
    pub mtu: Option<u16>,
    /// Sessions of this endpoint, of both modes together.
    pub sessions: usize,
    /// Those of them that are kept for [privileged](crate::session::Holder::Privileged) callers; fewer than all. Without
    /// `overcommit` the receive queue may be full before that: its room is not shared out.
    pub sessions_reserved: usize,
    /// Requests of this endpoint that are in flight or queued, over all sessions.
    pub requests: usize,
    /// Requests that one session queues beyond those in slots; more are refused.
    pub queued_requests_per_session: usize,
    /// The largest message that is sent or accepted, at most [`MESSAGE_BYTES_MAX`].
    pub message_bytes: usize,
    /// Memory for requests that are still being received, over all sessions; at least one of `message_bytes`. One half
    /// is for [privileged](crate::session::Holder::Privileged) callers, the other for all others. Each half takes one of
    /// `message_bytes` more when nothing else can go on.
    pub assembly_bytes: usize,
    /// Memory for responses of several packets until their clients are done with them, over all sessions. It has the same
    /// halves, each at least [`MESSAGE_BYTES_MAX`]. What is too much of a response is released.
    pub response_bytes: usize,
    /// Packets that wait to be sent in answer to received ones; more are dropped and counted.
    pub answers: usize,
    /// Allows more sessions than receive queue divided by credits; induced loss is then possible.
    pub overcommit: bool,

    /// A session that heard no packet at all for this long is down.
    pub failure_timeout: Duration,
    /// A session that heard nothing for this long asks its peer for a sign of life.
    pub keepalive_interval: Duration,
    /// A server gives back the memory of a request half received, and of a response of several packets. It does so when
    /// its client has been idle on it for once to twice this long. Above `rto_max`.
    pub hold_timeout: Duration,
    /// `connect` gives up after this long.
    pub connect_timeout: Duration,
    /// Retransmission timeout before the first RTT sample.
    pub rto_initial: Duration,
    /// The retransmission timeout never doubles beyond this.
    pub rto_max: Duration,
    /// Overrides the backend's retransmission timeout floor.
    pub rto_floor: Option<Duration>,
    /// Probes of a request that executes (BUSY) slow down to this interval, and those of one that is held to
    /// [`HELD_PROBE_MAX`].
    pub probe_interval_max: Duration,
    /// Credit returns may cover several packets when both sides agree; for backends where a packet is dear.
    pub cumulative_credits: Option<bool>,
    /// Checksums cover all of a packet. If it is off, and off at the peer too, large packets have a weaker checksum, as
    /// in the paper's eRPC: with more than 256 bytes after the header, it covers the header alone. Damage to the data
    /// of such packets is then found by the network's own checksums or not at all. For transfers between processes of
    /// one machine, or where the content has a checksum of its own.
    pub data_checksums: bool,
    /// Congestion control: the controller, its bypasses and its bounds.
    pub congestion: CongestionConfig,
    /// How long the event loop polls without finding anything before it sleeps.
    pub spin: Duration,
    /// Sealed packets of a session that lie side by side share a tag. Otherwise each has its own.
    pub tag_per_run: bool,
    /// Keys, where sessions may be sealed.
    pub keys: Option<Keys>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            credits: 32,
            slots: 8,
            mtu: None,
            sessions: 256,
            sessions_reserved: 0,
            requests: 16_384,
            queued_requests_per_session: 4_096,
            message_bytes: MESSAGE_BYTES_MAX,
            assembly_bytes: 256 << 20,
            response_bytes: 256 << 20,
            answers: 4_096,
            overcommit: false,
            failure_timeout: Duration::from_millis(1_000),
            keepalive_interval: Duration::from_millis(250),
            hold_timeout: Duration::from_millis(2_000),
            connect_timeout: Duration::from_millis(1_000),
            rto_initial: Duration::from_millis(10),
            rto_max: Duration::from_millis(200),
            rto_floor: None,
            probe_interval_max: Duration::from_millis(50),
            cumulative_credits: None,
            data_checksums: true,
            congestion: CongestionConfig::default(),
            spin: Duration::from_micros(50),
            tag_per_run: true,
            keys: None,
        }
    }
}

/// A configuration that contradicts itself or the backend.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum ConfigError {
    /// Not between 1 and [`CREDITS_MAX`].
    Credits,
    /// Not between 1 and [`SLOTS_MAX`].
    Slots,
    /// Below [`MTU_MIN`] or above [`MTU_MAX`] or the backend's limit.
    Mtu,
    /// Not between 1 and [`SESSIONS_MAX`].
    Sessions,
    /// See [`Config::sessions_reserved`].
    SessionsReserved,
    /// Not at least one request and one answer.
    Queues,
    /// Above [`MESSAGE_BYTES_MAX`], or more packets than the packet number counts.
    MessageBytes,
    /// `assembly_bytes` is below `message_bytes`: the largest request could never be received.
    AssemblyBytes {
        /// [`Config::assembly_bytes`].
        assembly_bytes: usize,
        /// [`Config::message_bytes`].
        message_bytes: usize,
    },
    /// A timeout is zero or above [`TIMER_MAX`], keepalive is not shorter than the failure timeout, or
    /// the hold timeout not longer than the longest retransmission timeout.
    Timers,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Credits => "credits must be 1 to 1024",
            Self::Slots => "slots must be 1 to 64",
            Self::Mtu => "the MTU must be 512 to 9000 bytes and within the backend's",
            Self::Sessions => "sessions must be 1 to 65535",
            Self::SessionsReserved => "sessions_reserved must be less than sessions",
            Self::Queues => "at least one request and one answer must fit",
            Self::MessageBytes => "messages have at most 8 MiB",
            Self::AssemblyBytes {
                assembly_bytes,
                message_bytes,
            } => {
                return write!(
                    f,
                    "assembly_bytes ({assembly_bytes}), the memory for requests that are being received, must hold one of \
                     message_bytes ({message_bytes}): raise the one or lower the other"
                );
            }
            Self::Timers => {
                "timeouts must be above zero and at most a day, keepalive shorter than the failure timeout, the hold timeout longer than rto_max"
            }
        })
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Checks the relations that the core relies on.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let zero = Duration::from_nanos(0);
        let timers = [
            self.failure_timeout,
            self.keepalive_interval,
            self.connect_timeout,
            self.hold_timeout,
            self.rto_initial,
            self.rto_max,
            self.probe_interval_max,
            self.rto_floor.unwrap_or(TIMER_MAX),
        ];
        let rules = [
            (
                (CREDITS_MIN..=CREDITS_MAX).contains(&self.credits),
                ConfigError::Credits,
            ),
            (
                (1..=SLOTS_MAX).contains(&usize::from(self.slots)),
                ConfigError::Slots,
            ),
            (
                self.mtu
                    .is_none_or(|m| (MTU_MIN..=MTU_MAX).contains(&usize::from(m))),
                ConfigError::Mtu,
            ),
            (
                (1..=SESSIONS_MAX).contains(&self.sessions),
                ConfigError::Sessions,
            ),
            (
                self.sessions_reserved < self.sessions,
                ConfigError::SessionsReserved,
            ),
            (self.requests >= 1 && self.answers >= 1, ConfigError::Queues),
            (
                self.message_bytes <= MESSAGE_BYTES_MAX,
                ConfigError::MessageBytes,
            ),
            (
                self.message_bytes <= self.assembly_bytes,
                ConfigError::AssemblyBytes {
                    assembly_bytes: self.assembly_bytes,
                    message_bytes: self.message_bytes,
                },
            ),
            (
                timers.iter().all(|t| *t > zero && *t <= TIMER_MAX),
                ConfigError::Timers,
            ),
            (
                self.keepalive_interval < self.failure_timeout,
                ConfigError::Timers,
            ),
            (self.hold_timeout > self.rto_max, ConfigError::Timers),
        ];
        rules
            .iter()
            .find(|(holds, _)| !holds)
            .map_or(Ok(()), |(_, error)| Err(*error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contradiction_has_its_error() {
        type Change = fn(&mut Config);
        let cases: [(Change, ConfigError); 15] = [
            (|c| c.credits = 0, ConfigError::Credits),
            (|c| c.credits = CREDITS_MAX + 1, ConfigError::Credits),
            (|c| c.slots = 0, ConfigError::Slots),
            (|c| c.slots = 65, ConfigError::Slots),
            (|c| c.mtu = Some(100), ConfigError::Mtu),
            (|c| c.sessions = 0, ConfigError::Sessions),
            (|c| c.sessions = SESSIONS_MAX + 1, ConfigError::Sessions),
            (
                |c| c.sessions_reserved = c.sessions,
                ConfigError::SessionsReserved,
            ),
            (|c| c.requests = 0, ConfigError::Queues),
            (
                |c| c.message_bytes = MESSAGE_BYTES_MAX + 1,
                ConfigError::MessageBytes,
            ),
            // The memory never sufficed for such a request: its client sent it again for ever.
            (
                |c| (c.message_bytes, c.assembly_bytes) = (5_000, 4_999),
                ConfigError::AssemblyBytes {
                    assembly_bytes: 4_999,
                    message_bytes: 5_000,
                },
            ),
            (|c| c.failure_timeout = Duration::MAX, ConfigError::Timers),
            (|c| c.hold_timeout = c.rto_max, ConfigError::Timers),
            // A probe due at the moment it is sent would keep `on_timeout` for ever.
            (|c| c.rto_floor = Some(Duration::ZERO), ConfigError::Timers),
            (
                |c| c.keepalive_interval = c.failure_timeout,
                ConfigError::Timers,
            ),
        ];
        assert_eq!(Config::default().validate(), Ok(()));
        for (change, error) in cases {
            let mut config = Config::default();
            change(&mut config);
            assert_eq!(config.validate(), Err(error));
        }
        let just_enough = Config {
            message_bytes: 5_000,
            assembly_bytes: 5_000,
            ..Config::default()
        };
        assert_eq!(just_enough.validate(), Ok(()));
    }
}
