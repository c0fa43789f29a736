//! The output of a child. Every line goes to a bounded tail, and to a sink if one is given.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many of its last lines are kept for each child.
const TAIL_LINES: usize = 100;
/// A longer line is cut, so that a child cannot grow its parent's memory.
const LINE_BYTES: u64 = 16 * 1024;
/// How long the rest of an ended child's output is awaited, and how often it is checked.
const FINISH_LIMIT: Duration = Duration::from_secs(1);
const FINISH_POLL: Duration = Duration::from_micros(200);

/// Which of a child's streams a line came from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Called with (node id, stream, line) for every line that a child prints, from a reader thread.
pub type LineSink = Arc<dyn Fn(usize, Stream, &str) + Send + Sync>;

/// The collected output of one child; the reader threads end when the child closes its streams.
#[derive(Debug, Default)]
pub(super) struct ChildOutput {
    tail: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl ChildOutput {
    /// Reads `source` to its end on a thread of its own.
    pub(super) fn collect(
        &mut self,
        node_id: usize,
        stream: Stream,
        source: impl Read + Send + 'static,
        sink: Option<LineSink>,
    ) {
        let tail = Arc::clone(&self.tail);
        self.readers.push(std::thread::spawn(move || {
            let mut source = BufReader::new(source);
            while let Some(line) = next_line(&mut source) {
                if let Some(sink) = &sink {
                    sink(node_id, stream, &line);
                }
                let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                if tail.len() == TAIL_LINES {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
        }));
    }

    /// Waits until everything the (ended) child printed has been read. It does not wait for a
    /// process that the child left behind with its streams: such a reader ends with that process.
    pub(super) fn finish(&mut self) {
        let until = Instant::now() + FINISH_LIMIT;
        while self.readers.iter().any(|reader| !reader.is_finished()) && Instant::now() < until {
            std::thread::sleep(FINISH_POLL);
        }
        self.readers.clear();
    }

    /// The last lines, oldest first.
    pub(super) fn tail(&self) -> Vec<String> {
        self.tail
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect()
    }
}

/// The next line without its end; `None` at the end of the stream. The rest of a line beyond the
/// limit comes as a further line.
fn next_line(source: &mut impl BufRead) -> Option<String> {
    let mut bytes = Vec::new();
    match source.take(LINE_BYTES).read_until(b'\n', &mut bytes) {
        Ok(0) | Err(_) => return None,
        Ok(_) => {}
    }
    while matches!(bytes.last(), Some(b'\n' | b'\r')) {
        bytes.pop();
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_bounded_and_keeps_the_last_lines() {
        let text: String = (0..TAIL_LINES + 5).map(|n| format!("line {n}\n")).collect();
        let mut output = ChildOutput::default();
        output.collect(1, Stream::Out, std::io::Cursor::new(text), None);
        output.finish();
        let tail = output.tail();
        assert_eq!(tail.len(), TAIL_LINES);
        assert_eq!(tail[0], "line 5");
    }

    #[test]
    fn a_line_without_end_is_cut_at_the_limit() {
        let mut source = BufReader::new(std::io::repeat(b'x').take(LINE_BYTES + 10));
        assert_eq!(
            next_line(&mut source).map(|line| line.len() as u64),
            Some(LINE_BYTES)
        );
        assert_eq!(next_line(&mut source).map(|line| line.len()), Some(10));
        assert_eq!(next_line(&mut source), None);
    }
}
