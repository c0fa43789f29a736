//! The simulator's and the checkers' tests from outside, as one program: each
//! further program is linked, and waits for the one before it.

mod backups;
mod canary;
mod counts;
mod numbers;
mod referee;
mod repeats;
mod scenarios;
mod sealed;
mod seeds;
mod short;
mod walks;
mod watches;
