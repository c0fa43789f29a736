//! Tests of the core: endpoints on virtual time, joined by a network that can do harm.

mod basics;
mod net;
