//! The bytes of a node.
//!
//! ```text
//! level u8 | prefix length u8 | entries u16 | heap start u16 | heap bytes in use u16
//! prefix | slots, in the order of their keys | free | heap, which grows downwards
//! ```
//!
//! A slot is `head u32, offset u16, length u16`, and in an inner node also `child u32, keys below u64`. All keys of a
//! node begin with its prefix. The next four bytes of a key are its head, padded with zeros and compared as a number.
//! What follows the head lies in the heap, at `offset`. `length` counts the key without the prefix. `LONG` stands for
//! a key that lies outside. The heap then has its number.
//!
//! Entry 0 of an inner node has no key: it is the child for everything before entry 1.

use std::cmp::Ordering;
use std::ops::Range;

use super::long_keys::LongKeys;
use crate::config::{INLINE_BYTES_MAX, PAGE_BYTES};

/// The bytes of a node.
pub(super) type NodeBytes = [u8; PAGE_BYTES];

const HEADER_BYTES: usize = 8;
const LEAF_SLOT_BYTES: usize = 8;
const INNER_SLOT_BYTES: usize = 20;
const HEAD_BYTES: usize = 4;
/// The length of a key that lies outside of its node.
const LONG: u16 = u16::MAX;
/// The bytes of its number in the heap.
const LONG_ID_BYTES: usize = 4;

/// A child of an inner node.
#[derive(Copy, Clone, Default)]
pub(super) struct ChildLink {
    pub(super) child: u32,
    /// Keys in the leaves below it.
    pub(super) keys: u64,
}

/// How an entry stores its key.
pub(super) enum StoredKey<'a> {
    /// In the node: what follows the prefix is head and rest.
    Inline {
        head: [u8; HEAD_BYTES],
        length: usize,
        rest: &'a [u8],
    },
    /// Outside, whole.
    Long(u32),
}

#[derive(Copy, Clone)]
struct EntrySlot {
    head: u32,
    offset: usize,
    length: u16,
}

impl EntrySlot {
    /// Bytes in the heap.
    fn heap_bytes(self) -> usize {
        match self.length {
            LONG => LONG_ID_BYTES,
            length => usize::from(length).saturating_sub(HEAD_BYTES),
        }
    }
}

/// The first four bytes as a number, as if zeros followed.
fn head_of(suffix: &[u8]) -> u32 {
    if let Some(head) = suffix.first_chunk() {
        return u32::from_be_bytes(*head);
    }
    let mut head = [0; HEAD_BYTES];
    head[..suffix.len()].copy_from_slice(suffix);
    u32::from_be_bytes(head)
}

fn rest_of(suffix: &[u8]) -> &[u8] {
    suffix.get(HEAD_BYTES..).unwrap_or_default()
}

/// The bytes of the heap that a key takes whose part after the prefix has this length.
pub(super) fn heap_bytes_of(suffix_bytes: usize) -> usize {
    if suffix_bytes > INLINE_BYTES_MAX {
        LONG_ID_BYTES
    } else {
        suffix_bytes.saturating_sub(HEAD_BYTES)
    }
}

fn slot_bytes(level: u8) -> usize {
    if level == 0 {
        LEAF_SLOT_BYTES
    } else {
        INNER_SLOT_BYTES
    }
}

/// A node without entries.
pub(super) fn empty(level: u8, prefix: &[u8]) -> NodeBytes {
    let mut page = [0; PAGE_BYTES];
    page[0] = level;
    page[1] = u8::try_from(prefix.len()).expect("PREFIX_BYTES_MAX fits");
    set_u16(&mut page, 4, PAGE_BYTES);
    page[HEADER_BYTES..][..prefix.len()].copy_from_slice(prefix);
    page
}

fn u16_at(page: &NodeBytes, at: usize) -> u16 {
    u16::from_le_bytes([page[at], page[at + 1]])
}

