//! The lines of text that go through the pipe.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use trine_protocol::message::RunSecret;

/// One line.
#[derive(Clone, Debug)]
pub(super) enum CompanionMessage {
    /// The first one: what to tell, and how long behind one replica the next is told.
    Begin {
        secret: RunSecret,
        stagger: Duration,
    },
    /// Whom to tell, in this order, instead of those of before.
    To(Vec<SocketAddr>),
    /// The run has ended.
    Gone,
}

impl fmt::Display for CompanionMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin { secret, stagger } => {
                let secret = u128::from_be_bytes(secret.0);
                write!(f, "begin {secret:032x} {}", stagger.as_micros())
            }
            Self::To(others) => {
                f.write_str("to")?;
                others.iter().try_for_each(|other| write!(f, " {other}"))
            }
            Self::Gone => f.write_str("gone"),
        }
    }
}

impl CompanionMessage {
    /// Reads one; nothing if it is none. A line that is cut short, because the writer has ended within it, is none.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut words = text.strip_suffix('\n')?.split(' ');
        match words.next()? {
            "begin" => {
                let secret = u128::from_str_radix(words.next()?, 16).ok()?;
                let stagger = words.next()?.parse().ok()?;
                words.next().is_none().then(|| Self::Begin {
                    secret: RunSecret(secret.to_be_bytes()),
                    stagger: Duration::from_micros(stagger),
                })
            }
            "to" => {
                let others: Result<_, _> = words.map(str::parse).collect();
                others.ok().map(Self::To)
            }
            "gone" => words.next().is_none().then_some(Self::Gone),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let secret = RunSecret(*b"\x000123456789abcde");
        let stagger = Duration::from_millis(24);
        let addresses = vec![
            "127.0.0.1:7001".parse().unwrap(),
            "[fe80::1%3]:7002".parse().unwrap(),
        ];
        for line in [
            CompanionMessage::Begin { secret, stagger },
            CompanionMessage::To(addresses),
            CompanionMessage::To(Vec::new()),
            CompanionMessage::Gone,
        ] {
            let text = format!("{line}\n");
            let read = CompanionMessage::read(&text).expect("a line").to_string();
            assert_eq!(read, line.to_string());
            // Its writer was killed.
            for end in 0..text.len() {
                assert!(
                    CompanionMessage::read(&text[..end]).is_none(),
                    "{:?}",
                    &text[..end]
                );
            }
        }
        for text in [
            "\n",
            "to here\n",
            "begin zz 1\n",
            "begin 00 1 2\n",
            "gone now\n",
        ] {
            assert!(CompanionMessage::read(text).is_none(), "{text:?}");
        }
    }
}
