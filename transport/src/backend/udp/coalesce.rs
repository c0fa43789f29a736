//! Which wire packets share a datagram, and which datagrams share a send.
//!
//! A datagram costs the kernel the same work whatever it carries, so packets of one batch for one
//! route are put together up to the MTU. Datagrams of equal size for one route form a train, of
//! which the last may be shorter. The kernel takes a train as one and segments it as late as it can
//! (GSO). Packets of one route keep their order: only the route's newest datagram may still grow,
//! and only its newest train.

use crate::backend::{Route, TxBatch};

/// Datagrams and trains made from a batch; reused from burst to burst.
#[derive(Debug)]
pub(super) struct Plan<R> {
    datagrams: Vec<Datagram<R>>,
    trains: Vec<Train<R>>,
    /// For each item the next one of the same train, or `END`.
    next: Vec<u16>,
}

/// A chain of items that travel in one datagram.
#[derive(Copy, Clone, Debug)]
struct Datagram<R> {
    route: R,
    bytes: usize,
    packets: u32,
    first: u16,
    last: u16,
}

/// Datagrams that one send carries.
#[derive(Copy, Clone, Debug)]
pub(super) struct Train<R> {
    pub(super) route: R,
    /// Bytes of every datagram but perhaps the last.
    pub(super) segment_bytes: usize,
    pub(super) bytes: usize,
    pub(super) datagrams: u32,
    pub(super) packets: u32,
    first: u16,
    last: u16,
}

/// The limits on what the plan may combine.
#[derive(Copy, Clone, Debug)]
pub(super) struct Limits {
    /// Bytes of a datagram; longer single packets go alone and are the kernel's to refuse.
    pub(super) datagram_bytes: usize,
    /// Datagrams of a train; one where the kernel does not segment.
    pub(super) train_datagrams: u32,
}

const END: u16 = u16::MAX;

/// Bytes of a train: the kernel takes it as one datagram at first.
const TRAIN_BYTES_MAX: usize = 65_507;

/// How many datagrams back a packet searches for one of its route. Bounds the work for a batch that
/// goes to many routes; beyond it a packet merely travels in a datagram of its own.
const LOOK_BACK_MAX: usize = 16;

impl<R: Route> Plan<R> {
    pub(super) fn with_capacity(items: usize) -> Self {
        Self {
            datagrams: Vec::with_capacity(items),
            trains: Vec::with_capacity(items),
            next: Vec::with_capacity(items),
        }
    }

    /// Plans the whole batch.
    pub(super) fn make(&mut self, tx: &TxBatch<R>, limits: Limits) {
        self.datagrams.clear();
        self.trains.clear();
        self.next.clear();
        for (index, item) in tx.iter().enumerate() {
            self.next.push(END);
            self.add_item(index as u16, item.route, item.len(), limits.datagram_bytes);
        }
        for index in 0..self.datagrams.len() {
            self.add_datagram(self.datagrams[index], limits.train_datagrams);
        }
    }

    fn add_item(&mut self, index: u16, route: R, len: usize, bytes_max: usize) {
        let mut recent = self.datagrams.iter_mut().rev().take(LOOK_BACK_MAX);
        match recent.find(|datagram| datagram.route == route) {
            Some(datagram) if datagram.bytes + len <= bytes_max => {
                self.next[usize::from(datagram.last)] = index;
                datagram.last = index;
                datagram.bytes += len;
                datagram.packets += 1;
            }
            _ => self.datagrams.push(Datagram {
                route,
                bytes: len,
                packets: 1,
                first: index,
                last: index,
            }),
        }
    }

    fn add_datagram(&mut self, datagram: Datagram<R>, datagrams_max: u32) {
        let mut recent = self.trains.iter_mut().rev().take(LOOK_BACK_MAX);
        match recent.find(|train| train.route == datagram.route) {
            Some(train) if train.takes(&datagram, datagrams_max) => {
                self.next[usize::from(train.last)] = datagram.first;
                train.last = datagram.last;
                train.bytes += datagram.bytes;
                train.datagrams += 1;
                train.packets += datagram.packets;
            }
            _ => self.trains.push(Train {
                route: datagram.route,
                segment_bytes: datagram.bytes,
                bytes: datagram.bytes,
                datagrams: 1,
                packets: datagram.packets,
                first: datagram.first,
                last: datagram.last,
            }),
        }
    }

    pub(super) fn trains(&self) -> &[Train<R>] {
        &self.trains
    }

