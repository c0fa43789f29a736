//! The switch: a bucket, and the other one if the station is not there.

use super::{Lookups, TAG, draw};
use crate::by_hand::N;
use trine_kvstore::interleave::{batch, prefetch};
use trine_packets::switch::{Stations, random_stations};
use trine_transport::prng::Prng;

pub(super) struct Switch(Stations);

impl Switch {
    /// A table of stations, and the addresses of some.
    pub(super) fn new(count: usize, prng: &mut Prng) -> (Self, Vec<Vec<u64>>) {
        let stations = random_stations(count, 4, prng);
        let table = Stations::build(&stations, prng).expect("a table");
        let keys = draw(|| stations[prng.below(count as u64) as usize].mac);
        (Self(table), keys)
    }
}

impl Lookups<u64> for Switch {
    #[inline(never)]
    fn batched(&self, keys: &[u64]) -> u64 {
        let mut sum = 0;
        batch::<N, _>(
            keys.len(),
            |i| self.0.find::<TAG>(keys[i]),
            |_, port| sum += u64::from(port.unwrap_or(0)),
        );
        sum
    }

    #[inline(never)]
    fn by_hand(&self, keys: &[u64]) -> u64 {
        let table = &self.0;
        let mut sum = 0;
        for group in keys.chunks(N) {
            let mut buckets = [[0; 2]; N];
            let mut left = [0; N];
            let mut count = 0;
            for (buckets, &key) in buckets.iter_mut().zip(group) {
                *buckets = table.buckets(key);
                prefetch(table.table().bucket(buckets[0]));
            }
            for (lane, &key) in group.iter().enumerate() {
                match table.find_in(buckets[lane][0], key) {
                    Some(port) => sum += u64::from(port),
                    None => {
                        prefetch(table.table().bucket(buckets[lane][1]));
                        left[count] = lane;
                        count += 1;
                    }
                }
            }
            for &lane in &left[..count] {
                sum += u64::from(table.find_in(buckets[lane][1], group[lane]).unwrap_or(0));
            }
        }
        sum
    }
}
