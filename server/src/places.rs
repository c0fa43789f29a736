//! What an operator is told of members that are not where they were.

use serde_json::json;
use trine_base::announce::Announcer;
use trine_replica::{PlaceNews, Replica};

use crate::logs::ROLE;

/// Writes a line for each member that has moved, or that answers at two places.
pub(crate) fn tell(replica: &mut Replica, announcer: Announcer) {
    while let Some(news) = replica.next_place_news() {
        match news {
            PlaceNews::Moved { node_id, from, to } => {
                tracing::info!(target: ROLE, replica = node_id.0, %from, %to, "a member has moved");
                let node = node_id.0;
                announcer.json_line(&json!({ "moved_replica": node, "from": from, "to": to }));
                announcer.line(format_args!(
                    "replica {node_id} is at {to} now, and not at {from}"
                ));
            }
            PlaceNews::AtTwo {
                node_id,
                present,
                other,
            } => tracing::error!(
                target: ROLE,
                replica = node_id.0,
                %present,
                %other,
                hint = "one of them runs on a copy of the member's directory: end that one. Messages from the other address are refused here",
                "a member answers at two addresses"
            ),
        }
    }
}
