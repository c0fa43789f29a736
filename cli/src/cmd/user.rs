//! `trine user` adds, lists, removes and rotates users. The group keeps no key: a user's key is made here, from the
//! cluster key file, once the group has committed the change.

mod password;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::call;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::{Output, Table, insert_bytes};
use trine_base::peers;
use trine_client::{Answer, Mode};
use trine_keys::{ClusterKey, Existing, Role, UserKey, UserName};
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
    /// Remove a user, whose sessions end.
    Remove(RemoveArguments),
    /// Make a new key for a user and print it, once. Sessions of the old key end, and passwords that stand in for it are
    /// void.
    Rotate(RotateArguments),
    /// Read a password from standard input and print its line for --resp-users, from which nobody gets it back.
    Password(PasswordArguments),
}

/// A role that users can have.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum UserRole {
    /// Everything with keys and values, and changes of the group.
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
    /// What the user may do.
    #[arg(long, value_enum, value_name = "ROLE")]
    role: UserRole,
    /// The user may only touch keys that begin with this. Not for admins.
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    prefix: Option<String>,
    /// The user is a front, which says for which user each of its requests is.
    #[arg(long)]
    front: bool,
    #[command(flatten)]
    key: KeyArguments,
    /// Where the group is.
    #[command(flatten)]
    client: ClientArguments,
}

/// From which file a key is made, and where it goes.
#[derive(Debug, Args)]
pub(crate) struct KeyArguments {
    /// The group's key file, of which the user's key is made [default: that of --key].
    #[arg(long, value_name = "PATH", env = "TRINE_CLUSTER_KEY")]
    cluster_key: Option<PathBuf>,
    /// Write the user's key to this new file, which only its owner may read, and do not print it.
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
        0 => Err("leave --prefix out for a user of all keys".to_owned()),
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
            "an admin has no prefix: its commands are about the whole group; nothing was changed",
            "leave --prefix out, or give the role write or read",
        ));
    }
    let cluster = arguments.key.cluster(network, &arguments.client)?;
    let name = arguments.name;
    let command = Command::AddUser {
        issuer: cluster.issuer(),
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
    hand_out(of_user(name, &answer)?, &cluster, &arguments.key, output)
}

fn rotate<N: Network>(
    network: &N,
    arguments: &RotateArguments,
    output: Output,
) -> Result<(), Failure> {
    let cluster = arguments.key.cluster(network, &arguments.client)?;
    let name = arguments.name;
    let command = Command::RotateUser {
        issuer: cluster.issuer(),
        name,
    };
    let answer = call(
        network,
        &arguments.client,
        Mode::WriteAndClose,
        &command,
        output,
    )?;
    hand_out(of_user(name, &answer)?, &cluster, &arguments.key, output)?;
    output.line(format_args!(
        "the old key is void, and so is a password that stood in for it, unless it was made with --generation any: \
         `trine user password {name}` makes the line of another"
    ));
    Ok(())
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
    Ok(())
}

/// The response to a change of a user, whose name a refusal begins with.
fn of_user(name: UserName, answer: &Answer) -> Result<Response<'_>, Failure> {
    response_of(answer).map_err(|failure| failure.while_doing(&format!("user {name}")))
}

impl KeyArguments {
    /// The cluster key. What would stop the user's key from being written is found before the group changes anything.
    fn cluster<N: Network>(
        &self,
        network: &N,
        client: &ClientArguments,
    ) -> Result<ClusterKey, Failure> {
        if let Some(out) = self
            .out
            .as_deref()
            .filter(|out| out.symlink_metadata().is_ok())
        {
            let path = out.to_owned();
            let failure = file_failure(trine_keys::FileError::Exists { path });
            return Err(failure.because("nothing was changed"));
        }
        let used = match &self.cluster_key {
            Some(path) => Some(path.clone()),
            None => network.key_file(&peers::resolve(&client.group.peers)?),
        };
        let Some(path) = used else {
            return Err(Failure::usage(
                "a user's key is made of the group's key file, and none is given; nothing was changed",
                "name it with --cluster-key PATH, or with --key PATH if the group uses it; `trine key new` makes one",
            ));
        };
        ClusterKey::read(&path).map_err(file_failure)
    }
}

/// Makes the key of a user that the group has just added or rotated, and prints or writes it.
fn hand_out(
    response: Response<'_>,
    cluster: &ClusterKey,
    arguments: &KeyArguments,
    output: Output,
) -> Result<(), Failure> {
    let user = match response {
        Response::User(user) => user,
        other => return Err(unexpected(&other)),
    };
    let key = cluster.user_key(user.name, user.generation);
    let mut shown = document(&user);
    match &arguments.out {
        Some(path) => {
            write(&key, path, &user)?;
            shown["path"] = path.display().to_string().into();
        }
        None => shown["key"] = key.to_text().as_str().into(),
    }
    output.document(&shown);
    output.line(format_args!(
        "user {}: number {}, generation {}, {}, {}",
        user.name,
        user.number,
        user.generation,
        role_of(&user),
        keys_of(&user)
    ));
    match &arguments.out {
        Some(path) => output.line(format_args!("wrote the key to {}", path.display())),
        None => {
            output.line("the key, which is not shown again:");
            output.line(key.to_text().as_str());
        }
    }
    Ok(())
}

/// The group has changed already, so a failure says how to get a key nevertheless.
fn write(key: &UserKey, path: &Path, user: &User<'_>) -> Result<(), Failure> {
    key.write(path, Existing::Keep).map_err(|error| {
        Failure::usage(
            format!("the group has user {}, but {error}", user.name),
            format!("`trine user rotate {}` makes another key", user.name),
        )
    })
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
