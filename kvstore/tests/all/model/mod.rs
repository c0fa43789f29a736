//! A slow and obvious store, to hold the real one against.

pub(crate) mod ordered;
mod users;

use std::collections::BTreeMap;
use trine_kvstore::limits::item_charge;
use trine_kvstore::{
    AbortCause, Command, Condition, ExecuteMode, ExpireCondition, Limits, List, Pair, Position,
    Response, SetCondition, SetExpiry, SetOptions, StoreError, Versioned,
};

#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) value: Vec<u8>,
    pub(crate) version: Position,
    /// 0 if it does not expire.
    pub(crate) expiry_ns: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) items: BTreeMap<Vec<u8>, Item>,
    pub(crate) limits: Limits,
    pub(crate) group_time_ns: u64,
    pub(crate) users: users::Users,
    pub(crate) ordered: ordered::Ordered,
    pub(crate) pins: Vec<Pinned>,
}

/// A pin, and all items of then.
#[derive(Clone, Debug)]
pub(crate) struct Pinned {
    pub(crate) position: Position,
    pub(crate) items: BTreeMap<Vec<u8>, Item>,
}

/// An owned answer: the encoding of the real one.
type Answer = Vec<u8>;

fn answer(response: Response<'_>) -> Answer {
    let mut bytes = Vec::new();
    response.encode(&mut bytes);
    bytes
}

