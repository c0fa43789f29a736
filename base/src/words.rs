//! How does a line become words? Quotes and escapes, so that a word can be any bytes.
//!
//! | written | means |
//! |---|---|
//! | `'...'` | the text between the quotes, byte for byte |
//! | `"..."`, or outside of quotes | `\n \r \t \0 \\ \" \' \ ` (space) and `\xHH` stand for one byte |
//! | `#` at the beginning of a word | the rest of the line is a comment |

use std::borrow::Cow;

/// Why a line cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    /// A quote that is not closed.
    #[error("the quote {quote} has no end; write \\{quote} for a quote that means itself")]
    OpenQuote {
        /// The quote character.
        quote: char,
    },
    /// A backslash at the end.
    #[error("the line ends with a backslash; write \\\\ for one that means itself")]
    OpenEscape,
    /// A `\x` without two hexadecimal digits.
    #[error("\\x needs two hexadecimal digits after it, as in \\x0a")]
    BadHex,
    /// A backslash before a character that it gives no meaning.
    #[error("\\{found} means nothing; known are \\n \\r \\t \\0 \\\\ \\\" \\' and \\xHH")]
    UnknownEscape {
        /// The character.
        found: char,
    },
}

/// Splits a line into words.
pub fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, WordError> {
    let mut rest = line;
    let mut words = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        match rest.first() {
            None | Some(b'#') => return Ok(words),
            Some(_) => match command_name(rest, &words) {
                Some(name) => {
                    rest = &rest[name.len()..];
                    words.push(name.to_vec());
                }
                None => words.push(word(&mut rest)?),
            },
        }
    }
}

/// A name that begins with a backslash, where a command can be. There a backslash is no escape.
fn command_name<'a>(rest: &'a [u8], before: &[Vec<u8>]) -> Option<&'a [u8]> {
    let stands = match before {
        [] => true,
        [first] => first == b"help",
        [first, _] => first == b"\\watch",
        _ => false,
    };
    let end = rest.iter().position(u8::is_ascii_whitespace);
    (stands && rest.first() == Some(&b'\\')).then(|| &rest[..end.unwrap_or(rest.len())])
}

/// One word, up to the next space outside of quotes.
fn word(rest: &mut &[u8]) -> Result<Vec<u8>, WordError> {
    let mut word = Vec::new();
    while let Some((&byte, after)) = rest.split_first() {
        if byte.is_ascii_whitespace() {
            break;
        }
        *rest = after;
        match byte {
            b'\'' => literal(rest, &mut word)?,
            b'"' => quoted(rest, &mut word)?,
            b'\\' => word.push(escape(rest)?),
            _ => word.push(byte),
        }
    }
    Ok(word)
}

fn literal(rest: &mut &[u8], word: &mut Vec<u8>) -> Result<(), WordError> {
    let end = rest.iter().position(|&byte| byte == b'\'');
    let end = end.ok_or(WordError::OpenQuote { quote: '\'' })?;
    word.extend_from_slice(&rest[..end]);
    *rest = &rest[end + 1..];
    Ok(())
}

fn quoted(rest: &mut &[u8], word: &mut Vec<u8>) -> Result<(), WordError> {
    while let Some((&byte, after)) = rest.split_first() {
        *rest = after;
        match byte {
            b'"' => return Ok(()),
            b'\\' => word.push(escape(rest)?),
            _ => word.push(byte),
        }
    }
    Err(WordError::OpenQuote { quote: '"' })
}

/// The byte that the rest of an escape encodes.
fn escape(rest: &mut &[u8]) -> Result<u8, WordError> {
    let (&byte, after) = rest.split_first().ok_or(WordError::OpenEscape)?;
    *rest = after;
    match byte {
        b'n' => Ok(b'\n'),
        b'r' => Ok(b'\r'),
        b't' => Ok(b'\t'),
        b'0' => Ok(0),
        b'\\' | b'"' | b'\'' | b' ' | b'#' => Ok(byte),
        b'x' => {
            let digits = after.get(..2).ok_or(WordError::BadHex)?;
            let digit = |at: usize| char::from(digits[at]).to_digit(16);
            let (high, low) = digit(0).zip(digit(1)).ok_or(WordError::BadHex)?;
            *rest = &after[2..];
            Ok((high * 16 + low) as u8)
        }
        found => Err(WordError::UnknownEscape {
            found: char::from(found),
        }),
    }
}

