//! Numbers in requests, as strict as Redis reads them.

/// The 64-bit number of which exactly these bytes are the decimal form: no sign but a minus, no leading zero, no space.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    let (first, _) = digits.split_first()?;
    if *first == b'0' && (negative || digits.len() > 1) {
        return None;
    }
    digits.iter().try_fold(0_i64, |sum, digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        let sum = sum.checked_mul(10)?;
        match negative {
            true => sum.checked_sub(digit),
            false => sum.checked_add(digit),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::integer;

    #[test]
    fn only_the_decimal_form_itself_is_a_number() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "0x1",
            "-9223372036854775809",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
