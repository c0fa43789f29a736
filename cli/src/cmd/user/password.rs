//! `trine user password` makes the line of a user's password for `--resp-users`. It asks no group.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::json;
use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::output::Output;
use trine_keys::UserName;
use trine_server::resp::{PASSWORD_BYTES_MAX, SALT_BYTES, Verifier};
use zeroize::Zeroizing;

#[derive(Debug, Args)]
pub(crate) struct PasswordArguments {
    /// The user's name.
    #[arg(value_name = "NAME")]
    name: UserName,
}

pub(super) fn run(arguments: &PasswordArguments, output: Output) -> Result<(), Failure> {
    let name = arguments.name;
    if name.as_str() == "default" {
        return Err(Failure::usage(
            "the user default is nobody of the group",
            "its password is the first line of --resp-password-file FILE",
        ));
    }
    let password = match io::stdin().is_terminal() {
        true => typed()?,
        false => piped()?,
    };
    let verifier = Verifier::of(&password, &salt()?)?;
    let line = format!("{name}:{verifier}");
    output.document(&json!({ "name": name.as_str(), "line": line }));
    output.line(line);
    Ok(())
}

fn salt() -> Result<[u8; SALT_BYTES], Failure> {
    let mut salt = [0; SALT_BYTES];
    for part in salt.chunks_exact_mut(size_of::<u64>()) {
        part.copy_from_slice(&random_seed()?.to_ne_bytes());
    }
    Ok(salt)
}

/// The one line of standard input.
fn piped() -> Result<Zeroizing<String>, Failure> {
    // One that is too long is read far enough to be refused.
    let limit = PASSWORD_BYTES_MAX as u64 + 3;
    let mut text = Zeroizing::new(String::new());
    io::stdin()
        .lock()
        .take(limit)
        .read_to_string(&mut text)
        .map_err(unread)?;
    one_line(&text)
}

/// The same line, typed twice.
fn typed() -> Result<Zeroizing<String>, Failure> {
    let _hidden = Hidden::begin()?;
    let password = prompted("password, which is not shown: ")?;
    let again = prompted("the same again: ")?;
    if password != again {
        return Err(Failure::usage(
            "the two passwords are not the same; nothing was made",
            "run the command again",
        ));
    }
    Ok(password)
}

fn prompted(prompt: &str) -> Result<Zeroizing<String>, Failure> {
    let mut text = Zeroizing::new(String::with_capacity(PASSWORD_BYTES_MAX));
    let say = |text: &str| io::stderr().write_all(text.as_bytes()).map_err(unread);
    say(prompt)?;
    io::stdin().lock().read_line(&mut text).map_err(unread)?;
    // The terminal does not show the end of the line either.
    say("\n")?;
    one_line(&text)
}

fn one_line(text: &str) -> Result<Zeroizing<String>, Failure> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.contains(['\n', '\r', '\0']) {
        return Err(Failure::usage(
            "the password has more than one line",
            "give one line of text",
        ));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

fn unread(error: io::Error) -> Failure {
    Failure::usage(
        format!("the password could not be read: {error}"),
        "give one line of text on standard input",
    )
}

/// A terminal that does not show what is typed, until this is dropped or the process is interrupted.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> Result<Self, Failure> {
        let before = tcgetattr(io::stdin()).map_err(|error| unread(error.into()))?;
        interrupt::start()?;
        let restored = before.clone();
        interrupt::on_interrupt(move || {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &restored);
            std::process::exit(i32::from(Failure::interrupted().exit_status()));
        });
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)
            .map_err(|error| unread(error.into()))?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