fn set_u16(page: &mut NodeBytes, at: usize, value: usize) {
    let value = u16::try_from(value).expect("a place in a node");
    page[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// A node to be read.
#[derive(Copy, Clone)]
pub(super) struct View<'a>(pub(super) &'a NodeBytes);

impl<'a> View<'a> {
    /// 0 for a leaf.
    pub(super) fn level(self) -> u8 {
        self.0[0]
    }

    pub(super) fn count(self) -> usize {
        usize::from(u16_at(self.0, 2))
    }

    pub(super) fn prefix(self) -> &'a [u8] {
        &self.0[HEADER_BYTES..][..usize::from(self.0[1])]
    }

    /// The first entry that has a key.
    pub(super) fn first_key(self) -> usize {
        usize::from(self.level() > 0)
    }

    fn heap_start(self) -> usize {
        usize::from(u16_at(self.0, 4))
    }

    fn heap_live(self) -> usize {
        usize::from(u16_at(self.0, 6))
    }

    fn slots_start(self) -> usize {
        HEADER_BYTES + usize::from(self.0[1])
    }

    pub(super) fn slot_bytes(self) -> usize {
        slot_bytes(self.level())
    }

    fn slots_end(self) -> usize {
        self.slots_start() + self.count() * self.slot_bytes()
    }

    /// Bytes in use.
    pub(super) fn used(self) -> usize {
        self.slots_end() + self.heap_live()
    }

    /// Bytes between the slots and the heap.
    fn gap(self) -> usize {
        self.heap_start() - self.slots_end()
    }

    fn slot_at(self, index: usize) -> usize {
        self.slots_start() + index * self.slot_bytes()
    }

    fn slot(self, index: usize) -> EntrySlot {
        let at = self.slot_at(index);
        let bytes: &[u8; LEAF_SLOT_BYTES] = self.0[at..].first_chunk().expect("a slot");
        let [a, b, c, d, e, f, g, h] = *bytes;
        EntrySlot {
            head: u32::from_le_bytes([a, b, c, d]),
            offset: usize::from(u16::from_le_bytes([e, f])),
            length: u16::from_le_bytes([g, h]),
        }
    }

    pub(super) fn link(self, index: usize) -> ChildLink {
        let at = self.slot_at(index) + LEAF_SLOT_BYTES;
        let (child, rest) = self.0[at..].split_first_chunk().expect("a link");
        ChildLink {
            child: u32::from_le_bytes(*child),
            keys: u64::from_le_bytes(*rest.first_chunk().expect("a link")),
        }
    }

    /// Keys in the leaves below the entries before `index`; in a leaf, these entries.
    pub(super) fn keys_before(self, index: usize) -> u64 {
        if self.level() == 0 {
            return index as u64;
        }
        (0..index).map(|index| self.link(index).keys).sum()
    }

    /// Keys in this node, or in the leaves below it.
    pub(super) fn keys(self) -> u64 {
        self.keys_before(self.count())
    }

    pub(super) fn kept(self, index: usize) -> StoredKey<'a> {
        let slot = self.slot(index);
        let bytes = &self.0[slot.offset..][..slot.heap_bytes()];
        match slot.length {
            LONG => StoredKey::Long(u32::from_le_bytes(bytes.try_into().expect("a number"))),
            length => StoredKey::Inline {
                head: slot.head.to_be_bytes(),
                length: usize::from(length),
                rest: bytes,
            },
        }
    }

    /// Bytes in the heap of an entry if the prefix of its node had `prefix` bytes.
    pub(super) fn heap_bytes_with(self, index: usize, prefix: usize) -> usize {
        if index < self.first_key() {
            return 0;
        }
        match self.kept(index) {
            StoredKey::Long(_) => LONG_ID_BYTES,
            StoredKey::Inline { length, .. } => {
                heap_bytes_of(self.prefix().len() + length - prefix)
            }
        }
    }

    /// Bytes of a node with some of these entries, if its prefix had `prefix` bytes.
    pub(super) fn bytes_with(self, entries: Range<usize>, prefix: usize) -> usize {
        let bytes_of = |index| self.slot_bytes() + self.heap_bytes_with(index, prefix);
        HEADER_BYTES + prefix + entries.map(bytes_of).sum::<usize>()
    }

    /// Appends what follows the prefix to `key`; not for a long key.
    fn push_suffix(head: [u8; HEAD_BYTES], length: usize, rest: &[u8], key: &mut Vec<u8>) {
        key.extend_from_slice(&head[..length.min(HEAD_BYTES)]);
        key.extend_from_slice(rest);
    }

    /// Replaces `key` by the whole key of an entry.
    pub(super) fn key_into(self, index: usize, long_keys: &LongKeys, key: &mut Vec<u8>) {
        key.clear();
        match self.kept(index) {
            StoredKey::Long(id) => key.extend_from_slice(long_keys.get(id)),
            StoredKey::Inline { head, length, rest } => {
                key.extend_from_slice(self.prefix());
                Self::push_suffix(head, length, rest, key);
            }
        }
    }

    pub(super) fn key(self, index: usize, long_keys: &LongKeys) -> Vec<u8> {
        let mut key = Vec::new();
        self.key_into(index, long_keys, &mut key);
        key
    }

    /// The entry with this key, or the one before which it belongs.
    pub(super) fn find(self, key: &[u8], long_keys: &LongKeys) -> Result<usize, usize> {
        let (first, count) = (self.first_key(), self.count());
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            return Err(if key < prefix { first } else { count });
        };
        let head = head_of(suffix);
        let low = self.partition(first, count, |slot| slot < head);
        if low == count || self.slot(low).head != head {
            return Err(low);
        }
        // Most often one entry has this head.
        let high = self.partition(low, count, |slot| slot <= head);
        let (mut low, mut high) = (low, high);
        while low < high {
            let middle = low.midpoint(high);
            match self.compare(middle, key, suffix, long_keys) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The child for a key.
    pub(super) fn child_for(self, key: &[u8], long_keys: &LongKeys) -> usize {
        match self.find(key, long_keys) {
            Ok(index) => index,
            Err(index) => index - 1,
        }
    }

    /// The first of `from..to` whose head is not `before`.
    fn partition(self, from: usize, to: usize, before: impl Fn(u32) -> bool) -> usize {
        let (mut base, mut size) = (from, to - from);
        while size > 1 {
            let half = size / 2;
            base = if before(self.slot(base + half - 1).head) {
                base + half
            } else {
                base
            };
            size -= half;
        }
        base + usize::from(size == 1 && before(self.slot(base).head))
    }

    /// How an entry whose head is that of `suffix` compares to `key`.
    fn compare(self, index: usize, key: &[u8], suffix: &[u8], long_keys: &LongKeys) -> Ordering {
        match self.kept(index) {
            StoredKey::Long(id) => long_keys.get(id).cmp(key),
            // Where the rests are equal, padding is all that could differ: the shorter key is less.
            StoredKey::Inline { length, rest, .. } => {
                rest.cmp(rest_of(suffix)).then(length.cmp(&suffix.len()))
            }
        }
    }

    /// Whether an entry of `heap_bytes` fits, perhaps after `rebuild`.
    pub(super) fn has_room(self, heap_bytes: usize) -> bool {
        self.used() + self.slot_bytes() + heap_bytes <= PAGE_BYTES
    }

    /// Whether it fits as things lie.
    pub(super) fn has_gap(self, heap_bytes: usize) -> bool {
        self.slot_bytes() + heap_bytes <= self.gap()
    }
}

