//! What callers and servers of a sequencer say to each other, and what a server keeps.

use trine_sequencer::wire::{Answer, Keeping, Stats, count_of, next_request};
use trine_sequencer::{Record, block_of, read_epoch, write_epoch};

/// The first byte says who reads the others. Whatever is read is written as it was read, and no two texts mean the same.
pub fn messages(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 6 {
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
        _ => epoch(bytes),
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
