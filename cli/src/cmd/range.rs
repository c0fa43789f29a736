//! The keys that a command means, and the replica that reads them: arguments that `scan`, `count`, `watch`, `rm` and `export` share.

use clap::Args;
use std::ffi::{OsStr, OsString};
use trine_base::failure::Failure;
use trine_base::values::key_bytes;
use trine_base::words::show;
use trine_client::Mode;
use trine_kvstore::{KeyRange, after_prefix};

use super::get::ReadFrom;

/// Keys of a prefix, and a part of them.
#[derive(Debug, Default, Args)]
pub(crate) struct RangeArguments {
    /// Prefix of the keys; all keys if absent.
    pub(crate) prefix: Option<OsString>,
    #[command(flatten)]
    pub(crate) part: PartArguments,
}

/// A part of the keys of a prefix.
#[derive(Debug, Default, Args)]
pub(crate) struct PartArguments {
    /// Start at this key.
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// Stop before this key.
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
    /// Start after this key.
    #[arg(long, value_name = "KEY", conflicts_with = "from")]
    pub(crate) after: Option<OsString>,
}

/// The former option for PREFIX, for commands that had it.
#[derive(Debug, Default, Args)]
pub(crate) struct NamedPrefix {
    /// Former name of PREFIX.
    #[arg(
        long = "prefix",
        id = "named",
        hide = true,
        value_name = "PREFIX",
        conflicts_with = "prefix"
    )]
    named: Option<OsString>,
}

impl NamedPrefix {
    /// PREFIX, or what this option has in its place.
    pub(crate) fn or<'a>(&'a self, prefix: Option<&'a OsStr>) -> Option<&'a OsStr> {
        prefix.or(self.named.as_deref())
    }
}

impl PartArguments {
    /// Whether a part is named.
    pub(crate) fn is_named(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.after.is_some()
    }
}

impl RangeArguments {
    pub(crate) fn bounds(&self) -> Result<Bounds, Failure> {
        Bounds::of(self.prefix.as_deref(), &self.part)
    }
}

/// The keys between two bounds, within a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    prefix: Vec<u8>,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl Bounds {
    pub(crate) fn of(prefix: Option<&OsStr>, part: &PartArguments) -> Result<Self, Failure> {
        let prefix = prefix.map_or(Ok(&[][..]), key_bytes)?.to_vec();
        let from = part.from.as_deref().map(key_bytes).transpose()?;
        let after = part.after.as_deref().map(key_bytes).transpose()?;
        let to = part.to.as_deref().map(key_bytes).transpose()?;
        // The key that follows another one directly is that key and a zero byte.
        let after = after.map(|key| [key, &[0]].concat());
        let asked = after.or(from.map(<[u8]>::to_vec)).unwrap_or_default();
        if let Some(end) = to.filter(|end| *end < asked.as_slice()) {
            return Err(Failure::usage(
                format!(
                    "the range ends before it begins: {} is before {}",
                    show(end),
                    show(&asked)
                ),
                "keys are ordered by their bytes: swap --from and --to",
            ));
        }
        let start = asked.max(prefix.clone());
        let end = match (to.map(<[u8]>::to_vec), after_prefix(&prefix)) {
            (Some(to), Some(last)) => Some(to.min(last)),
            (to, last) => to.or(last),
        };
        // Nothing of the prefix is between the bounds.
        let end = end.map(|end| end.max(start.clone()));
        Ok(Self { prefix, start, end })
    }

    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Whether all keys of the prefix are meant.
    pub(crate) fn is_whole_prefix(&self) -> bool {
        self.start == self.prefix && self.end == after_prefix(&self.prefix)
    }

    /// Whether all keys of the group are meant.
    pub(crate) fn is_everything(&self) -> bool {
        self.prefix.is_empty() && self.is_whole_prefix()
    }

    /// In the terms of the ordered index.
    pub(crate) fn range(&self) -> KeyRange<'_> {
        match self.is_whole_prefix() {
            true => KeyRange::Prefix(&self.prefix),
            false => KeyRange::Between {
                start: &self.start,
                end: self.end.as_deref(),
            },
        }
    }

    /// A range without keys, at the place of this one: a question that costs nothing.
    pub(crate) fn nothing(&self) -> KeyRange<'_> {
        KeyRange::Between {
            start: &self.start,
            end: Some(&self.start),
        }
    }

    /// The least key that can be meant, and the least one after them.
    pub(crate) fn ends(self) -> (Vec<u8>, Option<Vec<u8>>) {
        (self.start, self.end)
    }

    /// Whether a key of the prefix lies between the bounds.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_slice() && self.end.as_deref().is_none_or(|end| key < end)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReplicaArguments {
    /// Read from the nearest replica, even without a quorum; the result may be stale.
    #[arg(long, conflicts_with = "replica")]
    pub(crate) stale: bool,
    /// Replica to read from: leader, follower, any, or a node id. The result is never stale: a follower first asks the
    /// leader which index to wait for.
    #[arg(long, default_value = "leader", value_name = "REPLICA")]
    pub(crate) replica: ReadFrom,
}

impl ReplicaArguments {
    pub(crate) fn mode(&self) -> Mode {
        self.replica.mode(self.stale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(prefix: &str, from: &str, to: &str, after: &str) -> Result<Bounds, Failure> {
        let key = |text: &str| (!text.is_empty()).then(|| OsString::from(text));
        let part = PartArguments {
            from: key(from),
            to: key(to),
            after: key(after),
        };
        Bounds::of(key(prefix).as_deref(), &part)
    }

    #[test]
    fn bounds_lie_within_the_prefix() {
        let keys = ["a", "b/", "b/1", "b/2", "b/3", "c"];
        let found = |prefix: &str, from: &str, to: &str, after: &str| {
            let bounds = bounds(prefix, from, to, after).expect("a range");
            let within = |key: &&str| {
                key.as_bytes().starts_with(bounds.prefix()) && bounds.contains(key.as_bytes())
            };
            keys.iter().copied().filter(within).collect::<Vec<_>>()
        };
        assert_eq!(found("", "", "", ""), keys);
        assert_eq!(found("b/", "", "", ""), ["b/", "b/1", "b/2", "b/3"]);
        assert_eq!(found("b/", "b/2", "", ""), ["b/2", "b/3"]);
        assert_eq!(found("b/", "", "b/2", "b/"), ["b/1"]);
        assert_eq!(found("b/", "a", "z", ""), ["b/", "b/1", "b/2", "b/3"]);
        assert_eq!(found("b/", "c", "", ""), [""; 0]);
        assert_eq!(found("b/", "", "a", ""), [""; 0]);
        assert_eq!(found("", "b/3", "", ""), ["b/3", "c"]);
    }

    #[test]
    fn a_range_is_a_prefix_where_it_can_be_one() {
        let whole = bounds("b/", "", "", "").expect("a range");
        assert_eq!(whole.range(), KeyRange::Prefix(b"b/"));
        assert!(!whole.is_everything());
        assert!(bounds("", "", "", "").expect("a range").is_everything());
        let part = bounds("b/", "", "", "b/1").expect("a range");
        let (start, end) = (&b"b/1\0"[..], Some(&b"b0"[..]));
        assert_eq!(part.range(), KeyRange::Between { start, end });
        assert!(bounds("", "b", "a", "").is_err());
    }
}
