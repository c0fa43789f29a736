//! The commands that need ports.

mod counters;
mod forward;
mod generator;
mod idle;
mod open;

pub(crate) use forward::forward;
pub(crate) use generator::generate;
