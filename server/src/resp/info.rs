//! The contents of INFO, CLIENT LIST and CONFIG GET.

mod process;

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trine_protocol::message::ClusterId;
use trine_protocol::program::Program;
use trine_protocol::status::{StoreStatus, coarse};
use trine_resp::{BrokerCounts, Connection, Limits, Told};

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    started_unix_ms: i64,
    /// Present connections.
    pub connected: usize,
    /// Connections since the start.
    pub accepted: u64,
    /// Connections refused beyond the limit of clients.
    pub turned_away: u64,
    /// Connections that could not be accepted.
    pub accept_errors: u64,
    /// Connections closed because of what they sent.
    pub protocol_errors: u64,
    /// Connections closed because their client spoke HTTP.
    pub attacks: u64,
    /// Clients with which TLS could not be begun, in time or at all.
    pub tls_failures: u64,
    /// Wrong passwords, and keys that do not count.
    pub auth_failures: u64,
    /// Clients disconnected because they did not read their replies.
    pub slow_readers: u64,
    /// Clients disconnected because all connections together held too much memory.
    pub evicted: u64,
    /// Clients disconnected because they did not read what they were told of keys.
    pub cut_off: u64,
    /// Times that changes were forgotten before clients that track keys were told.
    pub gaps: u64,
    /// Who tracks keys, and who subscribes.
    pub broker: BrokerCounts,
    /// Bytes that all connections hold.
    pub held: usize,
    /// Commands since the start.
    pub commands: u64,
    /// Replies that were errors.
    pub errors: u64,
    /// Bytes received since the start.
    pub bytes_in: u64,
    /// Bytes sent since the start.
    pub bytes_out: u64,
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Commands a second, and KiB a second in and out, between the last two checks.
    pub rates: [u64; 3],
}

impl Stats {
    pub(super) fn new(started_unix_ms: i64) -> Self {
        Self {
            started_unix_ms,
            ..Self::default()
        }
    }
}

/// What the threads of this process tell each other: the counters after the last turn of the thread that serves Redis
/// clients, and the store of the replica.
#[derive(Clone, Debug, Default)]
pub struct SharedStats(Arc<Mutex<Shared>>);

#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    stats: Stats,
    store: StoreStatus,
    /// Zero while the replica belongs to no group.
    cluster: u64,
    /// It leads, or follows a leader.
    has_leader: bool,
}

impl SharedStats {
    pub(super) fn set(&self, stats: Stats) {
        self.lock().stats = stats;
    }

    /// The present counters.
    pub fn get(&self) -> Stats {
        self.lock().stats
    }

    /// The cluster of the replica, as it is now.
    pub fn set_cluster(&self, cluster: ClusterId) {
        self.lock().cluster = cluster.0;
    }

    /// Whether the replica leads or follows a leader now.
    pub fn set_has_leader(&self, has_leader: bool) {
        self.lock().has_leader = has_leader;
    }

    pub(super) fn has_leader(&self) -> bool {
        self.lock().has_leader
    }

    pub(super) fn cluster(&self) -> ClusterId {
        ClusterId(self.lock().cluster)
    }

    /// The replica's store, as it is now.
    pub fn set_store(&self, store: StoreStatus) {
        self.lock().store = store;
    }

