//! Reading the next page while the one before is written out, and why that ended too early.
//!
//! Two pages are in flight: one is asked for, the other one is formatted and written.

use std::sync::mpsc::sync_channel;
use std::thread;

use trine_base::answers::{response_of, store_failure, unexpected};
use trine_base::client::Session;
use trine_base::failure::Failure;
use trine_client::{Answer, Mode, PinnedError};
use trine_kvstore::{Command, Response};

/// Hands what `read` passes on to `write`, in its order and in a thread beside. `read` is at most one piece ahead.
pub(super) fn overlapped<T: Send, R>(
    read: impl FnOnce(&mut dyn FnMut(T) -> Result<(), Failure>) -> Result<R, Failure>,
    write: impl FnMut(T) -> Result<(), Failure> + Send,
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
            Ok(Err(failure)) => Err(failure),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Executes a command of a walk at a pin. None if only the pin could not be given back: everything is read then, and the
/// group forgets the position by itself.
pub(super) fn step(
    session: &mut Session,
    mode: Mode,
    command: &Command<'_>,
) -> Result<Option<Answer>, Failure> {
    match session.execute(mode, command) {
        Err(_) if mode == Mode::WriteAndClose => Ok(None),
        answer => answer.map(Some),
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
pub(super) struct Reading {
    /// `the scan`.
    pub(super) what: &'static str,
    /// Advice.
    pub(super) hint: &'static str,
}

impl Reading {
    /// Why it ended after so many keys.
    pub(super) fn ended(&self, error: PinnedError, response: &Response<'_>, keys: u64) -> Failure {
        let Self { what, hint } = *self;
        let because = match error {
            PinnedError::Gone(_) => {
                "too much was written meanwhile, or the replicas were restarted"
            }
            PinnedError::Ended(_) => {
                "its output stood still for 30 s, or all keys were flushed, or the index was turned off"
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
                7 => Err(Failure::usage("no room", "")),
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
