//! What callers and servers of a sequencer say to each other, and what a server keeps.

use trine_sequencer::speculative::{Reply, guess_of, request};
use trine_sequencer::wire::{Answer, Keeping, Speculation, Stats, count_of, next_request};
use trine_sequencer::{Record, block_of, read_epoch, write_epoch};

/// The first byte says who reads the others. Whatever is read is written as it was read, and no two texts mean the same.
pub fn messages(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 8 {
        0 => {
            if let Some(keeping) = Keeping::of_hello(bytes) {
                assert_eq!(keeping.hello()[..], *bytes);
            }
        }
        1 => {
            if let Some(count) = count_of(bytes) {
                assert!(count > 0);
                assert_eq!(next_request(count)[..], *bytes);
            }
        }
        2 => {
            if let Some(answer) = Answer::decode(bytes) {
                let mut written = vec![0; answer.encoded_len()];
                answer.encode_into(&mut written);
                assert_eq!(written, bytes);
            }
        }
        3 => stats(bytes),
        4 => {
            if let Ok(record) = Record::decode(bytes) {
                assert_eq!(record.encode()[..], *bytes);
            }
        }
        5 => epoch(bytes),
        6 => {
            if let Some(speculation) = Speculation::decode(bytes) {
                assert_eq!(speculation.encode()[..], *bytes);
            }
        }
        _ => four_bytes(bytes),
    }
}

/// A request of four bytes, and an answer to one.
fn four_bytes(bytes: &[u8]) {
    if let Some(guess) = guess_of(bytes) {
        assert_eq!(request(guess)[..], *bytes);
    }
    if let Some(reply) = Reply::decode(bytes) {
        let mut room = [0; 8];
        let length = reply.encode_into(&mut room);
        assert_eq!(room[..length], *bytes);
    }
}

/// JSON has many forms for one content.
fn stats(bytes: &[u8]) {
    if let Ok(stats) = serde_json::from_slice::<Stats>(bytes) {
        let written = serde_json::to_vec(&stats).expect("numbers under text keys");
        assert_eq!(serde_json::from_slice::<Stats>(&written).ok(), Some(stats));
    }
}

/// The file that keeps which numbers are taken. Every epoch that is read has a block of numbers.
fn epoch(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match read_epoch(text) {
        Ok(epoch) => {
            let block = block_of(epoch);
            assert!(block.start < block.end);
            assert_eq!(read_epoch(&write_epoch(epoch)), Ok(epoch));
        }
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}
