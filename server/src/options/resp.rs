//! Options of the Redis protocol, and the settings that follow from them.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::exposure::Exposed;
use crate::private;
use crate::tls::TlsArguments;
use trine_base::announce::note;
use trine_base::failure::Failure;
use trine_base::units::{parse_bytes, parse_positive_duration};
use trine_resp::Classes;

/// The options of the Redis protocol, of `trine serve` and of `trine up`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Redis protocol")]
pub struct RespArguments {
    /// Serve the Redis protocol at this address: a port on loopback, or address:port. With a trailing +, each replica
    /// uses its own port: 7101+ is port 7103 at node 3. `trine up` always adds the +.
    #[arg(long, value_name = "PORT|ADDR:PORT")]
    pub resp: Option<RespAddress>,
    /// Password that clients must send with AUTH before other commands. An empty password is rejected, and so is a
    /// settings file with a password that others can read.
    #[arg(long, value_name = "TEXT", hide_env_values = true, value_parser = parse_password)]
    pub resp_password: Option<String>,
    /// Like --resp-password, but read from the first line of this file. The file must be readable only by its owner.
    #[arg(long, value_name = "FILE", conflicts_with = "resp_password")]
    pub resp_password_file: Option<PathBuf>,
    /// Also accept passwords of users: this file has one line per user, printed by `trine user password NAME`. It must
    /// be readable only by its owner. At SIGHUP, the replica reads it again.
    #[arg(long, value_name = "FILE")]
    pub resp_users: Option<PathBuf>,
    /// Execute no command until the client authenticates with AUTH, either as a user of the group (name and key) or
    /// with a password.
    #[arg(long)]
    pub resp_require_auth: bool,
    /// Maximum number of connections; further clients get Redis's error. If the limit of file descriptors (`ulimit -n`)
    /// is too low, a line at startup says how many connections fit.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub resp_max_clients: u32,
    /// How long a command may wait for the group before it fails with an error. Many clients themselves wait 5 s, and
    /// should see the error instead of a silent server.
    #[arg(long, default_value = "4s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub resp_timeout: Duration,
    /// Maximum size of a connection's unanswered requests; a larger request closes the connection.
    #[arg(long, default_value = "8MiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub resp_query_buffer: u64,
    /// Maximum size of a client's unread replies; beyond it, further commands of that client wait.
    #[arg(long, default_value = "1MiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub resp_output_buffer: u64,
    /// Maximum size of all connections' buffers. Above half of it, commands of clients with unread replies wait; beyond
    /// it, the connections that use most are closed.
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub resp_memory: u64,
    /// Maximum size of one argument of a request, such as a value.
    #[arg(long, default_value = "1MiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub resp_bulk_bytes: u64,
    /// Maximum number of commands of one connection that are sent to the group together.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub resp_pipeline: u32,
    /// Disconnect a client that has unread replies and reads nothing for this long.
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub resp_slow_reader: Duration,
    /// Keyspace events that subscribers receive, as flags of Redis's notify-keyspace-events: KEA means all events. By
    /// default, none are sent. CONFIG SET changes the flags at one replica until it stops.
    #[arg(long, default_value_t, value_name = "LETTERS", value_parser = parse_classes)]
    pub resp_notify_keyspace_events: Classes,
}

/// TRINE_RESP_PASSWORD is empty where a compose file names a variable that nobody has set. Such a password counted as
/// protection, and `AUTH ""` gave all rights.
fn parse_password(text: &str) -> Result<String, String> {
    match private::is_password(text) {
        true => Ok(text.to_owned()),
        false => Err(
            "an empty password protects nothing; set a password, or omit the setting (`unset \
             TRINE_RESP_PASSWORD`)"
                .to_owned(),
        ),
    }
}

fn parse_classes(text: &str) -> Result<Classes, String> {
    Classes::parse(text.as_bytes())
}

/// Where to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RespAddress {
    address: SocketAddr,
    /// The port belongs to node 1, and further nodes count on from it.
    counts_on: bool,
}

