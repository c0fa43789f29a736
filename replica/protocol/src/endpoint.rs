//! The transport's settings that both ends of the protocol use.

use trine_transport::Config;

/// The transport's settings that suit a replica or a client: as many requests a session as a client may pipeline, a
/// packet for each, and more sessions than the receive queue has room for at one moment. A machine with the kernel's
/// usual limits would otherwise accept three clients. The loss that a burst of all sessions can bring is repaired and
/// counted.
#[must_use]
pub fn endpoint_config() -> Config {
    Config {
        slots: 64,
        credits: 64,
        overcommit: true,
        sessions: 4096,
        // Each member has two sessions to each other one, and some that died and are not timed out yet.
        sessions_reserved: 64,
        ..Config::default()
    }
}
