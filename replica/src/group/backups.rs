//! Backups: an image of this member's state that a caller reads piece by piece, at its own speed.
//!
//! Nothing is made ahead: a piece is written when it is asked for, and dropped when the caller has it. So the image
//! takes the memory of a few pieces, and of what is overwritten in the store meanwhile, which the store bounds. The
//! store makes one image at a time. A member that needs the state, and a snapshot of disk mode that is long overdue,
//! go first: the image is given up, and the caller begins again, here or elsewhere.

mod contest;

use std::collections::VecDeque;
use std::net::SocketAddr;

use trine_canary as canary;
use trine_protocol::message::{
    BACKUP_WINDOW, BackupHead, BackupReply, BackupRequest, BackupStep, ClusterId, ReplyToken,
};
use trine_protocol::status::BackupStatus;
use trine_transport::prng::Prng;
use trine_transport::time::Instant;

use super::consensus::Consensus;
use super::local::Local;
use crate::audit::{Audit, By, Trail};
use crate::config::{
    BACKUP_BYTES_PER_TURN, BACKUP_IDLE_MAX, BACKUP_PAUSE, BACKUP_PIECES_WAITING_MAX,
};
use crate::outbox::Outbox;
use crate::snapshot_transfer::{Image, Piece};
use crate::state_machine::StateMachine;
use contest::ReaderProgress;

/// The image that is being read, if there is one, and the names of those to come.
pub(super) struct Backups {
    /// Draws the names of images. A restarted replica must not know an image of its earlier life.
    names: Prng,
    reading: Option<Reading>,
    /// Why the last image went, for the caller that still asks for it.
    gone: Option<(u64, &'static str)>,
    /// No image is begun before this: one that was begun earlier was in the way of other work.
    paused_until: Option<Instant>,
    audit: Trail,
}

struct Reading {
    head: BackupHead,
    progress: ReaderProgress,
    image: Image,
    /// When it was begun, or a piece of it was asked for last.
    used: Instant,
    /// Bytes of the pieces that were handed out, repeated ones included.
    bytes: u64,
    /// Requests for pieces, in the order of their arrival.
    waiting: VecDeque<(ReplyToken, u32)>,
}

/// The parts of a member that a request for a backup may look at.
pub(super) struct BackupCx<'a> {
    pub(super) now: Instant,
    pub(super) local: &'a Local,
    pub(super) state: Option<&'a mut StateMachine>,
    pub(super) consensus: &'a Consensus,
    /// The store makes another image.
    pub(super) store_is_taken: bool,
    pub(super) out: &'a mut Outbox,
}