impl FromStr for RespAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (plain, counts_on) = match text.strip_suffix('+') {
            Some(plain) => (plain, true),
            None => (text, false),
        };
        // The standard library takes a sign, too.
        let port: Option<u16> = plain.parse().ok().filter(|_| !plain.starts_with('+'));
        let address = match port {
            Some(port) => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
            None => plain.parse().ok(),
        };
        let address = address.filter(|address| !counts_on || address.port() > 0);
        address
            .map(|address| Self { address, counts_on })
            .ok_or_else(|| {
                format!(
                    "{text:?} is not an address to listen at; write 7101, 7101+ or \
                     127.0.0.1:7101"
                )
            })
    }
}

impl RespAddress {
    /// The address of the replica at `node_id`, from 1.
    pub fn of_node(self, node_id: u32) -> Result<SocketAddr, Failure> {
        let mut address = self.address;
        if self.counts_on {
            let port = u32::from(address.port()) + node_id - 1;
            let port = u16::try_from(port).map_err(|_| {
                let message = format!("--resp {}+ has no port for node {node_id}", address.port());
                Failure::usage(message, "choose a smaller port")
            })?;
            address.set_port(port);
        }
        Ok(address)
    }

    /// Returns the same address, with ports that count on with the node ids.
    pub fn counting_on(self) -> Self {
        Self {
            counts_on: self.address.port() > 0,
            ..self
        }
    }
}

/// A user who gives a password wants to protect something, so this is an error. `given` names the source of the
/// password.
pub fn needless_password(given: &str) -> Failure {
    Failure::usage(
        format!(
            "{given}: there is nothing that asks for a password while the Redis protocol is not served"
        ),
        "add --resp PORT to serve it, or leave the password out; trine's own clients need none",
    )
}

/// Says so if this process's command line has the password: everybody on the machine can read it there.
pub fn warn_of_shown_password() {
    let is_option = |word: &OsString| {
        let word = word.as_encoded_bytes();
        word == b"--resp-password" || word.starts_with(b"--resp-password=")
    };
    if std::env::args_os().any(|word| is_option(&word)) {
        note(
            "warning: the list of processes shows the password of --resp-password to every user of this machine; put it into a \
             file of its own for --resp-password-file, or into TRINE_RESP_PASSWORD",
        );
    }
}

impl RespArguments {
    /// The setting that gives a password although the protocol is not served.
    pub fn needless_password(&self) -> Option<&'static str> {
        match self {
            Self { resp: Some(_), .. } => None,
            Self {
                resp_password: Some(_),
                ..
            } => Some("resp-password"),
            Self {
                resp_password_file: Some(_),
                ..
            } => Some("resp-password-file"),
            Self {
                resp_users: Some(_),
                ..
            } => Some("resp-users"),
            _ => None,
        }
    }

    /// The password, from its source.
    pub fn password(&self) -> Result<Option<Vec<u8>>, Failure> {
        let Some(path) = &self.resp_password_file else {
            return Ok(self.resp_password.clone().map(String::into_bytes));
        };
        private::first_line(path, "the password").map(Some)
    }

    /// Who may reach the address.
    pub fn exposed(&self, address: SocketAddr, tls: &TlsArguments) -> Exposed<'static> {
        Exposed {
            what: "the address of --resp",
            address,
            asks: self.resp_password.is_some()
                || self.resp_password_file.is_some()
                || self.resp_require_auth,
            asks_certificate: tls.asks_certificate(),
            tls: tls.is_on(),
            hint: "add --resp-require-auth if the group has a key (--key FILE), --resp-password-file FILE, or TLS with \
                   --tls-client-ca FILE",
        }
    }

    /// The limits of each connection.
    pub fn limits(&self) -> trine_resp::Limits {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let defaults = trine_resp::Limits::default();
        trine_resp::Limits {
            query_bytes: bytes(self.resp_query_buffer).max(4096),
            output_bytes: bytes(self.resp_output_buffer),
            part_bytes: bytes(self.resp_bulk_bytes).min(defaults.part_bytes),
            pipeline_commands: self.resp_pipeline as usize,
            ..defaults
        }
    }

    /// The same settings, as options of `trine serve` for every replica of a group.
    pub fn as_serve_args(&self, password: Option<&HiddenPassword>) -> Vec<OsString> {
        let Some(resp) = self.resp.map(RespAddress::counting_on) else {
            return Vec::new();
        };
        let plus = if resp.counts_on { "+" } else { "" };
        let mut args: Vec<OsString> =
            vec!["--resp".into(), format!("{}{plus}", resp.address).into()];
        if let Some(password) = password {
            args.extend(["--resp-password-file".into(), password.path()]);
        }
        if let Some(file) = &self.resp_password_file {
            args.extend(["--resp-password-file".into(), file.into()]);
        }
        if let Some(file) = &self.resp_users {
            args.extend(["--resp-users".into(), file.into()]);
        }
        if self.resp_require_auth {
            args.push("--resp-require-auth".into());
        }
        let nanoseconds = |time: Duration| format!("{}ns", time.as_nanos());
        for (option, value) in [
            ("--resp-max-clients", self.resp_max_clients.to_string()),
            ("--resp-timeout", nanoseconds(self.resp_timeout)),
            ("--resp-query-buffer", self.resp_query_buffer.to_string()),
            ("--resp-output-buffer", self.resp_output_buffer.to_string()),
            ("--resp-memory", self.resp_memory.to_string()),
            ("--resp-bulk-bytes", self.resp_bulk_bytes.to_string()),
            ("--resp-pipeline", self.resp_pipeline.to_string()),
            ("--resp-slow-reader", nanoseconds(self.resp_slow_reader)),
            (
                "--resp-notify-keyspace-events",
                self.resp_notify_keyspace_events.to_string(),
            ),
        ] {
            args.extend([option.into(), value.into()]);
        }
        args
    }
}

