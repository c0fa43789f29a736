//! The list of a server's users and their rights.
//!
//! A line is `NAME ROLE [GENERATION]`. The role is read or write. The generation is that of the one key which counts, 1
//! if absent. A `#` begins a comment.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use trine_base::failure::Failure;
use trine_keys::{Role, UserName};

use super::denied::Denied;

const LINE: &str = "a line is NAME ROLE [GENERATION], for example `alice write`, with the role read or write, and # begins a comment";

/// What users may do.
#[derive(Debug, Default)]
pub(super) struct Users {
    listed: HashMap<UserName, Right>,
}

/// What one user may do, with the key of which generation.
#[derive(Copy, Clone, Debug)]
struct Right {
    role: Role,
    generation: u32,
}

impl Users {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, or a line of it is none.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::usage(
                format!("the list of users {}: {error}", path.display()),
                "--users FILE names a text file",
            )
        })?;
        Self::parse(&text, path)
    }

    /// The list in `text`, which is from the file at `path`.
    ///
    /// # Errors
    /// A line is none, or names a user that another one names.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, Failure> {
        let mut listed = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |what: String| {
                Failure::usage(format!("{}: line {number}: {what}", path.display()), LINE)
            };
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            let (name, right) = user_of(&words).map_err(wrong)?;
            if listed.insert(name, right).is_some() {
                return Err(wrong(format!("user {name} is on another line, too")));
            }
        }
        Ok(Self { listed })
    }

    /// How many users it names.
    pub(super) fn count(&self) -> u64 {
        self.listed.len() as u64
    }

    /// Whether a user with this key has a role.
    pub(super) fn check(
        &self,
        name: UserName,
        generation: u32,
        needed: Role,
    ) -> Result<(), Denied> {
        match self.listed.get(&name) {
            None => Err(Denied::unlisted(name, needed)),
            Some(right) if right.generation != generation => {
                Err(Denied::other_key(name, right.generation, needed))
            }
            Some(right) if right.role < needed => Err(Denied::role(name, right.role, needed)),
            Some(_) => Ok(()),
        }
    }
}

/// The user that a line names, or what is wrong with the line.
fn user_of(words: &[&str]) -> Result<(UserName, Right), String> {
    let (name, role, generation) = match *words {
        [name, role] => (name, role, "1"),
        [name, role, generation] => (name, role, generation),
        [name] => return Err(format!("{name:?} has no role")),
        _ => return Err(format!("it has {} words", words.len())),
    };
    let name = name
        .parse()
        .map_err(|error| format!("{name:?} is not a user: {error}"))?;
    let role = match role {
        "read" => Role::Read,
        "write" => Role::Write,
        other => return Err(format!("{other:?} is not a role that users have here")),
    };
    let generation = generation.parse().ok().filter(|number| *number > 0);
    let generation = generation.ok_or("the generation is not a positive number")?;
    Ok((name, Right { role, generation }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Users, Failure> {
        Users::parse(text, Path::new("the/users"))
    }

    #[test]
    fn lines_name_users_and_comments_nobody() {
        let text = "# who\n\n  alice\twrite # the application\r\nbob read 7\n#carol write\n";
        let users = parse(text).expect("a list");
        let right = |name: &str| {
            let right = users.listed.get(&name.parse::<UserName>().expect("a name"));
            right.map(|right| (right.role, right.generation))
        };
        assert_eq!(right("alice"), Some((Role::Write, 1)));
        assert_eq!(right("bob"), Some((Role::Read, 7)));
        assert_eq!(users.listed.len(), 2);
        assert!(parse("").expect("an empty list").listed.is_empty());
    }

    #[test]
    fn a_bad_line_is_named_with_what_is_right() {
        for (line, what) in [
            ("alice", "\"alice\" has no role"),
            (
                "alice admin",
                "\"admin\" is not a role that users have here",
            ),
            ("alice member", "\"member\" is not a role"),
            ("alice Write", "\"Write\" is not a role"),
            ("Alice write", "\"Alice\" is not a user: character 1"),
            ("alice write 0", "the generation is not a positive number"),
            (
                "alice write 4294967296",
                "the generation is not a positive number",
            ),
            ("alice write one", "the generation is not a positive number"),
            ("alice write 1 2", "it has 4 words"),
            ("bob write", "user bob is on another line, too"),
        ] {
            let failure = parse(&format!("bob read\n\n{line}\n")).expect_err(line);
            let said = format!("{failure:?}");
            assert!(said.contains("the/users: line 3: "), "{said}");
            let what = format!("{what:?}");
            assert!(said.contains(what.trim_matches('"')), "{said}");
            assert!(said.contains("NAME ROLE [GENERATION]"), "{said}");
            assert_eq!(failure.exit_status(), 2);
        }
    }
}
