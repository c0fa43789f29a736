//! Reads the image of one replica into a file.

use std::time::{Duration, Instant, SystemTime};

use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::{Network, Opened};
use trine_base::output::Output;
use trine_base::progress::Progress;
use trine_base::units::show_bytes;
use trine_client::{BackupError, BackupReader};
use trine_protocol::message::BackupHead;
use trine_replica::backup::Header;
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::time::Duration as Nanos;

use super::partial::Partial;
use super::replicas::Candidate;

/// How long one look for the next piece takes: then Ctrl-C is looked for.
const LOOK: Nanos = Nanos::from_millis(100);
/// A replica that answers and gives no piece for so long is stuck.
const PIECE_PATIENCE: Duration = Duration::from_secs(20);

/// Why the reading from a replica has stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// The user wants it.
    Interrupted,
    /// The replica does not answer. It may still have the image.
    Lost,
    /// Another replica, or another image, may do.
    Elsewhere(String),
    /// The caller has no right to it.
    Denied(String),
    /// This machine cannot.
    Failed(Failure),
}

impl From<BackupError> for Stop {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Lost => Self::Lost,
            BackupError::Denied { why } => Self::Denied(why),
            BackupError::Transport(_) | BackupError::Backend(_) => {
                Self::Failed(Failure::usage(error.to_string(), ""))
            }
            BackupError::NotReached(_)
            | BackupError::Gone { .. }
            | BackupError::Refused { .. }
            | BackupError::Unreadable => Self::Elsewhere(error.to_string()),
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// The progress of a backup; programs and pipes get no bar.
pub(super) fn progress(header: &Header, output: Output) -> Progress {
    let total = Some(header.head.logical_bytes);
    Progress::at_terminal("backing up", total, output)
}

/// Keeps to a rate.
pub(super) struct Pace {
    rate: Option<u64>,
    started: Instant,
    bytes: u64,
}

impl Pace {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self {
            rate,
            started: Instant::now(),
            bytes: 0,
        }
    }

    /// How long to wait after so many more bytes.
    fn pause_after(&mut self, bytes: usize) -> Duration {
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        self.bytes += bytes as u64;
        let due = Duration::from_secs_f64(self.bytes as f64 / rate as f64);
        due.saturating_sub(self.started.elapsed())
    }
}

/// A session with one replica, over any backend.
pub(super) struct BackupStream(Box<dyn BackupSource>);

trait BackupSource {
    fn begin(&mut self, at_least: u64) -> Result<Option<BackupHead>, BackupError>;
    fn why_not_yet(&self) -> String;
    fn go_on(&mut self, image: u64, number: u32);
    fn next(&mut self) -> Result<Option<trine_client::Piece>, BackupError>;
    fn pause(&mut self, pause: Nanos) -> Result<(), BackupError>;
    fn end(self: Box<Self>);
    fn leave(self: Box<Self>);
}

/// The reader, and what its backend needs.
struct OpenReader<B: Backend> {
    reader: BackupReader<B, MonotonicClock>,
    _keep: Option<Box<dyn std::any::Any + Send>>,
}

impl<B: Backend> BackupSource for OpenReader<B> {
    fn begin(&mut self, at_least: u64) -> Result<Option<BackupHead>, BackupError> {
        self.reader.begin(at_least, LOOK)
    }

    fn why_not_yet(&self) -> String {
        self.reader.why_not_yet().to_owned()
    }

    fn go_on(&mut self, image: u64, number: u32) {
        self.reader.go_on(image, number);
    }

    fn next(&mut self) -> Result<Option<trine_client::Piece>, BackupError> {
        self.reader.next(LOOK)
    }

    fn pause(&mut self, pause: Nanos) -> Result<(), BackupError> {
        self.reader.pause(pause)
    }

    fn end(self: Box<Self>) {
        self.reader.end();
    }

    fn leave(self: Box<Self>) {
        self.reader.leave();
    }
}

