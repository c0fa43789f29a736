//! Named data: for each prefix of a name, from the longest, up to two buckets and a record.

use super::{Lookups, SETS, TAG};
use crate::by_hand::N;
use trine_kvstore::interleave::{batch, prefetch};
use trine_packets::names::{Name, NameTable, Prefix, encode, random_names};
use trine_transport::prng::Prng;

/// Lookups of one run; each of several prefixes.
const LOOKUPS: usize = 1 << 18;

pub(super) struct Names(NameTable);

impl Names {
    /// A table of names, and names that begin with some of them, with up to two components more.
    pub(super) fn new(count: usize, prng: &mut Prng) -> (Self, Vec<Vec<Name<'static>>>) {
        let prefixes = random_names(count, 4, prng);
        let table = NameTable::build(&prefixes, prng).expect("a table");
        let seed = table.seed();
        let keys = (0..SETS).map(|_| names(&prefixes, seed, prng)).collect();
        (Self(table), keys)
    }
}

/// Their bytes lie one behind the other, as those of packets in a cache do: no lookup waits for them. They live as long as
/// the benchmark.
fn names(prefixes: &[Prefix], seed: u64, prng: &mut Prng) -> Vec<Name<'static>> {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..LOOKUPS {
        let prefix = &prefixes[prng.below(prefixes.len() as u64) as usize];
        bytes.extend_from_slice(&prefix.name);
        for _ in 0..prng.below(3) {
            bytes.extend_from_slice(&encode(&[prng.next_u64().to_be_bytes()]));
        }
        ends.push(bytes.len());
    }
    let mut rest: &'static [u8] = bytes.leak();
    let mut begin = 0;
    let name = |end: usize| {
        let (name, behind) = rest.split_at(end - begin);
        (rest, begin) = (behind, end);
        Name::of(name, seed).expect("a well-formed name")
    };
    ends.into_iter().map(name).collect()
}

/// Where the lookup of a name is.
#[derive(Copy, Clone, Default)]
struct At {
    components: usize,
    hash: u64,
    buckets: [usize; 2],
    matching: u32,
}

impl Lookups<Name<'static>> for Names {
    #[inline(never)]
    fn batched(&self, keys: &[Name<'static>]) -> u64 {
        let mut sum = 0;
        batch::<N, _>(
            keys.len(),
            |i| self.0.find_longest::<TAG>(&keys[i]),
            |_, port| sum += port.map_or(0, |port| u64::from(port) + 1),
        );
        sum
    }

    #[inline(never)]
    fn by_hand(&self, keys: &[Name<'static>]) -> u64 {
        let mut sum = 0;
        for group in keys.chunks(N) {
            let mut at = [At::default(); N];
            let (mut looking, mut looking_count) = ([0; N], 0);
            for (lane, name) in group.iter().enumerate() {
                at[lane].components = name.components().min(self.0.longest());
                if at[lane].components > 0 {
                    self.to_prefix(name, &mut at[lane]);
                    looking[looking_count] = lane;
                    looking_count += 1;
                }
            }
            while looking_count > 0 {
                let (mut reading, mut reading_count) = ([0; N], 0);
                let mut kept = 0;
                for index in 0..looking_count {
                    let lane = looking[index];
                    if self.look(&mut at[lane]) {
                        reading[reading_count] = lane;
                        reading_count += 1;
                    } else if self.advance(&group[lane], &mut at[lane]) {
                        looking[kept] = lane;
                        kept += 1;
                    }
                }
                for &lane in &reading[..reading_count] {
                    if let Some(port) = self.read(&group[lane], at[lane]) {
                        sum += u64::from(port) + 1;
                    } else if self.advance(&group[lane], &mut at[lane]) {
                        looking[kept] = lane;
                        kept += 1;
                    }
                }
                looking_count = kept;
            }
        }
        sum
    }
}

impl Names {
    /// Prefetches both buckets of the prefix with so many components.
    #[inline(always)]
    fn to_prefix(&self, name: &Name<'_>, at: &mut At) {
        at.hash = name.prefix(at.components).1;
        at.buckets = self.0.buckets_of(at.hash);
        for bucket in at.buckets {
            prefetch(self.0.buckets().bucket(bucket));
        }
    }

    /// Prefetches what comes after a prefix that is not there; false if nothing does.
    #[inline(always)]
    fn advance(&self, name: &Name<'_>, at: &mut At) -> bool {
        at.components -= 1;
        if at.components == 0 {
            return false;
        }
        self.to_prefix(name, at);
        true
    }

    /// Prefetches the record that the buckets have for the prefix; false if they have none.
    #[inline(always)]
    fn look(&self, at: &mut At) -> bool {
        at.matching = self.0.matching(at.buckets, at.hash);
        if at.matching == 0 {
            return false;
        }
        let record = self.0.record(at.buckets, at.matching);
        prefetch(self.0.first_byte(record));
        true
    }

    /// Compares the records. A second one with the same tag is so rare that nothing waits for it.
    #[inline(always)]
    fn read(&self, name: &Name<'_>, at: At) -> Option<u8> {
        let prefix = name.prefix(at.components).0;
        let mut matching = at.matching;
        while matching != 0 {
            let record = self.0.record(at.buckets, matching);
            if let Some(port) = self.0.port_at(record, prefix) {
                return Some(port);
            }
            matching &= matching - 1;
        }
        None
    }
}
