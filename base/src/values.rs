//! Where a value comes from: the argument, a file, or standard input.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use trine_kvstore::config::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::announce::note;
use crate::failure::Failure;
use crate::units::show_bytes;

/// The key's bytes, if they are a valid key.
pub fn key_bytes(key: &OsStr) -> Result<&[u8], Failure> {
    let bytes = key.as_bytes();
    if bytes.len() > KEY_BYTES_MAX as usize {
        return Err(Failure::usage(
            format!("the key has {} bytes", bytes.len()),
            format!(
                "a key may have at most {}",
                show_bytes(KEY_BYTES_MAX.into())
            ),
        ));
    }
    Ok(bytes)
}

/// Reads the value that `VALUE` names. `@file` names a file; `-` or nothing means standard input. Anything else is the
/// value itself.
pub fn read_value(argument: Option<&OsStr>) -> Result<Vec<u8>, Failure> {
    match argument.map(OsStrExt::as_bytes) {
        None | Some(b"-") => from_stdin(),
        Some([b'@', path @ ..]) => from_file(Path::new(OsStr::from_bytes(path))),
        Some(value) => within_limit(value.to_vec(), "the value"),
    }
}

fn from_stdin() -> Result<Vec<u8>, Failure> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        note("reading the value from the terminal; end it with Ctrl-D");
    }
    let value = read_bounded(stdin.lock()).map_err(|error| {
        Failure::usage(
            format!("cannot read the value from standard input: {error}"),
            "",
        )
    })?;
    within_limit(value, "the value on standard input")
}

fn from_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let value = File::open(path).and_then(read_bounded).map_err(|error| {
        Failure::usage(
            format!("cannot read the value from {}: {error}", path.display()),
            "a VALUE that begins with @ names a file; to store such text itself, pipe it in: \
             printf %s '@text' | trine put KEY -",
        )
    })?;
    within_limit(value, &path.display().to_string())
}

/// Reads one byte more than a value may have, so that an endless stream counts as too large.
fn read_bounded(source: impl Read) -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    source
        .take(u64::from(VALUE_BYTES_MAX) + 1)
        .read_to_end(&mut value)?;
    Ok(value)
}

fn within_limit(value: Vec<u8>, what: &str) -> Result<Vec<u8>, Failure> {
    if value.len() > VALUE_BYTES_MAX as usize {
        let limit = show_bytes(VALUE_BYTES_MAX.into());
        return Err(Failure::usage(
            format!("{what} has more than {limit}"),
            format!("a value may have at most {limit}; store it in parts"),
        ));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_the_value_itself() {
        assert_eq!(read_value(Some(OsStr::new("a b"))).expect("value"), b"a b");
        assert_eq!(read_value(Some(OsStr::new(""))).expect("value"), b"");
    }

    #[test]
    fn an_at_sign_names_a_file() {
        let path = std::env::temp_dir().join(format!("trine-value-{}", std::process::id()));
        std::fs::write(&path, [0, 255, 10]).expect("write");
        let argument = format!("@{}", path.display());
        assert_eq!(
            read_value(Some(OsStr::new(&argument))).expect("value"),
            [0, 255, 10]
        );
        std::fs::remove_file(&path).expect("remove");
        let failure = read_value(Some(OsStr::new(&argument))).expect_err("no such file");
        assert_eq!(failure.exit_status(), 2);
    }

    #[test]
    fn a_value_above_the_limit_is_refused_before_anything_is_sent() {
        let long = read_bounded(io::repeat(b'x')).expect("bounded");
        assert_eq!(
            within_limit(long, "it")
                .expect_err("too long")
                .exit_status(),
            2
        );
        let key = "k".repeat(KEY_BYTES_MAX as usize + 1);
        assert_eq!(
            key_bytes(OsStr::new(&key))
                .expect_err("too long")
                .exit_status(),
            2
        );
    }
}
