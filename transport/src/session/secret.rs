//! Unpredictable numbers and keyed hashes from one seed: SipHash-2-4 as a pseudorandom function.
//!
//! Peers see nonces, tokens and cookies; none of them tells anything about the next.

use std::hash::{Hash, Hasher};

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
        let mut hasher = SipHasher::new(self.draw_key);
        hasher.write_u64(self.drawn);
        hasher.finish().max(1)
    }

    /// Makes every cookie so far worthless: a client that returns one gets another.
    pub(crate) fn renew_cookies(&mut self) {
        self.cookie_key = [self.draw(), self.draw()];
    }

    /// The cookie for this CONNECT from this route at this time.
    pub(crate) fn cookie(&self, now: Instant, route: &impl Hash, connect: &Connect) -> u64 {
        self.cookie_of(period(now), route, connect)
    }

    /// Whether the CONNECT carries a cookie that this endpoint gave to this route lately.
    pub(crate) fn cookie_is_good(
        &self,
        now: Instant,
        route: &impl Hash,
        connect: &Connect,
    ) -> bool {
        let present = period(now);
        [present, present.wrapping_sub(1)]
            .iter()
            .any(|p| self.cookie_of(*p, route, connect) == connect.cookie)
    }

    fn cookie_of(&self, period: u64, route: &impl Hash, connect: &Connect) -> u64 {
        let mut hasher = SipHasher::new(self.cookie_key);
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

fn period(now: Instant) -> u64 {
    now.as_nanos() / COOKIE_PERIOD.as_nanos()
}

/// SipHash-2-4 (Aumasson, Bernstein 2012) over everything written, as one byte string.
struct SipHasher {
    state: [u64; 4],
    tail: u64,
    length: usize,
}

impl SipHasher {
    fn new(key: [u64; 2]) -> Self {
        let state = [
            key[0] ^ 0x736f_6d65_7073_6575,
            key[1] ^ 0x646f_7261_6e64_6f6d,
            key[0] ^ 0x6c79_6765_6e65_7261,
            key[1] ^ 0x7465_6462_7974_6573,
        ];
        Self {
            state,
            tail: 0,
            length: 0,
        }
    }
}

fn rounds(v: &mut [u64; 4], count: usize) {
    for _ in 0..count {
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[1]);
        v[0] = v[0].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    }
}

impl Hasher for SipHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.tail |= u64::from(*byte) << (8 * (self.length % 8));
            self.length += 1;
            if self.length.is_multiple_of(8) {
                self.state[3] ^= self.tail;
                rounds(&mut self.state, 2);
                self.state[0] ^= self.tail;
                self.tail = 0;
            }
        }
    }

    fn finish(&self) -> u64 {
        let mut v = self.state;
        let last = self.tail | (self.length as u64) << 56;
        v[3] ^= last;
        rounds(&mut v, 2);
        v[0] ^= last;
        v[2] ^= 0xff;
        rounds(&mut v, 4);
        v.iter().fold(0, |sum, word| sum ^ word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the paper's appendix A.
    #[test]
    fn siphash_gives_the_published_value() {
        let mut hasher = SipHasher::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
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
