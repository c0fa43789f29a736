//! How does a Redis server answer GET, SET and DEL? In RESP2, and with the null of RESP3.

/// Redis sends no longer value by default, and the benchmark writes none so long.
const VALUE_BYTES_MAX: usize = 512 << 20;
/// The same limit for a line: Redis sends none near it.
const LINE_BYTES_MAX: usize = 64 << 10;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Any other answer; its contents do not matter.
    Done,
    /// There is no such key.
    Missing,
    /// The server's error, in its words.
    Refused(String),
}

/// Returns the first answer in `input` and its length, once it is complete; or the error in it.
pub fn parse(input: &[u8]) -> Option<(Result<Answer, String>, usize)> {
    let first = &input[..input.len().min(LINE_BYTES_MAX)];
    let Some(line_end) = first.windows(2).position(|two| two == b"\r\n") else {
        let why = format!("a line of more than {LINE_BYTES_MAX} bytes");
        return (first.len() == LINE_BYTES_MAX).then_some((Err(why), input.len()));
    };
    let line = String::from_utf8_lossy(&input[1..line_end.max(1)]);
    let after = line_end + 2;
    match input[0] {
        b'+' | b':' => Some((Ok(Answer::Done), after)),
        b'-' => Some((Ok(Answer::Refused(line.into_owned())), after)),
        b'_' => Some((Ok(Answer::Missing), after)),
        b'$' if line == "-1" => Some((Ok(Answer::Missing), after)),
        b'$' => match length(&line) {
            Some(length) if length > VALUE_BYTES_MAX => {
                let why = format!(
                    "a value of {length} bytes, more than the {VALUE_BYTES_MAX} that there can be"
                );
                Some((Err(why), after))
            }
            Some(length) => {
                let end = after + length + 2;
                let answer = match input.get(after + length..end)? {
                    b"\r\n" => Ok(Answer::Done),
                    _ => Err(format!(
                        "a value of {length} bytes that goes on behind its end"
                    )),
                };
                Some((answer, end))
            }
            None => Some((Err(format!("{line:?} is no length")), after)),
        },
        _ => Some((
            Err("an answer of a kind that GET, SET and DEL do not have".into()),
            after,
        )),
    }
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
            ("+OK\r\n", Answer::Done),
            ("$5\r\nab\r\nc\r\n", Answer::Done),
            ("$0\r\n\r\n", Answer::Done),
            ("$-1\r\n", Answer::Missing),
            ("_\r\n", Answer::Missing),
            ("-ERR no\r\n", Answer::Refused("ERR no".to_owned())),
        ] {
            for end in 0..text.len() {
                assert_eq!(parse(&text.as_bytes()[..end]), None, "{text:?} until {end}");
            }
            let more = format!("{text}+OK\r\n");
            assert_eq!(
                parse(more.as_bytes()),
                Some((Ok(answer), text.len())),
                "{text:?}"
            );
        }
        let endless = "+".repeat(LINE_BYTES_MAX);
        for wrong in [
            "*1\r\n",
            "$x\r\n",
            "\r\n",
            "$2\r\nabc\r\n",
            "$+2\r\nab\r\n",
            &endless,
        ] {
            assert!(
                matches!(parse(wrong.as_bytes()), Some((Err(_), _))),
                "{wrong:?}"
            );
        }
        assert_eq!(parse(&endless.as_bytes()[1..]), None);
    }

    /// A length next to the largest number overflowed the position of the answer's end. The program stopped. Built
    /// without checks, it took bytes of the value for the next answer.
    #[test]
    fn a_length_that_no_value_has_is_refused() {
        for length in [usize::MAX, usize::MAX - 30, VALUE_BYTES_MAX + 1] {
            let text = format!("${length}\r\nabc");
            let Some((Err(why), _)) = parse(text.as_bytes()) else {
                panic!("{text:?} was taken");
            };
            assert!(why.contains(&length.to_string()), "{why}");
        }
        let longest = format!("${VALUE_BYTES_MAX}\r\nabc");
        assert_eq!(parse(longest.as_bytes()), None);
    }
}
