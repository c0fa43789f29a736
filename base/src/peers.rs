//! The addresses that a list of peers names.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};

use crate::announce::note;
use crate::config::PEERS_MAX;
use crate::failure::Failure;
use crate::lookup::{self, LookupResult};

const HINT: &str = "write --peers host:port,host:port,... (or set TRINE_PEERS)";

/// Returns the addresses of `list`, in its order. Names are resolved now; one without an address is left out, and
/// standard error says so. IPv4 is preferred, because `trine up` listens on it.
///
/// # Errors
/// No name has an address, or the list is none.
pub fn resolve(list: &str) -> Result<Vec<SocketAddr>, Failure> {
    check(list)?;
    let items = items(list)?;
    let found = lookup::of_all(&items)?;
    let number = items
        .iter()
        .find_map(|item| item.parse::<SocketAddr>().ok());
    let known = found.iter().filter_map(|found| found.as_deref().ok());
    let is_v4 = number.map_or_else(|| prefers_v4(known), |number| number.is_ipv4());
    let mut addresses = Vec::new();
    let mut missing = Vec::new();
    for (item, found) in items.iter().zip(&found) {
        match in_family(found, is_v4) {
            // Two names of one replica name it once.
            Ok(address) if addresses.contains(&address) => {}
            Ok(address) => addresses.push(address),
            Err(why) => missing.push(format!("{item} ({why})")),
        }
    }
    if addresses.is_empty() {
        return Err(Failure::not_reachable(
            format!("no replica has an address: {}", missing.join(", ")),
            "check the names and the name service (`getent hosts NAME` asks it), and try again",
        ));
    }
    warn_of(missing);
    Ok(addresses)
}

/// Says once in this process which names have no address.
fn warn_of(missing: Vec<String>) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    for text in missing {
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(text.clone()) {
            note(format_args!("warning: continuing without {text}"));
        }
    }
}

/// Whether a group with these addresses uses IPv4: unless more of its names have an IPv6 address. One socket sends to all.
pub fn prefers_v4<'a>(found: impl Iterator<Item = &'a [SocketAddr]>) -> bool {
    let counts = found.fold((0, 0), |(v4, v6), found| {
        let has = |is_of: fn(&SocketAddr) -> bool| usize::from(found.iter().any(is_of));
        (v4 + has(SocketAddr::is_ipv4), v6 + has(SocketAddr::is_ipv6))
    });
    counts.0 >= counts.1
}

/// The first address of a family.
fn in_family(found: &LookupResult, is_v4: bool) -> Result<SocketAddr, String> {
    let found = found.as_ref().map_err(Clone::clone)?;
    let first = found.iter().find(|address| address.is_ipv4() == is_v4);
    first.copied().ok_or_else(|| no_address_of(is_v4))
}

/// Why a name with addresses of the other family is of no use.
pub fn no_address_of(is_v4: bool) -> String {
    let (needed, there) = if is_v4 {
        ("IPv4", "IPv6")
    } else {
        ("IPv6", "IPv4")
    };
    format!("it has no {needed} address, only {there}; the other replicas have {needed}")
}

/// Whether `list` can be a list of peers. The check looks up no names.
pub fn check(list: &str) -> Result<(), Failure> {
    let items = items(list)?;
    for item in &items {
        well_formed(item, HINT)?;
    }
    for (index, item) in items.iter().enumerate() {
        if items[..index].iter().any(|other| is_same(other, item)) {
            let message = format!("the list of peers names {item} twice");
            return Err(Failure::usage(
                message,
                "give every replica an address of its own",
            ));
        }
    }
    let numbers: Vec<SocketAddr> = items.iter().filter_map(|item| item.parse().ok()).collect();
    if let Some(address) = numbers.iter().find(|address| address.ip().is_unspecified()) {
        return Err(unusable(&address.to_string(), EVERY_ADDRESS, HINT));
    }
    let v4 = numbers.iter().find(|address| address.is_ipv4());
    let v6 = numbers.iter().find(|address| address.is_ipv6());
    match (v4, v6) {
        (Some(v4), Some(v6)) => Err(Failure::usage(
            format!("the list of peers mixes IPv4 and IPv6: {v4} and {v6}"),
            "give all replicas addresses of one family",
        )),
        _ => Ok(()),
    }
}

