//! Pointer chasing: chains of 100 dependent loads over 1 GiB, the paper's depth.

use crate::keys::Draw;
use crate::lookups::{Case, LANES, SETS};
use std::future::Future;
use trine_kvstore::interleave::{batch, fetch, prefetch};
use trine_kvstore::memory::Region;
use trine_report::Report;

const CELLS: usize = 1 << 28;
const DEPTH: usize = 100;
const CHAINS: usize = 4_000;

pub(crate) fn measure(report: &mut Report) {
    let cells = permutation();
    let mut draw = Draw(11);
    let sets: Vec<Vec<u32>> = (0..SETS)
        .map(|_| {
            (0..CHAINS)
                .map(|_| draw.below(CELLS as u64) as u32)
                .collect()
        })
        .collect();
    let case = Case {
        name: "chase",
        count: CHAINS * DEPTH,
        naive: &|set| naive(&cells, &sets[set]),
        by_hand: &|set| by_hand(&cells, &sets[set]),
        batch: &|set| {
            let starts = &sets[set];
            let mut sum = 0;
            batch::<LANES, _>(
                CHAINS,
                |chain| chase(&cells, starts[chain]),
                |_, end| sum += u64::from(end),
            );
            sum
        },
    };
    case.measure(report);
}

/// One cycle through all cells in random order (Sattolo's shuffle).
fn permutation() -> Region<u32> {
    let mut cells = Region::empty();
    cells.grow_to(CELLS);
    for (index, cell) in cells.iter_mut().enumerate() {
        *cell = index as u32;
    }
    let mut draw = Draw(1);
    for last in (1..CELLS).rev() {
        cells.swap(last, draw.below(last as u64) as usize);
    }
    cells
}

#[inline(never)]
fn naive(cells: &[u32], starts: &[u32]) -> u64 {
    let walk = |&start: &u32| (0..DEPTH).fold(start, |at, _| cells[at as usize]);
    starts.iter().map(walk).map(u64::from).sum()
}

#[inline(never)]
fn by_hand(cells: &[u32], starts: &[u32]) -> u64 {
    let mut sum = 0;
    for group in starts.chunks(LANES) {
        let mut at = [0_u32; LANES];
        at[..group.len()].copy_from_slice(group);
        let at = &mut at[..group.len()];
        at.iter().for_each(|&at| prefetch(&cells[at as usize]));
        for _ in 0..DEPTH {
            for at in &mut *at {
                *at = cells[*at as usize];
                prefetch(&cells[*at as usize]);
            }
        }
        sum += at.iter().map(|&at| u64::from(at)).sum::<u64>();
    }
    sum
}

#[inline(always)]
fn chase(cells: &[u32], start: u32) -> impl Future<Output = u32> {
    async move {
        let mut at = start;
        // A counter, not a range: one word less to keep while others run.
        let mut left = DEPTH as u32;
        while left > 0 {
            let cell = &cells[at as usize];
            fetch(cell).await;
            at = *cell;
            left -= 1;
        }
        at
    }
}
