//! Collects the parts of a bundle. Each part may fail separately.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use super::args::BundleArguments;
use crate::cmd::doctor;
use crate::cmd::endpoint::EndpointClient;
use crate::cmd::status::document;
use crate::observe::{Sample, between};
use crate::settings::{
    Configured, Secrets, Stop, document as settings_document, keys, resolve_for_show,
};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::progress::Progress;
use trine_base::survey::{SURVEY_TIMEOUT, ask_everybody};
use trine_protocol::program::Program;

/// The interval between the two samples behind the rates.
const STAT_INTERVAL: Duration = Duration::from_secs(1);
/// The size limit of a log's tail.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// One file of the archive.
pub(super) struct ArchiveFile {
    pub(super) file: String,
    pub(super) what: &'static str,
    /// The contents, or why they are missing.
    pub(super) bytes: Result<Vec<u8>, String>,
}

impl ArchiveFile {
    fn new(file: impl Into<String>, what: &'static str, bytes: Result<Vec<u8>, String>) -> Self {
        let file = file.into();
        Self { file, what, bytes }
    }
}

/// Collects every available part.
///
/// # Errors
/// The user interrupts it.
pub(super) fn gather<N: Network>(
    network: &N,
    addresses: &[SocketAddr],
    arguments: &BundleArguments,
    asker: &EndpointClient,
    output: Output,
) -> Result<Vec<ArchiveFile>, Failure> {
    let steps = 4 + arguments.at.len() + arguments.log_file.len();
    let mut progress = Progress::at_terminal("gathering", Some(steps as u64), output);
    let limit = arguments.group.timeout.min(SURVEY_TIMEOUT);
    let sample = || {
        let reports = ask_everybody(network, addresses, limit.into()).map_err(|e| e.to_string())?;
        let at = Instant::now();
        Ok::<_, String>(Sample { at, reports })
    };
    let before = sample();
    interrupt::pause(STAT_INTERVAL);
    interrupt::check()?;
    progress.set(2, || "asking the replicas again".to_owned());
    let after = sample();
    progress.set(3, || "looking at this machine".to_owned());
    let status = after.as_ref().map_err(String::clone);
    let stat = match (&before, &after) {
        (Ok(before), Ok(after)) => Ok((before, after)),
        (Err(why), _) | (_, Err(why)) => Err(why.clone()),
    };
    let mut parts = vec![
        ArchiveFile::new(
            "version.json",
            "this program and the system",
            Ok(json(&version())),
        ),
        ArchiveFile::new(
            "status.json",
            "what every replica reports about itself",
            status.map(|sample| json(&document(&sample.reports))),
        ),
        ArchiveFile::new(
            "stat.json",
            "rates and stages of writes within a second",
            stat.map(|(before, after)| json(&between(before, after).document())),
        ),
        ArchiveFile::new(
            "doctor.json",
            "what `trine doctor` finds here",
            Ok(json(&doctor::findings())),
        ),
        ArchiveFile::new(
            "settings.json",
            "the settings that `trine serve` uses here, secrets hidden",
            settings(arguments).map(|settings| json(&settings)),
        ),
    ];
    parts.extend(named(arguments, asker, &mut progress)?);
    parts.extend(not_named(arguments));
    interrupt::check()?;
    Ok(parts)
}

/// The endpoints and logs that the user names.
fn named(
    arguments: &BundleArguments,
    asker: &EndpointClient,
    progress: &mut Progress,
) -> Result<Vec<ArchiveFile>, Failure> {
    let mut parts = Vec::new();
    for (number, at) in (1..).zip(&arguments.at) {
        interrupt::check()?;
        progress.set(3 + number, || format!("asking {at} for metrics"));
        parts.push(ArchiveFile::new(
            format!("metrics-{number}.txt"),
            "metrics of a replica",
            metrics(asker, at),
        ));
    }
    for (number, path) in (1..).zip(&arguments.log_file) {
        parts.push(ArchiveFile::new(
            format!("log-{number}.txt"),
            "the end of a log",
            tail(path),
        ));
    }
    Ok(parts)
}

/// The parts that exist only if the user names them.
fn not_named(arguments: &BundleArguments) -> Vec<ArchiveFile> {
    let mut parts = Vec::new();
    if arguments.at.is_empty() {
        let why = "name the endpoint of each replica with --at HOST:PORT".to_owned();
        parts.push(ArchiveFile::new(
            "metrics",
            "metrics of a replica",
            Err(why),
        ));
    }
    if arguments.log_file.is_empty() {
        let why = "replicas log to standard error; name the file that has it with --log-file FILE"
            .to_owned();
        parts.push(ArchiveFile::new("log", "the end of a log", Err(why)));
    }
    parts
}

