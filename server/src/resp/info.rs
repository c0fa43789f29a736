//! The contents of INFO, CLIENT LIST and CONFIG GET.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use trine_resp::{Connection, Limits, Told};

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
    /// Clients disconnected because they did not read their replies.
    pub slow_readers: u64,
    /// Commands since the start.
    pub commands: u64,
    /// Replies that were errors.
    pub errors: u64,
    /// Bytes received since the start.
    pub bytes_in: u64,
    /// Bytes sent since the start.
    pub bytes_out: u64,
}

impl Stats {
    pub(super) fn new(started_unix_ms: i64) -> Self {
        Self {
            started_unix_ms,
            ..Self::default()
        }
    }
}

/// The counters after the last turn of the serving thread.
#[derive(Clone, Debug, Default)]
pub struct SharedStats(Arc<Mutex<Stats>>);

impl SharedStats {
    pub(super) fn set(&self, stats: Stats) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }

    /// The present counters.
    pub fn get(&self) -> Stats {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls a function with each of the other connections.
pub(super) type Others<'a> = dyn Fn(&mut dyn FnMut(&Connection)) + 'a;

/// The server as one of its connections sees it.
pub(super) struct View<'a> {
    pub(super) clients: &'a Others<'a>,
    pub(super) address: SocketAddr,
    pub(super) stats: &'a Stats,
    pub(super) limits: &'a Limits,
    pub(super) clients_max: usize,
    pub(super) unix_ms: i64,
}

/// The Redis release whose commands and replies this server implements, for clients that ask.
const REDIS_VERSION: &str = "7.0.15";

impl View<'_> {
    fn section(&self, name: &str) -> Option<String> {
        let stats = self.stats;
        let uptime = (self.unix_ms - stats.started_unix_ms).max(0) / 1_000;
        let (title, lines): (&str, Vec<(&str, String)>) = match name {
            "server" => (
                "Server",
                vec![
                    ("redis_version", REDIS_VERSION.to_owned()),
                    ("redis_mode", "standalone".to_owned()),
                    ("trine_version", env!("CARGO_PKG_VERSION").to_owned()),
                    ("process_id", std::process::id().to_string()),
                    ("tcp_port", self.address.port().to_string()),
                    ("uptime_in_seconds", uptime.to_string()),
                ],
            ),
            "clients" => (
                "Clients",
                vec![
                    ("connected_clients", stats.connected.to_string()),
                    ("maxclients", self.clients_max.to_string()),
                ],
            ),
            "stats" => (
                "Stats",
                vec![
                    ("total_connections_received", stats.accepted.to_string()),
                    ("total_commands_processed", stats.commands.to_string()),
                    ("total_error_replies", stats.errors.to_string()),
                    ("total_net_input_bytes", stats.bytes_in.to_string()),
                    ("total_net_output_bytes", stats.bytes_out.to_string()),
                    ("rejected_connections", stats.turned_away.to_string()),
                    ("accept_errors", stats.accept_errors.to_string()),
                    ("protocol_errors", stats.protocol_errors.to_string()),
                    ("slow_readers_disconnected", stats.slow_readers.to_string()),
                ],
            ),
            // Every replica takes writes and forwards them to the leader.
            "replication" => (
                "Replication",
                vec![
                    ("role", "master".to_owned()),
                    ("connected_slaves", "0".to_owned()),
                ],
            ),
            _ => return None,
        };
        let mut text = format!("# {title}\r\n");
        for (field, value) in lines {
            // Writing to a string cannot fail.
            let _ = write!(text, "{field}:{value}\r\n");
        }
        Some(text)
    }
}

impl Told for View<'_> {
    fn info(&self, sections: &[&[u8]]) -> String {
        const ALL: [&str; 4] = ["server", "clients", "stats", "replication"];
        let is_all = |section: &&[u8]| {
            [b"all".as_slice(), b"default", b"everything"]
                .iter()
                .any(|name| section.eq_ignore_ascii_case(name))
        };
        let asked: Vec<String> = match sections.is_empty() || sections.iter().any(is_all) {
            true => ALL.map(str::to_owned).into(),
            false => sections
                .iter()
                .map(|name| String::from_utf8_lossy(name).to_lowercase())
                .collect(),
        };
        let texts: Vec<String> = asked.iter().filter_map(|name| self.section(name)).collect();
        texts.join("\r\n")
    }

    fn others(&self) -> String {
        let mut lines = String::new();
        (self.clients)(&mut |connection| lines.push_str(&connection.describe(self.unix_ms)));
        lines
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let limits = self.limits;
        vec![
            ("save", String::new()),
            ("appendonly", "no".to_owned()),
            ("databases", "1".to_owned()),
            ("maxclients", self.clients_max.to_string()),
            ("proto-max-bulk-len", limits.part_bytes.to_string()),
            ("client-query-buffer-limit", limits.query_bytes.to_string()),
            ("timeout", "0".to_owned()),
        ]
    }
}
