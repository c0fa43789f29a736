//! `trine cache serve` runs a cache, one shard a thread, until it is asked to end.

use std::net::SocketAddr;

use serde_json::json;
use trine_kvstore::cache::CACHE_LOG_BYTES_MIN;
use trine_kvstore::memory::HUGE_PAGE_BYTES;
use trine_kvstore::{Cache, CacheConfig};
use trine_transport::backend::{Backend, BackendStats, MonotonicClock};
use trine_transport::{Config, EventLoop};

use super::shard::Shard;
use super::wire::Hello;
use crate::cache::CacheServeArguments;
use crate::event_loop::event_loop;
use crate::rights::Rights;
use crate::threads::{addresses_from, run_all};
use trine_base::announce::Announcer;
use trine_base::endpoint::{backend_failure, random_seed};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::{Network, Opened};
use trine_base::output::Output;
use trine_base::units::{plural, show_bytes};
use trine_base::{peers, placement};
use trine_protocol::route::HolderOf;

/// The index gets this fraction of a shard's memory. With eight bytes an item, it and the log fill up together when an
/// item takes 56 bytes. Larger items leave index unused, not log.
const INDEX_SHARE: u64 = 8;

type ShardLoop<B> = EventLoop<B, MonotonicClock, Shard<<B as Backend>::Route>>;

pub(super) fn run<N: Network>(
    network: &N,
    arguments: &CacheServeArguments,
    output: Output,
) -> Result<(), Failure> {
    placement::refuse_former_name(arguments.allow_remote)?;
    arguments.lines.log_format.begin();
    let announcer = Announcer::start(output.json)?;
    interrupt::start_server()?;
    let rights = Rights::read(network, arguments.users.as_deref())?;
    rights.read_at_hangups(arguments.users.clone(), announcer)?;
    placement::require_memory(arguments.memory, 1)?;
    let memory = shard_memory(arguments.memory, arguments.threads)?;
    let listen = peers::resolve_server(&arguments.listen)?;
    if network.keeps_to_loopback() {
        placement::require_loopback("the address of --listen", listen, arguments.insecure)?;
    }
    let addresses = addresses_from(listen, arguments.threads)?;
    let mut loops = Vec::new();
    // Resources that have to outlive the loops.
    let mut kept = Vec::new();
    for (shard, opened) in (0..).zip(network.serve_all(&addresses)?) {
        let Opened {
            backend,
            endpoint,
            holder_of,
            keep,
            ..
        } = opened;
        let place = Hello {
            shard,
            shards: arguments.threads,
        };
        loops.push(assemble(
            backend,
            endpoint,
            holder_of,
            rights.clone(),
            place,
            memory,
            arguments,
        )?);
        kept.push(keep);
    }
    tell(&addresses, arguments, announcer);
    let stats = run_all(loops).map_err(backend_failure)?;
    tell_ways(&stats, announcer);
    Ok(())
}

/// What went through memory instead of packets (verbs, paths herd and rfp): nothing else shows that these were in use.
fn tell_ways(stats: &[BackendStats], announcer: Announcer) {
    let sum = |count: fn(&BackendStats) -> u64| stats.iter().map(count).sum::<u64>();
    let (written, fetched) = (sum(|stats| stats.rx_written), sum(|stats| stats.tx_fetched));
    let sent = sum(|stats| stats.tx_packets) - fetched;
    if written + fetched > 0 {
        announcer.json_line(&json!({
            "requests_written": written,
            "answers_left": fetched,
            "packets_sent": sent,
        }));
        announcer.line(format_args!(
            "clients wrote {} into its memory and found {} there; it sent {}",
            plural(written, "request"),
            plural(fetched, "answer"),
            plural(sent, "packet"),
        ));
    }
}

/// The share of `budget` for each of `threads` shards; their sum never exceeds it.
fn shard_memory(budget: u64, threads: u32) -> Result<CacheConfig, Failure> {
    let page = HUGE_PAGE_BYTES as u64;
    let share = budget / u64::from(threads);
    let least = page + CACHE_LOG_BYTES_MIN as u64;
    if share < least {
        return Err(Failure::usage(
            format!(
                "--memory {} is too little for {}",
                show_bytes(budget),
                plural(threads.into(), "thread")
            ),
            format!("every thread needs at least {}", show_bytes(least)),
        ));
    }
    let index = (1_u64 << (share / INDEX_SHARE).ilog2()).max(page);
    let log = (share - index) / page * page;
    let bytes = |bytes: u64| {
        usize::try_from(bytes)
            .map_err(|_| Failure::usage("--memory is more than this machine can address", ""))
    };
    Ok(CacheConfig {
        log_bytes: bytes(log)?,
        index_bytes: bytes(index)?,
    })
}

/// Joins backend, shard and endpoint.
fn assemble<B: Backend>(
    backend: B,
    endpoint: Config,
    holder_of: HolderOf<B::Route>,
    rights: Rights,
    place: Hello,
    memory: CacheConfig,
    arguments: &CacheServeArguments,
) -> Result<ShardLoop<B>, Failure> {
    // The hash seed stays in the shard, because clients choose shards without it. An attacker with the seed could make
    // keys that displace others.
    let cache = Cache::new(memory, [random_seed()?, random_seed()?])
        .map_err(|error| Failure::usage(error.to_string(), "increase --memory"))?;
    let shard = Shard::new(
        cache,
        holder_of,
        rights,
        place,
        memory.log_bytes as u64,
        memory.index_bytes as u64,
    );
    let config = Config {
        spin: arguments.spin.into(),
        ..endpoint
    };
    event_loop(backend, shard, config)
}

fn tell(addresses: &[SocketAddr], arguments: &CacheServeArguments, announcer: Announcer) {
    announcer.json_line(&json!({
        "listening": addresses,
        "threads": arguments.threads,
        "memory_bytes": arguments.memory,
    }));
    let ports = match addresses {
        [first, .., last] => format!("{first} to port {}", last.port()),
        _ => addresses[0].to_string(),
    };
    announcer.line(format_args!(
        "a cache of {} on {ports}, {}, not replicated",
        show_bytes(arguments.memory),
        plural(arguments.threads.into(), "thread"),
    ));
    announcer.line("Ctrl-C stops it and discards its contents.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shards_never_take_more_than_the_budget() {
        for budget in [10 << 20, 11 << 20, 64 << 20, (1 << 30) + 12_345, 3 << 30] {
            for threads in 1..=8 {
                let Ok(memory) = shard_memory(budget, threads) else {
                    assert!(budget / u64::from(threads) < 10 << 20);
                    continue;
                };
                let taken = (memory.log_bytes + memory.index_bytes) as u64;
                assert!(taken * u64::from(threads) <= budget, "{budget} {threads}");
                assert!(memory.log_bytes >= CACHE_LOG_BYTES_MIN);
                assert!(memory.index_bytes.is_power_of_two());
            }
        }
    }
}
