//! The 24-byte packet header and the cut of a datagram into packets (PROTOCOL.md section 2).

use super::checksum::Seed;
use super::layout::{EXTENSION_BYTES, HEADER_BYTES, Words, put_words, words_of};
use super::server_time::ServerTime;

/// The protocol version that this code speaks.
pub const VERSION: u8 = 1;
/// The session index of a packet that belongs to no session of its receiver yet.
pub const NO_SESSION: u16 = u16::MAX;

pub(super) const DEADLINE_UNIT_NS: u64 = 1_000;

/// The type of a packet. Values are wire values.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// Client to server: a part of a request.
    Request = 1,
    /// Server to client: a part of a response.
    Response = 2,
    /// Server to client: request packets up to this number have arrived.
    CreditReturn = 3,
    /// Client to server: send this response packet.
    RequestForResponse = 4,
    /// Server to client: the request executes.
    Busy = 5,
    /// Something said once, without a session, by whoever sends it.
    Notice = 6,
    /// Server to client: no such session.
    Reset = 7,
    /// Client to server: make a session.
    Connect = 8,
    /// Server to client: come again with this cookie.
    Cookie = 9,
    /// Server to client: the session is established.
    Accept = 10,
    /// Server to client: no session, and why.
    Refuse = 11,
    /// End the session.
    Disconnect = 12,
    /// The session has ended.
    Disconnected = 13,
    /// Are you there?
    Ping = 14,
    /// Yes.
    Pong = 15,
}

impl PacketType {
    fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            1 => Self::Request,
            2 => Self::Response,
            3 => Self::CreditReturn,
            4 => Self::RequestForResponse,
            5 => Self::Busy,
            6 => Self::Notice,
            7 => Self::Reset,
            8 => Self::Connect,
            9 => Self::Cookie,
            10 => Self::Accept,
            11 => Self::Refuse,
            12 => Self::Disconnect,
            13 => Self::Disconnected,
            14 => Self::Ping,
            15 => Self::Pong,
            _ => return None,
        })
    }

    /// These keep their place and layout in every version, so that a mismatch can be told.
    fn is_in_every_version(self) -> bool {
        matches!(self, Self::Connect | Self::Refuse)
    }
}

/// Four flags and, in the upper half, the transmission round (PROTOCOL.md section 5.4).
#[derive(Copy, Clone, Debug, Eq, PartialEq, Default)]
pub struct Flags(pub(super) u8);

impl Flags {
    /// The client's packet carried an ECN mark.
    pub const ECN_ECHO: Self = Self(1);
    /// The deadline extension follows the header.
    pub const EXTENSION: Self = Self(2);
    /// An authentication tag ends the packet. Before a packet is sealed: it has to be.
    pub const TRAILER: Self = Self(4);
    /// In a CREDIT RETURN: the server has seen a hole in the request before the packet that it
    /// answers. In a REQUEST: the client gave up a request of this slot that was sent, and none of
    /// the slot has been answered since.
    pub const GAP: Self = Self(8);

    /// The flags in the second byte of a header.
    #[must_use]
    pub fn of_bits(byte: u8) -> Self {
        Self(byte)
    }

    /// No flag, round `round` (four bits count).
    #[must_use]
    pub fn of_round(round: u8) -> Self {
        Self(round << 4)
    }

    /// The round.
    #[must_use]
    pub fn round(self) -> u8 {
        self.0 >> 4
    }

    /// Whether all flags of `other` are set.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// `other` set if `condition`.
    #[must_use]
    pub fn with_if(self, condition: bool, other: Self) -> Self {
        if condition { self.with(other) } else { self }
    }
}

/// Names a request within its session: the slot in the low six bits, the slot's sequence above.
/// PING and DISCONNECT put a random token here, which their answers repeat.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Default, Hash)]
pub struct RequestNumber(pub(super) u64);

impl RequestNumber {
    /// As a number.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    const BITS: u32 = 48;
    const SLOT_BITS: u32 = 6;
    /// Slots that it can name.
    pub(crate) const SLOTS: usize = 1 << Self::SLOT_BITS;
    /// The last sequence of a slot: four million million requests.
    pub const SEQUENCE_MAX: u64 = (1 << (Self::BITS - Self::SLOT_BITS)) - 1;

