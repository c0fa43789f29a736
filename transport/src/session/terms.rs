//! Terms that both ends of a session agree on, and how a message is cut into packets under it.

use crate::wire::{Features, PACKET_OVERHEAD};

/// Terms that both ends have agreed on.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Terms {
    pub(crate) credits: u16,
    pub(crate) slots: u8,
    pub(crate) features: Features,
    pub(crate) mtu: u16,
}

impl Terms {
    /// Data bytes of a full packet.
    pub(crate) fn data_bytes(&self) -> usize {
        usize::from(self.mtu) - PACKET_OVERHEAD
    }

    /// Packets of a message; an empty one has one packet too.
    #[inline]
    pub(crate) fn packets(&self, message_bytes: usize) -> u32 {
        if message_bytes <= self.data_bytes() {
            return 1;
        }
        // At most 8 MiB over at least one byte.
        message_bytes.div_ceil(self.data_bytes()) as u32
    }

    /// Where the data of packet `number` lies in a message.
    #[inline]
    pub(crate) fn data_range(&self, message_bytes: usize, number: u32) -> std::ops::Range<usize> {
        if message_bytes <= self.data_bytes() && number == 0 {
            return 0..message_bytes;
        }
        let start = (number as usize * self.data_bytes()).min(message_bytes);
        start..(start + self.data_bytes()).min(message_bytes)
    }
}
