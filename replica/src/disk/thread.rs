//! The one thread that writes: the event loop never waits for a disk.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use trine_transport::backend::Waker;

use super::{Disk, DiskCause, DiskError, Write, WriteQueue, Writer};
use crate::config::WRITE_BATCH_BYTES_MAX;

/// The event loop's end of the queue. Dropping it lets the thread finish what it has, and waits for it.
#[derive(Debug)]
pub struct WriterThread {
    /// Some until it is dropped.
    writes: Option<Sender<(u64, Write)>>,
    ends: Receiver<Result<u64, DiskError>>,
    thread: Option<JoinHandle<Result<(), DiskError>>>,
}

impl WriterThread {
    /// Starts the thread. `waker` ends the event loop's sleep when something has become durable.
    ///
    /// # Errors
    /// The operating system has no thread left.
    pub fn start<D: Disk + Send + 'static>(
        writer: Writer<D>,
        waker: Waker,
    ) -> Result<Self, DiskError> {
        let (writes, queue) = channel();
        let (sender, ends) = channel();
        let thread = std::thread::Builder::new()
            .name("trine-disk".to_owned())
            .spawn(move || run(writer, &queue, &sender, &waker))
            .map_err(|error| DiskError {
                operation: "start",
                file: "the writer thread".to_owned(),
                reason: error.to_string(),
                cause: DiskCause::Device,
            })?;
        Ok(Self {
            writes: Some(writes),
            ends,
            thread: Some(thread),
        })
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
        if let Some(writes) = &self.writes {
            // The thread has ended after an error, which `poll` tells.
            let _ = writes.send((number, write));
        }
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

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.writes = None;
        if let Some(thread) = self.thread.take() {
            // An error here only means that the next start finds an unclean end, and says so.
            let _ = thread.join();
        }
    }
}