impl Model {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            items: BTreeMap::new(),
            limits,
            group_time_ns: 0,
            users: users::Users::default(),
            ordered: ordered::Ordered::Off,
            pins: Vec::new(),
        }
    }

    pub(crate) fn set_group_time(&mut self, group_time_ns: u64) {
        self.group_time_ns = self.group_time_ns.max(group_time_ns);
        let now = self.group_time_ns;
        self.items
            .retain(|_, item| item.expiry_ns == 0 || item.expiry_ns > now);
    }

    /// Applies a command and returns the answer that the store must give.
    pub(crate) fn apply(&mut self, at: Position, command: &Command<'_>) -> Answer {
        match command {
            Command::MultiGet { keys } => {
                let items: Vec<_> = keys.iter().map(|key| self.items.get(key)).collect();
                let responses: Vec<_> = items.into_iter().map(value_of).collect();
                answer(Response::List(List::from(responses.as_slice())))
            }
            Command::Execute {
                mode,
                conditions,
                operations,
            } => self.execute(at, *mode, conditions, operations),
            Command::SetLimits { limits } => {
                self.limits = *limits;
                answer(Response::Done)
            }
            Command::SetMemory { memory_bytes } => {
                let used = self.logical_bytes();
                if *memory_bytes < used.min(self.limits.memory_bytes) {
                    return answer(Response::Error(StoreError::MemoryInUse { used }));
                }
                self.limits.memory_bytes = *memory_bytes;
                answer(Response::Done)
            }
            Command::Pin | Command::RenewPin { .. } | Command::Unpin { .. } => {
                self.apply_pin(at, command)
            }
            Command::SetOrdered { .. }
            | Command::Scan { .. }
            | Command::CountRange { .. }
            | Command::DeleteRange { .. } => self.apply_ordered(command),
            Command::Flush => {
                let items = self.items.len() as u64;
                self.items.clear();
                self.pins.clear();
                answer(Response::Count { items })
            }
            Command::AddUser { .. }
            | Command::RotateUser { .. }
            | Command::RemoveUser { .. }
            | Command::ListUsers => answer(self.users.apply(command)),
            _ => self.apply_to_key(at, command).0,
        }
    }

    fn execute(
        &mut self,
        at: Position,
        mode: ExecuteMode,
        conditions: &List<'_, Condition<'_>>,
        operations: &List<'_, Command<'_>>,
    ) -> Answer {
        let holds = |condition: Condition<'_>| {
            let version = self.items.get(condition.key()).map(|item| item.version);
            match condition {
                Condition::Absent { .. } => version.is_none(),
                Condition::Present { .. } => version.is_some(),
                Condition::VersionIs {
                    version: expected, ..
                } => version == Some(expected),
            }
        };
        if let Some(index) = conditions.iter().position(|condition| !holds(condition)) {
            return answer(Response::Aborted {
                cause: AbortCause::Condition {
                    index: index as u32,
                },
            });
        }
        let before = self.items.clone();
        let mut answers = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            let (answer_bytes, failure) = self.apply_to_key(at, &operation);
            if let (Some(failure), ExecuteMode::AllOrNothing) = (failure, mode) {
                self.items = before;
                let index = index as u32;
                let cause = match failure {
                    Failure::Refused(error) => AbortCause::Refused { index, error },
                    Failure::Conflict => AbortCause::Conflict { index },
                };
                return answer(Response::Aborted { cause });
            }
            answers.push(answer_bytes);
        }
        let responses: Vec<_> = answers
            .iter()
            .map(|bytes| Response::decode(bytes).expect("encoded above"))
            .collect();
        answer(Response::List(List::from(responses.as_slice())))
    }

    fn put_all(&mut self, at: Position, pairs: &List<'_, Pair<'_>>) -> (Answer, Option<Failure>) {
        let before = self.items.clone();
        for pair in pairs.iter() {
            if let Err(error) = self.write(pair.key, pair.value, at, 0) {
                self.items = before;
                return (
                    answer(Response::Error(error)),
                    Some(Failure::Refused(error)),
                );
            }
        }
        (answer(Response::Written { version: at }), None)
    }

    fn apply_to_key(&mut self, at: Position, command: &Command<'_>) -> (Answer, Option<Failure>) {
        if let Command::MultiPut { pairs } = command {
            return self.put_all(at, pairs);
        }
        let result = match *command {
            Command::Count => Ok(answer(Response::Count {
                items: self.items.len() as u64,
            })),
            Command::Get { key } => Ok(answer(value_of(self.items.get(key)))),
            Command::TimeToLive { key } => Ok(answer(match self.items.get(key) {
                None => Response::NotFound,
                Some(item) => Response::TimeToLive {
                    remaining_ns: (item.expiry_ns != 0)
                        .then(|| item.expiry_ns - self.group_time_ns),
                },
            })),
            Command::Put { key, value } => self
                .write(key, value, at, 0)
                .map(|()| answer(Response::Written { version: at })),
            Command::Delete { key } => Ok(answer(Response::Deleted {
                existed: self.items.remove(key).is_some(),
            })),
            Command::GetDelete { key } => Ok(answer(value_of(self.items.remove(key).as_ref()))),
            Command::Set {
                key,
                value,
                options,
            } => return self.set(at, key, value, options),
            Command::CompareAndSwap {
                key,
                expected,
                value,
            } => match self.items.get(key).cloned() {
                None => Err(StoreError::KeyMissing),
                Some(item) if item.version != expected => {
                    let response = Response::Conflict {
                        current: Some(item.version),
                    };
                    return (answer(response), Some(Failure::Conflict));
                }
                Some(item) => self
                    .write(key, value, at, item.expiry_ns)
                    .map(|()| answer(Response::Written { version: at })),
            },
            Command::Increment { key, delta } => self
                .increment(at, key, delta)
                .map(|value| answer(Response::Number { value, version: at })),
            Command::Append { key, value } => {
                let old = self.items.get(key).cloned();
                let expiry_ns = old.as_ref().map_or(0, |item| item.expiry_ns);
                let whole = [old.map_or(Vec::new(), |item| item.value).as_slice(), value].concat();
                let bytes = whole.len() as u32;
                self.write(key, &whole, at, expiry_ns)
                    .map(|()| answer(Response::Length { bytes, version: at }))
            }
            Command::Expire { key, after_ns } => {
                let expiry_ns = self.group_time_ns.saturating_add(after_ns.max(1));
                Ok(match self.items.get_mut(key) {
                    None => answer(Response::NotFound),
                    Some(item) => {
                        (item.version, item.expiry_ns) = (at, expiry_ns);
                        answer(Response::Written { version: at })
                    }
                })
            }
            Command::ExpireIf {
                key,
                after_ns,
                condition,
            } => return self.expire_if(at, key, after_ns, (condition, 0)),
            Command::ExpireIfBeyond {
                key,
                after_ns,
                condition,
                margin_ns,
            } => return self.expire_if(at, key, after_ns, (condition, margin_ns)),
            Command::Persist { key } => match self.items.get_mut(key) {
                None => Ok(answer(Response::NotFound)),
                Some(item) if item.expiry_ns == 0 => {
                    let response = Response::Conflict {
                        current: Some(item.version),
                    };
                    return (answer(response), Some(Failure::Conflict));
                }
                Some(item) => {
                    (item.version, item.expiry_ns) = (at, 0);
                    Ok(answer(Response::Written { version: at }))
                }
            },
            _ => Err(StoreError::NotInExecute),
        };
        match result {
            Ok(bytes) => (bytes, None),
            Err(error) => (
                answer(Response::Error(error)),
                Some(Failure::Refused(error)),
            ),
        }
    }

    fn expire_if(
        &mut self,
        at: Position,
        key: &[u8],
        after_ns: u64,
        (condition, margin_ns): (ExpireCondition, u64),
    ) -> (Answer, Option<Failure>) {
        let expiry_ns = self.group_time_ns.saturating_add(after_ns);
        let Some(item) = self.items.get_mut(key) else {
            return (answer(Response::NotFound), None);
        };
        // An item without expiry stays forever.
        let current = if item.expiry_ns == 0 {
            u64::MAX
        } else {
            item.expiry_ns
        };
        let (new, old, margin) = (
            i128::from(expiry_ns),
            i128::from(current),
            i128::from(margin_ns),
        );
        let for_ever = item.expiry_ns == 0;
        let shorter = for_ever || old - new > margin;
        let holds = match condition {
            ExpireCondition::Absent => for_ever,
            ExpireCondition::Present => !for_ever,
            ExpireCondition::Later => new - old > margin,
            ExpireCondition::Earlier => shorter,
            ExpireCondition::PresentAndEarlier => shorter && !for_ever,
        };
        if !holds {
            let current = Some(item.version);
            return (
                answer(Response::Conflict { current }),
                Some(Failure::Conflict),
            );
        }
        if after_ns == 0 {
            self.items.remove(key);
            return (answer(Response::Deleted { existed: true }), None);
        }
        (item.version, item.expiry_ns) = (at, expiry_ns);
        (answer(Response::Written { version: at }), None)
    }

    fn set(
        &mut self,
        at: Position,
        key: &[u8],
        value: &[u8],
        options: SetOptions,
    ) -> (Answer, Option<Failure>) {
        let old = self.items.get(key).cloned();
        let holds = match options.condition {
            SetCondition::Always => true,
            SetCondition::Absent => old.is_none(),
            SetCondition::Present => old.is_some(),
        };
        if holds {
            let expiry_ns = match options.expiry {
                SetExpiry::Never => 0,
                SetExpiry::Keep => old.as_ref().map_or(0, |item| item.expiry_ns),
                SetExpiry::After(after_ns) => self.group_time_ns.saturating_add(after_ns.max(1)),
            };
            if let Err(error) = self.write(key, value, at, expiry_ns) {
                return (
                    answer(Response::Error(error)),
                    Some(Failure::Refused(error)),
                );
            }
        }
        let failure = (!holds).then_some(Failure::Conflict);
        let written = holds.then_some(at);
        let response = if options.return_previous {
            let previous = old.as_ref().map(|item| Versioned {
                value: &item.value,
                version: item.version,
            });
            Response::Exchanged { previous, written }
        } else if holds {
            Response::Written { version: at }
        } else {
            Response::Conflict {
                current: old.as_ref().map(|item| item.version),
            }
        };
        (answer(response), failure)
    }

    fn increment(&mut self, at: Position, key: &[u8], delta: i64) -> Result<i64, StoreError> {
        let old = self.items.get(key).cloned();
        let number: i64 = match &old {
            None => 0,
            Some(item) => std::str::from_utf8(&item.value)
                .ok()
                .and_then(|text| {
                    text.parse()
                        .ok()
                        .filter(|number: &i64| number.to_string() == text)
                })
                .ok_or(StoreError::NotANumber)?,
        };
        let sum = number.checked_add(delta).ok_or(StoreError::Overflow)?;
        self.write(
            key,
            sum.to_string().as_bytes(),
            at,
            old.map_or(0, |item| item.expiry_ns),
        )?;
        Ok(sum)
    }

    fn write(
        &mut self,
        key: &[u8],
        value: &[u8],
        version: Position,
        expiry_ns: u64,
    ) -> Result<(), StoreError> {
        if key.len() > self.limits.key_bytes as usize {
            return Err(StoreError::KeyTooLong {
                limit: self.limits.key_bytes,
            });
        }
        if value.len() > self.limits.value_bytes as usize {
            return Err(StoreError::ValueTooLong {
                limit: self.limits.value_bytes,
            });
        }
        let old = self
            .items
            .get(key)
            .map_or(0, |item| self.charge(key.len(), item.value.len()));
        let new = self.charge(key.len(), value.len());
        if new > old && self.logical_bytes() - old + new > self.limits.memory_bytes {
            return Err(StoreError::Full {
                limit: self.limits.memory_bytes,
            });
        }
        self.items.insert(
            key.to_vec(),
            Item {
                value: value.to_vec(),
                version,
                expiry_ns,
            },
        );
        Ok(())
    }

    fn charge(&self, key_bytes: usize, value_bytes: usize) -> u64 {
        let for_index = match self.ordered {
            ordered::Ordered::Off => 0,
            _ => ordered::for_index(key_bytes),
        };
        item_charge(key_bytes, value_bytes) + for_index
    }

    pub(crate) fn logical_bytes(&self) -> u64 {
        self.items
            .iter()
            .map(|(key, item)| self.charge(key.len(), item.value.len()))
            .sum()
    }
}

enum Failure {
    Refused(StoreError),
    Conflict,
}

fn value_of(item: Option<&Item>) -> Response<'_> {
    match item {
        Some(item) => Response::Value {
            value: &item.value,
            version: item.version,
        },
        None => Response::NotFound,
    }
}
