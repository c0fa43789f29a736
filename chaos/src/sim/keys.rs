//! Keys of a simulated group: one for all machines, and ephemeral keys that follow from the seed.

use std::sync::Arc;

use trine_keys::{ClusterKey, GroupId};
use trine_transport::keys::{KeyId, KeyRing, Keys, OwnKey, Psk, Stage};
use trine_transport::prng::Prng;

/// The share of seeds whose groups are sealed: one in so many.
const SEALED_ONE_IN: u64 = 3;

/// Whether a seed's group is sealed. Drawn apart, so that the other seeds run as they did before there were keys.
pub(super) fn is_drawn(seed: u64) -> bool {
    Prng::new(seed ^ 0x005e_a1ed_005e_a1ed).below(SEALED_ONE_IN) == 0
}

/// Keys that every machine of a group holds and requires. `endpoint` is the number of the endpoint that gets them: no two
/// have the same ephemeral keys.
pub(super) fn of_group(seed: u64, endpoint: u64) -> Keys {
    Keys {
        stage: Stage::Require,
        ring: Arc::new(OneKey),
        own: Some(OwnKey {
            id: member().0,
            psk: member().1,
        }),
        key_log: None,
        entropy: Arc::new(move || {
            let mut bytes = [0; 32];
            Prng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ endpoint).fill(&mut bytes);
            bytes
        }),
    }
}

/// The key of the group's members. Clients have it, too: what users may do has tests of its own.
fn member() -> (KeyId, Psk) {
    let cluster = ClusterKey::new(GroupId([1; 8]), [2; 32], [3; 32]);
    let (id, psk) = cluster.member();
    let id = KeyId::new(&id.encode()).expect("a short name");
    (id, Psk::new(*psk.bytes()))
}

struct OneKey;

impl KeyRing for OneKey {
    fn find(&self, key: &KeyId) -> Option<Psk> {
        let (id, psk) = member();
        (id == *key).then_some(psk)
    }

    fn goes_first(&self, _: &KeyId) -> bool {
        true
    }
}
