//! The tests of replicas and of their clients from outside, as one program: each further one is linked, and waits for the
//! one before it.

mod backup;
mod catch_up;
mod client;
mod deaths;
mod departure;
mod end_to_end;
mod expiry;
mod follower_reads;
mod forged;
mod group;
mod hostile;
mod lease;
mod limits;
mod membership;
mod narrow_session;
mod ordered;
mod raft_paper;
mod replacement;
mod reply_shares;
mod rights;
mod rights_table;
mod support;
mod timing;
mod torture;
mod udp_loopback;
mod upgrade;
mod watches;