    /// The items of a train, in order.
    pub(super) fn items(&self, train: &Train<R>) -> impl Iterator<Item = usize> {
        let mut index = train.first;
        std::iter::from_fn(move || {
            let current = index;
            if current == END {
                return None;
            }
            index = self.next[usize::from(current)];
            Some(usize::from(current))
        })
    }
}

impl<R> Train<R> {
    /// Whether the datagram can follow: no datagram but the last may be shorter than the first.
    fn takes(&self, datagram: &Datagram<R>, datagrams_max: u32) -> bool {
        self.datagrams < datagrams_max
            && self.bytes == self.segment_bytes * self.datagrams as usize
            && datagram.bytes <= self.segment_bytes
            && self.bytes + datagram.bytes <= TRAIN_BYTES_MAX
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

    /// Route, datagrams and items of each train.
    fn trains(
        packets: &[(u8, usize)],
        datagram_bytes: usize,
        most: u32,
    ) -> Vec<(u8, u32, Vec<usize>)> {
        let tx = batch(packets);
        let mut plan = Plan::with_capacity(tx.len());
        plan.make(
            &tx,
            Limits {
                datagram_bytes,
                train_datagrams: most,
            },
        );
        plan.trains()
            .iter()
            .map(|train| (train.route, train.datagrams, plan.items(train).collect()))
            .collect()
    }

    #[test]
    fn packets_for_one_route_share_a_datagram() {
        assert_eq!(
            trains(&[(1, 56), (1, 56), (1, 56)], 1472, 1),
            [(1, 1, vec![0, 1, 2])]
        );
    }

    #[test]
    fn routes_do_not_mix() {
        assert_eq!(
            trains(&[(1, 50), (2, 50), (1, 50)], 1472, 64),
            [(1, 1, vec![0, 2]), (2, 1, vec![1])]
        );
    }

    #[test]
    fn a_full_datagram_is_not_reopened() {
        // The last packet would fit into the first datagram but must not overtake the second.
        assert_eq!(
            trains(&[(1, 200), (1, 150), (1, 40)], 250, 1),
            [(1, 1, vec![0]), (1, 1, vec![1, 2])]
        );
    }

    #[test]
    fn equal_datagrams_form_a_train_that_a_shorter_one_ends() {
        let packets = [(1, 200), (1, 200), (1, 100), (1, 200), (1, 250)];
        assert_eq!(
            trains(&packets, 250, 64),
            [(1, 3, vec![0, 1, 2]), (1, 1, vec![3]), (1, 1, vec![4])]
        );
        assert_eq!(
            trains(&packets[..2], 250, 1),
            [(1, 1, vec![0]), (1, 1, vec![1])]
        );
    }

    #[test]
    fn a_train_ends_at_the_kernels_limit() {
        let packets = vec![(1, 280); 100];
        let lens: Vec<u32> = trains(&packets, 280, 64)
            .iter()
            .map(|train| train.1)
            .collect();
        assert_eq!(lens, [64, 36], "by count");
        let tx_bytes = TRAIN_BYTES_MAX / 280;
        let packets = vec![(1, 280); tx_bytes + 1];
        let lens: Vec<u32> = trains(&packets, 280, 1000)
            .iter()
            .map(|train| train.1)
            .collect();
        assert_eq!(lens, [tx_bytes as u32, 1], "by bytes");
    }

    proptest! {
        #[test]
        fn every_packet_travels_once_in_order_and_within_the_limits(
            packets in prop::collection::vec((0u8..20, 24usize..280), 0..200),
            datagram_bytes in 280usize..1500,
            train_datagrams in 1u32..64,
        ) {
            let mut seen = vec![false; packets.len()];
            let mut last_of_route = [None; 20];
            for (route, datagrams, items) in trains(&packets, datagram_bytes, train_datagrams) {
                let bytes: usize = items.iter().map(|&item| packets[item].1).sum();
                prop_assert!(bytes <= datagram_bytes * datagrams as usize);
                prop_assert!(datagrams <= train_datagrams && bytes <= TRAIN_BYTES_MAX);
                for item in items {
                    prop_assert_eq!(packets[item].0, route);
                    prop_assert!(!std::mem::replace(&mut seen[item], true));
                    prop_assert!(last_of_route[usize::from(route)] < Some(item));
                    last_of_route[usize::from(route)] = Some(item);
                }
            }
            prop_assert!(seen.into_iter().all(|seen| seen));
        }
    }
}