    fn store(&self) -> StoreStatus {
        self.lock().store
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls a function with each of the other connections.
pub(super) type Others<'a> = dyn Fn(&mut dyn FnMut(&Connection)) + 'a;

/// The server as one of its connections sees it.
pub(super) struct View<'a> {
    pub(super) clients: &'a Others<'a>,
    pub(super) address: SocketAddr,
    pub(super) stats: &'a Stats,
    pub(super) shared: &'a SharedStats,
    pub(super) limits: &'a Limits,
    pub(super) clients_max: usize,
    pub(super) clients_memory: usize,
    pub(super) unix_ms: i64,
}

/// The time without a byte from a client after which the system asks it for a sign of life, as Redis has it by default.
pub(super) const KEEPALIVE_IDLE: Duration = Duration::from_secs(300);

/// The Redis release whose commands and replies this server implements, for clients that ask.
const REDIS_VERSION: &str = "7.0.15";

impl View<'_> {
    fn section(&self, name: &str, has_prefix: bool) -> Option<String> {
        let (title, lines) = match name {
            "server" => ("Server", self.server()),
            "clients" => ("Clients", self.clients(has_prefix)),
            "memory" => ("Memory", self.memory(has_prefix)),
            // Nothing is ever loaded from or saved to a file of Redis. Monitoring reads these.
            "persistence" => (
                "Persistence",
                numbers([
                    ("loading", 0),
                    ("async_loading", 0),
                    ("rdb_bgsave_in_progress", 0),
                    ("aof_enabled", 0),
                    ("aof_rewrite_in_progress", 0),
                ]),
            ),
            // Each of these counts is of all clients together.
            "stats" if has_prefix => ("Stats", Vec::new()),
            "stats" => ("Stats", self.stats()),
            // Every replica takes writes and forwards them to the leader.
            "replication" => (
                "Replication",
                vec![
                    ("role", "master".to_owned()),
                    ("connected_slaves", "0".to_owned()),
                ],
            ),
            "cpu" => ("CPU", process::cpu_seconds()),
            "cluster" => ("Cluster", numbers([("cluster_enabled", 0)])),
            "keyspace" => ("Keyspace", self.keyspace(has_prefix)),
            _ => return None,
        };
        let mut text = format!("# {title}\r\n");
        for (field, value) in lines {
            // Writing to a string cannot fail.
            let _ = write!(text, "{field}:{value}\r\n");
        }
        Some(text)
    }

    fn server(&self) -> Lines {
        let uptime = (self.unix_ms - self.stats.started_unix_ms).max(0) / 1_000;
        let program = Program::this();
        vec![
            ("redis_version", REDIS_VERSION.to_owned()),
            ("redis_mode", "standalone".to_owned()),
            ("trine_version", program.release.to_string()),
            ("trine_commit", program.commit),
            ("trine_state_version", program.state_version.to_string()),
            ("trine_message_version", program.message_version.to_string()),
            ("process_id", std::process::id().to_string()),
            ("tcp_port", self.address.port().to_string()),
            ("uptime_in_seconds", uptime.to_string()),
            ("uptime_in_days", (uptime / 86_400).to_string()),
        ]
    }

    fn clients(&self, has_prefix: bool) -> Lines {
        let mut lines = numbers([
            ("maxclients", self.clients_max as u64),
            ("blocked_clients", 0),
        ]);
        if !has_prefix {
            lines.extend(numbers([
                ("connected_clients", self.stats.connected as u64),
                (
                    "tracking_clients",
                    self.stats.broker.tracking_clients as u64,
                ),
            ]));
        }
        lines
    }

    /// The memory of the data is what the limit of the store counts, and is the same at all replicas.
    fn memory(&self, has_prefix: bool) -> Lines {
        let store = self.store(has_prefix);
        let about = |bytes| if has_prefix { coarse(bytes) } else { bytes };
        let resident = about(process::resident_bytes());
        let mut lines = numbers([
            ("used_memory", store.logical_bytes),
            ("used_memory_rss", resident),
            ("used_memory_peak", about(process::resident_peak_bytes())),
            ("used_memory_dataset", store.logical_bytes),
            ("maxmemory", store.memory_bytes),
            ("maxmemory_clients", self.clients_memory as u64),
            ("mem_clients_normal", about(self.stats.held as u64)),
        ]);
        lines.extend([
            ("used_memory_human", human(store.logical_bytes)),
            ("used_memory_rss_human", human(resident)),
            ("maxmemory_human", human(store.memory_bytes)),
            ("maxmemory_policy", "noeviction".to_owned()),
        ]);
        lines
    }

    fn store(&self, has_prefix: bool) -> StoreStatus {
        let store = self.shared.store();
        if has_prefix {
            store.without_others()
        } else {
            store
        }
    }

