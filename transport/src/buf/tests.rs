//! The pool from outside: reuse, limits, sharing, many threads, and the end of its lifetime.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::prng::Prng;
use proptest::prelude::*;

fn pool() -> Pool {
    Pool::new(PoolConfig::default())
}

/// Counts regions given out and taken back.
#[derive(Clone, Default)]
struct CountedRegions {
    live: Arc<AtomicUsize>,
}

// SAFETY: allocation and release are those of `HeapRegions`.
unsafe impl RegionAllocator for CountedRegions {
    fn allocate(&self, bytes: usize) -> Option<Region> {
        self.live.fetch_add(1, Ordering::SeqCst);
        HeapRegions
            .allocate(bytes)
            .map(|region| Region { key: 77, ..region })
    }

    unsafe fn release(&self, region: Region) {
        self.live.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: the region came from `HeapRegions`; the caller gave up its use.
        unsafe { HeapRegions.release(region) }
    }
}

fn counted_pool() -> (Pool, Arc<AtomicUsize>) {
    let regions = CountedRegions::default();
    let live = Arc::clone(&regions.live);
    (
        Pool::with_region_allocator(PoolConfig::default(), regions),
        live,
    )
}

#[test]
fn memory_is_reused() {
    let pool = pool();
    let first = pool.alloc(100).unwrap();
    let address = first.as_ptr();
    drop(first);
    assert_eq!(pool.alloc(128).unwrap().as_ptr(), address);
    assert_eq!(pool.stats().blocks_in_use, 0);
}

#[test]
fn a_header_is_written_directly_in_front_of_the_data() {
    let pool = pool();
    let mut message = pool.alloc(300).unwrap();
    message.fill(0xdd);
    let header: Vec<u8> = (1..=32).collect();
    let body = message.share(0..300);
    let room = body.header_room().unwrap();
    assert_eq!(room.stamp(), 0, "new memory");
    for length in [8, 24, 32] {
        let at = room.write(&header[..length], 7 + length as u64).unwrap();
        assert_eq!(at.addr() + length, body.as_ptr().addr(), "{length}");
        // SAFETY: the header has just been written there, and the data begins behind it.
        let written = unsafe { std::slice::from_raw_parts(at, length) };
        assert_eq!(written, &header[..length]);
        assert_eq!(room.stamp(), 7 + length as u64);
    }
    assert_eq!(&body[..], [0xdd; 300]);
}

#[test]
fn a_header_that_does_not_fit_or_is_not_the_first_has_no_room() {
    let pool = pool();
    let message = pool.alloc(300).unwrap();
    assert!(message.share(1..300).header_room().is_none());
    let body = message.share(0..300);
    let room = body.header_room().unwrap();
    for length in [HeaderRoom::HEADER_MAX + 8, 25, 7] {
        assert!(room.write(&vec![1; length], 9).is_none(), "{length}");
    }
    assert_eq!(room.stamp(), 0);
    // The longest header leaves the stamp and the block's own links alone.
    assert!(room.write(&[1; HeaderRoom::HEADER_MAX], 9).is_some());
    assert_eq!(room.stamp(), 9);
    drop(body);
    drop(message);
    assert_eq!(pool.stats().blocks_in_use, 0);
}

#[test]
fn the_memory_is_told_by_size() {
    let pool = pool();
    assert_eq!(pool.classes().count(), 0);
    let held = [
        pool.alloc(100).unwrap(),
        pool.alloc(5_000).unwrap(),
        pool.alloc(5_000).unwrap(),
    ];
    drop(pool.alloc(6_000));
    let classes: Vec<_> = pool.classes().collect();
    let told = |class: &ClassStats| (class.capacity, class.blocks_in_use);
    assert_eq!(
        classes.iter().map(told).collect::<Vec<_>>(),
        [(128, 1), (8192, 2)]
    );
    assert_eq!(
        classes
            .iter()
            .map(|class| class.region_bytes)
            .sum::<usize>(),
        pool.region_bytes()
    );
    drop(held);
    assert!(pool.classes().all(|class| class.blocks_in_use == 0));
}

