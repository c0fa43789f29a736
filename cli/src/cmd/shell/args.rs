//! The options of `trine shell`.

use clap::Args;

use trine_base::arguments::ClientArguments;

#[derive(Debug, Args)]
pub(crate) struct ShellArguments {
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}
