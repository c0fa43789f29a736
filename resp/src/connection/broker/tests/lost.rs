//! What clients keep while there is no stream of changes, or while nobody notes what they read.

use super::*;

#[test]
fn without_a_stream_nothing_is_kept_and_commands_that_need_it_wait() {
    let mut world = World::new();
    (1..=3).for_each(|id| world.join(id));
    assert_eq!(world.asks(1, "CLIENT TRACKING ON"), ok());
    assert_eq!(world.asks(3, "CLIENT TRACKING ON BCAST"), ok());
    world.asks(1, "GET k");
    world.says(1, "GET m");
    world.broker.borrow_mut().on_lost(&mut world.parties);
    assert_eq!(world.hears(1), [all_invalid()], "before anything else");
    assert_eq!(world.hears(3), [all_invalid()]);
    world.apply(1);
    world.answer(1);
    assert_eq!(world.hears(1), [Heard::Nothing, invalid(&["m"])]);
    assert_eq!(world.asks(1, "GET k"), [Heard::Nothing, invalid(&["k"])]);
    assert_eq!(world.asks(2, "CLIENT TRACKING ON"), [], "it waits");
    assert_eq!(world.asks(3, "GET k"), [Heard::Nothing, invalid(&["k"])]);
    world.says(3, "GET k");
    world.apply(3);
    world.begin();
    assert_eq!(world.hears(2), ok());
    assert_eq!(
        world.hears(3),
        [all_invalid()],
        "what it has read meanwhile"
    );
    world.answer(3);
    assert_eq!(world.hears(3), [Heard::Nothing, all_invalid()]);
    assert_eq!(
        world.asks(1, "GET k"),
        [Heard::Nothing],
        "it is tracked again"
    );
    world.broker.borrow_mut().on_lost(&mut world.parties);
    assert_eq!(world.hears(1), [all_invalid()]);
    assert_eq!(
        world.asks(2, "SUBSCRIBE __keyevent@0__:set"),
        [all_invalid()]
    );
    world
        .broker
        .borrow_mut()
        .on_refused("there is none", &mut world.parties);
    assert_eq!(world.hears(2), [Heard::text("-ERR there is none")]);
}

/// Clients that track by broadcast kept what they read while there was no stream, and so old values until it came again.
#[test]
fn broadcasts_that_cannot_come_make_each_answer_invalid() {
    let mut world = World::new();
    (1..=3).for_each(|id| world.join(id));
    assert_eq!(
        world.asks(1, "CLIENT TRACKING ON BCAST PREFIX a PREFIX b"),
        ok()
    );
    world.broker.borrow_mut().on_lost(&mut world.parties);
    assert_eq!(world.hears(1), [all_invalid()]);
    let both = Heard::List(vec![Heard::Nothing, Heard::Nothing]);
    assert_eq!(
        world.asks(1, "MGET a1 b1"),
        [both, invalid(&["a1"]), invalid(&["b1"])]
    );
    assert_eq!(world.asks(1, "GET c1"), [Heard::Nothing], "not its key");
    // Sent without a stream, and answered with one that tells all that has changed since.
    world.says(1, "GET a1");
    world.apply(1);
    world.asks(3, "SET a1 1");
    let resume = |world: &mut World| {
        let mut broker = world.broker.borrow_mut();
        broker.on_resume(&mut world.parties);
    };
    resume(&mut world);
    world.answer(1);
    assert_eq!(world.hears(1), [Heard::Nothing]);
    world.tell(9);
    assert_eq!(world.hears(1), [invalid(&["a1"])]);
}

/// The connection that is told instead kept the cache of a connection that had ended. Nobody noted its reads any more, and
/// its values stayed for ever.
#[test]
fn the_end_of_a_reader_is_told_to_whom_it_redirects() {
    let mut world = World::new();
    (1..=4).for_each(|id| world.join(id));
    assert_eq!(world.asks(1, "CLIENT TRACKING ON REDIRECT 2"), ok());
    assert_eq!(world.asks(3, "CLIENT TRACKING ON"), ok());
    world.asks(1, "GET k");
    for (id, expected) in [(3, vec![]), (1, vec![all_invalid()])] {
        let mut gone = world.parties.0.remove(&id).expect("it is there");
        let mut broker = world.broker.borrow_mut();
        broker.on_end(&mut gone.connection, &mut world.parties);
        drop(broker);
        assert_eq!(world.hears(2), expected);
    }
    world.asks(4, "SET k 1");
    world.tell(9);
    assert_eq!(world.hears(2), [], "once");
}
