//! An address to listen on, as `--metrics` takes it.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use trine_base::failure::{Failure, Trouble};
use trine_base::lookup;

/// "host:port"; "host:port+N" means the port N further. `trine up` uses that to give each replica its own port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    host_port: String,
    offset: u16,
}

impl Listen {
    /// Returns the address itself; names are resolved now.
    pub fn resolve(&self) -> Result<SocketAddr, Failure> {
        let wrong = |why: String| {
            Failure::usage(
                format!("--metrics {self} is not a usable address: {why}"),
                "write for example 127.0.0.1:9471 or [::1]:9471",
            )
        };
        let missing = |why| wrong(why).with_trouble(Some(Trouble::AddressMissing));
        let mut address = match self.as_written() {
            Some(address) => address,
            None => lookup::first_of(&self.host_port)?.map_err(missing)?,
        };
        let port = address.port().checked_add(self.offset);
        address.set_port(port.ok_or_else(|| wrong("the port runs past 65535".into()))?);
        Ok(address)
    }

    /// The address, if it is written as one and no name has to be resolved.
    #[must_use]
    pub fn as_written(&self) -> Option<SocketAddr> {
        self.host_port.parse().ok()
    }

    /// The host as it was written: an address or a name.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host_port.rsplit_once(':').map_or("", |(host, _)| host)
    }

    /// Returns the same address for each node. Node ids count from 1, and the first node has the unchanged port. The
    /// result is an option value of `trine serve` in which the supervisor replaces `{node_id}`.
    pub fn for_each_node(&self) -> Result<String, Failure> {
        let address = self.resolve()?;
        let before = address.port().checked_sub(1).filter(|port| *port > 0);
        let before = before.ok_or_else(|| {
            Failure::usage(
                format!("--metrics {self}: several replicas need a port of 2 or more"),
                "the first replica takes it, the others those that follow",
            )
        })?;
        Ok(format!(
            "{}+{{node_id}}",
            SocketAddr::new(address.ip(), before)
        ))
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host_port, offset) = text.split_once('+').unwrap_or((text, "0"));
        let wrong = || format!("{text:?} is not host:port, such as 127.0.0.1:9471 or [::1]:9471");
        let (host, port) = host_port.rsplit_once(':').ok_or_else(wrong)?;
        let bare_v6 = host.contains(':') && !host.starts_with('[');
        if host.is_empty() || bare_v6 || port.parse::<u16>().is_err() {
            return Err(wrong());
        }
        Ok(Self {
            host_port: host_port.to_owned(),
            offset: offset.parse().map_err(|_| wrong())?,
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host_port)?;
        match self.offset {
            0 => Ok(()),
            offset => write!(f, "+{offset}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_nodes_get_a_port_each() {
        let listen: Listen = "localhost:9100+2".parse().expect("reads");
        assert_eq!(listen.resolve().expect("resolves").port(), 9102);
        let base: Listen = "[::1]:9100".parse().expect("reads");
        let option = base.for_each_node().expect("room");
        let third: Listen = option.replace("{node_id}", "3").parse().expect("reads");
        assert_eq!(
            third.resolve().expect("resolves"),
            "[::1]:9102".parse().expect("address")
        );
        for wrong in ["9100", ":9100", "::1:9100", "host:port", "a:1+x", ""] {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
        let last: Listen = "127.0.0.1:65535+1".parse().expect("reads");
        assert!(last.resolve().is_err());
    }
}