#[test]
fn buffers_of_all_sizes_are_aligned_distinct_and_hold_what_was_written() {
    let pool = pool();
    let mut held = Vec::new();
    for (index, len) in [0, 1, 128, 129, 1472, 1536, 4096, 70_000, MESSAGE_BYTES_MAX]
        .into_iter()
        .enumerate()
    {
        let mut buffer = pool.alloc(len).unwrap();
        assert_eq!(buffer.len(), len);
        assert!(buffer.capacity() >= len);
        assert_eq!(buffer.as_ptr().addr() % 64, 0);
        buffer.fill(index as u8);
        held.push(buffer);
    }
    for (index, buffer) in held.iter().enumerate() {
        assert!(
            buffer.iter().all(|&byte| byte == index as u8),
            "buffer {index} was overwritten"
        );
    }
    assert!(pool.alloc(MESSAGE_BYTES_MAX + 1).is_none());
}

#[test]
fn a_buffer_grows_and_shrinks_within_its_capacity() {
    let pool = pool();
    let mut buffer = pool.alloc(0).unwrap();
    buffer.extend_from_slice(b"hello ").unwrap();
    buffer.extend_from_slice(b"world").unwrap();
    assert_eq!(&buffer[..], b"hello world");
    let capacity = buffer.capacity();
    let error = buffer.extend_from_slice(&vec![0; capacity]).unwrap_err();
    assert_eq!(
        error,
        CapacityExceeded {
            needed: capacity + 11,
            capacity
        }
    );
    assert_eq!(
        &buffer[..],
        b"hello world",
        "a failed append changes nothing"
    );
    buffer.resize(5);
    assert_eq!(&buffer[..], b"hello");
    buffer.clear();
    assert!(buffer.is_empty());
}

#[test]
#[should_panic(expected = "cannot become")]
fn resizing_beyond_the_capacity_is_a_bug() {
    let mut buffer = pool().alloc(10).unwrap();
    let capacity = buffer.capacity();
    buffer.resize(capacity + 1);
}

#[test]
fn the_limit_holds_and_freed_memory_counts_again() {
    let pool = Pool::new(PoolConfig {
        bytes_max: 256 << 10,
    });
    let mut held = Vec::new();
    while let Some(buffer) = pool.alloc(4000) {
        held.push(buffer);
    }
    assert!(
        held.len() > 40,
        "{} buffers of 4 KiB in 256 KiB",
        held.len()
    );
    let stats = pool.stats();
    assert!(stats.region_bytes <= 256 << 10);
    assert_eq!((stats.blocks_in_use, stats.exhausted), (held.len(), 1));
    held.pop();
    assert!(pool.alloc(4000).is_some());
    assert!(pool.alloc(MESSAGE_BYTES_MAX).is_none());
}

/// A pool that had once been asked for large buffers up to its limit had none for anything smaller ever after, though
/// nothing was in use. Blocks never leave their class. A client spent the memory of a server permanently, with the
/// first packets of a few hundred large requests.
#[test]
fn what_was_taken_in_large_pieces_serves_small_ones_too() {
    let pool = Pool::new(PoolConfig {
        bytes_max: 40 << 20,
    });
    for bytes in [8 << 20, 4 << 20, 2 << 20, 256 << 10, 64 << 10] {
        let held: Vec<_> = std::iter::from_fn(|| pool.alloc(bytes)).collect();
        assert!(!held.is_empty());
    }
    let mut held = Vec::new();
    for len in [0, 100, 1472, 5_000, 100_000, 600_000] {
        let mut buffer = pool.alloc(len).expect("nothing is in use");
        assert_eq!(buffer.len(), len);
        buffer.fill(len as u8);
        held.push(buffer);
    }
    // As large as they say, to the last byte.
    for (mark, buffer) in held.iter_mut().enumerate() {
        buffer.resize(buffer.capacity());
        buffer.fill(mark as u8);
    }
    for (mark, buffer) in held.iter().enumerate() {
        assert!(buffer.iter().all(|&byte| byte == mark as u8));
    }
    let classes: Vec<_> = pool.classes().collect();
    assert_eq!(
        classes.iter().map(|c| c.blocks_in_use).sum::<usize>(),
        held.len()
    );
    // They go back to where they came from.
    drop(held);
    assert!(pool.classes().all(|class| class.blocks_in_use == 0));
    assert!(pool.alloc(8 << 20).is_some());
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc(1)).collect();
    assert_eq!(all.len(), pool.stats().blocks, "every block serves");
    assert!(pool.alloc(1).is_none());
}

