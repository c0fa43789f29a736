//! Connections against a store in the same process: what a client sends and what it reads back.

mod as_redis;
mod bounds;
mod keyspace;
mod once;
mod users;

use std::cell::RefCell;

use proptest::prelude::*;
use trine_commands::once::Token;
use trine_kvstore::{Limits as StoreLimits, Store};

use super::*;

struct Host;

impl Told for Host {
    fn info(&self, _sections: &[&[u8]], _has_prefix: bool) -> String {
        "# Server\r\n".to_owned()
    }
    fn others(&self, _: &dyn Fn(&Connection) -> bool) -> String {
        String::new()
    }
    fn is_there(&self, id: u64, user: &str) -> bool {
        id == 8 && user == "default"
    }
    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![("save", String::new())]
    }
}

/// The calls of a connection that are not answered yet, encoded.
#[derive(Default)]
struct Calls {
    sent: Vec<Vec<u8>>,
    /// For whom the last call is.
    for_user: Option<OnBehalf>,
    /// In which session the last call is.
    numbered: Option<Numbered>,
    /// A session is asked for.
    is_opening: bool,
    /// A user and a secret that were given.
    asked: Option<(Vec<u8>, Vec<u8>)>,
}

impl Submit for Calls {
    fn submit(&mut self, call: &Call<'_>) -> Result<(), Failure> {
        assert_eq!(
            call.read_only,
            call.command.is_read_only() && call.numbered.is_none()
        );
        let mut bytes = Vec::new();
        call.command.encode(&mut bytes);
        self.sent.push(bytes);
        self.for_user = call.for_user;
        self.numbered = call.numbered;
        Ok(())
    }
    fn open_session(&mut self, for_user: Option<OnBehalf>) -> Result<u64, Failure> {
        self.for_user = for_user;
        self.is_opening = true;
        Ok(Token::number_of(RANDOM, for_user.is_some()))
    }
    fn authenticate(&mut self, user: &[u8], secret: &[u8]) -> Result<(), NotKnown> {
        if secret == b"wrong" || user == b"other" {
            return Err(NotKnown::Wrong);
        }
        self.asked = Some((user.to_vec(), secret.to_vec()));
        Ok(())
    }
}

/// What sessions are numbered with.
const RANDOM: u64 = 0xabcd;

/// A client, its connection and a store.
struct Bench {
    store: RefCell<Store>,
    applied: u64,
    connection: Connection,
    broker: RefCell<Broker>,
    limits: Limits,
    password: Option<&'static [u8]>,
    requires_auth: bool,
    unix_ms: i64,
    /// For whom the last call was.
    for_user: Option<OnBehalf>,
    /// In which session it was.
    numbered: Option<Numbered>,
    /// Calls that the store was given.
    calls: usize,
}

impl Bench {
    fn new() -> Self {
        Self::with(Limits::default(), None)
    }

    fn with(limits: Limits, password: Option<&'static [u8]>) -> Self {
        Self {
            store: RefCell::new(Store::new(StoreLimits::default(), [1, 2])),
            applied: 0,
            connection: Connection::new(7, "127.0.0.1:5".into(), password.is_some(), 0),
            broker: RefCell::new(Broker::new(Classes::default())),
            limits,
            password,
            requires_auth: password.is_some(),
            unix_ms: 0,
            for_user: None,
            numbered: None,
            calls: 0,
        }
    }

    fn advance(&mut self) -> Vec<Vec<u8>> {
        let mut calls = Calls::default();
        let environment = Environment {
            limits: &self.limits,
            password: self.password,
            requires_auth: self.requires_auth,
            unix_ms: self.unix_ms,
            host: &Host,
            broker: &self.broker,
        };
        self.connection.advance(&environment, &mut calls);
        assert!(calls.sent.len() <= 1, "one call of a connection at a time");
        self.calls += calls.sent.len();
        if !calls.sent.is_empty() {
            self.for_user = calls.for_user;
            self.numbered = calls.numbered;
        }
        if calls.is_opening {
            self.for_user = calls.for_user;
            self.applied += 1;
            let client = Position::new(self.applied, 0);
            self.connection.on_answer(client, Ok(Response::Done));
            return self.advance();
        }
        if let Some((user, secret)) = calls.asked {
            self.connection.on_known(match secret.as_slice() {
                b"away" => Err(NotKnown::Unavailable(Failure::NotApplied("alone".into()))),
                b"busy" => Err(NotKnown::Busy),
                _ => Ok(Identity {
                    name: String::from_utf8_lossy(&user).into_owned(),
                    on_behalf: OnBehalf {
                        number: 3,
                        generation: 8,
                    },
                    prefix: if user == b"alice" {
                        b"a/".to_vec()
                    } else {
                        Vec::new()
                    },
                    administers: user == b"boss",
                }),
            });
            return self.advance();
        }
        calls.sent
    }

