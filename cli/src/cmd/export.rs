//! `trine export` writes keys with their values and expiries as JSON lines.
//!
//! It walks over the keys a page at a time. A key that is there all the time is written once; what is changed meanwhile
//! may be written as it was before or after. Each page is the state of one position.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use trine_base::announce::note;
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::{Session, open};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::{Output, print_all};
use trine_base::progress::Progress;
use trine_base::units::plural;
use trine_base::values::key_bytes;
use trine_client::Mode;
use trine_kvstore::{Command, Cursor, Found, Page, Prefix, Response, WalkContent};

use super::record::line;

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// The new file; standard output if absent.
    file: Option<PathBuf>,
    /// Only keys that begin with this. A user with a prefix has to name it.
    #[arg(long, value_name = "PREFIX", default_value = "")]
    prefix: OsString,
    #[command(flatten)]
    client: ClientArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &ExportArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let prefix = key_bytes(&arguments.prefix)?;
    let mut sink = match &arguments.file {
        None => Sink::Standard,
        Some(path) => Sink::create(path)?,
    };
    let mut session = open(network, &arguments.client, |_| {})?;
    let written = export(&mut session, prefix, &mut sink).and_then(|keys| {
        sink.finish()?;
        Ok(keys)
    });
    match written {
        Err(failure) => Err(sink.undo(failure)),
        Ok(keys) => {
            // Where standard output has the lines, it has nothing else.
            match arguments.file {
                Some(_) => {
                    output.document(&json!({ "keys": keys }));
                    output.line(format_args!("wrote {}", plural(keys, "key")));
                }
                None => note(format_args!("wrote {}", plural(keys, "key"))),
            }
            Ok(())
        }
    }
}

/// Writes all items, and says how many there were.
fn export(session: &mut Session, prefix: &[u8], sink: &mut Sink<'_>) -> Result<u64, Failure> {
    let mut progress = Progress::towards("exporting", None);
    let (mut from, mut keys) = (Cursor::START, 0);
    loop {
        let command = Command::Walk {
            from,
            count: 0,
            content: WalkContent::Items,
            prefix: Prefix(prefix),
        };
        let answer = session.execute(Mode::Read, &command)?;
        let page = match response_of(&answer)? {
            Response::Page(page) => page,
            other => return Err(unexpected(&other)),
        };
        keys += write(&page, sink)?;
        progress.set(keys, || plural(keys, "key"));
        if page.next == Cursor::START {
            return Ok(keys);
        }
        from = page.next;
        interrupt::check()?;
    }
}

fn write(page: &Page<'_>, sink: &mut Sink<'_>) -> Result<u64, Failure> {
    let Found::Items(items) = &page.found else {
        return Err(unexpected(&Response::Page(page.clone())));
    };
    let now = SystemTime::now();
    let mut lines = String::new();
    for entry in items.iter() {
        lines += &line(&entry, now);
        lines.push('\n');
    }
    sink.write(lines.as_bytes())?;
    Ok(items.len() as u64)
}

/// Where the lines go.
enum Sink<'p> {
    Standard,
    File {
        path: &'p Path,
        file: BufWriter<File>,
    },
}

impl<'p> Sink<'p> {
    /// A new file. One that is there may be the only copy of something.
    fn create(path: &'p Path) -> Result<Self, Failure> {
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            // Keys and values are for the user's eyes alone, as in a backup.
            .mode(0o600)
            .open(path);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::usage(
                format!("{} is there already; nothing was written", path.display()),
                "name another file, or remove that one",
            ),
            _ => cannot_write(path, &error),
        })?;
        let file = BufWriter::new(file);
        Ok(Self::File { path, file })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Standard => print_all(bytes),
            Self::File { path, file } => file
                .write_all(bytes)
                .map_err(|error| cannot_write(path, &error))?,
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        if let Self::File { path, file } = self {
            let synced = file.flush().and_then(|()| file.get_ref().sync_all());
            synced.map_err(|error| cannot_write(path, &error))?;
        }
        Ok(())
    }

    /// Half an export looks like a whole one, so it does not stay.
    fn undo(self, failure: Failure) -> Failure {
        match self {
            Self::Standard => failure.while_doing("not all keys were written"),
            Self::File { path, .. } => match std::fs::remove_file(path) {
                Ok(()) => failure.while_doing("the export was given up and its file removed"),
                Err(_) => failure.while_doing("not all keys were written"),
            },
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot write {}: {error}", path.display()), "")
}
