//! Bytes as lower-case hexadecimal digits, and back.

use std::fmt::Write as _;

/// Appends two digits for each byte.
pub(crate) fn write(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes everything");
    }
}

/// The bytes that `text` has two digits each for. `None` if it has another length or another character. Upper case is
/// another character: each value has one text.
pub(crate) fn read(text: &str, bytes: &mut [u8]) -> Option<()> {
    let digits = text.as_bytes();
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(())
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}
