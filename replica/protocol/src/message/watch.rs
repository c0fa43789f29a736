//! A watch: one request carries all that a client watches, and is answered when something of it has changed.

use trine_kvstore::history::{Change, Event};
use trine_kvstore::{KeyRange, Kind, Position};

use super::MESSAGE_VERSION;
use super::codec::{DecodeError, Encode, Reader, Writer, sentence};
use super::ids::ClusterId;

/// The most keys, prefixes and ranges that one client watches.
pub const WATCHES_MAX: usize = 1024;
/// The most bytes of an answer, unless a single event has more: see [`WATCH_REPLY_BYTES_MIN`].
pub const WATCH_REPLY_BYTES: usize = 256 << 10;
/// Room for the largest event, which each client has to bring.
pub const WATCH_REPLY_BYTES_MIN: usize = EVENTS_SIZE
    + EVENT_SIZE
    + 4 * WATCHES_MAX
    + trine_kvstore::config::KEY_BYTES_MAX as usize
    + trine_kvstore::config::HISTORY_VALUE_BYTES_MAX;

/// The lowest status of a [`WatchReply`], its byte 1. The known ones of a client's reply are below.
pub const WATCH_STATUS_MIN: u8 = 64;

/// Bytes of a request in front of its watches.
const REQUEST_SIZE: usize = 36;
/// Bytes of a reply in front of its events.
const EVENTS_SIZE: usize = 20;
/// Bytes of an event beside its ids, key and value.
const EVENT_SIZE: usize = 32;

const KEYS_ONLY: u8 = 1;
const PREFER_FOLLOWER: u8 = 2;

const KEY: u8 = 0;
const PREFIX: u8 = 1;
const FROM: u8 = 2;
const BETWEEN: u8 = 3;

const WRITTEN: u8 = 1;
const WRITTEN_WITHOUT: u8 = 2;
const REMOVED: u8 = 3;
const EXPIRED: u8 = 4;
const FLUSHED: u8 = 5;

/// The keys of one watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watched<'a> {
    /// One key.
    Key(&'a [u8]),
    /// All keys of a range, whether they are there or not.
    Range(KeyRange<'a>),
}

/// One watch of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch<'a> {
    /// The client's name for it.
    pub id: u32,
    /// What is watched.
    pub watched: Watched<'a>,
}

impl<'a> Watch<'a> {
    /// The watched keys as in a request: their kind, a key or the beginning of a range, and the end of one.
    #[must_use]
    pub fn parts(&self) -> (u8, &'a [u8], Option<&'a [u8]>) {
        match self.watched {
            Watched::Key(key) => (KEY, key, None),
            Watched::Range(KeyRange::Prefix(prefix)) => (PREFIX, prefix, None),
            Watched::Range(KeyRange::Between { start, end: None }) => (FROM, start, None),
            Watched::Range(KeyRange::Between { start, end }) => (BETWEEN, start, end),
        }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (id, form) = (reader.u32()?, reader.u8()?);
        let first = bytes(reader)?;
        let watched = match form {
            KEY => Watched::Key(first),
            PREFIX => Watched::Range(KeyRange::Prefix(first)),
            FROM => Watched::Range(KeyRange::Between {
                start: first,
                end: None,
            }),
            BETWEEN => Watched::Range(KeyRange::Between {
                start: first,
                end: Some(bytes(reader)?),
            }),
            _ => return Err(DecodeError::Field { field: "form" }),
        };
        Ok(Self { id, watched })
    }
}

fn bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let length = reader.u32()?;
    reader.take(length as usize)
}

/// The one request with which a client watches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchRequest<'a> {
    /// The group that is meant.
    pub cluster: ClusterId,
    /// The client's number, which it has drawn. A request of a watcher takes the place of its earlier one.
    pub watcher: u64,
    /// Everything up to this position is known.
    pub from: u64,
    /// So many events of the next position are known as well; the watches are the same as in the request before then.
    pub part: u32,
    /// Without values.
    pub keys_only: bool,
    /// A leader that has followers sends the client to one of them.
    pub prefer_follower: bool,
    /// Room that the client has for the answer.
    pub bytes_max: u32,
    /// What is watched: at least one, and at most [`WATCHES_MAX`].
    pub watches: Vec<Watch<'a>>,
}

impl<'a> WatchRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// When it is cut short, of another version, or a field has no meaning.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let flags = reader.u8()?;
        if flags & !(KEYS_ONLY | PREFER_FOLLOWER) != 0 {
            return Err(DecodeError::Field { field: "flags" });
        }
        let count = usize::from(reader.u16()?);
        let bytes_max = reader.u32()?;
        let cluster = ClusterId(reader.u64()?);
        let (watcher, from, part) = (reader.u64()?, reader.u64()?, reader.u32()?);
        if !(1..=WATCHES_MAX).contains(&count) {
            return Err(DecodeError::Field { field: "watches" });
        }
        let watches: Result<Vec<_>, _> = (0..count).map(|_| Watch::read(&mut reader)).collect();
        let watches = watches?;
        reader.finish()?;
        Ok(Self {
            cluster,
            watcher,
            from,
            part,
            keys_only: flags & KEYS_ONLY != 0,
            prefer_follower: flags & PREFER_FOLLOWER != 0,
            bytes_max,
            watches,
        })
    }
}

