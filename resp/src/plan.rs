//! Requests about keys as operations of the store. Consecutive commands of a pipeline or a transaction become one list
//! of operations. A note for each command says how its answers make a reply.

mod expiry;

use trine_kvstore::{Command, ExpireCondition, List, Pair, SetCondition, SetExpiry, SetOptions};

use crate::errors::{NOT_AN_INTEGER, Refusal, SYNTAX, too_many, wrong_arity};
use crate::limits::OPERATIONS_MAX;
use crate::shape::Shape;
use crate::table::{Spec, Verb};
use expiry::{Expiry, Unit, expire_condition};
use trine_kvstore::integer;

/// A command's reply is made of this many of the store's answers.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) shape: Shape,
    pub(crate) operations: usize,
}

/// One operation; the pairs of an MSET are stored separately.
#[derive(Clone, Debug)]
enum Step<'a> {
    Command(Command<'a>),
    Pairs { from: usize, to: usize },
}

/// Commands on their way to the store.
#[derive(Default, Debug)]
pub(crate) struct Plan<'a> {
    steps: Vec<Step<'a>>,
    pairs: Vec<Pair<'a>>,
    items: Vec<Item>,
}

/// The operations of a plan, as the store takes them.
pub(crate) struct Operations<'p> {
    pub(crate) commands: Vec<Command<'p>>,
    pub(crate) read_only: bool,
}

impl<'a> Plan<'a> {
    /// How the answers become replies, in order.
    pub(crate) fn into_items(self) -> Vec<Item> {
        self.items
    }

    /// How many commands are planned.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// How many operations of the store that takes.
    pub(crate) fn operation_count(&self) -> usize {
        self.steps.len()
    }

