//! `trine cache stats` shows what every thread of a cache has done.

use serde_json::json;

use super::call::CacheServer;
use super::wire::{STATS, ShardStats};
use crate::cache::CacheClientArguments;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::{Output, Table};
use trine_base::units::{show_bytes, show_count};

/// A limit above the size of a shard's numbers.
const STATS_BYTES_MAX: usize = 4096;

pub(super) fn run<N: Network>(
    network: &N,
    arguments: &CacheClientArguments,
    output: Output,
) -> Result<(), Failure> {
    let mut server = CacheServer::find(network, arguments)?;
    let shards = (0..server.shards)
        .map(|shard| {
            let answer = server.ask(shard, STATS, &[], STATS_BYTES_MAX, false)?;
            serde_json::from_slice(&answer).map_err(|error| {
                Failure::usage(
                    format!("the reply could not be decoded: {error}"),
                    "run the same release on both sides",
                )
            })
        })
        .collect::<Result<Vec<ShardStats>, Failure>>()?;
    output.document(&json!({ "threads": shards.len(), "shards": shards }));
    output.line(table(&shards));
    Ok(())
}

fn table(shards: &[ShardStats]) -> Table {
    let mut table = Table::new([
        "thread",
        "memory",
        "gets",
        "hits",
        "gets at once",
        "puts",
        "deletes",
        "rounds of the log",
        "full buckets",
    ]);
    for shard in shards {
        // One decimal, without a float.
        let tenths = (shard.gets * 10).checked_div(shard.bursts).unwrap_or(0);
        table.row([
            shard.shard.to_string(),
            show_bytes(shard.log_bytes + shard.index_bytes),
            show_count(shard.gets),
            show_count(shard.hits),
            format!("{}.{}", tenths / 10, tenths % 10),
            show_count(shard.puts),
            show_count(shard.deletes),
            show_count(shard.log_rounds),
            show_count(shard.bucket_evictions),
        ]);
    }
    table
}
