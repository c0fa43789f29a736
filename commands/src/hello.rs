//! HELLO: its words, and the reply.

use trine_kvstore::integer;

use crate::acl::DEFAULT;
use crate::errors::Refusal;
use crate::reply::Writer;
use crate::table::{Spec, Verb};

/// The release, which HELLO names.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The words of HELLO.
#[derive(Default)]
pub struct Hello<'a> {
    /// The protocol, if one is named.
    pub resp3: Option<bool>,
    /// A user, and its key or password.
    pub auth: Option<(&'a [u8], &'a [u8])>,
    /// The name of the client.
    pub name: Option<&'a [u8]>,
}

impl<'a> Hello<'a> {
    /// Reads the words.
    pub fn parse(words: &[&'a [u8]]) -> Result<Self, Refusal> {
        let mut hello = Self::default();
        let mut words = words;
        if let [version, rest @ ..] = words {
            hello.resp3 = match integer(version) {
                Some(2) => Some(false),
                Some(3) => Some(true),
                Some(_) => return Err("NOPROTO unsupported protocol version".to_owned()),
                None => {
                    return Err("ERR Protocol version is not an integer or out of range".to_owned());
                }
            };
            words = rest;
        }
        while let [option, rest @ ..] = words {
            words = match rest {
                [user, secret, rest @ ..] if option.eq_ignore_ascii_case(b"auth") => {
                    hello.auth = Some((*user, *secret));
                    rest
                }
                [asked, rest @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                    hello.name = Some(*asked);
                    rest
                }
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return Err(format!("ERR Syntax error in HELLO option '{option}'"));
                }
            };
        }
        Ok(hello)
    }
}

/// Writes the reply to the client of the connection with this number.
pub fn welcome(id: u64, protocol: i64, writer: &mut Writer<'_>) {
    writer.map(7);
    for (field, value) in [("server", "trine"), ("version", VERSION)] {
        writer.bulk(field.as_bytes());
        writer.bulk(value.as_bytes());
    }
    for (field, value) in [("proto", protocol), ("id", id as i64)] {
        writer.bulk(field.as_bytes());
        writer.integer(value);
    }
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        writer.bulk(field.as_bytes());
        writer.bulk(value.as_bytes());
    }
    writer.bulk(b"modules");
    writer.array(0);
}

/// Whether the group has to be asked about its users before the request is answered. EXEC does not wait for that.
pub fn asks_about_users(spec: &Spec, parts: &[&[u8]]) -> bool {
    let is_of_group = |user: &[u8]| user != DEFAULT.as_bytes();
    match spec.verb() {
        Some(Verb::Auth) => parts.len() > 2 && is_of_group(parts[1]),
        Some(Verb::Hello) => {
            let hello = Hello::parse(&parts[1..]).unwrap_or_default();
            hello.auth.is_some_and(|(user, _)| is_of_group(user))
        }
        Some(Verb::Acl) => {
            let asked = parts.get(1).map(|word| word.to_ascii_lowercase());
            matches!(asked.as_deref(), Some(b"list" | b"users" | b"getuser"))
        }
        _ => false,
    }
}
