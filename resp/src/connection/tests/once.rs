//! TRINE.DO and TRINE.SESSION: what is sent for them, and how answers and refusals read.

use trine_commands::answer::SessionRefusal;

use super::*;

/// The token that the bench gives first to a client that is no user.
const TOKEN: &str = "0000000000010000000000000000abcd";
/// The same for a user.
const OF_USER: &str = "0000000000010000000000000000abcc";

/// Sends a request, and ends its call with this.
fn ends(bench: &mut Bench, request: &str, result: Result<Response<'_>, Failure>) -> String {
    bench
        .connection
        .on_bytes(format!("{request}\r\n").as_bytes());
    let calls = bench.advance();
    assert_eq!(calls.len(), 1, "{request}");
    bench.connection.on_answer(Position::ZERO, result);
    bench.advance();
    bench.take_output()
}

fn do_incr(sequence: u64) -> String {
    format!("TRINE.DO {TOKEN} {sequence} 1 INCR n")
}

#[test]
fn a_session_answers_its_token_its_time_to_live_and_its_window() {
    let mut bench = Bench::new();
    bench.says(
        "TRINE.SESSION",
        &format!("*3\r\n$32\r\n{TOKEN}\r\n:60000\r\n:64\r\n"),
    );
    assert_eq!(bench.for_user, None);
    let mut bench = Bench::new();
    bench.says("AUTH alice s", "+OK\r\n");
    bench.says(
        "trine.session",
        &format!("*3\r\n$32\r\n{OF_USER}\r\n:60000\r\n:64\r\n"),
    );
    assert_eq!(bench.for_user.map(|user| user.number), Some(3));
    let help = bench.send(b"TRINE.SESSION HELP\r\n");
    assert!(help.contains("CLOSE <token>"), "{help}");
    bench.says(
        "TRINE.SESSION RESUME",
        "-ERR unknown subcommand 'RESUME'. Try TRINE.SESSION HELP.\r\n",
    );
}

#[test]
fn a_write_names_its_session_and_has_its_own_reply() {
    let mut bench = Bench::new();
    bench.says(&do_incr(5), ":1\r\n");
    let numbered = bench.numbered.take().expect("its place");
    assert_eq!(numbered.token.to_text(), TOKEN);
    assert_eq!((numbered.sequence, numbered.lowest), (5, 1));
    bench.says(&format!("TRINE.DO {TOKEN} 6 5 SET k v GET"), "$-1\r\n");
    bench.says(&format!("trine.do {TOKEN} 7 5 del k n none"), ":2\r\n");
    bench.says(
        &format!("TRINE.DO {TOKEN} 8 5 INCRBY n x"),
        "-ERR value is not an integer or out of range\r\n",
    );
    // Other writes of the connection have nothing to do with it.
    bench.says("INCR n", ":1\r\n");
    assert_eq!(bench.numbered, None);
    // A run of others ends in front of it, and it is done in its turn.
    let sent = format!("INCR n\r\nINCR n\r\n{}\r\nINCR n\r\n", do_incr(9));
    assert_eq!(bench.send(sent.as_bytes()), ":2\r\n:3\r\n:4\r\n:5\r\n");
}

#[test]
fn refusals_of_a_session_have_their_own_words() {
    let mut bench = Bench::new();
    for (refusal, word) in [
        (SessionRefusal::Stale, "-STALE "),
        (SessionRefusal::Window, "-WINDOW "),
        (SessionRefusal::SequenceUsed, "-SEQUENCEUSED "),
        (SessionRefusal::Lost, "-SESSIONLOST "),
    ] {
        let said = ends(&mut bench, &do_incr(1), Err(Failure::Session(refusal)));
        assert!(said.starts_with(word) && !said.contains(TOKEN), "{said}");
    }
    let said = ends(
        &mut bench,
        &do_incr(1),
        Err(Failure::NotApplied("alone".into())),
    );
    assert_eq!(
        said,
        "-CLUSTERDOWN this copy was not applied, repeat it: alone\r\n"
    );
    let said = ends(
        &mut bench,
        &do_incr(1),
        Err(Failure::Unknown("alone".into())),
    );
    assert!(said.starts_with("-UNKNOWNOUTCOME the command may have been applied, once, repeat it"));
    let reason = "user alice may not touch key \"n\"";
    let said = ends(&mut bench, &do_incr(1), Ok(Response::Denied { reason }));
    assert_eq!(said, format!("-NOPERM {reason}\r\n"));
}

