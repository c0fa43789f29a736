//! Splits a line into words, with quotes and escapes, so that a word can be any bytes.
//!
//! | written | means |
//! |---|---|
//! | `'...'` | the text between the quotes, byte for byte |
//! | `"..."`, or outside of quotes | `\n \r \t \0 \\ \" \' \ ` (space) and `\xHH` stand for one byte |
//! | `#` at the beginning of a word | the rest of the line is a comment |
//! | the end of the line, in quotes | itself; elsewhere it ends the command |

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
    let mut splitter = Splitter::default();
    for &byte in line {
        if splitter.push(byte) {
            // Not a line but several: the others are separated from this one as words are.
            splitter.state = LexState::Between;
        }
    }
    splitter.into_words()
}

/// Reads a command byte by byte. So it knows where the command ends, however many lines its quotes go over.
#[derive(Debug, Default)]
pub struct Splitter {
    words: Vec<Vec<u8>>,
    /// The word under way; empty outside of words.
    word: Vec<u8>,
    state: LexState,
    /// The first thing that is wrong. The rest of the line is skipped.
    wrong: Option<WordError>,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LexState {
    #[default]
    Between,
    Word,
    /// A name that begins with a backslash.
    Name,
    Comment,
    Quoted(u8),
    /// After a backslash, in quotes or outside of them.
    Escape(Option<u8>),
    /// After `\x`, and after the first digit if there is one.
    Hex(Option<u8>, Option<u32>),
}

impl Splitter {
    /// Takes the next byte. Whether it ends the command: a line end outside of quotes.
    pub fn push(&mut self, byte: u8) -> bool {
        let ends = byte == b'\n' && self.open_quote().is_none();
        if self.wrong.is_none() {
            match self.step(byte) {
                Ok(state) => self.state = state,
                Err(error) => self.wrong = Some(error),
            }
        }
        ends || (byte == b'\n' && self.wrong.is_some())
    }

    /// The quote that has no end so far. A line end belongs to the word then.
    pub fn open_quote(&self) -> Option<char> {
        match self.state {
            LexState::Quoted(quote) if self.wrong.is_none() => Some(char::from(quote)),
            _ => None,
        }
    }

    /// The words, if the command ends here.
    pub fn into_words(mut self) -> Result<Vec<Vec<u8>>, WordError> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        match self.state {
            LexState::Between | LexState::Comment => {}
            LexState::Word | LexState::Name => self.words.push(self.word),
            LexState::Quoted(quote) => {
                let quote = char::from(quote);
                return Err(WordError::OpenQuote { quote });
            }
            LexState::Escape(_) => return Err(WordError::OpenEscape),
            LexState::Hex(..) => return Err(WordError::BadHex),
        }
        Ok(self.words)
    }

    fn step(&mut self, byte: u8) -> Result<LexState, WordError> {
        match self.state {
            LexState::Between => Ok(self.begin(byte)),
            LexState::Comment if byte == b'\n' => Ok(LexState::Between),
            LexState::Comment => Ok(LexState::Comment),
            LexState::Word | LexState::Name if byte.is_ascii_whitespace() => {
                self.words.push(std::mem::take(&mut self.word));
                Ok(LexState::Between)
            }
            LexState::Word => Ok(self.in_word(byte)),
            LexState::Quoted(quote) if byte == quote => Ok(LexState::Word),
            LexState::Quoted(b'"') if byte == b'\\' => Ok(LexState::Escape(Some(b'"'))),
            LexState::Name | LexState::Quoted(_) => {
                self.word.push(byte);
                Ok(self.state)
            }
            LexState::Escape(quote) => self.escape(byte, quote),
            LexState::Hex(quote, high) => self.hex(byte, quote, high),
        }
    }

    fn begin(&mut self, byte: u8) -> LexState {
        match byte {
            byte if byte.is_ascii_whitespace() => LexState::Between,
            b'#' => LexState::Comment,
            b'\\' if self.is_before_command() => {
                self.word.push(byte);
                LexState::Name
            }
            _ => self.in_word(byte),
        }
    }

    /// Whether the next word can be a command. There a backslash is no escape, but begins a name.
    fn is_before_command(&self) -> bool {
        match self.words.as_slice() {
            [] => true,
            [first] => first == b"help",
            [first, _] => first == b"\\watch",
            _ => false,
        }
    }

    fn in_word(&mut self, byte: u8) -> LexState {
        match byte {
            b'\'' | b'"' => return LexState::Quoted(byte),
            b'\\' => return LexState::Escape(None),
            _ => self.word.push(byte),
        }
        LexState::Word
    }

    /// The character after a backslash.
    fn escape(&mut self, byte: u8, quote: Option<u8>) -> Result<LexState, WordError> {
        let meant = match byte {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => 0,
            b'\\' | b'"' | b'\'' | b' ' | b'#' => byte,
            b'x' => return Ok(LexState::Hex(quote, None)),
            b'\n' => return Err(WordError::OpenEscape),
            found => {
                let found = char::from(found);
                return Err(WordError::UnknownEscape { found });
            }
        };
        Ok(self.escaped(meant, quote))
    }

    fn hex(
        &mut self,
        byte: u8,
        quote: Option<u8>,
        high: Option<u32>,
    ) -> Result<LexState, WordError> {
        let digit = char::from(byte).to_digit(16).ok_or(WordError::BadHex)?;
        Ok(match high {
            None => LexState::Hex(quote, Some(digit)),
            Some(high) => self.escaped((high * 16 + digit) as u8, quote),
        })
    }

    /// An escape has ended with the byte that it means.
    fn escaped(&mut self, meant: u8, quote: Option<u8>) -> LexState {
        self.word.push(meant);
        quote.map_or(LexState::Word, LexState::Quoted)
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

    /// Two lines that were pasted were one command: `unlink a` and `unlink b` deleted the key `unlink`, too.
    #[test]
    fn a_line_end_ends_a_command_unless_it_is_in_quotes() {
        let commands = |text: &str| {
            let (mut commands, mut splitter) = (Vec::new(), Splitter::default());
            for byte in text.bytes() {
                if splitter.push(byte) {
                    commands.push(std::mem::take(&mut splitter).into_words());
                }
            }
            commands.push(splitter.into_words());
            commands
        };
        let words =
            |words: &[&str]| Ok(words.iter().map(|word| word.as_bytes().to_vec()).collect());
        assert_eq!(
            commands("del a\ndel b"),
            [words(&["del", "a"]), words(&["del", "b"])]
        );
        assert_eq!(
            commands("put a 'x\ny'z\nput b \"\\\"\n\"\n# it's\n"),
            [
                words(&["put", "a", "x\nyz"]),
                words(&["put", "b", "\"\n"]),
                words(&[]),
                words(&[]),
            ]
        );
        // A mistake costs its own line and no other.
        let mistakes = commands("put \\\nput \\x4\nput \"\\q 'x\nget a\nput 'b\nc");
        assert_eq!(
            mistakes,
            [
                Err(WordError::OpenEscape),
                Err(WordError::BadHex),
                Err(WordError::UnknownEscape { found: 'q' }),
                words(&["get", "a"]),
                Err(WordError::OpenQuote { quote: '\'' }),
            ]
        );
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
