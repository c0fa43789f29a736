//! Every known command: its name, its number of parts, its subject.

/// The action of a command; the file that does it matches on this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Append,
    Auth,
    Client,
    Command,
    Config,
    Dbsize,
    Decr,
    Decrby,
    Del,
    Discard,
    Echo,
    Exec,
    Exists,
    Expire,
    Expireat,
    Get,
    Getdel,
    Getex,
    Getset,
    Hello,
    Incr,
    Incrby,
    Info,
    Mget,
    Mset,
    Multi,
    Persist,
    Pexpire,
    Pexpireat,
    Ping,
    Psetex,
    Pttl,
    Quit,
    Reset,
    Select,
    Set,
    Setex,
    Setnx,
    Strlen,
    Touch,
    Ttl,
    Type,
    Unlink,
    Unwatch,
    Watch,
}

/// One command as `COMMAND` describes it.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) verb: Verb,
    /// How many parts a request has, the name included; at least as many if it is negative.
    pub(crate) arity: i64,
    pub(crate) flags: &'static [&'static str],
    /// The first key's place, the last one's (from the end if negative), and the step from one to the next.
    pub(crate) keys: [i64; 3],
    pub(crate) group: &'static str,
    /// The Redis release that introduced it.
    pub(crate) since: &'static str,
    pub(crate) summary: &'static str,
}

impl Spec {
    /// Whether a request may have this many parts.
    pub(crate) fn takes(&self, parts: usize) -> bool {
        let least = self.arity.unsigned_abs();
        match self.arity < 0 {
            true => parts as u64 >= least,
            false => parts as u64 == least,
        }
    }

    /// The categories of access control, as Redis names them.
    pub(crate) fn categories(&self) -> Vec<&'static str> {
        let has = |flag| self.flags.contains(&flag);
        let of_group = match self.group {
            "generic" => Some("keyspace"),
            "transactions" => Some("transaction"),
            "server" if self.verb == Verb::Dbsize => Some("keyspace"),
            "server" => None,
            other => Some(other),
        };
        let speed = if has("fast") { "fast" } else { "slow" };
        let known = [
            of_group,
            has("readonly").then_some("read"),
            has("write").then_some("write"),
            Some(speed),
            has("admin").then_some("admin"),
            matches!(self.verb, Verb::Info | Verb::Config).then_some("dangerous"),
        ];
        known.into_iter().flatten().collect()
    }

    /// Whether it may be asked before the password is given.
    pub(crate) fn is_for_strangers(&self) -> bool {
        self.flags.contains(&"no_auth")
    }
}

/// The command of that name, in whatever case it is written.
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let found = SPECS.binary_search_by(|spec| spec.name.as_bytes().cmp(lower));
    found.ok().map(|index| &SPECS[index])
}

/// No command has a longer name.
const NAME_BYTES_MAX: usize = 16;

const fn spec(
    name: &'static str,
    verb: Verb,
    arity: i64,
    flags: &'static [&'static str],
    keys: [i64; 3],
    about: [&'static str; 3],
) -> Spec {
    let [group, since, summary] = about;
    Spec {
        name,
        verb,
        arity,
        flags,
        keys,
        group,
        since,
        summary,
    }
}