/// Words that are wrong are answered by the connection, and use up no sequence.
#[test]
fn what_cannot_be_done_is_not_sent() {
    let mut bench = Bench::new();
    for (request, begin) in [
        (
            "TRINE.DO x 1 1 INCR n".to_owned(),
            "-ERR a token has 32 hex digits",
        ),
        (
            format!("TRINE.DO {TOKEN} 0 0 INCR n"),
            "-ERR a sequence is a number",
        ),
        (
            format!("TRINE.DO {TOKEN} 18446744073709551615 1 INCR n"),
            "-ERR a sequence is",
        ),
        (
            format!("TRINE.DO {TOKEN} 2 3 INCR n"),
            "-ERR the lowest awaited sequence",
        ),
        (format!("TRINE.DO {TOKEN} 65 1 INCR n"), "-WINDOW "),
        (
            format!("TRINE.DO {TOKEN} 1 1"),
            "-ERR wrong number of arguments for 'trine.do'",
        ),
        (
            format!("TRINE.DO {TOKEN} 1 1 GET n"),
            "-ERR TRINE.DO takes one write",
        ),
        (
            format!("TRINE.DO {TOKEN} 1 1 MULTI"),
            "-ERR TRINE.DO takes one write",
        ),
        (
            format!("TRINE.DO {TOKEN} 1 1 BLPOP n 0"),
            "-ERR unknown command 'BLPOP'",
        ),
        // A user's token at a client that is none.
        (format!("TRINE.DO {OF_USER} 1 1 INCR n"), "-SESSIONLOST "),
        (
            "TRINE.SESSION CLOSE x".to_owned(),
            "-ERR a token has 32 hex digits",
        ),
    ] {
        let said = bench.send(format!("{request}\r\n").as_bytes());
        assert!(said.starts_with(begin), "{request}: {said}");
        assert_eq!(bench.calls, 0, "{request}");
    }
    bench.says("AUTH alice s", "+OK\r\n");
    let said = bench.send(format!("{}\r\n", do_incr(1)).as_bytes());
    assert!(said.starts_with("-SESSIONLOST "), "{said}");
    assert_eq!(
        bench.calls, 0,
        "the group could not tell it from the replica's own session"
    );
}

#[test]
fn a_transaction_takes_neither_and_is_not_done() {
    for request in [
        do_incr(1),
        "TRINE.SESSION".to_owned(),
        format!("TRINE.SESSION CLOSE {TOKEN}"),
        "TRINE.CAS k 5 v PX 10".to_owned(),
    ] {
        let mut bench = Bench::new();
        bench.says("MULTI", "+OK\r\n");
        let said = bench.send(format!("{request}\r\n").as_bytes());
        assert!(said.contains("cannot stand inside MULTI"), "{said}");
        bench.says("EXEC", EXECABORT);
        assert_eq!(bench.calls, 0);
    }
}

#[test]
fn a_session_that_is_gone_already_is_closed() {
    let mut bench = Bench::new();
    let close = format!("TRINE.SESSION CLOSE {TOKEN}");
    bench.says(&close, "+OK\r\n");
    let numbered = bench.numbered.expect("its place");
    assert!(numbered.is_closing(), "nobody else has that sequence");
    let lost = Err(Failure::Session(SessionRefusal::Lost));
    assert_eq!(ends(&mut bench, &close, lost), "+OK\r\n");
    let said = ends(&mut bench, &close, Err(Failure::NotApplied("alone".into())));
    assert!(said.starts_with("-CLUSTERDOWN "), "{said}");
}

