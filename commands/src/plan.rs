//! Requests about keys as operations of the store. Consecutive commands of a pipeline or a transaction become one list
//! of operations. A note for each command says how its answers make a reply.
//!
//! Invariant: the items together have as many operations as there are steps, in the same order.

use trine_kvstore::{Command, ExecuteMode, List, Pair};

use crate::errors::{Refusal, too_many};
use crate::limits::OPERATIONS_MAX;
use crate::shape::Shape;

/// A request for the store whose number of parts was checked.
pub(crate) struct Asked<'r, 'a> {
    /// The command's name, for errors.
    pub(crate) name: &'static str,
    /// The name and what stands behind it.
    pub(crate) parts: &'r [&'a [u8]],
    pub(crate) clock: Clock,
}

/// How a request that names a moment of Unix time is read.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Milliseconds of Unix time.
    pub unix_ms: i64,
    /// The request may come again, later, and gets the answer to the first copy then. So as many operations are made of it
    /// whether its moment is over or not.
    pub is_repeated: bool,
}

impl Clock {
    /// For a request that is read once.
    #[must_use]
    pub const fn at(unix_ms: i64) -> Self {
        Self {
            unix_ms,
            is_repeated: false,
        }
    }
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
            Shape::Compared(key) => key.capacity(),
            _ => 0,
        };
        size_of::<Self>() + reply
    }
}

/// One operation; the pairs of an MSET are stored separately.
#[derive(Clone, Debug)]
enum Step<'a> {
    Command(Command<'a>),
    /// Both or none of them. The store takes them as one command, which cannot stand beside others.
    Both(Box<[Command<'a>; 2]>),
    Pairs {
        from: usize,
        to: usize,
    },
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

    fn command<'p>(&'p self, step: &'p Step<'p>) -> Command<'p> {
        match step {
            Step::Command(command) => command.clone(),
            Step::Both(both) => Command::Execute {
                mode: ExecuteMode::AllOrNothing,
                conditions: List::default(),
                operations: List::from(&both[..]),
            },
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
        let noted: usize = self.items.iter().map(|item| item.operations).sum();
        assert_eq!(
            noted,
            self.operations.steps.len(),
            "each answer has its item"
        );
        (self.operations, self.items)
    }

    /// How many commands are planned.
    pub fn command_count(&self) -> usize {
        self.items.len()
    }

    /// How many operations of the store that takes.
    pub fn operation_count(&self) -> usize {
        self.operations.steps.len()
    }

    /// Whether nothing can be added: it has a command that the store takes alone.
    pub fn is_closed(&self) -> bool {
        matches!(self.operations.steps.last(), Some(Step::Both(_)))
    }

    /// Whether it changes nothing.
    pub(crate) fn only_reads(&self) -> bool {
        let commands = self.operations.commands();
        commands.iter().all(Command::is_read_only)
    }

    /// All keys go, and the item says how that is answered. The plan has to be empty: the store takes it alone.
    pub(crate) fn flush(&mut self, item: Item) {
        assert!(self.items.is_empty(), "the store takes it alone");
        self.operations.steps.push(Step::Command(Command::Flush));
        self.items.push(item);
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

    /// A command that puts pairs, as one operation.
    pub(crate) fn pairs(
        &mut self,
        shape: Shape,
        pairs: impl ExactSizeIterator<Item = Pair<'a>>,
    ) -> Planned {
        if pairs.len() > OPERATIONS_MAX {
            return Err(too_many("pairs"));
        }
        let from = self.operations.pairs.len();
        self.operations.pairs.extend(pairs);
        let to = self.operations.pairs.len();
        self.operations.steps.push(Step::Pairs { from, to });
        self.items.push(Item {
            shape,
            operations: 1,
        });
        Ok(())
    }

    /// A command of two operations, of which the second is done only if the first one is. The plan has to be empty, and
    /// is closed from here on.
    pub(crate) fn both(&mut self, shape: Shape, commands: [Command<'a>; 2]) -> Planned {
        assert!(self.items.is_empty(), "the store takes it alone");
        self.operations.steps.push(Step::Both(Box::new(commands)));
        self.items.push(Item {
            shape,
            operations: 1,
        });
        Ok(())
    }

    /// The last command does this, too; its reply does not show it.
    pub(crate) fn also(&mut self, command: Command<'a>) {
        let item = self.items.last_mut().expect("a command was planned");
        item.operations += 1;
        self.operations.steps.push(Step::Command(command));
    }
}
