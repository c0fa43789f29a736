//! What a replica tells of the sessions that clients have with the group.

use trine_protocol::status::SessionStatus;

use super::{Family, counter, gauge};

/// The sessions, and what they have spared or cost clients.
pub(super) fn of(sessions: &SessionStatus) -> Vec<Family> {
    vec![
        gauge("sessions_open", "Open client sessions.", sessions.open),
        gauge(
            "sessions_closed",
            "Closed client sessions that are still remembered.",
            sessions.closed,
        ),
        gauge(
            "session_reply_bytes",
            "Bytes of cached replies.",
            sessions.reply_bytes,
        ),
        counter(
            "sessions_evicted",
            "Idle sessions that were evicted.",
            sessions.evicted,
        ),
        counter(
            "sessions_gave_way",
            "Those of them that had to give way before the end of their time to live.",
            sessions.gave_way,
        ),
        counter(
            "sessions_refused",
            "Registrations refused because every session was in use.",
            sessions.refused,
        ),
        counter(
            "commands_duplicate",
            "Commands answered from a cached reply.",
            sessions.duplicates,
        ),
        counter(
            "sequences_used",
            "Commands refused because two clients gave different ones in one session: each has to have its own.",
            sessions.sequences_used,
        ),
    ]
}
