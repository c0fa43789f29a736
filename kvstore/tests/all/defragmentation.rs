//! Snapshots while defragmentation moves the items that are kept for them.
//!
//! A review found that such a snapshot ended the replica. An item that is overwritten or deleted before a running
//! snapshot has passed it stays as a shadow. Its block's bytes are counted in, and out again when it is written.
//! Defragmentation moves shadows as it moves everything else, and the new block may be a granule larger: a hole that
//! would leave less than a block behind is taken whole. So more was counted out than in, or with several shadows the
//! sum no longer came to nothing. Then the assertion at the end of the snapshot failed, or the one at the end of
//! clearing an abandoned one away. It failed on every replica, with nothing but ordinary writes and deletes.

use trine_kvstore::{Command, Limits, Position, SnapshotReader, SnapshotStep, Store};

/// Fills about four regions of 16 MiB.
const KEYS: u64 = 100_000;
/// The longest value. The sizes differ, so that freed blocks leave holes of all sizes.
const VALUE_BYTES_MAX: usize = 1_000;
/// Of this many keys next to each other, one goes in each round: regions become sparse evenly.
const ROUNDS: u64 = 8;
/// Overwritten while each snapshot is open: enough for defragmentation to get through a region.
const WRITES: u64 = 3_000;

struct Bench {
    store: Store,
    index: u64,
    random: u64,
}

impl Bench {
    fn filled() -> Self {
        let limits = Limits {
            memory_bytes: 1 << 30,
            ..Limits::default()
        };
        let mut bench = Self {
            store: Store::new(limits, [1, 2]),
            index: 0,
            random: 88_172_645_463_325_252,
        };
        (0..KEYS).for_each(|number| bench.put(number));
        bench
    }

    /// xorshift64.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn apply(&mut self, command: &Command<'_>) {
        self.index += 1;
        self.store.apply(Position::new(self.index, 0), command);
    }

    fn put(&mut self, number: u64) {
        let bytes = self.random() as usize % VALUE_BYTES_MAX;
        self.apply(&Command::Put {
            key: &number.to_le_bytes(),
            value: &[7; VALUE_BYTES_MAX][..bytes],
        });
    }

    /// Deletes this round's keys.
    fn thin_out(&mut self, round: u64) {
        for number in (round..KEYS).step_by(ROUNDS as usize) {
            let key = &number.to_le_bytes();
            self.apply(&Command::Delete { key });
        }
    }

    /// Overwrites keys that no round has deleted yet.
    fn overwrite_some(&mut self, round: u64) {
        for _ in 0..WRITES {
            let number = self.random() % KEYS;
            if number % ROUNDS > round {
                self.put(number);
            }
        }
    }
}

#[test]
fn a_snapshot_ends_well_when_what_it_keeps_is_moved() {
    let mut bench = Bench::filled();
    for round in 0..ROUNDS - 1 {
        bench.thin_out(round);
        let begun = bench.store.begin_snapshot().expect("none is running");
        bench.overwrite_some(round);
        let mut reader = SnapshotReader::new();
        loop {
            let mut chunk = Vec::new();
            let step = bench.store.snapshot_chunk(&mut chunk).expect("it goes on");
            if step != SnapshotStep::Pending {
                reader.push(&chunk).expect("a whole chunk");
            }
            if step == SnapshotStep::Last {
                break;
            }
        }
        let restored = reader.finish().expect("the state at the beginning");
        assert_eq!(restored.state_hash(), begun.state_hash);
    }
}

#[test]
fn an_abandoned_snapshot_is_cleared_away_when_what_it_kept_is_moved() {
    let mut bench = Bench::filled();
    for round in 0..ROUNDS - 1 {
        bench.thin_out(round);
        bench.store.begin_snapshot().expect("none is running");
        bench.overwrite_some(round);
        bench.store.abandon_snapshot();
        while !bench.store.clear_snapshot() {}
    }
}
