//! What backends outside of this crate need of it, beside [`crate::backend`] and [`crate::buf`]. No promise is made about
//! these items to anybody else.

pub use crate::backend::wake::{WakeEvent, wait_readable};
