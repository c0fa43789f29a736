//! `trine user` adds, lists, removes and rotates users. The group keeps no key: a user's key is made here, from the
//! cluster key file, once the group has committed the change.

mod password;

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::call;
use trine_base::document::to_document;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::{Output, Table, insert_bytes, write_all};
use trine_base::peers;
use trine_client::{Answer, Mode};
use trine_keys::{ClusterKey, NewKeyFile, Role, UserName};
use trine_kvstore::config::USER_PREFIX_BYTES_MAX;
use trine_kvstore::{Command, Response, Rights, User};

use self::password::PasswordArguments;
use super::key::file_failure;

/// `trine user ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user and print the user's key, once.
    Add(AddArguments),
    /// Show the users and their rights.
    List(ListArguments),
    /// Remove a user and close its sessions.
    Remove(RemoveArguments),
    /// Create a new key for a user and print it, once. This closes the sessions of the old key and invalidates
    /// passwords that stand for it.
    Rotate(RotateArguments),
    /// Read a password from standard input and print its line for --resp-users. The password cannot be recovered from
    /// the line.
    Password(PasswordArguments),
}

/// A role that users can have.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum UserRole {
    /// Reads and writes all keys, and changes the group.
    Admin,
    /// Reads and writes values.
    Write,
    /// Reads values.
    Read,
}

#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    /// The user's name: 1 to 32 of a-z 0-9 . _ -
    #[arg(value_name = "NAME")]
    name: UserName,
    /// Rights of the user.
    #[arg(long, value_enum, value_name = "ROLE")]
    role: UserRole,
    /// Restrict the user to keys with this prefix. Not for admins.
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    prefix: Option<String>,
    /// Make the user a front: each of its requests may name another user. Such a request has only the rights that both
    /// of them have by role and prefix, and no administrative ones. So give the front the role of its most powerful
    /// user, and either no prefix or one that all its users share.
    #[arg(long)]
    front: bool,
    #[command(flatten)]
    key: KeyArguments,
    /// Where the group is.
    #[command(flatten)]
    client: ClientArguments,
}

/// The file from which a key is derived, and the file for the key.
#[derive(Debug, Args)]
pub(crate) struct KeyArguments {
    /// The group's key file, from which the user's key is derived [default: that of --key].
    #[arg(long, value_name = "FILE", env = "TRINE_CLUSTER_KEY")]
    cluster_key: Option<PathBuf>,
    /// Write the user's key to this new file, readable only by its owner, instead of printing it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Where the group is.
    #[command(flatten)]
    client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    /// The user's name.
    #[arg(value_name = "NAME")]
    name: UserName,
    /// Where the group is.
    #[command(flatten)]
    client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RotateArguments {
    /// The user's name.
    #[arg(value_name = "NAME")]
    name: UserName,
    #[command(flatten)]
    key: KeyArguments,
    /// Where the group is.
    #[command(flatten)]
    client: ClientArguments,
}

fn parse_prefix(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("omit --prefix for a user of all keys".to_owned()),
        1..=USER_PREFIX_BYTES_MAX => Ok(text.to_owned()),
        length => Err(format!(
            "it has {length} bytes, and a prefix has at most {USER_PREFIX_BYTES_MAX}"
        )),
    }
}

pub(crate) fn run<N: Network>(
    network: &N,
    command: &UserCommand,
    output: Output,
) -> Result<(), Failure> {
    match command {
        UserCommand::Add(arguments) => add(network, arguments, output),
        UserCommand::List(arguments) => list(network, arguments, output),
        UserCommand::Remove(arguments) => remove(network, arguments, output),
        UserCommand::Rotate(arguments) => rotate(network, arguments, output),
        UserCommand::Password(arguments) => password::run(network, arguments, output),
    }
}

