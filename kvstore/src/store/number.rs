//! INCR: a signed 64-bit number in decimal.

use super::Store;
use crate::arena::Stamp;
use crate::error::StoreError;
use crate::position::Position;
use crate::response::Response;

/// "-9223372036854775808" has 20 characters.
const DIGITS_MAX: usize = 20;

impl Store {
    pub(super) fn increment(&mut self, at: Position, key: &[u8], delta: i64) -> Response<'_> {
        match self.try_increment(at, key, delta) {
            Ok(value) => Response::Number { value, version: at },
            Err(error) => Response::Error(error),
        }
    }

    fn try_increment(&mut self, at: Position, key: &[u8], delta: i64) -> Result<i64, StoreError> {
        let found = self.items.find(key);
        let (number, expiry_ns) = match self.live(found) {
            Some(item) => (
                integer(item.value).ok_or(StoreError::NotANumber)?,
                item.stamp.expiry_ns,
            ),
            None => (0, 0),
        };
        let sum = number.checked_add(delta).ok_or(StoreError::Overflow)?;
        let mut text = [0; DIGITS_MAX];
        let text = format(sum, &mut text);
        self.write(
            found,
            key,
            text,
            Stamp {
                version: at,
                expiry_ns,
            },
        )?;
        Ok(sum)
    }
}

/// The number whose decimal form is exactly these bytes, as INCR reads it: no
/// sign but a minus, no leading zero, no space.
#[must_use]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let is_canonical = match digits {
        [b'0', rest @ ..] => rest.is_empty() && !is_negative,
        digits => !digits.is_empty() && digits.len() < DIGITS_MAX,
    };
    if !is_canonical {
        return None;
    }
    let magnitude = digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then(|| number * 10 + u64::from(digit))
    })?;
    match is_negative {
        true => 0_i64.checked_sub_unsigned(magnitude),
        false => i64::try_from(magnitude).ok(),
    }
}

fn format(number: i64, text: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut rest = number.unsigned_abs();
    let mut start = DIGITS_MAX;
    loop {
        start -= 1;
        text[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        start -= 1;
        text[start] = b'-';
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_would_be_written() {
        let edges = [
            0,
            1,
            9,
            10,
            99,
            i64::MAX as u64,
            1 << 63,
            u64::MAX,
            9_999_999_999_999_999_999,
        ];
        let around = |edge: u64| (0..3).map(move |by| edge.wrapping_add(by).wrapping_sub(1));
        for number in edges.into_iter().flat_map(around) {
            for text in [
                format!("{number}"),
                format!("-{number}"),
                format!("{number}0"),
            ] {
                let expected = text
                    .parse::<i64>()
                    .ok()
                    .filter(|found| found.to_string() == text);
                assert_eq!(integer(text.as_bytes()), expected, "{text}");
            }
        }
    }

    #[test]
    fn only_canonical_decimals_are_numbers() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
        let not_numbers = [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "0x1",
            "x",
        ];
        assert!(
            not_numbers
                .iter()
                .all(|text| integer(text.as_bytes()).is_none())
        );
    }
}
