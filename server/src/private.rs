//! Reads a file of secrets, and refuses one that others than its owner may read.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use trine_base::failure::Failure;

/// Why there is no text.
pub(crate) enum Unread {
    /// It could not be read.
    Io(io::Error),
    /// Others may read it.
    Open(Failure),
}

/// The text of `path`, which messages call `what`. Nobody but its owner may read it.
pub(crate) fn read(path: &Path, what: &str) -> Result<String, Unread> {
    let mut text = String::new();
    open(path, what)?
        .read_to_string(&mut text)
        .map_err(Unread::Io)?;
    Ok(text)
}

/// Opens `path`, which messages call `what`, if nobody but its owner may read it. The open file is looked at: at the path
/// there may be another one a moment later.
pub(crate) fn open(path: &Path, what: &str) -> Result<File, Unread> {
    let file = File::open(path).map_err(Unread::Io)?;
    let metadata = file.metadata().map_err(Unread::Io)?;
    if !keeps_out_others(&metadata) {
        let mode = metadata.permissions().mode() & 0o7777;
        let shown = path.display();
        return Err(Unread::Open(Failure::usage(
            format!("{what} {shown} can be read by others (mode {mode:04o})"),
            format!("run `chmod 600 {shown}`"),
        )));
    }
    Ok(file)
}

/// Whether nobody but its owner may read the file.
pub fn keeps_out_others(about: &Metadata) -> bool {
    is_closed(
        about.permissions().mode() & 0o7777,
        about.uid(),
        about.gid(),
    )
}

/// Whether others than the owner are kept out. A file of root with mode 0440 counts as closed: systemd hands out
/// credentials like that.
fn is_closed(mode: u32, uid: u32, gid: u32) -> bool {
    let is_credential = mode == 0o440 && uid == 0 && gid == 0;
    mode & 0o077 == 0 || is_credential
}

/// The password in the first line of `path`, which messages call `what`.
///
/// # Errors
/// A file that others can read, or that has none. Blanks alone are none.
pub fn first_line(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    let cannot = |why: String| {
        Failure::usage(
            format!("cannot take {what} from {}: {why}", path.display()),
            "write it into the first line of the file",
        )
    };
    let text = read(path, "the password file").map_err(|why| match why {
        Unread::Open(failure) => failure,
        Unread::Io(error) => cannot(error.to_string()),
    })?;
    match text.lines().next() {
        Some(line) if is_password(line) => Ok(line.as_bytes().to_vec()),
        _ => Err(cannot("its first line is empty".to_owned())),
    }
}

/// Whether a text can be a password. An empty one keeps nobody out, and a client shows it by accident: it is what an unset
/// variable of a script or a compose file leaves behind. The same goes for blanks and other characters that nobody sees.
pub fn is_password(text: &str) -> bool {
    text.chars()
        .any(|letter| !letter.is_whitespace() && !letter.is_control() && !is_unseen(letter))
}

/// Characters without width, among them the mark at the beginning of a file that some editors write.
fn is_unseen(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn nothing_that_nobody_sees_is_a_password() {
        for text in [
            "",
            " ",
            "\t",
            "\r",
            " \u{a0}\u{3000}",
            "\0",
            "\u{feff}",
            "\u{200b} ",
        ] {
            assert!(!is_password(text), "{text:?}");
        }
        for text in ["x", " x", "\u{feff}x", "-", "\"\"", "密"] {
            assert!(is_password(text), "{text:?}");
        }
    }

    #[test]
    fn a_file_whose_first_line_is_empty_has_no_password() {
        let path = std::env::temp_dir().join(format!("trine-first-line-{}", std::process::id()));
        for (content, expected) in [
            ("", None),
            ("\n", None),
            ("\r\nsecret\n", None),
            ("   \nsecret\n", None),
            ("secret\r\nmore", Some("secret")),
            (" secret ", Some(" secret ")),
        ] {
            let mut file = std::fs::OpenOptions::new();
            let file = file.create(true).write(true).truncate(true).mode(0o600);
            let mut file = file.open(&path).expect("a file");
            file.write_all(content.as_bytes()).expect("written");
            let line = first_line(&path, "the password");
            let expected = expected.map(|text| text.as_bytes().to_vec());
            assert_eq!(line.as_ref().ok(), expected.as_ref(), "{content:?}");
            if let Err(failure) = line {
                assert!(failure.message().contains("its first line is empty"));
            }
        }
        std::fs::remove_file(path).expect("removed");
    }

    /// The key of TLS could not be a credential of systemd, because it was checked elsewhere and by another rule.
    #[test]
    fn a_credential_of_systemd_is_closed() {
        for (mode, uid, gid) in [(0o600, 7, 7), (0o400, 0, 0), (0o700, 7, 0), (0o440, 0, 0)] {
            assert!(is_closed(mode, uid, gid), "{mode:o} {uid}:{gid}");
        }
        for (mode, uid, gid) in [
            (0o440, 7, 0),
            (0o440, 0, 7),
            (0o444, 0, 0),
            (0o460, 0, 0),
            (0o640, 0, 0),
            (0o601, 7, 7),
        ] {
            assert!(!is_closed(mode, uid, gid), "{mode:o} {uid}:{gid}");
        }
    }
}
