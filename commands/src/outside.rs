//! Commands of the table outside of a connection: a shell lists them, plans them and reads their answers with this.

use trine_kvstore::Response;

use crate::arguments;
use crate::errors::SYNTAX;
use crate::plan::{Clock, Item, Plan, in_one};
use crate::shape::Meaning;
use crate::table::{self, Action, Spec};

/// A command that the store does.
#[derive(Clone, Copy, Debug)]
pub struct StoreCommand {
    spec: &'static Spec,
    example: &'static str,
}

/// A request that can go to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The encoded command of the store.
    pub command: Vec<u8>,
    /// It changes nothing.
    pub read_only: bool,
    /// The key, if the command of the store has exactly one.
    pub key: Option<Vec<u8>>,
    /// How its answer is read.
    pub reading: Reading,
}

/// How the store's answer to a request is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading(Item);

/// Why a request cannot go to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Its parts are not those that the command takes.
    Form,
    /// For this reason.
    Because(String),
}

impl StoreCommand {
    /// All of them, by name.
    pub fn all() -> impl Iterator<Item = Self> {
        table::all().into_iter().filter_map(Self::of)
    }

    /// The command of that name, in whatever case it is written.
    #[must_use]
    pub fn find(name: &[u8]) -> Option<Self> {
        table::find(name).and_then(Self::of)
    }

    fn of(spec: &'static Spec) -> Option<Self> {
        match spec.action {
            Action::Store { example, .. } => Some(Self { spec, example }),
            Action::Local { .. } => None,
        }
    }

    /// The name, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.spec.name
    }

    /// What it does: a sentence.
    #[must_use]
    pub fn summary(self) -> &'static str {
        self.spec.summary
    }

    /// A whole request.
    #[must_use]
    pub fn example(self) -> &'static str {
        self.example
    }

    /// The arguments after the name, as `KEY VALUE [NX|XX]`.
    #[must_use]
    pub fn form(self) -> String {
        arguments::form(self.spec.arguments)
    }

    /// The request with these parts, of which the first is the name.
    ///
    /// # Errors
    /// When it is none that the store can do.
    pub fn request(self, parts: &[&[u8]], unix_ms: i64) -> Result<Request, Refused> {
        let planner = self.spec.planner().ok_or(Refused::Form)?;
        if !self.spec.takes(parts.len()) {
            return Err(Refused::Form);
        }
        let mut plan = Plan::default();
        planner(&mut plan, &self.spec.asked(parts, Clock::at(unix_ms))).map_err(|text| {
            let is_form = text == SYNTAX || text.starts_with("ERR wrong number of arguments");
            match (is_form, text.strip_prefix("ERR ")) {
                (true, _) => Refused::Form,
                (false, text_behind) => Refused::Because(text_behind.unwrap_or(&text).to_owned()),
            }
        })?;
        let (operations, mut items) = plan.split();
        let commands = operations.commands();
        let command = in_one(&commands);
        let mut bytes = Vec::with_capacity(command.encoded_len());
        command.encode(&mut bytes);
        let (read_only, key) = (command.is_read_only(), command.key().map(<[u8]>::to_vec));
        let item = items.pop().ok_or(Refused::Form)?;
        Ok(Request {
            command: bytes,
            read_only,
            key,
            reading: Reading(item),
        })
    }
}

impl Reading {
    /// Hands `tell` what the answer says.
    pub fn read<T>(&self, response: &Response<'_>, tell: impl FnOnce(Meaning<'_>) -> T) -> T {
        match (response, self.0.operations) {
            (Response::List(list), 2..) => {
                let answers: Vec<Response<'_>> = list.iter().collect();
                tell(self.0.shape.meaning(&answers))
            }
            (
                Response::Error(_)
                | Response::OtherError(_)
                | Response::Aborted { .. }
                | Response::Denied { .. },
                _,
            ) => tell(Meaning::Answer(response)),
            _ => tell(self.0.shape.meaning(std::slice::from_ref(response))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_kvstore::{Command, List, Position};

    fn request(line: &str) -> Result<Request, Refused> {
        let parts: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let command = StoreCommand::find(parts[0]).expect("a command");
        command.request(&parts, 0)
    }

    #[test]
    fn every_example_is_a_request() {
        for command in StoreCommand::all() {
            let example = command.example();
            assert!(
                example.split(' ').next() == Some(command.name()),
                "{example}"
            );
            let asked = request(example).unwrap_or_else(|why| panic!("{example}: {why:?}"));
            let decoded = Command::decode(&asked.command).expect("it is encoded");
            let reads = command.spec.flags.contains(&"readonly");
            assert_eq!(asked.read_only, reads, "{example}");
            let mut keys = 0;
            let count = |_: &[u8], _| {
                keys += 1;
                Ok::<(), ()>(())
            };
            assert_eq!(decoded.each_key(count), Ok(()));
            assert_eq!(keys == 0, command.spec.keys == [0; 3], "{example}");
        }
    }

    #[test]
    fn the_form_is_made_from_the_documented_arguments() {
        let form = |name: &str| StoreCommand::find(name.as_bytes()).map(StoreCommand::form);
        let is = |name, text: &str| assert_eq!(form(name).as_deref(), Some(text));
        is("dbsize", "");
        is("get", "KEY");
        is("del", "KEY...");
        is("mset", "KEY VALUE [KEY VALUE]...");
        is(
            "set",
            "KEY VALUE [NX|XX] [GET] [EX SECONDS|PX MILLISECONDS|EXAT UNIX-TIME-SECONDS|\
             PXAT UNIX-TIME-MILLISECONDS|KEEPTTL]",
        );
        assert!(form("ping").is_none(), "the connection does it");
    }

    #[test]
    fn refusals_say_whether_the_form_is_wrong() {
        for line in ["get", "get a b", "set a b nx xx", "mset a 1 b"] {
            assert_eq!(request(line), Err(Refused::Form), "{line}");
        }
        let why = "value is not an integer or out of range".to_owned();
        assert_eq!(request("expire k soon"), Err(Refused::Because(why)));
    }

    #[test]
    fn an_answer_is_told_as_it_is_or_as_a_reply() {
        let told = |line: &str, response: Response<'_>| {
            let asked = request(line).expect("a request");
            asked
                .reading
                .read(&response, |meaning| format!("{meaning:?}"))
        };
        let version = Position::from_u64(7);
        let value = Response::Value {
            value: b"four",
            version,
        };
        assert_eq!(told("strlen k", value.clone()), "Number(4)");
        assert!(told("get k", value.clone()).starts_with("Answer(Value"));
        let one = Response::TimeToLive { remaining_ns: None };
        let answers = [one.clone(), Response::NotFound];
        let list = Response::List(List::from(&answers));
        assert_eq!(told("exists a b", list.clone()), "Number(1)");
        assert_eq!(told("pttl k", Response::NotFound), "Number(-2)");
        assert_eq!(told("type k", one), "Text(\"string\")");
        let first = told("getex k ex 3", Response::List(List::from(&[value])));
        assert!(first.starts_with("Answer(Value"), "{first}");
        assert!(told("mget a b", list).starts_with("Each([TimeToLive"));
        assert!(told("mget a", Response::NotFound).starts_with("Each([NotFound"));
    }
}