/// Passes a password to replicas that this process starts. Their environment is built from nothing, and process lists
/// show their options. So each replica reads it at its start from an unnamed file that this process keeps open.
pub struct HiddenPassword(File);

impl HiddenPassword {
    /// Makes one from these options, if they have a password.
    pub fn of(arguments: &RespArguments) -> Result<Option<Self>, Failure> {
        let Some(password) = &arguments.resp_password else {
            return Ok(None);
        };
        // The replicas read the first line of a file.
        if password.contains(['\n', '\r']) {
            let message = "the password of the Redis protocol has more than one line";
            return Err(Failure::usage(message, "give one line of text"));
        }
        let kept = Self::keep(password).map_err(|error| {
            let message = format!("the password cannot be kept for the replicas: {error}");
            Failure::usage(
                message,
                "put it into a file and name that with --resp-password-file",
            )
        })?;
        Ok(Some(kept))
    }

    /// The file is in memory. A container may have no directory for temporary files, and on a disk the password would
    /// remain.
    fn keep(password: &str) -> std::io::Result<Self> {
        let mut file = File::from(memfd_create("trine-resp-password", MemfdFlags::CLOEXEC)?);
        // A replica takes no password from a file that others can read.
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(password.as_bytes())?;
        Ok(Self(file))
    }

    fn path(&self) -> OsString {
        let (process, descriptor) = (std::process::id(), self.0.as_raw_fd());
        format!("/proc/{process}/fd/{descriptor}").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node_id(text: &str, node_id: u32) -> String {
        let address: RespAddress = text.parse().expect(text);
        address.of_node(node_id).expect("a port").to_string()
    }

    /// Clients that gave up after five seconds saw a silent server: the error came at the same time.
    #[test]
    fn commands_wait_less_than_clients_do() {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            resp: RespArguments,
        }
        let only = <Only as clap::Parser>::parse_from(["test"]);
        assert!(only.resp.resp_timeout < Duration::from_secs(5));
    }

    #[test]
    fn a_port_alone_is_one_of_loopback_and_a_plus_counts_nodes() {
        assert_eq!(node_id("7101", 3), "127.0.0.1:7101");
        assert_eq!(node_id("7101+", 3), "127.0.0.1:7103");
        assert_eq!(node_id("0.0.0.0:7101+", 1), "0.0.0.0:7101");
        assert_eq!(node_id("[::1]:7101", 2), "[::1]:7101");
        for wrong in ["", "x", "70000", "+", "0+", "+7101", "localhost:7101"] {
            assert!(wrong.parse::<RespAddress>().is_err(), "{wrong}");
        }
        let last: RespAddress = "65535+".parse().expect("an address");
        assert!(last.of_node(2).is_err());
    }
}
