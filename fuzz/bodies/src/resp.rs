//! The Redis protocol: a client's bytes.

use std::cell::RefCell;

use redis_protocol::{resp2, resp3};
use trine_kvstore::{Command, Limits as StoreLimits, Position, Response, Store};
use trine_resp::{
    Broker, Call, Classes, Clients, Connection, Environment, Failure, KeyChange, Limits, NotKnown,
    OnBehalf, Parser, Progress, Submit, Told,
};

const LIMITS: Limits = Limits {
    query_bytes: 20_000,
    ahead_bytes: 2_000,
    part_bytes: 5_000,
    pipeline_commands: 8,
    transaction_commands: 8,
    output_bytes: 10_000,
};

/// The longest input that is worth running.
const INPUT_BYTES_MAX: usize = 16 * 1024;

/// Requests come out alike whether their bytes come whole or in pieces, and strings as the crate reads them.
pub fn requests(bytes: &[u8]) {
    let mut bytes = &bytes[..bytes.len().min(INPUT_BYTES_MAX)];
    for _ in 0..64 {
        let (mut whole, mut pieces) = (Parser::default(), Parser::default());
        let once = whole.advance(bytes, &LIMITS, true);
        let mut last = Ok(Progress::Incomplete);
        for come in (0..=bytes.len())
            .step_by(1 + bytes.len() / 16)
            .chain([bytes.len()])
        {
            last = pieces.advance(&bytes[..come], &LIMITS, true);
            if last != Ok(Progress::Incomplete) {
                break;
            }
        }
        // A broken end may be hidden behind a complete request; the first one counts.
        assert_eq!(once, last);
        let Ok(Progress::Complete { length }) = once else {
            return;
        };
        assert!((1..=bytes.len()).contains(&length));
        let (request, rest) = bytes.split_at(length);
        assert!(whole.parts(request).eq(pieces.parts(request)));
        if request.starts_with(b"*") {
            as_the_crate_reads(&whole, request);
        }
        bytes = rest;
    }
}

fn as_the_crate_reads(parser: &Parser, request: &[u8]) {
    use resp2::types::OwnedFrame;
    // It reads some forms that Redis and this parser read differently (null, no parts at all).
    if let Ok(Some((OwnedFrame::Array(frames), _))) = resp2::decode::decode(request) {
        let theirs: Option<Vec<&[u8]>> = frames
            .iter()
            .map(|frame| match frame {
                OwnedFrame::BulkString(bytes) => Some(bytes.as_slice()),
                _ => None,
            })
            .collect();
        let ours: Vec<&[u8]> = parser.parts(request).collect();
        assert_eq!(Some(ours), theirs);
    }
}

struct Host;

impl Told for Host {
    fn info(&self, _sections: &[&[u8]], _has_prefix: bool) -> String {
        "# Server\r\n".to_owned()
    }
    fn others(&self, _: &dyn Fn(&Connection) -> bool) -> String {
        String::new()
    }
    fn is_there(&self, id: u64, _user: &str) -> bool {
        id == OTHER
    }
    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![("save", String::new())]
    }
}

/// Keeps a call, or refuses it.
struct Calls {
    waiting: Option<Vec<u8>>,
    refuse: bool,
}

impl Submit for Calls {
    fn submit(&mut self, call: &Call<'_>) -> Result<(), Failure> {
        assert_eq!(
            call.read_only,
            call.command.is_read_only() && call.numbered.is_none()
        );
        if self.refuse {
            return Err(Failure::NotApplied("refused".to_owned()));
        }
        assert!(self.waiting.is_none(), "one call at a time");
        let mut bytes = Vec::new();
        call.command.encode(&mut bytes);
        self.waiting = Some(bytes);
        Ok(())
    }

    fn open_session(&mut self, _for_user: Option<OnBehalf>) -> Result<u64, Failure> {
        if self.refuse {
            return Err(Failure::NotApplied("refused".to_owned()));
        }
        assert!(self.waiting.is_none(), "one call at a time");
        self.waiting = Some(Vec::new());
        Ok(1)
    }

    fn authenticate(&mut self, _user: &[u8], _secret: &[u8]) -> Result<(), NotKnown> {
        Err(NotKnown::Wrong)
    }
}

/// The number of the connection, and of another one that is told of keys instead.
const ONE: u64 = 1;
const OTHER: u64 = 2;

/// Both connections.
struct Two<'a>(&'a mut Connection, &'a mut Connection);

