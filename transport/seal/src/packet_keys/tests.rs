//! Bytes are opened once, in any order, over the end of an epoch, and never if a bit of them was turned.

use super::*;

const HEADER: &[u8] = b"a header of 24 bytes ...";

fn ends() -> (Sealer, Opener) {
    (Sealer::new(&[5; 32]), Opener::new(&[5; 32]))
}

fn seal(sealer: &mut Sealer, plain: &[u8]) -> (u32, Vec<u8>) {
    let counter = sealer.draw().expect("no fork");
    let mut sealed = vec![0; plain.len() + TAG_BYTES];
    sealer.seal(Counter(counter.0), HEADER, plain, &mut sealed);
    (counter.low(), sealed)
}

fn open(opener: &mut Opener, (low, sealed): &(u32, Vec<u8>)) -> Result<Vec<u8>, NotOpened> {
    let mut plain = vec![0; sealed.len() - TAG_BYTES];
    opener.open(*low, HEADER, sealed, &mut plain)?;
    Ok(plain)
}

#[test]
fn what_was_sealed_opens_once() {
    let (mut sealer, mut opener) = ends();
    for text in [&b""[..], b"a", &[7; 1_448]] {
        let packet = seal(&mut sealer, text);
        assert_eq!(open(&mut opener, &packet).as_deref(), Ok(text));
        assert_eq!(open(&mut opener, &packet), Err(NotOpened::Replayed));
    }
}

#[test]
fn every_bit_counts() {
    let (mut sealer, mut opener) = ends();
    let (low, sealed) = seal(&mut sealer, b"all the bits of this");
    for bit in 0..sealed.len() * 8 {
        let mut turned = sealed.clone();
        turned[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(open(&mut opener, &(low, turned)), Err(NotOpened::Forged));
    }
    for bit in 0..32 {
        assert!(
            open(&mut opener, &(low ^ 1 << bit, sealed.clone())).is_err(),
            "counter bit {bit}"
        );
    }
    let mut plain = vec![0; sealed.len() - TAG_BYTES];
    for bit in 0..HEADER.len() * 8 {
        let mut header = HEADER.to_vec();
        header[bit / 8] ^= 1 << (bit % 8);
        assert!(opener.open(low, &header, &sealed, &mut plain).is_err());
    }
    assert!(
        open(&mut opener, &(low, sealed)).is_ok(),
        "failures left no trace"
    );
    assert!(opener.failures() > 300);
}

#[test]
fn packets_may_overtake_each_other_within_the_window() {
    let (mut sealer, mut opener) = ends();
    let packets: Vec<_> = (0..2_000u32)
        .map(|n| seal(&mut sealer, &n.to_le_bytes()))
        .collect();
    assert!(open(&mut opener, &packets[1_500]).is_ok());
    assert_eq!(
        open(&mut opener, &packets[1_500 - 1_024]),
        Err(NotOpened::Replayed),
        "too old"
    );
    for packet in packets[1_500 - 1_023..1_500].iter().rev() {
        assert!(open(&mut opener, packet).is_ok());
    }
    assert!(open(&mut opener, &packets[1_999]).is_ok());
}

/// The counters around the ends of epochs and of the 32 bits that travel.
#[test]
fn epochs_follow_each_other_also_out_of_order() {
    for end in [
        1 << EPOCH_BITS,
        5 << EPOCH_BITS,
        1 << 32,
        (1 << 32) + (3 << EPOCH_BITS),
    ] {
        let (mut sealer, mut opener) = ends();
        sealer.skip_to(end - 4);
        opener.skip_to(end - 5);
        let packets: Vec<_> = (0..8u32)
            .map(|n| seal(&mut sealer, &n.to_le_bytes()))
            .collect();
        for index in [1, 5, 0, 4, 3, 7, 6, 2] {
            assert_eq!(
                open(&mut opener, &packets[index]).as_deref(),
                Ok(&(index as u32).to_le_bytes()[..]),
                "packet {index} around {end}"
            );
            assert_eq!(open(&mut opener, &packets[index]), Err(NotOpened::Replayed));
        }
    }
}

#[test]
fn a_forged_packet_of_the_next_epoch_does_not_change_the_epoch() {
    let (mut sealer, mut opener) = ends();
    let first = seal(&mut sealer, b"first");
    let forged = (1 << EPOCH_BITS, vec![0; 40]);
    assert_eq!(open(&mut opener, &forged), Err(NotOpened::Forged));
    assert!(open(&mut opener, &first).is_ok());
    assert_eq!(opener.chain.epoch, 0);
}

/// Each forged packet that claimed to be of the next epoch cost a key schedule.
#[test]
fn the_next_epochs_key_is_made_once() {
    let (mut sealer, mut opener) = ends();
    let made = |opener: &Opener| opener.next.as_ref().map(|next| &raw const **next);
    let forged = |n: u32| ((1 << EPOCH_BITS) + n, vec![n as u8; 40]);
    assert_eq!(made(&opener), None);
    assert_eq!(open(&mut opener, &forged(0)), Err(NotOpened::Forged));
    let first = made(&opener);
    assert!(first.is_some());
    for n in 1..100 {
        assert_eq!(open(&mut opener, &forged(n)), Err(NotOpened::Forged));
        assert_eq!(made(&opener), first);
    }
    sealer.skip_to(1 << EPOCH_BITS);
    assert!(open(&mut opener, &seal(&mut sealer, b"the epoch begins")).is_ok());
    assert_eq!((opener.chain.epoch, made(&opener)), (1, None));
}

#[test]
fn the_nearest_counter_has_the_bits_that_travelled() {
    assert_eq!(nearest(5, 0), Some(5));
    assert_eq!(nearest(u32::MAX, 0), None, "before the first");
    assert_eq!(nearest(3, (1 << 32) - 2), Some((1 << 32) + 3));
    assert_eq!(nearest(u32::MAX, 1 << 32), Some((1 << 32) - 1));
}

/// Parent and child have one key and one next counter. With both in use, two packets had one nonce.
#[test]
fn nothing_is_sealed_in_a_child_of_the_process_that_made_the_key() {
    let (mut sealer, mut opener) = ends();
    let first = seal(&mut sealer, b"first");
    let child = trine_child::fork(|| match sealer.draw() {
        None => Ok(()),
        Some(counter) => Err(format!("{counter:?} is the parent's")),
    });
    assert_eq!(child.join(std::time::Duration::from_secs(20)), Ok(()));
    let second = seal(&mut sealer, b"second");
    assert_eq!(open(&mut opener, &first).as_deref(), Ok(&b"first"[..]));
    assert_eq!(open(&mut opener, &second).as_deref(), Ok(&b"second"[..]));
    assert_eq!(second.0, first.0 + 1);
}
