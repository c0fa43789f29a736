//! Which addresses does a list of peers name?

use std::net::{SocketAddr, ToSocketAddrs};

use crate::config::PEERS_MAX;
use crate::failure::Failure;

const CURE: &str = "write --peers host:port,host:port,... (or set TRINE_PEERS)";

/// The addresses of `list`, in its order. Names are resolved now, preferring IPv4, because that is
/// what `trine up` listens on.
pub(crate) fn resolve(list: &str) -> Result<Vec<SocketAddr>, Failure> {
    let items: Vec<&str> = list
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .collect();
    if items.is_empty() {
        return Err(Failure::usage("the list of peers is empty", CURE));
    }
    if items.len() > PEERS_MAX {
        let message = format!("the list of peers names {} replicas", items.len());
        return Err(Failure::usage(
            message,
            format!("a group has at most {PEERS_MAX}"),
        ));
    }
    let addresses: Vec<SocketAddr> = items
        .iter()
        .map(|item| resolve_one(item, CURE))
        .collect::<Result<_, _>>()?;
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

/// The address of one server.
pub(crate) fn resolve_server(item: &str) -> Result<SocketAddr, Failure> {
    resolve_one(item.trim(), "write host:port, for example 127.0.0.1:7481")
}

fn resolve_one(item: &str, cure: &str) -> Result<SocketAddr, Failure> {
    let wrong =
        |why: String| Failure::usage(format!("{item:?} is not a usable address: {why}"), cure);
    if !item.contains(':') {
        return Err(wrong("it has no port".into()));
    }
    let found: Vec<SocketAddr> = item
        .to_socket_addrs()
        .map_err(|error| wrong(error.to_string()))?
        .collect();
    let best = found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first())
        .copied();
    match best {
        None => Err(wrong("the name has no address".into())),
        Some(address) if address.port() == 0 => Err(wrong("port 0 names nobody".into())),
        Some(address) => Ok(address),
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
    fn wrong_lists_are_usage_errors_that_name_the_item() {
        let long = ["127.0.0.1:1"; 8].join(",");
        for (list, part) in [
            ("", "empty"),
            ("127.0.0.1", "no port"),
            ("127.0.0.1:x", "127.0.0.1:x"),
            ("127.0.0.1:0", "port 0"),
            ("127.0.0.1:1,127.0.0.1:1", "twice"),
            (long.as_str(), "8 replicas"),
        ] {
            let failure = resolve(list).expect_err(list);
            assert_eq!(failure.exit_status(), 2);
            assert!(failure.to_string().contains(part), "{failure}");
        }
    }
}
