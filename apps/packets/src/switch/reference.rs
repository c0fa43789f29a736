//! The reference of the switch, and the stations and frames that it is tried with.

use super::Station;
use crate::frame::{OWN_MAC, build};
use crate::reference::{Reference, Traffic, cut};
use crate::verdict::{Reason, Verdict};
use std::collections::{BTreeMap, HashSet};
use trine_transport::prng::Prng;

/// Different stations with random addresses, behind random ports.
#[must_use]
pub fn random_stations(count: usize, ports: u8, prng: &mut Prng) -> Vec<Station> {
    let mut seen = HashSet::with_capacity(count);
    let mut stations = Vec::with_capacity(count);
    while stations.len() < count {
        let mac = random_address(prng);
        // There are 2^46 addresses: a draw is nearly never repeated, so this ends.
        if seen.insert(mac) {
            let port = prng.below(u64::from(ports)) as u8;
            stations.push(Station { mac, port });
        }
    }
    stations
}

/// An address of one station, given by its maker.
fn random_address(prng: &mut Prng) -> u64 {
    prng.next_u64() >> 16 & !(0x03 << 40)
}

/// An ordered map.
pub struct SwitchReference {
    stations: BTreeMap<[u8; 6], u8>,
}

impl SwitchReference {
    /// A switch that knows these stations.
    #[must_use]
    pub fn new(stations: &[Station]) -> Self {
        let known = |station: &Station| (bytes_of(station.mac), station.port);
        Self {
            stations: stations.iter().map(known).collect(),
        }
    }
}

fn bytes_of(mac: u64) -> [u8; 6] {
    *mac.to_be_bytes().last_chunk().expect("six of eight bytes")
}

impl Reference for SwitchReference {
    fn judge(&self, frame: &mut [u8]) -> Verdict {
        if frame.len() < 14 {
            return Verdict::Drop(Reason::Short);
        }
        if frame[6] % 2 == 1 {
            return Verdict::Drop(Reason::Malformed);
        }
        let destination: [u8; 6] = frame[..6].try_into().expect("six bytes");
        match self.stations.get(&destination) {
            Some(port) => Verdict::Forward(*port),
            None => Verdict::Flood,
        }
    }
}

/// Frames to random stations, most of them known.
pub struct SwitchTraffic {
    stations: Vec<Station>,
}

impl SwitchTraffic {
    /// Frames for a switch that knows these stations.
    #[must_use]
    pub fn new(stations: Vec<Station>) -> Self {
        Self { stations }
    }
}

impl Traffic for SwitchTraffic {
    fn plain(&self, frame: &mut Vec<u8>, prng: &mut Prng) {
        let station = &self.stations[prng.below(self.stations.len() as u64) as usize];
        build::ethernet(frame, bytes_of(station.mac), OWN_MAC, 0x88b5);
        build::random(frame, 46, prng);
    }

    fn crafted(&self, frame: &mut Vec<u8>, prng: &mut Prng) {
        self.plain(frame, prng);
        match prng.below(7) {
            0 => frame[..6].fill(0xff),
            1 => frame[..6].copy_from_slice(&[0x01, 0x00, 0x5e, 0, 0, 1]),
            2 => frame[..6].copy_from_slice(&bytes_of(random_address(prng))),
            3 => frame[..6].fill(0),
            4 => frame[6] |= 1,
            5 => frame[prng.below(6) as usize] ^= 1 << prng.below(8),
            _ => cut(frame, prng),
        }
    }
}
