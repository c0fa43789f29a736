//! A session's packets, as its seal has them.

use super::seal::{Seal, Sealed, mark};
use super::{ConnectError, Role, Session};
use crate::backend::Route;
use crate::keys::KeyId;
use crate::rpc::Control;
use crate::time::Instant;
use crate::wire::{Header, PacketType, Probe, Seed};

impl<R: Route> Session<R> {
    /// Whether its packets are sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        matches!(self.seal, Seal::On(_))
    }

    pub(crate) fn sealed(&mut self) -> Option<&mut Sealed> {
        match &mut self.seal {
            Seal::On(sealed) => Some(sealed),
            Seal::Off | Seal::Asked(_) => None,
        }
    }

    /// The key that its peer has proven to hold.
    pub(crate) fn key(&self) -> Option<KeyId> {
        match &self.seal {
            Seal::On(sealed) => Some(sealed.key),
            Seal::Off | Seal::Asked(_) => None,
        }
    }

    /// Its keys have been used for so long that it must end. A server leaves the client some time to do that itself.
    pub(crate) fn has_worn_keys(&self, now: Instant) -> bool {
        match (&self.seal, &self.role) {
            (Seal::On(sealed), Role::Client(_)) => sealed.is_worn(now),
            (Seal::On(sealed), Role::Server(_)) => sealed.is_overdue(now),
            (Seal::Off | Seal::Asked(_), _) => false,
        }
    }

    /// The key of a handshake that this end has begun and that is not over.
    pub(super) fn asked_key(&self) -> Option<KeyId> {
        match &self.seal {
            Seal::Asked(attempt) => Some(attempt.key_id()),
            Seal::Off | Seal::On(_) => None,
        }
    }

    /// What packets change in it, in words.
    #[cfg(test)]
    pub(crate) fn describe(&self) -> String {
        let seal = match &self.seal {
            Seal::On(sealed) => format!("{:?} {:?}", sealed.sealer, sealed.opener),
            Seal::Off | Seal::Asked(_) => "no keys".into(),
        };
        let (state, heard_at, probe) = (self.state, self.heard_at, self.probe);
        let doubted_at = self.doubted_at();
        format!("{state:?} {heard_at:?} {probe:?} {doubted_at:?} {seal}")
    }

    /// When its peer was said not to know it.
    pub(super) fn doubted_at(&self) -> Option<Instant> {
        match &self.seal {
            Seal::On(sealed) => sealed.doubted_at,
            Seal::Off | Seal::Asked(_) => None,
        }
    }

    /// What a server is said to have against the session that a client asks for.
    pub(super) fn obstacle(&self) -> Option<ConnectError> {
        match &self.seal {
            Seal::Asked(attempt) => attempt.obstacle,
            Seal::Off | Seal::On(_) => None,
        }
    }

    /// Whether this body of a PING or a DISCONNECT names it.
    pub(crate) fn is_probed_by(&self, body: &[u8]) -> bool {
        Probe::read(body).is_some_and(|(probe, _)| probe.nonce == self.nonce)
    }

    /// From now on packets are sealed.
    pub(super) fn seal(&mut self, index: u16, sealed: Sealed) {
        self.seed = Seed::sealed(mark(index, self.generation));
        self.seal = Seal::On(Box::new(sealed));
    }

    /// The mark of its packets that wait to be sealed.
    pub(super) fn has_mark(&self, index: u16, of: u32) -> bool {
        mark(index, self.generation) == of
    }

    /// Largest packet.
    pub(crate) fn mtu(&self) -> usize {
        let mtu = self.terms.mtu;
        usize::from(mtu)
    }

    /// A control packet of this session, as it will be sent.
    pub(crate) fn control(&mut self, header: &Header, body: &[u8]) -> Control<R> {
        let is_probe = matches!(
            header.packet_type,
            PacketType::Ping | PacketType::Disconnect
        );
        let route = self.route;
        if let Seal::On(sealed) = &mut self.seal {
            let key: &[u8] = if is_probe { &sealed.key } else { &[] };
            return Control::sealed(route, header, &[body, key].concat(), &mut sealed.sealer);
        }
        // The receiver of a probe must understand it without a session.
        let seed = if is_probe { Seed::NONE } else { self.seed };
        Control::new(route, header, seed, body)
    }
}
