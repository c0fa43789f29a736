//! IPv4: one access, and a second one behind a link.

use super::{Lookups, TAG, draw};
use crate::by_hand::N;
use trine_kvstore::interleave::{batch, prefetch};
use trine_packets::ipv4::{Dir24, bgp_like};
use trine_transport::prng::Prng;

pub(super) struct Ipv4(Dir24);

impl Ipv4 {
    /// The table of the application, and random addresses.
    pub(super) fn new(prefixes: usize, prng: &mut Prng) -> (Self, Vec<Vec<u32>>) {
        let table = Dir24::build(&bgp_like(prefixes, prng)).expect("a table");
        (Self(table), draw(|| prng.next_u64() as u32))
    }
}

impl Lookups<u32> for Ipv4 {
    #[inline(never)]
    fn batched(&self, keys: &[u32]) -> u64 {
        let mut sum = 0;
        batch::<N, _>(
            keys.len(),
            |i| self.0.find::<TAG>(keys[i]),
            |_, hop| sum += u64::from(hop.unwrap_or(0)),
        );
        sum
    }

    #[inline(never)]
    fn by_hand(&self, keys: &[u32]) -> u64 {
        let table = &self.0;
        let mut sum = 0;
        for group in keys.chunks(N) {
            let mut left = [(0, 0); N];
            let mut count = 0;
            group.iter().for_each(|&key| prefetch(table.first(key)));
            for &key in group {
                let entry = *table.first(key);
                if Dir24::is_link(entry) {
                    prefetch(table.behind(entry, key));
                    left[count] = (entry, key);
                    count += 1;
                } else {
                    sum += u64::from(Dir24::hop(entry).unwrap_or(0));
                }
            }
            for &(entry, key) in &left[..count] {
                sum += u64::from(Dir24::hop(*table.behind(entry, key)).unwrap_or(0));
            }
        }
        sum
    }
}
