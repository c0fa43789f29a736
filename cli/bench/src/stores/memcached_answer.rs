//! memcached's answers to `get` of one key, `set` and `delete`, in its text protocol.

use super::line_answer::{LineReply, Taken, length, line_end, value};

/// The longest value that it keeps, whatever it was started with.
const VALUE_BYTES_MAX: usize = 1 << 30;
const END: &[u8] = b"\r\nEND\r\n";

/// Returns the first answer in `input` and its length, once it is complete; or the error in it.
pub fn parse(input: &[u8]) -> Option<(Result<LineReply, String>, usize)> {
    let line_end = match line_end(input)? {
        Ok(line_end) => line_end,
        Err(why) => return Some((Err(why), input.len())),
    };
    let line = String::from_utf8_lossy(&input[..line_end]);
    let after = line_end + 2;
    if let Some(rest) = line.strip_prefix("VALUE ") {
        return value_behind(input, rest, after);
    }
    let answer = match &*line {
        "STORED" | "DELETED" => Ok(LineReply::Done),
        "END" | "NOT_FOUND" => Ok(LineReply::Missing),
        "ERROR" | "NOT_STORED" => Ok(LineReply::Refused(line.into_owned())),
        _ if line.starts_with("SERVER_ERROR") || line.starts_with("CLIENT_ERROR") => {
            Ok(LineReply::Refused(line.into_owned()))
        }
        _ => Err(format!("{line:?} is not a reply to get, set or delete")),
    };
    Some((answer, after))
}

/// A value behind its line, which ends at `after`. The rest of the line is key, flags and length.
fn value_behind(input: &[u8], rest: &str, after: usize) -> Option<Taken> {
    match rest.split(' ').nth(2).and_then(length) {
        Some(length) if length <= VALUE_BYTES_MAX => value(input, after, length, END),
        _ => Some((Err(format!("{rest:?} names no length of a value")), after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::line_answer::{LINE_BYTES_MAX, assert_taken_whole, assert_wrong};

    #[test]
    fn answers_are_taken_only_when_they_are_whole() {
        let answers = [
            ("STORED\r\n", LineReply::Done),
            ("VALUE k 0 5\r\nab\r\nc\r\nEND\r\n", LineReply::Done),
            ("VALUE k 0 0\r\n\r\nEND\r\n", LineReply::Done),
            ("END\r\n", LineReply::Missing),
            ("DELETED\r\n", LineReply::Done),
            ("NOT_FOUND\r\n", LineReply::Missing),
            (
                "SERVER_ERROR out of memory\r\n",
                LineReply::Refused("SERVER_ERROR out of memory".into()),
            ),
        ];
        assert_taken_whole(parse, &answers, "STORED\r\n");
        let endless = "x".repeat(LINE_BYTES_MAX);
        let wrong = [
            "\r\n",
            "HELLO\r\n",
            "VALUE k\r\n",
            "VALUE k 0 +1\r\na\r\nEND\r\n",
            "VALUE k 0 18446744073709551615\r\n",
            "VALUE k 0 2\r\nabcdefghijk",
            &endless,
        ];
        assert_wrong(parse, &wrong);
    }
}
