//! What this path needs of a device: queue pairs and regions, by the numbers of their connections.

use super::slot::Slots;
use super::terms::{ConnectionOffer, Grant};
use crate::route::VerbsRoute;

/// Queue pairs and regions, by the numbers of their connections.
pub(crate) trait OneSidedDevice {
    /// The client's end of a connection, as a server needs it.
    fn wish(&self, number: usize) -> ConnectionOffer;

    /// Connects the client's end with what a server has granted. False if the device refuses.
    fn connect(&mut self, number: usize, route: &VerbsRoute, grant: &Grant) -> bool;

    /// Writes to this place of the requests that were granted. The bytes are taken before it returns.
    fn write(&mut self, number: usize, grant: &Grant, offset: usize, bytes: &[u8]) -> Written;

    /// Begins to read a part of a slot of the answers that were granted: its bytes from .. to, which lie at the same place
    /// of the own buffer afterwards. A connection has as many under way as it has slots, at most. They complete in their
    /// order.
    fn fetch(&mut self, number: usize, grant: &Grant, slot: usize, part: (usize, usize))
    -> Written;

    /// What has become of the oldest READ that is under way. One that is done is under way no more.
    fn fetched(&mut self, number: usize) -> Fetched;

    /// The own buffer, of as many slots.
    fn fetch_buffer(&self, number: usize) -> impl Slots;

    /// Makes the client's end as it was at the start.
    fn renew_outgoing(&mut self, number: usize) -> bool;

    /// The server's end of a connection, as its client needs it.
    fn grant(&self, number: usize) -> Grant;

    /// Connects the server's end with the client that wishes it. False if the device refuses.
    fn listen(&mut self, number: usize, route: &VerbsRoute, wish: &ConnectionOffer) -> bool;

    /// The requests of a connection.
    fn slots(&self, number: usize) -> impl Slots;

    /// The answers of a connection.
    fn answers(&self, number: usize) -> impl Slots;

    /// Writes at this place of the answers, which is a multiple of eight.
    fn put_answer(&mut self, number: usize, offset: usize, bytes: &[u8]);

    /// Makes the server's end as it was at the start, its regions zero and under other keys.
    fn renew_incoming(&mut self, number: usize) -> bool;
}

/// What became of a write.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    /// The device has it.
    Done,
    /// The device has too many that it has not completed.
    Full,
    /// The queue pair does not work any more.
    Broken,
}

/// What became of a READ.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fetched {
    /// The device works on it.
    Pending,
    /// The bytes are in the buffer.
    Done,
    /// The queue pair does not work any more.
    Broken,
}
