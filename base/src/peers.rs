//! Which addresses does a list of peers name?

use std::net::{SocketAddr, ToSocketAddrs};

use crate::config::PEERS_MAX;
use crate::failure::Failure;

const HINT: &str = "write --peers host:port,host:port,... (or set TRINE_PEERS)";

/// Returns the addresses of `list`, in its order. Names are resolved now. IPv4 is preferred, because `trine up` listens
/// on it.
pub fn resolve(list: &str) -> Result<Vec<SocketAddr>, Failure> {
    let items = items(list)?;
    let found = items
        .iter()
        .copied()
        .map(|item| lookup_peer(item, HINT))
        .collect::<Result<Vec<_>, _>>()?;
    let addresses = of_one_family(&items, &found)?;
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            let message = format!("the list of peers names {address} twice");
            return Err(Failure::usage(
                message,
                "give every replica an address of its own",
            ));
        }
    }
    Ok(addresses)
}

/// Whether `list` can be a list of peers. The check looks up no names.
pub fn check(list: &str) -> Result<(), Failure> {
    let items = items(list)?;
    for item in &items {
        well_formed(item, HINT)?;
    }
    let all_numbers = items.iter().all(|item| item.parse::<SocketAddr>().is_ok());
    match all_numbers {
        true => resolve(list).map(drop),
        false => Ok(()),
    }
}

/// The items between the commas.
pub fn items(list: &str) -> Result<Vec<&str>, Failure> {
    let items: Vec<&str> = list
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .collect();
    if items.is_empty() {
        return Err(Failure::usage("the list of peers is empty", HINT));
    }
    if items.len() > PEERS_MAX {
        let message = format!("the list of peers names {} replicas", items.len());
        return Err(Failure::usage(
            message,
            format!("a group has at most {PEERS_MAX}"),
        ));
    }
    Ok(items)
}

const SERVER_HINT: &str = "write host:port, for example 127.0.0.1:7481";

/// The address of one server.
pub fn resolve_server(item: &str) -> Result<SocketAddr, Failure> {
    Ok(preferred(&lookup(item.trim(), SERVER_HINT)?))
}

/// The address of one replica, as the other replicas and the clients will reach it.
pub fn resolve_replica(item: &str) -> Result<SocketAddr, Failure> {
    Ok(preferred(&lookup_peer(item.trim(), SERVER_HINT)?))
}

/// Returns the address of another replica of a group whose replicas are at `group`. It has to be of the same family,
/// because one socket sends to all.
pub fn resolve_beside(item: &str, group: &[SocketAddr]) -> Result<SocketAddr, Failure> {
    let found = lookup_peer(item.trim(), SERVER_HINT)?;
    let is_v4 = group.iter().all(SocketAddr::is_ipv4);
    let fits = found.iter().find(|address| address.is_ipv4() == is_v4);
    fits.copied().ok_or_else(|| {
        let family = if is_v4 { "IPv4" } else { "IPv6" };
        Failure::usage(
            format!("{item} has no {family} address, and the group's replicas have"),
            "all replicas of a group have addresses of one family",
        )
    })
}

/// Whether `item` can be the address of a server. The check looks up no names.
pub fn check_server(item: &str) -> Result<(), Failure> {
    well_formed(item.trim(), SERVER_HINT)
}

/// One of the addresses that an item stands for.
fn preferred(found: &[SocketAddr]) -> SocketAddr {
    let v4 = found.iter().find(|address| address.is_ipv4());
    *v4.unwrap_or(&found[0])
}

/// Returns one address for each item, all IPv4 or all IPv6, because one socket sends to all of them.
fn of_one_family(items: &[&str], found: &[Vec<SocketAddr>]) -> Result<Vec<SocketAddr>, Failure> {
    for is_of_family in [SocketAddr::is_ipv4, SocketAddr::is_ipv6] {
        let all = found
            .iter()
            .map(|found| found.iter().find(|address| is_of_family(address)));
        if let Some(addresses) = all.map(|address| address.copied()).collect() {
            return Ok(addresses);
        }
    }
    let only = |is_of_family: fn(&SocketAddr) -> bool| {
        let mut found = items.iter().zip(found);
        found
            .find(|(_, found)| found.iter().all(is_of_family))
            .map_or("", |(item, _)| *item)
    };
    let (v4, v6) = (only(SocketAddr::is_ipv4), only(SocketAddr::is_ipv6));
    Err(Failure::usage(
        format!(
            "the list of peers mixes IPv4 and IPv6: {v4} has no IPv6 address, {v6} no IPv4 address"
        ),
        "name every replica by addresses of one family",
    ))
}

