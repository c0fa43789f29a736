//! The names by which a request may call this endpoint.
//!
//! A page of a foreign site can give its own name the address of this machine (DNS rebinding). The browser then takes the
//! endpoint for a part of that site, and asks it on the page's behalf. It still sends the name of the site.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The names of this endpoint besides `localhost` and all addresses: nobody can make an address lead elsewhere.
#[derive(Clone, Debug, Default)]
pub struct OwnNames(BTreeSet<String>);

impl OwnNames {
    /// The machine's own name, and these: with or without a port, in any case.
    #[must_use]
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let machine = rustix::system::uname();
        let machine = machine.nodename().to_str().unwrap_or_default();
        let named = names.into_iter().filter_map(|name| plain(name.trim()));
        Self(named.chain(plain(machine)).collect())
    }

    /// Whether `host`, as a request names it, is this endpoint.
    #[must_use]
    pub fn has(&self, host: &str) -> bool {
        is_address(host)
            || plain(host).is_some_and(|name| name == "localhost" || self.0.contains(&name))
    }
}

/// Whether this is an IP address, with or without a port.
fn is_address(host: &str) -> bool {
    match host.strip_prefix('[') {
        None => without_port(host).is_some_and(|host| host.parse::<Ipv4Addr>().is_ok()),
        Some(rest) => rest.split_once(']').is_some_and(|(inside, port)| {
            // Link-local addresses may have their interface behind them.
            let address = inside.split('%').next().unwrap_or_default();
            let is_port = without_port(&format!("x{port}")) == Some("x");
            address.parse::<Ipv6Addr>().is_ok() && is_port
        }),
    }
}

/// A name without its port and the dot of the root, in small letters; none if it is empty.
fn plain(host: &str) -> Option<String> {
    let name = without_port(host)?;
    let name = name.strip_suffix('.').unwrap_or(name);
    (!name.is_empty()).then(|| name.to_ascii_lowercase())
}

/// The host in `HOST` or `HOST:PORT`; none if something else follows a colon.
fn without_port(host: &str) -> Option<&str> {
    let Some((host, port)) = host.split_once(':') else {
        return Some(host);
    };
    let is_port = port.is_empty() || port.parse::<u16>().is_ok();
    (is_port && !port.starts_with('+')).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_own_names_are_known_and_no_others() {
        let own = OwnNames::new(["Trine-1.example:7471", "metrics.example.", "10.0.0.1:7471"]);
        let machine = rustix::system::uname();
        let machine = machine.nodename().to_str().expect("text");
        for known in [
            "localhost",
            "LocalHost:9471",
            "localhost.",
            "localhost.:9471",
            "127.0.0.1",
            "127.0.0.1:9471",
            "203.0.113.7:9471",
            "[::1]",
            "[::1]:9471",
            "[fe80::1%25eth0]:9471",
            "trine-1.example",
            "TRINE-1.EXAMPLE.:80",
            "metrics.example:9471",
            machine,
        ] {
            assert!(own.has(known), "{known}");
        }
        for foreign in [
            "",
            ":9471",
            ".",
            "evil.example",
            "evil.example:9471",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "x.trine-1.example",
            "trine-1.example.evil.example:9471",
            "trine-1.example..",
            "localhost:port",
            "localhost:80:80",
            "evil@localhost",
            "localhost@evil.example",
            "::1",
            "[::1",
            "[::1]x",
            "[::1].evil.example",
            "[evil.example]",
            "127.0.0.1x",
            "127.0.0.1:+80",
            "1.2.3",
        ] {
            assert!(!own.has(foreign), "{foreign}");
        }
    }
}
