//! The applications from outside, and the program that runs them.

mod references;
mod tables;
