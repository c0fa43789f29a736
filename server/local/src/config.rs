//! Limits of starting a group.

use std::time::Duration;

/// How long a freshly started group may take until every replica votes.
pub const START_LIMIT: Duration = Duration::from_secs(20);
/// How long a group may take to elect a new leader, or to take a replica in again.
pub const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
