//! What a replica tells of its Redis clients.

use super::{Family, counter, gauge};
use crate::resp::info::Stats;

/// The server for Redis clients.
pub(super) fn clients(stats: &Stats) -> Vec<Family> {
    let connected = u64::try_from(stats.connected).unwrap_or(u64::MAX);
    vec![
        gauge(
            "redis_clients_connected",
            "Redis clients that are connected.",
            connected,
        ),
        counter(
            "redis_connections",
            "Connections of Redis clients.",
            stats.accepted,
        ),
        counter(
            "redis_connections_turned_away",
            "Connections beyond the greatest number of clients.",
            stats.turned_away,
        ),
        counter(
            "redis_accept_errors",
            "Connections that the system could not give.",
            stats.accept_errors,
        ),
        counter(
            "redis_protocol_errors",
            "Connections that ended because their requests were malformed.",
            stats.protocol_errors,
        ),
        counter(
            "redis_cross_protocol_attempts",
            "Connections that were closed because their client spoke HTTP.",
            stats.attacks,
        ),
        counter(
            "redis_evicted_clients",
            "Connections that were closed because all of them held more than --resp-memory.",
            stats.evicted,
        ),
        gauge(
            "redis_client_memory_bytes",
            "Bytes that the buffers of all connections of Redis clients take.",
            u64::try_from(stats.held).unwrap_or(u64::MAX),
        ),
        counter(
            "redis_slow_readers",
            "Clients that were disconnected because they took no replies.",
            stats.slow_readers,
        ),
        counter(
            "redis_commands",
            "Commands of Redis clients.",
            stats.commands,
        ),
        counter(
            "redis_error_replies",
            "Replies to Redis clients that were errors.",
            stats.errors,
        ),
        counter(
            "redis_rx_bytes",
            "Bytes received from Redis clients.",
            stats.bytes_in,
        ),
        counter(
            "redis_tx_bytes",
            "Bytes sent to Redis clients.",
            stats.bytes_out,
        ),
    ]
}

/// Redis clients that are told of keys without asking.
pub(super) fn listeners(stats: &Stats) -> Vec<Family> {
    let broker = stats.broker;
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    vec![
        gauge(
            "redis_tracking_clients",
            "Redis clients that track keys.",
            number(broker.tracking_clients),
        ),
        gauge(
            "redis_tracked_keys",
            "Keys of which a change is told to Redis clients that have read them.",
            number(broker.tracked_keys),
        ),
        gauge(
            "redis_channels",
            "Channels and patterns that Redis clients have subscribed to.",
            number(broker.channels + broker.patterns),
        ),
        counter(
            "redis_tracking_gaps",
            "Times that changes were forgotten before Redis clients were told.",
            stats.gaps,
        ),
        counter(
            "redis_listeners_cut_off",
            "Clients that were disconnected because they did not read what they were told of keys.",
            stats.cut_off,
        ),
    ]
}