    fn stats(&self) -> Lines {
        let stats = self.stats;
        let [commands, kib_in, kib_out] = stats.rates;
        let broker = stats.broker;
        numbers([
            ("total_connections_received", stats.accepted),
            ("total_commands_processed", stats.commands),
            ("instantaneous_ops_per_sec", commands),
            ("total_net_input_bytes", stats.bytes_in),
            ("total_net_output_bytes", stats.bytes_out),
            ("instantaneous_input_kbps", kib_in),
            ("instantaneous_output_kbps", kib_out),
            ("rejected_connections", stats.turned_away),
            ("evicted_keys", 0),
            ("evicted_clients", stats.evicted),
            ("keyspace_hits", stats.hits),
            ("keyspace_misses", stats.misses),
            ("pubsub_channels", broker.channels as u64),
            ("pubsub_patterns", broker.patterns as u64),
            ("tracking_total_keys", broker.tracked_keys as u64),
            ("tracking_total_items", broker.tracked_items as u64),
            ("tracking_total_prefixes", broker.prefixes as u64),
            ("tracking_gaps", stats.gaps),
            ("client_output_buffer_limit_disconnections", stats.cut_off),
            ("total_error_replies", stats.errors),
            ("accept_errors", stats.accept_errors),
            ("protocol_errors", stats.protocol_errors),
            ("cross_protocol_attempts", stats.attacks),
            ("slow_readers_disconnected", stats.slow_readers),
            ("acl_access_denied_auth", stats.auth_failures),
            ("tls_failures", stats.tls_failures),
        ])
    }

    /// Of this replica, which may be a moment behind the leader. As in Redis there is no line without a key.
    fn keyspace(&self, has_prefix: bool) -> Lines {
        let store = self.store(has_prefix);
        let (keys, expires) = (store.items, store.expiring);
        let line = format!("keys={keys},expires={expires},avg_ttl=0");
        match keys {
            0 => Vec::new(),
            _ => vec![("db0", line)],
        }
    }
}

/// Fields of a section.
type Lines = Vec<(&'static str, String)>;

fn numbers<const N: usize>(fields: [(&'static str, u64); N]) -> Lines {
    let lines = fields.map(|(field, number)| (field, number.to_string()));
    lines.into()
}

/// A size as Redis writes it for people.
fn human(bytes: u64) -> String {
    let units = ["B", "K", "M", "G"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes}B"),
        _ => format!("{size:.2}{}", units[unit]),
    }
}

impl Told for View<'_> {
    fn info(&self, sections: &[&[u8]], has_prefix: bool) -> String {
        const ALL: [&str; 9] = [
            "server",
            "clients",
            "memory",
            "persistence",
            "stats",
            "replication",
            "cpu",
            "cluster",
            "keyspace",
        ];
        let is_named = |name: &&str| {
            let mut sections = sections.iter();
            sections.any(|section| section.eq_ignore_ascii_case(name.as_bytes()))
        };
        let all = sections.is_empty() || ["all", "default", "everything"].iter().any(is_named);
        // As in Redis, each section is told once, however often it is named.
        let asked = ALL.iter().filter(|name| all || is_named(name));
        let texts: Vec<String> = asked
            .filter_map(|name| self.section(name, has_prefix))
            .collect();
        texts.join("\r\n")
    }

    fn others(&self, is_asked_for: &dyn Fn(&Connection) -> bool) -> String {
        let mut lines = String::new();
        (self.clients)(&mut |connection| {
            if is_asked_for(connection) {
                lines.push_str(&connection.describe(self.unix_ms));
            }
        });
        lines
    }

    fn is_there(&self, id: u64, user: &str) -> bool {
        let mut found = false;
        (self.clients)(&mut |connection| {
            found |= connection.id() == id && connection.user() == user;
        });
        found
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let limits = self.limits;
        vec![
            ("save", String::new()),
            ("appendonly", "no".to_owned()),
            ("databases", "1".to_owned()),
            ("maxclients", self.clients_max.to_string()),
            ("maxmemory-clients", self.clients_memory.to_string()),
            ("proto-max-bulk-len", limits.part_bytes.to_string()),
            ("client-query-buffer-limit", limits.query_bytes.to_string()),
            ("timeout", "0".to_owned()),
            ("tcp-keepalive", KEEPALIVE_IDLE.as_secs().to_string()),
        ]
    }
}
