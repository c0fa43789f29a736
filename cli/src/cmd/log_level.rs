//! `trine log-level` shows or changes what a running replica logs.

use clap::Args;
use serde_json::json;
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_server::logs::LevelParser;

use super::endpoint::EndpointArguments;

#[derive(Debug, Args)]
pub(crate) struct LogLevelArguments {
    /// The new level: off, error, warn, info, debug or trace, optionally by part, as in warn,raft=debug. Without it,
    /// the current level is shown.
    #[arg(value_name = "LEVEL", value_parser = LevelParser, hide_possible_values = true)]
    pub(crate) level: Option<String>,
    /// Metrics endpoint of a replica (its --metrics).
    #[arg(long, env = "TRINE_METRICS", value_name = "HOST:PORT")]
    pub(crate) at: String,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArguments,
}

pub(crate) fn run(arguments: &LogLevelArguments, output: Output) -> Result<(), Failure> {
    let at = &arguments.at;
    let (method, level) = match &arguments.level {
        Some(level) => ("PUT", level.as_str()),
        None => ("GET", ""),
    };
    let asker = arguments.endpoint.asker()?;
    let answer = asker.ask(at, method, "/log-level", level)?;
    let body = answer.body.trim();
    if !answer.is_ok {
        return Err(Failure::usage(format!("{at} refuses: {body}"), ""));
    }
    output.document(&json!({ "level": body }));
    output.line(body);
    Ok(())
}
