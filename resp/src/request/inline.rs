//! A line of words, as a person types them: quotes keep spaces together, backslashes write what cannot be typed.

use std::ops::Range;

/// Appends the words of `text` to `words` and the range of each to `ranges`; false if a quote is not closed.
pub(super) fn split(text: &[u8], words: &mut Vec<u8>, ranges: &mut Vec<Range<usize>>) -> bool {
    let mut rest = text;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return true;
        }
        let start = words.len();
        let Some(behind) = word(rest, words) else {
            return false;
        };
        ranges.push(start..words.len());
        rest = behind;
    }
}

/// Appends the first word and returns the bytes behind it.
fn word<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((first, behind)) = rest.split_first() {
        rest = match first {
            byte if byte.is_ascii_whitespace() || *byte == 0 => return Some(behind),
            b'"' => return ends_word(double_quoted(behind, out)?),
            b'\'' => return ends_word(single_quoted(behind, out)?),
            byte => {
                out.push(*byte);
                behind
            }
        };
    }
    Some(rest)
}

/// A closing quote ends the word: a space or nothing has to follow.
fn ends_word(behind: &[u8]) -> Option<&[u8]> {
    behind
        .first()
        .is_none_or(u8::is_ascii_whitespace)
        .then_some(behind)
}

fn double_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return None,
            [b'"', behind @ ..] => return Some(behind),
            [b'\\', b'x', high, low, behind @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                out.push(hex(*high) << 4 | hex(*low));
                behind
            }
            [b'\\', escaped, behind @ ..] => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                behind
            }
            [byte, behind @ ..] => {
                out.push(*byte);
                behind
            }
        };
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return None,
            [b'\'', behind @ ..] => return Some(behind),
            [b'\\', b'\'', behind @ ..] => {
                out.push(b'\'');
                behind
            }
            [byte, behind @ ..] => {
                out.push(*byte);
                behind
            }
        };
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        other => (other | 0x20) - b'a' + 10,
    }
}
