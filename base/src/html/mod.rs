//! HTML reports for `trine bench` and `trine chaos`: the page, plots, and rows of bars over time.

pub mod bars;
pub mod page;
pub mod svg;
pub mod well_formed;
