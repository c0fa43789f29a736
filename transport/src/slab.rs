//! Values under small numbers that are used again, each with the generation that tells old names from new ones.

/// Names a value in a [`Slab`] until it is removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// Its place in the table.
    pub index: u32,
    /// How many values had that place before it.
    pub generation: u32,
}

impl Key {
    /// The key as one number, for tags and tokens.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }

    /// The key that [`Key::to_u64`] was made of.
    #[must_use]
    pub const fn from_u64(number: u64) -> Self {
        Self {
            index: number as u32,
            generation: (number >> 32) as u32,
        }
    }
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// A bounded table. Generations have 30 bits, so that the two highest bits of [`Key::to_u64`] stay free for
/// its user.
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    limit: usize,
}

impl<T> Slab<T> {
    /// An empty table for at most `limit` values.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            limit,
        }
    }

    /// How many values it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether [`Slab::insert`] would refuse.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Stores `value`.
    ///
    /// # Errors
    /// Hands `value` back when the table is full.
    pub fn insert(&mut self, value: T) -> Result<Key, T> {
        if self.is_full() {
            return Err(value);
        }
        Ok(self.insert_into_free(|_| value))
    }

    /// Stores the value that `make` returns for its own name. `None` when the table is full: `make` is not called.
    pub fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Option<Key> {
        (!self.is_full()).then(|| self.insert_into_free(make))
    }

    /// The caller has seen that there is room.
    fn insert_into_free(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                generation: 0,
                value: None,
            });
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        let key = Key {
            index,
            generation: entry.generation,
        };
        entry.value = Some(make(key));
        key
    }

    /// The value with this name; nothing once it was removed.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        let entry = self.entries.get(key.index as usize)?;
        if entry.generation == key.generation {
            entry.value.as_ref()
        } else {
            None
        }
    }

    /// The same, to change it.
    #[must_use]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation == key.generation {
            entry.value.as_mut()
        } else {
            None
        }
    }

    /// Takes the value with this name out; its name is of no use any more.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = (entry.generation + 1) & (u32::MAX >> 2);
        self.free.push(key.index);
        Some(value)
    }

    /// All values with their names.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| {
                let key = Key {
                    index: index as u32,
                    generation: entry.generation,
                };
                entry.value.as_ref().map(|value| (key, value))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_never_finds_the_value_that_took_its_place() {
        let mut slab = Slab::new(2);
        let old = slab.insert('a').expect("room");
        assert_eq!(slab.remove(old), Some('a'));
        let new = slab.insert('b').expect("room");
        assert_eq!((new.index, slab.get(old)), (old.index, None));
        assert_eq!(slab.remove(old), None);
        assert_eq!(slab.get(Key::from_u64(new.to_u64())), Some(&'b'));
        slab.insert('c').expect("room");
        assert!(slab.is_full());
        assert_eq!(slab.insert('d'), Err('d'));
        assert_eq!(slab.len(), 2);
    }
}
