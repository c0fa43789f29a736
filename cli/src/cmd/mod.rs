//! The commands, one file each.

pub(crate) mod backup;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod debug;
pub(crate) mod del;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod endpoint;
pub(crate) mod get;
pub(crate) mod key;
pub(crate) mod latency;
pub(crate) mod leader;
pub(crate) mod log_level;
pub(crate) mod man;
pub(crate) mod member;
pub(crate) mod net;
pub(crate) mod put;
pub(crate) mod recover;
pub(crate) mod restore;
pub(crate) mod shell;
pub(crate) mod sim;
pub(crate) mod stat;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod up;
pub(crate) mod user;
