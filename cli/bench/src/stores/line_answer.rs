//! What is alike in answers that begin with a line.

/// The longest line of an answer. No server sends one near this length.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineReply {
    /// A value, or a write was done. The contents do not matter.
    Done,
    /// There is no such key.
    Missing,
    /// The server's error, in its words.
    Refused(String),
}

/// An answer or the error in it, and its length.
pub(super) type Taken = (Result<LineReply, String>, usize);

/// Where the first line of `input` ends, once it is complete; or why it is none.
pub(super) fn line_end(input: &[u8]) -> Option<Result<usize, String>> {
    let first = &input[..input.len().min(LINE_BYTES_MAX)];
    match first.windows(2).position(|two| two == b"\r\n") {
        Some(end) => Some(Ok(end)),
        None => (first.len() == LINE_BYTES_MAX)
            .then(|| Err(format!("a line of more than {LINE_BYTES_MAX} bytes"))),
    }
}

/// A value of so many bytes behind its line, which ends at `after`; `close` follows it.
pub(super) fn value(input: &[u8], after: usize, length: usize, close: &[u8]) -> Option<Taken> {
    let end = after + length + close.len();
    let answer = match input.get(after + length..end)? == close {
        true => Ok(LineReply::Done),
        false => Err(format!(
            "a value of {length} bytes that continues after its end"
        )),
    };
    Some((answer, end))
}

/// A length is digits alone. The standard library takes a sign, too.
pub(super) fn length(text: &str) -> Option<usize> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Each text is taken when it is whole, not before, and without `behind`, which follows it.
#[cfg(test)]
#[track_caller]
pub(super) fn assert_taken_whole(
    parse: fn(&[u8]) -> Option<Taken>,
    answers: &[(&str, LineReply)],
    behind: &str,
) {
    for (text, answer) in answers {
        for end in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..end]), None, "{text:?} until {end}");
        }
        let more = format!("{text}{behind}");
        assert_eq!(
            parse(more.as_bytes()),
            Some((Ok(answer.clone()), text.len())),
            "{text:?}"
        );
    }
}

/// None of the texts is an answer.
#[cfg(test)]
#[track_caller]
pub(super) fn assert_wrong(parse: fn(&[u8]) -> Option<Taken>, texts: &[&str]) {
    for wrong in texts {
        assert!(
            matches!(parse(wrong.as_bytes()), Some((Err(_), _))),
            "{wrong:?}"
        );
    }
}
