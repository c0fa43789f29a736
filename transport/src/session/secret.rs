//! Unpredictable numbers and keyed hashes from one seed: SipHash-2-4 as a pseudorandom function.
//!
//! Peers see nonces, tokens and cookies; none of them tells anything about the next.

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher24;

use crate::prng::Prng;
use crate::time::{Duration, Instant};
use crate::wire::Connect;

/// How long a cookie is good for at least; twice that at most.
const COOKIE_PERIOD: Duration = Duration::from_secs(2);

/// An endpoint's secrets.
pub(crate) struct Secret {
    draw_key: [u64; 2],
    cookie_key: [u64; 2],
    drawn: u64,
}

impl Secret {
    pub(crate) fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let mut key = || [prng.next_u64(), prng.next_u64()];
        Self {
            draw_key: key(),
            cookie_key: key(),
            drawn: 0,
        }
    }

    /// A number that no outsider can foretell; never zero.
    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        let mut hasher = hasher(self.draw_key);
        hasher.write_u64(self.drawn);
        hasher.finish().max(1)
    }

    /// Makes every cookie so far worthless: a client that returns one gets another.
    pub(crate) fn renew_cookies(&mut self) {
        self.cookie_key = [self.draw(), self.draw()];
    }

    /// The cookie for this CONNECT from this route at this time.
    pub(crate) fn cookie(&self, now: Instant, route: &impl Hash, connect: &Connect) -> u64 {
        self.cookie_of(cookie_period(now), route, connect)
    }

    /// Whether the CONNECT carries a cookie that this endpoint gave to this route lately.
    pub(crate) fn cookie_is_good(
        &self,
        now: Instant,
        route: &impl Hash,
        connect: &Connect,
    ) -> bool {
        let present = cookie_period(now);
        [present, present.wrapping_sub(1)]
            .iter()
            .any(|p| self.cookie_of(*p, route, connect) == connect.cookie)
    }

    fn cookie_of(&self, period: u64, route: &impl Hash, connect: &Connect) -> u64 {
        let mut hasher = hasher(self.cookie_key);
        hasher.write_u64(period);
        route.hash(&mut hasher);
        // A cookie covers the whole wish, so that it cannot be spent on another one.
        (Connect {
            cookie: 0,
            ..*connect
        })
        .write()
        .hash(&mut hasher);
        hasher.finish().max(1)
    }
}

fn hasher([first, second]: [u64; 2]) -> SipHasher24 {
    SipHasher24::new_with_keys(first, second)
}

/// Cookies are good in the period in which they are given and in the next one.
pub(super) fn cookie_period(now: Instant) -> u64 {
    now.as_nanos() / COOKIE_PERIOD.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the paper's appendix A (Aumasson, Bernstein 2012): the keys are in the right order.
    #[test]
    fn siphash_gives_the_published_value() {
        let mut hasher = hasher([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        hasher.write(&(0..15).collect::<Vec<u8>>());
        assert_eq!(hasher.finish(), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn a_cookie_is_good_for_its_route_its_wish_and_a_while() {
        let secret = Secret::new(1);
        let now = Instant::from_nanos(10_000_000_000);
        let wish = Connect {
            client_session: 3,
            credits: 32,
            slots: 8,
            features: crate::wire::Features::NONE,
            mtu: 1472,
            nonce: 5,
            cluster: 0,
            incarnation: 9,
            cookie: 0,
        };
        let back = Connect {
            cookie: secret.cookie(now, &7u32, &wish),
            ..wish
        };
        assert!(secret.cookie_is_good(now, &7u32, &back));
        assert!(
            secret.cookie_is_good(now + COOKIE_PERIOD, &7u32, &back),
            "a cookie of the last period"
        );
        assert!(
            !secret.cookie_is_good(now + COOKIE_PERIOD * 2, &7u32, &back),
            "an old cookie"
        );
        assert!(
            !secret.cookie_is_good(now, &8u32, &back),
            "somebody else's cookie"
        );
        assert!(
            !secret.cookie_is_good(now, &7u32, &Connect { nonce: 6, ..back }),
            "another wish"
        );
        assert!(
            !Secret::new(2).cookie_is_good(now, &7u32, &back),
            "another server's cookie"
        );
    }
}
