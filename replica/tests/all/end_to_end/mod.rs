//! Whole replicas and clients in one thread on virtual time: a group from its bootstrap to its members' deaths.

mod faults;
mod flood;
mod holders;
mod hostile;
mod lifecycle;
mod links;
mod other_release;
mod strangers;
mod world;