#[test]
fn reserved_memory_needs_no_further_region() {
    let (pool, live) = counted_pool();
    assert!(pool.reserve(1500, 1000));
    let regions = live.load(Ordering::SeqCst);
    let held: Vec<_> = (0..1000).map(|_| pool.alloc(1500).unwrap()).collect();
    assert_eq!(live.load(Ordering::SeqCst), regions);
    drop(held);
    assert!(!Pool::new(PoolConfig { bytes_max: 1 << 20 }).reserve(4000, 1000));
}

#[test]
fn a_shared_part_reads_the_message_and_keeps_its_memory() {
    let (pool, live) = counted_pool();
    let mut buffer = pool.alloc(0).unwrap();
    buffer.extend_from_slice(b"head and body").unwrap();
    let body = buffer.share(9..13);
    let again = body.clone();
    assert!(buffer.is_shared());
    assert_eq!(body.region().key, 77);
    drop(buffer);
    drop(pool);
    assert_eq!(&body[..], b"body", "the memory outlives buffer and pool");
    drop(body);
    assert_eq!(live.load(Ordering::SeqCst), 1);
    drop(again);
    assert_eq!(live.load(Ordering::SeqCst), 0);
}

#[test]
#[should_panic(expected = "a transmit batch still refers to it")]
fn writing_a_shared_buffer_is_a_bug() {
    let mut buffer = pool().alloc(10).unwrap();
    let _body = buffer.share(0..10);
    buffer[0] = 1;
}

#[test]
fn the_pool_frees_its_regions_after_the_last_buffer_and_the_last_handle() {
    let (pool, live) = counted_pool();
    let buffers: Vec<_> = (0..100)
        .map(|index| pool.alloc(index * 100).unwrap())
        .collect();
    let clone = pool.clone();
    drop(pool);
    assert!(clone.alloc(1).is_some());
    drop(clone);
    assert!(live.load(Ordering::SeqCst) > 0, "buffers are still out");
    drop(buffers);
    assert_eq!(live.load(Ordering::SeqCst), 0);

    let (pool, live) = counted_pool();
    drop(pool.alloc(1).unwrap());
    drop(pool);
    assert_eq!(live.load(Ordering::SeqCst), 0);
}

#[test]
fn an_unused_pool_takes_no_memory() {
    let (pool, live) = counted_pool();
    assert_eq!(pool.stats(), PoolStats::default());
    drop(pool);
    assert_eq!(live.load(Ordering::SeqCst), 0);
}