    pub(crate) fn operations(&self) -> Operations<'_> {
        let commands: Vec<Command<'_>> = self.steps.iter().map(|step| self.command(step)).collect();
        let read_only = commands.iter().all(Command::is_read_only);
        Operations {
            commands,
            read_only,
        }
    }

    fn command<'p>(&'p self, step: &Step<'p>) -> Command<'p> {
        match step {
            Step::Command(command) => command.clone(),
            Step::Pairs { from, to } => Command::MultiPut {
                pairs: List::from(&self.pairs[*from..*to]),
            },
        }
    }

    /// A reply that is known already, among those that are not.
    pub(crate) fn add_reply(&mut self, reply: Vec<u8>) {
        self.items.push(Item {
            shape: Shape::Known(reply),
            operations: 0,
        });
    }

    // Long because it is the table of all commands about keys.
    /// Plans a command; its number of parts was checked.
    ///
    /// # Errors
    /// The text of the error that answers it; nothing is planned then.
    pub(crate) fn add(
        &mut self,
        spec: &Spec,
        parts: &[&'a [u8]],
        unix_ms: i64,
    ) -> Result<(), Refusal> {
        let key = parts.get(1).copied().unwrap_or_default();
        match spec.verb {
            Verb::Get => self.one(Shape::Value, Command::Get { key }),
            Verb::Strlen => self.one(Shape::ValueLength, Command::Get { key }),
            Verb::Getdel => self.one(Shape::Value, Command::GetDelete { key }),
            Verb::Ttl => self.one(Shape::Seconds, Command::TimeToLive { key }),
            Verb::Pttl => self.one(Shape::Milliseconds, Command::TimeToLive { key }),
            Verb::Type => self.one(Shape::Type, Command::TimeToLive { key }),
            Verb::Persist => self.one(Shape::Changed, Command::Persist { key }),
            Verb::Dbsize => self.one(Shape::Number, Command::Count),
            Verb::Append => self.one(
                Shape::Number,
                Command::Append {
                    key,
                    value: parts[2],
                },
            ),
            Verb::Incr => self.increment(key, 1),
            Verb::Decr => self.increment(key, -1),
            Verb::Incrby => self.increment(key, integer(parts[2]).ok_or(NOT_AN_INTEGER)?),
            Verb::Decrby => {
                let by = integer(parts[2]).ok_or(NOT_AN_INTEGER)?;
                let delta = by.checked_neg().ok_or("ERR decrement would overflow")?;
                self.increment(key, delta);
            }
            Verb::Mget => self.each(Shape::Values, &parts[1..], |key| Command::Get { key })?,
            Verb::Del | Verb::Unlink => {
                self.each(Shape::HowMany, &parts[1..], |key| Command::Delete { key })?;
            }
            Verb::Exists | Verb::Touch => {
                self.each(Shape::HowMany, &parts[1..], |key| Command::TimeToLive {
                    key,
                })?;
            }
            Verb::Mset => self.put_pairs(spec, &parts[1..])?,
            Verb::Set => self.set(key, parts[2], &parts[3..], unix_ms)?,
            Verb::Setnx => {
                let condition = SetCondition::Absent;
                self.set_with(Shape::Changed, key, parts[2], condition, SetExpiry::Never);
            }
            Verb::Getset => {
                let options = SetOptions {
                    return_previous: true,
                    ..SetOptions::default()
                };
                let value = parts[2];
                self.one(
                    Shape::Previous,
                    Command::Set {
                        key,
                        value,
                        options,
                    },
                );
            }
            Verb::Setex => self.set_for(spec, key, parts, Unit::Seconds, unix_ms)?,
            Verb::Psetex => self.set_for(spec, key, parts, Unit::Milliseconds, unix_ms)?,
            Verb::Getex => self.get_and_expire(key, &parts[2..], unix_ms)?,
            Verb::Expire => self.expire(spec, parts, Unit::Seconds, unix_ms)?,
            Verb::Pexpire => self.expire(spec, parts, Unit::Milliseconds, unix_ms)?,
            Verb::Expireat => self.expire(spec, parts, Unit::AtSeconds, unix_ms)?,
            Verb::Pexpireat => self.expire(spec, parts, Unit::AtMilliseconds, unix_ms)?,
            _ => return Err("ERR this command cannot stand here".to_owned()),
        }
        Ok(())
    }

    fn one(&mut self, shape: Shape, command: Command<'a>) {
        self.steps.push(Step::Command(command));
        self.items.push(Item {
            shape,
            operations: 1,
        });
    }

    fn each(
        &mut self,
        shape: Shape,
        keys: &[&'a [u8]],
        command: impl Fn(&'a [u8]) -> Command<'a>,
    ) -> Result<(), Refusal> {
        if keys.len() > OPERATIONS_MAX {
            return Err(too_many("keys"));
        }
        let steps = keys.iter().map(|key| Step::Command(command(key)));
        self.steps.extend(steps);
        self.items.push(Item {
            shape,
            operations: keys.len(),
        });
        Ok(())
    }

    fn increment(&mut self, key: &'a [u8], delta: i64) {
        self.one(Shape::Number, Command::Increment { key, delta });
    }

    fn put_pairs(&mut self, spec: &Spec, parts: &[&'a [u8]]) -> Result<(), Refusal> {
        if !parts.len().is_multiple_of(2) {
            return Err(wrong_arity(spec.name));
        }
        if parts.len() / 2 > OPERATIONS_MAX {
            return Err(too_many("pairs"));
        }
        let from = self.pairs.len();
        let pairs = parts.chunks_exact(2).map(|pair| Pair {
            key: pair[0],
            value: pair[1],
        });
        self.pairs.extend(pairs);
        let to = self.pairs.len();
        self.steps.push(Step::Pairs { from, to });
        self.items.push(Item {
            shape: Shape::Ok,
            operations: 1,
        });
        Ok(())
    }

    fn set_with(
        &mut self,
        shape: Shape,
        key: &'a [u8],
        value: &'a [u8],
        condition: SetCondition,
        expiry: SetExpiry,
    ) {
        let options = SetOptions {
            condition,
            expiry,
            return_previous: false,
        };
        let command = match options == SetOptions::default() {
            true => Command::Put { key, value },
            false => Command::Set {
                key,
                value,
                options,
            },
        };
        self.one(shape, command);
    }

    fn set(
        &mut self,
        key: &'a [u8],
        value: &'a [u8],
        words: &[&[u8]],
        unix_ms: i64,
    ) -> Result<(), Refusal> {
        let asked = SetWords::read(words)?;
        let after = match asked.expiry {
            None => None,
            Some(expiry) => Some(expiry.of_set(unix_ms, "set")?),
        };
        let expiry = match after {
            None if asked.keep => SetExpiry::Keep,
            None => SetExpiry::Never,
            Some(after_ns) => SetExpiry::After(after_ns.unwrap_or(1)),
        };
        if asked.get {
            let options = SetOptions {
                condition: asked.condition,
                expiry,
                return_previous: true,
            };
            let command = Command::Set {
                key,
                value,
                options,
            };
            self.one(Shape::Previous, command);
        } else {
            self.set_with(Shape::OkOrNull, key, value, asked.condition, expiry);
        }
        // The moment is over. With NX it is not known yet whether this value would be deleted, so the key goes at the
        // next step of group time.
        if after == Some(None) && asked.condition != SetCondition::Absent {
            self.and_delete(key);
        }
        Ok(())
    }

    /// The last command also deletes the key; the reply does not show that.
    fn and_delete(&mut self, key: &'a [u8]) {
        self.steps.push(Step::Command(Command::Delete { key }));
        if let Some(item) = self.items.last_mut() {
            item.operations += 1;
        }
    }

    fn set_for(
        &mut self,
        spec: &Spec,
        key: &'a [u8],
        parts: &[&'a [u8]],
        unit: Unit,
        unix_ms: i64,
    ) -> Result<(), Refusal> {
        let expiry = Expiry::read(unit, parts[2])?;
        let after_ns = expiry.of_set(unix_ms, spec.name)?.unwrap_or(1);
        let expiry = SetExpiry::After(after_ns);
        self.set_with(Shape::Ok, key, parts[3], SetCondition::Always, expiry);
        Ok(())
    }

    fn get_and_expire(
        &mut self,
        key: &'a [u8],
        words: &[&[u8]],
        unix_ms: i64,
    ) -> Result<(), Refusal> {
        let change = match GetexWords::read(words)? {
            GetexWords::None => None,
            GetexWords::Persist => Some(Command::Persist { key }),
            GetexWords::Expiry(unit, amount) => {
                match Expiry::read(unit, amount).and_then(|expiry| expiry.of_set(unix_ms, "getex"))
                {
                    Ok(Some(after_ns)) => Some(Command::Expire { key, after_ns }),
                    Ok(None) => {
                        self.one(Shape::Value, Command::GetDelete { key });
                        return Ok(());
                    }
                    // Redis looks for the key first.
                    Err(text) => {
                        self.one(Shape::ErrorIfPresent(text), Command::TimeToLive { key });
                        return Ok(());
                    }
                }
            }
        };
        let steps = std::iter::once(Command::Get { key }).chain(change);
        let before = self.steps.len();
        self.steps.extend(steps.map(Step::Command));
        let operations = self.steps.len() - before;
        let shape = Shape::ValueFirst;
        self.items.push(Item { shape, operations });
        Ok(())
    }

    fn expire(
        &mut self,
        spec: &Spec,
        parts: &[&'a [u8]],
        unit: Unit,
        unix_ms: i64,
    ) -> Result<(), Refusal> {
        let condition = expire_condition(&parts[3..])?;
        let key = parts[1];
        let after_ns = Expiry::read(unit, parts[2])?.of_expire(unix_ms, spec.name)?;
        if let (Some(condition), Some(after_ns), Some(doubt_ns)) =
            (condition, after_ns, unit.doubt_ns())
        {
            self.expire_beyond_doubt(key, after_ns, condition, doubt_ns);
            return Ok(());
        }
        let command = match (condition, after_ns) {
            (Some(condition), after_ns) => Command::ExpireIf {
                key,
                after_ns: after_ns.unwrap_or(0),
                condition,
            },
            (None, Some(after_ns)) => Command::Expire { key, after_ns },
            (None, None) => Command::Delete { key },
        };
        self.one(Shape::Changed, command);
        Ok(())
    }

    /// For a condition that compares moments of Unix time. The same moment comes out a little earlier or later each time,
    /// because it is measured by the clock of this replica and then by that of the leader. So the condition has to hold
    /// by more than that. The second operation brings the exact moment; only the first has a reply.
    fn expire_beyond_doubt(
        &mut self,
        key: &'a [u8],
        after_ns: u64,
        condition: ExpireCondition,
        doubt_ns: u64,
    ) {
        let cautious_ns = match condition {
            ExpireCondition::Later => after_ns.saturating_sub(doubt_ns),
            ExpireCondition::Earlier | ExpireCondition::PresentAndEarlier => {
                after_ns.saturating_add(doubt_ns)
            }
            ExpireCondition::Absent | ExpireCondition::Present => {
                let command = Command::ExpireIf {
                    key,
                    after_ns,
                    condition,
                };
                return self.one(Shape::Changed, command);
            }
        };
        let steps = [cautious_ns, after_ns].map(|after_ns| {
            Step::Command(Command::ExpireIf {
                key,
                after_ns,
                condition,
            })
        });
        self.steps.extend(steps);
        self.items.push(Item {
            shape: Shape::Changed,
            operations: 2,
        });
    }
}

/// The words behind the key of a GETEX. The same one may come again, and the last one counts.
enum GetexWords<'w> {
    None,
    Persist,
    Expiry(Unit, &'w [u8]),
}

impl<'w> GetexWords<'w> {
    fn read(words: &[&'w [u8]]) -> Result<Self, Refusal> {
        let mut asked = Self::None;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            asked = match (asked, word.eq_ignore_ascii_case(b"persist")) {
                (Self::None | Self::Persist, true) => Self::Persist,
                (Self::Persist, false) | (Self::Expiry(..), true) => return Err(SYNTAX.to_owned()),
                (earlier, false) => {
                    let unit = Unit::of_word(word).ok_or(SYNTAX)?;
                    let amount = words.next().ok_or(SYNTAX)?;
                    match earlier {
                        Self::Expiry(before, _) if before != unit => {
                            return Err(SYNTAX.to_owned());
                        }
                        _ => Self::Expiry(unit, amount),
                    }
                }
            };
        }
        Ok(asked)
    }
}

/// The words behind the value of a SET.
#[derive(Default)]
struct SetWords {
    condition: SetCondition,
    get: bool,
    keep: bool,
    expiry: Option<Expiry>,
}

impl SetWords {
    fn read(words: &[&[u8]]) -> Result<Self, Refusal> {
        let mut asked = Self::default();
        let mut unit_asked = None;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
            if is(b"nx") && asked.condition != SetCondition::Present {
                asked.condition = SetCondition::Absent;
            } else if is(b"xx") && asked.condition != SetCondition::Absent {
                asked.condition = SetCondition::Present;
            } else if is(b"get") {
                asked.get = true;
            } else if is(b"keepttl") && unit_asked.is_none() {
                asked.keep = true;
            } else {
                let unit = Unit::of_word(word).ok_or(SYNTAX)?;
                let amount = words.next().ok_or(SYNTAX)?;
                if asked.keep || unit_asked.is_some_and(|(earlier, _)| earlier != unit) {
                    return Err(SYNTAX.to_owned());
                }
                unit_asked = Some((unit, amount));
            }
        }
        if let Some((unit, amount)) = unit_asked {
            asked.expiry = Some(Expiry::read(unit, amount)?);
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests;
