//! Memory of messages: spare buffers, buffers that transmissions refer to, memory of arriving requests.
//!
//! A buffer may go back to its owner only when no transmission refers to it. Each call of `poll_transmit`
//! begins an epoch, and a flush of the backend ends all epochs before the present one.

use super::budget::Budget;
use super::cooling::Cooling;
use crate::buf::{MsgBuf, Pool};
use crate::config::{Config, MESSAGE_BYTES_MAX, SPARE_BYTES_MAX};
use crate::time::Instant;

/// The message memory of one endpoint.
pub(crate) struct Memory {
    pool: Pool,
    /// The backend copies what it sends: nothing ever waits for a flush.
    tx_copies: bool,
    /// The memory of the last response that a client was done with, for the next one.
    spare: Option<MsgBuf>,
    /// Responses that wait for a flush before their memory is free.
    retired: Vec<Retired>,
    /// Counts calls of `poll_transmit`, from 1.
    epoch: u64,
    /// Nothing that was sent up to this epoch is referred to.
    flushed_epoch: u64,
    /// Requests that are being received.
    pub(super) requests: Budget,
    /// Responses of several packets that clients fetch.
    pub(super) responses: Budget,
    cooling: Cooling,
}

/// A response whose buffer transmissions of an epoch may refer to.
struct Retired {
    _response: MsgBuf,
    epoch: u64,
}

impl Memory {
    pub(crate) fn new(pool: Pool, tx_copies: bool, config: &Config) -> Self {
        Self {
            pool,
            tx_copies,
            spare: None,
            retired: Vec::new(),
            epoch: 0,
            flushed_epoch: 0,
            requests: Budget::new(config.assembly_bytes, config.message_bytes),
            responses: Budget::new(config.response_bytes, MESSAGE_BYTES_MAX),
            cooling: Cooling::new(),
        }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A message buffer of `len` bytes; `None` when the pool's limit is reached.
    #[inline(always)]
    pub(crate) fn alloc(&mut self, len: usize) -> Option<MsgBuf> {
        match self.spare.take_if(|spare| len <= spare.capacity()) {
            Some(mut spare) => {
                spare.resize(len);
                Some(spare)
            }
            None => self.pool.alloc(len),
        }
    }

    /// Keeps a response's memory until no transmission refers to it, and a small one for the next
    /// response. These are the slots' preallocated responses (paper 4.3). One suffices, since a
    /// slot gives its last one up right before the handler of the next request asks for memory.
    #[inline(always)]
    pub(crate) fn retire(&mut self, response: Option<MsgBuf>, epoch: u64) {
        let Some(response) = response else {
            return;
        };
        if !self.tx_copies && epoch > self.flushed_epoch {
            self.retired.push(Retired {
                _response: response,
                epoch,
            });
        } else if self.spare.is_none()
            && response.capacity() <= SPARE_BYTES_MAX
            && !response.is_shared()
        {
            self.spare = Some(response);
        }
    }

    /// Begins an epoch: later transmissions belong to it.
    pub(crate) fn begin_epoch(&mut self) {
        self.epoch += 1;
    }

    /// The epoch of the last transmission.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The epoch that must be flushed before a buffer is free that was last sent in `epoch`; 0 for none.
    pub(crate) fn epoch_to_flush(&self, epoch: u64) -> u64 {
        if self.tx_copies { 0 } else { epoch }
    }

    /// Whether a transmission of this epoch may still refer to its buffers.
    pub(crate) fn is_referred_to(&self, epoch: u64) -> bool {
        epoch > self.flushed_epoch
    }

    /// The backend has flushed: nothing handed out before the last epoch is referred to.
    pub(crate) fn on_flushed(&mut self) {
        self.flushed_epoch = self.epoch.saturating_sub(1);
        let flushed = self.flushed_epoch;
        self.retired.retain(|retired| retired.epoch > flushed);
    }

    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Whether a response waits for a flush that has not come.
    pub(crate) fn needs_flush(&self) -> bool {
        let mut retired = self.retired.iter();
        retired.any(|retired| self.is_referred_to(retired.epoch))
    }

    /// Gives memory back that has not been used for long.
    #[inline]
    pub(crate) fn on_time(&mut self, now: Instant) {
        self.cooling.on_time(now, &self.pool);
    }

    /// When `on_time` is due, if there is anything to give back.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.cooling.next()
    }

    /// Memory in use by requests that are being received.
    pub(crate) fn assembly_bytes(&self) -> usize {
        self.requests.bytes()
    }

    /// Memory in use by responses of several packets.
    pub(crate) fn response_bytes(&self) -> usize {
        self.responses.bytes()
    }

    /// The accounts agree with themselves.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.requests.check();
        self.responses.check();
    }
}