/// Writes bytes as a line can hold them: plain if possible, else in double quotes with escapes.
pub fn show(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let plain = |c: char| !c.is_control() && !c.is_whitespace() && !"'\"\\#".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut shown = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| show_char(c, &mut shown));
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown.push('"');
    shown
}

/// A text for a terminal, in which control characters other than line ends and tabs are escaped. Another process may have
/// sent a part of it, and could otherwise draw over what is shown.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if text.chars().all(is_harmless) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_harmless(c) {
            true => shown.push(c),
            false => show_char(c, &mut shown),
        }
    }
    shown.into()
}

fn show_char(c: char, shown: &mut String) {
    match c {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        '"' | '\\' => shown.extend(['\\', c]),
        c if c.is_control() => {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                shown.push_str(&format!("\\x{byte:02x}"));
            }
        }
        c => shown.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::prng::Prng;

    fn words(line: &str) -> Vec<Vec<u8>> {
        split(line.as_bytes()).expect("words")
    }

    #[test]
    fn spaces_part_words_and_quotes_keep_them_together() {
        assert_eq!(words("  put a  b "), [b"put", &b"a"[..], b"b"]);
        assert_eq!(words(r#"put 'a b' "c d""#), [b"put", &b"a b"[..], b"c d"]);
        assert_eq!(words(r#"a'b c'"d"\ e"#), [b"ab cd e"]);
        assert_eq!(words("get '' \"\""), [b"get", &b""[..], b""]);
        assert_eq!(words("get a # said 'so"), [b"get", &b"a"[..]]);
        assert_eq!(words("get a#b"), [b"get", &b"a#b"[..]]);
        assert!(words(" # nothing").is_empty());
    }

    #[test]
    fn escapes_make_any_byte_and_single_quotes_take_none() {
        assert_eq!(words(r#""\x00\xff\n\t\"""#), [b"\0\xff\n\t\""]);
        assert_eq!(words(r"'\x00'"), [br"\x00"]);
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        let error = |line: &str| split(format!("put {line}").as_bytes()).expect_err(line);
        assert_eq!(error("'a"), WordError::OpenQuote { quote: '\'' });
        assert_eq!(error("\"a"), WordError::OpenQuote { quote: '"' });
        assert_eq!(error("\\"), WordError::OpenEscape);
        assert_eq!(error("\\x4"), WordError::BadHex);
        assert_eq!(error("\\xzz"), WordError::BadHex);
        assert_eq!(error("\\q"), WordError::UnknownEscape { found: 'q' });
    }

    #[test]
    fn where_a_command_stands_a_backslash_is_its_name() {
        assert_eq!(
            words("\\watch 1 \\status"),
            [b"\\watch", &b"1"[..], b"\\status"]
        );
        assert_eq!(words("help \\timing"), [b"help", &b"\\timing"[..]]);
        assert_eq!(words("get \\timing"), [b"get", &b"\timing"[..]]);
    }

    /// A process on the port of a dead replica could draw over the output of `trine status`.
    #[test]
    fn no_control_character_of_a_peer_reaches_the_terminal() {
        let calm = "a table\n  of\ttwo gr\u{fc}n lines";
        assert!(matches!(printable(calm), Cow::Borrowed(text) if text == calm));
        let wild = "\u{1b}]52;c;x\u{7}, \u{9b}2J, \r\n";
        assert_eq!(printable(wild), "\\x1b]52;c;x\\x07, \\xc2\\x9b2J, \\r\n");
    }

    #[test]
    fn what_is_shown_can_be_typed_again() {
        let mut prng = Prng::new(11);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..prng.below(12)).map(|_| prng.below(256) as u8).collect();
            let shown = show(&bytes);
            let line = format!("get {shown}");
            assert_eq!(
                split(line.as_bytes()),
                Ok(vec![b"get".to_vec(), bytes]),
                "{shown}"
            );
        }
        assert_eq!(show("gr\u{fc}n".as_bytes()), "gr\u{fc}n");
        assert_eq!(show(b"a\0"), r#""a\x00""#);
    }
}
