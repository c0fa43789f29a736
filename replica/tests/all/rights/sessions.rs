//! Whose sessions a front is answered in.

use super::*;

/// What a front or a member is answered that asks for bob in a session of alice, which has an answer already.
fn asked_for_another(caller: Caller) -> (World, Session, String) {
    let mut world = group();
    let of_alice = register(&mut world, caller, 80, ALICE).expect("a session");
    let first = put_for(&mut world, caller, user_of(ALICE), of_alice, 1, "a/1");
    assert_eq!(first, "written");
    // The same sequence: its answer is kept.
    let request = write_request(user_of(BOB), of_alice, 1, &nothing());
    let answer = said(&mut world, caller, &request);
    (world, of_alice, answer)
}

/// Changes nothing, and needs no more rights than a session.
fn nothing() -> Command<'static> {
    Command::Execute {
        mode: ExecuteMode::AllOrNothing,
        conditions: List::default(),
        operations: List::default(),
    }
}

/// A replica that serves Redis clients is given the sessions of all users. It was believed about each, so one user could
/// read the answers of another whose token it had got hold of.
#[test]
fn a_front_that_asks_for_one_user_is_not_answered_in_the_session_of_another() {
    for caller in [user("front", 3), MEMBER] {
        let (mut world, of_alice, said) = asked_for_another(caller);
        assert_eq!(said, "SessionExpired");
        // Its own sessions, and those of the user that it names, still serve it.
        let own = register(&mut world, caller, 81, 0).expect("a session");
        let said = put_for(&mut world, caller, user_of(ALICE), own, 1, "a/2");
        assert_eq!(said, "written");
        let again = put_for(&mut world, caller, user_of(ALICE), of_alice, 1, "a/1");
        assert_eq!(again, "written", "the kept answer");
        // A user that it names has no session of the front's other users either, whatever it asks for.
        let of_bob = register(&mut world, caller, 82, BOB).expect("a session");
        let said = put_for(&mut world, caller, user_of(ALICE), of_bob, 1, "a/3");
        assert_eq!(said, "SessionExpired");
    }
}

#[test]
#[cfg(debug_assertions)]
fn the_planted_bug_is_found_that_another_users_token_is_answered() {
    let _bug = trine_canary::plant("another user's token is answered");
    let (_, _, said) = asked_for_another(MEMBER);
    assert!(said.contains("written"), "alice's answer: {said}");
}