impl BackupStream {
    /// Opens a session with a replica. The inner error is one that another replica may not have.
    pub(super) fn open<N: Network>(
        network: &N,
        candidate: &Candidate,
    ) -> Result<Result<Self, String>, Failure> {
        let opened = network.call(&[candidate.address])?;
        Self::over(opened, candidate)
    }

    fn over<B: Backend + 'static>(
        opened: Opened<B>,
        candidate: &Candidate,
    ) -> Result<Result<Self, String>, Failure> {
        let Opened {
            backend,
            endpoint,
            route_of,
            keep,
            ..
        } = opened;
        let Some(route) = route_of(candidate.address) else {
            return Ok(Err(format!("no way to {} is known", candidate.address)));
        };
        let seed = random_seed()?;
        let cluster = candidate.cluster;
        let reader = BackupReader::new(backend, MonotonicClock, endpoint, route, cluster, seed)
            .map_err(|error| Failure::usage(error.to_string(), ""))?;
        Ok(Ok(Self(Box::new(OpenReader {
            reader,
            _keep: keep,
        }))))
    }

    /// Has an image made of the state after at least this entry.
    pub(super) fn begin(&mut self, at_least: u64, patience: Duration) -> Result<BackupHead, Stop> {
        let until = Instant::now() + patience;
        loop {
            if interrupt::interrupted() {
                return Err(Stop::Interrupted);
            }
            if let Some(head) = self.0.begin(at_least)? {
                return Ok(head);
            }
            if Instant::now() >= until {
                let why = match self.0.why_not_yet() {
                    why if why.is_empty() => "it does not answer".to_owned(),
                    why => why,
                };
                return Err(Stop::Elsewhere(why));
            }
        }
    }

    /// Ends the session, and leaves the image where it is.
    pub(super) fn leave(self) {
        self.0.leave();
    }

    /// Copies the image that a file is of, from where the file ends.
    pub(super) fn copy(
        mut self,
        header: &Header,
        partial: &mut Partial,
        pace: &mut Pace,
        progress: &mut Progress,
    ) -> Result<(), Stop> {
        let number = u32::try_from(partial.frames());
        let Ok(number) = number else {
            return Err(Stop::Elsewhere("the image has too many pieces".to_owned()));
        };
        self.0.go_on(header.head.image, number);
        let copied = self.copy_pieces(partial, pace, progress);
        match &copied {
            // No run goes on with it: the replica is free for another one.
            Ok(()) | Err(Stop::Elsewhere(_)) => self.0.end(),
            Err(_) => self.0.leave(),
        }
        copied
    }

    fn copy_pieces(
        &mut self,
        partial: &mut Partial,
        pace: &mut Pace,
        progress: &mut Progress,
    ) -> Result<(), Stop> {
        let mut since = Instant::now();
        loop {
            if interrupt::interrupted() {
                return Err(Stop::Interrupted);
            }
            let Some(piece) = self.0.next()? else {
                if since.elapsed() > PIECE_PATIENCE {
                    return Err(Stop::Elsewhere("it sends no further piece".to_owned()));
                }
                continue;
            };
            since = Instant::now();
            partial.append(&piece.bytes)?;
            progress.set(partial.bytes(), || show_bytes(partial.bytes()));
            if piece.last {
                return Ok(());
            }
            self.keep_pace(pace, piece.bytes.len())?;
        }
    }

    fn keep_pace(&mut self, pace: &mut Pace, bytes: usize) -> Result<(), Stop> {
        let mut left = Nanos::from(pace.pause_after(bytes));
        while left > Nanos::ZERO && !interrupt::interrupted() {
            let part = left.min(LOOK);
            self.0.pause(part)?;
            left = left.saturating_sub(part);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_makes_pauses_and_no_rate_makes_none() {
        assert_eq!(Pace::new(None).pause_after(1 << 30), Duration::ZERO);
        let pause = Pace::new(Some(1 << 20)).pause_after(10 << 20);
        assert!(pause > Duration::from_secs(9) && pause <= Duration::from_secs(10));
    }
}
