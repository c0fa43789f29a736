//! `trine doctor`: checks whether this machine is fit for trine, and names what would make it fitter.
//!
//! Every check of the machine only reads files below `/proc`, `/sys` and `/dev`, so a test can give it a separate directory
//! tree. With `--peers` it also asks a group.

mod args;
mod cpu;
mod keys;
mod machine;
mod memory;
mod network;
mod packets;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use self::args::DoctorArguments;

use trine_base::failure::Failure;
use trine_base::network::{KeyChoice, Network};
use trine_base::output::Output;
use trine_base::peers;
use trine_base::survey::{SURVEY_TIMEOUT, ask_everybody};
use trine_base::units::plural;

use self::machine::Machine;

/// Looks at the group, too.
pub(crate) fn run_with_group<N: Network>(
    network: &N,
    arguments: &DoctorArguments,
    key: &KeyChoice,
    output: Output,
) -> Result<(), Failure> {
    let addresses = peers::resolve(arguments.peers.as_deref().unwrap_or_default())?;
    let has_key = network.settings().file_towards(&addresses).is_some();
    let reports = ask_everybody(network, &addresses, SURVEY_TIMEOUT.into());
    let mut findings = keys::group(reports, has_key);
    findings.extend(packets::group(network, &addresses));
    tell(arguments, key, findings, output)
}

pub(crate) fn run(
    arguments: &DoctorArguments,
    key: &KeyChoice,
    output: Output,
) -> Result<(), Failure> {
    tell(arguments, key, Vec::new(), output)
}

fn tell(
    arguments: &DoctorArguments,
    key: &KeyChoice,
    of_group: Vec<Finding>,
    output: Output,
) -> Result<(), Failure> {
    let machine = Machine::at(Path::new("/"));
    let mut findings = examine(&machine);
    if let KeyChoice::File(path) = key {
        findings.push(keys::file(path));
    }
    findings.extend(of_group);
    if let Some(directory) = &arguments.data_dir {
        findings.push(memory::data_directory(directory)?);
        findings.push(memory::set_aside(directory)?);
    }
    output.document(&document(&findings));
    findings.iter().for_each(|finding| output.line(finding));
    let wrong = count(&findings, Severity::Wrong);
    let better = count(&findings, Severity::Better);
    output.line("");
    output.line(format!(
        "{}; {} would make it faster, steadier or safer.",
        plural(wrong, "obstacle"),
        plural(better, "change")
    ));
    if wrong > 0 {
        let message = format!("{} in the way", plural(wrong, "obstacle"));
        return Err(Failure::negative(message, "the commands above fix it"));
    }
    Ok(())
}

/// The findings on this machine, for the bundle.
pub(super) fn findings() -> Value {
    document(&examine(&Machine::at(Path::new("/"))))
}

fn document(findings: &[Finding]) -> Value {
    json!({ "findings": findings })
}

fn count(findings: &[Finding], verdict: Severity) -> u64 {
    let matching = findings.iter().filter(|finding| finding.verdict == verdict);
    matching.count() as u64
}

/// Runs every check, in the order in which they are shown.
fn examine(machine: &Machine) -> Vec<Finding> {
    vec![
        cpu::count(machine),
        cpu::governor(machine),
        cpu::clock_source(machine),
        cpu::idle_states(machine),
        network::interrupts(machine),
        network::socket_buffers(machine),
        memory::total(machine),
        memory::open_files(machine),
        memory::locked(machine),
        memory::huge_pages(machine),
        memory::swap(machine),
        network::rdma(machine),
        network::dpdk(machine),
    ]
}

/// The finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Severity,
    /// The observed fact.
    found: String,
    /// Why it matters; empty when all is well.
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
    /// The command that fixes it, to be run as root where necessary.
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
}

/// The severity of a finding.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Severity {
    /// As it should be.
    Good,
    /// trine runs, but could run better.
    Better,
    /// Something is missing that trine needs, or that the backend of this build needs.
    Wrong,
    /// Does not matter here: no such device, or not in this build.
    NotHere,
}

impl Finding {
    fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self::plain(check, Severity::Good, found)
    }

    fn not_here(check: &'static str, found: impl Into<String>) -> Self {
        Self::plain(check, Severity::NotHere, found)
    }

    fn plain(check: &'static str, verdict: Severity, found: impl Into<String>) -> Self {
        let (why, hint) = (String::new(), String::new());
        let found = found.into();
        Self {
            check,
            verdict,
            found,
            why,
            hint,
        }
    }

    fn better(check: &'static str, found: impl Into<String>, why: &str, hint: &str) -> Self {
        Self {
            why: why.to_owned(),
            hint: hint.to_owned(),
            ..Self::plain(check, Severity::Better, found)
        }
    }

    fn wrong(check: &'static str, found: impl Into<String>, why: &str, hint: &str) -> Self {
        let verdict = Severity::Wrong;
        Self {
            verdict,
            ..Self::better(check, found, why, hint)
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = match self.verdict {
            Severity::Good => "ok    ",
            Severity::Better => "better",
            Severity::Wrong => "WRONG ",
            Severity::NotHere => "-     ",
        };
        write!(f, "{mark}  {:<15} {}", self.check, self.found)?;
        if !self.why.is_empty() {
            write!(f, "\n{:24}{}", "", self.why)?;
        }
        if !self.hint.is_empty() {
            write!(f, "\n{:24}$ {}", "", self.hint)?;
        }
        Ok(())
    }
}

/// The path of a file in the form for a command.
fn shown(path: &str) -> PathBuf {
    Path::new("/").join(path)
}

#[cfg(test)]
mod tests;