    /// The number of the request with this sequence in this slot.
    #[must_use]
    pub fn new(slot: u8, sequence: u64) -> Self {
        debug_assert!(usize::from(slot) < Self::SLOTS && sequence <= Self::SEQUENCE_MAX);
        Self(sequence << Self::SLOT_BITS | u64::from(slot))
    }

    /// 48 bits that only an answer repeats.
    #[must_use]
    pub fn token(random: u64) -> Self {
        Self(random & ((1 << Self::BITS) - 1))
    }

    /// The slot, below 64.
    #[must_use]
    pub fn slot(self) -> u8 {
        (self.0 & ((1 << Self::SLOT_BITS) - 1)) as u8
    }

    /// The slot's sequence.
    #[must_use]
    pub fn sequence(self) -> u64 {
        self.0 >> Self::SLOT_BITS
    }
}

/// A header's fields.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Header {
    /// The packet's version; anything but [`VERSION`] only in CONNECT and REFUSE.
    pub version: u8,
    /// The type of the packet.
    pub packet_type: PacketType,
    /// Flags and round.
    pub flags: Flags,
    /// The receiver's session index.
    pub session: u16,
    /// The request type.
    pub kind: u8,
    /// Size of the whole message: the request's in REQUEST, the response's in RESPONSE.
    pub message_bytes: u32,
    /// The place of this packet in its message.
    pub packet_number: u16,
    /// The request.
    pub request: RequestNumber,
    /// How long the server took to answer the packet.
    pub server_time: ServerTime,
}

impl Header {
    /// A header of this version with everything else zero.
    #[must_use]
    pub fn new(packet_type: PacketType, session: u16) -> Self {
        Self {
            version: VERSION,
            packet_type,
            flags: Flags::default(),
            session,
            kind: 0,
            message_bytes: 0,
            packet_number: 0,
            request: RequestNumber::default(),
            server_time: ServerTime::ZERO,
        }
    }

    /// Writes header, optional extension and checksum for a packet with this `payload`;
    /// returns the bytes to send in front of the payload.
    #[must_use]
    #[inline]
    pub fn write(
        &self,
        seed: Seed,
        extension: Option<[u8; EXTENSION_BYTES]>,
        payload: &[u8],
    ) -> Written {
        let extension_bytes = extension.map_or(0, |_| EXTENSION_BYTES);
        let length = HEADER_BYTES + extension_bytes + payload.len();
        let flags = self.flags.with_if(extension.is_some(), Flags::EXTENSION);
        let flags = flags.with_if(seed.is_sealed(), Flags::TRAILER);
        let words = Self { flags, ..*self }.words(length);
        let extension = extension.unwrap_or_default();
        let parts = [&extension[..extension_bytes], payload];
        let sum = seed.checksum_of_words(words.0, words.1, parts);
        let mut bytes = [0; HEADER_BYTES + EXTENSION_BYTES];
        put_words(&mut bytes, words, sum);
        bytes[HEADER_BYTES..].copy_from_slice(&extension);
        Written {
            bytes,
            len: HEADER_BYTES + extension_bytes,
        }
    }

    /// Writes a whole packet, header, optional extension and payload, and returns its length.
    ///
    /// Inlined, so that the fields go to the wire from where they are and not through this struct.
    ///
    /// # Panics
    ///
    /// If the packet does not fit.
    #[inline(always)]
    pub(crate) fn write_packet<const ROOM: usize>(
        &self,
        seed: Seed,
        extension: Option<[u8; EXTENSION_BYTES]>,
        payload: &[u8],
        out: &mut [u8; ROOM],
    ) -> usize {
        if let Some(extension) = extension {
            return self.write_extended(seed, extension, payload, out);
        }
        let length = HEADER_BYTES + payload.len();
        put_words(out, self.words_with(seed, length), 0);
        seed.complete(payload, out);
        length
    }

    fn write_extended(
        &self,
        seed: Seed,
        extension: [u8; EXTENSION_BYTES],
        payload: &[u8],
        out: &mut [u8],
    ) -> usize {
        let head = self.write(seed, Some(extension), payload);
        out[..head.len()].copy_from_slice(&head);
        out[head.len()..head.len() + payload.len()].copy_from_slice(payload);
        head.len() + payload.len()
    }

    #[inline(always)]
    fn words_with(&self, seed: Seed, length: usize) -> Words {
        let mark = if seed.is_sealed() {
            u64::from(Flags::TRAILER.0) << 8
        } else {
            0
        };
        let ([low, high], rest) = self.words(length);
        ([low | mark, high], rest)
    }