impl Encode for WatchRequest<'_> {
    fn encoded_len(&self) -> usize {
        let watches = self.watches.iter().map(|watch| {
            let (_, first, second) = watch.parts();
            9 + first.len() + second.map_or(0, |end| 4 + end.len())
        });
        REQUEST_SIZE + watches.sum::<usize>()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(MESSAGE_VERSION);
        let flag = |bit: u8, set: bool| if set { bit } else { 0 };
        out.u8(flag(KEYS_ONLY, self.keys_only) | flag(PREFER_FOLLOWER, self.prefer_follower));
        out.u16(u16::try_from(self.watches.len()).expect("at most WATCHES_MAX"));
        out.u32(self.bytes_max);
        out.u64(self.cluster.0);
        out.u64(self.watcher);
        out.u64(self.from);
        out.u32(self.part);
        for watch in &self.watches {
            let (form, first, second) = watch.parts();
            out.u32(watch.id);
            out.u8(form);
            put(out, first);
            if let Some(end) = second {
                put(out, end);
            }
        }
    }
}

fn put(out: &mut Writer<'_>, bytes: &[u8]) {
    out.u32(length(bytes));
    out.bytes(bytes);
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("keys and values are far below 4 GiB")
}

/// An event, with the watches that it belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchEvent<'a> {
    /// The client's names of the watches.
    pub ids: Vec<u32>,
    /// Where it has happened.
    pub position: Position,
    /// The kind of command that did it; nothing if this release does not know it.
    pub command: Option<Kind>,
    /// What has happened. A value may be left out.
    pub change: Change<'a>,
}

impl<'a> WatchEvent<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (kind, command, count) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let (position, remaining) = (reader.u64()?, reader.u64()?);
        let value_bytes = reader.u32()?;
        let ids: Result<Vec<_>, _> = (0..count).map(|_| reader.u32()).collect();
        let ids = ids?;
        let (key, value) = (bytes(reader)?, bytes(reader)?);
        let change = match kind {
            WRITTEN | WRITTEN_WITHOUT => Change::Written {
                key,
                value: (kind == WRITTEN).then_some(value),
                value_bytes,
                remaining_ns: (remaining > 0).then_some(remaining),
            },
            REMOVED => Change::Removed { key },
            EXPIRED => Change::Expired { key },
            FLUSHED => Change::Flushed,
            _ => return Err(DecodeError::Field { field: "kind" }),
        };
        Ok(Self {
            ids,
            position: Position::from_u64(position),
            command: Kind::of_byte(command),
            change,
        })
    }
}

/// The events of an answer while they are put together.
#[derive(Clone, Default, Debug)]
pub struct EventWriter {
    bytes: Vec<u8>,
    count: u32,
}

impl EventWriter {
    /// Bytes that the answer would have with these events.
    #[must_use]
    pub fn reply_len(&self) -> usize {
        EVENTS_SIZE + self.bytes.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// What an event with so many ids takes.
    #[must_use]
    pub fn size_of(event: &Event<'_>, ids: usize, keys_only: bool) -> usize {
        let value = match event.change {
            Change::Written { value, .. } if !keys_only => value.map_or(0, <[u8]>::len),
            _ => 0,
        };
        EVENT_SIZE + 4 * ids + event.key().map_or(0, <[u8]>::len) + value
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event<'_>, ids: &[u32], keys_only: bool) {
        let no_key = (&[][..], None, 0, None);
        let (kind, (key, value, value_bytes, remaining)) = match event.change {
            Change::Written {
                key,
                value,
                value_bytes,
                remaining_ns,
            } => match value.filter(|_| !keys_only) {
                Some(value) => (WRITTEN, (key, Some(value), value_bytes, remaining_ns)),
                None => (WRITTEN_WITHOUT, (key, None, value_bytes, remaining_ns)),
            },
            Change::Removed { key } => (REMOVED, (key, None, 0, None)),
            Change::Expired { key } => (EXPIRED, (key, None, 0, None)),
            Change::Flushed => (FLUSHED, no_key),
        };
        let start = self.bytes.len();
        let size = Self::size_of(event, ids.len(), keys_only);
        self.bytes.resize(start + size, 0);
        let mut out = Writer::new(&mut self.bytes[start..]);
        out.u8(kind);
        out.u8(event.command as u8);
        out.u16(u16::try_from(ids.len()).expect("at most WATCHES_MAX"));
        out.u64(event.position.as_u64());
        out.u64(remaining.unwrap_or(0));
        out.u32(value_bytes);
        ids.iter().for_each(|&id| out.u32(id));
        put(&mut out, key);
        put(&mut out, value.unwrap_or_default());
        assert!(out.is_full(), "size_of() says what push() writes");
        self.count += 1;
    }

    /// The answer: everything up to `seen` was told, and `part` events of the next position.
    #[must_use]
    pub fn reply(&self, seen: u64, part: u32) -> WatchReply<'_> {
        WatchReply::Events {
            seen,
            part,
            events: EventList {
                count: self.count,
                bytes: &self.bytes,
            },
        }
    }
}

