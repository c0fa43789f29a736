//! Reading the next page while the one before is written out, why that ended too early, and what becomes of the pin then.
//!
//! Two pages are in flight: one is asked for, the other one is formatted and written.

mod standard;

use std::sync::mpsc::sync_channel;
use std::thread;

use trine_base::answers::{response_of, store_failure, unexpected};
use trine_base::client::CommandClient;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_client::{Answer, Mode, PinnedError};
use trine_kvstore::{Command, Position, Response};
use trine_transport::time::Duration;

pub(super) use self::standard::{Unwritten, print};

/// How long the group may take to take a pin back. The end of a command waits for that.
const GIVE_BACK_LIMIT: Duration = Duration::from_millis(500);

/// Hands what `read` passes on to `write`, in its order and in a thread beside. `read` is at most one piece ahead. Where
/// nobody reads the output any more, the process ends quietly once `read` has ended, as any other tool would.
pub(super) fn overlapped<T: Send, R>(
    read: impl FnOnce(&mut dyn FnMut(T) -> Result<(), Failure>) -> Result<R, Failure>,
    write: impl FnMut(T) -> Result<(), Unwritten> + Send,
) -> Result<R, Failure> {
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<T>(0);
        let writer = scope.spawn(move || receiver.into_iter().try_for_each(write));
        // A writer that has failed takes no piece. Its own failure says why.
        let ended = |_| Failure::usage("the output ended", "");
        let read = read(&mut |piece| sender.send(piece).map_err(ended));
        drop(sender);
        match writer.join() {
            Ok(Ok(())) => read,
            Ok(Err(Unwritten::Failed(failure))) => Err(failure),
            Ok(Err(Unwritten::Unread)) => std::process::exit(0),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The session of a walk at a pin. A walk that ends early gives its pin back: the group has room for few of them, and keeps
/// for 30 s what nobody gives back.
pub(super) struct PinGuard<'s> {
    session: &'s mut CommandClient,
    pin: Option<Position>,
}

impl<'s> PinGuard<'s> {
    pub(super) fn by(session: &'s mut CommandClient) -> Self {
        Self { session, pin: None }
    }

    /// Executes a command of the walk. None if only the pin could not be given back: everything is read then, and the group
    /// forgets the position by itself.
    pub(super) fn step(
        &mut self,
        mode: Mode,
        command: &Command<'_>,
    ) -> Result<Option<Answer>, Failure> {
        let answer = self.session.execute(mode, command);
        match command {
            Command::Pin => self.pin = answer.as_ref().ok().and_then(pin_of),
            Command::Unpin { .. } => self.pin = None,
            _ => {}
        }
        match answer {
            Err(_) if mode == Mode::WriteAndClose => Ok(None),
            // All that a walk writes is its pin, and the user wants to know of no key that may be written.
            Err(_) if interrupt::interrupted() => Err(Failure::interrupted()),
            answer => answer.map(Some),
        }
    }
}

impl Drop for PinGuard<'_> {
    fn drop(&mut self) {
        let Some(position) = self.pin.take() else {
            return;
        };
        let (session, unpin) = (&mut self.session, Command::Unpin { position });
        // Without an answer the group forgets it by itself.
        let _ = session.execute_within(Mode::WriteAndClose, &unpin, GIVE_BACK_LIMIT);
    }
}

fn pin_of(answer: &Answer) -> Option<Position> {
    match answer.response() {
        Ok(Response::Pinned { position }) => Some(position),
        _ => None,
    }
}

/// The response of such a command. The walk looks at refusals of the store.
pub(super) fn response_at_pin(answer: &Answer) -> Result<Response<'_>, Failure> {
    match answer.response() {
        Ok(response @ Response::Error(_)) => Ok(response),
        _ => response_of(answer),
    }
}

/// A read at a pin, in the words of an error that ends it.
pub(super) struct PinnedRead {
    /// `the scan`.
    pub(super) what: &'static str,
    /// Advice.
    pub(super) hint: &'static str,
}

impl PinnedRead {
    /// Why it ended after so many keys.
    pub(super) fn ended(&self, error: PinnedError, response: &Response<'_>, keys: u64) -> Failure {
        let Self { what, hint } = *self;
        let because = match error {
            PinnedError::Gone(_) => {
                "too much was written meanwhile, or the replicas were restarted"
            }
            PinnedError::Ended(_) => {
                "its output stalled for 30 s, or all keys were flushed, or the index was turned off"
            }
            PinnedError::Refused(refused) => return store_failure(refused),
            PinnedError::Unexpected => return unexpected(response),
        };
        let message = format!("{what} ends after {keys} keys: {error}, for {because}");
        Failure::negative(message, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_in_order_and_the_reader_is_one_ahead() {
        let mut written = Vec::new();
        let read = overlapped(
            |pass| (0..1_000).try_for_each(pass).map(|()| "read"),
            |piece: u32| {
                written.push(piece);
                Ok(())
            },
        );
        assert_eq!(read.ok(), Some("read"));
        assert!(written.into_iter().eq(0..1_000));
    }

    #[test]
    fn a_failure_of_either_end_is_told_and_ends_the_other() {
        let read = overlapped(
            |pass| (0..).try_for_each(pass),
            |piece: u32| match piece {
                7 => Err(Failure::usage("no room", "").into()),
                _ => Ok(()),
            },
        );
        assert!(read.expect_err("it failed").to_string().contains("no room"));
        let mut count = 0;
        let read: Result<(), _> = overlapped(
            |pass| {
                pass(1)?;
                Err(Failure::negative("gone", ""))
            },
            |_: u32| {
                count += 1;
                Ok(())
            },
        );
        assert!(read.expect_err("it failed").to_string().contains("gone"));
        assert_eq!(count, 1);
    }
}
