//! Which wire packets share a datagram.
//!
//! A datagram costs the kernel the same work whatever it carries, so packets of one batch for one
//! route are put together up to the MTU. Packets of one route keep their order: only the route's
//! newest datagram may still grow.

use crate::backend::{Route, TxBatch};

/// Datagrams made from a batch; reused from burst to burst.
#[derive(Debug)]
pub(super) struct Plan<R> {
    datagrams: Vec<Datagram<R>>,
    /// For each item the next one of the same datagram, or `END`.
    next: Vec<u16>,
}

/// A chain of items that travel together.
#[derive(Copy, Clone, Debug)]
pub(super) struct Datagram<R> {
    pub(super) route: R,
    pub(super) bytes: usize,
    pub(super) packets: u32,
    first: u16,
    last: u16,
}

const END: u16 = u16::MAX;

/// How many datagrams back a packet looks for one of its route. Bounds the work for a batch that
/// goes to many routes; beyond it a packet merely travels in a datagram of its own.
const LOOK_BACK_MAX: usize = 16;

impl<R: Route> Plan<R> {
    pub(super) fn with_capacity(items: usize) -> Self {
        Self {
            datagrams: Vec::with_capacity(items),
            next: Vec::with_capacity(items),
        }
    }

    /// Plans the whole batch, with datagrams of at most `bytes_max` (longer single packets go
    /// alone and are the kernel's to refuse).
    pub(super) fn make(&mut self, tx: &TxBatch<R>, bytes_max: usize) {
        self.datagrams.clear();
        self.next.clear();
        for (index, item) in tx.iter().enumerate() {
            let index = index as u16;
            self.next.push(END);
            let recent = self.datagrams.iter_mut().rev().take(LOOK_BACK_MAX);
            match recent
                .into_iter()
                .find(|datagram| datagram.route == item.route)
            {
                Some(datagram) if datagram.bytes + item.len() <= bytes_max => {
                    self.next[datagram.last as usize] = index;
                    datagram.last = index;
                    datagram.bytes += item.len();
                    datagram.packets += 1;
                }
                _ => self.datagrams.push(Datagram {
                    route: item.route,
                    bytes: item.len(),
                    packets: 1,
                    first: index,
                    last: index,
                }),
            }
        }
    }

    pub(super) fn datagrams(&self) -> &[Datagram<R>] {
        &self.datagrams
    }

    /// The items of a datagram, in order.
    pub(super) fn items(&self, datagram: &Datagram<R>) -> impl Iterator<Item = usize> {
        let mut index = datagram.first;
        std::iter::from_fn(move || {
            let current = index;
            if current == END {
                return None;
            }
            index = self.next[current as usize];
            Some(current as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Body;
    use proptest::prelude::*;

    fn batch(packets: &[(u8, usize)]) -> TxBatch<u8> {
        let mut tx = TxBatch::with_capacity(packets.len());
        for &(route, len) in packets {
            tx.push(route, &[route; 24], Body::Bytes(&vec![0; len - 24]));
        }
        tx
    }

    fn planned(packets: &[(u8, usize)], bytes_max: usize) -> Vec<(u8, Vec<usize>)> {
        let tx = batch(packets);
        let mut plan = Plan::with_capacity(tx.len());
        plan.make(&tx, bytes_max);
        plan.datagrams()
            .iter()
            .map(|d| (d.route, plan.items(d).collect()))
            .collect()
    }

    #[test]
    fn packets_for_one_route_share_a_datagram() {
        assert_eq!(
            planned(&[(1, 56), (1, 56), (1, 56)], 1472),
            [(1, vec![0, 1, 2])]
        );
    }

    #[test]
    fn routes_do_not_mix() {
        assert_eq!(
            planned(&[(1, 50), (2, 50), (1, 50)], 1472),
            [(1, vec![0, 2]), (2, vec![1])]
        );
    }

    #[test]
    fn a_full_datagram_is_not_reopened() {
        // The last packet would fit into the first datagram but must not overtake the second.
        assert_eq!(
            planned(&[(1, 200), (1, 150), (1, 40)], 250),
            [(1, vec![0]), (1, vec![1, 2])]
        );
    }

    proptest! {
        #[test]
        fn every_packet_travels_once_in_order_and_within_the_limit(
            packets in prop::collection::vec((0u8..20, 24usize..280), 0..200),
            bytes_max in 280usize..1500,
        ) {
            let mut seen = vec![false; packets.len()];
            let mut last_of_route = [None; 20];
            for (route, items) in planned(&packets, bytes_max) {
                let bytes: usize = items.iter().map(|&item| packets[item].1).sum();
                prop_assert!(bytes <= bytes_max);
                for item in items {
                    prop_assert_eq!(packets[item].0, route);
                    prop_assert!(!std::mem::replace(&mut seen[item], true));
                    prop_assert!(last_of_route[route as usize] < Some(item));
                    last_of_route[route as usize] = Some(item);
                }
            }
            prop_assert!(seen.into_iter().all(|seen| seen));
        }
    }
}
