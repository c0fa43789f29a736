//! Children of each kind, and what they find in the word.

use std::time::Duration;

use trine_child::fork;

use super::*;
use crate::Origin;

const LIMIT: Duration = Duration::from_secs(20);

fn check(is_right: bool, what: &str) -> Result<(), String> {
    is_right.then_some(()).ok_or_else(|| what.to_owned())
}

#[test]
fn a_child_and_its_child_are_other_processes() {
    let parents = Origin::here();
    let child = fork(move || {
        check(!parents.is_here(), "the child took itself for its parent")?;
        let childs = Origin::here();
        check(childs.is_here(), "the child does not know itself")?;
        check(
            !parents.is_here(),
            "asking for a number revived the parent's",
        )?;
        let grandchild = fork(move || {
            check(
                !parents.is_here(),
                "the grandchild took itself for its grandparent",
            )?;
            check(
                !childs.is_here(),
                "the grandchild took itself for its parent",
            )?;
            check(
                Origin::here().is_here(),
                "the grandchild does not know itself",
            )
        });
        grandchild.join(LIMIT)
    });
    assert_eq!(child.join(LIMIT), Ok(()));
    assert!(parents.is_here(), "the parent is what it was");
    assert!(Origin::here().is_here());
}

/// A process that has not looked at the word yet forks: the numbers of parent and child must differ all the same.
#[test]
fn a_fork_before_the_first_number_is_noticed_too() {
    // The page is there, and the number is drawn by the child first.
    let word = wiped_page().expect("this kernel empties pages");
    assert_eq!(word.load(Ordering::Relaxed), 0);
    let child = fork(move || check(number(word) != 0, "no number"));
    assert_eq!(child.join(LIMIT), Ok(()));
    assert_eq!(
        word.load(Ordering::Relaxed),
        0,
        "the child has its own page"
    );
}

#[test]
fn a_clone_without_handlers_finds_the_page_empty() {
    let word = wiped_page().expect("this kernel empties pages");
    let before = number(word);
    assert_ne!(before, 0);
    // SAFETY: without flags this is a fork. The child looks at one word and ends, both of which are allowed there.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        let is_empty = word.load(Ordering::Relaxed) == 0;
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(i32::from(!is_empty)) }
    }
    let mut status = 0;
    // SAFETY: the status is a live integer.
    let ended = unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, 0) };
    assert_eq!((i64::from(ended), status), (child, 0));
    assert_eq!(number(word), before);
}

/// The way of a kernel without such pages.
#[test]
fn the_handler_empties_the_word_as_the_kernel_does() {
    let word = emptied_by_handler();
    let before = number(word);
    let child = fork(move || {
        check(word.load(Ordering::Relaxed) == 0, "the word is not empty")?;
        check(number(word) != before, "the child has its parent's number")
    });
    assert_eq!(child.join(LIMIT), Ok(()));
    assert_eq!(number(word), before);
}

/// Programs that are started share the parent's memory for a moment, by `vfork` or its like.
#[test]
fn a_started_program_changes_nothing_here() {
    let origin = Origin::here();
    for _ in 0..10 {
        let status = std::process::Command::new("true").status();
        assert!(status.expect("there is such a program").success());
        assert!(origin.is_here());
    }
}

/// Many threads may ask first.
#[test]
fn threads_of_a_process_agree() {
    let origin = || std::thread::spawn(Origin::here);
    let threads: Vec<_> = (0..8).map(|_| origin()).collect();
    for thread in threads {
        let theirs = thread.join().expect("it ends");
        assert_eq!(theirs.number, Origin::here().number);
    }
}
