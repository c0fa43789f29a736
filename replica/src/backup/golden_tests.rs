//! Backups that released programs took (`compat/`, docs/versions.md). Each is restored to the state that its group had,
//! and none with a flipped bit is restored.
//!
//! Flipped, one at a time, is each bit of the first KiB, which has the header and frames behind it; the whole file is read
//! again each time. Damage further on is in `tests.rs`.

use trine_corpus::goldens::{FLIPPED_BYTES, flip_each_bit, goldens};

use super::*;

fn content(bytes: &[u8]) -> Result<Content, RestoreError> {
    let mut restorer = Restorer::default();
    restorer.feed(bytes)?;
    restorer.finish()
}

#[test]
fn each_is_restored_to_the_state_of_its_group() {
    for golden in goldens() {
        for (name, shows) in golden.files("backups") {
            let content = content(&golden.bytes(name)).expect("a backup of an earlier release");
            let head = content.header().head;
            assert_eq!(head.index, shows["index"], "{name}");
            assert_eq!(head.items, shows["keys"], "{name}");
            assert_eq!(head.users, shows["users"], "{name}");
            let hash = format!("{:032x}", content.store().state_hash());
            assert_eq!(hash, shows["state_hash"], "{name}");
        }
    }
}

#[test]
fn no_flipped_bit_restores_another_state() {
    for golden in goldens() {
        for name in golden.files("backups").keys() {
            let mut bytes = golden.bytes(name);
            let mut refused = 0;
            let bits = flip_each_bit(&mut bytes, |flipped, bit| match content(flipped) {
                Err(_) => refused += 1,
                // Checksums cover every byte of a backup, so none may be restored, whatever is in it.
                Ok(_) => panic!("{name}: restored with bit {bit} flipped"),
            });
            assert_eq!((refused, bits), (FLIPPED_BYTES * 8, FLIPPED_BYTES * 8));
            println!("{name}: {refused} refused");
        }
    }
}
