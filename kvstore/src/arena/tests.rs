//! The arena under churn, beside a model that knows what every block must hold.

use super::*;
use crate::position::Position;

/// A small integer PRNG (xorshift), enough to draw sizes and victims.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

struct Live {
    location: Location,
    fill: u8,
    length: usize,
}

fn stamp(fill: u8) -> Stamp {
    Stamp {
        version: Position::new(u64::from(fill), 0),
        expiry_ns: if fill.is_multiple_of(3) { 77 } else { 0 },
    }
}

fn check(arena: &Arena, live: &Live) {
    let item = arena.item(live.location);
    assert_eq!(item.key, [live.fill; 5]);
    assert_eq!(item.stamp, stamp(live.fill));
    assert_eq!(item.value.len(), live.length);
    assert!(item.value.iter().all(|&byte| byte == live.fill));
}

/// Every block of every region, walked by the headers: sizes add up, neighbours know each other,
/// no two free blocks touch outside a leaving region's cursor, and the live ones are counted.
fn check_blocks(arena: &Arena) {
    for (region, space) in arena
        .spaces
        .iter()
        .enumerate()
        .filter(|(_, space)| space.mapped)
    {
        let (mut granule, mut before_free, mut live) = (0, false, 0);
        while granule < REGION_GRANULES {
            let location = Location::new(region, granule);
            let header = arena.header(location);
            assert_eq!(
                header.before_free(),
                before_free,
                "region {region} granule {granule}"
            );
            assert!(
                !(before_free && header.is_free()),
                "free neighbours were not joined"
            );
            if header.is_free() {
                assert_eq!(
                    arena.word(Location::new(region, granule + header.granules() - 1), 1),
                    header.granules()
                );
            } else {
                live += header.granules();
            }
            before_free = header.is_free();
            granule += header.granules();
        }
        assert_eq!(granule, REGION_GRANULES);
        assert_eq!(live, space.live);
    }
}

fn defragment(arena: &mut Arena, lives: &mut [Live]) {
    if let Some(from) = arena.defragment_step() {
        let to = arena.relocate(from);
        let live = lives.iter_mut().find(|live| live.location == from);
        live.expect("only live items are moved").location = to;
    }
}

#[test]
fn churn_keeps_every_item_and_every_neighbour() {
    let mut arena = Arena::new();
    let mut draw = Draw(42);
    let mut lives: Vec<Live> = Vec::new();
    for round in 0..6_000_u32 {
        let power = draw.below(15);
        let length = draw.below(1 << power) as usize;
        let fill = round as u8;
        let pick = draw.below(lives.len() as u64 + 1) as usize;
        if pick < lives.len() && draw.below(5) < 2 {
            let live = lives.swap_remove(pick);
            check(&arena, &live);
            arena.remove(live.location);
        } else if pick < lives.len() && draw.below(2) == 0 {
            let live = &mut lives[pick];
            let fits = arena.overwrite(live.location, &[fill; 5], &vec![fill; length], stamp(fill));
            if fits {
                (live.fill, live.length) = (fill, length);
            }
            check(&arena, &lives[pick]);
        } else {
            let location = arena.add(&[fill; 5], &vec![fill; length], stamp(fill));
            lives.push(Live {
                location,
                fill,
                length,
            });
        }
        defragment(&mut arena, &mut lives);
        if round % 500 == 0 {
            check_blocks(&arena);
            lives.iter().for_each(|live| check(&arena, live));
        }
    }
    lives.drain(..).for_each(|live| arena.remove(live.location));
    assert_eq!(arena.usage().live_bytes, 0);
    check_blocks(&arena);
}

/// Issue: "a day's worth of random sizes ends within 1.3 of live bytes".
#[test]
fn fragmentation_under_churn_ends_within_the_bound() {
    let mut arena = Arena::new();
    let mut draw = Draw(7);
    let mut by_location = std::collections::BTreeMap::new();
    let mut order: Vec<u32> = Vec::new();
    let mut places: Vec<Option<Location>> = vec![None; 24_000];
    let value = vec![0_u8; 64 * 1024];
    for round in 0..160_000_u64 {
        let slot = draw.below(places.len() as u64) as usize;
        if let Some(location) = places[slot].take() {
            by_location.remove(&location);
            arena.remove(location);
        }
        // The sizes drift over the day: what was freed in the morning does not fit in the evening.
        let top = 1024 + round * 12 / 32;
        let length = if draw.below(2) == 0 {
            draw.below(top)
        } else {
            draw.below(16 * 1024)
        };
        let location = arena.add(b"key", &value[..length as usize], stamp(1));
        by_location.insert(location, slot);
        places[slot] = Some(location);
        order.clear();
        for _ in 0..4 {
            if let Some(from) = arena.defragment_step() {
                let to = arena.relocate(from);
                let slot = by_location
                    .remove(&from)
                    .expect("only live items are moved");
                by_location.insert(to, slot);
                places[slot] = Some(to);
            }
        }
    }
    check_blocks(&arena);
    let usage = arena.usage();
    assert!(usage.live_bytes > 10 * REGION_BYTES as u64, "{usage:?}");
    assert!(
        usage.region_bytes * 10 <= usage.live_bytes * 13,
        "{usage:?}"
    );
}

#[test]
fn an_emptied_arena_gives_its_regions_back() {
    let mut arena = Arena::new();
    let value = vec![9_u8; 1024 * 1024];
    let locations: Vec<_> = (0..64).map(|_| arena.add(b"k", &value, stamp(1))).collect();
    assert!(arena.usage().region_bytes >= 64 << 20);
    locations
        .into_iter()
        .for_each(|location| arena.remove(location));
    assert_eq!(arena.usage().region_bytes, REGION_BYTES as u64);
}
