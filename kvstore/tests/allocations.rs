//! A process of its own, because its allocator counts: reads and writes over existing items allocate nothing.

use trine_allocations::{Counting, of_this_thread};
use trine_kvstore::{Cache, CacheConfig, Command, Limits, Position, Response, Store};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const KEYS: u32 = 3_000;

#[test]
fn the_data_path_of_the_store_allocates_nothing() {
    let mut store = Store::new(Limits::default(), [1, 2]);
    let mut index = 0;
    let mut round = |store: &mut Store, size: usize| {
        let (value, mut answer) = (vec![b'1'; size], vec![0; 256]);
        of_this_thread(|| {
            for key in 0..KEYS {
                index += 1;
                let key = key.to_le_bytes();
                let commands = [
                    Command::Put {
                        key: &key,
                        value: &value,
                    },
                    Command::Get { key: &key },
                    Command::Append {
                        key: &key,
                        value: b"1",
                    },
                ];
                for (place, command) in (0..).zip(&commands) {
                    let response = store.apply(Position::new(index, place), command);
                    assert!(!matches!(response, Response::Error(_)));
                    response
                        .encode_into(&mut answer)
                        .expect("the answer is short");
                }
            }
        })
    };
    round(&mut store, 100);
    assert_eq!(round(&mut store, 60), 0, "smaller values");
    assert_eq!(
        round(&mut store, 140),
        0,
        "larger values move, within the regions that are there"
    );
}

#[test]
fn a_cache_allocates_nothing_after_construction() {
    let config = CacheConfig {
        log_bytes: 8 << 20,
        index_bytes: 1 << 20,
    };
    let mut cache = Cache::new(config, [1, 2]).expect("the configuration leaves room");
    let value = [7; 1_000];
    let count = of_this_thread(|| {
        for key in 0..30_000_u32 {
            cache
                .put(&key.to_le_bytes(), &value)
                .expect("it is small enough");
            assert_eq!(cache.get(&key.to_le_bytes()), Some(value.as_slice()));
            cache.delete(&(key / 2).to_le_bytes());
        }
    });
    assert_eq!(count, 0);
}
