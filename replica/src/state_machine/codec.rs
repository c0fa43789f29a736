//! How replicated state is written down: little-endian fields one after the other in a growing vector.

use std::net::SocketAddr;

/// The bytes do not have the expected form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("replicated state cannot be read: {what}")]
pub(crate) struct StateError {
    /// Which part.
    pub(crate) what: &'static str,
    /// The state version that it names, if that is one of a later release: the bytes are sound then.
    pub(crate) newer: Option<u8>,
}

impl StateError {
    /// This part does not have the expected form.
    pub(crate) const fn of(what: &'static str) -> Self {
        Self { what, newer: None }
    }

    /// It is of a later release.
    pub(crate) const fn newer(version: u8) -> Self {
        Self {
            what: "it is of a later release",
            newer: Some(version),
        }
    }
}

/// Appends `value`.
pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends `value`.
pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends the length of `bytes` and `bytes`.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

/// Appends the length of `address` as text, and the text.
pub(crate) fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    put_bytes(out, address.to_string().as_bytes());
}

/// The field at `offset` of a layout of fixed size.
#[inline]
pub(crate) fn field<const N: usize, const F: usize>(layout: &[u8; N], offset: usize) -> [u8; F] {
    let mut field = [0; F];
    field.copy_from_slice(&layout[offset..offset + F]);
    field
}

/// Reads the output of the functions above.
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Cursor<'a> {
    /// Starts at the front of `bytes`, which hold `what`.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    /// The error that names this part.
    pub(crate) fn error(&self) -> StateError {
        StateError::of(self.what)
    }

    /// The next `N` bytes.
    #[inline]
    pub(crate) fn chunk<const N: usize>(&mut self) -> Result<&'a [u8; N], StateError> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(self.error())?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        self.chunk().copied()
    }

    pub(crate) fn u8(&mut self) -> Result<u8, StateError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, StateError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, StateError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], StateError> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// An address as text, behind its length.
    pub(crate) fn address(&mut self) -> Result<SocketAddr, StateError> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| self.error())?;
        text.parse().map_err(|_| self.error())
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], StateError> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(self.error())?;
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn finish(self) -> Result<(), StateError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.error())
        }
    }
}
