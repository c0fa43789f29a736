//! The reference of the forwarder of named data, and the names that it is tried with.

use super::interest::append_interest;
use super::{Prefix, encode};
use crate::config::NAME_COMPONENTS_MAX;
use crate::frame::{ETHERNET, OWN_MAC, TYPE_NDN, build};
use crate::reference::{Reference, Traffic, cut};
use crate::verdict::{Reason, Verdict};
use std::collections::{HashMap, HashSet};
use trine_transport::prng::Prng;

/// Bytes of a frame behind an interest: padding, in which a generator keeps its number.
const PADDING: usize = 8;

/// Different prefixes of two to five components, about 32 bytes long as the names in the paper.
#[must_use]
pub fn random_names(count: usize, ports: u8, prng: &mut Prng) -> Vec<Prefix> {
    let mut seen = HashSet::with_capacity(count);
    let mut prefixes = Vec::with_capacity(count);
    while prefixes.len() < count {
        let components = 2 + prng.below(4) as usize;
        let name: Vec<Vec<u8>> = (0..components).map(|at| component(at, prng)).collect();
        let name = encode(&name);
        // Even the shortest names have 26^7 forms: a draw is rarely repeated, so this ends.
        if seen.insert(name.clone()) {
            let port = prng.below(u64::from(ports)) as u8;
            prefixes.push(Prefix { name, port });
        }
    }
    prefixes
}

/// A component like those of a host name and a path.
fn component(at: usize, prng: &mut Prng) -> Vec<u8> {
    const DOMAINS: [&str; 4] = ["com", "org", "net", "edu"];
    if at == 0 {
        return DOMAINS[prng.below(4) as usize].into();
    }
    let length = 7 + prng.below(6);
    (0..length).map(|_| b'a' + prng.below(26) as u8).collect()
}

/// A map from lists of components.
pub struct NamesReference {
    prefixes: HashMap<Vec<Vec<u8>>, u8>,
}

impl NamesReference {
    /// A forwarder that knows these prefixes.
    ///
    /// # Panics
    ///
    /// If one is malformed.
    #[must_use]
    pub fn new(prefixes: &[Prefix]) -> Self {
        let known = |prefix: &Prefix| {
            let name = components(&prefix.name).expect("a well-formed prefix");
            (name, prefix.port)
        };
        Self {
            prefixes: prefixes.iter().map(known).collect(),
        }
    }
}

impl Reference for NamesReference {
    fn judge(&self, frame: &mut [u8]) -> Verdict {
        let name = match name_of(frame) {
            Ok(name) => name,
            Err(reason) => return Verdict::Drop(reason),
        };
        let longest = name.len().min(NAME_COMPONENTS_MAX);
        let known = (0..=longest)
            .rev()
            .find_map(|count| self.prefixes.get(&name[..count]));
        known.map_or(Verdict::Drop(Reason::Unknown), |port| {
            Verdict::Forward(*port)
        })
    }
}

fn name_of(frame: &[u8]) -> Result<Vec<Vec<u8>>, Reason> {
    if frame.len() < 14 {
        return Err(Reason::Short);
    }
    if frame[12..14] != [0x86, 0x24] {
        return Err(Reason::Foreign);
    }
    let mut at = 14;
    let interest = value(frame, &mut at, 5)?;
    let name = value(&interest, &mut 0, 7)?;
    components(&name)
}

fn components(name: &[u8]) -> Result<Vec<Vec<u8>>, Reason> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < name.len() {
        found.push(value(name, &mut at, 8)?);
    }
    Ok(found)
}

/// Reads the element at `at` byte by byte.
fn value(bytes: &[u8], at: &mut usize, kind: u8) -> Result<Vec<u8>, Reason> {
    let head = bytes.get(*at..*at + 2).ok_or(Reason::Short)?;
    if head[0] != kind || head[1] > 253 {
        return Err(Reason::Malformed);
    }
    *at += 2;
    let mut length = usize::from(head[1]);
    if length == 253 {
        let long = bytes.get(*at..*at + 2).ok_or(Reason::Short)?;
        length = usize::from(long[0]) << 8 | usize::from(long[1]);
        *at += 2;
    }
    let value = bytes.get(*at..*at + length).ok_or(Reason::Short)?;
    *at += length;
    Ok(value.to_vec())
}

/// Interests whose names begin with random prefixes.
pub struct NamesTraffic {
    prefixes: Vec<Prefix>,
}

impl NamesTraffic {
    /// Interests for a forwarder that knows these prefixes.
    #[must_use]
    pub fn new(prefixes: Vec<Prefix>) -> Self {
        Self { prefixes }
    }

    fn known(&self, prng: &mut Prng) -> &[u8] {
        &self.prefixes[prng.below(self.prefixes.len() as u64) as usize].name
    }
}

fn interest(frame: &mut Vec<u8>, name: &[u8], prng: &mut Prng) {
    build::ethernet(frame, OWN_MAC, build::PEER, TYPE_NDN);
    append_interest(frame, name, prng.next_u64() as u32);
    build::random(frame, PADDING, prng);
}

impl Traffic for NamesTraffic {
    fn plain(&self, frame: &mut Vec<u8>, prng: &mut Prng) {
        let mut name = self.known(prng).to_vec();
        for _ in 0..prng.below(3) {
            name.extend_from_slice(&encode(&[component(1, prng)]));
        }
        interest(frame, &name, prng);
    }

    fn crafted(&self, frame: &mut Vec<u8>, prng: &mut Prng) {
        let mut name = self.known(prng).to_vec();
        match prng.below(7) {
            // No name at all, one that nobody knows, and one longer than any lookup.
            0 => name.clear(),
            1 => name = encode(&[component(1, prng), component(1, prng)]),
            2 => name.extend_from_slice(&encode(&[b"x"; 2 * NAME_COMPONENTS_MAX])),
            // A component whose length needs the longer form, and one in the longer form without need.
            3 => name.extend_from_slice(&encode(&[[b'y'; 300]])),
            4 => name.extend_from_slice(&[8, 253, 0, 1, b'z']),
            _ => {}
        }
        interest(frame, &name, prng);
        match prng.below(4) {
            0 => cut(frame, prng),
            1 => {
                let at = ETHERNET + prng.below((frame.len() - ETHERNET) as u64) as usize;
                frame[at] = [0, 5, 7, 8, 252, 253, 254, 255][prng.below(8) as usize];
            }
            _ => {}
        }
    }
}
