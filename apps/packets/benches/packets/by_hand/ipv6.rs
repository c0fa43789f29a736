//! IPv6: a chain of four to six accesses.

use super::{Lookups, TAG, draw};
use crate::by_hand::N;
use trine_kvstore::interleave::{batch, prefetch};
use trine_packets::ipv6::{Table6, random_routes};
use trine_transport::prng::Prng;

/// Bits of the first index.
const FIRST_BITS: u32 = 24;

pub(super) struct Ipv6(Table6);

impl Ipv6 {
    /// The table of the application, and random addresses that have a route.
    pub(super) fn new(prefixes: usize, prng: &mut Prng) -> (Self, Vec<Vec<u128>>) {
        let routes = random_routes(prefixes, prng);
        let table = Table6::build(&routes).expect("a table");
        let keys = draw(|| {
            let route = &routes[prng.below(prefixes as u64) as usize];
            let host = u128::MAX.checked_shr(u32::from(route.length)).unwrap_or(0);
            let random = u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64());
            route.start() | random & host
        });
        (Self(table), keys)
    }
}

impl Lookups<u128> for Ipv6 {
    #[inline(never)]
    fn batched(&self, keys: &[u128]) -> u64 {
        let mut sum = 0;
        batch::<N, _>(
            keys.len(),
            |i| self.0.find::<TAG>(keys[i]),
            |_, hop| sum += u64::from(hop.unwrap_or(0)),
        );
        sum
    }

    #[inline(never)]
    fn by_hand(&self, keys: &[u128]) -> u64 {
        let table = &self.0;
        let mut sum = 0;
        for group in keys.chunks(N) {
            let mut at = [table.first(0); N];
            let mut lanes: [usize; N] = std::array::from_fn(|lane| lane);
            let mut live = group.len();
            for (at, &key) in at.iter_mut().zip(group) {
                *at = table.first((key >> 64) as u64);
                prefetch(*at);
            }
            let mut bits = FIRST_BITS;
            while live > 0 {
                let mut kept = 0;
                for index in 0..live {
                    let lane = lanes[index];
                    let entry = *at[lane];
                    if !Table6::is_link(entry) {
                        sum += u64::from(Table6::hop(entry).unwrap_or(0));
                        continue;
                    }
                    at[lane] = table.behind(entry, (group[lane] << bits >> 120) as u8);
                    prefetch(at[lane]);
                    lanes[kept] = lane;
                    kept += 1;
                }
                live = kept;
                bits += 8;
            }
        }
        sum
    }
}
