//! What every command takes.

use clap::Args;

use crate::network::NetworkArguments;
use crate::output::OutputForm;

#[derive(Debug, Args)]
pub(crate) struct GlobalArguments {
    /// Print one JSON document instead of text; short for -o json.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How answers look.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        default_value = "table"
    )]
    pub(crate) output: OutputForm,
    #[command(flatten)]
    pub(crate) network: NetworkArguments,
}
