//! What is wrong with a replica's settings whatever the machine is like: `trine serve` says it at its start, `trine config
//! check` before.

use std::net::SocketAddr;

use trine_replica::config::{ReadMode, ReplicaConfig};

use crate::options::LogArguments;
use crate::options::ReadArguments;
use crate::options::Reads;
use crate::options::TimingArguments;
use crate::resp::{RespArguments, needless_password};
use crate::serve::ServeArguments;
use trine_base::failure::Failure;
use trine_base::{peers, placement};

/// Every mistake, with the setting to which it belongs. Names are not looked up, nothing is opened. Addresses are kept to
/// loopback, unless the settings say otherwise, where they are those of IP.
pub fn check(arguments: &ServeArguments, is_ip: bool) -> Vec<(&'static str, Failure)> {
    let allowed = arguments.placement.allow_remote;
    let own = own_item(arguments);
    let own_is_kept = match own.as_ref().map(|item| item.parse::<SocketAddr>()) {
        Ok(Ok(own)) if is_ip => placement::require_loopback("this replica's address", own, allowed),
        _ => Ok(()),
    };
    // Which place has the wrong address is of no interest while the list is none.
    let listed = peers::check(&arguments.peers);
    let own = match (&listed, own) {
        (Ok(()), Err(failure)) => Err(failure),
        _ => Ok(()),
    };
    let listen = arguments.listen.as_deref().map(peers::check_server);
    let resp = arguments.resp.resp.map(|resp| {
        let address = resp.of_place(arguments.id)?;
        placement::require_loopback("the address of --resp", address, allowed)
    });
    let mut found = Vec::new();
    for (key, looked_at) in [
        ("peers", listed),
        ("id", own),
        ("listen", listen.unwrap_or(Ok(()))),
        (
            if arguments.listen.is_some() {
                "listen"
            } else {
                "peers"
            },
            own_is_kept,
        ),
        ("resp", resp.unwrap_or(Ok(()))),
    ] {
        found.extend(looked_at.err().map(|failure| (key, failure)));
    }
    found.extend(check_common(
        &arguments.log,
        &arguments.resp,
        &arguments.reading,
        &arguments.timing,
    ));
    found
}

/// The part of it that `trine up` has, too.
pub fn check_common(
    log: &LogArguments,
    resp: &RespArguments,
    reading: &ReadArguments,
    timing: &TimingArguments,
) -> Vec<(&'static str, Failure)> {
    let replica = replica_config(reading, timing).validate();
    let replica = replica.map_err(|error| Failure::usage(error.to_string(), ""));
    let mut found = Vec::new();
    found.extend(log.check().err().map(|failure| ("log", failure)));
    let needless = resp.needless_password();
    found.extend(needless.map(|key| (key, needless_password(key))));
    found.extend(replica.err().map(|failure| ("lease-drift", failure)));
    found
}

/// Where this replica listens, as it is written.
fn own_item(arguments: &ServeArguments) -> Result<&str, Failure> {
    match &arguments.listen {
        Some(listen) => Ok(listen.trim()),
        None => own_of(arguments.id, &peers::items(&arguments.peers)?),
    }
}

/// What stands at the place in the list.
pub(super) fn own_of<T: Copy>(place: u32, list: &[T]) -> Result<T, Failure> {
    let index = usize::try_from(place).unwrap_or(usize::MAX) - 1;
    list.get(index).copied().ok_or_else(|| {
        let count = list.len();
        Failure::usage(
            format!("--id {place} names no place in a list of {count} peers"),
            format!(
                "--id counts from 1 to {count}; the list has to name this replica too, or --listen says where it is"
            ),
        )
    })
}

/// How the replica works, as far as these settings say.
pub(super) fn replica_config(reading: &ReadArguments, timing: &TimingArguments) -> ReplicaConfig {
    let defaults = ReplicaConfig::default();
    ReplicaConfig {
        // The defaults' ratios between tick, heartbeat and election stay as they are.
        tick: (timing.election_timeout / defaults.election_ticks as u32).into(),
        reads: match reading.reads {
            Reads::Index => ReadMode::Index,
            Reads::Lease => ReadMode::Lease,
        },
        lease_drift: reading.lease_drift.into(),
        ..defaults
    }
}
