//! Keys of a simulated group: the file on each machine of a replica, and ephemeral keys that follow from the seed.

use super::Host;
use std::sync::Arc;
use trine_keys::config::KEY_BYTES;
use trine_keys::{ClusterKey, Credential, GroupId, Issuer, KeyRing, Presented, UserName};
use trine_transport::keys::{self, KeyId, Keys, NoKeys, OwnKey, Psk, Stage};
use trine_transport::prng::Prng;

/// The share of seeds whose groups are sealed: one in so many.
const SEALED_ONE_IN: u64 = 3;
/// The member root that a group begins with; each later one is the next.
const FIRST_ROOT: u8 = 10;

/// Whether a seed's group is sealed. Drawn apart, so that the other seeds run as they did before there were keys.
pub(super) fn is_drawn(seed: u64) -> bool {
    Prng::new(seed ^ 0x005e_a1ed_005e_a1ed).below(SEALED_ONE_IN) == 0
}

/// Whose key an endpoint has.
#[derive(Copy, Clone, Debug)]
pub(crate) enum KeyOf {
    /// The replica of this machine, as its file says.
    Replica(Host),
    /// A holder of the key file.
    Holder,
    /// A user, with a generation.
    User(UserName, u32),
}

/// How far a change of the member root has come. All machines take a step before any takes the next one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum RotationStep {
    Accept,
    Switch,
    Settle,
}

/// The key files of a group, and the change of the member root that is under way.
#[derive(Debug)]
pub(crate) struct GroupKeys {
    seed: u64,
    /// The file of each replica's machine. A replica that starts again reads it again.
    files: Vec<ClusterKey>,
    /// The last member root that was made.
    root: u8,
    /// The step that is under way, and how many machines have taken it.
    change: Option<(RotationStep, usize)>,
    endpoints: u64,
}

impl GroupKeys {
    /// The same file on every machine.
    pub(crate) fn new(seed: u64, replicas: usize) -> Self {
        Self {
            seed,
            files: vec![cluster(); replicas],
            root: FIRST_ROOT,
            change: None,
            endpoints: 0,
        }
    }

    /// What the users' keys are made of.
    pub(crate) fn issuer() -> Issuer {
        cluster().issuer()
    }

    /// The keys of a new endpoint. No two have the same ephemeral keys.
    pub(crate) fn of(&mut self, whose: KeyOf) -> Keys {
        self.endpoints += 1;
        let endpoint = self.endpoints;
        match whose {
            KeyOf::Replica(host) => of_file(&self.files[host.index()], self.seed, endpoint),
            KeyOf::Holder => of_client(&Presented::admin(&cluster()), self.seed, endpoint),
            KeyOf::User(name, generation) => {
                let key = cluster().user_key(name, generation);
                of_client(&Presented::user(&key), self.seed, endpoint)
            }
        }
    }

    /// Begins to change the member root, unless a change is under way.
    pub(crate) fn begin_change(&mut self) -> bool {
        let begins = self.change.is_none() && self.root < u8::MAX;
        if begins {
            self.root += 1;
            self.change = Some((RotationStep::Accept, 0));
        }
        begins
    }

    /// Takes the next step at the next machine, and returns it with its new keys. None if no change is under way.
    pub(crate) fn go_on(&mut self) -> Option<(Host, Keys)> {
        let (step, taken) = self.change?;
        let file = self.files[taken].clone();
        let next = match step {
            RotationStep::Accept => file.accepting([self.root; KEY_BYTES]),
            RotationStep::Switch => file.switched(),
            RotationStep::Settle => file.settled(),
        };
        self.files[taken] = next.expect("each machine takes the steps in their order");
        let host = Host(taken as u16);
        self.change = match (step, taken + 1 < self.files.len()) {
            (step, true) => Some((step, taken + 1)),
            (RotationStep::Accept, false) => Some((RotationStep::Switch, 0)),
            (RotationStep::Switch, false) => Some((RotationStep::Settle, 0)),
            (RotationStep::Settle, false) => None,
        };
        Some((host, self.of(KeyOf::Replica(host))))
    }

    /// Whether the file on a replica's machine has the key of this name.
    pub(crate) fn knows(&self, host: Host, key: &KeyId) -> bool {
        KeyRing::new([self.files[host.index()].clone()])
            .psk(key)
            .is_some()
    }
}

/// Keys of a machine that is a member's and a client's at once, for the simulation of the transport alone.
pub(super) fn of_peer(seed: u64, endpoint: u64) -> Keys {
    of_file(&cluster(), seed, endpoint)
}

fn cluster() -> ClusterKey {
    ClusterKey::new(GroupId([1; 8]), [FIRST_ROOT; KEY_BYTES], [3; KEY_BYTES])
}

fn of_file(file: &ClusterKey, seed: u64, endpoint: u64) -> Keys {
    let ring = Arc::new(Ring(KeyRing::new([file.clone()])));
    keys_with(ring, &Presented::member(file), seed, endpoint)
}

fn of_client(presented: &Presented, seed: u64, endpoint: u64) -> Keys {
    keys_with(Arc::new(NoKeys), presented, seed, endpoint)
}

fn keys_with(ring: Arc<dyn keys::KeyRing>, own: &Presented, seed: u64, endpoint: u64) -> Keys {
    let id = KeyId::new(&own.key_id().encode()).expect("a short name");
    let psk = Psk::new(*own.psk().bytes());
    Keys {
        stage: Stage::Require,
        ring,
        own: Some(OwnKey { id, psk }),
        key_log: None,
        entropy: Arc::new(move || {
            let mut bytes = [0; 32];
            Prng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ endpoint).fill(&mut bytes);
            bytes
        }),
    }
}

/// A file's keys, as a replica's endpoint asks for them.
struct Ring(KeyRing);

impl keys::KeyRing for Ring {
    fn find(&self, key: &KeyId) -> Option<Psk> {
        let psk = self.0.psk(key)?;
        Some(Psk::new(*psk.bytes()))
    }

    fn goes_first(&self, key: &KeyId) -> bool {
        Credential::parse(key) == Some(Credential::Member)
    }
}
