//! Settings of a replica that are wrong on any machine. `trine serve` reports them at its start, `trine config check`
//! before.

use std::net::SocketAddr;

use trine_replica::config::{ReadMode, ReplicaConfig};

use crate::tls::TlsArguments;
use trine_base::failure::Failure;
use trine_base::{peers, placement};

use super::log::LogArguments;
use super::replica::{ReadArguments, Reads, TimingArguments};
use super::resp::{RespArguments, needless_password};
use super::serve::ServeArguments;
use super::watch::WatchArguments;

/// Returns every mistake, with its setting. It resolves no names and opens nothing. IP addresses have to be on
/// loopback if the network keeps to it, unless the settings permit others.
pub fn check(arguments: &ServeArguments, keeps_to_loopback: bool) -> Vec<(&'static str, Failure)> {
    let allowed = arguments.placement.insecure;
    let own = own_item(arguments);
    let own_is_kept = match own.as_ref().map(|item| item.parse::<SocketAddr>()) {
        Ok(Ok(own)) if keeps_to_loopback => {
            placement::require_loopback("this replica's address", own, allowed)
        }
        _ => Ok(()),
    };
    // An error in the own address does not matter while the list itself is invalid.
    let listed = peers::check(&arguments.peers);
    let own = match (&listed, own) {
        (Ok(()), Err(failure)) => Err(failure),
        _ => Ok(()),
    };
    let listen = arguments.listen.as_deref().map(peers::check_server);
    let resp = arguments.resp.resp.map(|resp| {
        let address = resp.of_node(arguments.id)?;
        arguments.resp.exposed(address, &arguments.tls).check()
    });
    let former = placement::refuse_former_name(arguments.placement.allow_remote);
    let mut found = Vec::new();
    for (key, looked_at) in [
        ("insecure", former),
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
        (&arguments.watch, &arguments.tls),
    ));
    found
}

/// The checks that `trine up` shares.
pub fn check_common(
    log: &LogArguments,
    resp: &RespArguments,
    reading: &ReadArguments,
    timing: &TimingArguments,
    (watch, tls): (&WatchArguments, &TlsArguments),
) -> Vec<(&'static str, Failure)> {
    let replica = replica_config(reading, timing).validate();
    let replica = replica.map_err(|error| Failure::usage(error.to_string(), ""));
    let mut found = Vec::new();
    found.extend(log.check().err().map(|failure| ("log", failure)));
    let exposed = watch.check(tls).err();
    found.extend(exposed.map(|failure| ("metrics", failure)));
    let needless = resp.needless_password();
    found.extend(needless.map(|key| (key, needless_password(key))));
    found.extend(replica.err().map(|failure| ("lease-drift", failure)));
    found
}

/// The replica's own address, as it is written.
fn own_item(arguments: &ServeArguments) -> Result<&str, Failure> {
    match &arguments.listen {
        Some(listen) => Ok(listen.trim()),
        None => own_of(arguments.id, &peers::items(&arguments.peers)?),
    }
}

/// The item of the list for this node id.
pub(crate) fn own_of<T: Copy>(node_id: u32, list: &[T]) -> Result<T, Failure> {
    assert!(node_id > 0, "the option takes no 0");
    let index = usize::try_from(node_id).unwrap_or(usize::MAX) - 1;
    list.get(index).copied().ok_or_else(|| {
        let count = list.len();
        Failure::usage(
            format!("--id {node_id} is not a node in a list of {count} peers"),
            format!(
                "--id counts from 1 to {count}; the list must contain this replica, too, or \
                 --listen must give its address"
            ),
        )
    })
}

/// The replica's configuration, as far as these settings define it.
pub(crate) fn replica_config(reading: &ReadArguments, timing: &TimingArguments) -> ReplicaConfig {
    let defaults = ReplicaConfig::default();
    ReplicaConfig {
        // The ratios between tick, heartbeat and election remain those of the defaults.
        tick: (timing.election_timeout / defaults.election_ticks as u32).into(),
        reads: match reading.reads {
            Reads::Index => ReadMode::Index,
            Reads::Lease => ReadMode::Lease,
        },
        lease_drift: reading.lease_drift.into(),
        watch_history_bytes: usize::try_from(reading.watch_history).unwrap_or(usize::MAX),
        retain_bytes: reading.retain_bytes,
        upgrade_after: reading.upgrade_after.0.map(Into::into),
        ..defaults
    }
}