    /// The header up to the checksum. Whole words instead of single fields: this runs once a packet.
    #[inline(always)]
    pub(super) fn words(&self, length: usize) -> Words {
        // A packet is never longer than the MTU, which has 16 bits.
        let low = u64::from(self.version << 4 | self.packet_type as u8)
            | u64::from(self.flags.0) << 8
            | u64::from(self.session) << 16
            | u64::from(length as u16) << 32
            | u64::from(self.kind) << 48
            | u64::from(self.message_bytes) << 56;
        let high = u64::from(self.message_bytes >> 8) & 0xffff
            | u64::from(self.packet_number) << 16
            | self.request.0 << 32;
        let rest =
            (self.request.0 >> 32) as u32 & 0xffff | u32::from(self.server_time.to_bits()) << 16;
        ([low, high], rest)
    }

    #[inline]
    fn read(([low, high], rest): Words) -> Result<Self, WireError> {
        let packet_type = PacketType::from_bits(low as u8 & 0x0f).ok_or(WireError::UnknownType)?;
        let version = low as u8 >> 4;
        if version != VERSION && !packet_type.is_in_every_version() {
            return Err(WireError::Version);
        }
        let mut flags = Flags((low >> 8) as u8);
        if version != VERSION {
            // Their meaning there is not known here; the answer is one that each version understands.
            flags = Flags(0);
        }
        if flags.has(Flags::TRAILER) {
            return Err(WireError::Unsupported);
        }
        if flags.has(Flags::EXTENSION) && packet_type != PacketType::Request {
            return Err(WireError::Unsupported);
        }
        Ok(Self {
            version,
            packet_type,
            flags,
            session: (low >> 16) as u16,
            kind: (low >> 48) as u8,
            message_bytes: (low >> 56) as u32 | (high as u32 & 0xffff) << 8,
            packet_number: (high >> 16) as u16,
            request: RequestNumber(high >> 32 | u64::from(rest & 0xffff) << 32),
            server_time: ServerTime::from_bits((rest >> 16) as u16),
        })
    }
}

/// A header where it lies. The fast path reads from it the fields that it uses, and no others.
#[derive(Copy, Clone, Debug)]
pub(crate) struct HeaderBytes<'a>(pub(super) &'a [u8; HEADER_BYTES]);

/// Where the length begins, two bytes.
const LENGTH_AT: usize = 4;
/// Where the packet number begins, two bytes.
const PACKET_NUMBER_AT: usize = 10;
/// Where the request number begins, six bytes.
const NUMBER_AT: usize = 12;
const NUMBER_MASK: u64 = (1 << 48) - 1;

impl HeaderBytes<'_> {
    #[inline(always)]
    pub(crate) fn session(&self) -> u16 {
        u16::from_le_bytes([self.0[2], self.0[3]])
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> Flags {
        Flags(self.0[1])
    }

    #[inline(always)]
    pub(crate) fn kind(&self) -> u8 {
        self.0[6]
    }

    #[inline(always)]
    pub(crate) fn request(&self) -> RequestNumber {
        RequestNumber(word_at(self.0, NUMBER_AT) & NUMBER_MASK)
    }

    #[inline(always)]
    pub(crate) fn server_time(&self) -> ServerTime {
        ServerTime::from_bits(u16::from_le_bytes([self.0[18], self.0[19]]))
    }
}

/// Eight bytes of a header.
#[inline(always)]
pub(super) fn word_at(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(word)
}

/// A written header with its extension.
#[derive(Copy, Clone, Debug)]
pub struct Written {
    bytes: [u8; HEADER_BYTES + EXTENSION_BYTES],
    len: usize,
}

impl std::ops::Deref for Written {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A packet whose layout is sound; its checksum is verified once the session is known.
#[derive(Copy, Clone, Debug)]
pub struct Packet<'a> {
    /// The header's fields.
    pub header: Header,
    /// Nanoseconds that were left until the request's deadline when the packet was sent.
    pub deadline_ns: Option<u64>,
    /// The bytes that follow header and extension.
    pub payload: &'a [u8],
    bytes: &'a [u8],
    is_opened: bool,
}

