//! Commands to bytes: version, kind, then the fields in the order of the enum.

use super::{
    Command, Condition, ExecuteMode, ExpireCondition, Pair, SetCondition, SetExpiry, SetOptions,
};
use crate::codec::{BufferTooSmall, Counter, Sink, fill};

/// The kind bytes. They are part of the replicated log: never reuse one.
pub(super) mod kind {
    pub(crate) const GET: u8 = 1;
    pub(crate) const PUT: u8 = 2;
    pub(crate) const DELETE: u8 = 3;
    pub(crate) const SET: u8 = 4;
    pub(crate) const GET_DELETE: u8 = 5;
    pub(crate) const COMPARE_AND_SWAP: u8 = 6;
    pub(crate) const INCREMENT: u8 = 7;
    pub(crate) const APPEND: u8 = 8;
    pub(crate) const MULTI_GET: u8 = 9;
    pub(crate) const MULTI_PUT: u8 = 10;
    pub(crate) const EXPIRE: u8 = 11;
    pub(crate) const PERSIST: u8 = 12;
    pub(crate) const TIME_TO_LIVE: u8 = 13;
    pub(crate) const EXECUTE: u8 = 14;
    pub(crate) const COUNT: u8 = 15;
    pub(crate) const EXPIRE_IF: u8 = 16;
    pub(crate) const SET_LIMITS: u8 = 64;
    pub(crate) const RAISE_VERSION: u8 = 65;
}

impl Command<'_> {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    /// How long the encoding is.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let mut counter = Counter(0);
        self.write(&mut counter);
        counter.0
    }

    /// Writes the encoding to the front of `out` and returns its length.
    ///
    /// # Errors
    /// When `out` is too small; nothing is written then.
    pub fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        fill(out, self.encoded_len(), |filler| self.write(filler))
    }

    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.put_u8(self.version());
        sink.put_u8(self.kind());
        if let Some(key) = self.key() {
            sink.put_bytes(key);
        }
        self.write_rest(sink);
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Get { .. } => kind::GET,
            Self::Put { .. } => kind::PUT,
            Self::Delete { .. } => kind::DELETE,
            Self::Set { .. } => kind::SET,
            Self::GetDelete { .. } => kind::GET_DELETE,
            Self::CompareAndSwap { .. } => kind::COMPARE_AND_SWAP,
            Self::Increment { .. } => kind::INCREMENT,
            Self::Append { .. } => kind::APPEND,
            Self::MultiGet { .. } => kind::MULTI_GET,
            Self::MultiPut { .. } => kind::MULTI_PUT,
            Self::Expire { .. } => kind::EXPIRE,
            Self::ExpireIf { .. } => kind::EXPIRE_IF,
            Self::Persist { .. } => kind::PERSIST,
            Self::TimeToLive { .. } => kind::TIME_TO_LIVE,
            Self::Count => kind::COUNT,
            Self::Execute { .. } => kind::EXECUTE,
            Self::SetLimits { .. } => kind::SET_LIMITS,
            Self::RaiseVersion { .. } => kind::RAISE_VERSION,
        }
    }

    fn write_rest(&self, sink: &mut impl Sink) {
        match self {
            Self::Get { .. }
            | Self::Delete { .. }
            | Self::GetDelete { .. }
            | Self::Persist { .. }
            | Self::TimeToLive { .. }
            | Self::Count => {}
            Self::Put { value, .. } | Self::Append { value, .. } => sink.put_bytes(value),
            Self::Set { value, options, .. } => {
                options.write(sink);
                sink.put_bytes(value);
            }
            Self::CompareAndSwap {
                expected, value, ..
            } => {
                sink.put_u64(expected.as_u64());
                sink.put_bytes(value);
            }
            Self::Increment { delta, .. } => sink.put(&delta.to_le_bytes()),
            Self::MultiGet { keys } => keys.write(sink),
            Self::MultiPut { pairs } => pairs.write(sink),
            Self::Expire { after_ns, .. } => sink.put_u64(*after_ns),
            Self::ExpireIf {
                after_ns,
                condition,
                ..
            } => {
                sink.put_u64(*after_ns);
                condition.write(sink);
            }
            Self::Execute {
                mode,
                conditions,
                operations,
            } => {
                sink.put_u8(u8::from(*mode == ExecuteMode::Independent));
                conditions.write(sink);
                operations.write(sink);
            }
            Self::SetLimits { limits } => limits.write(sink),
            Self::RaiseVersion { version } => sink.put_u8(*version),
        }
    }
}

impl SetOptions {
    fn write(self, sink: &mut impl Sink) {
        sink.put_u8(match self.condition {
            SetCondition::Always => 0,
            SetCondition::Absent => 1,
            SetCondition::Present => 2,
        });
        let (kind, after_ns) = match self.expiry {
            SetExpiry::Never => (0, 0),
            SetExpiry::Keep => (1, 0),
            SetExpiry::After(after_ns) => (2, after_ns),
        };
        sink.put_u8(kind);
        sink.put_u64(after_ns);
        sink.put_u8(u8::from(self.return_previous));
    }
}

impl ExpireCondition {
    fn write(self, sink: &mut impl Sink) {
        sink.put_u8(match self {
            Self::Absent => 0,
            Self::Present => 1,
            Self::Later => 2,
            Self::Earlier => 3,
            Self::PresentAndEarlier => 4,
        });
    }
}

impl Pair<'_> {
    pub(super) fn write(&self, sink: &mut impl Sink) {
        sink.put_bytes(self.key);
        sink.put_bytes(self.value);
    }
}

impl Condition<'_> {
    pub(super) fn write(&self, sink: &mut impl Sink) {
        let (kind, version) = match self {
            Self::Absent { .. } => (0, None),
            Self::Present { .. } => (1, None),
            Self::VersionIs { version, .. } => (2, Some(version)),
        };
        sink.put_u8(kind);
        sink.put_bytes(self.key());
        if let Some(version) = version {
            sink.put_u64(version.as_u64());
        }
    }
}
