//! How does a memcached server answer `get` of one key, `set` and `delete` in its text protocol?

/// The longest value that it keeps, whatever it was started with.
const VALUE_BYTES_MAX: usize = 1 << 30;
/// It sends no line near this length.
const LINE_BYTES_MAX: usize = 64 << 10;
const END: &[u8] = b"\r\nEND\r\n";

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A value, or a write was done.
    Done,
    /// There is no such key.
    Missing,
    /// The server's error, in its words.
    Refused(String),
}

/// Returns the first answer in `input` and its length, once it is complete; or the error in it.
pub(super) fn parse(input: &[u8]) -> Option<(Result<Answer, String>, usize)> {
    let first = &input[..input.len().min(LINE_BYTES_MAX)];
    let Some(line_end) = first.windows(2).position(|two| two == b"\r\n") else {
        let why = format!("a line of more than {LINE_BYTES_MAX} bytes");
        return (first.len() == LINE_BYTES_MAX).then_some((Err(why), input.len()));
    };
    let line = String::from_utf8_lossy(&input[..line_end]);
    let after = line_end + 2;
    if let Some(rest) = line.strip_prefix("VALUE ") {
        return value(input, rest, after);
    }
    let answer = match &*line {
        "STORED" | "DELETED" => Ok(Answer::Done),
        "END" | "NOT_FOUND" => Ok(Answer::Missing),
        "ERROR" | "NOT_STORED" => Ok(Answer::Refused(line.into_owned())),
        _ if line.starts_with("SERVER_ERROR") || line.starts_with("CLIENT_ERROR") => {
            Ok(Answer::Refused(line.into_owned()))
        }
        _ => Err(format!("{line:?} is no answer to get, set or delete")),
    };
    Some((answer, after))
}

/// A value behind its line, which ends at `after`. The rest of the line is key, flags and length.
fn value(input: &[u8], rest: &str, after: usize) -> Option<(Result<Answer, String>, usize)> {
    let length = match rest.split(' ').nth(2).and_then(length) {
        Some(length) if length <= VALUE_BYTES_MAX => length,
        _ => return Some((Err(format!("{rest:?} names no length of a value")), after)),
    };
    let end = after + length + END.len();
    let answer = match input.get(after + length..end)? {
        END => Ok(Answer::Done),
        _ => Err(format!(
            "a value of {length} bytes that goes on behind its end"
        )),
    };
    Some((answer, end))
}

/// A length is digits alone. The standard library takes a sign, too.
fn length(text: &str) -> Option<usize> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_only_when_they_are_whole() {
        for (text, answer) in [
            ("STORED\r\n", Answer::Done),
            ("VALUE k 0 5\r\nab\r\nc\r\nEND\r\n", Answer::Done),
            ("VALUE k 0 0\r\n\r\nEND\r\n", Answer::Done),
            ("END\r\n", Answer::Missing),
            ("DELETED\r\n", Answer::Done),
            ("NOT_FOUND\r\n", Answer::Missing),
            (
                "SERVER_ERROR out of memory\r\n",
                Answer::Refused("SERVER_ERROR out of memory".into()),
            ),
        ] {
            for end in 0..text.len() {
                assert_eq!(parse(&text.as_bytes()[..end]), None, "{text:?} until {end}");
            }
            let more = format!("{text}STORED\r\n");
            assert_eq!(
                parse(more.as_bytes()),
                Some((Ok(answer), text.len())),
                "{text:?}"
            );
        }
        let endless = "x".repeat(LINE_BYTES_MAX);
        for wrong in [
            "\r\n",
            "HELLO\r\n",
            "VALUE k\r\n",
            "VALUE k 0 +1\r\na\r\nEND\r\n",
            "VALUE k 0 18446744073709551615\r\n",
            "VALUE k 0 2\r\nabcdefghijk",
            &endless,
        ] {
            assert!(
                matches!(parse(wrong.as_bytes()), Some((Err(_), _))),
                "{wrong:?}"
            );
        }
    }
}
