//! `trine key rotate` takes the next step of a change of the member root: it changes the key file, and says what to do
//! with it. It takes no step before all members have taken the one before.

use std::path::{Path, PathBuf};

use clap::Args;
use trine_base::arguments::GroupArguments;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::peers;
use trine_base::survey::{SURVEY_TIMEOUT, ask_everybody, informant};
use trine_client::Report;
use trine_keys::{ClusterKey, LockedKeyFile, Rotation};

use super::{file_failure, ids_of};
use crate::cmd::status::nobody;

#[derive(Debug, Args)]
pub(crate) struct RotateArguments {
    /// The group's key file, which the command changes.
    #[arg(value_name = "FILE")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    step: StepArguments,
    /// Do not check that all members have taken the previous step. Members that have not are cut off.
    #[arg(long)]
    force: bool,
    /// Where the group is.
    #[command(flatten)]
    group: GroupArguments,
}

/// The step to take; by default the next one.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct StepArguments {
    /// First step: create a new member root, and accept both roots.
    #[arg(long)]
    begin: bool,
    /// Second step: use the new member root, and still accept the old one.
    #[arg(long)]
    switch: bool,
    /// Last step: forget the old member root.
    #[arg(long)]
    finish: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RotationStep {
    Begin,
    Switch,
    Finish,
}

impl StepArguments {
    /// The step that is meant for a file that stands here.
    fn at(&self, rotation: Rotation) -> RotationStep {
        match (self.begin, self.switch, self.finish, rotation) {
            (true, ..) | (false, false, false, Rotation::Settled) => RotationStep::Begin,
            (_, true, ..) | (false, false, false, Rotation::Begun) => RotationStep::Switch,
            (_, _, true, _) | (false, false, false, Rotation::Switched) => RotationStep::Finish,
        }
    }
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &RotateArguments,
    output: Output,
) -> Result<(), Failure> {
    let path = &arguments.path;
    // Under the lock, so that two changes at once do not both begin with this file.
    let file = LockedKeyFile::lock(path).map_err(file_failure)?;
    let present = file.key().clone();
    let step = arguments.step.at(present.rotation());
    let changed = taken(step, present.clone())?;
    if !arguments.force {
        let addresses = peers::resolve(&arguments.group.peers)?;
        let limit = arguments.group.timeout.min(SURVEY_TIMEOUT).into();
        require_all(&ask_everybody(network, &addresses, limit)?, &present)?;
    }
    file.replace(&changed).map_err(file_failure)?;
    let mut document = ids_of(&changed);
    document["path"] = path.display().to_string().into();
    document["replaced_step"] = present.rotation().to_string().into();
    output.document(&document);
    tell(step, &changed, path, output);
    Ok(())
}

/// The key after a step, if it is this one's turn.
fn taken(step: RotationStep, key: ClusterKey) -> Result<ClusterKey, Failure> {
    let taken = match step {
        RotationStep::Begin => {
            let root =
                ClusterKey::draw_root().map_err(|error| Failure::usage(error.to_string(), ""))?;
            key.accepting(*root)
        }
        RotationStep::Switch => key.switched(),
        RotationStep::Finish => key.settled(),
    };
    taken.map_err(|error| {
        Failure::usage(
            format!("this step is out of order: {error}"),
            "the file was not changed; `trine key show FILE` shows its step",
        )
    })
}

/// A member that has not got the file as it is now could not reach those that are two steps ahead.
fn require_all(reports: &[Report], present: &ClusterKey) -> Result<(), Failure> {
    let Some(status) = informant(reports) else {
        return Err(nobody(reports).because(
            "nothing was changed: the members could not be asked which member root they use",
        ));
    };
    let of_address = |address| {
        reports.iter().find(|report| {
            report
                .status()
                .is_some_and(|status| status.address == address)
        })
    };
    let behind: Vec<String> = status
        .members
        .iter()
        .filter_map(|member| {
            let why = behind(of_address(member.address), present)?;
            Some(format!(
                "replica {} ({}): {why}",
                member.node_id, member.address
            ))
        })
        .collect();
    if behind.is_empty() {
        return Ok(());
    }
    let root = present.member_root();
    Err(Failure::negative(
        format!(
            "not all members have loaded the current key file (step {}, member root {root}); \
             nothing was changed\n  {}",
            present.rotation(),
            behind.join("\n  ")
        ),
        "copy the file to their hosts and send SIGHUP to these replicas (their logs report the \
         result), or under trine@.service restart them, then try again; --force skips this check",
    ))
}

/// Why a member counts as behind; nothing if it has taken the file.
fn behind(report: Option<&Report>, present: &ClusterKey) -> Option<String> {
    let Some(Ok(node)) = report.map(|report| &report.answer) else {
        return Some("does not answer".to_owned());
    };
    let Some(roots) = &node.member_roots else {
        return Some("has no key".to_owned());
    };
    let accepted = present.accepted_root().map(|root| root.to_string());
    let is_same = roots.used == present.member_root().to_string() && roots.accepted == accepted;
    if is_same {
        return None;
    }
    let takes = roots.accepted.as_deref().unwrap_or("no other");
    let why = roots.not_taken.as_deref();
    let because = why.map_or(String::new(), |why| format!("; it says: {why}"));
    Some(format!(
        "uses member root {}, accepts {takes}{because}",
        roots.used
    ))
}

/// Says what was done, and what comes next.
fn tell(step: RotationStep, key: &ClusterKey, path: &Path, output: Output) {
    let (path, used) = (path.display(), key.member_root());
    let second = key.accepted_root().map(|root| root.to_string());
    let second = second.as_deref().unwrap_or("none");
    let (done, next) = match step {
        RotationStep::Begin => (
            format!(
                "step 1 of 3: {path} uses member root {used} and accepts the new one, {second}"
            ),
            format!("trine key rotate --switch {path}"),
        ),
        RotationStep::Switch => (
            format!(
                "step 2 of 3: {path} uses the new member root {used} and still accepts {second}"
            ),
            format!("trine key rotate --finish {path}"),
        ),
        RotationStep::Finish => (
            format!("step 3 of 3: {path} contains only the new member root, {used}"),
            String::new(),
        ),
    };
    output.line(done);
    output.line("next:");
    output
        .line("  1. copy the file to each replica's host, readable only by its owner (mode 0600)");
    output.line("  2. send SIGHUP to each replica, one after the other: kill -HUP PID");
    output.line(
        "     under the unit trine@.service, which reads the file only when it starts: systemctl restart trine@N, and \
         wait each time until `trine status` tolerates 1 more failure",
    );
    match next.is_empty() {
        false => output.line(format_args!("  3. {next}")),
        true => {
            output.line("  3. remove all old copies of the file: members no longer accept them")
        }
    }
}
