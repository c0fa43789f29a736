//! What a replica waits for at its start, because it may come by itself: names, addresses, ports.
//!
//! A service manager does not start a process again that ended for a wrong configuration. A name service that is late, an
//! interface that is not up yet or a predecessor that still holds the port are none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use trine_base::announce::Announcer;
use trine_base::failure::{Failure, Trouble};
use trine_base::interrupt;

use crate::logs::ROLE;
use crate::metrics::Published;

/// How long another process may hold an address that this one needs.
const IN_USE_MAX: Duration = Duration::from_secs(30);
/// The pause between two attempts to open an address.
const TRY_EVERY: Duration = Duration::from_millis(250);

/// Reports what the start waits for: in a line, in the log, and at `/readyz`.
pub(crate) struct StartupStatus {
    announcer: Announcer,
    /// Nothing while the metrics endpoint itself is waited for, and where there is none.
    published: Option<Arc<Published>>,
    last_reason: String,
}

impl StartupStatus {
    pub(crate) fn new(announcer: Announcer) -> Self {
        Self {
            announcer,
            published: None,
            last_reason: String::new(),
        }
    }

    pub(crate) fn announcer(&self) -> Announcer {
        self.announcer
    }

    /// From now on `/readyz` tells the reason, too.
    pub(crate) fn publish_at(&mut self, published: &Arc<Published>) {
        self.published = Some(Arc::clone(published));
    }

    /// Waits for `reason`, which is reported once until another one replaces it.
    pub(crate) fn tell(&mut self, reason: &str) {
        if self.last_reason == reason {
            return;
        }
        self.last_reason = reason.to_owned();
        if let Some(published) = &self.published {
            published.wait(reason);
        }
        tracing::info!(target: ROLE, reason, "not serving yet");
        self.announcer.json_line(&json!({ "waiting": reason }));
        self.announcer
            .line_of_role(format_args!("not serving yet: {reason}"));
    }

    /// Opens an address. One that does not exist yet is waited for, and one that another process has for
    /// [`IN_USE_MAX`]. Returns nothing if the user ends the process meanwhile.
    ///
    /// # Errors
    /// The address stayed in use, or another failure of `open`.
    pub(crate) fn until_open<T>(
        &mut self,
        mut open: impl FnMut() -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let mut in_use_since = None;
        loop {
            let failure = match open() {
                Ok(opened) => return Ok(Some(opened)),
                Err(failure) => failure,
            };
            match failure.trouble() {
                None => return Err(failure),
                Some(Trouble::AddressMissing) => in_use_since = None,
                Some(Trouble::AddressInUse) => {
                    let since = *in_use_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= IN_USE_MAX {
                        return Err(failure.into_unavailable());
                    }
                }
            }
            self.tell(failure.message());
            interrupt::pause(TRY_EVERY);
            if interrupt::interrupted() {
                return Ok(None);
            }
        }
    }
}
