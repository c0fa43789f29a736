//! Requests about keys as operations of the store. Consecutive commands of a pipeline or a transaction become one list
//! of operations. A note for each command says how its answers make a reply.

mod expiry;

use trine_kvstore::{
    Command, ExecuteMode, ExpireCondition, List, Pair, SetCondition, SetExpiry, SetOptions,
};

use crate::errors::{Refusal, SYNTAX, too_many, wrong_arity};
use crate::limits::OPERATIONS_MAX;
use crate::shape::Shape;
pub(crate) use expiry::Unit;
use expiry::{Expiry, expire_condition};

/// A request for the store whose number of parts was checked.
pub(crate) struct Asked<'r, 'a> {
    /// The command's name, for errors.
    pub(crate) name: &'static str,
    /// The name and what stands behind it.
    pub(crate) parts: &'r [&'a [u8]],
    /// Milliseconds of Unix time, for expiries that name a moment.
    pub(crate) unix_ms: i64,
}

impl<'r, 'a> Asked<'r, 'a> {
    /// The part right behind the name.
    pub(crate) fn key(&self) -> &'a [u8] {
        self.part(1)
    }

    /// The part at this place; the name has place 0. The command takes at least so many.
    pub(crate) fn part(&self, place: usize) -> &'a [u8] {
        self.parts[place]
    }

    /// The parts from this place on.
    pub(crate) fn behind(&self, place: usize) -> &'r [&'a [u8]] {
        &self.parts[place..]
    }
}

/// Nothing is planned if it fails: the text of the error answers the request.
pub type Planned = Result<(), Refusal>;

/// Plans one kind of command.
pub(crate) type Planner = for<'p, 'r, 'a> fn(&'p mut Plan<'a>, &'r Asked<'r, 'a>) -> Planned;

/// A command's reply is made of this many of the store's answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    pub(crate) shape: Shape,
    pub(crate) operations: usize,
}

impl Item {
    /// Bytes of memory that it holds while the store's answer is awaited.
    pub fn held_bytes(&self) -> usize {
        let reply = match &self.shape {
            Shape::Known(reply) => reply.capacity(),
            Shape::ErrorIfPresent(text) => text.capacity(),
            _ => 0,
        };
        size_of::<Self>() + reply
    }
}

/// One operation; the pairs of an MSET are stored separately.
#[derive(Clone, Debug)]
enum Step<'a> {
    Command(Command<'a>),
    Pairs { from: usize, to: usize },
}

/// Commands on their way to the store.
#[derive(Default, Debug)]
pub struct Plan<'a> {
    operations: Operations<'a>,
    items: Vec<Item>,
}

/// The operations of a plan.
#[derive(Default, Debug)]
pub struct Operations<'a> {
    steps: Vec<Step<'a>>,
    pairs: Vec<Pair<'a>>,
}

impl Operations<'_> {
    /// The operations as the store takes them.
    pub fn commands(&self) -> Vec<Command<'_>> {
        self.steps.iter().map(|step| self.command(step)).collect()
    }

    fn command<'p>(&'p self, step: &Step<'p>) -> Command<'p> {
        match step {
            Step::Command(command) => command.clone(),
            Step::Pairs { from, to } => Command::MultiPut {
                pairs: List::from(&self.pairs[*from..*to]),
            },
        }
    }
}

