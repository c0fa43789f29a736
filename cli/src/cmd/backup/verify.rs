//! `trine backup verify`: checks that a file is a whole backup, and says of what.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};
use trine_base::document::path_text;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::output::Output;
use trine_base::progress::Progress;
use trine_base::units::{plural, show_bytes};
use trine_replica::backup::{Damage, Decoder, Header, Part};
use trine_server::backup_file::{self, PORTION};

pub(crate) fn run(file: &Path, output: Output) -> Result<(), Failure> {
    interrupt::start()?;
    let (header, bytes) = check(file)?;
    let head = &header.head;
    output.document(&document(file, &header, bytes));
    output.line(format_args!(
        "{} is complete: {} of cluster {} at entry {} ({})",
        file.display(),
        plural(head.items, "key"),
        head.cluster,
        head.index,
        show_bytes(bytes),
    ));
    Ok(())
}

/// The facts about a backup, for programs.
pub(super) fn document(file: &Path, header: &Header, bytes: u64) -> Value {
    let head = &header.head;
    json!({
        "file": path_text(file), "bytes": bytes, "cluster": head.cluster.to_string(), "index": head.index,
        "term": head.term,
        "keys": head.items, "logical_bytes": head.logical_bytes, "users": head.users,
        "state_version": head.state_version, "group_time_ns": head.group_time_ns, "made_at_ms": header.made_at_ms,
    })
}

/// Reads a backup to its end.
pub(crate) fn check(path: &Path) -> Result<(Header, u64), Failure> {
    let damaged = |damage: Damage| backup_file::damaged(path, &damage);
    let mut file = File::open(path).map_err(|error| backup_file::not_read(path, &error))?;
    let size = file.metadata().map_or(0, |about| about.len());
    let mut progress = Progress::new(format!("checking {}", path.display()), size);
    let (mut decoder, mut header) = (Decoder::default(), None);
    let mut portion = vec![0; PORTION];
    loop {
        interrupt::check()?;
        let read = file.read(&mut portion);
        let read = read.map_err(|error| backup_file::not_read(path, &error))?;
        if read == 0 {
            break;
        }
        decoder.feed(&portion[..read]);
        while let Some(part) = decoder.part().map_err(damaged)? {
            if let Part::Header(found) = part {
                header = Some(found);
            }
        }
        progress.set(decoder.offset(), || show_bytes(decoder.offset()));
    }
    decoder.finish().map_err(damaged)?;
    let header = header.expect("a whole file has a header");
    Ok((header, decoder.offset()))
}
