//! Users of a group at work, and commands as messages carry them.

use trine_keys::{Credential, Fingerprint, GroupId as KeyGroup, Issuer, UserName};
use trine_kvstore::{Command, Rights};
use trine_replica::rights::Caller;
use trine_replica_harness::World;
use trine_replica_harness::client::Wish;

/// Who made the users' keys.
pub(crate) const ISSUER: Issuer = Issuer {
    group: KeyGroup([1; 8]),
    root: Fingerprint([2; 4]),
};

pub(crate) fn name(name: &str) -> UserName {
    name.parse().expect("a name")
}

/// A user who has shown a key of this generation: the first user that is added has 1, the next 2.
pub(crate) fn user(who: &str, generation: u32) -> Caller {
    let name = name(who);
    Caller::Proven(Credential::User { name, generation })
}

/// The command as a message carries it.
pub(crate) fn encoded(command: &Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    bytes
}

/// Adds a user with these rights, as the client `admin`.
pub(crate) fn add_user(world: &mut World, admin: usize, who: &str, rights: Rights<'_>) {
    let add = Command::AddUser {
        issuer: ISSUER,
        name: name(who),
        rights,
    };
    world.get_done(admin, Wish::Write(encoded(&add)));
}