impl Clients for Two<'_> {
    fn with(&mut self, client: u64, tell: &mut dyn FnMut(&mut Connection)) {
        match client {
            ONE => tell(self.0),
            OTHER => tell(self.1),
            other => panic!("there is no connection {other}"),
        }
    }
}

/// Tells the changes behind a position, and loses the stream now and then.
fn tell_changes(store: &Store, told: &mut Position, broker: &RefCell<Broker>, two: &mut Two<'_>) {
    let mut broker = broker.borrow_mut();
    let history = store.history().expect("it is kept");
    for event in history.after(*told).expect("all are there") {
        *told = event.position;
        let change = KeyChange {
            position: event.position,
            command: Some(event.command),
            change: event.change,
        };
        broker.on_change(&change, two);
    }
    broker.on_changes_end(two);
    if told.index() % 5 == 4 {
        broker.on_lost(two);
        broker.on_begin(two);
    }
}

/// The first byte says into what pieces the rest is cut and how calls end; the rest is a client's bytes. Changes are told
/// between the calls. Memory stays within the limits, and what is sent is whole.
pub fn connection(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else {
        return;
    };
    let bytes = &bytes[..bytes.len().min(INPUT_BYTES_MAX)];
    let password = (how & 1 != 0).then_some(b"p".as_slice());
    let piece = 1 + usize::from(how >> 4) * 37;
    let mut store = Store::new(StoreLimits::default(), [1, 2]);
    store.keep_history(1 << 20, Position::ZERO);
    let mut connection = Connection::new(ONE, "fuzz".to_owned(), password.is_some(), 0);
    let mut other = Connection::new(OTHER, "fuzz".to_owned(), false, 0);
    let broker = RefCell::new(Broker::new(Classes::parse(b"KEA").expect("letters")));
    let mut told = Position::ZERO;
    broker
        .borrow_mut()
        .on_begin(&mut Two(&mut connection, &mut other));
    let (mut replies, mut index) = (Vec::new(), 0);
    let mut pieces = bytes.chunks(piece);
    for _ in 0..4 * INPUT_BYTES_MAX {
        if connection.wants_bytes(&LIMITS) {
            match pieces.next() {
                Some(piece) => connection.on_bytes(piece),
                None => connection.on_end(),
            }
        }
        let mut calls = Calls {
            waiting: None,
            refuse: how & 2 != 0,
        };
        let environment = Environment {
            limits: &LIMITS,
            password,
            requires_auth: password.is_some(),
            unix_ms: 1_000_000,
            host: &Host,
            broker: &broker,
        };
        connection.advance(&environment, &mut calls);
        assert_eq!(connection.is_waiting(), calls.waiting.is_some());
        if let Some(call) = calls.waiting {
            index += 1;
            if how & 4 != 0 {
                tell_changes(
                    &store,
                    &mut told,
                    &broker,
                    &mut Two(&mut connection, &mut other),
                );
            }
            answer(&mut connection, &mut store, index, &call, how & 12 == 12);
            let two = &mut Two(&mut connection, &mut other);
            broker
                .borrow_mut()
                .on_answer(ONE, Position::new(index, 0), two);
            tell_changes(&store, &mut told, &broker, two);
        }
        replies.extend_from_slice(connection.output());
        connection.on_written(connection.output().len());
        if connection.is_over() {
            break;
        }
    }
    assert!(connection.is_over(), "a client that has ended is done with");
    are_replies(&replies);
    connection.leave(&mut broker.borrow_mut());
    assert!(
        !broker.borrow().needs_stream(),
        "nothing is left of a client"
    );
}

/// Ends a call: with the store's answer, or without one.
fn answer(connection: &mut Connection, store: &mut Store, index: u64, call: &[u8], is_lost: bool) {
    let at = Position::new(index, 0);
    if call.is_empty() {
        // A session.
        return connection.on_answer(at, Ok(Response::Done));
    }
    let command = Command::decode(call).expect("calls are commands");
    let result = match is_lost {
        true => Err(Failure::Unknown("lost".to_owned())),
        false => Ok(store.apply(at, &command)),
    };
    connection.on_answer(at, result);
}

/// Nothing but whole frames, in one of the two protocols at a time.
fn are_replies(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let length = match resp2::decode::decode(bytes) {
            Ok(Some((_, length))) => length,
            _ => match resp3::decode::complete::decode(bytes) {
                Ok(Some((_, length))) => length,
                other => panic!("no reply: {other:?} {:?}", String::from_utf8_lossy(bytes)),
            },
        };
        bytes = &bytes[length..];
    }
}