/// Operations without conditions as one command.
pub fn in_one<'c>(operations: &'c [Command<'c>]) -> Command<'c> {
    match operations {
        [single] => single.clone(),
        several => Command::Execute {
            mode: ExecuteMode::Independent,
            conditions: List::default(),
            operations: List::from(several),
        },
    }
}

impl<'a> Plan<'a> {
    /// The operations, and how their answers become replies, in order.
    pub fn split(self) -> (Operations<'a>, Vec<Item>) {
        (self.operations, self.items)
    }

    /// How many commands are planned.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// How many operations of the store that takes.
    pub fn operation_count(&self) -> usize {
        self.operations.steps.len()
    }

    /// A reply that is known already, among those that are not.
    pub fn add_reply(&mut self, reply: Vec<u8>) {
        self.items.push(Item {
            shape: Shape::Known(reply),
            operations: 0,
        });
    }

    /// How many of the store's answers are expected to carry a value.
    pub fn value_count(&self) -> usize {
        let values = |item: &Item| item.shape.values(item.operations);
        self.items.iter().map(values).sum()
    }

    /// A command of one operation.
    pub(crate) fn one(&mut self, shape: Shape, command: Command<'a>) -> Planned {
        self.operations.steps.push(Step::Command(command));
        self.items.push(Item {
            shape,
            operations: 1,
        });
        Ok(())
    }

    /// A command of an operation for each key.
    pub(crate) fn each(
        &mut self,
        shape: Shape,
        keys: &[&'a [u8]],
        command: impl Fn(&'a [u8]) -> Command<'a>,
    ) -> Planned {
        if keys.len() > OPERATIONS_MAX {
            return Err(too_many("keys"));
        }
        let steps = keys.iter().map(|key| Step::Command(command(key)));
        self.operations.steps.extend(steps);
        self.items.push(Item {
            shape,
            operations: keys.len(),
        });
        Ok(())
    }

    /// INCR and its relatives.
    pub(crate) fn increment(&mut self, key: &'a [u8], delta: i64) -> Planned {
        self.one(Shape::Number, Command::Increment { key, delta })
    }

    /// MSET.
    pub(crate) fn put_pairs(&mut self, asked: &Asked<'_, 'a>) -> Planned {
        let parts = asked.behind(1);
        if !parts.len().is_multiple_of(2) {
            return Err(wrong_arity(asked.name));
        }
        if parts.len() / 2 > OPERATIONS_MAX {
            return Err(too_many("pairs"));
        }
        let from = self.operations.pairs.len();
        let pairs = parts.chunks_exact(2).map(|pair| Pair {
            key: pair[0],
            value: pair[1],
        });
        self.operations.pairs.extend(pairs);
        let to = self.operations.pairs.len();
        self.operations.steps.push(Step::Pairs { from, to });
        self.items.push(Item {
            shape: Shape::Ok,
            operations: 1,
        });
        Ok(())
    }

    /// Writes the part behind the key; nothing is returned of what was there.
    pub(crate) fn set_with(
        &mut self,
        shape: Shape,
        asked: &Asked<'_, 'a>,
        condition: SetCondition,
        expiry: SetExpiry,
    ) -> Planned {
        self.write(shape, asked.key(), asked.part(2), condition, expiry)
    }

    fn write(
        &mut self,
        shape: Shape,
        key: &'a [u8],
        value: &'a [u8],
        condition: SetCondition,
        expiry: SetExpiry,
    ) -> Planned {
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
        self.one(shape, command)
    }

    /// Writes a value and returns what was there.
    fn exchange_with(
        &mut self,
        key: &'a [u8],
        value: &'a [u8],
        condition: SetCondition,
        expiry: SetExpiry,
    ) -> Planned {
        let options = SetOptions {
            condition,
            expiry,
            return_previous: true,
        };
        self.one(
            Shape::Previous,
            Command::Set {
                key,
                value,
                options,
            },
        )
    }

    /// GETSET.
    pub(crate) fn exchange(&mut self, asked: &Asked<'_, 'a>) -> Planned {
        let (key, value) = (asked.key(), asked.part(2));
        self.exchange_with(key, value, SetCondition::Always, SetExpiry::Never)
    }

    /// SET.
    pub(crate) fn set(&mut self, asked: &Asked<'_, 'a>) -> Planned {
        let words = SetWords::read(asked.behind(3))?;
        let after = match words.expiry {
            None => None,
            Some(expiry) => Some(expiry.of_set(asked.unix_ms, asked.name)?),
        };
        let expiry = match after {
            None if words.keep => SetExpiry::Keep,
            None => SetExpiry::Never,
            Some(after_ns) => SetExpiry::After(after_ns.unwrap_or(1)),
        };
        // The moment is over. With NX it is not known yet whether this value would be deleted, so the key goes at the
        // next step of group time.
        let deletes = after == Some(None) && words.condition != SetCondition::Absent;
        // The value that is deleted at once has no bytes: a full store would refuse a longer one, and still delete the key.
        let (key, value) = match deletes {
            true => (asked.key(), &b""[..]),
            false => (asked.key(), asked.part(2)),
        };
        match words.get {
            true => self.exchange_with(key, value, words.condition, expiry)?,
            false => self.write(Shape::OkOrNull, key, value, words.condition, expiry)?,
        }
        if deletes {
            self.and_delete(key);
        }
        Ok(())
    }

    /// The last command also deletes the key; the reply does not show that.
    fn and_delete(&mut self, key: &'a [u8]) {
        self.operations
            .steps
            .push(Step::Command(Command::Delete { key }));
        if let Some(item) = self.items.last_mut() {
            item.operations += 1;
        }
    }

    /// SETEX and PSETEX.
    pub(crate) fn set_for(&mut self, asked: &Asked<'_, 'a>, unit: Unit) -> Planned {
        let expiry = Expiry::read(unit, asked.part(2))?;
        let after_ns = expiry.of_set(asked.unix_ms, asked.name)?.unwrap_or(1);
        let (key, value) = (asked.key(), asked.part(3));
        let expiry = SetExpiry::After(after_ns);
        self.write(Shape::Ok, key, value, SetCondition::Always, expiry)
    }

    /// GETEX.
    pub(crate) fn get_and_expire(&mut self, asked: &Asked<'_, 'a>) -> Planned {
        let key = asked.key();
        let of_set = |expiry: Expiry| expiry.of_set(asked.unix_ms, asked.name);
        let change = match GetexWords::read(asked.behind(2))? {
            GetexWords::None => None,
            GetexWords::Persist => Some(Command::Persist { key }),
            GetexWords::Expiry(unit, amount) => {
                match Expiry::read(unit, amount).and_then(of_set) {
                    Ok(Some(after_ns)) => Some(Command::Expire { key, after_ns }),
                    Ok(None) => {
                        return self.one(Shape::Value, Command::GetDelete { key });
                    }
                    // Redis looks for the key first.
                    Err(text) => {
                        let shape = Shape::ErrorIfPresent(text);
                        return self.one(shape, Command::TimeToLive { key });
                    }
                }
            }
        };
        let steps = std::iter::once(Command::Get { key }).chain(change);
        let before = self.operations.steps.len();
        self.operations.steps.extend(steps.map(Step::Command));
        let operations = self.operations.steps.len() - before;
        let shape = Shape::ValueFirst;
        self.items.push(Item { shape, operations });
        Ok(())
    }

    /// EXPIRE and its relatives.
    pub(crate) fn expire(&mut self, asked: &Asked<'_, 'a>, unit: Unit) -> Planned {
        let condition = expire_condition(asked.behind(3))?;
        let key = asked.key();
        let after_ns = Expiry::read(unit, asked.part(2))?.of_expire(asked.unix_ms, asked.name)?;
        let command = match (condition, after_ns) {
            // The same moment of Unix time comes out a little earlier or later each time, because it is measured by the
            // clock of this replica and then by that of the leader. So the condition has to hold by more than that.
            (Some(condition), Some(after_ns))
                if compares(condition) && unit.doubt_ns().is_some() =>
            {
                Command::ExpireIfBeyond {
                    key,
                    after_ns,
                    condition,
                    margin_ns: unit.doubt_ns().unwrap_or(0),
                }
            }
            (Some(condition), after_ns) => Command::ExpireIf {
                key,
                after_ns: after_ns.unwrap_or(0),
                condition,
            },
            (None, Some(after_ns)) => Command::Expire { key, after_ns },
            (None, None) => Command::Delete { key },
        };
        self.one(Shape::Changed, command)
    }
}

/// Whether the condition compares the new moment with the present one.
fn compares(condition: ExpireCondition) -> bool {
    !matches!(
        condition,
        ExpireCondition::Absent | ExpireCondition::Present
    )
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