/// All commands, by name.
#[rustfmt::skip]
pub(crate) const SPECS: &[Spec] = &[
    spec("append", Verb::Append, 3, &["write", "denyoom", "fast"], [1, 1, 1], ["string", "2.0.0", "Appends to the value of a key."]),
    spec("auth", Verb::Auth, -2, &["fast", "noscript", "no_auth"], [0, 0, 0], ["connection", "1.0.0", "Gives the password."]),
    spec("client", Verb::Client, -2, &["noscript"], [0, 0, 0], ["connection", "2.4.0", "Names and lists connections."]),
    spec("command", Verb::Command, -1, &["loading"], [0, 0, 0], ["server", "2.8.13", "Describes commands."]),
    spec("config", Verb::Config, -2, &["admin"], [0, 0, 0], ["server", "2.0.0", "Shows settings."]),
    spec("dbsize", Verb::Dbsize, 1, &["readonly", "fast"], [0, 0, 0], ["server", "1.0.0", "Counts the keys."]),
    spec("decr", Verb::Decr, 2, &["write", "denyoom", "fast"], [1, 1, 1], ["string", "1.0.0", "Takes one from a number."]),
    spec("decrby", Verb::Decrby, 3, &["write", "denyoom", "fast"], [1, 1, 1], ["string", "1.0.0", "Takes from a number."]),
    spec("del", Verb::Del, -2, &["write"], [1, -1, 1], ["generic", "1.0.0", "Deletes keys."]),
    spec("discard", Verb::Discard, 1, &["fast"], [0, 0, 0], ["transactions", "2.0.0", "Forgets a transaction."]),
    spec("echo", Verb::Echo, 2, &["fast"], [0, 0, 0], ["connection", "1.0.0", "Sends its argument back."]),
    spec("exec", Verb::Exec, 1, &[], [0, 0, 0], ["transactions", "1.2.0", "Does a transaction."]),
    spec("exists", Verb::Exists, -2, &["readonly", "fast"], [1, -1, 1], ["generic", "1.0.0", "Counts which of the keys exist."]),
    spec("expire", Verb::Expire, -3, &["write", "fast"], [1, 1, 1], ["generic", "1.0.0", "Lets a key expire after seconds."]),
    spec("expireat", Verb::Expireat, -3, &["write", "fast"], [1, 1, 1], ["generic", "1.2.0", "Lets a key expire at a second of Unix time."]),
    spec("get", Verb::Get, 2, &["readonly", "fast"], [1, 1, 1], ["string", "1.0.0", "Reads the value of a key."]),
    spec("getdel", Verb::Getdel, 2, &["write", "fast"], [1, 1, 1], ["string", "6.2.0", "Reads the value of a key and deletes it."]),
    spec("getex", Verb::Getex, -2, &["write", "fast"], [1, 1, 1], ["string", "6.2.0", "Reads the value of a key and changes its expiry."]),
    spec("getset", Verb::Getset, 3, &["write", "denyoom", "fast"], [1, 1, 1], ["string", "1.0.0", "Writes a value and reads the one before."]),
    spec("hello", Verb::Hello, -1, &["fast", "noscript", "no_auth"], [0, 0, 0], ["connection", "6.0.0", "Chooses the protocol and gives the password."]),
    spec("incr", Verb::Incr, 2, &["write", "denyoom", "fast"], [1, 1, 1], ["string", "1.0.0", "Adds one to a number."]),
    spec("incrby", Verb::Incrby, 3, &["write", "denyoom", "fast"], [1, 1, 1], ["string", "1.0.0", "Adds to a number."]),
    spec("info", Verb::Info, -1, &["loading"], [0, 0, 0], ["server", "1.0.0", "Describes this replica."]),
    spec("mget", Verb::Mget, -2, &["readonly", "fast"], [1, -1, 1], ["string", "1.0.0", "Reads the values of keys."]),
    spec("mset", Verb::Mset, -3, &["write", "denyoom"], [1, -1, 2], ["string", "1.0.1", "Writes several keys, all or none."]),
    spec("multi", Verb::Multi, 1, &["fast"], [0, 0, 0], ["transactions", "1.2.0", "Begins a transaction."]),
    spec("persist", Verb::Persist, 2, &["write", "fast"], [1, 1, 1], ["generic", "2.2.0", "Takes the expiry from a key."]),
    spec("pexpire", Verb::Pexpire, -3, &["write", "fast"], [1, 1, 1], ["generic", "2.6.0", "Lets a key expire after milliseconds."]),
    spec("pexpireat", Verb::Pexpireat, -3, &["write", "fast"], [1, 1, 1], ["generic", "2.6.0", "Lets a key expire at a millisecond of Unix time."]),
    spec("ping", Verb::Ping, -1, &["fast"], [0, 0, 0], ["connection", "1.0.0", "Says that the connection works."]),
    spec("psetex", Verb::Psetex, 4, &["write", "denyoom"], [1, 1, 1], ["string", "2.6.0", "Writes a value that expires after milliseconds."]),
    spec("pttl", Verb::Pttl, 2, &["readonly", "fast"], [1, 1, 1], ["generic", "2.6.0", "Says how many milliseconds a key has to live."]),
    spec("quit", Verb::Quit, -1, &["fast", "no_auth"], [0, 0, 0], ["connection", "1.0.0", "Ends the connection."]),
    spec("reset", Verb::Reset, 1, &["fast", "no_auth"], [0, 0, 0], ["connection", "6.2.0", "Makes the connection as new."]),
    spec("select", Verb::Select, 2, &["fast"], [0, 0, 0], ["connection", "1.0.0", "Chooses database 0, the only one."]),
    spec("set", Verb::Set, -3, &["write", "denyoom"], [1, 1, 1], ["string", "1.0.0", "Writes the value of a key."]),
    spec("setex", Verb::Setex, 4, &["write", "denyoom"], [1, 1, 1], ["string", "2.0.0", "Writes a value that expires after seconds."]),
    spec("setnx", Verb::Setnx, 3, &["write", "denyoom", "fast"], [1, 1, 1], ["string", "1.0.0", "Writes a value if the key does not exist."]),
    spec("strlen", Verb::Strlen, 2, &["readonly", "fast"], [1, 1, 1], ["string", "2.2.0", "Measures the value of a key."]),
    spec("touch", Verb::Touch, -2, &["readonly", "fast"], [1, -1, 1], ["generic", "3.2.1", "Counts which of the keys exist."]),
    spec("ttl", Verb::Ttl, 2, &["readonly", "fast"], [1, 1, 1], ["generic", "1.0.0", "Says how many seconds a key has to live."]),
    spec("type", Verb::Type, 2, &["readonly", "fast"], [1, 1, 1], ["generic", "1.0.0", "Says that a key holds a string, the only kind."]),
    spec("unlink", Verb::Unlink, -2, &["write", "fast"], [1, -1, 1], ["generic", "4.0.0", "Deletes keys."]),
    spec("unwatch", Verb::Unwatch, 1, &["fast"], [0, 0, 0], ["transactions", "2.2.0", "Forgets the watched keys."]),
    spec("watch", Verb::Watch, -2, &["fast"], [1, -1, 1], ["transactions", "2.2.0", "Lets the next transaction fail if one of the keys is changed."]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case_and_their_names_are_in_order() {
        assert!(SPECS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(SPECS.iter().all(|spec| spec.name.len() <= NAME_BYTES_MAX));
        for spec in SPECS {
            let found = find(spec.name.to_uppercase().as_bytes()).expect("it is there");
            assert_eq!(found.name, spec.name);
        }
        assert!(find(b"").is_none() && find(b"nosuchcommandatallanywhere").is_none());
    }

    #[test]
    fn a_request_has_as_many_parts_as_its_command_takes() {
        let takes = |name: &[u8], parts| find(name).expect("known").takes(parts);
        assert!(takes(b"get", 2) && !takes(b"get", 1) && !takes(b"get", 3));
        assert!(takes(b"del", 2) && takes(b"del", 9) && !takes(b"del", 1));
    }
}
