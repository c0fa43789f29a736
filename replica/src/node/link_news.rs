//! What happened to the packets of the links to other replicas, for the operator's log.

use std::collections::VecDeque;
use std::net::SocketAddr;

/// News that wait to be told; of more, the oldest are forgotten.
const WAITING_MAX: usize = 64;

/// Something about a link's packets that an operator should know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkNews {
    /// A session was made whose packets are not as large as those of the one before.
    PacketSize {
        /// Where the peer is reached.
        address: SocketAddr,
        /// Bytes of the largest packet now.
        bytes: u16,
        /// The same of the session before.
        before: u16,
    },
    /// A session ended because packets as large as its path was said to carry vanished.
    BlackHole {
        /// Where the peer is reached.
        address: SocketAddr,
        /// Bytes of the session's largest packet.
        bytes: u16,
    },
}

/// News that nobody has taken yet.
#[derive(Default)]
pub(super) struct PendingNews {
    news: VecDeque<LinkNews>,
}

impl PendingNews {
    pub(super) fn push(&mut self, news: LinkNews) {
        if self.news.len() == WAITING_MAX {
            self.news.pop_front();
        }
        self.news.push_back(news);
    }

    pub(super) fn pop(&mut self) -> Option<LinkNews> {
        self.news.pop_front()
    }
}
