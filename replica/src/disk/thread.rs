//! The one thread that writes: the event loop never waits for a disk.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use trine_transport::backend::Waker;

use super::{Disk, DiskCause, DiskError, Write, WriteQueue, Writer};
use crate::config::WRITE_BATCH_BYTES_MAX;

/// The event loop's end of the queue. When it is dropped, the thread finishes what it has and ends.
#[derive(Debug)]
pub struct WriterThread {
    writes: Sender<(u64, Write)>,
    ends: Receiver<Result<u64, DiskError>>,
}

/// The end of the thread, for whoever has to wait for it.
#[derive(Debug)]
pub struct WriterEnd(Receiver<Infallible>);

impl WriterThread {
    /// Starts the thread. `waker` ends the event loop's sleep when something has become durable.
    ///
    /// # Errors
    /// The operating system has no thread left.
    pub fn start<D: Disk + Send + 'static>(
        writer: Writer<D>,
        waker: Waker,
    ) -> Result<(Self, WriterEnd), DiskError> {
        let (writes, queue) = channel();
        let (sender, ends) = channel();
        let (at_end, ended) = channel();
        let body = move || {
            // An error here only means that the next start finds an unclean end, and says so.
            let _ = run(writer, &queue, &sender, &waker);
            drop(at_end);
        };
        std::thread::Builder::new()
            .name("trine-disk".to_owned())
            .spawn(body)
            .map_err(|error| DiskError {
                operation: "start",
                file: "the writer thread".to_owned(),
                reason: error.to_string(),
                cause: DiskCause::Device,
            })?;
        Ok((Self { writes, ends }, WriterEnd(ended)))
    }
}

impl WriterEnd {
    /// Waits until the thread has finished, for at most `limit`. Returns whether it has. A disk that hangs lets no
    /// thread finish, and no signal ends that.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        self.0.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected)
    }
}

/// Everything that has arrived during one sync goes into the next.
fn run<D: Disk>(
    mut writer: Writer<D>,
    queue: &Receiver<(u64, Write)>,
    ends: &Sender<Result<u64, DiskError>>,
    waker: &Waker,
) -> Result<(), DiskError> {
    let mut batch = Vec::new();
    while let Ok((mut last, write)) = queue.recv() {
        let mut bytes = write.len();
        batch.push(write);
        while bytes < WRITE_BATCH_BYTES_MAX
            && let Ok((number, write)) = queue.try_recv()
        {
            last = number;
            bytes += write.len();
            batch.push(write);
        }
        let result = writer.perform(batch.drain(..));
        let failed = result.is_err();
        // Without a receiver the event loop has ended, and the result has no reader.
        let _ = ends.send(result.map(|()| last));
        waker.wake();
        if failed {
            // The content of the disk is unknown now: nothing more is written.
            return Ok(());
        }
    }
    writer.finish()
}

impl WriteQueue for WriterThread {
    fn submit(&mut self, number: u64, write: Write) {
        // It fails if the thread has ended after an error, which `poll` tells.
        let _ = self.writes.send((number, write));
    }

    fn poll(&mut self) -> Option<Result<u64, DiskError>> {
        let mut newest = None;
        while let Ok(end) = self.ends.try_recv() {
            let failed = end.is_err();
            newest = Some(end);
            if failed {
                break;
            }
        }
        newest
    }
}
