//! `trine key` makes cluster key files, changes them, and shows which keys a file holds. It shows no secret.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Value, json};
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_keys::{ClusterKey, ClusterKeyError, Existing, FileError, Rotation, UserKey};

pub(crate) mod rotate;

/// `trine key ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Those that touch only files.
    #[command(flatten)]
    Files(FileCommand),
    /// Take the next step of a change of the member root: change the key file once all members have taken the previous
    /// step.
    Rotate(rotate::RotateArguments),
}

/// The commands that touch only files.
#[derive(Debug, Subcommand)]
pub(crate) enum FileCommand {
    /// Create the key of a new group. Its holders are administrators of the group.
    New(NewArguments),
    /// Show which keys a file holds, without secrets.
    Show(ShowArguments),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("new").args(["file", "out"])))]
pub(crate) struct NewArguments {
    /// Write the key to this new file, readable only by its owner; without FILE, print the key.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Former name of FILE.
    #[arg(long, hide = true, value_name = "FILE", conflicts_with = "file")]
    out: Option<PathBuf>,
    /// If the key file exists, leave it unchanged and succeed.
    #[arg(long, requires = "new")]
    if_missing: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// A group's key file, or a user's.
    #[arg(value_name = "FILE")]
    path: PathBuf,
}

pub(crate) fn run(command: &FileCommand, output: Output) -> Result<(), Failure> {
    match command {
        FileCommand::New(arguments) => new(arguments, output),
        FileCommand::Show(ShowArguments { path }) => show(path, output),
    }
}

fn new(arguments: &NewArguments, output: Output) -> Result<(), Failure> {
    let out = arguments.file.as_deref().or(arguments.out.as_deref());
    // What is there must be usable, or those who need it would fail later, and elsewhere.
    if let Some(path) = out.filter(|path| arguments.if_missing && path.exists()) {
        return show(path, output);
    }
    let key = ClusterKey::draw().map_err(|error| Failure::usage(error.to_string(), ""))?;
    let mut document = ids_of(&key);
    match out {
        Some(path) => {
            key.write(path, Existing::Keep).map_err(file_failure)?;
            document["path"] = path.display().to_string().into();
            output.line(format_args!(
                "wrote {}: group {}, {}",
                path.display(),
                key.group(),
                key.member().0
            ));
        }
        None => {
            document["text"] = key.to_text().as_str().into();
            if !output.json {
                output.raw(key.to_text().as_bytes());
            }
        }
    }
    output.document(&document);
    Ok(())
}

fn show(path: &Path, output: Output) -> Result<(), Failure> {
    let cluster = match ClusterKey::read(path) {
        Err(FileError::Cluster {
            error: ClusterKeyError::UserKey { .. },
            ..
        }) => return show_user(path, output),
        read => read.map_err(file_failure)?,
    };
    output.document(&ids_of(&cluster));
    output.line("cluster key file");
    output.line(format_args!("group      {}", cluster.group()));
    output.line(format_args!("members    {}", cluster.member().0));
    if let Some((id, _)) = cluster.accepted_member() {
        output.line(format_args!("accepted   {id}"));
    }
    output.line(format_args!("admins     {}", cluster.admin().0));
    output.line(format_args!("user root  {}", cluster.issuer().root));
    if let Some(next) = next_step(cluster.rotation()) {
        output.line(next);
    }
    Ok(())
}

/// Where a change of the member root stands, if one is under way.
fn next_step(rotation: Rotation) -> Option<&'static str> {
    match rotation {
        Rotation::Settled => None,
        Rotation::Begun => Some(
            "the member root is being changed, step 1 of 3: the second root is the new one, and is \
             not used yet; `trine key rotate --switch` comes next",
        ),
        Rotation::Switched => Some(
            "the member root is being changed, step 2 of 3: the second root is the old one; \
             `trine key rotate --finish` comes next",
        ),
    }
}

fn show_user(path: &Path, output: Output) -> Result<(), Failure> {
    let key = UserKey::read(path).map_err(file_failure)?;
    output.document(&json!({
        "kind": "user",
        "name": key.name().as_str(),
        "generation": key.generation(),
        "user_root": key.root().to_string(),
    }));
    output.line("user key file");
    output.line(format_args!("key        {}", key.key_id()));
    output.line(format_args!("user root  {}", key.root()));
    Ok(())
}

fn ids_of(key: &ClusterKey) -> Value {
    json!({
        "kind": "cluster",
        "group": key.group().to_string(),
        "member": key.member().0.to_string(),
        "accepted_member": key.accepted_member().map(|(id, _)| id.to_string()),
        "rotation": key.rotation().to_string(),
        "admin": key.admin().0.to_string(),
        "user_root": key.issuer().root.to_string(),
    })
}

/// A key file that cannot be used: nothing was done.
pub(crate) fn file_failure(error: FileError) -> Failure {
    Failure::usage(error.to_string(), "")
}
