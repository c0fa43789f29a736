//! `trine trace put KEY VALUE` draws the times of one write's stages.

use super::put::{stages, total_ns, write};
use crate::cmd::put::PutArguments;
use clap::Args;
use clap::Subcommand;
use std::ffi::OsString;
use trine_base::arguments::ClientArguments;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::units::show_ns;

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Write a value and draw a bar for each stage of the write.
    Put(TracePutArguments),
}

#[derive(Debug, Args)]
pub(crate) struct TracePutArguments {
    /// The key.
    pub(crate) key: OsString,
    /// The value; - or nothing reads it from standard input, @FILE from a file.
    pub(crate) value: Option<OsString>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// The width of the drawing, in characters.
const WIDTH: u64 = 40;

pub(crate) fn run<N: Network>(
    network: &N,
    command: &TraceCommand,
    output: Output,
) -> Result<(), Failure> {
    let TraceCommand::Put(TracePutArguments { key, value, client }) = command;
    let arguments = PutArguments {
        key: key.clone(),
        value: value.clone(),
        timing: true,
        client: client.clone(),
    };
    let (document, answer) = write(network, &arguments)?;
    output.document(&document);
    let Some(timing) = answer.timing() else {
        output.line("no timing: the replica runs an older release");
        return Ok(());
    };
    output.line(draw(&stages(timing), total_ns(timing)));
    Ok(())
}

/// Draws a bar for each stage, from its beginning to its end. Both network directions are drawn as one, because their
/// boundary is unknown in the time of the other's clock.
fn draw(stages: &[(&'static str, &'static str, u64)], total_ns: u64) -> String {
    let total = total_ns.max(1);
    let column =
        |ns: u64| (u128::from(ns) * u128::from(WIDTH) / u128::from(total)).min(WIDTH.into());
    let mut begun = 0;
    let mut text = String::new();
    for (stage, what, ns) in stages {
        let from = (column(begun) as usize).min(WIDTH as usize - 1);
        begun += ns;
        let until = (column(begun) as usize).clamp(from + 1, WIDTH as usize);
        let bar = format!("{}{}", " ".repeat(from), "#".repeat(until - from));
        let percent = u128::from(*ns) * 100 / u128::from(total);
        let time = show_ns(*ns);
        text.push_str(&format!(
            "  {stage:<8} {time:>9} {percent:>3}%  |{bar:<40}|  {what}\n"
        ));
    }
    text.push_str(&format!("  {:<8} {:>9}", "total", show_ns(total_ns)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_begins_where_the_last_one_ended() {
        let stages = [("a", "first", 50), ("b", "short", 0), ("c", "rest", 50)];
        let drawn = draw(&stages, 100);
        let bar = |line: &str| line.split('|').nth(1).map(str::to_owned);
        let bars: Vec<String> = drawn.lines().filter_map(bar).collect();
        assert_eq!(bars[0], format!("{}{}", "#".repeat(20), " ".repeat(20)));
        assert_eq!(bars[1].trim_end(), format!("{}#", " ".repeat(20)));
        assert_eq!(bars[2], format!("{}{}", " ".repeat(20), "#".repeat(20)));
        assert!(draw(&[("a", "", u64::MAX)], u64::MAX).contains("100%"));
    }
}