impl Packet<'_> {
    /// It was sealed, and has been opened: its session's peer has sent it.
    pub(crate) fn is_opened(&self) -> bool {
        self.is_opened
    }

    /// The same packet, taken out of opened bytes.
    pub(crate) fn opened(self) -> Self {
        Self {
            is_opened: true,
            ..self
        }
    }

    /// Whether it is of the session with this seed: it was opened, or its checksum is right.
    #[must_use]
    #[inline]
    pub fn verify(&self, seed: Seed) -> bool {
        if self.is_opened {
            return true;
        }
        let parts = self.bytes.split_first_chunk::<HEADER_BYTES>();
        parts.is_some_and(|(header, body)| seed.is_sum_of(header, body))
    }
}

/// What a header says without a look at anything behind it: for backends that send packets on several ways.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Outline {
    /// The type of the packet.
    pub packet_type: PacketType,
    /// The receiver's session index.
    pub session: u16,
    /// The place of this packet in its message.
    pub packet_number: u16,
    /// The request.
    pub request: RequestNumber,
}

/// The outline of the first packet of a datagram, sealed or not. `None` if the bytes are too short for a header, of
/// another version or of no known type.
#[must_use]
#[inline]
pub fn outline(packet: &[u8]) -> Option<Outline> {
    let header = packet.first_chunk::<HEADER_BYTES>()?;
    let packet_type = PacketType::from_bits(header[0] & 0x0f)?;
    let fields = HeaderBytes(header);
    (header[0] >> 4 == VERSION).then(|| Outline {
        packet_type,
        session: fields.session(),
        packet_number: u16::from_le_bytes([header[PACKET_NUMBER_AT], header[PACKET_NUMBER_AT + 1]]),
        request: fields.request(),
    })
}

/// The outlines of all packets of a datagram, up to the first that has none.
#[inline]
pub fn outlines(datagram: &[u8]) -> impl Iterator<Item = Outline> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let outline = outline(rest)?;
        let length = usize::from(u16::from_le_bytes([rest[LENGTH_AT], rest[LENGTH_AT + 1]]));
        let is_sealed_end = Flags(rest[1]).has(Flags::TRAILER);
        // A packet is never shorter than its header, so this ends.
        rest = match rest.get(length.max(HEADER_BYTES)..) {
            Some(behind) if !is_sealed_end => behind,
            _ => &[],
        };
        Some(outline)
    })
}

/// The deadline extension's bytes: the time left in microseconds, rounded up, saturating.
#[must_use]
pub fn deadline_extension(left_ns: u64) -> [u8; EXTENSION_BYTES] {
    let left = u32::try_from(left_ns.div_ceil(DEADLINE_UNIT_NS)).unwrap_or(u32::MAX);
    let mut bytes = [0; EXTENSION_BYTES];
    bytes[..4].copy_from_slice(&left.to_le_bytes());
    bytes
}

/// Why bytes are no packet.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum WireError {
    /// Shorter than a header, or than the length that it states.
    Truncated,
    /// Not this protocol's version.
    Version,
    /// An unknown packet type.
    UnknownType,
    /// A flag that this version does not know at this place.
    Unsupported,
}

/// Cuts the first packet off a datagram. After an error the rest cannot be cut either.
#[inline]
pub fn split_first(datagram: &[u8]) -> Result<(Packet<'_>, &[u8]), WireError> {
    let first = datagram
        .first_chunk::<HEADER_BYTES>()
        .ok_or(WireError::Truncated)?;
    let words = words_of(first);
    let header = Header::read(words)?;
    let length = usize::from((words.0[0] >> 32) as u16);
    let (bytes, rest) = datagram
        .split_at_checked(length)
        .ok_or(WireError::Truncated)?;
    let body = bytes.get(HEADER_BYTES..).ok_or(WireError::Truncated)?;
    if !header.flags.has(Flags::EXTENSION) {
        return Ok((
            Packet {
                header,
                deadline_ns: None,
                payload: body,
                bytes,
                is_opened: false,
            },
            rest,
        ));
    }
    let (extension, payload) = body
        .split_first_chunk::<EXTENSION_BYTES>()
        .ok_or(WireError::Truncated)?;
    let left = u32::from_le_bytes([extension[0], extension[1], extension[2], extension[3]]);
    let deadline_ns = Some(u64::from(left) * DEADLINE_UNIT_NS);
    Ok((
        Packet {
            header,
            deadline_ns,
            payload,
            bytes,
            is_opened: false,
        },
        rest,
    ))
}
