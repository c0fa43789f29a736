//! Files of a data directory that were set aside, and their removal. Neither needs the directory's lock: what is
//! set aside is read and renamed by no replica.

use std::path::Path;

use super::names::{RECOVERING, SET_ASIDE};

/// A file that `--rejoin` or a recovery has set aside. No command reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAside {
    /// Its name in the directory.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// Why files that were set aside cannot be removed.
#[derive(Debug, thiserror::Error)]
pub enum LeftoverError {
    /// A recovery was interrupted, and the next one begins with them.
    #[error(
        "a recovery of this directory was interrupted, and the next one needs the files that it has set aside"
    )]
    Recovering,
    /// The directory cannot be read or changed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Whether `set_aside` gives such names: an operator's own files are no leftovers.
fn is_set_aside(name: &str) -> bool {
    let stamped = name
        .strip_prefix(SET_ASIDE)
        .and_then(|rest| rest.split_once('-'));
    stamped.is_some_and(|(stamp, rest)| {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        stamp.len() == 16 && stamp.bytes().all(is_digit) && !rest.is_empty()
    })
}

/// The files in the directory that were set aside, by name.
///
/// # Errors
/// The directory cannot be read.
pub fn files_set_aside(path: &Path) -> std::io::Result<Vec<SetAside>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_set_aside(name)) else {
            continue;
        };
        // Another command may remove it meanwhile.
        match entry.metadata() {
            Ok(about) if about.is_file() => found.push(SetAside {
                name: name.to_owned(),
                bytes: about.len(),
            }),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Removes the files that were set aside, and says which. The replica of the directory may run meanwhile.
///
/// # Errors
/// A recovery still needs them, or the directory cannot be changed.
pub fn remove_set_aside(path: &Path) -> Result<Vec<SetAside>, LeftoverError> {
    // The list comes first. A recovery that begins behind it gives other names to what it sets aside.
    let found = files_set_aside(path)?;
    if path.join(RECOVERING).try_exists()? {
        return Err(LeftoverError::Recovering);
    }
    for SetAside { name, .. } in &found {
        match std::fs::remove_file(path.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_aside_goes_and_everything_else_stays() {
        let name = format!("trine-leftovers-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        let aside = "lost-00000000000000ab-identity";
        let stay = [
            "identity",
            "segment-0000000000000001.log",
            "lost-and-found",
            "lost-00000000000000ab-",
            "lost-00000000000000AB-identity",
        ];
        for file in stay.iter().chain([&aside]) {
            std::fs::write(path.join(file), [1, 2, 3]).unwrap();
        }
        let expected = [SetAside {
            name: aside.to_owned(),
            bytes: 3,
        }];
        assert_eq!(files_set_aside(&path).unwrap(), expected);
        std::fs::write(path.join(RECOVERING), []).unwrap();
        let refused = remove_set_aside(&path);
        assert!(matches!(refused, Err(LeftoverError::Recovering)));
        assert_eq!(files_set_aside(&path).unwrap(), expected);
        std::fs::remove_file(path.join(RECOVERING)).unwrap();
        assert_eq!(remove_set_aside(&path).unwrap(), expected);
        assert_eq!(files_set_aside(&path).unwrap(), []);
        assert!(stay.iter().all(|file| path.join(file).exists()));
        std::fs::remove_dir_all(&path).unwrap();
    }
}
