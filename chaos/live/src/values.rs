//! Large values in a history: kept by their beginning, length and hash, because an hour of them would fill the memory.

use std::hash::{DefaultHasher, Hasher};

use trine_chaos::history::{Action, Answer};

/// Longer values are shortened.
const KEPT_WHOLE_MAX: usize = 256;
/// The beginning of a shortened value: it has the name that the writer gave it.
const BEGINNING: usize = 48;

/// The action as a history keeps it.
pub(super) fn action(action: &Action) -> Action {
    let mut action = action.clone();
    if let Action::Put { value } | Action::PutFor { value, .. } | Action::Cas { value, .. } =
        &mut action
    {
        shorten(value);
    }
    action
}

/// The answer as a history keeps it.
pub(super) fn answer(mut answer: Answer) -> Answer {
    if let Answer::Value { value, .. } = &mut answer {
        shorten(value);
    }
    answer
}

/// Equal values stay equal, and a foreign byte still makes a difference.
fn shorten(value: &mut Vec<u8>) {
    if value.len() <= KEPT_WHOLE_MAX {
        return;
    }
    // Its keys are always the same, so values of several threads can be compared.
    let mut hasher = DefaultHasher::new();
    hasher.write(value);
    let sum = format!("... {} bytes, hash {:016x}", value.len(), hasher.finish());
    value.truncate(BEGINNING);
    value.extend_from_slice(sum.as_bytes());
    value.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_byte_in_a_large_value_is_still_seen() {
        let written = vec![b'a'; 40_000];
        let kept = |value: &[u8]| {
            let value = value.to_vec();
            action(&Action::Put { value })
        };
        let read = |value: &[u8]| match answer(Answer::Value {
            value: value.to_vec(),
            version: None,
        }) {
            Answer::Value { value, .. } => Action::Put { value },
            other => panic!("{other:?}"),
        };
        assert_eq!(kept(&written), read(&written));
        let mut damaged = written.clone();
        damaged[39_000] = b'b';
        assert_ne!(kept(&written), read(&damaged));
        assert_ne!(kept(&written), read(&written[..39_999]));
        let text = format!("{:?}", kept(&written));
        assert!(text.len() < 2_000, "{text}");
        let small = b"1.7.abc".to_vec();
        assert_eq!(kept(&small), Action::Put { value: small });
    }
}
