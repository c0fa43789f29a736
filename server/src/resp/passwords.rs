//! Which passwords do users have? The file of `--resp-users` has a verifier of each: a salted hash (argon2id), from which
//! nobody gets the password back.
//!
//! A line is `NAME:VERIFIER`, as `trine user password NAME` prints it. A line that begins with `#` is a comment.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params};
use trine_base::failure::Failure;
use trine_keys::UserName;

use crate::private::{self, Unread};

/// The fewest characters of a password.
const PASSWORD_CHARACTERS_MIN: usize = 12;
/// The most bytes of a password.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Bytes of a salt.
pub const SALT_BYTES: usize = 16;
/// The most work of a verifier: a larger number is a mistake, and would stop everybody's AUTH.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
const PASSES_MAX: u32 = 16;

const LINE: &str = "a line is NAME:VERIFIER; `trine user password NAME` prints it";

/// What tells whether a text is somebody's password.
#[derive(Clone)]
pub struct Verifier(Arc<str>);

impl Verifier {
    /// The verifier of a password. The salt is random.
    ///
    /// # Errors
    /// The password is too short or too long.
    pub fn of(password: &str, salt: &[u8; SALT_BYTES]) -> Result<Self, Failure> {
        let characters = password.chars().count();
        if characters < PASSWORD_CHARACTERS_MIN {
            return Err(Failure::usage(
                format!("the password has {characters} characters"),
                format!("a password has at least {PASSWORD_CHARACTERS_MIN} characters"),
            ));
        }
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(Failure::usage(
                format!("the password has {} bytes", password.len()),
                format!("a password has at most {PASSWORD_BYTES_MAX} bytes"),
            ));
        }
        let salt = SaltString::encode_b64(salt).expect("16 bytes are a salt");
        let hash = Argon2::default().hash_password(password.as_bytes(), &salt);
        let hash = hash.expect("password and salt have good lengths");
        Ok(Self(hash.to_string().into()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let hash = PasswordHash::new(text).map_err(|_| "there is no verifier behind the colon")?;
        if Algorithm::try_from(hash.algorithm) != Ok(Algorithm::Argon2id) {
            return Err("the verifier is not one of argon2id".to_owned());
        }
        let params = Params::try_from(&hash).map_err(|_| "the verifier's numbers are wrong")?;
        if params.m_cost() > MEMORY_KIB_MAX || params.t_cost() > PASSES_MAX {
            return Err("the verifier asks for more work than any should".to_owned());
        }
        if hash.salt.is_none() || hash.hash.is_none() {
            return Err("the verifier ends early".to_owned());
        }
        Ok(Self(text.into()))
    }

    /// Whether this is the password. It takes tens of milliseconds, and about 20 MB of memory.
    pub(super) fn accepts(&self, secret: &[u8]) -> bool {
        PasswordHash::new(&self.0)
            .and_then(|hash| Argon2::default().verify_password(secret, &hash))
            .is_ok()
    }
}

/// As it stands behind the name in the file.
impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Not a text that a log should have.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

/// The verifiers of a file.
#[derive(Debug)]
pub(super) struct Passwords {
    verifiers: HashMap<UserName, Verifier>,
    /// What the passwords of others are compared with, so that the time tells no names.
    another: Option<Verifier>,
}

impl Passwords {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// Others may read the file, or a line of it is none.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = private::read(path, "the file of passwords").map_err(|why| match why {
            Unread::Open(failure) => failure,
            Unread::Io(error) => Failure::usage(
                format!("--resp-users: cannot read {}: {error}", path.display()),
                LINE,
            ),
        })?;
        Self::parse(&text, path)
    }

    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, Failure> {
        let mut verifiers = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: String| {
                Failure::usage(format!("{}: line {number}: {what}", path.display()), LINE)
            };
            let (name, verifier) = user_of(line).map_err(wrong)?;
            if verifiers.insert(name, verifier).is_some() {
                return Err(wrong(format!("user {name} is on another line, too")));
            }
        }
        let another = verifiers.values().next().cloned();
        Ok(Self { verifiers, another })
    }

    /// What a user's password is compared with, and whether the user has one at all. `None` if nobody has.
    pub(super) fn verifier_of(&self, name: UserName) -> Option<(Verifier, bool)> {
        match self.verifiers.get(&name) {
            Some(verifier) => Some((verifier.clone(), true)),
            None => self.another.clone().map(|another| (another, false)),
        }
    }
}

/// The user of a line, or what is wrong with the line. No error repeats a verifier.
fn user_of(line: &str) -> Result<(UserName, Verifier), String> {
    let (name, verifier) = line.split_once(':').ok_or("it has no colon")?;
    if name == "default" {
        return Err("the user default has the password of --resp-password-file".to_owned());
    }
    let name = name
        .parse()
        .map_err(|error| format!("no user's name is before the colon: {error}"))?;
    Ok((name, Verifier::parse(verifier)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWORD: &str = "correct horse battery";

    fn verifier(salt: u8) -> Verifier {
        Verifier::of(PASSWORD, &[salt; SALT_BYTES]).expect("a good password")
    }

    fn parse(text: &str) -> Result<Passwords, Failure> {
        Passwords::parse(text, Path::new("the/file"))
    }

    #[test]
    fn a_verifier_takes_its_password_alone() {
        let first = verifier(1);
        assert!(
            first
                .to_string()
                .starts_with("$argon2id$v=19$m=19456,t=2,p=1$")
        );
        let read = Verifier::parse(&first.to_string()).expect("what was printed");
        assert!(read.accepts(PASSWORD.as_bytes()));
        for wrong in ["", "correct horse batterx", "correct horse battery "] {
            assert!(!read.accepts(wrong.as_bytes()), "{wrong}");
        }
        assert_ne!(
            first.to_string(),
            verifier(2).to_string(),
            "the salt counts"
        );
        for (password, part) in [
            ("eleven char", "11 characters"),
            (&"x".repeat(1025), "1025"),
        ] {
            let failure = Verifier::of(password, &[0; SALT_BYTES]).expect_err("a bad one");
            assert!(format!("{failure:?}").contains(part));
        }
    }

    #[test]
    fn a_bad_line_is_named_and_no_verifier_repeated() {
        let good = verifier(1).to_string();
        let text = format!("# users\n\nalice:{good}\n");
        let passwords = parse(&text).expect("a file");
        let alice = "alice".parse().expect("a name");
        assert!(passwords.verifier_of(alice).is_some_and(|(_, real)| real));
        let bob = "bob".parse().expect("a name");
        assert!(passwords.verifier_of(bob).is_some_and(|(_, real)| !real));
        assert!(parse("").expect("nobody").verifier_of(bob).is_none());
        let costly = good.replace("m=19456", "m=999999");
        let other = good.replace("argon2id", "argon2i");
        for (line, what) in [
            ("alice", "it has no colon"),
            (&format!("Alice:{good}"), "no user's name"),
            (&format!("default:{good}"), "--resp-password-file"),
            ("bob:secret", "there is no verifier"),
            ("bob:$argon2id$v=19$m=19456,t=2,p=1", "ends early"),
            (&format!("bob:{costly}"), "more work"),
            (&format!("bob:{other}"), "not one of argon2id"),
            (&format!("alice:{good}"), "on another line"),
        ] {
            let failure = parse(&format!("{text}{line}\n")).expect_err(line);
            let said = format!("{failure:?}");
            assert!(said.contains("the/file: line 4: "), "{said}");
            assert!(said.contains(what), "{said}");
            assert!(said.contains("trine user password"), "{said}");
            assert!(!said.contains("m=") && !said.contains("secret"), "{said}");
        }
    }
}
