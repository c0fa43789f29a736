//! What must hold between any two calls; tests ask after each packet.

use super::NO_REQUEST;
use crate::backend::Route;
use crate::endpoint::Endpoint;
use crate::session::Role;

impl<R: Route> Endpoint<R> {
    /// Credits in use are the sum over slots of packets sent less packets answered, and the
    /// memory for arriving requests is accounted for to the byte.
    pub(crate) fn check_invariants(&self) {
        let mut assembly_bytes = 0;
        for session in self.sessions.iter() {
            match &session.role {
                Role::Client(client) => {
                    let requests = client
                        .slots
                        .iter()
                        .map(|slot| slot.request)
                        .filter(|r| *r != NO_REQUEST);
                    let in_use: u32 = requests
                        .map(|r| u32::from(self.requests[r].in_flight()))
                        .sum();
                    assert_eq!(
                        in_use,
                        u32::from(session.terms.credits - client.credits),
                        "credits in use"
                    );
                }
                Role::Server(server) => {
                    let parts = server
                        .slots
                        .iter()
                        .filter_map(|slot| slot.assembly.as_ref());
                    assembly_bytes += parts.map(|part| part.len()).sum::<usize>();
                }
            }
        }
        assert_eq!(
            assembly_bytes,
            self.memory.assembly_bytes(),
            "assembly memory"
        );
    }
}
