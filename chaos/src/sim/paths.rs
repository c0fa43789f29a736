//! Paths that carry little, from the first packet to the last: what is longer is lost, as whole datagrams.
//!
//! Either every machine wishes for packets that its paths carry. Then no datagram may ever be longer than a path carries.
//! Or some machines were told of paths that carry more. Then full packets vanish until the transport has noticed it.

use super::{Host, SimConfig};
use trine_transport::backend::{PACKET_EVERYWHERE, PacketSizes};
use trine_transport::prng::Prng;

/// What the machines' devices carry.
pub(crate) const DEVICE_BYTES: usize = 1_472;

/// The paths of a run.
#[derive(Debug)]
pub(crate) struct Paths {
    prng: Prng,
    /// Bytes of a datagram that all paths carry.
    pub(crate) carries: usize,
    /// Bytes that some machines were told of, more than `carries`. Nothing where nobody was told too much.
    promised: Option<u16>,
}

impl Paths {
    /// The paths of a run, if they carry little.
    pub(crate) fn of(config: &SimConfig) -> Option<Self> {
        config.has_small_paths().then(|| Self::of_seed(config.seed))
    }

    fn of_seed(seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ 0x9a75_0a17_9a75_0a17);
        let least = PACKET_EVERYWHERE as u64;
        let carries = prng.in_range(least..=DEVICE_BYTES as u64 - 1);
        let is_broken = prng.below(3) == 0;
        let promised = is_broken.then(|| prng.in_range(carries + 1..=DEVICE_BYTES as u64) as u16);
        Self {
            prng,
            carries: carries as usize,
            promised,
        }
    }

    /// Whether no machine was told too much.
    pub(crate) fn keep_promises(&self) -> bool {
        self.promised.is_none()
    }

    /// The sizes that the next machine to start wishes for.
    pub(crate) fn sizes(&mut self) -> PacketSizes<Host> {
        let own = match self.prng.below(4) {
            0 => self.prng.in_range(512..=self.carries as u64) as u16,
            _ => PACKET_EVERYWHERE as u16,
        };
        let told = self.promised.filter(|_| self.prng.below(4) != 0);
        // No machine has its own network beside the simulated one.
        let far = told.unwrap_or(own);
        PacketSizes::by_route(far, far, |_| false)
    }
}
