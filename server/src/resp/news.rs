//! What the replica's thread tells the thread that serves Redis clients: the keys have changed, or files are to be read
//! again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use trine_transport::backend::Waker;
use trine_transport::keys::Keys;

/// News that were not taken yet.
#[derive(Clone, Default)]
pub(super) struct News {
    is_there: Arc<AtomicBool>,
    unread: Arc<Mutex<Unread>>,
}

/// What is new.
#[derive(Default)]
pub(super) struct Unread {
    /// The replica goes on with these keys.
    pub(super) keys: Option<Keys>,
    /// There was a SIGHUP.
    pub(super) hung_up: bool,
}

impl News {
    /// Takes what is new. It costs next to nothing if nothing is.
    pub(super) fn take(&self) -> Option<Unread> {
        if !self.is_there.swap(false, Ordering::SeqCst) {
            return None;
        }
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        Some(std::mem::take(&mut *unread))
    }

    fn put(&self, put: impl FnOnce(&mut Unread)) {
        put(&mut self.unread.lock().unwrap_or_else(PoisonError::into_inner));
        self.is_there.store(true, Ordering::SeqCst);
    }
}

/// Tells the thread that serves Redis clients.
#[derive(Clone)]
pub(crate) struct Teller {
    pub(super) news: News,
    pub(super) waker: Waker,
}

impl Teller {
    /// From now on the replica has these keys. Its own calls for Redis clients are made with them.
    pub(crate) fn change_keys(&self, keys: Keys) {
        self.news.put(|unread| unread.keys = Some(keys));
        self.waker.wake();
    }

    /// There was a SIGHUP.
    pub(crate) fn hang_up(&self) {
        self.news.put(|unread| unread.hung_up = true);
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use trine_transport::keys::{NoKeys, Stage};

    use super::*;

    #[test]
    fn news_are_taken_once_and_the_last_keys_count() {
        let news = News::default();
        assert!(news.take().is_none());
        let keys = |stage| Keys {
            stage,
            ring: Arc::new(NoKeys),
            own: None,
            entropy: Arc::new(|| [7; 32]),
            key_log: None,
        };
        news.put(|unread| unread.keys = Some(keys(Stage::Accept)));
        news.put(|unread| unread.hung_up = true);
        news.put(|unread| unread.keys = Some(keys(Stage::Require)));
        let unread = news.take().expect("something new");
        assert!(unread.hung_up);
        assert_eq!(unread.keys.map(|keys| keys.stage), Some(Stage::Require));
        assert!(news.take().is_none());
    }
}
