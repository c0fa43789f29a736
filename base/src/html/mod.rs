//! Reports as HTML: the page, plots, and rows of bars over time. What `trine bench` and `trine chaos` share.

pub mod lanes;
pub mod page;
pub mod svg;
pub mod well_formed;
