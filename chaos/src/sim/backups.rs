//! A machine that takes backups of the serving group, in a part of the seeds, as `trine backup` does: the position first,
//! then an image of one replica, then its pieces. Each of these steps is a process of its own.
//!
//! Reading is slow, sessions are lost, and processes die and go on with their file. Each whole file is compared with the log
//! (`checker/backups.rs`).

use super::Host;
use crate::checker::Verdict;
use crate::checker::backups::Reference;
use trine_client::{BackupError, BackupSession, ClientId, Clients, Mode, Submission};
use trine_kvstore::Command;
use trine_protocol::message::{BackupHead, ClusterId, Incarnation};
use trine_replica::backup::{Content, Decoder, Encoder, Header, Part, RestoreError, Restorer};
use trine_transport::app::{App, Completion, Cx, Reply, Request};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::session::Event;
use trine_transport::time::{Duration, Instant};

/// How long the question for the position may take, how long a replica has to make an image, and to give the next piece.
const POSITION_PATIENCE: Duration = Duration::from_secs(3);
const IMAGE_PATIENCE: Duration = Duration::from_secs(2);
const PIECE_PATIENCE: Duration = Duration::from_secs(4);
/// A slow process takes its next piece after up to so long.
const SLOW_MAX: Duration = Duration::from_millis(500);
/// How often a process is slow, and how often it dies amid its pieces.
const SLOW: Ratio = Ratio::percent(50);
const DIES: Ratio = Ratio::percent(15);
/// It dies after up to so many pieces.
const DIES_WITHIN: u64 = 6;
/// How often the leader is asked first.
pub(crate) const FROM_LEADER: Ratio = Ratio::percent(20);
/// How often all replicas are tried, one after the other.
const PASSES: u32 = 3;
/// In one of so many seeds there are backups, and in one of so many of those values are large.
const SEEDS_ONE_IN: u64 = 5;
const LARGE_ONE_IN: u64 = 3;

/// Whether a seed has backups. Drawn separately, so that the other seeds stay the same.
pub(crate) fn is_drawn(seed: u64) -> bool {
    Prng::new(seed ^ 0x00ba_c409_00ba_c409).below(SEEDS_ONE_IN) == 0
}

/// Whether values are so large that an image has more pieces than are asked for at a time.
pub(crate) fn has_large_values(seed: u64) -> bool {
    Prng::new(seed ^ 0x001a_46e5_001a_46e5).below(LARGE_ONE_IN) == 0
}

/// The backups of a run.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupCounts {
    /// Files that became whole.
    pub whole: u64,
    /// Those of them that followers gave.
    pub of_followers: u64,
    /// Processes that went on with a file that another one has begun.
    pub resumed: u64,
    /// Files that were begun again, with another image.
    pub begun_again: u64,
    /// Backups that no replica gave.
    pub failed: u64,
    /// Operations of clients of the group that was restored from the last file; none if there is no such group.
    pub restored_operations: u64,
}

/// What all backups of a run know.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) reference: Reference,
    wrong: Option<String>,
    /// The last whole file.
    pub(crate) last: Option<Vec<u8>>,
    pub(crate) counts: BackupCounts,
}

impl Ledger {
    pub(crate) fn blame(&mut self, text: String) {
        self.wrong.get_or_insert(text);
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match &self.wrong {
            Some(wrong) => Verdict::violation(wrong.clone()),
            None => Verdict::Pass,
        }
    }

    /// Takes in a whole file, that of a backup which has everything up to the entry `at_least`.
    fn take(&mut self, file: Vec<u8>, at_least: u64) {
        self.counts.whole += 1;
        let judged = match content_of(&file) {
            Err(error) => Err(format!("a whole backup cannot be restored: {error}")),
            Ok(content) => {
                let header = *content.header();
                self.reference.judge(&header, &content, at_least)
            }
        };
        match judged {
            Ok(()) => self.last = Some(file),
            Err(wrong) => self.blame(format!("backup: {wrong}")),
        }
    }
}

/// The content of a file.
pub(crate) fn content_of(file: &[u8]) -> Result<Content, RestoreError> {
    let mut restorer = Restorer::default();
    restorer.feed(file)?;
    restorer.finish()
}

