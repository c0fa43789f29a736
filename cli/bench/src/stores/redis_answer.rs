//! Answers of a Redis server to GET, SET and DEL, in RESP2, with the null of RESP3.

use super::line_answer::{LineReply, Taken, length, line_end, value};

/// Redis sends no longer value by default, and the benchmark writes none so long.
const VALUE_BYTES_MAX: usize = 512 << 20;

/// Returns the first answer in `input` and its length, once it is complete; or the error in it.
pub fn parse(input: &[u8]) -> Option<Taken> {
    let line_end = match line_end(input)? {
        Ok(line_end) => line_end,
        Err(why) => return Some((Err(why), input.len())),
    };
    let line = String::from_utf8_lossy(&input[1..line_end.max(1)]);
    let after = line_end + 2;
    match input[0] {
        b'+' | b':' => Some((Ok(LineReply::Done), after)),
        b'-' => Some((Ok(LineReply::Refused(line.into_owned())), after)),
        b'_' => Some((Ok(LineReply::Missing), after)),
        b'$' if line == "-1" => Some((Ok(LineReply::Missing), after)),
        b'$' => match length(&line) {
            Some(length) if length > VALUE_BYTES_MAX => {
                let why = format!(
                    "a value of {length} bytes, more than the {VALUE_BYTES_MAX} that there can be"
                );
                Some((Err(why), after))
            }
            Some(length) => value(input, after, length, b"\r\n"),
            None => Some((Err(format!("{line:?} is not a length")), after)),
        },
        _ => Some((
            Err("an answer of a kind that GET, SET and DEL do not have".into()),
            after,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::line_answer::{LINE_BYTES_MAX, assert_taken_whole, assert_wrong};

    #[test]
    fn answers_are_taken_only_when_they_are_whole() {
        let answers = [
            ("+OK\r\n", LineReply::Done),
            ("$5\r\nab\r\nc\r\n", LineReply::Done),
            ("$0\r\n\r\n", LineReply::Done),
            ("$-1\r\n", LineReply::Missing),
            ("_\r\n", LineReply::Missing),
            ("-ERR no\r\n", LineReply::Refused("ERR no".to_owned())),
        ];
        assert_taken_whole(parse, &answers, "+OK\r\n");
        let endless = "+".repeat(LINE_BYTES_MAX);
        let wrong = [
            "*1\r\n",
            "$x\r\n",
            "\r\n",
            "$2\r\nabc\r\n",
            "$+2\r\nab\r\n",
            &endless,
        ];
        assert_wrong(parse, &wrong);
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
