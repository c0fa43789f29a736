//! Keys that change while a node serves, and what its status says about them.

use std::net::SocketAddr;

use trine_protocol::node_status::{MemberRoots, UnsealedCallers};
use trine_protocol::route::is_same_address;
use trine_transport::Cx;
use trine_transport::backend::Route;
use trine_transport::keys::Keys;

use super::Node;
use super::config::UNSEALED_SHOWN_MAX;
use crate::output::Class;

/// A member whose sessions with this node are not, or not all, sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnsealedMember {
    /// Its node id.
    pub node_id: u32,
    /// Where it is.
    pub address: SocketAddr,
}

impl<R: Route> Node<R> {
    /// Says in the status which keys the endpoint of this node has.
    #[must_use]
    pub fn with_member_roots(mut self, roots: Option<MemberRoots>) -> Self {
        self.member_roots = roots;
        self
    }

    /// Goes on with other keys. Sessions that they would not allow end, and peers make others. Returns how many these are.
    pub fn change_keys(&mut self, cx: &mut Cx<'_, R>, keys: Keys, roots: MemberRoots) -> usize {
        self.member_roots = Some(roots);
        cx.change_keys(keys)
    }

    /// Says in the status why a key file was not taken.
    pub fn keep_keys(&mut self, because: String) {
        if let Some(roots) = &mut self.member_roots {
            roots.not_taken = Some(because);
        }
    }

    /// The members that this node has no sealed session with, or some without a seal. To those that it has no session with
    /// it begins one: asked again a moment later, it knows more.
    pub fn unsealed_members(&mut self, cx: &mut Cx<'_, R>) -> Vec<UnsealedMember> {
        let members = self.replica.status(cx.now()).members;
        let others = members.into_iter().filter(|member| !member.this);
        let others: Vec<UnsealedMember> = others
            .map(|member| UnsealedMember {
                node_id: member.node_id,
                address: member.address,
            })
            .collect();
        let is_unsealed = |member: &UnsealedMember| !self.is_sealed_with(cx, member.address);
        others.into_iter().filter(is_unsealed).collect()
    }

    fn is_sealed_with(&mut self, cx: &mut Cx<'_, R>, address: SocketAddr) -> bool {
        let comes_in_clear = cx
            .unsealed_callers()
            .any(|(_, route)| (self.is_at)(&route, address));
        let own = self.links.iter().filter(|link| link.address == address);
        let keys: Vec<bool> = own
            .filter_map(|link| link.session())
            .map(|session| cx.key(session).is_some())
            .collect();
        let comes_sealed = self.origins.iter().any(|(session, origin)| {
            is_same_address(*origin, address) && cx.key(*session).is_some()
        });
        if keys.is_empty()
            && let Some(index) = self.link_to(cx, address, Class::Raft)
        {
            // Whether it is there now, or later: it is asked for.
            let _ = self.links.way(index, cx, &mut self.rng);
        }
        let goes_in_clear = keys.contains(&false);
        !comes_in_clear && !goes_in_clear && (comes_sealed || keys.contains(&true))
    }

    /// The sessions without a key that others have opened; nothing where no keys are used.
    pub(super) fn unsealed_status(&self, cx: &Cx<'_, R>) -> Option<UnsealedCallers> {
        self.member_roots.as_ref()?;
        let mut callers = UnsealedCallers::default();
        for (_, route) in cx.unsealed_callers() {
            callers.sessions += 1;
            if callers.from.len() < UNSEALED_SHOWN_MAX {
                callers.from.push(format!("{route:?}"));
            }
        }
        Some(callers)
    }
}