/// A replica that may give an image.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) host: Host,
    pub(crate) incarnation: Incarnation,
    pub(crate) cluster: ClusterId,
    pub(crate) leads: bool,
}

/// How a process has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// It has done what it was to do.
    Done,
    /// It was killed. The file stays.
    Killed,
    /// Its session was lost, after so many pieces.
    Lost(u64),
    /// Another replica, or another image, may do.
    Elsewhere(String),
}

/// What the next process is to do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackupTurn {
    /// To ask for the position that the backup has to be of.
    Position,
    /// To have an image made.
    Image(Candidate),
    /// To read on.
    Pieces(Candidate),
    /// Nothing: the backup is over.
    Over,
}

/// A backup, over all of its processes.
pub(crate) struct Job {
    /// The entry that is committed when it begins.
    at_least: Option<u64>,
    /// The last entry that any client was told of by then.
    acknowledged: u64,
    /// Replicas to try, in their order.
    candidates: Vec<Candidate>,
    passes: u32,
    /// The file, which begins with an image's header.
    file: Vec<u8>,
    begun: Option<(Header, Encoder)>,
    is_whole: bool,
    prng: Prng,
}

impl Job {
    pub(crate) fn new(acknowledged: u64, prng: Prng) -> Self {
        Self {
            at_least: None,
            acknowledged,
            candidates: Vec::new(),
            passes: 0,
            file: Vec::new(),
            begun: None,
            is_whole: false,
            prng,
        }
    }

    /// What follows on what a process was to do. `survey` says which replicas there are.
    fn follow(
        &mut self,
        was: BackupTurn,
        end: &End,
        ledger: &mut Ledger,
        mut survey: impl FnMut(&mut Prng) -> Vec<Candidate>,
    ) -> BackupTurn {
        match (was, end) {
            (BackupTurn::Position, End::Done) => {
                if let Some(at_least) = self.at_least {
                    ledger.reference.forget_before(at_least);
                }
                self.next_image(ledger, survey)
            }
            (BackupTurn::Position, _) | (BackupTurn::Over, _) => BackupTurn::Over,
            (BackupTurn::Image(candidate), End::Done) => BackupTurn::Pieces(candidate),
            (BackupTurn::Pieces(candidate), End::Done) => self.finish(candidate, ledger),
            (BackupTurn::Pieces(candidate), End::Lost(pieces)) if *pieces > 0 => {
                ledger.counts.resumed += 1;
                BackupTurn::Pieces(candidate)
            }
            // The same command once more: it looks for the replica that has its image.
            (BackupTurn::Pieces(candidate), End::Killed) => {
                self.find_again();
                let is_its = |found: &Candidate| found.incarnation == candidate.incarnation;
                match survey(&mut self.prng).into_iter().find(is_its) {
                    Some(found) if self.begun.is_some() => {
                        ledger.counts.resumed += 1;
                        BackupTurn::Pieces(found)
                    }
                    _ => self.next_image(ledger, survey),
                }
            }
            _ => self.next_image(ledger, survey),
        }
    }

    fn next_image(
        &mut self,
        ledger: &mut Ledger,
        mut survey: impl FnMut(&mut Prng) -> Vec<Candidate>,
    ) -> BackupTurn {
        if self.begun.take().is_some() {
            ledger.counts.begun_again += 1;
        }
        if self.candidates.is_empty() && self.passes < PASSES {
            self.passes += 1;
            self.candidates = survey(&mut self.prng);
            self.candidates.reverse();
        }
        match self.candidates.pop() {
            Some(candidate) => BackupTurn::Image(candidate),
            None => {
                ledger.counts.failed += 1;
                BackupTurn::Over
            }
        }
    }

    fn begin_file(&mut self, head: &BackupHead, replica: Incarnation) {
        let header = Header {
            head: *head,
            made_at_ms: 0,
            replica,
        };
        let (encoder, bytes) = Encoder::begin(&header);
        self.begun = Some((header, encoder));
        self.file = bytes;
    }

