//! The disk of a node: where its writes go, and how long the oldest of them has been under way.

use std::collections::VecDeque;

use trine_transport::time::{Duration, Instant};

use crate::disk::{DiskError, Write, WriteQueue};

/// A queue of writes, with the time at which each was submitted.
pub(super) struct NodeDisk {
    queue: Box<dyn WriteQueue>,
    /// The writes that are not durable yet: their numbers, and when they were submitted.
    under_way: VecDeque<(u64, Instant)>,
}

impl NodeDisk {
    pub(super) fn new(queue: Box<dyn WriteQueue>) -> Self {
        Self {
            queue,
            under_way: VecDeque::new(),
        }
    }

    /// Takes a write; numbers grow by one.
    pub(super) fn submit(&mut self, now: Instant, number: u64, write: Write) {
        self.under_way.push_back((number, now));
        self.queue.submit(number, write);
    }

    /// The number up to which everything is durable, if that has grown; or the end of the disk.
    pub(super) fn poll(&mut self) -> Option<Result<u64, DiskError>> {
        let end = self.queue.poll();
        if let Some(Ok(durable)) = end {
            while let Some(&(number, _)) = self.under_way.front()
                && number <= durable
            {
                self.under_way.pop_front();
            }
        }
        end
    }

    /// How long the oldest write that is not durable has been under way; nothing if all are durable.
    pub(super) fn oldest_write(&self, now: Instant) -> Option<Duration> {
        let (_, since) = self.under_way.front()?;
        Some(now.saturating_since(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends what it is told to.
    struct Slow(std::sync::mpsc::Receiver<u64>);

    impl WriteQueue for Slow {
        fn submit(&mut self, _: u64, _: Write) {}

        fn poll(&mut self) -> Option<Result<u64, DiskError>> {
            self.0.try_recv().ok().map(Ok)
        }
    }

    #[test]
    fn the_age_is_that_of_the_oldest_write_that_is_not_durable() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let age = |ms| Some(Duration::from_millis(ms));
        let (ends, slow) = std::sync::mpsc::channel();
        let mut disk = NodeDisk::new(Box::new(Slow(slow)));
        assert_eq!(disk.oldest_write(at(5)), None);
        for number in 1..=3 {
            let write = Write::Identity(Vec::new());
            disk.submit(at(10 * number), number, write);
        }
        assert_eq!(disk.oldest_write(at(100)), age(90));
        ends.send(2).unwrap();
        assert_eq!(disk.poll().unwrap().unwrap(), 2);
        assert_eq!(disk.oldest_write(at(100)), age(70));
        ends.send(3).unwrap();
        disk.poll();
        assert_eq!(disk.oldest_write(at(100)), None);
    }
}
