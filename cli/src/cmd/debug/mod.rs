//! `trine debug bundle` writes one archive with the facts that a remote helper needs.
//!
//! The archive has no secrets: no keys, no values, no passwords. Only its owner can read it. It names each unavailable part with the reason. An
//! unavailable part does not stop it, because most bundles are made when something does not work.

mod archive;
mod args;
mod gather;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use trine_base::document::path_text;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::new_file;
use trine_base::output::Output;
use trine_base::peers;
use trine_base::units::{plural, show_bytes};
use trine_base::whole_file::WholeFile;

use self::args::BundleArguments;
pub(crate) use self::args::DebugCommand;
use self::gather::{ArchiveFile, gather};

/// The data that a bundle never holds. The terminal and the archive both show this text.
const LEFT_OUT: &str = "left out on purpose: keys, values, passwords, packets, data directories";

pub(crate) fn run<N: Network>(
    network: &N,
    command: &DebugCommand,
    output: Output,
) -> Result<(), Failure> {
    let DebugCommand::Bundle(arguments) = command;
    bundle(network, arguments, output)
}

fn bundle<N: Network>(
    network: &N,
    arguments: &BundleArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start_writer()?;
    // An unreadable argument is a mistake of the command line, not a finding.
    let addresses = peers::resolve(&arguments.group.peers)?;
    let asker = arguments.endpoint.asker()?;
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let name = format!("trine-debug-{seconds}");
    let path = match arguments.file.as_ref().or(arguments.out.as_ref()) {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{name}.tar.gz")),
    };
    new_file::require_name(
        &path,
        "give the name of a file, or ./- for one of that name",
    )?;
    let mut file = WholeFile::create(&path, "bundle")?;
    let parts = match gather(network, &addresses, arguments, &asker, output) {
        Ok(parts) => parts,
        Err(failure) => return Err(file.undo(failure)),
    };
    let packed = archive::pack(&name, seconds, &contents(&parts), &parts);
    if let Err(failure) = file.write(&packed) {
        return Err(file.undo(failure));
    }
    file.finish()?;
    tell(&path, &parts, output);
    Ok(())
}

/// A line for each part: its name, and its size or why it is missing.
fn contents(parts: &[ArchiveFile]) -> String {
    let mut lines: Vec<String> = parts.iter().map(ToString::to_string).collect();
    lines.push(LEFT_OUT.to_owned());
    lines.join("\n") + "\n"
}

fn tell(path: &std::path::Path, parts: &[ArchiveFile], output: Output) {
    let missing = parts.iter().filter(|part| part.bytes.is_err()).count() as u64;
    let of_one = |part: &ArchiveFile| {
        json!({
            "file": part.file,
            "what": part.what,
            "bytes": part.bytes.as_ref().ok().map(Vec::len),
            "missing": part.bytes.as_ref().err(),
        })
    };
    output.document(&json!({
        "bundle": path_text(path),
        "parts": parts.iter().map(of_one).collect::<Vec<_>>(),
    }));
    output.line(contents(parts).trim_end());
    let size = std::fs::metadata(path).map_or(0, |about| about.len());
    let without = match missing {
        0 => String::new(),
        _ => format!(", without {}", plural(missing, "part")),
    };
    output.line(format_args!(
        "written to {} ({}{without}); check its contents before you share it: tar tzf {}",
        path.display(),
        show_bytes(size),
        path.display()
    ));
}

impl std::fmt::Display for ArchiveFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (file, what) = (&self.file, self.what);
        match &self.bytes {
            Ok(bytes) => write!(f, "{file:<16} {what}, {}", show_bytes(bytes.len() as u64)),
            Err(why) => write!(f, "{file:<16} MISSING, {what}: {why}"),
        }
    }
}