#[test]
fn versions_are_read_and_compared() {
    let mut bench = Bench::new();
    bench.says("TRINE.GETV k", "$-1\r\n");
    bench.says("TRINE.CAS k 5 v", "*2\r\n:0\r\n:0\r\n");
    let version = |said: String| -> u64 {
        let digits = said.trim_end().rsplit(':').next().expect("a number");
        digits.parse().unwrap_or_else(|_| panic!("{said}"))
    };
    let said = bench.send(b"TRINE.CAS k 0 v\r\n");
    assert!(said.starts_with("*2\r\n:1\r\n:"), "{said}");
    let first = version(said);
    bench.says("TRINE.GETV k", &format!("*2\r\n$1\r\nv\r\n:{first}\r\n"));
    bench.says("TRINE.CAS k 0 w", &format!("*2\r\n:0\r\n:{first}\r\n"));
    bench.says("TRINE.CAS k 7 w", &format!("*2\r\n:0\r\n:{first}\r\n"));
    let said = bench.send(format!("TRINE.CAS k {first} w PX 60000\r\n").as_bytes());
    assert!(said.starts_with("*2\r\n:1\r\n:"), "{said}");
    let second = version(said);
    assert!(second > first);
    bench.says("PTTL k", ":60000\r\n");
    // What is compared and expires is two operations, whose answer does not name the version that is there.
    let other = format!("TRINE.CAS k {first} x PX 60000");
    let present = format!("*2\r\n:0\r\n:{second}\r\n");
    bench.says(&other, &present);
    bench.says(&format!("TRINE.DO {TOKEN} 1 1 {other}"), &present);
    bench.says("TRINE.CAS none 5 x PX 60000", "*2\r\n:0\r\n:0\r\n");
    bench.says("TRINE.GETV k", &format!("*2\r\n$1\r\nw\r\n:{second}\r\n"));
    bench.says("TRINE.CAS k 1 x EX 5", "-ERR syntax error\r\n");
    // Such a command is done in its turn, among others.
    let said = bench.send(
        format!("SET a 1\r\nTRINE.CAS k {second} y PX 60000\r\nSET a 2\r\nTRINE.GETV none\r\n")
            .as_bytes(),
    );
    assert!(
        said.starts_with("+OK\r\n*2\r\n:1\r\n:") && said.ends_with("\r\n+OK\r\n$-1\r\n"),
        "{said}"
    );
    bench.says("MULTI", "+OK\r\n");
    bench.says("TRINE.CAS a 0 x", "+QUEUED\r\n");
    bench.says("TRINE.CAS b 0 x PX 5", "+QUEUED\r\n");
    let said = bench.send(b"EXEC\r\n");
    assert!(
        said.starts_with("*2\r\n*2\r\n:0\r\n:") && said.contains("*2\r\n:1\r\n:"),
        "{said}"
    );
}

#[test]
fn the_keys_of_a_request_can_be_asked_for() {
    let mut bench = Bench::new();
    bench.says(
        "COMMAND GETKEYS MSET a 1 b 2",
        "*2\r\n$1\r\na\r\n$1\r\nb\r\n",
    );
    let keys = format!("COMMAND GETKEYS TRINE.DO {TOKEN} 1 1 MSET a 1 b 2");
    bench.says(&keys, "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    bench.says(
        "COMMAND GETKEYS PING",
        "-ERR The command has no key arguments\r\n",
    );
    bench.says(
        "COMMAND GETKEYS NONSENSE",
        "-ERR Invalid command specified\r\n",
    );
    bench.says(
        "COMMAND GETKEYS GET",
        "-ERR Invalid number of arguments specified for command\r\n",
    );
    let info = bench.send(b"COMMAND INFO trine.do\r\n");
    assert!(info.contains("+movablekeys\r\n"), "{info}");
}
