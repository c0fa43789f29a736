//! The deterministic state machine: commands in, answers out.

use crate::command::Command;
use crate::error::StoreError;
use crate::limits::{Limits, item_charge};
use crate::position::Position;
use crate::response::Response;
use std::collections::BTreeMap;

/// One shard of the key space with its replicated state.
#[derive(Debug)]
pub struct Store {
    limits: Limits,
    hash_seed: [u64; 2],
    group_time_ns: u64,
    applied: Position,
    logical_bytes: u64,
    items: BTreeMap<Vec<u8>, (Vec<u8>, Position)>,
}

/// What a store holds.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct Stats {
    /// Live items.
    pub items: u64,
    /// What the memory limit counts.
    pub logical_bytes: u64,
}

impl Store {
    /// An empty store. `hash_seed` is drawn when the group begins and is replicated state.
    ///
    /// # Panics
    /// If the limits fail [`Limits::check`].
    #[must_use]
    pub fn new(limits: Limits, hash_seed: [u64; 2]) -> Self {
        limits
            .check()
            .expect("limits are checked before they become replicated state");
        let items = BTreeMap::new();
        Self {
            limits,
            hash_seed,
            group_time_ns: 0,
            applied: Position::ZERO,
            logical_bytes: 0,
            items,
        }
    }

    /// Applies one command at its position and answers it.
    pub fn apply(&mut self, at: Position, command: &Command<'_>) -> Response<'_> {
        self.applied = at;
        match *command {
            Command::Put { key, value } => self.put(at, key, value),
            Command::Delete { key } => {
                let removed = self.items.remove(key);
                if let Some((value, _)) = &removed {
                    self.logical_bytes -= item_charge(key.len(), value.len());
                }
                Response::Deleted {
                    existed: removed.is_some(),
                }
            }
            Command::SetLimits { limits } => match limits.check() {
                Ok(()) => {
                    self.limits = limits;
                    Response::Done
                }
                Err(_) => Response::Error(StoreError::BadLimits),
            },
            _ if command.is_read_only() => self.read(command),
            _ => Response::Error(StoreError::VersionNotActive {
                required: command.version(),
                active: 1,
            }),
        }
    }

    /// Answers a command that changes nothing.
    #[must_use]
    pub fn read(&self, command: &Command<'_>) -> Response<'_> {
        match *command {
            Command::Get { key } => match self.items.get(key) {
                Some((value, version)) => Response::Value {
                    value,
                    version: *version,
                },
                None => Response::NotFound,
            },
            _ => Response::Error(StoreError::NotReadOnly),
        }
    }

    /// Moves group time forward; it never goes back.
    pub fn set_group_time(&mut self, group_time_ns: u64) {
        self.group_time_ns = self.group_time_ns.max(group_time_ns);
    }

    /// The replicated limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The replicated hash seed.
    #[must_use]
    pub fn hash_seed(&self) -> [u64; 2] {
        self.hash_seed
    }

    /// The position of the last applied command.
    #[must_use]
    pub fn applied(&self) -> Position {
        self.applied
    }

    /// What the store holds.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            items: self.items.len() as u64,
            logical_bytes: self.logical_bytes,
        }
    }

    fn put(&mut self, at: Position, key: &[u8], value: &[u8]) -> Response<'_> {
        if key.len() > self.limits.key_bytes as usize {
            return Response::Error(StoreError::KeyTooLong {
                limit: self.limits.key_bytes,
            });
        }
        if value.len() > self.limits.value_bytes as usize {
            return Response::Error(StoreError::ValueTooLong {
                limit: self.limits.value_bytes,
            });
        }
        let before = self
            .items
            .get(key)
            .map_or(0, |(old, _)| item_charge(key.len(), old.len()));
        let after = self.logical_bytes - before + item_charge(key.len(), value.len());
        if after > self.limits.memory_bytes {
            return Response::Error(StoreError::Full {
                limit: self.limits.memory_bytes,
            });
        }
        self.logical_bytes = after;
        self.items.insert(key.to_vec(), (value.to_vec(), at));
        Response::Written { version: at }
    }
}
