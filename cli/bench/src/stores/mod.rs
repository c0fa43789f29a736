//! The measured stores, each behind a URL. All of them get the same operations in the same order from one thread. The
//! time of an answer is when that thread receives it.

mod cache;
mod in_order;
mod line_answer;
mod memcached;
pub mod memcached_answer;
mod redis;
pub mod redis_answer;
mod redis_url;
mod sockets;
mod stream;
mod trine;

use std::str::FromStr;

pub(super) use self::cache::Cache;
pub(super) use self::memcached::Memcached;
pub(super) use self::redis::Redis;
pub use self::redis_url::RedisServer;
pub(super) use self::trine::Trine;

use trine_base::failure::Failure;
use trine_base::load;
use trine_base::units::show_ns;
use trine_transport::time::Duration;

/// The most operations of one client in flight, on every target.
pub(super) const IN_FLIGHT_MAX: usize = 64;

/// One operation.
#[derive(Copy, Clone, Debug)]
pub(super) enum BenchRequest<'a> {
    Read {
        key: &'a [u8],
    },
    Write {
        key: &'a [u8],
        value: &'a [u8],
    },
    Delete {
        key: &'a [u8],
    },
    /// So many items at most, from a key on and before another.
    Scan {
        from: &'a [u8],
        to: &'a [u8],
        items: u32,
    },
}

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OperationOutcome {
    Done,
    /// A read of a key that does not exist, or a scan that finds none. To delete it is done either way.
    Missing,
    Failed(Failure),
}

/// An operation that has ended: its tag and its outcome.
pub(super) type Finished = (u64, OperationOutcome);

/// A store with a number of clients of ours.
pub(super) trait StoreTarget: load::Target<Outcome = OperationOutcome> {
    /// Begins an operation of a client.
    fn submit(&mut self, client: usize, tag: u64, request: BenchRequest<'_>)
    -> Result<(), Failure>;

    /// Whether a key seals what is sent, where that can be.
    fn is_sealed(&mut self) -> Option<bool> {
        None
    }
}

/// How long a server may be silent that leaves operations without an answer, and what they have come to then.
fn silence(store: &str, server: &str, limit: Duration) -> (Duration, OperationOutcome) {
    let waited = show_ns(limit.as_nanos());
    let failure = Failure::not_reachable(
        format!("no answer from {store} at {server} (waited {waited})"),
        "--timeout waits longer",
    );
    (limit, OperationOutcome::Failed(failure))
}

/// The kind of a store and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Url {
    /// A group; `None` means the one of --peers.
    Trine(Option<String>),
    /// A Redis server.
    Redis(RedisServer),
    /// A memcached server at an address.
    Memcached(String),
    /// A server of `trine cache`, at the address of its first thread.
    Cache(String),
}

impl Url {
    /// As it is typed.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Trine(None) => "trine://".to_owned(),
            Self::Trine(Some(list)) => format!("trine://{list}"),
            Self::Redis(server) => server.to_string(),
            Self::Memcached(server) => format!("memcached://{server}"),
            Self::Cache(server) => format!("cache://{server}"),
        }
    }

    /// Whether a CA is needed to ask it.
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Redis(server) if server.is_encrypted)
    }

    /// The kind of store.
    pub(super) fn store(&self) -> &'static str {
        match self {
            Self::Trine(_) => "trine",
            Self::Redis(_) => "redis",
            Self::Memcached(_) => "memcached",
            Self::Cache(_) => "cache",
        }
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or(
            "write trine://HOST:PORT,..., or redis, rediss, memcached or cache with ://HOST:PORT",
        )?;
        let rest = rest.trim_end_matches('/');
        if let "redis" | "rediss" = scheme {
            return RedisServer::parse(rest, scheme == "rediss").map(Self::Redis);
        }
        if rest.contains(['/', '@', '?']) {
            return Err(
                "only hosts and ports are understood, no users, databases or options".into(),
            );
        }
        let or = |default: &str| match rest {
            "" => default.to_owned(),
            rest => rest.to_owned(),
        };
        match scheme {
            "trine" => Ok(Self::Trine((!rest.is_empty()).then(|| rest.to_owned()))),
            "memcached" => Ok(Self::Memcached(or("127.0.0.1:11211"))),
            "cache" => Ok(Self::Cache(or(trine_apps::cache::ADDRESS))),
            _ => Err(format!(
                "{scheme:?} is none of trine, redis, rediss, memcached and cache"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_store_and_where_it_is() {
        let url = |text: &str| text.parse::<Url>();
        assert_eq!(url("trine://"), Ok(Url::Trine(None)));
        let text = |of: &str| url(of).map(|url| url.text());
        assert_eq!(text("redis://h:1/"), Ok("redis://h:1".into()));
        assert_eq!(text("rediss://u:p@h:1"), Ok("rediss://u:***@h:1".into()));
        assert_eq!(url("memcached://h:1"), Ok(Url::Memcached("h:1".into())));
        assert_eq!(
            url("cache://").map(|url| url.text()),
            Ok("cache://127.0.0.1:7481".into())
        );
        for wrong in [
            "redis",
            "http://x",
            "redis://user@h:1",
            "redis://h:1/3",
            "memcached://u:p@h:1",
        ] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }
}
