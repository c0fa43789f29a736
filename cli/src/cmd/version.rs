//! `trine version` says which program this is and what it understands, for programs too.

use clap::Args;
use serde_json::json;
use trine_base::output::Output;
use trine_protocol::program::Program;

#[derive(Debug, Args)]
pub(crate) struct VersionArguments {}

pub(crate) fn run(output: Output) {
    let program = Program::this();
    output.document(&json!(program));
    output.line(format_args!("trine {program}"));
}