    fn append(&mut self, content: &[u8], last: bool) {
        let Some((_, encoder)) = &mut self.begun else {
            return;
        };
        self.file.extend_from_slice(&encoder.frame(content));
        self.file.extend_from_slice(content);
        self.is_whole = last;
    }

    fn finish(&mut self, candidate: Candidate, ledger: &mut Ledger) -> BackupTurn {
        if let Some((_, encoder)) = self.begun.take()
            && self.is_whole
        {
            self.file.extend_from_slice(&encoder.end());
            ledger.counts.of_followers += u64::from(!candidate.leads);
            let at_least = self.at_least.unwrap_or(0).max(self.acknowledged);
            ledger.take(std::mem::take(&mut self.file), at_least);
        }
        BackupTurn::Over
    }

    /// The file as the next process finds it: its end may be missing. It goes on behind the last whole frame.
    fn find_again(&mut self) {
        let torn = self.prng.below(self.file.len() as u64 / 2 + 1) as usize;
        if self.prng.chance(Ratio::percent(50)) {
            self.file.truncate(self.file.len() - torn);
        }
        let (mut decoder, mut header) = (Decoder::default(), None);
        decoder.feed(&self.file);
        while let Ok(Some(part)) = decoder.part() {
            if let Part::Header(found) = part {
                header = Some(found);
            }
        }
        self.begun = header.zip(decoder.into_encoder());
        if let Some((_, encoder)) = &self.begun {
            self.file.truncate(encoder.bytes() as usize);
        }
    }
}

/// A process of a backup.
pub(crate) struct BackingUp {
    job: Job,
    does: BackupTurn,
    source: Source,
    prng: Prng,
    /// When it gives up, unless something comes.
    until: Instant,
    /// The next piece is taken then.
    take_at: Instant,
    slow: bool,
    /// It dies after so many pieces.
    dies_after: Option<u64>,
    pieces: u64,
    end: Option<End>,
    has_left: bool,
}

/// Where it asks.
enum Source {
    Group {
        clients: Box<Clients<Host>>,
        id: Option<ClientId>,
        is_asked: bool,
    },
    Replica(Box<BackupSession<Host>>),
}

impl BackingUp {
    /// `clients` are for a process that asks for the position.
    pub(crate) fn new(
        mut job: Job,
        does: BackupTurn,
        clients: impl FnOnce() -> Clients<Host>,
        now: Instant,
    ) -> Self {
        let mut prng = job.prng.fork();
        let slow = prng.chance(SLOW);
        let dies = prng.chance(DIES) && matches!(does, BackupTurn::Pieces(_));
        let dies_after = dies.then(|| prng.in_range(0..=DIES_WITHIN));
        let (source, patience) = match does {
            BackupTurn::Image(candidate) => {
                let mut session = BackupSession::new(candidate.host, candidate.cluster);
                session.begin(job.at_least.unwrap_or(0));
                (Source::Replica(Box::new(session)), IMAGE_PATIENCE)
            }
            BackupTurn::Pieces(candidate) => {
                let mut session = BackupSession::new(candidate.host, candidate.cluster);
                if let Some((header, encoder)) = &job.begun {
                    session.go_on(header.head.image, encoder.frames() as u32);
                }
                (Source::Replica(Box::new(session)), PIECE_PATIENCE)
            }
            BackupTurn::Position | BackupTurn::Over => {
                let mut clients = Box::new(clients());
                let source = Source::Group {
                    id: clients.open(),
                    clients,
                    is_asked: false,
                };
                (source, POSITION_PATIENCE)
            }
        };
        Self {
            job,
            does,
            source,
            prng,
            until: now + patience,
            take_at: now,
            slow,
            dies_after,
            pieces: 0,
            end: None,
            has_left: false,
        }
    }

    /// Whether the next process may follow.
    pub(crate) fn is_over(&self) -> bool {
        self.has_left
    }

    /// The backup, and what its next process is to do.
    pub(crate) fn follow(
        self,
        ledger: &mut Ledger,
        survey: impl FnMut(&mut Prng) -> Vec<Candidate>,
    ) -> (Job, BackupTurn) {
        let mut job = self.job;
        let end = self.end.unwrap_or(End::Killed);
        let next = job.follow(self.does, &end, ledger, survey);
        (job, next)
    }

