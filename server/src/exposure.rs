//! Whether other machines may reach a TCP service of this process: only if something keeps strangers out.

use std::net::SocketAddr;

use trine_base::failure::Failure;
use trine_base::placement;

/// A service, as its options describe it.
#[derive(Clone, Copy, Debug)]
pub struct Exposed<'a> {
    /// What is said of its address.
    pub what: &'a str,
    /// The address.
    pub address: SocketAddr,
    /// Whether a caller has to give a password or a key.
    pub asks: bool,
    /// Whether a caller has to show a certificate of the client CA.
    pub asks_certificate: bool,
    /// Whether it is encrypted.
    pub tls: bool,
    /// What to add so that it is protected.
    pub hint: &'a str,
}

impl Exposed<'_> {
    /// Refuses an address that other machines reach, if nothing keeps strangers out.
    ///
    /// # Errors
    /// Says what would.
    pub fn check(&self) -> Result<(), Failure> {
        if self.is_local() || self.asks || self.asks_certificate {
            return Ok(());
        }
        let Self {
            what,
            address,
            hint,
            ..
        } = self;
        Err(Failure::usage(
            format!(
                "{what} {address} is not a loopback address: other machines would reach it, and nothing asks who they are"
            ),
            format!("{hint}, or listen on 127.0.0.1"),
        ))
    }

    /// What an operator has to know although it is permitted.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let Self { what, address, .. } = self;
        (!self.is_local() && !self.tls).then(|| {
            format!(
                "WARNING: {what} {address} is reached by other machines without TLS: passwords, \
                 keys and values can be read on the network; add --tls-cert FILE --tls-key FILE"
            )
        })
    }

    /// Whether every user of this machine gets in, and no other one.
    #[must_use]
    pub fn is_open_to_local_users(&self) -> bool {
        self.is_local() && !self.asks && !self.asks_certificate
    }

    fn is_local(&self) -> bool {
        placement::is_loopback(self.address.ip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Exposed<'static> {
        Exposed {
            what: "the address of --resp",
            address: address.parse().expect("an address"),
            asks: false,
            asks_certificate: false,
            tls: false,
            hint: "add --resp-password-file FILE",
        }
    }

    #[test]
    fn beyond_loopback_something_has_to_ask_and_plain_text_is_warned_of() {
        let local = at("127.0.0.1:1");
        assert!(local.check().is_ok() && local.warning().is_none());
        assert!(local.is_open_to_local_users());
        let asking = Exposed {
            asks: true,
            ..local
        };
        assert!(!asking.is_open_to_local_users() && !at("10.0.0.1:1").is_open_to_local_users());
        for address in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1"] {
            let open = at(address);
            let failure = open.check().expect_err("open");
            assert!(failure.message().contains(address), "{failure}");
            assert!(failure.message().contains("nothing asks who they are"));
            for guarded in [
                Exposed { asks: true, ..open },
                Exposed {
                    asks_certificate: true,
                    tls: true,
                    ..open
                },
            ] {
                assert!(guarded.check().is_ok());
                assert_eq!(guarded.warning().is_none(), guarded.tls);
            }
            // Encryption alone keeps nobody out.
            assert!(Exposed { tls: true, ..open }.check().is_err());
        }
    }
}
