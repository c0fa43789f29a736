//! Passwords of users. The file of `--resp-users` has a verifier of each: a salted hash (argon2id), from which
//! nobody gets the password back.
//!
//! A line is `NAME:GENERATION:VERIFIER`, as `trine user password NAME` prints it. The password stands in for the user's key of
//! this generation, and is void with it. One without a generation, `NAME:VERIFIER`, counts whatever the key is. A line that
//! begins with `#` is a comment.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
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

const LINE: &str = "a line is NAME:GENERATION:VERIFIER; `trine user password NAME` prints it";

/// Tells whether a text is the password of a user.
#[derive(Clone, PartialEq, Eq)]
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
        let hash = PasswordHash::new(text).map_err(|_| "there is no verifier after the colon")?;
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

    /// Whether this is the password. It takes tens of milliseconds, and about 20 MB of memory. An empty one never is, also
    /// where another program has made the verifier of one.
    pub(super) fn accepts(&self, secret: &[u8]) -> bool {
        let fits = PasswordHash::new(&self.0)
            .and_then(|hash| Argon2::default().verify_password(secret, &hash))
            .is_ok();
        fits && std::str::from_utf8(secret).map_or(!secret.is_empty(), private::is_password)
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

/// The key that a user's password stands in for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Generation {
    /// That of this generation alone.
    Only(u32),
    /// Whichever the user has.
    Any,
}

impl Generation {
    const ANY: &str = "any";
}

impl FromStr for Generation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == Self::ANY {
            return Ok(Self::Any);
        }
        let number = text.parse().ok().filter(|number| *number > 0);
        number.map(Self::Only).ok_or_else(|| {
            format!("{text:?} is neither a generation, which counts from 1, nor any")
        })
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(number) => write!(f, "{number}"),
            Self::Any => f.write_str(Self::ANY),
        }
    }
}

/// A user's password.
#[derive(Clone, Debug)]
pub struct Password {
    /// The key that it stands in for.
    pub generation: Generation,
    /// What tells it.
    pub verifier: Verifier,
}

impl Password {
    /// The line of this user in the file.
    #[must_use]
    pub fn line_of(&self, name: UserName) -> String {
        let Self {
            generation,
            verifier,
        } = self;
        match *generation {
            Generation::Any => format!("{name}:{verifier}"),
            Generation::Only(number) => format!("{name}:{number}:{verifier}"),
        }
    }
}

/// The passwords of a file.
#[derive(Debug)]
pub(super) struct Passwords {
    path: PathBuf,
    of: HashMap<UserName, Password>,
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

    /// What the same file says now.
    ///
    /// # Errors
    /// As [`Passwords::read`].
    pub(super) fn read_again(&self) -> Result<Self, Failure> {
        Self::read(&self.path)
    }

    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, Failure> {
        let mut of = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: String| {
                Failure::usage(format!("{}: line {number}: {what}", path.display()), LINE)
            };
            let (name, password) = user_of(line).map_err(wrong)?;
            if of.insert(name, password).is_some() {
                return Err(wrong(format!("user {name} is on another line, too")));
            }
        }
        let another = of.values().next().map(|first| first.verifier.clone());
        Ok(Self {
            path: path.to_owned(),
            of,
            another,
        })
    }

    /// How many users have one.
    pub(super) fn count(&self) -> usize {
        self.of.len()
    }

    /// What a user's password is compared with, and the password if the user has one at all. `None` if nobody has.
    pub(super) fn verifier_of(&self, name: UserName) -> Option<(Verifier, Option<&Password>)> {
        match self.of.get(&name) {
            Some(password) => Some((password.verifier.clone(), Some(password))),
            None => self.another.clone().map(|another| (another, None)),
        }
    }

    /// Whether this is what the user's password is compared with.
    pub(super) fn has(&self, name: UserName, verifier: &Verifier) -> bool {
        self.of
            .get(&name)
            .is_some_and(|password| password.verifier == *verifier)
    }
}

/// The user of a line, or what is wrong with the line. No error repeats a verifier.
fn user_of(line: &str) -> Result<(UserName, Password), String> {
    let (name, rest) = line.split_once(':').ok_or("it has no colon")?;
    if name == "default" {
        return Err("the user default has the password of --resp-password-file".to_owned());
    }
    let name = name
        .parse()
        .map_err(|error| format!("no user's name is before the colon: {error}"))?;
    let (generation, verifier) = match rest.split_once(':') {
        // Another text may be the password itself.
        Some((generation, verifier)) => {
            let number = generation.parse().ok().filter(|number| *number > 0);
            let number = number.ok_or("no generation is between the colons")?;
            (Generation::Only(number), verifier)
        }
        None => (Generation::Any, rest),
    };
    let verifier = Verifier::parse(verifier)?;
    Ok((
        name,
        Password {
            generation,
            verifier,
        },
    ))
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

    /// `trine user password` makes none, but the file is a text that other programs can write.
    #[test]
    fn a_verifier_of_an_empty_password_takes_nobody() {
        let salt = SaltString::encode_b64(&[7; SALT_BYTES]).expect("a salt");
        for secret in ["", "   "] {
            let hash = Argon2::default().hash_password(secret.as_bytes(), &salt);
            let line = hash.expect("a hash").to_string();
            let verifier = Verifier::parse(&line).expect("a good verifier");
            assert!(!verifier.accepts(secret.as_bytes()), "{secret:?}");
        }
    }

    #[test]
    fn a_bad_line_is_named_and_no_verifier_repeated() {
        let good = verifier(1).to_string();
        let text = format!("# users\n\nalice:{good}\n");
        let passwords = parse(&text).expect("a file");
        let alice = "alice".parse().expect("a name");
        let of = |passwords: &Passwords, name| {
            let (_, password) = passwords.verifier_of(name)?;
            password.map(|password| password.generation)
        };
        assert_eq!(of(&passwords, alice), Some(Generation::Any));
        let bob = "bob".parse().expect("a name");
        assert!(passwords.verifier_of(bob).is_some());
        assert_eq!(of(&passwords, bob), None);
        for (between, generation) in [("7:", Generation::Only(7)), ("", Generation::Any)] {
            let line = format!("bob:{between}{good}");
            let passwords = parse(&line).expect("a file");
            assert_eq!(of(&passwords, bob), Some(generation));
            let (verifier, _) = passwords.verifier_of(bob).expect("bob's");
            let password = Password {
                generation,
                verifier,
            };
            assert_eq!(password.line_of(bob), line);
        }
        assert!(parse("").expect("nobody").verifier_of(bob).is_none());
        let costly = good.replace("m=19456", "m=999999");
        let other = good.replace("argon2id", "argon2i");
        for (line, what) in [
            ("alice", "it has no colon"),
            (&format!("Alice:{good}"), "no user's name"),
            (&format!("default:{good}"), "--resp-password-file"),
            ("bob:secret", "there is no verifier"),
            (&format!("bob:0:{good}"), "no generation is between"),
            (&format!("bob:secret:{good}"), "no generation is between"),
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