/// Allocates, writes, checks and frees at random, passing some buffers on through `swap`.
fn churn(pool: &Pool, seed: u64, rounds: u32, swap: &std::sync::Mutex<Vec<(MsgBuf, u8)>>) {
    let mut prng = Prng::new(seed);
    let mut held: Vec<(MsgBuf, u8)> = Vec::new();
    for _ in 0..rounds {
        match prng.below(4) {
            0 | 1 if held.len() < 64 => {
                let Some(mut buffer) = pool.alloc(prng.below(3000) as usize) else {
                    continue;
                };
                let mark = prng.next_u64() as u8;
                buffer.fill(mark);
                held.push((buffer, mark));
            }
            2 => {
                let mut shelf = swap.lock().unwrap();
                shelf.extend(held.pop());
                if shelf.len() > 32 {
                    let place = prng.below(shelf.len() as u64) as usize;
                    held.push(shelf.swap_remove(place));
                }
            }
            _ if !held.is_empty() => {
                let place = prng.below(held.len() as u64) as usize;
                let (buffer, mark) = held.swap_remove(place);
                assert!(
                    buffer.iter().all(|&byte| byte == mark),
                    "two owners wrote one buffer"
                );
            }
            _ => {}
        }
    }
}

#[test]
fn threads_share_a_pool_without_sharing_a_buffer() {
    let (pool, live) = counted_pool();
    let swap = Arc::new(std::sync::Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            let (pool, swap) = (pool.clone(), Arc::clone(&swap));
            std::thread::spawn(move || churn(&pool, seed, 20_000, &swap))
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    swap.lock().unwrap().clear();
    assert_eq!(pool.stats().blocks_in_use, 0);
    drop(pool);
    assert_eq!(live.load(Ordering::SeqCst), 0);
}

/// A block came back to a closed list before the other lists had been counted once. It brought the
/// count to zero too early, and the pool was freed twice. ThreadSanitizer saw it first.
#[test]
fn buffers_that_come_home_while_the_pool_closes_are_not_lost() {
    for round in 0..2_000 {
        let (pool, live) = counted_pool();
        let buffers: Vec<_> = (0..40)
            .map(|index| pool.alloc(index * round % 2_000).unwrap())
            .collect();
        let start = Arc::new(std::sync::Barrier::new(2));
        let thread = {
            let start = Arc::clone(&start);
            std::thread::spawn(move || {
                start.wait();
                drop(buffers);
            })
        };
        start.wait();
        drop(pool);
        thread.join().unwrap();
        assert_eq!(live.load(Ordering::SeqCst), 0, "round {round}");
    }
}

#[derive(Clone, Debug)]
enum PoolOperation {
    Alloc(usize),
    Free(usize),
    Share(usize),
    Unshare(usize),
    Append(usize, Vec<u8>),
}

fn step() -> impl Strategy<Value = PoolOperation> {
    prop_oneof![
        3 => (0usize..5000).prop_map(PoolOperation::Alloc),
        2 => any::<usize>().prop_map(PoolOperation::Free),
        1 => any::<usize>().prop_map(PoolOperation::Share),
        1 => any::<usize>().prop_map(PoolOperation::Unshare),
        2 => (any::<usize>(), prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(at, bytes)| PoolOperation::Append(at, bytes)),
    ]
}

proptest! {
    #[test]
    fn buffers_behave_like_vectors(steps in prop::collection::vec(step(), 0..200)) {
        let pool = pool();
        let mut buffers: Vec<(MsgBuf, Vec<u8>)> = Vec::new();
        let mut shared: Vec<(BodyRef, Vec<u8>)> = Vec::new();
        for step in steps {
            let count = buffers.len();
            match step {
                PoolOperation::Alloc(len) => {
                    let mut buffer = pool.alloc(len).unwrap();
                    buffer.fill(len as u8);
                    buffers.push((buffer, vec![len as u8; len]));
                }
                PoolOperation::Free(at) if count > 0 => drop(buffers.swap_remove(at % count)),
                PoolOperation::Share(at) if count > 0 => {
                    let (buffer, model) = &buffers[at % count];
                    let range = buffer.len() / 3..buffer.len();
                    shared.push((buffer.share(range.clone()), model[range].to_vec()));
                }
                PoolOperation::Unshare(at) if !shared.is_empty() => {
                    let place = at % shared.len();
                    shared.swap_remove(place);
                }
                PoolOperation::Append(at, bytes) if count > 0 => {
                    let (buffer, model) = &mut buffers[at % count];
                    if !buffer.is_shared() && buffer.extend_from_slice(&bytes).is_ok() {
                        model.extend_from_slice(&bytes);
                    }
                }
                _ => {}
            }
            for (buffer, model) in &buffers {
                prop_assert_eq!(&buffer[..], &model[..]);
            }
            for (body, model) in &shared {
                prop_assert_eq!(&body[..], &model[..]);
            }
        }
        drop(buffers);
        drop(shared);
        prop_assert_eq!(pool.stats().blocks_in_use, 0);
    }
}

/// Resident memory of this process that lies in the buffer, in pages.
fn resident_pages(buffer: &MsgBuf) -> usize {
    let first = buffer.as_ptr().addr().next_multiple_of(Region::ALIGN);
    let pages = (buffer.as_ptr().addr() + buffer.len() - first) / Region::ALIGN;
    let mut resident = vec![0_u8; pages];
    let start = std::ptr::without_provenance_mut(first);
    // SAFETY: `mincore` writes one byte a page, and the vector has as many. It touches nothing else.
    let result = unsafe { libc::mincore(start, pages * Region::ALIGN, resident.as_mut_ptr()) };
    assert_eq!(result, 0);
    resident.iter().filter(|page| **page & 1 == 1).count()
}

#[test]
fn memory_that_is_given_back_is_not_resident_and_can_be_used_again() {
    const BYTES: usize = 1 << 20;
    let pool = pool();
    let mut buffer = pool.alloc(BYTES).unwrap();
    buffer.fill(7);
    let address = buffer.as_ptr();
    assert_eq!(resident_pages(&buffer), BYTES / Region::ALIGN - 1);
    drop(buffer);
    let stats = pool.stats();
    assert_eq!((stats.cold_bytes, stats.blocks_in_use), (0, 0));
    assert!(pool.cool(1) >= BYTES);
    let stats = pool.stats();
    assert!(stats.cold_bytes >= BYTES);
    assert_eq!((stats.blocks_in_use, stats.blocks), (0, 1));
    assert_eq!(pool.cool(1), 0, "nothing is left");
    let mut buffer = pool.alloc(BYTES).unwrap();
    assert_eq!(buffer.as_ptr(), address, "instead of more memory");
    assert!(resident_pages(&buffer) <= 1);
    assert_eq!(pool.stats().cold_bytes, 0);
    buffer.fill(8);
    assert!(buffer.iter().all(|byte| *byte == 8));
}

#[test]
fn registered_memory_stays() {
    let (pool, _) = counted_pool();
    drop(pool.alloc(1 << 20));
    assert_eq!(pool.cool(1 << 20), 0);
    assert_eq!(pool.stats().cold_bytes, 0);
    assert_eq!(pool.stats().blocks_in_use, 0);
}

#[test]
fn a_pool_ends_with_memory_given_back() {
    let pool = pool();
    let held = pool.alloc(1 << 20).unwrap();
    drop(pool.alloc(2 << 20));
    assert!(pool.cool(1) > 0);
    drop(pool);
    drop(held);
}

#[test]
fn threads_use_a_pool_that_is_given_back_meanwhile() {
    let pool = pool();
    let is_done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        let users: Vec<_> = (0..2_u8)
            .map(|number| {
                let pool = pool.clone();
                scope.spawn(move || {
                    for round in 0..2_000 {
                        let mut buffer = pool.alloc(20_000 << (round % 4)).unwrap();
                        buffer.fill(number);
                        assert!(buffer.iter().step_by(512).all(|byte| *byte == number));
                    }
                })
            })
            .collect();
        let (pool, is_done) = (pool.clone(), &is_done);
        let cooler = scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                pool.cool(64 << 10);
                std::thread::yield_now();
            }
        });
        for user in users {
            user.join().unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
        cooler.join().unwrap();
    });
    assert_eq!(pool.stats().blocks_in_use, 0);
}
