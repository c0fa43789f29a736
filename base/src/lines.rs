//! Lines that a separate thread writes, so that a writer of lines never waits for their reader.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A queue of lines. A line without room, or one that cannot be written, is dropped and counted.
#[derive(Clone)]
pub struct Lines(Arc<LineQueue>);

struct LineQueue {
    limit: usize,
    state: Mutex<QueueState>,
    /// A line was added, or the thread has written all lines.
    changed: Condvar,
    lost: AtomicU64,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Vec<u8>>,
    /// Whether the thread is about to write one more.
    writing: bool,
}

impl Lines {
    /// Starts the thread, which passes each line to `write`. The thread continues after an error, because a full disk
    /// may get room again.
    pub fn start(
        thread: &str,
        limit: usize,
        mut write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(LineQueue {
            limit,
            state: Mutex::default(),
            changed: Condvar::new(),
            lost: AtomicU64::new(0),
        });
        let of_thread = Arc::clone(&shared);
        let work = move || {
            loop {
                let line = of_thread.next();
                if write(&line).is_err() {
                    of_thread.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        std::thread::Builder::new()
            .name(thread.to_owned())
            .spawn(work)?;
        Ok(Self(shared))
    }

    /// Adds a line, including its line end, if there is room for it.
    pub fn add(&self, line: Vec<u8>) {
        let mut state = self.0.lock();
        if state.waiting.len() < self.0.limit {
            state.waiting.push_back(line);
            self.0.changed.notify_all();
        } else {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of lost lines.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Waits until all lines are written, but not beyond `until`.
    pub fn finish(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let busy = |state: &mut QueueState| state.writing || !state.waiting.is_empty();
        let waited = self.0.changed.wait_timeout_while(self.0.lock(), left, busy);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl LineQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next line. The thread calls it.
    fn next(&self) -> Vec<u8> {
        let mut state = self.lock();
        state.writing = false;
        loop {
            if let Some(line) = state.waiting.pop_front() {
                state.writing = true;
                return line;
            }
            self.changed.notify_all();
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// For the log, which writes each line with one call.
impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const LIMIT: usize = 10;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    /// A terminal without a reader: the first line waits until the test releases it.
    #[test]
    fn lines_that_nobody_takes_are_dropped_and_counted_and_delay_nothing() {
        let (let_go, stuck) = mpsc::channel::<()>();
        let (written, read) = mpsc::channel();
        let write = move |line: &[u8]| {
            // Ends when the other end is dropped.
            let _ = stuck.recv();
            written.send(line.to_vec()).map_err(io::Error::other)
        };
        let lines = Lines::start("test", LIMIT, write).expect("a thread");
        // The test would hang here if a line waited for its turn.
        for n in 0..LIMIT + 100 {
            lines.add(format!("line {n}").into_bytes());
        }
        // The thread has one line, or that line is still in the queue.
        let lost = lines.lost();
        assert!((99..=100).contains(&lost), "{lost}");
        // It waits no longer than the given time.
        lines.finish(Instant::now());
        drop(let_go);
        lines.finish(soon());
        let read: Vec<Vec<u8>> = read.try_iter().collect();
        assert_eq!(read.len() as u64, LIMIT as u64 + 100 - lost);
        assert_eq!(read[0], b"line 0");
    }

    #[test]
    fn a_line_that_cannot_be_written_is_counted_and_the_next_one_is_tried() {
        let (written, read) = mpsc::channel();
        let write = move |line: &[u8]| match line {
            b"too long" => Err(io::ErrorKind::StorageFull.into()),
            line => written.send(line.to_vec()).map_err(io::Error::other),
        };
        let lines = Lines::start("test", LIMIT, write).expect("a thread");
        for line in [&b"one"[..], b"too long", b"two"] {
            lines.add(line.to_vec());
        }
        lines.finish(soon());
        assert_eq!(lines.lost(), 1);
        assert_eq!(read.try_iter().collect::<Vec<_>>(), [&b"one"[..], b"two"]);
    }
}
