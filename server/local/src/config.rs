//! Limits of starting and of ending a group.

use std::time::Duration;

/// How long a freshly started group may take until every replica votes.
pub const START_LIMIT: Duration = Duration::from_secs(20);
/// How long a group may take to elect a new leader, or to take a replica in again.
pub const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
/// How long replicas may take to end after the request, before they are killed. Their memory goes with them anyway.
pub(crate) const STOP_LIMIT_IN_MEMORY: Duration = Duration::from_secs(3);
/// The same with logs on disk. The last sync may have a lot to write, and a kill could lose all of it.
pub(crate) const STOP_LIMIT_ON_DISK: Duration = Duration::from_secs(60);
/// After this time it is said for which replicas with files there is more to wait.
pub(crate) const QUIET_LIMIT: Duration = Duration::from_secs(2);
