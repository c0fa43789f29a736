//! A cache command's request to one shard.

use std::net::SocketAddr;

use trine_transport::buf::MsgBuf;

use super::wire::{HELLO, HELLO_BYTES, Hello};
use crate::cache::CacheClientArguments;
use crate::line::{Patience, SAME_RELEASE, Service, ThreadSession};
use crate::threads::address_of;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::peers;

const CACHE: Service = Service {
    name: "a cache",
    start_one: "start a cache with `trine cache serve`, or name the right one with --connect or TRINE_CACHE",
    see_whether: "read the key to see whether it was",
};

/// A server whose first shard has said how many there are.
pub(super) struct CacheServer<'a, N: Network> {
    network: &'a N,
    first: SocketAddr,
    /// The connection to the first shard.
    line: ThreadSession<N::Backend>,
    pub(super) shards: u32,
    patience: Patience,
}

impl<'a, N: Network> CacheServer<'a, N> {
    pub(super) fn find(network: &'a N, arguments: &CacheClientArguments) -> Result<Self, Failure> {
        let first = peers::resolve_server(&arguments.connect)?;
        let patience = Patience::of(arguments.timeout);
        let mut line = ThreadSession::open(network, &CACHE, first, patience)?;
        let answer = line.ask(HELLO, &[], HELLO_BYTES, false)?;
        let no_cache = |message: String| Failure::usage(message, CACHE.start_one);
        match Hello::decode(&answer) {
            None => Err(no_cache(format!(
                "{first} is not a cache of this release; nothing was done"
            ))),
            Some(Hello { shard: 0, shards }) => Ok(Self {
                network,
                first,
                line,
                shards,
                patience,
            }),
            Some(Hello { shard, .. }) => Err(no_cache(format!(
                "{first} is thread {shard} of a cache, not its first; nothing was done"
            ))),
        }
    }

    /// Asks a shard. `writes` says whether a lost answer leaves the outcome unknown.
    pub(super) fn ask(
        &mut self,
        shard: u32,
        kind: u8,
        request: &[u8],
        answer_bytes: usize,
        writes: bool,
    ) -> Result<MsgBuf, Failure> {
        if shard == 0 {
            return self.line.ask(kind, request, answer_bytes, writes);
        }
        let address = address_of(self.first, shard).ok_or_else(|| {
            let message = format!("{} names threads without ports", self.first);
            Failure::usage(message, SAME_RELEASE)
        })?;
        ThreadSession::open(self.network, &CACHE, address, self.patience)?.ask(
            kind,
            request,
            answer_bytes,
            writes,
        )
    }
}