    /// Words for a trace.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        let note = |end| {
            format!(
                "backs up: {:?}, after {} pieces: {end:?}",
                self.does, self.pieces
            )
        };
        self.end.as_ref().map(note).into_iter().collect()
    }

    pub(crate) fn next_call(&self) -> Option<Instant> {
        if self.has_left {
            return None;
        }
        if self.end.is_some() {
            return Some(Instant::ZERO);
        }
        let takes = match &self.source {
            Source::Replica(session) => session.has_piece().then_some(self.take_at),
            Source::Group { is_asked, .. } => (!is_asked).then_some(Instant::ZERO),
        };
        [takes, Some(self.until)].into_iter().flatten().min()
    }

    /// Runs in front of each turn.
    pub(crate) fn call(&mut self, now: Instant, simulated: Instant) {
        if self.end.is_none() && simulated >= self.until {
            self.end = Some(End::Elsewhere("nothing comes".to_owned()));
        }
        if let Source::Group {
            clients,
            id: Some(id),
            is_asked,
        } = &mut self.source
            && !*is_asked
        {
            let submission = Submission {
                mode: Mode::Read,
                command: &Command::Count,
                deadline: Some(now + POSITION_PATIENCE),
                tag: 0,
            };
            *is_asked = true;
            if clients.submit(now, *id, submission).is_err() {
                self.end = Some(End::Elsewhere("no room for the question".to_owned()));
            }
        }
    }

    /// Takes in what has come.
    pub(crate) fn collect(&mut self, simulated: Instant) {
        if self.end.is_some() {
            return;
        }
        self.end = match self.does {
            BackupTurn::Position | BackupTurn::Over => self.collect_position(),
            BackupTurn::Image(candidate) => self.collect_head(candidate),
            BackupTurn::Pieces(_) => self.collect_pieces(simulated),
        };
    }

    fn collect_position(&mut self) -> Option<End> {
        let Source::Group { clients, .. } = &mut self.source else {
            return None;
        };
        let finished = clients.poll_finished()?;
        Some(match finished.result {
            Ok(answer) => {
                self.job.at_least = Some(answer.position().index());
                End::Done
            }
            Err(error) => End::Elsewhere(error.to_string()),
        })
    }

    fn collect_head(&mut self, candidate: Candidate) -> Option<End> {
        let Source::Replica(session) = &self.source else {
            return None;
        };
        match (session.head(), session.error()) {
            (Some(head), _) => {
                self.job.begin_file(head, candidate.incarnation);
                Some(End::Done)
            }
            (None, error) => error.map(|error| end_of(error, 0)),
        }
    }

    fn collect_pieces(&mut self, simulated: Instant) -> Option<End> {
        let Source::Replica(session) = &mut self.source else {
            return None;
        };
        while self.take_at <= simulated {
            if self.dies_after.is_some_and(|after| self.pieces >= after) {
                return Some(End::Killed);
            }
            let Some(piece) = session.take() else { break };
            self.job.append(&piece.bytes, piece.last);
            if piece.last {
                return Some(End::Done);
            }
            self.pieces += 1;
            self.until = simulated + PIECE_PATIENCE;
            if self.slow {
                let pause = self.prng.below(SLOW_MAX.as_nanos());
                self.take_at = simulated + Duration::from_nanos(pause);
            }
        }
        session.error().map(|error| end_of(error, self.pieces))
    }

    /// Takes leave, as far as a process that ends so does.
    fn leave(&mut self, cx: &mut Cx<'_, Host>) {
        let Source::Replica(session) = &mut self.source else {
            self.has_left = true;
            return;
        };
        match (&self.end, self.does) {
            (None, _) => return,
            (Some(End::Killed), _) => {}
            (Some(End::Done | End::Elsewhere(_)), BackupTurn::Pieces(_)) => {
                session.end(cx);
                session.leave(cx);
            }
            (Some(_), _) => session.leave(cx),
        }
        self.has_left = true;
    }
}

