//! The items of this crate that backends outside of it need, beside [`crate::backend`] and [`crate::buf`]. No promise
//! is made about these items to any other user.

pub use crate::backend::wake::{WakeEvent, wait_readable};