/// Adds an entry for a key whose part after the prefix is `suffix`. `long` is its number if it lies outside. There has
/// to be a gap for it.
pub(super) fn place(
    page: &mut NodeBytes,
    index: usize,
    suffix: &[u8],
    long: Option<u32>,
    link: ChildLink,
) {
    let id = long.map(u32::to_le_bytes);
    let bytes = id.as_ref().map_or(rest_of(suffix), |id| &id[..]);
    let view = View(page);
    let (count, stride) = (view.count(), view.slot_bytes());
    let (at, end) = (view.slot_at(index), view.slots_end());
    let offset = view.heap_start() - bytes.len();
    let live = view.heap_live() + bytes.len();
    assert!(end + stride <= offset, "the caller has made room");
    page[offset..][..bytes.len()].copy_from_slice(bytes);
    page.copy_within(at..end, at + stride);
    page[at..][..HEAD_BYTES].copy_from_slice(&head_of(suffix).to_le_bytes());
    set_u16(page, at + 4, offset);
    set_u16(
        page,
        at + 6,
        long.map_or(suffix.len(), |_| usize::from(LONG)),
    );
    if stride == INNER_SLOT_BYTES {
        page[at + 8..][..4].copy_from_slice(&link.child.to_le_bytes());
        page[at + 12..][..8].copy_from_slice(&link.keys.to_le_bytes());
    }
    set_u16(page, 2, count + 1);
    set_u16(page, 4, offset);
    set_u16(page, 6, live);
}

/// Removes an entry. Gives back the number of a key that lay outside.
pub(super) fn remove(page: &mut NodeBytes, index: usize) -> Option<u32> {
    let view = View(page);
    let (count, stride) = (view.count(), view.slot_bytes());
    let (at, end) = (view.slot_at(index), view.slots_end());
    let long = drop_key(page, index);
    page.copy_within(at + stride..end, at);
    set_u16(page, 2, count - 1);
    long
}

/// Takes the key from an entry of an inner node, which becomes its first. Gives back the number of a key that lay
/// outside.
pub(super) fn drop_key(page: &mut NodeBytes, index: usize) -> Option<u32> {
    let view = View(page);
    let (at, slot, live) = (view.slot_at(index), view.slot(index), view.heap_live());
    let long = match view.kept(index) {
        StoredKey::Long(id) => Some(id),
        StoredKey::Inline { .. } => None,
    };
    page[at..][..HEAD_BYTES].fill(0);
    set_u16(page, at + 4, PAGE_BYTES);
    set_u16(page, at + 6, 0);
    set_u16(page, 6, live - slot.heap_bytes());
    long
}

/// Replaces the number of keys below an entry.
pub(super) fn set_keys(page: &mut NodeBytes, index: usize, keys: u64) {
    let at = View(page).slot_at(index) + 12;
    page[at..][..8].copy_from_slice(&keys.to_le_bytes());
}

/// Checks what a node alone can show: it lies within its bounds, and its heap is as large as it says.
pub(super) fn check(view: View<'_>) {
    assert!(
        view.slots_end() <= view.heap_start(),
        "slots end before the heap"
    );
    let live: usize = (0..view.count())
        .map(|index| view.slot(index).heap_bytes())
        .sum();
    assert_eq!(live, view.heap_live(), "the heap's bytes in use");
    let mut places: Vec<_> = (0..view.count())
        .map(|index| view.slot(index))
        .filter(|slot| slot.heap_bytes() > 0)
        .map(|slot| (slot.offset, slot.offset + slot.heap_bytes()))
        .collect();
    places.sort_unstable();
    assert!(
        places
            .iter()
            .all(|(start, end)| view.heap_start() <= *start && *end <= PAGE_BYTES)
    );
    assert!(
        places.windows(2).all(|two| two[0].1 <= two[1].0),
        "two keys overlap"
    );
}