fn add<N: Network>(network: &N, arguments: &AddArguments, output: Output) -> Result<(), Failure> {
    let role = match arguments.role {
        UserRole::Admin => Role::Admin,
        UserRole::Write => Role::Write,
        UserRole::Read => Role::Read,
    };
    let prefix = arguments.prefix.as_deref().unwrap_or_default();
    if role == Role::Admin && !prefix.is_empty() {
        return Err(Failure::usage(
            "an admin has no prefix, because its commands affect the whole group; nothing was \
             changed",
            "omit --prefix, or give the role write or read",
        ));
    }
    let prepared = arguments.key.prepare(network, &arguments.client)?;
    let name = arguments.name;
    let command = Command::AddUser {
        issuer: prepared.cluster.issuer(),
        name,
        rights: Rights {
            role,
            front: arguments.front,
            prefix: prefix.as_bytes(),
        },
    };
    let answer = call(
        network,
        &arguments.client,
        Mode::WriteAndClose,
        &command,
        output,
    )?;
    prepared.hand_out(UserChange::Added, of_user(name, &answer)?, output)
}

fn rotate<N: Network>(
    network: &N,
    arguments: &RotateArguments,
    output: Output,
) -> Result<(), Failure> {
    let prepared = arguments.key.prepare(network, &arguments.client)?;
    let name = arguments.name;
    let command = Command::RotateUser {
        issuer: prepared.cluster.issuer(),
        name,
    };
    let answer = call(
        network,
        &arguments.client,
        Mode::WriteAndClose,
        &command,
        output,
    )?;
    prepared.hand_out(UserChange::Rotated, of_user(name, &answer)?, output)
}

fn remove<N: Network>(
    network: &N,
    arguments: &RemoveArguments,
    output: Output,
) -> Result<(), Failure> {
    let name = arguments.name;
    let command = Command::RemoveUser { name };
    let answer = call(
        network,
        &arguments.client,
        Mode::WriteAndClose,
        &command,
        output,
    )?;
    let response = of_user(name, &answer)?;
    if response != Response::Done {
        return Err(unexpected(&response));
    }
    output.document(&json!({ "removed": name.as_str() }));
    output.line(format_args!(
        "user {name} is removed, and its keys are void"
    ));
    Ok(())
}

fn list<N: Network>(network: &N, arguments: &ListArguments, output: Output) -> Result<(), Failure> {
    let answer = call(
        network,
        &arguments.client,
        Mode::Read,
        &Command::ListUsers,
        output,
    )?;
    let users = match response_of(&answer)? {
        Response::Users(users) => users,
        other => return Err(unexpected(&other)),
    };
    let documents: Vec<Value> = users.iter().map(|user| document(&user)).collect();
    output.document(&json!({ "users": documents }));
    if users.is_empty() {
        output.line("no users: `trine user add NAME --role ROLE` adds one");
        return Ok(());
    }
    let mut table = Table::new(["user", "number", "generation", "role", "keys"]);
    for user in users.iter() {
        table.row([
            user.name.to_string(),
            user.number.to_string(),
            user.generation.to_string(),
            role_of(&user),
            keys_of(&user),
        ]);
    }
    output.line(table);
    if users.iter().any(|user| user.front) {
        output.line(
            "a front may name another user in a request, which then has only the rights that both \
             have by role and keys, and no administrative ones",
        );
    }
    Ok(())
}

/// The response to a change of a user, whose name a refusal begins with.
fn of_user(name: UserName, answer: &Answer) -> Result<Response<'_>, Failure> {
    response_of(answer).map_err(|failure| failure.while_doing(&format!("user {name}")))
}

/// What there has to be before the group changes anything.
struct Prepared {
    cluster: ClusterKey,
    /// The file for the user's key. It goes if the group refuses. Without one the key is printed.
    out: Option<NewKeyFile>,
}

impl KeyArguments {
    /// Reads the cluster key and makes the file for the user's key, so that a file that cannot be made stops the command
    /// before the group changes anything.
    fn prepare<N: Network>(
        &self,
        network: &N,
        client: &ClientArguments,
    ) -> Result<Prepared, Failure> {
        let used = match &self.cluster_key {
            Some(path) => Some(path.clone()),
            None => network.key_file(&peers::resolve(&client.group.peers)?),
        };
        let Some(path) = used else {
            return Err(Failure::usage(
                "a user's key is derived from the group's key file, and none is given; nothing was \
                 changed",
                "give it with --cluster-key FILE, or with --key FILE if the group uses it; `trine \
                 key new` creates one",
            ));
        };
        let cluster = ClusterKey::read(&path).map_err(file_failure)?;
        let out = self.out.as_deref().map(NewKeyFile::create).transpose();
        let out = out.map_err(|error| file_failure(error).because("nothing was changed"))?;
        Ok(Prepared { cluster, out })
    }
}

