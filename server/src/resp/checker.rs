//! Compares passwords in a thread of its own: a comparison takes as long as thousands of commands.
//!
//! A connection waits for its comparison, so it has one at most. All connections together have a few, and further ones
//! are refused. One address has half of them: who guesses there keeps nobody else out.

use std::collections::HashMap;
use std::net::IpAddr;
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
/// Those of one address. Together with those of others it may have fewer, but this many while nobody else asks.
const WAITING_OF_ADDRESS_MAX: usize = WAITING_MAX / 2;

/// A password to be compared.
struct Job {
    tag: u64,
    peer: IpAddr,
    /// The user, if the password is right. `None` for a user without a password.
    claim: Option<Claim>,
    verifier: Verifier,
    secret: Zeroizing<Vec<u8>>,
}

/// A password that was compared.
pub(super) struct Checked {
    /// Of the connection.
    pub(super) tag: u64,
    peer: IpAddr,
    /// The user, if the password is right.
    pub(super) claim: Option<Claim>,
}

/// The thread, and what it has to do. It ends when this is dropped.
pub(super) struct Checker {
    passwords: Passwords,
    jobs: Sender<Job>,
    done: Receiver<Checked>,
    waiting: usize,
    waiting_of: HashMap<IpAddr, usize>,
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
                let (tag, peer) = (job.tag, job.peer);
                let checked = finished.send(Checked { tag, peer, claim });
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
            waiting_of: HashMap::new(),
        })
    }

    /// Begins to compare a user's password for the connection of this tag, whose client is at `peer`.
    pub(super) fn begin(
        &mut self,
        tag: u64,
        peer: IpAddr,
        user: &[u8],
        secret: &[u8],
    ) -> Result<(), NotKnown> {
        let name = UserName::new(user).map_err(|_| NotKnown::Wrong)?;
        if secret.len() > PASSWORD_BYTES_MAX {
            return Err(NotKnown::Wrong);
        }
        let (verifier, password) = self.passwords.verifier_of(name).ok_or(NotKnown::Wrong)?;
        let of_peer = self.waiting_of.get(&peer).copied().unwrap_or_default();
        if self.waiting >= WAITING_MAX || of_peer >= WAITING_OF_ADDRESS_MAX {
            return Err(NotKnown::Busy);
        }
        let job = Job {
            tag,
            peer,
            claim: password.map(|password| Claim::with_password(name, password)),
            verifier,
            secret: Zeroizing::new(secret.to_vec()),
        };
        // The thread ends with this value alone, or by a panic.
        self.jobs.send(job).map_err(|_| NotKnown::Busy)?;
        self.waiting += 1;
        *self.waiting_of.entry(peer).or_default() += 1;
        Ok(())
    }

    /// A password that was compared since. It is no user's any more if the file was read again meanwhile, without it.
    pub(super) fn take(&mut self) -> Option<Checked> {
        let Checked { tag, peer, claim } = self.done.try_recv().ok()?;
        self.waiting -= 1;
        if let Some(count) = self.waiting_of.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.waiting_of.remove(&peer);
            }
        }
        let claim = claim.filter(|claim| self.counts(claim));
        Some(Checked { tag, peer, claim })
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
        let [one, other, third] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        for tag in 0..WAITING_MAX as u64 {
            // An address that has its half leaves the others theirs.
            let of_address = WAITING_OF_ADDRESS_MAX as u64;
            let peer = if tag < of_address { one } else { other };
            let secret = secrets[tag as usize % 2];
            checker.begin(tag, peer, b"alice", secret).expect("room");
            if tag + 1 >= of_address {
                let more = checker.begin(99, one, b"alice", secret);
                assert_eq!(more, Err(NotKnown::Busy), "{tag}");
            }
        }
        let busy = checker.begin(99, third, b"alice", secrets[0]);
        assert_eq!(busy, Err(NotKnown::Busy));
        let wrong = Err(NotKnown::Wrong);
        assert_eq!(checker.begin(99, third, b"Bad Name", b"x"), wrong);
        let long = [b'x'; PASSWORD_BYTES_MAX + 1];
        assert_eq!(checker.begin(99, third, b"alice", &long), wrong);

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
        checker
            .begin(1, one, b"bob", secrets[0])
            .expect("room again");
        poll.poll(&mut events, Some(Duration::from_secs(60)))
            .expect("polls");
        let checked = checker.take().expect("compared");
        assert!(checked.claim.is_none());
    }
}
