//! `--key-log FILE` writes the secrets of this process's sessions to a file, for Wireshark.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, Once, PoisonError};

use rustix::fs::OFlags;
use trine_keys::own_file::{self, AllowedFile};
use trine_transport::keys::{KeyLog, SessionSecrets};

use crate::announce::note;
use crate::failure::Failure;
use crate::new_file::OWN_FILE_HINT;

/// Whether the warning was given: a process may have several endpoints.
static WARNED: Once = Once::new();

/// Opens the file, makes it if it is not there, and warns whoever started the process.
pub(super) fn open(path: &Path) -> Result<Arc<dyn KeyLog>, Failure> {
    let flags = OFlags::WRONLY | OFlags::APPEND;
    let opened = own_file::open(path, flags, 0o600, AllowedFile::Any);
    let known = opened.and_then(|opened| {
        let about = opened.file.metadata()?;
        let kind = about.file_type();
        // Nobody reads what a device was given by reading its file.
        let is_readable = kind.is_file() || kind.is_fifo();
        let mode = about.permissions().mode() & 0o7777;
        Ok((mode, is_readable && mode & 0o077 != 0, opened.file))
    });
    let shown = path.display();
    let (mode, is_open, file) = known.map_err(|error| {
        Failure::usage(
            format!("the key log {shown} cannot be written: {error}"),
            OWN_FILE_HINT,
        )
    })?;
    if is_open {
        return Err(Failure::usage(
            format!("others can read the key log {shown} (mode {mode:04o})"),
            format!("chmod 600 {shown}"),
        ));
    }
    WARNED.call_once(|| {
        note(format_args!(
            "warning: --key-log writes the secrets of all sessions to {shown}: a reader of that \
             file can decrypt all their packets"
        ));
    });
    Ok(Arc::new(KeyLogFile(Mutex::new(Some(file)))))
}

/// The file; absent once a write has failed.
struct KeyLogFile(Mutex<Option<File>>);

impl KeyLog for KeyLogFile {
    fn on_session(&self, secrets: &SessionSecrets) {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = place.as_mut() else {
            return;
        };
        // One write a session: several processes may share the file.
        if let Err(error) = file.write_all(secrets.to_string().as_bytes()) {
            note(format_args!(
                "warning: the key log ends, because it cannot be written: {error}"
            ));
            *place = None;
        }
    }
}