/// What the group has done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UserChange {
    Added,
    Rotated,
}

impl UserChange {
    /// What is true from now on, also if the user's key gets lost.
    fn done(self, name: UserName) -> String {
        match self {
            Self::Added => format!("the group has user {name} now"),
            Self::Rotated => format!("the old key of user {name} is void now"),
        }
    }

    /// The new key is lost. The group has changed all the same, so this is neither a mistake in the command line nor an
    /// outcome that nobody knows.
    fn without_key(self, name: UserName, why: &str) -> Failure {
        Failure::negative(
            format!("{}, but the new key is lost: {why}", self.done(name)),
            format!("`trine user rotate {name}` creates another"),
        )
    }
}

impl Prepared {
    /// Makes the key of a user that the group has just added or rotated, and prints or writes it.
    fn hand_out(
        self,
        change: UserChange,
        response: Response<'_>,
        output: Output,
    ) -> Result<(), Failure> {
        let user = match response {
            // Generations are counted from 1: nobody could read a key of generation 0.
            Response::User(user) if user.generation > 0 => user,
            other => return Err(unexpected(&other)),
        };
        let name = user.name;
        let key = self.cluster.user_key(name, user.generation);
        let mut shown = document(&user);
        let mut text = format!(
            "user {name}: number {}, generation {}, {}, {}\n",
            user.number,
            user.generation,
            role_of(&user),
            keys_of(&user)
        );
        let written = match self.out {
            Some(file) => {
                let path = file.path().display().to_string();
                file.write(&key)
                    .map_err(|error| change.without_key(name, &error.to_string()))?;
                text += &format!("wrote the key to {path}\n");
                shown["path"] = path.as_str().into();
                Some(path)
            }
            None => {
                let key = key.to_text();
                text += &format!("the key, which is not shown again:\n{}\n", key.as_str());
                shown["key"] = key.as_str().into();
                None
            }
        };
        if change == UserChange::Rotated {
            text += &format!(
                "the old key is void, and so is a password that stands for it, unless it was made \
                 with --generation any: `trine user password {name}` makes a new line\n"
            );
        }
        let printed = print(&shown, &text, output);
        printed.or_else(|error| match written {
            None => Err(change.without_key(name, &format!("it could not be printed: {error}"))),
            // As for any command, a reader that went away is no failure. The file has the key.
            Some(_) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            Some(path) => Err(Failure::negative(
                format!(
                    "{}, and the new key is in {path}, but this could not be printed: {error}",
                    change.done(name)
                ),
                "there is nothing more to do",
            )),
        })
    }
}

/// Prints the document for programs, or the text for people. Unlike all other output, a key that cannot be printed is the
/// caller's to report: it says what has become of the user.
fn print(document: &Value, text: &str, output: Output) -> io::Result<()> {
    match output.json {
        true => write_all(to_document(document).as_bytes()),
        false => write_all(text.as_bytes()),
    }
}

fn role_of(user: &User<'_>) -> String {
    match user.front {
        true => format!("{}, front", user.role),
        false => user.role.to_string(),
    }
}

fn keys_of(user: &User<'_>) -> String {
    match user.prefix {
        [] => "all keys".to_owned(),
        prefix => format!("keys {}*", prefix.escape_ascii()),
    }
}

fn document(user: &User<'_>) -> Value {
    let mut document = Map::new();
    document.insert("name".to_owned(), user.name.as_str().into());
    document.insert("number".to_owned(), user.number.into());
    document.insert("generation".to_owned(), user.generation.into());
    document.insert("role".to_owned(), user.role.word().into());
    document.insert("front".to_owned(), user.front.into());
    if !user.prefix.is_empty() {
        insert_bytes(&mut document, "prefix", user.prefix);
    }
    Value::Object(document)
}
