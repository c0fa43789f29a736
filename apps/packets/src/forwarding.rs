//! The fate of the frames that a port has received.

use crate::application::{Application, handle_all};
use crate::check::Tally;
use crate::config::BURST;
use crate::verdict::{Reason, Verdict};
use trine_dpdk::raw::RawQueue;

/// What was done with some frames.
#[derive(Clone, Default)]
pub struct Sum {
    /// Frames that came.
    pub received: u64,
    /// The verdicts on them.
    pub tally: Tally,
    /// Frames that ports took.
    pub sent: u64,
    /// Frames that a port had no room for.
    pub refused: u64,
}

/// Handles the frames that were received, and sends them.
pub fn turn<const N: usize, A: Application>(
    application: &A,
    input: &mut RawQueue,
    outputs: &mut [RawQueue],
) -> Sum {
    let mut burst = Sum::default();
    let count = input.held();
    let mut verdicts = [Verdict::Drop(Reason::Malformed); BURST];
    let mut frames: [&mut [u8]; BURST] = Default::default();
    for (frame, received) in frames.iter_mut().zip(input.received_mut()) {
        *frame = received;
    }
    handle_all::<N, A>(application, &mut frames[..count], &mut verdicts[..count]);
    burst.received = count as u64;
    let mut flooded = 0_u32;
    for (index, verdict) in verdicts.iter_mut().enumerate().take(count) {
        if !input.is_whole(index) {
            *verdict = Verdict::Drop(Reason::Malformed);
        }
        burst.tally.count(*verdict);
        flooded |= u32::from(*verdict == Verdict::Flood) << index;
    }
    let last = outputs.len() - 1;
    let copies = u64::from(flooded.count_ones()) * last as u64;
    let offered = burst.tally.forwarded + burst.tally.flooded + copies;
    if flooded != 0 {
        for output in &mut outputs[..last] {
            burst.sent += send_copies(input, output, flooded) as u64;
        }
    }
    burst.sent += input.forward(outputs, |index| match verdicts[index] {
        Verdict::Forward(port) => Some(port),
        Verdict::Flood => Some(last as u8),
        Verdict::Drop(_) => None,
    }) as u64;
    burst.refused = offered - burst.sent;
    burst
}

/// Sends copies of the received frames with these numbers, a bit each; how many the port took.
fn send_copies(input: &RawQueue, output: &mut RawQueue, mut numbers: u32) -> usize {
    let count = numbers.count_ones() as usize;
    if !output.allocate(count) {
        return 0;
    }
    for at in 0..count {
        let frame = input.received(numbers.trailing_zeros() as usize);
        output.frame(at, frame.len()).copy_from_slice(frame);
        numbers &= numbers - 1;
    }
    output.send_as_they_are(count)
}
