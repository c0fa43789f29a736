//! `trine man` prints the manual pages, which are made from the options themselves.

use std::path::Path;

use clap::Args;
use std::path::PathBuf;
use trine_base::document::path_text;
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_base::units::plural;

#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// Write a page for each command to this directory, which is created if needed. Without it, the page of `trine`
    /// itself goes to standard output.
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Former name of DIR.
    #[arg(long, hide = true, value_name = "DIR", conflicts_with = "directory")]
    pub(crate) into: Option<PathBuf>,
}

pub(crate) fn run(
    arguments: &ManArguments,
    definition: clap::Command,
    output: Output,
) -> Result<(), Failure> {
    let Some(directory) = arguments.directory.as_ref().or(arguments.into.as_ref()) else {
        output.require_text("a manual page")?;
        let mut page = Vec::new();
        let written = clap_mangen::Man::new(definition).render(&mut page);
        written.expect("memory takes every byte");
        output.raw(&page);
        return Ok(());
    };
    let failed = |error| {
        Failure::usage(
            format!("cannot write pages to {}: {error}", directory.display()),
            "name a directory that this user may write to",
        )
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(definition, directory).map_err(failed)?;
    let pages = pages_in(directory).map_err(failed)?;
    output.document(&serde_json::json!({ "pages": pages, "directory": path_text(directory) }));
    output.line(format!(
        "{} in {}",
        plural(pages, "page"),
        directory.display()
    ));
    Ok(())
}

fn pages_in(directory: &Path) -> std::io::Result<u64> {
    let mut pages = 0;
    for entry in std::fs::read_dir(directory)? {
        pages += u64::from(
            entry?
                .path()
                .extension()
                .is_some_and(|ending| ending == "1"),
        );
    }
    Ok(pages)
}