    fn answer(&mut self, call: &[u8]) {
        self.applied += 1;
        let command = Command::decode(call).expect("a command");
        let mut store = self.store.borrow_mut();
        let at = Position::new(self.applied, 0);
        let response = match command {
            Command::Walk { .. } => store.read(&command),
            _ => store.apply(at, &command),
        };
        self.connection.on_answer(at, Ok(response));
    }

    fn take_output(&mut self) -> String {
        let output = String::from_utf8_lossy(self.connection.output()).into_owned();
        self.connection.on_written(output.len());
        output
    }

    /// Sends `bytes` and answers everything.
    fn send(&mut self, bytes: &[u8]) -> String {
        self.connection.on_bytes(bytes);
        let mut output = String::new();
        loop {
            let calls = self.advance();
            output += &self.take_output();
            match calls.first() {
                Some(call) => self.answer(call),
                None => return output,
            }
        }
    }

    #[track_caller]
    fn says(&mut self, request: &str, reply: &str) {
        let got = self.send(format!("{request}\r\n").as_bytes());
        assert_eq!(got, reply, "{request}");
    }
}

const EXECABORT: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";

#[test]
fn strings_answer_as_documented() {
    let mut bench = Bench::new();
    for (request, reply) in [
        ("GET a", "$-1\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("SET a 2 NX", "$-1\r\n"),
        ("SET a 2 XX GET", "$1\r\n1\r\n"),
        ("SET b 2 XX", "$-1\r\n"),
        ("INCR a", ":3\r\n"),
        ("INCRBY a -5", ":-2\r\n"),
        ("DECR n", ":-1\r\n"),
        ("APPEND s abc", ":3\r\n"),
        ("STRLEN s", ":3\r\n"),
        ("STRLEN none", ":0\r\n"),
        ("INCR s", "-ERR value is not an integer or out of range\r\n"),
        ("GETSET s x", "$3\r\nabc\r\n"),
        ("SETNX s y", ":0\r\n"),
        ("SETNX t y", ":1\r\n"),
        ("MSET p 1 q 2", "+OK\r\n"),
        ("MGET p q none", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$-1\r\n"),
        ("EXISTS p p q none", ":3\r\n"),
        ("TYPE p", "+string\r\n"),
        ("TYPE none", "+none\r\n"),
        ("DEL p q none", ":2\r\n"),
        ("GETDEL s", "$1\r\nx\r\n"),
        ("DBSIZE", ":3\r\n"),
        ("TTL none", ":-2\r\n"),
        ("TTL a", ":-1\r\n"),
        ("EXPIRE a 100", ":1\r\n"),
        ("TTL a", ":100\r\n"),
        ("PTTL a", ":100000\r\n"),
        ("PERSIST a", ":1\r\n"),
        ("PERSIST a", ":0\r\n"),
        ("GETEX a PX 1500", "$2\r\n-2\r\n"),
        ("TTL a", ":2\r\n"),
        ("GETEX a PERSIST", "$2\r\n-2\r\n"),
        ("TTL a", ":-1\r\n"),
        ("GETEX none EX 0", "$-1\r\n"),
        (
            "GETEX a EX 0",
            "-ERR invalid expire time in 'getex' command\r\n",
        ),
        ("EXPIRE a 0", ":1\r\n"),
        ("EXPIRE a 10", ":0\r\n"),
        (
            "GET",
            "-ERR wrong number of arguments for 'get' command\r\n",
        ),
        (
            "NOPE x y",
            "-ERR unknown command 'NOPE', with args beginning with: 'x' 'y' \r\n",
        ),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        ("ECHO hi", "$2\r\nhi\r\n"),
        ("PING", "+PONG\r\n"),
        (
            "PING a b",
            "-ERR wrong number of arguments for 'ping' command\r\n",
        ),
        ("CLIENT ID", ":7\r\n"),
        ("CLIENT SETNAME me", "+OK\r\n"),
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        (
            "CLIENT NOPE",
            "-ERR unknown subcommand 'NOPE'. Try CLIENT HELP.\r\n",
        ),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
    ] {
        bench.says(request, reply);
    }
}

#[test]
fn a_pipeline_keeps_its_order_and_goes_to_the_store_as_one() {
    let mut bench = Bench::new();
    let replies = bench.send(b"SET a 1\r\nPING\r\n");
    assert_eq!(replies, "+OK\r\n+PONG\r\n");
    let array = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let mut text = format!("*{}\r\n", words.len());
        words
            .iter()
            .for_each(|word| text += &format!("${}\r\n{word}\r\n", word.len()));
        text
    };
    bench.calls = 0;
    let pipeline: String = [
        "INCR a",
        "GET a",
        "GET",
        "DEL a b",
        "MSET x 1 y 2",
        "MGET x y",
    ]
    .map(array)
    .concat();
    let replies = bench.send(pipeline.as_bytes());
    assert_eq!(
        replies,
        ":2\r\n$1\r\n2\r\n-ERR wrong number of arguments for 'get' command\r\n:1\r\n+OK\r\n\
         *2\r\n$1\r\n1\r\n$1\r\n2\r\n"
    );
    assert_eq!(bench.calls, 1);
}

#[test]
fn what_is_too_large_together_goes_one_by_one() {
    let mut bench = Bench::new();
    let value = "v".repeat(1 << 20);
    for key in ["a", "b", "c", "d", "e"] {
        let request = format!(
            "*3\r\n$3\r\nSET\r\n$1\r\n{key}\r\n${}\r\n{value}\r\n",
            value.len()
        );
        assert_eq!(bench.send(request.as_bytes()), "+OK\r\n");
    }
    bench.limits.output_bytes = 64 << 20;
    let gets: String = ["a", "b", "c", "d", "e"]
        .map(|key| format!("*2\r\n$3\r\nGET\r\n$1\r\n{key}\r\n"))
        .concat();
    let replies = bench.send(gets.as_bytes());
    assert_eq!(replies.matches("$1048576\r\n").count(), 5);
    assert_eq!(replies.len(), 5 * (value.len() + 12));
    bench.says(
        "MGET a b c d e",
        "-ERR the answer would be too large: ask for fewer keys\r\n",
    );
}

#[test]
fn transactions_are_one_command_and_watched_keys_are_conditions() {
    let mut bench = Bench::new();
    bench.says("MULTI", "+OK\r\n");
    bench.says("MULTI", "-ERR MULTI calls can not be nested\r\n");
    bench.says("SET a x", "+QUEUED\r\n");
    bench.says("INCR a", "+QUEUED\r\n");
    bench.says("PING", "+QUEUED\r\n");
    bench.says("WATCH a", "-ERR WATCH inside MULTI is not allowed\r\n");
    bench.says("GET a", "+QUEUED\r\n");
    bench.says(
        "EXEC",
        "*4\r\n+OK\r\n-ERR value is not an integer or out of range\r\n+PONG\r\n$1\r\nx\r\n",
    );
    bench.says("EXEC", "-ERR EXEC without MULTI\r\n");
    bench.says("DISCARD", "-ERR DISCARD without MULTI\r\n");
    bench.says("MULTI", "+OK\r\n");
    bench.says(
        "NOPE",
        "-ERR unknown command 'NOPE', with args beginning with: \r\n",
    );
    bench.says("SET a 1", "+QUEUED\r\n");
    bench.says("EXEC", EXECABORT);
    bench.says("MULTI", "+OK\r\n");
    bench.says("EXEC", "*0\r\n");

    // Untouched keys let the transaction through; a changed, a deleted and a new one do not.
    for (change, passes) in [
        ("PING", true),
        ("SET a 2", false),
        ("DEL a", false),
        ("SET b 1", false),
    ] {
        bench.says("DEL b", &bench_deleted(&bench, "b"));
        bench.says("SET a 1", "+OK\r\n");
        bench.says("WATCH a b", "+OK\r\n");
        let _ = bench.send(format!("{change}\r\n").as_bytes());
        bench.says("MULTI", "+OK\r\n");
        bench.says("INCR c", "+QUEUED\r\n");
        let reply = bench.send(b"EXEC\r\n");
        assert_eq!(reply != "*-1\r\n", passes, "{change}: {reply}");
    }
    // A DISCARD out of place keeps what is watched.
    bench.says("WATCH a", "+OK\r\n");
    bench.says("DISCARD", "-ERR DISCARD without MULTI\r\n");
    bench.says("SET a 7", "+OK\r\n");
    bench.says("MULTI", "+OK\r\n");
    bench.says("GET a", "+QUEUED\r\n");
    bench.says("EXEC", "*-1\r\n");
    // Created and deleted in between: it is absent as before.
    bench.says("WATCH z", "+OK\r\n");
    bench.says("SET z 1", "+OK\r\n");
    bench.says("DEL z", ":1\r\n");
    bench.says("MULTI", "+OK\r\n");
    bench.says("GET z", "+QUEUED\r\n");
    bench.says("EXEC", "*1\r\n$-1\r\n");
    bench.says("WATCH a", "+OK\r\n");
    bench.says("SET a 9", "+OK\r\n");
    bench.says("UNWATCH", "+OK\r\n");
    bench.says("MULTI", "+OK\r\n");
    bench.says("GET a", "+QUEUED\r\n");
    bench.says("EXEC", "*1\r\n$1\r\n9\r\n");
}

/// No leader was there when a client watched, and one was when it executed. Both requests were in one pipeline, so the
/// client could not look at the first reply before the second request. The write used to be done under no condition at
/// all.
#[test]
fn a_transaction_behind_a_watch_that_failed_is_not_done() {
    let mut bench = Bench::new();
    bench
        .connection
        .on_bytes(b"WATCH a\r\nMULTI\r\nSET a 1\r\nEXEC\r\n");
    assert_eq!(bench.advance().len(), 1);
    let nobody = Failure::NotApplied("nobody leads".to_owned());
    bench.connection.on_answer(Position::ZERO, Err(nobody));
    let replies = bench.send(b"");
    let failed = "-CLUSTERDOWN nothing was read: nobody leads\r\n";
    assert_eq!(replies, format!("{failed}+OK\r\n+QUEUED\r\n{EXECABORT}"));
    // It ends with that transaction, as with an UNWATCH.
    bench.says("MULTI", "+OK\r\n");
    bench.says("SET a 2", "+QUEUED\r\n");
    bench.says("EXEC", "*1\r\n+OK\r\n");
}

/// A client that watches and never executes: the keys were kept without a bound.
#[test]
fn watched_keys_are_bounded() {
    let limits = Limits {
        transaction_commands: 3,
        query_bytes: 1_000,
        ..Limits::default()
    };
    let mut bench = Bench::with(limits, None);
    bench.says("WATCH a b", "+OK\r\n");
    bench.says("WATCH b c a", "+OK\r\n");
    bench.says("WATCH d", "-ERR too many watched keys\r\n");
    bench.says("MULTI", "+OK\r\n");
    bench.says("EXEC", EXECABORT);
    let long = "l".repeat(600);
    bench.says(&format!("WATCH {long}"), "+OK\r\n");
    bench.says(&format!("WATCH {long}2"), "-ERR too many watched keys\r\n");
    bench.says("UNWATCH", "+OK\r\n");
    bench.says(&format!("WATCH {long}2"), "+OK\r\n");
}

fn bench_deleted(bench: &Bench, key: &str) -> String {
    let there = bench.store.borrow().get(key.as_bytes()).is_some();
    format!(":{}\r\n", u8::from(there))
}

#[test]
fn strangers_are_asked_for_the_password() {
    let mut bench = Bench::with(Limits::default(), Some(b"secret"));
    bench.says("GET a", "-NOAUTH Authentication required.\r\n");
    bench.says("PING", "-NOAUTH Authentication required.\r\n");
    assert!(
        bench
            .send(b"HELLO 3\r\n")
            .starts_with("-NOAUTH HELLO must be called")
    );
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    bench.says("AUTH secre", wrong);
    bench.says("AUTH secrets", wrong);
    bench.says("AUTH other secret", wrong);
    assert!(
        bench
            .send(b"HELLO 3 AUTH default secret SETNAME me\r\n")
            .starts_with("%7\r\n")
    );
    bench.says("GET a", "_\r\n");
    bench.says("RESET", "+RESET\r\n");
    bench.says("GET a", "-NOAUTH Authentication required.\r\n");
    bench.says("AUTH secret", "+OK\r\n");
    bench.says("GET a", "$-1\r\n");
    let mut open = Bench::new();
    assert!(
        open.send(b"AUTH x\r\n")
            .starts_with("-ERR AUTH <password> called without any password")
    );
    assert!(open.send(b"HELLO 4\r\n").starts_with("-NOPROTO"));
}

#[test]
fn a_call_without_an_answer_says_whether_it_can_have_been_applied() {
    for (request, failure, reply) in [
        (
            "INCR a",
            Failure::NotApplied("no replica leads".into()),
            "-CLUSTERDOWN not applied: no replica leads\r\n",
        ),
        (
            "INCR a",
            Failure::Unknown("gone".into()),
            "-UNKNOWNOUTCOME the command may have been applied, once: gone\r\n",
        ),
        (
            "GET a",
            Failure::Unknown("gone".into()),
            "-CLUSTERDOWN nothing was read: gone\r\n",
        ),
        (
            "APPEND a b",
            Failure::TooLarge,
            "-ERR the command is larger than the group takes\r\n",
        ),
    ] {
        let mut bench = Bench::new();
        bench
            .connection
            .on_bytes(format!("{request}\r\nPING\r\n").as_bytes());
        assert_eq!(bench.advance().len(), 1);
        bench.connection.on_answer(Position::ZERO, Err(failure));
        assert!(bench.advance().is_empty());
        assert_eq!(bench.take_output(), format!("{reply}+PONG\r\n"));
    }
}

#[test]
fn broken_requests_are_answered_behind_the_others_and_end_the_connection() {
    let mut bench = Bench::new();
    let replies = bench.send(b"*1\r\n$6\r\nDBSIZE\r\n*1\r\n!4\r\nPING\r\nPING\r\n");
    assert_eq!(
        replies,
        ":0\r\n-ERR Protocol error: expected '$', got '!'\r\n"
    );
    assert!(bench.connection.is_over() && bench.connection.is_broken());
    let mut bench = Bench::new();
    assert_eq!(bench.send(b"QUIT\r\nPING\r\n"), "+OK\r\n");
    assert!(bench.connection.is_over() && !bench.connection.is_broken());
}

#[test]
fn the_memory_of_a_connection_is_bounded() {
    let limits = Limits {
        query_bytes: 10_000,
        ahead_bytes: 1_000,
        output_bytes: 100,
        ..Limits::default()
    };
    // A request that never ends.
    let mut bench = Bench::with(limits, None);
    let replies = bench.send(&[b"*1\r\n$20000\r\n".as_slice(), &[b'x'; 10_000]].concat());
    assert_eq!(
        replies,
        "-ERR Protocol error: request beyond 10000 bytes\r\n"
    );
    assert!(bench.connection.is_over());
    // Requests behind one that waits stay with the sender.
    let mut bench = Bench::with(limits, None);
    bench
        .connection
        .on_bytes(b"*2\r\n$4\r\nINCR\r\n$1\r\na\r\n");
    let calls = bench.advance();
    assert!(bench.connection.wants_bytes(&limits));
    bench.connection.on_bytes(&b"PING\r\n".repeat(200));
    assert!(!bench.connection.wants_bytes(&limits));
    bench.answer(&calls[0]);
    // The client does not read: after some replies no more requests are taken. All are taken once it reads.
    assert!(bench.advance().is_empty());
    assert!(bench.connection.output().len() < 200);
    let mut replies = String::new();
    while !bench.connection.output().is_empty() {
        replies += &bench.take_output();
        assert!(bench.advance().is_empty());
    }
    assert_eq!(replies, ":1\r\n".to_owned() + &"+PONG\r\n".repeat(200));
    assert!(bench.connection.wants_bytes(&limits));
}

#[test]
fn a_client_that_sends_no_more_still_gets_its_answers() {
    let mut bench = Bench::new();
    bench
        .connection
        .on_bytes(b"*2\r\n$4\r\nINCR\r\n$1\r\na\r\n*2\r\n$4\r\nIN");
    let calls = bench.advance();
    bench.connection.on_end();
    assert!(!bench.connection.is_over());
    bench.answer(&calls[0]);
    assert!(bench.advance().is_empty());
    assert_eq!(bench.take_output(), ":1\r\n");
    assert!(bench.connection.is_over());
}

#[test]
fn large_transactions_are_refused() {
    let limits = Limits {
        transaction_commands: 2,
        ..Limits::default()
    };
    let mut bench = Bench::with(limits, None);
    let replies = bench.send(b"MULTI\r\nGET a\r\nGET a\r\nGET a\r\nEXEC\r\nGET a\r\n");
    let refused = "-ERR the transaction is too large\r\n";
    assert_eq!(
        replies,
        format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n{refused}{EXECABORT}$-1\r\n")
    );
}

/// The fuzzer found replies in two protocols within one list. `HELLO` was done while `EXEC` put its list together. So
/// what had been written before it was RESP3, and the store's answers, which came later, were RESP2, those to commands
/// in front of it too. No client can read such a list, in whichever order its halves come (Redis sends one of that
/// kind).
#[test]
fn the_protocol_does_not_change_inside_a_transaction() {
    let mut bench = Bench::new();
    bench.send(b"HELLO 3\r\n");
    bench.send(b"MULTI\r\nINFO\r\nGET a\r\nHELLO 2 SETNAME me\r\nGET a\r\nHELLO 3\r\n");
    let replies = bench.send(b"EXEC\r\nGET a\r\n");
    let refused = "-ERR HELLO cannot change the protocol inside a transaction\r\n";
    let (text, rest) = replies.split_once("_\r\n").unwrap();
    assert!(
        text.starts_with("*5\r\n=") && text.ends_with("\r\n"),
        "{text}"
    );
    let rest = rest.strip_prefix(refused).unwrap();
    assert!(
        rest.starts_with("_\r\n%7\r\n") && rest.ends_with("*0\r\n_\r\n"),
        "{rest}"
    );

    let mut bench = Bench::new();
    assert_eq!(
        bench.send(b"MULTI\r\nHELLO 3\r\nGET a\r\nEXEC\r\nGET a\r\n"),
        format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n{refused}$-1\r\n$-1\r\n")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same requests give the same replies, however the network cuts them.
    #[test]
    fn pieces_do_not_matter(requests in prop::collection::vec((0_usize..16, 0_usize..3), 1..40), cuts in prop::collection::vec(1_usize..50, 1..40)) {
        const WORDS: [&str; 16] = ["GET", "INCR", "SET {} 5 XX", "APPEND {} 1", "DEL", "MULTI", "EXEC", "WATCH", "PING", "HELLO 3", "MGET {} a", "MSET {} 1 z 2", "TTL", "DBSIZE", "DISCARD", "EXPIRE {} 5"];
        let text: String = requests.iter().map(|(verb, key)| {
            let key = ["a", "b", "c"][*key];
            let word = WORDS[*verb];
            match word {
                "MULTI" | "EXEC" | "PING" | "HELLO 3" | "DBSIZE" | "DISCARD" => format!("{word}\r\n"),
                word if word.contains("{}") => format!("{}\r\n", word.replace("{}", key)),
                word => {
                    let parts = [word, key];
                    format!("*2\r\n${}\r\n{}\r\n${}\r\n{}\r\n", parts[0].len(), parts[0], parts[1].len(), parts[1])
                }
            }
        }).collect();
        let (mut whole, mut pieces) = (Bench::new(), Bench::new());
        let expected = whole.send(text.as_bytes());
        let (mut rest, mut got) = (text.as_bytes(), String::new());
        for cut in cuts.iter().cycle() {
            let (piece, behind) = rest.split_at((*cut).min(rest.len()));
            got += &pieces.send(piece);
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(got, expected);
    }
}

/// The replica says who lacks which right. Commands that were joined to one call are tried one by one then: only some of
/// them may be denied.
#[test]
fn a_denied_command_is_answered_in_the_words_of_redis() {
    let reason = "user alice may not touch key \"b\": its keys begin with \"a/\"";
    let denied = || Ok(Response::Denied { reason });
    let noperm = format!("-NOPERM {reason}\r\n");
    for request in ["GET b\r\n", "SET b 1\r\n", "MGET a/1 b\r\n", "WATCH b\r\n"] {
        let mut bench = Bench::new();
        bench.connection.on_bytes(request.as_bytes());
        assert_eq!(bench.advance().len(), 1, "{request}");
        bench.connection.on_answer(Position::ZERO, denied());
        assert_eq!(bench.take_output(), noperm, "{request}");
    }
    let mut bench = Bench::new();
    let both = b"*2\r\n$3\r\nGET\r\n$3\r\na/1\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n";
    bench.connection.on_bytes(both);
    assert_eq!(bench.advance().len(), 1, "both in one call");
    bench.connection.on_answer(Position::ZERO, denied());
    assert_eq!(bench.take_output(), "");
    assert_eq!(bench.advance().len(), 1);
    bench
        .connection
        .on_answer(Position::ZERO, Ok(Response::NotFound));
    assert_eq!(bench.advance().len(), 1);
    bench.connection.on_answer(Position::ZERO, denied());
    assert_eq!(bench.take_output(), format!("$-1\r\n{noperm}"));
    bench.connection.on_bytes(b"MULTI\r\nSET b 1\r\nEXEC\r\n");
    assert_eq!(bench.advance().len(), 1);
    bench.connection.on_answer(Position::ZERO, denied());
    let output = bench.take_output();
    assert!(output.ends_with(&noperm), "{output}");
}

/// A connection that waits for nothing is silent.
#[test]
fn answers_nobody_waits_for_are_ignored() {
    let mut bench = Bench::new();
    bench
        .connection
        .on_answer(Position::ZERO, Ok(Response::Done));
    assert!(bench.connection.output().is_empty());
}

/// A review found that lines of words cost time with the square of their number. Each was written over with the array
/// that it means, in front of all that was sent ahead, and so moved the whole rest of the input. 8 MiB of `PING` lines,
/// which need no password, kept the thread of all connections busy for minutes. Now no input is written over or moved
/// for a line: all sent bytes are unchanged while the end of a line is awaited.
#[test]
fn lines_sent_ahead_stay_as_they_were_sent() {
    let mut bench = Bench::new();
    let lines: String = (0..1_000)
        .map(|n| format!("SET key{n} value\r\n"))
        .collect();
    bench.connection.on_bytes(lines.as_bytes());
    for answered in 0..1_000 {
        let calls = bench.advance();
        assert_eq!(calls.len(), 1, "line {answered}");
        assert_eq!(bench.connection.input.bytes(), lines.as_bytes());
        bench.answer(&calls[0]);
        assert_eq!(bench.take_output(), "+OK\r\n");
    }

    let lines = "PING\r\n".repeat(1_000);
    let mut bench = Bench::with(
        Limits {
            output_bytes: 700,
            ..Limits::default()
        },
        None,
    );
    bench.connection.on_bytes(lines.as_bytes());
    bench.advance();
    assert!(bench.connection.is_clogged(&bench.limits));
    assert_eq!(bench.connection.input.bytes(), lines.as_bytes());
}

/// See above. A mebibyte of lines in a single read: each is answered, in its place.
#[test]
fn a_mebibyte_of_lines_is_answered_in_order() {
    let count = (1 << 20) / b"PING 000000\r\n".len();
    let mut bench = Bench::with(
        Limits {
            output_bytes: 4 << 20,
            ..Limits::default()
        },
        None,
    );
    let lines: String = (0..count).map(|n| format!("PING {n:06}\r\n")).collect();
    let replies: String = (0..count).map(|n| format!("$6\r\n{n:06}\r\n")).collect();
    assert!(bench.send(lines.as_bytes()) == replies);
}

#[test]
fn lines_and_arrays_take_turns() {
    let mut bench = Bench::new();
    let replies = bench.send(
        b"SET a 1\r\n*2\r\n$4\r\nINCR\r\n$1\r\na\r\n\r\nincr a\r\nnothing\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$1\r\na\r\n\
          get a\r\nEXEC\r\nget\r\nget \"a\"\r\n",
    );
    assert_eq!(
        replies,
        "+OK\r\n:2\r\n:3\r\n-ERR unknown command 'nothing', with args beginning with: \r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n\
         *2\r\n:4\r\n$1\r\n4\r\n-ERR wrong number of arguments for 'get' command\r\n$1\r\n4\r\n"
    );
}

/// Lines once became arrays, and the limits applied to the arrays. Now they apply to the lines.
#[test]
fn words_are_held_to_the_limits_of_parts() {
    let long = "a".repeat(16 * 1024 + 1);
    for (line, error) in [
        (
            "PING a b c d e f g h i j",
            "unauthenticated multibulk length",
        ),
        (long.as_str(), "unauthenticated bulk length"),
    ] {
        let mut bench = Bench::with(Limits::default(), Some(b"secret"));
        bench.says(line, &format!("-ERR Protocol error: {error}\r\n"));
        assert!(bench.connection.is_broken());
    }
    let mut bench = Bench::with(
        Limits {
            part_bytes: 3,
            ..Limits::default()
        },
        None,
    );
    bench.says("ECHO", "-ERR Protocol error: invalid bulk length\r\n");
    assert!(bench.connection.is_broken());
}

/// Errors of commands that need no store counted twice: when their reply was kept for EXEC's, and again when EXEC's was
/// written.
#[test]
fn an_error_in_a_transaction_counts_once() {
    let mut bench = Bench::new();
    bench.send(b"SET a x\r\nMULTI\r\nAUTH nothing\r\nINCR a\r\nPING\r\n");
    let replies = bench.send(b"EXEC\r\n");
    assert_eq!(replies.matches("\r\n-").count(), 2, "{replies}");
    assert_eq!(bench.connection.errors(), 2);
}

/// A review found that one connection could take all memory of a replica through MULTI. It asked for a name of 1 MiB
/// 4,096 times (a queue of 80 KB), and EXEC built 4 GiB of replies before it wrote one. The replies are bounded now as
/// the queue is. A transaction beyond the bound does nothing to the store, and names are short.
#[test]
fn replies_do_not_pile_up_in_a_transaction() {
    let limits = Limits {
        query_bytes: 100_000,
        ..Limits::default()
    };
    let name = "n".repeat(1024);
    for (asked, is_done) in [(90, true), (100, false)] {
        let mut bench = Bench::with(limits, None);
        bench.says(&format!("CLIENT SETNAME {name}"), "+OK\r\n");
        bench.says("MULTI", "+OK\r\n");
        bench.says("SET a 1", "+QUEUED\r\n");
        for _ in 0..asked {
            bench.says("CLIENT GETNAME", "+QUEUED\r\n");
        }
        let replies = match is_done {
            true => format!(
                "*91\r\n+OK\r\n{}",
                format!("$1024\r\n{name}\r\n").repeat(90)
            ),
            false => {
                "-EXECABORT Transaction discarded because its replies are too large.\r\n".into()
            }
        };
        bench.says("EXEC", &replies);
        bench.says("EXISTS a", if is_done { ":1\r\n" } else { ":0\r\n" });
    }
}

/// The other half of that finding: only the parts' bytes counted against the limit of a transaction. So 4,096 commands
/// of 65,535 empty keys each did not count at all, and took 6 GiB.
#[test]
fn empty_parts_of_a_transaction_count() {
    let mut bench = Bench::new();
    bench.says("MULTI", "+OK\r\n");
    let mget = format!("*60000\r\n$4\r\nMGET\r\n{}", "$0\r\n\r\n".repeat(59_999));
    let room = bench.limits.query_bytes / (60_000 * crate::limits::QUEUED_PART_CHARGE_BYTES);
    for _ in 0..room {
        assert_eq!(bench.send(mget.as_bytes()), "+QUEUED\r\n");
    }
    assert_eq!(
        bench.send(mget.as_bytes()),
        "-ERR the transaction is too large\r\n"
    );
    bench.says("EXEC", EXECABORT);
}

/// Names stay with the connection and are repeated whenever a client asks; they once had up to 1 MiB.
#[test]
fn names_are_short() {
    let (long, longest) = ("n".repeat(1025), "n".repeat(1024));
    let mut bench = Bench::new();
    for (command, what) in [
        ("CLIENT SETNAME", "Client names"),
        ("HELLO 2 SETNAME", "Client names"),
        ("CLIENT SETINFO lib-name", "lib-name"),
        ("CLIENT SETINFO LIB-VER", "LIB-VER"),
    ] {
        let refused = format!("-ERR {what} cannot be longer than 1024 bytes.\r\n");
        bench.says(&format!("{command} {long}"), &refused);
        let reply = bench.send(format!("{command} {longest}\r\n").as_bytes());
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    }
}