/// The events of an answer, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventList<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> EventList<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Reads them.
    pub fn iter(&self) -> impl Iterator<Item = WatchEvent<'a>> {
        let mut reader = Reader::new(self.bytes);
        // `decode` has read each of them once.
        (0..self.count).map_while(move |_| WatchEvent::read(&mut reader).ok())
    }
}

/// The answer to a [`WatchRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchReply<'a> {
    /// What has happened; nothing if the time for it has passed.
    Events {
        /// Everything up to here is told now.
        seen: u64,
        /// So many events of the next position are told, and more of it follow.
        part: u32,
        /// The events.
        events: EventList<'a>,
    },
    /// This replica has forgotten some of the events that were asked for.
    Compacted {
        /// It knows all events behind this position.
        oldest: u64,
    },
    /// Not here, or not now: ask another replica, or this one after the pause. The text says why.
    Later {
        /// Milliseconds.
        pause_ms: u32,
        /// The reason.
        why: &'a str,
    },
    /// The group has not come to the position that the request begins with.
    Future {
        /// Where it is.
        applied: u64,
    },
    /// This will not be. The text says why.
    Refused(&'a str),
    /// The caller has no right to it. The text says what is missing.
    Denied(&'a str),
    /// Another request of this watcher has taken the place of this one.
    Replaced,
}

// No status is one of a client's reply: a replica without memory answers with one of these.
const EVENTS: u8 = WATCH_STATUS_MIN;
const COMPACTED: u8 = 65;
const LATER: u8 = 66;
const FUTURE: u8 = 67;
const REFUSED: u8 = 68;
const DENIED: u8 = 69;
const REPLACED: u8 = 70;

impl<'a> WatchReply<'a> {
    /// Reads a reply.
    ///
    /// # Errors
    /// When it is cut short, of another version, or a field has no meaning.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::versioned(bytes)?;
        let status = reader.u8()?;
        let len = reader.u16()?;
        let number = reader.u32()?;
        let text = |mut reader: Reader<'a>| reader.text(len);
        let position = |mut reader: Reader<'a>| reader.u64();
        Ok(match status {
            EVENTS => {
                let seen = reader.u64()?;
                let count = reader.u32()?;
                let bytes = reader.rest();
                let mut rest = reader;
                for _ in 0..count {
                    WatchEvent::read(&mut rest)?;
                }
                let bytes = &bytes[..bytes.len() - rest.rest().len()];
                let events = EventList { count, bytes };
                let part = number;
                Self::Events { seen, part, events }
            }
            COMPACTED => Self::Compacted {
                oldest: position(reader)?,
            },
            FUTURE => Self::Future {
                applied: position(reader)?,
            },
            LATER => Self::Later {
                pause_ms: number,
                why: text(reader)?,
            },
            REFUSED => Self::Refused(text(reader)?),
            DENIED => Self::Denied(text(reader)?),
            REPLACED => Self::Replaced,
            _ => return Err(DecodeError::Field { field: "status" }),
        })
    }
}

