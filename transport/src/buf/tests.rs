//! The pool from outside: reuse, limits, many threads, and the end of its life.

use super::*;

fn pool() -> Pool {
    Pool::new(PoolConfig::default())
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
