//! The part of Protocol Buffers for etcd's GET, PUT and range: it writes fields, and finds those of bytes.

/// Appends a field of bytes.
pub fn field(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    push_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends a field that is a number.
pub fn number(number: u8, value: u64, out: &mut Vec<u8>) {
    out.push(number << 3);
    push_varint(value, out);
}

fn push_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Whether the message has a field of bytes with this number.
pub fn has_field(message: &[u8], number: u64) -> bool {
    let mut rest = message;
    while let Some((tag, after)) = varint(rest) {
        let Some((length, after)) = varint(after) else {
            return false;
        };
        match tag & 7 {
            0 => rest = after,
            2 if tag >> 3 == number => return true,
            2 => match usize::try_from(length)
                .ok()
                .and_then(|length| after.get(length..))
            {
                Some(after) => rest = after,
                None => return false,
            },
            _ => return false,
        }
    }
    false
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_as_the_format_says() {
        let mut message = Vec::new();
        field(1, b"k", &mut message);
        number(3, 300, &mut message);
        assert_eq!(message, [0x0a, 1, b'k', 0x18, 0xac, 0x02]);
    }

    #[test]
    fn what_is_no_message_has_no_field() {
        assert!(!has_field(&[0x0a, 0xff], 2) && !has_field(&[0xff; 20], 2));
    }
}
