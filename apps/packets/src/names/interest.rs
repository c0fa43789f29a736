//! The name of an interest in a frame, and the hashes of its prefixes.
//!
//! A frame is an Ethernet header, then `05 length { 07 length { 08 length component, ... }, ... }`. Lengths are numbers
//! of NDN's TLV encoding: one byte below 253, or 253 and two bytes. Longer forms do not occur in a frame.

use crate::config::NAME_COMPONENTS_MAX;
use crate::frame::{ETHERNET, TYPE_NDN, u16_at};
use crate::hash::extend;
use crate::verdict::Reason;

const INTEREST: u8 = 0x05;
const NAME: u8 = 0x07;
const COMPONENT: u8 = 0x08;

/// A name in a frame, and the hashes of its prefixes of up to [`NAME_COMPONENTS_MAX`] components.
pub struct Name<'a> {
    /// The encoded components.
    bytes: &'a [u8],
    ends: [u16; NAME_COMPONENTS_MAX],
    hashes: [u64; NAME_COMPONENTS_MAX],
    components: usize,
}

impl<'a> Name<'a> {
    /// Finds the name of the interest in a frame.
    ///
    /// # Errors
    ///
    /// The reason why the frame carries no interest, or a malformed one.
    #[inline(always)]
    pub fn parse(frame: &'a [u8], seed: u64) -> Result<Self, Reason> {
        if frame.len() < ETHERNET {
            return Err(Reason::Short);
        }
        if u16_at(frame, 12) != TYPE_NDN {
            return Err(Reason::Foreign);
        }
        let (interest, _padding) = element(&frame[ETHERNET..], INTEREST)?;
        let (bytes, _rest) = element(interest, NAME)?;
        Self::of(bytes, seed)
    }

    /// The name that consists of these encoded components.
    ///
    /// # Errors
    ///
    /// The reason why they are malformed.
    #[inline(always)]
    pub fn of(bytes: &'a [u8], seed: u64) -> Result<Self, Reason> {
        let mut name = Self {
            bytes,
            ends: [0; NAME_COMPONENTS_MAX],
            hashes: [0; NAME_COMPONENTS_MAX],
            components: 0,
        };
        let (mut rest, mut hash) = (bytes, seed);
        // Every component takes two bytes at least, so this ends.
        while !rest.is_empty() {
            let (component, behind) = element(rest, COMPONENT)?;
            if name.components < NAME_COMPONENTS_MAX {
                hash = extend(hash, component);
                name.ends[name.components] = (bytes.len() - behind.len()) as u16;
                name.hashes[name.components] = hash;
                name.components += 1;
            }
            rest = behind;
        }
        Ok(name)
    }

    /// How many components take part in lookups.
    #[inline(always)]
    #[must_use]
    pub fn components(&self) -> usize {
        self.components
    }

    /// The first components, encoded, and their hash. There are that many, and at least one.
    #[inline(always)]
    #[must_use]
    pub fn prefix(&self, components: usize) -> (&'a [u8], u64) {
        let last = components - 1;
        (
            &self.bytes[..usize::from(self.ends[last])],
            self.hashes[last],
        )
    }
}

/// The value of the element of this type that `bytes` begin with, and what is behind it.
#[inline(always)]
fn element(bytes: &[u8], kind: u8) -> Result<(&[u8], &[u8]), Reason> {
    let [found, first, rest @ ..] = bytes else {
        return Err(Reason::Short);
    };
    if *found != kind {
        return Err(Reason::Malformed);
    }
    let (length, rest) = match (*first, rest) {
        (..=252, rest) => (usize::from(*first), rest),
        (253, [high, low, rest @ ..]) => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        (253, _) => return Err(Reason::Short),
        // A frame has no room for what such a length announces.
        (254.., _) => return Err(Reason::Malformed),
    };
    rest.split_at_checked(length).ok_or(Reason::Short)
}

/// Encodes components as the value of a name.
#[must_use]
pub fn encode<C: AsRef<[u8]>>(components: &[C]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for component in components {
        append(&mut bytes, COMPONENT, component.as_ref());
    }
    bytes
}

/// Appends an interest for an encoded name, with a nonce.
pub(super) fn append_interest(frame: &mut Vec<u8>, name: &[u8], nonce: u32) {
    let mut value = Vec::new();
    append(&mut value, NAME, name);
    append(&mut value, 0x0a, &nonce.to_be_bytes());
    append(frame, INTEREST, &value);
}

fn append(bytes: &mut Vec<u8>, kind: u8, value: &[u8]) {
    bytes.push(kind);
    match value.len() {
        short @ ..=252 => bytes.push(short as u8),
        long => {
            bytes.push(253);
            let length = u16::try_from(long).expect("an element that fits a frame");
            bytes.extend_from_slice(&length.to_be_bytes());
        }
    }
    bytes.extend_from_slice(value);
}
