//! One watch of a held request, and whether it can be one.

use trine_kvstore::KeyRange;
use trine_kvstore::config::KEY_BYTES_MAX;
use trine_protocol::message::{Watch, Watched};

use crate::config::WATCH_CHARGE_BYTES;

/// A watch that owns its keys.
#[derive(Debug)]
pub(crate) struct OwnWatch {
    id: u32,
    what: What,
}

#[derive(Debug)]
enum What {
    Key(Box<[u8]>),
    Prefix(Box<[u8]>),
    Between(Box<[u8]>, Option<Box<[u8]>>),
}

impl From<&Watch<'_>> for OwnWatch {
    fn from(watch: &Watch<'_>) -> Self {
        Self {
            id: watch.id,
            what: match watch.watched {
                Watched::Key(key) => What::Key(key.into()),
                Watched::Range(KeyRange::Prefix(prefix)) => What::Prefix(prefix.into()),
                Watched::Range(KeyRange::Between { start, end }) => {
                    What::Between(start.into(), end.map(Into::into))
                }
            },
        }
    }
}

impl OwnWatch {
    /// The same, borrowed.
    pub(crate) fn watch(&self) -> Watch<'_> {
        let watched = match &self.what {
            What::Key(key) => Watched::Key(key),
            What::Prefix(prefix) => Watched::Range(KeyRange::Prefix(prefix)),
            What::Between(start, end) => Watched::Range(KeyRange::Between {
                start,
                end: end.as_deref(),
            }),
        };
        Watch {
            id: self.id,
            watched,
        }
    }

    /// What a watch counts against the limits: its keys lie in the request and in the index.
    pub(crate) fn charge(watch: &Watch<'_>) -> usize {
        let keys = match watch.watched {
            Watched::Key(key) | Watched::Range(KeyRange::Prefix(key)) => key.len(),
            Watched::Range(KeyRange::Between { start, end }) => {
                start.len() + end.map_or(0, <[u8]>::len)
            }
        };
        WATCH_CHARGE_BYTES + 2 * keys
    }

    /// Whether it has a start and an end, or only a start.
    pub(crate) fn is_between(watch: &Watch<'_>) -> bool {
        matches!(watch.watched, Watched::Range(KeyRange::Between { .. }))
    }

    /// Whether there can be a key that it is about.
    pub(crate) fn check(watch: &Watch<'_>) -> Result<(), &'static str> {
        let too_long = |key: &[u8]| key.len() > KEY_BYTES_MAX as usize;
        match watch.watched {
            Watched::Key(key) if too_long(key) => Err("no key can be as long as the watched one"),
            Watched::Range(KeyRange::Prefix(prefix)) if too_long(prefix) => {
                Err("no key can be as long as the watched prefix")
            }
            Watched::Range(KeyRange::Between { start, end }) => match end {
                Some(end) if end < start => Err("the end of a watched range is before its start"),
                _ if too_long(start) || end.is_some_and(too_long) => {
                    Err("no key can be as long as an end of the watched range")
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
