//! Which wire packets share a datagram, and which datagrams share a send.
//!
//! A datagram costs the kernel the same work whatever it carries, so packets of one batch for one
//! route are put together, up to the smallest limit among them: sessions to one peer may differ in
//! what their paths carry. Datagrams of equal size for one route form a train, of
//! which the last may be shorter. The kernel takes a train as one and segments it as late as it can
//! (GSO). Packets of one route keep their order: only the route's newest datagram may still grow,
//! and only its newest train.

use crate::backend::{Route, TxBatch, TxItem};
use trine_canary as canary;

/// Datagrams and trains made from a batch; reused from burst to burst.
#[derive(Debug)]
pub(super) struct SendPlan<R> {
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
    /// The smallest limit of its items.
    bytes_max: usize,
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
pub(super) struct CoalesceLimits {
    /// Bytes of a datagram, whatever its items allow; longer single packets go alone and are the kernel's to refuse.
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

impl<R: Route> SendPlan<R> {
    pub(super) fn with_capacity(items: usize) -> Self {
        Self {
            datagrams: Vec::with_capacity(items),
            trains: Vec::with_capacity(items),
            next: Vec::with_capacity(items),
        }
    }

    /// Plans the whole batch.
    pub(super) fn make(&mut self, tx: &TxBatch<R>, limits: CoalesceLimits) {
        self.datagrams.clear();
        self.trains.clear();
        self.next.clear();
        for (index, item) in tx.iter().enumerate() {
            self.next.push(END);
            self.add_item(index as u16, &item, limits.datagram_bytes);
        }
        for index in 0..self.datagrams.len() {
            self.add_datagram(self.datagrams[index], limits.train_datagrams);
        }
    }

    fn add_item(&mut self, index: u16, item: &TxItem<'_, R>, bytes_max: usize) {
        let (route, len) = (item.route, item.len());
        let bytes_max = match canary::planted("one datagram size for all routes") {
            true => bytes_max,
            false => bytes_max.min(item.datagram_max),
        };
        let mut recent = self.datagrams.iter_mut().rev().take(LOOK_BACK_MAX);
        match recent.find(|datagram| datagram.route == route) {
            Some(datagram) if datagram.bytes + len <= bytes_max.min(datagram.bytes_max) => {
                self.next[usize::from(datagram.last)] = index;
                datagram.last = index;
                datagram.bytes += len;
                datagram.bytes_max = datagram.bytes_max.min(bytes_max);
                datagram.packets += 1;
            }
            _ => self.datagrams.push(Datagram {
                route,
                bytes: len,
                bytes_max,
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

    /// Keeps the trains from `first` on, and takes them apart: each of their datagrams becomes a send of its own, in the
    /// same order.
    pub(super) fn take_apart(&mut self, first: usize, tx: &TxBatch<R>) {
        self.datagrams.clear();
        for index in first..self.trains.len() {
            self.cut(self.trains[index], tx);
        }
        self.trains.clear();
        for index in 0..self.datagrams.len() {
            self.add_datagram(self.datagrams[index], 1);
        }
    }

    /// Lists the datagrams of a train. All but the last have its `segment_bytes`.
    fn cut(&mut self, train: Train<R>, tx: &TxBatch<R>) {
        let mut index = train.first;
        while index != END {
            let mut datagram = Datagram {
                route: train.route,
                bytes: 0,
                bytes_max: train.segment_bytes,
                packets: 0,
                first: index,
                last: index,
            };
            loop {
                let item = tx.get(usize::from(index));
                datagram.bytes += item.expect("the plan was made from this batch").len();
                datagram.packets += 1;
                datagram.last = index;
                index = self.next[usize::from(index)];
                if index == END || datagram.bytes >= train.segment_bytes {
                    break;
                }
            }
            self.next[usize::from(datagram.last)] = END;
            self.datagrams.push(datagram);
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

/// The datagrams that the UDP backend makes of a batch, for simulators.
#[derive(Debug)]
pub struct Datagrams<R> {
    plan: SendPlan<R>,
    bytes: Vec<usize>,
}

impl<R: Route> Default for Datagrams<R> {
    fn default() -> Self {
        Self {
            plan: SendPlan::with_capacity(0),
            bytes: Vec::new(),
        }
    }
}

impl<R: Route> Datagrams<R> {
    /// For each packet of the batch, the bytes of the datagram that it travels in, over a device with this limit.
    pub fn bytes_of(&mut self, tx: &TxBatch<R>, device_bytes: usize) -> &[usize] {
        let limits = CoalesceLimits {
            datagram_bytes: device_bytes,
            train_datagrams: 1,
        };
        self.plan.make(tx, limits);
        self.bytes.clear();
        self.bytes.resize(tx.len(), 0);
        for train in self.plan.trains() {
            for item in self.plan.items(train) {
                self.bytes[item] = train.bytes;
            }
        }
        &self.bytes
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
        let mut plan = SendPlan::with_capacity(tx.len());
        plan.make(
            &tx,
            CoalesceLimits {
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

    /// One limit counted for all routes, that of the device. Small packets of a session with a smaller limit were joined
    /// into datagrams that its path did not carry.
    #[test]
    fn a_datagram_grows_up_to_the_smallest_limit_of_its_packets() {
        let mut tx = TxBatch::with_capacity(5);
        for (route, datagram_max) in [(1u8, 250), (1, 250), (1, 1_472), (2, 1_472), (2, 100)] {
            tx.push_within(route, &[0; 24], Body::Bytes(&[0; 80]), datagram_max);
        }
        let mut plan = SendPlan::with_capacity(tx.len());
        let limits = CoalesceLimits {
            datagram_bytes: 1_472,
            train_datagrams: 1,
        };
        plan.make(&tx, limits);
        let items = plan
            .trains()
            .iter()
            .map(|train| plan.items(train).collect());
        let items: Vec<Vec<usize>> = items.collect();
        assert_eq!(items, [vec![0, 1], vec![2], vec![3], vec![4]]);
    }

    #[test]
    fn trains_that_are_taken_apart_keep_their_datagrams_and_the_order() {
        let packets = [(1, 200), (1, 100), (1, 100), (1, 200), (2, 90), (1, 40)];
        let tx = batch(&packets);
        let mut plan = SendPlan::with_capacity(tx.len());
        let limits = CoalesceLimits {
            datagram_bytes: 200,
            train_datagrams: 64,
        };
        plan.make(&tx, limits);
        let of = |plan: &SendPlan<u8>| -> Vec<(u32, Vec<usize>)> {
            let trains = plan.trains().iter();
            trains
                .map(|train| (train.datagrams, plan.items(train).collect()))
                .collect()
        };
        assert_eq!(of(&plan), [(4, vec![0, 1, 2, 3, 5]), (1, vec![4])]);
        let mut apart = SendPlan::with_capacity(tx.len());
        apart.make(&tx, limits);
        apart.take_apart(1, &tx);
        assert_eq!(of(&apart), [(1, vec![4])], "the first was sent already");
        plan.take_apart(0, &tx);
        let alone = [vec![0], vec![1, 2], vec![3], vec![5], vec![4]];
        assert_eq!(of(&plan), alone.map(|items| (1, items)));
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
