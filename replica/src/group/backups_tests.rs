//! A backup beside the snapshots of disk mode: neither stops the other for good.

use trine_kvstore::Command;
use trine_protocol::message::{
    BackupReply, BackupRequest, BackupStep, ClientReply, ClientRequest, ClusterId, Operation,
    ReplyToken,
};
use trine_transport::Holder;
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::time::{Duration, Instant};

use super::Group;
use super::durability::Durability;
use super::watches_tests::group_of_one;
use crate::config::{BACKUP_CONTEST, BACKUP_LOG_SHARE_MAX, ReplicaConfig};
use crate::outbox::Outbox;
use crate::output::Output;
use crate::rights::Caller;

const LOG_BYTES: u64 = 100_000;

/// A group of one whose disk is as fast as can be.
struct Alone {
    group: Group,
    out: Outbox,
    now: Instant,
    client: u64,
    sequence: u64,
}

impl Alone {
    fn new() -> Self {
        let config = ReplicaConfig {
            disk_log_bytes_max: LOG_BYTES,
            ..ReplicaConfig::default()
        };
        let mut out = Outbox::new(Pool::new(PoolConfig::default()));
        let now = Instant::ZERO;
        let mut group = group_of_one(config, now);
        group.keep_on_disk(&mut out);
        group.campaign();
        let mut alone = Self {
            group,
            out,
            now,
            client: 0,
            sequence: 0,
        };
        alone.turn();
        let register = ClientRequest {
            client: 99,
            ..ClientRequest::bare(Operation::Register)
        };
        let reply = alone.ask(&register);
        alone.client = ClientReply::decode(&reply).expect("a reply").position;
        alone
    }

    /// A few turns, whose writes are durable at once; the answers to requests.
    fn turn(&mut self) -> Vec<Vec<u8>> {
        let mut replies = Vec::new();
        for _ in 0..4 {
            self.now += Duration::from_millis(10);
            self.group.on_turn(self.now, &mut self.out);
            let written = std::iter::from_fn(|| self.out.pop_write()).last();
            if let Some((number, _)) = written {
                self.group.on_written(self.now, number, &mut self.out);
            }
            while let Some(output) = self.out.pop() {
                if let Output::Reply { bytes, .. } = output {
                    replies.push(bytes.to_vec());
                }
            }
        }
        replies
    }

    fn ask(&mut self, request: &ClientRequest<'_>) -> Vec<u8> {
        let (caller, holder) = (Caller::default(), || Holder::Shared);
        let token = ReplyToken(1);
        self.group
            .on_client(self.now, token, caller, request, &holder, &mut self.out);
        self.turn().pop().expect("an answer")
    }

    fn put(&mut self, number: u64, bytes: usize) {
        let (key, value) = (number.to_le_bytes(), vec![7; bytes]);
        let put = Command::Put {
            key: &key,
            value: &value,
        };
        let mut command = Vec::new();
        put.encode(&mut command);
        self.sequence += 1;
        self.ask(&ClientRequest {
            cluster: ClusterId(7),
            client: self.client,
            sequence: self.sequence,
            lowest_awaited: self.sequence,
            session_number: 99,
            command: &command,
            ..ClientRequest::bare(Operation::Apply)
        });
    }

    fn backup(&mut self, step: BackupStep) -> Vec<u8> {
        let request = BackupRequest {
            cluster: ClusterId(7),
            step,
        };
        let (token, caller) = (ReplyToken(1), Caller::default());
        self.group
            .on_backup(self.now, token, caller, &request, &mut self.out);
        self.turn().pop().expect("an answer")
    }

    fn begin(&mut self) -> Option<u64> {
        let reply = self.backup(BackupStep::Begin { at_least: 0 });
        match BackupReply::decode(&reply).expect("a reply") {
            BackupReply::Begun(head) => Some(head.image),
            BackupReply::Later(_) => None,
            other => panic!("{other:?}"),
        }
    }

    fn snapshots(&self) -> u64 {
        self.out.counters.snapshots_written
    }
}

fn piece(image: u64, number: u32) -> BackupStep {
    BackupStep::Piece {
        image,
        number,
        needed_from: number,
    }
}