impl Encode for WatchReply<'_> {
    fn encoded_len(&self) -> usize {
        8 + match self {
            Self::Events { events, .. } => EVENTS_SIZE - 8 + events.bytes.len(),
            Self::Compacted { .. } | Self::Future { .. } => 8,
            Self::Later { why: text, .. } | Self::Refused(text) | Self::Denied(text) => {
                sentence(text).1.len()
            }
            Self::Replaced => 0,
        }
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let (status, number) = match self {
            Self::Events { part, .. } => (EVENTS, *part),
            Self::Compacted { .. } => (COMPACTED, 0),
            Self::Later { pause_ms, .. } => (LATER, *pause_ms),
            Self::Future { .. } => (FUTURE, 0),
            Self::Refused(_) => (REFUSED, 0),
            Self::Denied(_) => (DENIED, 0),
            Self::Replaced => (REPLACED, 0),
        };
        let text = match self {
            Self::Later { why: text, .. } | Self::Refused(text) | Self::Denied(text) => text,
            _ => "",
        };
        let (len, text) = sentence(text);
        out.u8(MESSAGE_VERSION);
        out.u8(status);
        out.u16(len);
        out.u32(number);
        out.bytes(text.as_bytes());
        match self {
            Self::Events { seen, events, .. } => {
                out.u64(*seen);
                out.u32(events.count);
                out.bytes(events.bytes);
            }
            Self::Compacted { oldest: position } | Self::Future { applied: position } => {
                out.u64(*position);
            }
            Self::Later { .. } | Self::Refused(_) | Self::Denied(_) | Self::Replaced => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> WatchRequest<'static> {
        let range = |start, end| Watched::Range(KeyRange::Between { start, end });
        let watched = [
            Watched::Key(b"k"),
            Watched::Range(KeyRange::Prefix(b"")),
            range(b"a", None),
            range(b"a", Some(b"b")),
        ];
        let watch = |(id, watched)| Watch { id, watched };
        WatchRequest {
            cluster: ClusterId(2),
            watcher: 3,
            from: 4,
            part: 5,
            keys_only: true,
            prefer_follower: true,
            bytes_max: 6,
            watches: (7..).zip(watched).map(watch).collect(),
        }
    }

    #[test]
    fn the_layout_of_a_request_is_pinned() {
        let bytes = request().encode_to_vec();
        let mut expected = vec![1, 3, 4, 0, 6, 0, 0, 0];
        (2..=4u64).for_each(|field| expected.extend(field.to_le_bytes()));
        expected.extend([5, 0, 0, 0]);
        expected.extend([7, 0, 0, 0, 0, 1, 0, 0, 0, b'k']);
        expected.extend([8, 0, 0, 0, 1, 0, 0, 0, 0]);
        expected.extend([9, 0, 0, 0, 2, 1, 0, 0, 0, b'a']);
        expected.extend([10, 0, 0, 0, 3, 1, 0, 0, 0, b'a', 1, 0, 0, 0, b'b']);
        assert_eq!(bytes, expected);
        assert_eq!(WatchRequest::decode(&bytes), Ok(request()));
        for length in 0..bytes.len() {
            assert!(WatchRequest::decode(&bytes[..length]).is_err());
        }
        let mut none = request();
        none.watches.clear();
        let field = "watches";
        assert_eq!(
            WatchRequest::decode(&none.encode_to_vec()),
            Err(DecodeError::Field { field })
        );
    }

    #[test]
    fn the_layout_of_events_is_pinned() {
        let event = Event {
            position: Position::from_u64(9),
            command: Kind::Put,
            change: Change::Written {
                key: b"k",
                value: Some(b"vw"),
                value_bytes: 2,
                remaining_ns: Some(7),
            },
        };
        let mut writer = EventWriter::default();
        writer.push(&event, &[5, 6], false);
        let bytes = writer.reply(8, 1).encode_to_vec();
        assert_eq!(bytes.len(), writer.reply_len());
        let mut expected = vec![1, 64, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        expected.extend([1, 2, 2, 0, 9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([2, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0]);
        expected.extend([1, 0, 0, 0, b'k', 2, 0, 0, 0, b'v', b'w']);
        assert_eq!(bytes, expected);
        for length in 0..bytes.len() {
            assert!(WatchReply::decode(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn every_change_and_reply_survives() {
        let (key, value_bytes) = (&b"key"[..], 5);
        let written = |value| Change::Written {
            key,
            value,
            value_bytes,
            remaining_ns: None,
        };
        let changes = [
            written(Some(&b"12345"[..])),
            written(None),
            Change::Removed { key },
            Change::Expired { key },
            Change::Flushed,
        ];
        for keys_only in [false, true] {
            let mut writer = EventWriter::default();
            for change in changes {
                let event = Event {
                    position: Position::from_u64(77),
                    command: Kind::Append,
                    change,
                };
                writer.push(&event, &[1], keys_only);
            }
            let bytes = writer.reply(76, 5).encode_to_vec();
            let Ok(WatchReply::Events { seen, part, events }) = WatchReply::decode(&bytes) else {
                panic!("events went in");
            };
            assert_eq!((seen, part, events.len()), (76, 5, 5));
            let mut expected = changes;
            if keys_only {
                expected[0] = written(None);
            }
            let read: Vec<_> = events.iter().map(|event| event.change).collect();
            assert_eq!(read, expected);
        }
        for reply in [
            WatchReply::Compacted { oldest: 8 },
            WatchReply::Later {
                pause_ms: 5,
                why: "not yet",
            },
            WatchReply::Future { applied: 9 },
            WatchReply::Refused("no"),
            WatchReply::Denied("not you"),
            WatchReply::Replaced,
        ] {
            assert_eq!(WatchReply::decode(&reply.encode_to_vec()), Ok(reply));
        }
    }
}
