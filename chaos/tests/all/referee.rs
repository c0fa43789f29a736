//! The linearizability checker against an independent one: stateright's tester, which shares no
//! line and no model with it. Registers of up to nine operations by three clients, half of them
//! executed truthfully and half with something wrong.

use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};
use trine_chaos::checker::{Verdict, linearizability};
use trine_chaos::history::{Action, Answer, History, OperationIndex};
use trine_transport::prng::{Prng, Ratio};

const HISTORIES: u64 = 2_000;
const CLIENTS: u64 = 3;
const EVENTS: u64 = 18;

/// One history, given to both checkers as it happens. Zero is the state in which the key is absent.
struct Telling {
    history: History,
    tester: LinearizabilityTester<u64, Register<u64>>,
    open: Vec<Option<(OperationIndex, RegisterOp<u64>)>>,
    value: u64,
    written: u64,
    now_ns: u64,
}

impl Telling {
    fn new() -> Self {
        Self {
            history: History::new(),
            tester: LinearizabilityTester::new(Register(0)),
            open: vec![None; CLIENTS as usize],
            value: 0,
            written: 0,
            now_ns: 0,
        }
    }

    fn call(&mut self, client: u64, write: bool) {
        let (operation, action) = if write {
            self.written += 1;
            let action = Action::Put {
                value: self.written.to_string().into_bytes(),
            };
            (RegisterOp::Write(self.written), action)
        } else {
            (RegisterOp::Read, Action::Get)
        };
        let index = self.history.call(client, self.now_ns, b"k", action);
        self.tester
            .on_invoke(client, operation.clone())
            .expect("one operation a client");
        self.open[client as usize] = Some((index, operation));
    }

    /// Ends the client's operation; a read is answered with `read`.
    fn answer(&mut self, client: u64, read: u64) {
        let Some((index, operation)) = self.open[client as usize].take() else {
            return;
        };
        let (returned, answer) = match operation {
            RegisterOp::Write(_) => (RegisterRet::WriteOk, Answer::Written { version: None }),
            RegisterOp::Read if read == 0 => (RegisterRet::ReadOk(0), Answer::NotFound),
            RegisterOp::Read => {
                let value = read.to_string().into_bytes();
                (
                    RegisterRet::ReadOk(read),
                    Answer::Value {
                        value,
                        version: None,
                    },
                )
            }
        };
        self.tester
            .on_return(client, returned)
            .expect("an operation was open");
        self.history.complete(index, self.now_ns, answer, None);
    }
}

/// Plays a random history; writes take effect immediately when they are called or when they return.
fn tell(prng: &mut Prng) -> Telling {
    let mut telling = Telling::new();
    let lying = prng.chance(Ratio::percent(50));
    for _ in 0..EVENTS {
        telling.now_ns += 10;
        let client = prng.below(CLIENTS);
        match telling.open[client as usize].clone() {
            None => telling.call(client, prng.chance(Ratio::percent(50))),
            Some((_, operation)) => {
                if let RegisterOp::Write(value) = operation {
                    telling.value = value;
                }
                let lie = lying && prng.chance(Ratio::percent(25));
                let read = if lie {
                    prng.below(telling.written + 1)
                } else {
                    telling.value
                };
                telling.answer(client, read);
            }
        }
    }
    telling
}

#[test]
fn both_checkers_agree_on_thousands_of_histories() {
    let (mut good, mut bad) = (0, 0);
    for seed in 0..HISTORIES {
        let telling = tell(&mut Prng::new(seed));
        let verdict = linearizability::check(&telling.history).verdict;
        let expected = telling.tester.is_consistent();
        let judged = match verdict {
            Verdict::Pass => true,
            Verdict::Violation(_) => false,
            Verdict::Undecided { reason } => panic!("seed {seed}: {reason}"),
        };
        assert_eq!(
            judged,
            expected,
            "seed {seed}:\n{}",
            telling.history.to_text()
        );
        *if expected { &mut good } else { &mut bad } += 1;
    }
    assert!(
        good >= 100 && bad >= 100,
        "the histories are of both kinds: {good} good, {bad} bad"
    );
}
