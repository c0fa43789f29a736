//! The options of InfiniBand UD. Every build knows them; feature `verbs` adds what opens a device.

#[cfg(feature = "verbs")]
mod device;

use clap::{Args, ValueEnum};

use super::{EndpointSettings, OnNetwork};
use crate::failure::Failure;

/// How requests and replies are sent on an RDMA device.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum VerbsPath {
    /// As datagrams (UD SEND).
    #[default]
    Ud,
    /// Requests of one packet are written to the server's memory (UC WRITE), which the server polls. A peer with
    /// another path gets datagrams.
    Herd,
    /// The same (RC WRITE), and replies stay in the server's memory until the client fetches them (RC READ). Only
    /// `trine cache` supports it.
    Rfp,
}

/// Options of the RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Default, Args)]
pub struct VerbsArguments {
    /// verbs: the RDMA device; by default the first one with an active port.
    #[arg(long, env = "TRINE_DEVICE", value_name = "NAME", global = true, hide = !cfg!(feature = "verbs"))]
    device: Option<String>,
    /// verbs: the index of the port's GID; by default the most routable one.
    #[arg(long, env = "TRINE_GID_INDEX", value_name = "N", global = true, hide = !cfg!(feature = "verbs"))]
    gid_index: Option<u32>,
    /// verbs: queue pairs of the process, 1 to 8; by default one.
    #[arg(
        long,
        env = "TRINE_QUEUE_PAIRS",
        value_name = "N",
        global = true,
        hide = !cfg!(feature = "verbs"),
        value_parser = clap::value_parser!(u8).range(1..=8)
    )]
    queue_pairs: Option<u8>,
    /// verbs: allocate large memory from huge pages, which the system must have reserved (`sysctl vm.nr_hugepages=64`).
    #[arg(long, env = "TRINE_HUGE_PAGES", global = true, hide = !cfg!(feature = "verbs"))]
    huge_pages: bool,
    /// verbs: how requests are sent: ud (default) as datagrams, herd as writes to the server's memory. With rfp, which
    /// only `trine cache` supports, the client also fetches its replies from there. herd has been tested only with
    /// `trine cache`.
    // Commands have arguments of their own that are called `path`.
    #[arg(
        id = "verbs_path",
        long = "path",
        env = "TRINE_PATH",
        value_name = "NAME",
        global = true,
        value_enum,
        hide = !cfg!(feature = "verbs")
    )]
    path: Option<VerbsPath>,
}

impl VerbsArguments {
    /// Refuses these options for another backend, which would ignore them.
    pub(super) fn check_unused(&self) -> Result<(), Failure> {
        if *self == Self::default() {
            return Ok(());
        }
        Err(Failure::usage(
            "--device, --gid-index, --queue-pairs, --huge-pages and --path belong to verbs",
            "add --transport verbs",
        ))
    }

    /// Refuses the path rfp: the command is none of `trine cache`.
    ///
    /// # Errors
    /// The path that works.
    pub fn check_path_of_others(&self) -> Result<(), Failure> {
        if self.path != Some(VerbsPath::Rfp) {
            return Ok(());
        }
        Err(Failure::usage(
            "the path rfp is for `trine cache` alone: members of a group sleep, and answers that wait for other members are \
             slow",
            "use --path herd or --path ud",
        ))
    }

    /// Runs `task` on the device.
    #[cfg(feature = "verbs")]
    pub(super) fn run(
        &self,
        settings: EndpointSettings,
        task: impl OnNetwork,
    ) -> Result<(), Failure> {
        task.run(&device::Verbs::new(self, settings)?)
    }

    /// Refuses: the feature is absent.
    #[cfg(not(feature = "verbs"))]
    pub(super) fn run(
        &self,
        _settings: EndpointSettings,
        _task: impl OnNetwork,
    ) -> Result<(), Failure> {
        Err(super::not_built("verbs"))
    }
}