fn json(document: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(document).expect("our documents have string keys");
    bytes.push(b'\n');
    bytes
}

fn version() -> Value {
    let system = rustix::system::uname();
    let program = Program::this();
    json!({
        "version": program.release.to_string(),
        "commit": program.commit,
        "state_version": program.state_version,
        "message_version": program.message_version,
        "features": { "dpdk": cfg!(feature = "dpdk"), "verbs": cfg!(feature = "verbs") },
        "kernel": system.release().to_string_lossy(),
        "machine": system.machine().to_string_lossy(),
        "processors": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
    })
}

/// The settings of `trine serve`, from environment and file.
fn settings(arguments: &BundleArguments) -> Result<Value, String> {
    let mut options = Vec::new();
    if let Some(file) = &arguments.config {
        options.extend(["--config".into(), file.into()]);
    }
    let keys = keys();
    let resolved = match resolve_for_show(Configured::Serve, &options, &keys) {
        Ok(resolved) => resolved,
        Err(Stop::Usage(error)) => return Err(error.to_string()),
        Err(Stop::Settings(failure)) => return Err(failure.to_string()),
    };
    let shown = resolved.shown(Configured::Serve, &keys, Secrets::Hidden);
    Ok(settings_document(&shown))
}

fn metrics(asker: &EndpointClient, at: &str) -> Result<Vec<u8>, String> {
    let answer = asker.ask(at, "GET", "/metrics", "");
    match answer.map_err(|failure| failure.in_one_line())? {
        answer if answer.is_ok => Ok(answer.body.into_bytes()),
        _ => Err(format!("{at} is not a metrics endpoint")),
    }
}

/// The last bytes of a file, starting at the beginning of a line.
fn tail(path: &Path) -> Result<Vec<u8>, String> {
    // A pipe could be waited for without end.
    if std::fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        return Err(format!("{} is not a regular file", path.display()));
    }
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let start = length.saturating_sub(LOG_BYTES_MAX);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
        let cut = match start {
            0 => 0,
            _ => bytes
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(0, |end| end + 1),
        };
        Ok::<_, std::io::Error>(bytes.split_off(cut))
    };
    let bytes = read().map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    match holds_key(&bytes) {
        true => Err(format!(
            "{} holds a secret key, which must not be shared",
            path.display()
        )),
        false => Ok(bytes),
    }
}

/// Whether there is a key in it: a group's, a user's, one of TLS, or the secrets of a key log.
fn holds_key(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let begins = ["trine-cluster-key", "trine-key-", "trine-secret"];
    text.lines().any(|line| {
        let line = line.trim_start();
        begins.iter().any(|begin| line.starts_with(begin)) || line.contains("PRIVATE KEY-----")
    })
}

#[cfg(test)]
mod tests {
    use trine_keys::config::CLUSTER_KEY_RANDOM_BYTES;
    use trine_keys::{ClusterKey, UserName};

    use super::*;

    /// The key file went into the bundle, by a mistyped name.
    #[test]
    fn a_key_is_no_log() {
        let key = ClusterKey::from_random(&[7; CLUSTER_KEY_RANDOM_BYTES]);
        let user = key.user_key(UserName::new(b"ann").expect("a name"), 1);
        for secret in [
            key.to_text().to_string(),
            user.to_file_text().to_string(),
            "-----BEGIN PRIVATE KEY-----\nAAAA\n".to_owned(),
        ] {
            let path = std::env::temp_dir().join(format!("trine-no-log-{}", std::process::id()));
            std::fs::write(&path, secret).expect("written");
            let refused = tail(&path);
            std::fs::remove_file(&path).expect("removed");
            let why = refused.expect_err("a key");
            assert!(why.contains("holds a secret key"), "{why}");
        }
        assert!(!holds_key(b"INFO keys: read again /etc/trine/group.key\n"));
    }

    #[test]
    fn a_long_log_is_cut_at_a_line() {
        let path = std::env::temp_dir().join(format!("trine-tail-{}", std::process::id()));
        let line = [b'x'; 99];
        let mut text = b"first\n".to_vec();
        while text.len() as u64 <= LOG_BYTES_MAX {
            text.extend_from_slice(&line);
            text.push(b'\n');
        }
        std::fs::write(&path, &text).expect("written");
        let tail = tail(&path).expect("read");
        std::fs::remove_file(&path).expect("removed");
        assert!(tail.len() as u64 <= LOG_BYTES_MAX && tail.len().is_multiple_of(100));
        assert!(text.ends_with(&tail) && tail.len() as u64 > LOG_BYTES_MAX - 200);
    }
}