fn end_of(error: &BackupError, pieces: u64) -> End {
    match error {
        BackupError::Lost => End::Lost(pieces),
        other => End::Elsewhere(other.to_string()),
    }
}

impl App<Host> for BackingUp {
    fn on_request(&mut self, cx: &mut Cx<'_, Host>, request: Request<'_>) -> Reply {
        match &mut self.source {
            Source::Group { clients, .. } => clients.on_request(cx, request),
            Source::Replica(session) => session.on_request(cx, request),
        }
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, Host>, tag: u64, completion: Completion) {
        match &mut self.source {
            Source::Group { clients, .. } => clients.on_completion(cx, tag, completion),
            Source::Replica(session) => session.on_completion(cx, tag, completion),
        }
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Host>, event: Event<Host>) {
        match &mut self.source {
            Source::Group { clients, .. } => clients.on_event(cx, event),
            Source::Replica(session) => session.on_event(cx, event),
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, Host>) {
        if self.end.is_some() {
            return self.leave(cx);
        }
        match &mut self.source {
            Source::Group { clients, .. } => clients.on_turn(cx),
            Source::Replica(session) => session.on_turn(cx),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.end.is_some() {
            return None;
        }
        match &self.source {
            Source::Group { clients, .. } => clients.next_timeout(),
            Source::Replica(session) => session.next_timeout(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_seeds_have_backups_and_most_have_none() {
        let drawn = (0..4_000).filter(|&seed| is_drawn(seed)).count();
        assert!((650..950).contains(&drawn), "{drawn}");
    }

    fn candidate(number: u16) -> Candidate {
        Candidate {
            host: Host(number),
            incarnation: Incarnation(u64::from(number) + 1),
            cluster: ClusterId(7),
            leads: number == 0,
        }
    }

    fn head() -> BackupHead {
        BackupHead {
            image: 3,
            cluster: ClusterId(7),
            index: 9,
            term: 2,
            group_time_ns: 5,
            items: 0,
            logical_bytes: 0,
            state_version: 1,
            users: 0,
        }
    }

    #[test]
    fn a_lost_session_goes_on_and_a_lost_image_begins_again_elsewhere() {
        let (mut ledger, mut job) = (Ledger::default(), Job::new(0, Prng::new(1)));
        let survey = |_: &mut Prng| vec![candidate(1), candidate(2), candidate(0)];
        job.at_least = Some(4);
        let mut follow = |job: &mut Job, was, end| job.follow(was, &end, &mut ledger, survey);
        let image = follow(&mut job, BackupTurn::Position, End::Done);
        assert_eq!(image, BackupTurn::Image(candidate(1)));
        job.begin_file(&head(), Incarnation(2));
        let pieces = follow(&mut job, image, End::Done);
        job.append(b"one", false);
        assert_eq!(follow(&mut job, pieces, End::Lost(1)), pieces);
        let other = BackupTurn::Image(candidate(2));
        assert_eq!(follow(&mut job, pieces, End::Lost(0)), other);
        let gone = || End::Elsewhere("gone".to_owned());
        let mut next = other;
        let mut asked = Vec::new();
        while let BackupTurn::Image(candidate) = next {
            asked.push(candidate.host.0);
            next = follow(&mut job, next, gone());
        }
        assert_eq!(
            (next, asked),
            (BackupTurn::Over, vec![2, 0, 1, 2, 0, 1, 2, 0])
        );
        assert_eq!((ledger.counts.failed, ledger.counts.begun_again), (1, 1));
    }

    #[test]
    fn a_file_whose_end_is_missing_goes_on_behind_its_last_whole_frame() {
        for seed in 0..50 {
            let mut job = Job::new(0, Prng::new(seed));
            job.begin_file(&head(), Incarnation(2));
            for content in [b"one", b"two"] {
                job.append(content, false);
            }
            job.find_again();
            let Some((header, encoder)) = &job.begun else {
                continue;
            };
            assert_eq!(header.head, head());
            assert_eq!(encoder.bytes(), job.file.len() as u64);
            assert!(encoder.frames() <= 2);
        }
    }
}
