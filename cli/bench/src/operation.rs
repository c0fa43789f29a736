//! One operation of a client: one request to the store, or two of them.

use super::stores::{BenchRequest, OperationOutcome, StoreTarget};
use super::workload::OperationKind;
use trine_base::failure::Failure;

/// Bytes of each key.
const KEY_BYTES: usize = 16;

/// Behind every key: no scan goes on to keys of others.
const KEYS_END: &[u8] = b"bench.";

/// An operation on the key with a number.
#[derive(Copy, Clone, Debug)]
pub(super) struct KeyOperation {
    pub(super) kind: OperationKind,
    pub(super) key: u64,
    /// For a scan: the most items that it is to have.
    items: u32,
    /// For a read-modify-write: the read has ended.
    was_read: bool,
}

impl KeyOperation {
    pub(super) fn new(kind: OperationKind, key: u64) -> Self {
        Self {
            kind,
            key,
            items: 0,
            was_read: false,
        }
    }

    /// A scan of so many items from the key on.
    pub(super) fn scan(key: u64, items: u32) -> Self {
        Self {
            items,
            ..Self::new(OperationKind::Scan, key)
        }
    }

    /// Sends its next request.
    pub(super) fn send(
        &self,
        target: &mut impl StoreTarget,
        client: usize,
        tag: u64,
        value: &[u8],
    ) -> Result<(), Failure> {
        let key = &key_of(self.key);
        let request = match self.kind {
            OperationKind::Scan => BenchRequest::Scan {
                from: key,
                to: KEYS_END,
                items: self.items,
            },
            OperationKind::Read => BenchRequest::Read { key },
            OperationKind::ReadModifyWrite if !self.was_read => BenchRequest::Read { key },
            OperationKind::Update | OperationKind::Insert | OperationKind::ReadModifyWrite => {
                BenchRequest::Write { key, value }
            }
        };
        target.submit(client, tag, request)
    }

    /// What completes it behind a request with this outcome, if that was not all.
    pub(super) fn further(self, outcome: &OperationOutcome) -> Option<Self> {
        let is_half = self.kind == OperationKind::ReadModifyWrite && !self.was_read;
        (is_half && *outcome == OperationOutcome::Done).then_some(Self {
            was_read: true,
            ..self
        })
    }
}

/// "bench-" and ten digits.
pub(super) fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"bench-0000000000";
    let mut rest = number;
    for digit in key[6..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_number() {
        assert_eq!(&key_of(120), b"bench-0000000120");
        assert!(key_of(9_999_999_999)[..] < *KEYS_END);
    }

    #[test]
    fn a_key_that_was_read_is_written_and_a_missing_one_is_not() {
        let operation = KeyOperation::new(OperationKind::ReadModifyWrite, 1);
        let write = operation
            .further(&OperationOutcome::Done)
            .expect("the write");
        assert!(write.further(&OperationOutcome::Done).is_none());
        assert!(operation.further(&OperationOutcome::Missing).is_none());
        let read = KeyOperation::new(OperationKind::Read, 1);
        assert!(read.further(&OperationOutcome::Done).is_none());
    }
}