impl Backups {
    /// Images get names that `seed` decides.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            names: Prng::new(seed),
            reading: None,
            gone: None,
            paused_until: None,
            audit: Trail::default(),
        }
    }

    /// Whether the store makes an image for this.
    pub(super) fn has_image(&self) -> bool {
        self.reading
            .as_ref()
            .is_some_and(|reading| reading.image.end().is_none())
    }

    /// Whether a caller waits for a piece.
    pub(super) fn has_waiting(&self) -> bool {
        self.reading
            .as_ref()
            .is_some_and(|reading| !reading.waiting.is_empty())
    }

    /// The image that is being read.
    pub(super) fn status(&self) -> Option<BackupStatus> {
        self.reading.as_ref().map(|reading| BackupStatus {
            index: reading.head.index,
            bytes: reading.bytes,
            bytes_total: reading.head.logical_bytes,
        })
    }

    /// The request that came last came from this address.
    pub(super) fn came_from(&mut self, address: impl FnOnce() -> Option<SocketAddr>) {
        self.audit.came_from(address);
    }

    /// The oldest audit line that was not read yet, and how many were lost before it.
    pub(super) fn next_audit(&mut self) -> Option<(Audit, u64)> {
        self.audit.pop()
    }

    /// A request has arrived from a caller that may ask.
    pub(super) fn on_request(
        &mut self,
        cx: BackupCx<'_>,
        token: ReplyToken,
        by: By,
        request: &BackupRequest,
    ) {
        let ours = cx.local.cluster;
        if request.cluster != ours {
            let text = format!("this replica belongs to cluster {ours}");
            return cx.out.reply(token, &BackupReply::Refused(&text));
        }
        match request.step {
            BackupStep::Begin { at_least } => self.begin(cx, token, by, at_least),
            BackupStep::Piece {
                image,
                number,
                needed_from,
            } => self.take(cx, token, image, number, needed_from),
            BackupStep::End { image } => {
                if self.is_read(image) {
                    self.give_up(cx.state, "its caller has ended it", cx.out);
                }
                cx.out.reply(token, &BackupReply::Ended);
            }
        }
    }

    fn is_read(&self, image: u64) -> bool {
        self.reading
            .as_ref()
            .is_some_and(|reading| reading.head.image == image)
    }

    fn begin(&mut self, cx: BackupCx<'_>, token: ReplyToken, by: By, at_least: u64) {
        let later = |out: &mut Outbox, text: &str| out.reply(token, &BackupReply::Later(text));
        let Some(state) = cx.state else {
            return later(cx.out, "this replica has no state yet");
        };
        if let Some(reading) = &mut self.reading
            && !reading.progress.gives_way_to(by, cx.now)
        {
            return later(
                cx.out,
                "another backup reads an image of this replica; one that does not go on gives way after 10 s",
            );
        }
        let lags = state.applied_index() < at_least;
        if lags && !canary::planted("a backup of a follower that lags") {
            return later(
                cx.out,
                "this replica has not applied yet what the leader has",
            );
        }
        let raft = cx.consensus.raft();
        let is_paused = self.paused_until.is_some_and(|until| cx.now < until);
        if is_paused || raft.is_leader() && cx.consensus.wants_snapshot() {
            let text =
                "this replica makes way for a member that needs the state, or for its own snapshot";
            return later(cx.out, text);
        }
        let why = "another caller waits for an image, and this one was hardly read";
        self.give_up(Some(state), why, cx.out);
        let index = state.applied_index();
        let term = cx.consensus.raft().term_at(index);
        let free = !cx.store_is_taken && state.store_mut().clear_snapshot();
        let (Some(term), true) = (term, free) else {
            return later(cx.out, "this replica makes another image of its state");
        };
        assert!(self.reading.is_none(), "an image is read at a time");
        let Some(image) = Image::begin_without_sessions(cx.now, state) else {
            return later(cx.out, "this replica makes another image of its state");
        };
        let stats = state.store().stats();
        let head = BackupHead {
            image: self.names.next_u64().max(1),
            cluster: cx.local.cluster,
            index,
            term,
            group_time_ns: state.group_time_ns(),
            items: stats.items,
            logical_bytes: stats.logical_bytes,
            state_version: state.version(),
            users: u32::try_from(state.store().users().len()).unwrap_or(u32::MAX),
        };
        self.audit.push(Audit {
            position: state.applied_position(),
            by,
            what: "read all keys and users for a backup".to_owned(),
            outcome: "begun".to_owned(),
            sets_memory: None,
            asked: None,
        });
        cx.out.counters.backups_begun += 1;
        cx.out.reply(token, &BackupReply::Begun(head));
        self.reading = Some(Reading {
            head,
            progress: ReaderProgress::of(by),
            image,
            used: cx.now,
            bytes: 0,
            waiting: VecDeque::new(),
        });
    }

    /// Keeps a request for a piece until the turn that answers it.
    fn take(
        &mut self,
        cx: BackupCx<'_>,
        token: ReplyToken,
        image: u64,
        number: u32,
        needed_from: u32,
    ) {
        let cluster = cx.local.cluster;
        let Some(reading) = self
            .reading
            .as_mut()
            .filter(|reading| reading.head.image == image)
        else {
            return cx
                .out
                .reply(token, &BackupReply::Gone(&self.why_gone(image, cluster)));
        };
        // The image holds no more pieces than the caller says that it needs, and none is written ahead of those that were
        // asked for.
        if number < needed_from
            || number - needed_from > BACKUP_WINDOW
            || needed_from > reading.image.written()
        {
            let text = format!(
                "a piece has to be at most {BACKUP_WINDOW} behind the first one that is needed"
            );
            return cx.out.reply(token, &BackupReply::Refused(&text));
        }
        if reading.waiting.len() >= BACKUP_PIECES_WAITING_MAX {
            return cx.out.reply(
                token,
                &BackupReply::Later("too many pieces are asked for at a time"),
            );
        }
        reading.used = cx.now;
        reading.image.forget_below(needed_from);
        reading.waiting.push_back((token, number));
        assert!(reading.waiting.len() <= BACKUP_PIECES_WAITING_MAX);
    }

    fn why_gone(&self, image: u64, cluster: ClusterId) -> String {
        match self.gone {
            Some((gone, why)) if gone == image => format!("the image is gone: {why}"),
            _ => format!("this replica of cluster {cluster} has no such image"),
        }
    }

    /// Answers requests for pieces, as many as other work can wait for.
    pub(super) fn serve(&mut self, state: Option<&mut StateMachine>, out: &mut Outbox) {
        let (Some(reading), Some(state)) = (&mut self.reading, state) else {
            return;
        };
        let mut handed = 0;
        while handed < BACKUP_BYTES_PER_TURN {
            let Some(&(token, number)) = reading.waiting.front() else {
                return;
            };
            let is_gone = reading.image.piece(number, state.store_mut()) == Piece::Gone;
            if is_gone && reading.image.is_given_up(state.store()) {
                let why =
                    "more was overwritten or removed during the backup than the store keeps for it";
                return self.give_up(Some(state), why, out);
            }
            let end = reading.image.end();
            let (bytes, last) = match reading.image.piece(number, state.store_mut()) {
                Piece::Chunk(bytes, last) => (bytes, last),
                Piece::Pending => return,
                // A caller that reads ahead finds the end by this.
                Piece::Gone if end.is_some_and(|end| number >= end) => (&[][..], true),
                // The caller is wrong, and the image stays.
                Piece::Gone => {
                    reading.waiting.pop_front();
                    let text = "the image has no such piece any more";
                    out.reply(token, &BackupReply::Refused(text));
                    continue;
                }
            };
            handed += bytes.len();
            reading.bytes += bytes.len() as u64;
            reading.progress.on_piece(number, bytes.len());
            if last && !bytes.is_empty() {
                out.counters.backups_read += 1;
            }
            out.reply(token, &BackupReply::Piece { last, bytes });
            reading.waiting.pop_front();
        }
    }

    /// Ends the image, and tells those who wait for pieces of it.
    pub(super) fn give_up(
        &mut self,
        state: Option<&mut StateMachine>,
        why: &'static str,
        out: &mut Outbox,
    ) {
        let Some(reading) = self.reading.take() else {
            return;
        };
        if let Some(state) = state {
            reading.image.abandon(state.store_mut());
        }
        self.gone = Some((reading.head.image, why));
        let text = format!("the image is gone: {why}");
        for (token, _) in reading.waiting {
            out.reply(token, &BackupReply::Gone(&text));
        }
    }

    /// The work of one tick: an idle image goes, and one that is in the way of other work.
    pub(super) fn maintain(
        &mut self,
        now: Instant,
        state: Option<&mut StateMachine>,
        in_the_way: Option<&'static str>,
        out: &mut Outbox,
    ) {
        let idle = |reading: &Reading| now.saturating_since(reading.used) > BACKUP_IDLE_MAX;
        let in_the_way = in_the_way.filter(|_| self.has_image());
        let why = match &self.reading {
            None => return,
            Some(reading) if idle(reading) => "nothing of it was asked for in a minute",
            Some(_) => match in_the_way {
                Some(why) => {
                    self.paused_until = Some(now + BACKUP_PAUSE);
                    why
                }
                None => return,
            },
        };
        self.give_up(state, why, out);
    }
}
