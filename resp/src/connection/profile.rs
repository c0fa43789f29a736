//! Where a client is, and what it calls itself.
//!
//! Invariant: names are printable ASCII without spaces, of at most [`NAME_BYTES_MAX`] bytes, so a line that shows them stays
//! one line.

use trine_commands::errors::Refusal;

use crate::limits::NAME_BYTES_MAX;

/// The client of one connection.
#[derive(Debug)]
pub(super) struct Profile {
    id: u64,
    peer: String,
    since_unix_ms: i64,
    names: ClientNames,
}

/// What a client calls itself.
#[derive(Clone, Default, Debug)]
pub(super) struct ClientNames {
    client: Vec<u8>,
    /// The name and the version of its library.
    library: [Vec<u8>; 2],
}

impl Profile {
    /// A client at `peer` without a name.
    pub(super) fn new(id: u64, peer: String, unix_ms: i64) -> Self {
        Self {
            id,
            peer,
            since_unix_ms: unix_ms,
            names: ClientNames::default(),
        }
    }

    /// The number of the connection.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// The client's address.
    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// Seconds since the connection began.
    pub(super) fn age_seconds(&self, unix_ms: i64) -> i64 {
        (unix_ms - self.since_unix_ms).max(0) / 1_000
    }

    /// The name of CLIENT SETNAME; empty without one.
    pub(super) fn name(&self) -> &[u8] {
        &self.names.client
    }

    /// The name and the version of the library, if it has said them.
    pub(super) fn library(&self) -> &[Vec<u8>; 2] {
        &self.names.library
    }

    /// Takes a name.
    pub(super) fn set_name(&mut self, name: &[u8]) -> Result<(), Refusal> {
        self.names.client = checked("Client names", name)?;
        Ok(())
    }

    /// The client has no name any more.
    pub(super) fn clear_name(&mut self) {
        self.names.client.clear();
    }

    /// Takes an attribute that a library sends about itself when it connects.
    pub(super) fn set_library(&mut self, field: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let place = match field.to_ascii_lowercase().as_slice() {
            b"lib-name" => 0,
            b"lib-ver" => 1,
            other => {
                let other = String::from_utf8_lossy(other);
                return Err(format!("ERR Unrecognized option '{other}'"));
            }
        };
        self.names.library[place] = checked(&String::from_utf8_lossy(field), value)?;
        Ok(())
    }

    /// All names, for [`Profile::restore`].
    pub(super) fn names(&self) -> ClientNames {
        self.names.clone()
    }

    /// The names are again what they were.
    pub(super) fn restore(&mut self, names: ClientNames) {
        self.names = names;
    }
}

fn checked(what: &str, name: &[u8]) -> Result<Vec<u8>, Refusal> {
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Err(format!(
            "ERR {what} cannot contain spaces, newlines or special characters."
        ));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(format!(
            "ERR {what} cannot be longer than {NAME_BYTES_MAX} bytes."
        ));
    }
    Ok(name.to_vec())
}