/// Works like [`lookup`], for an address that others have to send to.
fn lookup_peer(item: &str, hint: &str) -> Result<Vec<SocketAddr>, Failure> {
    let found = lookup(item, hint)?;
    if found.iter().any(|address| address.ip().is_unspecified()) {
        let why = "it means every address of this machine, and none that others could use";
        return Err(unusable(item, why, hint));
    }
    Ok(found)
}

fn unusable(item: &str, why: &str, hint: &str) -> Failure {
    Failure::usage(format!("{item:?} is not a usable address: {why}"), hint)
}

/// Whether `item` is a host and a port.
fn well_formed(item: &str, hint: &str) -> Result<(), Failure> {
    let wrong = |why: &str| unusable(item, why, hint);
    if item.contains(',') {
        return Err(wrong("it is a list, and one address is needed"));
    }
    let Some((host, port)) = item.rsplit_once(':') else {
        return Err(wrong("it has no port"));
    };
    if host.is_empty() {
        return Err(wrong("it has no host"));
    }
    if host.contains(':') && !host.starts_with('[') {
        return Err(wrong(
            "an IPv6 address stands in brackets, as in [::1]:7471",
        ));
    }
    if host.contains('%') {
        return Err(wrong(
            "addresses with a zone are not supported; use one without, such as a global or unique local one",
        ));
    }
    match port.parse::<u16>() {
        Err(_) => Err(wrong("the port is no number from 1 to 65535")),
        Ok(0) => Err(wrong("port 0 names nobody")),
        Ok(_) => Ok(()),
    }
}

/// Every address that `item` stands for; at least one.
fn lookup(item: &str, hint: &str) -> Result<Vec<SocketAddr>, Failure> {
    well_formed(item, hint)?;
    let found: Vec<SocketAddr> = item
        .to_socket_addrs()
        .map_err(|error| unusable(item, &error.to_string(), hint))?
        .collect();
    match found.is_empty() {
        true => Err(unusable(item, "the name has no address", hint)),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order_and_resolves_names() {
        let found = resolve("127.0.0.1:7472, localhost:7471").expect("resolves");
        assert_eq!(
            found,
            ["127.0.0.1:7472", "127.0.0.1:7471"].map(|text| text.parse().expect("address"))
        );
    }

    #[test]
    fn addresses_may_be_of_the_sixth_version() {
        let found = resolve("[::1]:7471,[2001:db8::2]:7472").expect("resolves");
        assert!(found.iter().all(SocketAddr::is_ipv6));
        assert_eq!(found[1].port(), 7472);
    }

    /// A restored group had a member at 0.0.0.0, which nobody could administrate. A recovered one took the first address of
    /// a list, and said nothing about the others.
    #[test]
    fn a_replica_has_one_address_and_others_reach_it() {
        let own = "127.0.0.1:7471".parse().expect("an address");
        for (item, part) in [
            ("0.0.0.0:7471", "every address"),
            ("[::]:7471", "every address"),
            ("127.0.0.1:7471,127.0.0.1:7472", "it is a list"),
            ("127.0.0.1", "no port"),
            ("", "no port"),
        ] {
            for failure in [
                resolve_replica(item).expect_err(item),
                resolve_beside(item, &[own]).expect_err(item),
            ] {
                assert_eq!(failure.exit_status(), 2);
                let text = failure.to_string();
                assert!(text.contains(part) && text.contains("host:port"), "{text}");
            }
        }
        assert_eq!(resolve_replica(" 127.0.0.1:7471 "), Ok(own));
        // A server may listen on every address.
        resolve_server("0.0.0.0:7471").expect("an address");
        resolve_server("127.0.0.1:1,127.0.0.1:2").expect_err("a list");
    }

    #[test]
    fn wrong_lists_are_usage_errors_that_name_the_item() {
        let long = ["127.0.0.1:1"; PEERS_MAX + 1].join(",");
        for (list, part) in [
            ("", "empty"),
            ("127.0.0.1", "no port"),
            ("127.0.0.1:x", "127.0.0.1:x"),
            ("127.0.0.1:0", "port 0"),
            ("127.0.0.1:1,127.0.0.1:1", "twice"),
            ("::1:7471", "brackets"),
            ("[fe80::1%eth0]:1", "zone"),
            ("0.0.0.0:1", "every address"),
            ("[::]:1", "every address"),
            ("127.0.0.1:1,[::1]:2", "mixes IPv4 and IPv6: 127.0.0.1:1"),
            (long.as_str(), "64 replicas"),
        ] {
            let failure = resolve(list).expect_err(list);
            assert_eq!(failure.exit_status(), 2);
            assert!(failure.to_string().contains(part), "{failure}");
        }
    }
}