/// Whether two items are written alike, or as one number.
fn is_same(one: &str, other: &str) -> bool {
    let number = |item: &str| item.parse::<SocketAddr>().ok();
    one.eq_ignore_ascii_case(other) || (number(one).is_some() && number(one) == number(other))
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

const EVERY_ADDRESS: &str = "it means every address of this machine, and others cannot use it";

/// Each server has a port of its own.
const SERVER_HINT: &str = "write host:port; --help shows the default";
const REPLICA_HINT: &str = "write host:port, for example 127.0.0.1:7471";

/// The address of one server.
pub fn resolve_server(item: &str) -> Result<SocketAddr, Failure> {
    Ok(preferred(&lookup(item.trim(), SERVER_HINT)?))
}

/// The address of one replica, as the other replicas and the clients will reach it.
pub fn resolve_replica(item: &str) -> Result<SocketAddr, Failure> {
    Ok(preferred(&lookup_peer(item.trim(), REPLICA_HINT)?))
}

/// Returns the address of another replica of a group whose replicas are at `group`. It has to be of the same family,
/// because one socket sends to all.
pub fn resolve_beside(item: &str, group: &[SocketAddr]) -> Result<SocketAddr, Failure> {
    let found = lookup_peer(item.trim(), REPLICA_HINT)?;
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
    well_formed(item.trim(), REPLICA_HINT)
}

/// One of the addresses that an item stands for.
fn preferred(found: &[SocketAddr]) -> SocketAddr {
    let v4 = found.iter().find(|address| address.is_ipv4());
    *v4.unwrap_or(&found[0])
}

/// Works like [`lookup`], for an address that others have to send to.
fn lookup_peer(item: &str, hint: &str) -> Result<Vec<SocketAddr>, Failure> {
    let found = lookup(item, hint)?;
    if found.iter().any(|address| address.ip().is_unspecified()) {
        return Err(unusable(item, EVERY_ADDRESS, hint));
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
        return Err(wrong("it is a list, but one address is needed"));
    }
    let Some((host, port)) = item.rsplit_once(':') else {
        return Err(wrong("it has no port"));
    };
    if host.is_empty() {
        return Err(wrong("it has no host"));
    }
    if host.contains(':') && !host.starts_with('[') {
        return Err(wrong("an IPv6 address needs brackets, as in [::1]:7471"));
    }
    if host.contains('%') {
        return Err(wrong(
            "addresses with a zone are not supported; use one without, such as a global or unique local one",
        ));
    }
    match port.parse::<u16>() {
        Err(_) => Err(wrong("the port is not a number from 1 to 65535")),
        Ok(0) => Err(wrong("port 0 is not valid")),
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

    /// One name that did not resolve made every client fail with status 2, although two of three replicas served.
    #[test]
    fn a_name_without_an_address_is_left_out() {
        let dead = "no-such-name.invalid:7472";
        let found =
            resolve(&format!("{dead},127.0.0.1:7471,localhost:7471")).expect("one is known");
        assert_eq!(found, ["127.0.0.1:7471".parse().expect("an address")]);
        let failure = resolve(dead).expect_err("nobody is known");
        assert_eq!(failure.exit_status(), 3);
        let text = failure.to_string();
        assert!(
            text.contains(dead) && text.contains("no replica has an address"),
            "{text}"
        );
    }

    #[test]
    fn the_family_is_that_of_most_names_and_ipv4_at_a_tie() {
        let at = |text: &str| vec![text.parse::<SocketAddr>().expect("an address")];
        let (v4, v6) = (at("10.0.0.1:1"), at("[2001:db8::1]:1"));
        let both = [v4.clone(), v6.clone()].concat();
        for (found, is_v4) in [
            ([&both, &both, &both], true),
            ([&both, &v6, &v6], false),
            ([&v4, &v6, &both], true),
            ([&v6, &v6, &v6], false),
        ] {
            assert_eq!(prefers_v4(found.iter().map(|found| &found[..])), is_v4);
        }
        assert!(prefers_v4(std::iter::empty()));
        let only_v6: LookupResult = Ok(v6);
        assert!(
            in_family(&only_v6, true)
                .expect_err("another family")
                .contains("no IPv4")
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
            ("127.0.0.1:1,localhost:2,127.0.0.1:1", "twice"),
            (long.as_str(), "64 replicas"),
        ] {
            let failure = resolve(list).expect_err(list);
            assert_eq!(failure.exit_status(), 2);
            assert!(failure.to_string().contains(part), "{failure}");
        }
    }
}
