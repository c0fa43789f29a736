//! A process with a node forks. Its child has a copy of everything but the node's thread: it waited for that thread for ever,
//! or for a lock that the thread held when it was last seen.

use std::time::Duration as Patience;

use trine_child::fork;

use super::*;
use crate::{CallError, NotSent, SessionError};

const LIMIT: Patience = Patience::from_secs(30);

fn equal<T: PartialEq + std::fmt::Debug>(found: T, wanted: T) -> Result<(), String> {
    let is_equal = found == wanted;
    is_equal
        .then_some(())
        .ok_or_else(|| format!("{found:?} instead of {wanted:?}"))
}

/// Calls while other threads of the process keep its locks busy, so that some fork comes while one is held.
#[test]
fn a_child_calls_nobody_and_hangs_nowhere() {
    let mut pair = pair();
    let responder = |pair: &NodePair| pair.held.recv_timeout(LIMIT).expect("a request");
    let under_way = pair.session.call::<Deferred>(&5);
    let owed = responder(&pair);
    let (stop, busy) = (Arc::new(AtomicUsize::new(0)), pair.session.clone());
    let stopped = Arc::clone(&stop);
    let load = std::thread::spawn(move || {
        while stopped.load(Ordering::SeqCst) == 0 {
            assert_eq!(block_on(busy.call::<Increment>(&1)), Ok(2));
        }
    });
    let mut under_way = Some(under_way);
    let mut owed = Some(owed);
    for _ in 0..20 {
        let child = fork(|| {
            let call = block_on(pair.session.call::<Increment>(&41));
            equal(call, Err(CallError::NotSent(NotSent::OtherProcess)))?;
            let ours = under_way.take().expect("once in each child");
            equal(block_on(ours), Err(CallError::OutcomeUnknown))?;
            let connected = block_on(pair.client.client().connect(pair.route));
            equal(connected.err(), Some(SessionError::OtherProcess))?;
            let stats = block_on(pair.client.client().stats());
            equal(stats.err(), Some(SessionError::OtherProcess))?;
            owed.take().expect("once in each child").reply(&6);
            // All is dropped here, as at the end of a process that does not know what it has inherited.
            drop(std::mem::replace(&mut pair, super::pair()));
            // A node of its own works.
            equal(block_on(pair.session.call::<Increment>(&41)), Ok(42))
        });
        assert_eq!(child.join(LIMIT), Ok(()));
    }
    stop.store(1, Ordering::SeqCst);
    load.join().expect("the parent's calls went on");
    owed.take().expect("the parent's own").reply(&6);
    assert_eq!(block_on(under_way.take().expect("the parent's own")), Ok(6));
    pair.client.stop().expect("nothing went wrong");
    pair.server.stop().expect("nothing went wrong");
}

/// Threads of workers are gone in a child, too.
#[test]
fn a_child_does_not_wait_for_worker_threads() {
    let pair = pair_with(
        |builder| builder.handle_worker::<Slow, _>(|number| number),
        |builder| builder,
    );
    assert_eq!(block_on(pair.session.call::<Slow>(&7)), Ok(7));
    let mut pair = Some(pair);
    let child = fork(|| {
        drop(pair.take());
        Ok(())
    });
    assert_eq!(child.join(LIMIT), Ok(()));
    let pair = pair.expect("the parent's own");
    assert_eq!(block_on(pair.session.call::<Slow>(&8)), Ok(8));
}

/// Served by a worker.
struct Slow;

impl Rpc for Slow {
    const KIND: u8 = 4;
    type Request = u64;
    type Response = u64;
}

/// A handler forks in the loop's thread, and its child comes back into the loop, which must end there without an answer.
#[test]
fn a_child_that_a_handler_makes_answers_nothing() {
    let (tell, told) = mpsc::channel();
    let forks = move |number: u64, _: &Caller| {
        match trine_child::split() {
            trine_child::Side::Parent(child) => {
                tell.send(child).expect("the test waits");
                number
            }
            // The child's own answer, which nobody must see.
            trine_child::Side::Child(report) => {
                std::mem::forget(report);
                number + 1_000
            }
        }
    };
    let pair = pair_with(
        move |builder| builder.handle::<Slow, _>(forks),
        |builder| builder,
    );
    assert_eq!(block_on(pair.session.call::<Slow>(&7)), Ok(7));
    let child = told.recv_timeout(LIMIT).expect("a child");
    // Its last thread is the loop's. It ends, and with it the child.
    assert_eq!(
        child.join(LIMIT),
        Err("the child died without a word".to_owned())
    );
    assert_eq!(block_on(pair.session.call::<Increment>(&1)), Ok(2));
}