/// The log on disk grows while a slow backup is read: a snapshot of its own waits for it, and not for ever.
#[test]
fn a_snapshot_that_is_long_overdue_goes_before_a_backup() {
    let mut alone = Alone::new();
    (0..60).for_each(|number| alone.put(number, 1_000));
    assert_eq!(alone.snapshots(), 0);
    let image = alone.begin().expect("an image");
    let mut number = 0;
    // Its own snapshot is due, and waits.
    for _ in 0..2 * LOG_BYTES / 10_000 {
        number += 1;
        alone.put(number % 60, 10_000);
    }
    assert_eq!(alone.snapshots(), 0);
    let reply = alone.backup(piece(image, 0));
    assert!(matches!(
        BackupReply::decode(&reply),
        Ok(BackupReply::Piece { .. })
    ));
    for _ in 0..BACKUP_LOG_SHARE_MAX * LOG_BYTES / 10_000 {
        number += 1;
        alone.put(number % 60, 10_000);
    }
    let reply = alone.backup(piece(image, 1));
    let Ok(BackupReply::Gone(why)) = BackupReply::decode(&reply) else {
        panic!("{reply:?}");
    };
    assert!(why.contains("own snapshot"), "{why}");
    assert!(alone.snapshots() > 0);
    assert_eq!(alone.begin(), None, "the snapshot has a head start");
    let mut begun = None;
    for _ in 0..100 {
        begun = begun.or_else(|| alone.begin());
    }
    assert!(begun.is_some(), "and the next backup gets its turn");
}

/// Whoever had begun an image kept it from all others, without a key and for good, by asking for a piece now and then.
#[test]
fn an_image_that_is_not_read_goes_to_another_caller_that_waits() {
    let mut alone = Alone::new();
    alone.put(1, 10);
    let held = alone.begin().expect("an image");
    let began = alone.now;
    let next = loop {
        alone.now += Duration::from_secs(1);
        let reply = alone.backup(piece(held, 0));
        let is_piece = matches!(BackupReply::decode(&reply), Ok(BackupReply::Piece { .. }));
        assert!(is_piece, "{reply:?}");
        if let Some(next) = alone.begin() {
            break next;
        }
    };
    let waited = alone.now.saturating_since(began);
    let limit = BACKUP_CONTEST + Duration::from_secs(3);
    assert!((BACKUP_CONTEST..limit).contains(&waited), "{waited:?}");
    let reply = alone.backup(piece(held, 0));
    let Ok(BackupReply::Gone(why)) = BackupReply::decode(&reply) else {
        panic!("{reply:?}");
    };
    assert!(why.contains("another caller waits"), "{why}");
    let reply = alone.backup(piece(next, 0));
    assert!(matches!(
        BackupReply::decode(&reply),
        Ok(BackupReply::Piece { .. })
    ));
}

/// The whole image is there, and a slow caller takes its last pieces: the store is free.
#[test]
fn an_image_that_is_written_to_its_end_stops_no_snapshot() {
    let mut alone = Alone::new();
    alone.put(1, 10);
    let image = alone.begin().expect("an image");
    let mut number = 0;
    loop {
        let step = BackupStep::Piece {
            image,
            number,
            needed_from: 0,
        };
        let reply = alone.backup(step);
        let Ok(BackupReply::Piece { last, .. }) = BackupReply::decode(&reply) else {
            panic!("{reply:?}");
        };
        if last {
            break;
        }
        number += 1;
    }
    (0..20).for_each(|number| alone.put(number, 10_000));
    assert!(alone.snapshots() > 0);
    let reply = alone.backup(piece(image, number));
    let Ok(BackupReply::Piece { last: true, .. }) = BackupReply::decode(&reply) else {
        panic!("{reply:?}");
    };
}

/// A snapshot of its own that came to nothing counted as if no log had piled up. A backup then was never in its way.
#[test]
fn a_snapshot_that_was_given_up_is_due_and_as_overdue_as_before() {
    let mut alone = Alone::new();
    alone.put(1, 10);
    let now = alone.now;
    let Alone { group, out, .. } = &mut alone;
    let (local, consensus) = (&group.local, &group.consensus);
    let state = group.state.as_mut().expect("a state");
    let mut disk = Durability::with_log(BACKUP_LOG_SHARE_MAX * LOG_BYTES + 1);
    for _ in 0..3 {
        assert!(disk.own_snapshot_is_overdue(local));
        assert!(state.store_mut().clear_snapshot());
        disk.begin_own_snapshot(now, local, Some(&mut *state), false, consensus, out);
        assert!(disk.writes_own_snapshot(), "it is due at once");
        assert!(!disk.own_snapshot_is_overdue(local));
        disk.give_up_own(Some(&mut *state), out);
    }
}
