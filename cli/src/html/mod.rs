//! Reports as HTML: the page, plots, and rows of bars over time. What `trine bench` and `trine chaos` share.

pub(crate) mod lanes;
pub(crate) mod page;
pub(crate) mod svg;
