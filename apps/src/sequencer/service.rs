//! A command's request to a sequencer, and its words when there is none.

use std::net::SocketAddr;
use std::time::Duration;

use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_sequencer::Why;
use trine_sequencer::wire::{ANSWER_BYTES_MAX, HELLO, Keeping};
use trine_transport::backend::Backend;
use trine_transport::buf::MsgBuf;

use crate::line::{Patience, SAME_RELEASE, Service, ThreadSession};

pub(super) const SEQUENCER: Service = Service {
    name: "a sequencer",
    start_one: "start a sequencer with `trine sequencer serve`, or name the right one with --connect or TRINE_SEQUENCER",
    see_whether: "retry: numbers may be skipped, but are never given out twice",
};

/// Why a server has no numbers now.
pub(super) struct NoNumbers(pub(super) SocketAddr, pub(super) Why);

/// A connection to a server that has said that it is one.
pub(super) fn open<N: Network>(
    network: &N,
    address: SocketAddr,
    patience: Duration,
) -> Result<ThreadSession<N::Backend>, Failure> {
    let mut line = ThreadSession::open(network, &SEQUENCER, address, Patience::of(patience))?;
    hello(&mut line, address)?;
    Ok(line)
}

/// Another server would take a request for what it is not.
fn hello<B: Backend>(line: &mut ThreadSession<B>, address: SocketAddr) -> Result<Keeping, Failure> {
    let answer: MsgBuf = line.ask(HELLO, &[], ANSWER_BYTES_MAX, false)?;
    Keeping::of_hello(&answer).ok_or_else(|| {
        Failure::usage(
            format!("{address} is not a sequencer of this release; nothing was done"),
            SEQUENCER.start_one,
        )
    })
}

pub(super) fn unreadable(address: SocketAddr) -> Failure {
    Failure::usage(
        format!("the reply of {address} could not be decoded"),
        SAME_RELEASE,
    )
}
