//! Which keys are meant, and which replica reads them? The arguments that `scan`, `count` and `rm` share.

use clap::Args;
use std::ffi::{OsStr, OsString};
use trine_base::failure::Failure;
use trine_base::values::key_bytes;
use trine_base::words::show;
use trine_client::Mode;
use trine_kvstore::KeyRange;

use super::get::ReadFrom;

#[derive(Debug, Args)]
pub(crate) struct RangeArguments {
    /// The keys that begin with this; without it and without --from and --to all keys.
    #[arg(conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<OsString>,
    /// The keys from this one on.
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// The keys before this one, which does not belong to them.
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
}

impl RangeArguments {
    /// The range; nothing if all keys are meant.
    pub(crate) fn range(&self) -> Result<Option<KeyRange<'_>>, Failure> {
        if let Some(prefix) = &self.prefix {
            return Ok(Some(KeyRange::Prefix(key_bytes(prefix)?)));
        }
        between(self.from.as_deref(), self.to.as_deref())
    }
}

/// The range between two keys; nothing if none is named.
pub(crate) fn between<'a>(
    from: Option<&'a OsStr>,
    to: Option<&'a OsStr>,
) -> Result<Option<KeyRange<'a>>, Failure> {
    if from.is_none() && to.is_none() {
        return Ok(None);
    }
    let start = from.map_or(Ok(&[][..]), key_bytes)?;
    let end = to.map(key_bytes).transpose()?;
    if let Some(end) = end.filter(|end| *end < start) {
        return Err(Failure::usage(
            format!(
                "the range ends before it begins: {} is before {}",
                show(end),
                show(start)
            ),
            "keys are ordered by their bytes: exchange --from and --to",
        ));
    }
    Ok(Some(KeyRange::Between { start, end }))
}

#[derive(Debug, Args)]
pub(crate) struct ReplicaArguments {
    /// Take what the nearest replica has, also without a quorum; it may be old.
    #[arg(long, conflicts_with = "replica")]
    pub(crate) stale: bool,
    /// Which replica reads. Never old: a follower first asks the leader how far it has to be.
    #[arg(long, default_value = "leader", value_enum)]
    pub(crate) replica: ReadFrom,
}

impl ReplicaArguments {
    pub(crate) fn mode(&self) -> Mode {
        self.replica.mode(self.stale)
    }
}
