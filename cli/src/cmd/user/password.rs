//! `trine user password` makes the line of a user's password for `--resp-users`. It asks the group which key of the user
//! counts, and does not tell it the password.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::json;
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::call;
use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_client::Mode;
use trine_keys::UserName;
use trine_kvstore::{Command, Response};
use trine_server::resp::{Generation, PASSWORD_BYTES_MAX, Password, SALT_BYTES, Verifier};
use zeroize::Zeroizing;

#[derive(Debug, Args)]
pub(crate) struct PasswordArguments {
    /// The user's name.
    #[arg(value_name = "NAME")]
    name: UserName,
    /// Generation of the user's key that the password stands for; by default the group is asked. `trine user rotate`
    /// invalidates the password. With `any`, it is valid until its line is removed.
    #[arg(long, value_name = "N|any")]
    generation: Option<Generation>,
    /// Where the group is.
    #[command(flatten)]
    client: ClientArguments,
}

pub(super) fn run<N: Network>(
    network: &N,
    arguments: &PasswordArguments,
    output: Output,
) -> Result<(), Failure> {
    let name = arguments.name;
    if name.as_str() == "default" {
        return Err(Failure::usage(
            "the user default is not a user of the group",
            "its password is the first line of --resp-password-file FILE",
        ));
    }
    let generation = match arguments.generation {
        Some(generation) => generation,
        None => Generation::Only(present(network, arguments, output)?),
    };
    let password = match io::stdin().is_terminal() {
        true => typed()?,
        false => piped()?,
    };
    let made = Password {
        generation,
        verifier: Verifier::of(&password, &salt()?)?,
    };
    let line = made.line_of(name);
    let shown =
        json!({ "name": name.as_str(), "generation": generation.to_string(), "line": line });
    output.document(&shown);
    output.line(line);
    Ok(())
}

/// The generation of the user's key, by the group.
fn present<N: Network>(
    network: &N,
    arguments: &PasswordArguments,
    output: Output,
) -> Result<u32, Failure> {
    let PasswordArguments { name, client, .. } = arguments;
    let answer = call(network, client, Mode::Read, &Command::ListUsers, output)
        .map_err(|failure| failure.because("the group could not be asked for the user's key"))?;
    let users = match response_of(&answer)? {
        Response::Users(users) => users,
        other => return Err(unexpected(&other)),
    };
    let user = users.iter().find(|user| user.name == *name);
    user.map(|user| user.generation).ok_or_else(|| {
        Failure::negative(
            format!("the group has no user {name}"),
            "`trine user add NAME --role ROLE` adds one; with --generation any no group is asked",
        )
    })
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
