//! Compares passwords in a thread of its own: a comparison takes as long as thousands of commands.
//!
//! A connection waits for its comparison, so it has one at most. All connections together have a few, and further ones
//! are refused.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use mio::Waker;
use trine_base::failure::Failure;
use trine_keys::UserName;
use trine_resp::NotKnown;
use zeroize::Zeroizing;

use super::auth::Claim;
use super::passwords::{PASSWORD_BYTES_MAX, Passwords, Verifier};

/// Passwords that wait at the same time, with the one that is being compared.
const WAITING_MAX: usize = 16;

/// A password to be compared.
struct Job {
    tag: u64,
    /// The user, if the password is right. `None` for a user without a password.
    claim: Option<Claim>,
    verifier: Verifier,
    secret: Zeroizing<Vec<u8>>,
}

/// A password that was compared.
pub(super) struct Checked {
    /// Of the connection.
    pub(super) tag: u64,
    /// The user, if the password is right.
    pub(super) claim: Option<Claim>,
}

/// The thread, and what it has to do. It ends when this is dropped.
pub(super) struct Checker {
    passwords: Passwords,
    jobs: Sender<Job>,
    done: Receiver<Checked>,
    waiting: usize,
}

impl Checker {
    /// Starts the thread, which uses `waker` after each comparison.
    pub(super) fn start(passwords: Passwords, waker: Waker) -> std::io::Result<Self> {
        let (jobs, to_do) = channel::<Job>();
        let (finished, done) = channel();
        let work = move || {
            for job in to_do {
                let is_right = job.verifier.accepts(&job.secret);
                let claim = job.claim.filter(|_| is_right);
                let (tag, checked) = (
                    job.tag,
                    finished.send(Checked {
                        tag: job.tag,
                        claim,
                    }),
                );
                if checked.is_err() {
                    return;
                }
                if let Err(error) = waker.wake() {
                    tracing::error!(%error, tag, "a Redis client hears late about its password");
                }
            }
        };
        thread::Builder::new()
            .name("trine-passwords".to_owned())
            .spawn(work)?;
        Ok(Self {
            passwords,
            jobs,
            done,
            waiting: 0,
        })
    }

    /// Begins to compare a user's password for the connection of this tag.
    pub(super) fn begin(&mut self, tag: u64, user: &[u8], secret: &[u8]) -> Result<(), NotKnown> {
        let name = UserName::new(user).map_err(|_| NotKnown::Wrong)?;
        if secret.len() > PASSWORD_BYTES_MAX {
            return Err(NotKnown::Wrong);
        }
        let (verifier, password) = self.passwords.verifier_of(name).ok_or(NotKnown::Wrong)?;
        if self.waiting >= WAITING_MAX {
            return Err(NotKnown::Busy);
        }
        let job = Job {
            tag,
            claim: password.map(|password| Claim::with_password(name, password)),
            verifier,
            secret: Zeroizing::new(secret.to_vec()),
        };
        // The thread ends with this value alone, or by a panic.
        self.jobs.send(job).map_err(|_| NotKnown::Busy)?;
        self.waiting += 1;
        Ok(())
    }

    /// A password that was compared since. It is no user's any more if the file was read again meanwhile, without it.
    pub(super) fn take(&mut self) -> Option<Checked> {
        let Checked { tag, claim } = self.done.try_recv().ok()?;
        self.waiting -= 1;
        let claim = claim.filter(|claim| self.counts(claim));
        Some(Checked { tag, claim })
    }

    /// Whether the password of a claim, if it has one, is in the file.
    pub(super) fn counts(&self, claim: &Claim) -> bool {
        let password = claim.password();
        password.is_none_or(|(name, verifier)| self.passwords.has(name, verifier))
    }

    /// Reads the file of the passwords again. Returns how many users have one.
    ///
    /// # Errors
    /// It cannot be used. The passwords from before stay in force.
    pub(super) fn read_again(&mut self) -> Result<usize, Failure> {
        self.passwords = self.passwords.read_again()?;
        Ok(self.passwords.count())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use mio::{Events, Poll, Token};

    use super::super::passwords::SALT_BYTES;
    use super::*;

    #[test]
    fn right_passwords_are_known_and_too_many_are_refused() {
        let verifier = Verifier::of("correct horse battery", &[7; SALT_BYTES]).expect("good");
        let text = format!("alice:{verifier}\n");
        let passwords = Passwords::parse(&text, Path::new("users")).expect("a file");
        let mut poll = Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), Token(1)).expect("a waker");
        let mut checker = Checker::start(passwords, waker).expect("a thread");
        let secrets = [&b"correct horse battery"[..], b"wrong"];
        for tag in 0..WAITING_MAX as u64 {
            let secret = secrets[tag as usize % 2];
            checker.begin(tag, b"alice", secret).expect("room");
        }
        let busy = checker.begin(99, b"alice", secrets[0]);
        assert_eq!(busy, Err(NotKnown::Busy));
        assert_eq!(checker.begin(99, b"Bad Name", b"x"), Err(NotKnown::Wrong));
        let long = [b'x'; PASSWORD_BYTES_MAX + 1];
        assert_eq!(checker.begin(99, b"alice", &long), Err(NotKnown::Wrong));

        let mut right = Vec::new();
        let mut count = 0;
        let mut events = Events::with_capacity(4);
        while count < WAITING_MAX {
            let limit = Some(Duration::from_secs(60));
            poll.poll(&mut events, limit).expect("polls");
            assert!(!events.is_empty(), "the thread wakes the poll");
            while let Some(checked) = checker.take() {
                count += 1;
                right.extend(checked.claim.is_some().then_some(checked.tag));
            }
        }
        assert_eq!(right, [0, 2, 4, 6, 8, 10, 12, 14]);
        // Somebody without a password is compared, too, and never right.
        checker.begin(1, b"bob", secrets[0]).expect("room again");
        poll.poll(&mut events, Some(Duration::from_secs(60)))
            .expect("polls");
        let checked = checker.take().expect("compared");
        assert!(checked.claim.is_none());
    }
}
