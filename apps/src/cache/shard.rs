//! One thread of a cache server.
//!
//! It executes writes as they arrive. GETs wait for the end of the turn, and all GETs of one turn are looked up
//! together, so that their cache misses overlap. No answer leaves before that, so no client can observe the order among
//! them.

use trine_keys::Role;
use trine_kvstore::cache::shard_of;
use trine_kvstore::config::KEY_BYTES_MAX;
use trine_kvstore::{Cache, Command, Position, Response};
use trine_protocol::route::HolderOf;
use trine_transport::backend::Route;
use trine_transport::buf::MsgBuf;
use trine_transport::{App, Completion, Cx, Holder, Reply, Request, ResponseHandle, SessionId};

use super::wire::{COMMAND, DONE, HELLO, Hello, MALFORMED, STATS, ShardStats, WRONG_SHARD};
use crate::rights::{Denied, Rights};

/// One shard and the GETs of the present turn.
pub(super) struct Shard<R> {
    cache: Cache,
    /// Whom the sessions from a route are counted for.
    holder_of: HolderOf<R>,
    rights: Rights,
    place: Hello,
    burst: Burst,
    /// Sessions with a request for whose answer there is no memory. The server ends them, and their clients learn from
    /// that.
    given_up: Vec<SessionId>,
    stats: ShardStats,
}

/// GETs that still have to be looked up. The transport limits the packets of a turn.
#[derive(Default)]
struct Burst {
    /// The keys, one after the other.
    keys: Vec<u8>,
    /// The waiting requests, and where their keys begin and end.
    lookups: Vec<(ResponseHandle, usize, usize)>,
}

impl Burst {
    fn push(&mut self, handle: ResponseHandle, key: &[u8]) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.lookups.push((handle, start, self.keys.len()));
    }

    fn key(&self, number: usize) -> &[u8] {
        let (_, start, end) = self.lookups[number];
        &self.keys[start..end]
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.lookups.clear();
    }
}

impl<R: Route> Shard<R> {
    /// A shard over `cache`, which has `log_bytes` and `index_bytes` of memory.
    pub(super) fn new(
        cache: Cache,
        holder_of: HolderOf<R>,
        rights: Rights,
        place: Hello,
        log_bytes: u64,
        index_bytes: u64,
    ) -> Self {
        Self {
            cache,
            holder_of,
            rights,
            place,
            burst: Burst::default(),
            given_up: Vec::new(),
            stats: ShardStats {
                shard: place.shard,
                log_bytes,
                index_bytes,
                ..ShardStats::default()
            },
        }
    }

    fn on_command(&mut self, cx: &mut Cx<'_, R>, request: &Request<'_>) -> Reply {
        let Ok(command) = Command::decode(request.data) else {
            self.stats.refused += 1;
            return self.reply(request, bytes_of(cx, &[MALFORMED]));
        };
        let needed = match command.is_read_only() {
            true => Role::Read,
            false => Role::Write,
        };
        if let Err(denied) = self.rights.check(cx, request.session, needed) {
            return self.deny(cx, request, denied);
        }
        if !self.owns(&command) {
            self.stats.refused += 1;
            return self.reply(request, bytes_of(cx, &[WRONG_SHARD]));
        }
        match command {
            Command::Get { key } if key.len() <= KEY_BYTES_MAX as usize => {
                self.burst.push(request.handle, key);
                return Reply::Later;
            }
            Command::Put { .. } => self.stats.puts += 1,
            Command::Delete { .. } => self.stats.deletes += 1,
            _ => {}
        }
        let answer = done(cx, &self.cache.apply(&command));
        self.reply(request, answer)
    }

    #[cold]
    fn deny(&mut self, cx: &mut Cx<'_, R>, request: &Request<'_>, denied: Denied) -> Reply {
        self.stats.refused += 1;
        self.reply(request, denied.answer(cx))
    }

    fn on_stats(&mut self, cx: &mut Cx<'_, R>, request: &Request<'_>) -> Reply {
        if let Err(denied) = self.rights.check(cx, request.session, Role::Read) {
            return self.deny(cx, request, denied);
        }
        let text = serde_json::to_vec(&self.stats()).expect("numbers under text keys");
        self.reply(request, bytes_of(cx, &text))
    }

    fn owns(&self, command: &Command<'_>) -> bool {
        let ours = |key: &[u8]| shard_of(key, self.place.shards) == self.place.shard;
        match command {
            Command::MultiGet { keys } => keys.iter().all(ours),
            _ => command.key().is_none_or(ours),
        }
    }

    fn reply(&mut self, request: &Request<'_>, answer: Option<MsgBuf>) -> Reply {
        answer.map_or_else(
            || {
                self.given_up.push(request.session);
                Reply::Later
            },
            Reply::Now,
        )
    }

    fn stats(&self) -> ShardStats {
        let cache = self.cache.stats();
        ShardStats {
            bucket_evictions: cache.bucket_evictions,
            log_rounds: cache.log_rounds,
            in_place: cache.in_place,
            ..self.stats.clone()
        }
    }

    /// Looks the burst up and answers it.
    fn answer_burst(&mut self, cx: &mut Cx<'_, R>) {
        let count = self.burst.lookups.len();
        if count == 0 {
            return;
        }
        let (burst, stats, given_up) = (&self.burst, &mut self.stats, &mut self.given_up);
        stats.gets += count as u64;
        stats.bursts += 1;
        stats.largest_burst = stats.largest_burst.max(count as u64);
        let found = |number: usize, value: Option<&[u8]>| {
            stats.hits += u64::from(value.is_some());
            let version = Position::ZERO;
            let response = value.map_or(Response::NotFound, |value| Response::Value {
                value,
                version,
            });
            let handle = burst.lookups[number].0;
            match done(cx, &response) {
                // A stale handle: the requester is gone.
                Some(answer) => drop(cx.enqueue_response(handle, answer)),
                None => given_up.push(handle.session()),
            }
        };
        self.cache
            .get_interleaved(count, |number| burst.key(number), found);
        self.burst.clear();
    }
}

/// A command's answer.
fn done<R: Route>(cx: &mut Cx<'_, R>, response: &Response<'_>) -> Option<MsgBuf> {
    let mut answer = cx.alloc(1 + response.encoded_len())?;
    answer[0] = DONE;
    response
        .encode_into(&mut answer[1..])
        .expect("the buffer is as long as the encoding");
    Some(answer)
}

fn bytes_of<R: Route>(cx: &mut Cx<'_, R>, bytes: &[u8]) -> Option<MsgBuf> {
    let mut answer = cx.alloc(bytes.len())?;
    answer.copy_from_slice(bytes);
    Some(answer)
}

impl<R: Route> App<R> for Shard<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        match request.kind {
            COMMAND => self.on_command(cx, &request),
            HELLO => self.reply(&request, bytes_of(cx, &self.place.encode())),
            STATS => self.on_stats(cx, &request),
            _ => {
                self.stats.refused += 1;
                self.reply(&request, bytes_of(cx, &[]))
            }
        }
    }

    fn on_completion(&mut self, _: &mut Cx<'_, R>, _: u64, _: Completion) {
        unreachable!("a shard asks nobody");
    }

    fn holder(&self, route: &R) -> Holder {
        (self.holder_of)(route)
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        self.answer_burst(cx);
        for session in self.given_up.drain(..) {
            cx.disconnect(session);
        }
    }
}
