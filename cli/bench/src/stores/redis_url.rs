//! Where a Redis server is, and what it wants to see: `redis://user:password@host:port`, or `rediss` for TLS.

use std::fmt::{self, Debug, Display, Formatter};

/// A Redis server.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisServer {
    /// `HOST:PORT`.
    pub(super) address: String,
    /// Its certificate is asked for.
    pub(super) is_encrypted: bool,
    /// What AUTH says to it.
    pub(super) login: Option<Login>,
}

/// The words of AUTH.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    /// Empty for the server's default user.
    pub(super) user: Vec<u8>,
    pub(super) password: Vec<u8>,
}

impl RedisServer {
    /// Reads what follows `redis://` or `rediss://`.
    pub(super) fn parse(rest: &str, is_encrypted: bool) -> Result<Self, String> {
        // A password may have any character, escaped or not. Hosts have no @.
        let (login, address) = match rest.rsplit_once('@') {
            None => (None, rest),
            Some((login, address)) => (Some(Login::parse(login)?), address),
        };
        let address = match address {
            "" => "127.0.0.1:6379",
            address => address,
        };
        if address.contains(['/', '?']) {
            return Err("only a user, a password, a host and a port are understood".to_owned());
        }
        Ok(Self {
            address: address.to_owned(),
            is_encrypted,
            login,
        })
    }

    /// The host in the address, without the brackets of IPv6.
    pub(super) fn host(&self) -> &str {
        let host = self.address.rsplit_once(':');
        let host = host.map_or(self.address.as_str(), |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl Login {
    fn parse(text: &str) -> Result<Self, String> {
        let (user, password) = text
            .split_once(':')
            .ok_or("write redis://USER:PASSWORD@HOST:PORT, or redis://:PASSWORD@HOST:PORT")?;
        let (user, password) = (unescaped(user)?, unescaped(password)?);
        match password.is_empty() {
            true => Err("the password is empty".to_owned()),
            false => Ok(Self { user, password }),
        }
    }
}

/// The bytes of a text in which `%40` stands for `@`.
fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2);
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("in a user or a password write %25 for a percent sign")?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Ok(bytes)
}

/// As it was typed, but for the password: reports and errors show it.
impl Display for RedisServer {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let scheme = ["redis", "rediss"][usize::from(self.is_encrypted)];
        write!(formatter, "{scheme}://")?;
        if let Some(login) = &self.login {
            write!(formatter, "{}:***@", String::from_utf8_lossy(&login.user))?;
        }
        formatter.write_str(&self.address)
    }
}

impl Debug for RedisServer {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_read_and_never_shown() {
        let read = |text: &str| RedisServer::parse(text, true);
        let server = read("bob:p%40ss%3a@h@[::1]:7").expect("good");
        let login = server.login.as_ref().expect("a login");
        assert_eq!(login.user, b"bob");
        assert_eq!(login.password, b"p@ss:@h");
        assert_eq!((server.address.as_str(), server.host()), ("[::1]:7", "::1"));
        assert_eq!(server.to_string(), "rediss://bob:***@[::1]:7");
        assert_eq!(format!("{server:?}"), server.to_string());
        let server = read(":secret@").expect("the default place");
        assert_eq!(server.to_string(), "rediss://:***@127.0.0.1:6379");
        for wrong in [
            "user@h:1",
            "u:@h:1",
            "u:%4@h:1",
            "u:%zz@h:1",
            "u:%4é@h:1",
            "h:1/3",
            "h:1?x",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
