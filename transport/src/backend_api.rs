//! The items of this crate that backends outside of it and simulators need, beside [`crate::backend`] and
//! [`crate::buf`]. No promise is made about these items to any other user.

pub use crate::backend::Datagrams;
pub use crate::backend::wake::{WakeEvent, wait_readable};
