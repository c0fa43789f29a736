//! What the threads of a server share.

use std::sync::Arc;

use trine_sequencer::Supply;
use trine_sequencer::wire::Keeping;

use super::reserve::Desk;

/// The state that all threads of a server share.
#[derive(Clone)]
pub(super) struct ServerState {
    pub(super) supply: Arc<Supply>,
    pub(super) keeping: Keeping,
    pub(super) desk: Desk,
}
