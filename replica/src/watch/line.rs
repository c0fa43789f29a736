//! Which waiting request is next: holders take turns, and one with a hundred requests delays another by one of them.

use std::collections::{BTreeMap, VecDeque};

use trine_transport::Holder;

/// Tickets that wait, each for its holder. Empty queues are not kept, so it is as long as the requests that are held.
#[derive(Default, Debug)]
pub(crate) struct Line {
    by_holder: BTreeMap<Holder, VecDeque<u64>>,
    /// Each holder that has a ticket in line, once; the first one is next.
    order: VecDeque<Holder>,
}

impl Line {
    /// Adds a ticket behind those of the same holder.
    pub(crate) fn push(&mut self, holder: Holder, ticket: u64) {
        let own = self.by_holder.entry(holder).or_default();
        if own.is_empty() {
            self.order.push_back(holder);
        }
        own.push_back(ticket);
        self.check_order();
    }

    /// Each holder that has tickets is in the order once.
    fn check_order(&self) {
        assert_eq!(self.order.len(), self.by_holder.len(), "holders take turns");
    }

    /// The ticket that is next.
    pub(crate) fn front(&self) -> Option<u64> {
        let own = self.by_holder.get(self.order.front()?)?;
        own.front().copied()
    }

    /// Takes the ticket that is next out; its holder's others come behind one of each other holder.
    pub(crate) fn pop_front(&mut self) -> Option<u64> {
        let holder = self.order.pop_front()?;
        let own = self.by_holder.get_mut(&holder)?;
        let ticket = own.pop_front();
        match own.is_empty() {
            true => drop(self.by_holder.remove(&holder)),
            false => self.order.push_back(holder),
        }
        assert!(ticket.is_some(), "a holder whose turn it is has a ticket");
        self.check_order();
        ticket
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.by_holder.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_take_turns_and_each_is_served_in_its_order() {
        let (one, two) = (Holder::Identity(1), Holder::Identity(2));
        let mut line = Line::default();
        (10..14).for_each(|ticket| line.push(one, ticket));
        line.push(two, 20);
        line.push(Holder::Shared, 30);
        line.push(two, 21);
        assert_eq!(line.front(), Some(10));
        let mut served = Vec::new();
        while let Some(front) = line.front() {
            assert_eq!(line.pop_front(), Some(front));
            served.push(front);
        }
        assert_eq!(served, [10, 20, 30, 11, 21, 12, 13]);
        assert!(line.is_empty() && line.by_holder.is_empty());
        line.push(one, 14);
        line.clear();
        assert_eq!((line.front(), line.pop_front()), (None, None));
    }
}
