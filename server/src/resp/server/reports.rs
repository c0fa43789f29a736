//! Lines of the log that anybody can provoke, each at most once in a while.

use trine_transport::time::{Duration, Instant};

/// The least time between two lines about the same: each attempt of an attacker would make one.
const PAUSE: Duration = Duration::from_secs(60);

/// What such a line is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Topic {
    /// Connections were closed because all held too much.
    Memory,
    /// A client spoke HTTP.
    Attack,
    /// A password or a key was wrong.
    Authentication,
    /// A password was void.
    VoidPassword,
    /// TLS has failed.
    Tls,
    /// Changes were forgotten before clients were told.
    Gap,
}

/// Limits the lines about each topic.
#[derive(Default, Debug)]
pub(super) struct RateLimit {
    /// By topic, the time before which there is no further line.
    next: [Instant; 6],
}

impl RateLimit {
    /// Whether a line about this may be written now. If so, it counts as written.
    pub(super) fn allows(&mut self, topic: Topic, now: Instant) -> bool {
        let next = &mut self.next[topic as usize];
        let allows = now >= *next;
        if allows {
            *next = now + PAUSE;
        }
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_has_its_own_pause() {
        let mut limit = RateLimit::default();
        let begin = Instant::ZERO + Duration::from_secs(5);
        assert!(limit.allows(Topic::Gap, begin));
        assert!(limit.allows(Topic::Memory, begin));
        let later = begin + Duration::from_secs(59);
        assert!(!limit.allows(Topic::Gap, later));
        assert!(limit.allows(Topic::Gap, begin + PAUSE));
        assert!(!limit.allows(Topic::Gap, begin + PAUSE));
    }
}
