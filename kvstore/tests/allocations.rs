//! A process of its own, because its allocator counts: reads and writes over existing items allocate nothing.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use trine_kvstore::{Cache, CacheConfig, Command, Limits, Position, Response, Store};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed on unchanged to the system's allocator; the counter is a
// thread-local without a destructor, so touching it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises about `layout` are those that `System` needs.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the block came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

const KEYS: u32 = 3_000;

#[test]
fn the_data_path_of_the_store_allocates_nothing() {
    let mut store = Store::new(Limits::default(), [1, 2]);
    let mut index = 0;
    let mut round = |store: &mut Store, size: usize| {
        let (value, mut answer) = (vec![b'1'; size], vec![0; 256]);
        allocations(|| {
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
    let count = allocations(|| {
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
