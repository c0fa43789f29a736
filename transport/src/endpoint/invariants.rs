//! Conditions that hold between any two calls, and questions of tests beyond the public functions.

use super::Endpoint;
use crate::backend::Route;
use crate::session::{Role, SessionId};
use crate::time::Instant;

impl<R: Route> Endpoint<R> {
    /// Credits in use are the sum over slots of packets sent less packets answered. The memory of arriving requests and of
    /// responses is accounted for to the byte. Each server end is counted for one holder.
    pub(crate) fn check_invariants(&self) {
        let (mut assembly_bytes, mut response_bytes) = (0, 0);
        for session in self.sessions.iter() {
            match session.role() {
                Role::Client(client) => client.check_credits(&session.terms(), &self.requests),
                Role::Server(server) => {
                    assembly_bytes += server.assembly_bytes();
                    response_bytes += server.response_bytes();
                }
            }
        }
        assert_eq!(
            assembly_bytes,
            self.memory.assembly_bytes(),
            "assembly memory"
        );
        let counted = self.memory.response_bytes();
        assert_eq!(response_bytes, counted, "memory of responses");
        self.memory.check();
        self.sessions.check_shares();
    }

    /// Memory in use by requests that are being received.
    pub(crate) fn assembly_bytes(&self) -> usize {
        self.memory.assembly_bytes()
    }

    /// Sessions that wait for proof of their keys.
    pub(crate) fn half_open(&self) -> usize {
        self.sessions.half_open()
    }

    /// A session has sealed as many packets as its keys may.
    pub(crate) fn wear_keys(&mut self, session: SessionId) {
        let sealed = self.sessions.entry(session.index).sealed();
        let sealer = &mut sealed.expect("a sealed session").sealer;
        sealer.wear();
    }

    /// A session has opened more packets than its peer should have sealed.
    pub(crate) fn wear_keys_of_peer(&mut self, session: SessionId) {
        let sealed = self.sessions.entry(session.index).sealed();
        sealed.expect("a sealed session").opener.wear();
    }

    /// As if the handshake had been at this moment.
    pub(crate) fn renew_keys(&mut self, session: SessionId, now: Instant) {
        let sealed = self.sessions.entry(session.index).sealed();
        sealed.expect("a sealed session").since = now;
    }

    /// A session goes on as if so many packets had been sealed in each direction.
    pub(crate) fn skip_packets(&mut self, session: u16, packets: u64) {
        let sealed = self.sessions.entry(session).sealed();
        let sealed = sealed.expect("a sealed session");
        sealed.sealer.skip_to(packets);
        sealed.opener.skip_to(packets - 1);
    }

    /// What a packet that is taken in changes in sessions, in words.
    pub(crate) fn describe_sessions(&self) -> String {
        let sessions = self.sessions.iter();
        let words: Vec<String> = sessions.map(|session| session.describe()).collect();
        words.join("; ")
    }

    /// The first slot of the first session, in words.
    pub(crate) fn describe_slot(&self) -> String {
        match self.sessions.iter().next().map(|session| session.role()) {
            None => "no session".into(),
            Some(Role::Client(client)) => client.describe_slot(&self.requests),
            Some(Role::Server(server)) => server.describe_slot(),
        }
    }

    /// The first slot of a client end has had so many requests.
    pub(crate) fn set_sequence(&mut self, session: u16, sequence: u64) {
        let client = self.sessions.entry(session).client();
        client.expect("a client").set_sequence(sequence);
    }
}
