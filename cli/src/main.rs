//! The `trine` command.

fn main() {}
