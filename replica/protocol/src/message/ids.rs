//! The identifiers that messages carry, each a type of its own.

use std::fmt;

/// A random number minted when a group begins; zero is "not attached to any group yet".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ClusterId(pub u64);

impl ClusterId {
    /// Not attached to any group yet.
    pub const NONE: Self = Self(0);

    /// Whether this names no group.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether a node of `other` may accept a message that names `self`. They must be the same only if both name a
    /// group.
    #[must_use]
    pub const fn admits(self, other: Self) -> bool {
        self.0 == 0 || other.0 == 0 || self.0 == other.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Which raft group of the cluster; there is one today, and its number is zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct GroupId(pub u32);

/// The raft id of one incarnation of a replica: a random number, never zero and never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// Not known.
    pub const NONE: Self = Self(0);

    /// Whether this names no incarnation.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The node id of a replica (`--id`). It survives restarts, and says nothing about the replica's memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a request that its receiver answers later. Local to one node, never on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplyToken(pub u64);
