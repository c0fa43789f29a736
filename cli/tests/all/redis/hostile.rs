//! Some clients break the protocol, send without reading, disconnect half-way or come in crowds: the others must not notice.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Stdio;

use super::wire::Wire;
use super::{RedisGroup, counter};
use crate::common::wait_for;
use trine_base::ports::free_addresses;

#[test]
fn broken_requests_end_their_own_connection_alone() {
    let group = RedisGroup::start(&[]);
    let mut bystander = group.connect(1);
    let broken: &[(&[u8], &str)] = &[
        (b"*x\r\n", "-ERR Protocol error: invalid multibulk length"),
        (
            b"*1\r\n+PING\r\n",
            "-ERR Protocol error: expected '$', got '+'",
        ),
        (
            b"*1\r\n$999999999\r\n",
            "-ERR Protocol error: invalid bulk length",
        ),
        (
            b"GET \"a\r\n",
            "-ERR Protocol error: unbalanced quotes in request",
        ),
        (
            &[b'a'; 70_000],
            "-ERR Protocol error: too big inline request",
        ),
    ];
    for (bytes, text) in broken {
        let mut wire = group.connect(1);
        wire.send(&["SET", "k", "v"]);
        wire.send_bytes(bytes);
        assert_eq!(wire.reply(), "+OK", "what came before is done");
        assert_eq!(wire.reply(), *text);
        assert_eq!(wire.try_reply(), None, "the connection ends");
        assert_eq!(bystander.ask("GET k"), "\"v\"");
    }
    assert_eq!(
        counter(&mut bystander, "protocol_errors"),
        broken.len() as u64
    );
}

/// `curl -X POST` with a body wrote keys: a web page can make a browser send that.
#[test]
fn a_request_of_http_ends_its_connection_and_writes_nothing() {
    let group = RedisGroup::start(&[]);
    let mut bystander = group.connect(1);
    for head in ["POST / HTTP/1.1", "GET / HTTP/1.1\r\nHost: localhost:6379"] {
        let mut wire = group.connect(1);
        let body = "SET evil 1\r\n";
        let length = body.len();
        wire.send_bytes(format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes());
        while let Some(reply) = wire.try_reply() {
            assert!(reply.starts_with("-ERR wrong number"), "{head}: {reply}");
        }
        assert_eq!(bystander.ask("GET evil"), "$-1", "{head}");
    }
    assert_eq!(counter(&mut bystander, "cross_protocol_attempts"), 2);
}

/// The connection was closed while the client still sent, which resets it. For a value of more than 1 MiB the documents
/// promise an error. Instead redis-cli ended with a broken pipe.
#[test]
fn an_error_about_a_large_value_arrives_however_much_of_it_is_still_sent() {
    let group = RedisGroup::start(&[]);
    let mut wire = group.connect(1);
    wire.send_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$20000000\r\n");
    for _ in 0..20 {
        wire.send_bytes(&[b'v'; 1_000_000]);
    }
    wire.send_bytes(b"\r\n");
    let text = "-ERR Protocol error: invalid bulk length";
    assert_eq!(wire.reply(), text);
    assert_eq!(wire.try_reply(), None, "the connection ends");
    assert_eq!(counter(&mut group.connect(1), "protocol_errors"), 1);
}

#[test]
fn whoever_no_longer_sends_is_still_answered() {
    let group = RedisGroup::start(&[]);
    let mut wire = group.connect(2);
    for _ in 0..100 {
        wire.send(&["INCR", "n"]);
    }
    wire.stream()
        .shutdown(Shutdown::Write)
        .expect("half closed");
    for number in 1..=100 {
        assert_eq!(wire.reply(), format!(":{number}"));
    }
    assert_eq!(wire.try_reply(), None);
    // A client that disconnects in the middle of a request leaves nothing.
    let mut wire = group.connect(2);
    wire.send_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$10\r\nhal");
    drop(wire);
    let mut bystander = group.connect(2);
    let clients = |wire: &mut Wire| wire.ask("INFO clients").contains("connected_clients:1\r\n");
    wait_for("the end of the connection", || {
        clients(&mut bystander).then_some(())
    });
    assert_eq!(bystander.ask("GET x"), "$-1");
}

#[test]
fn a_reader_that_takes_nothing_is_stopped_and_then_disconnected() {
    let options = [
        "--resp-slow-reader",
        "1s",
        "--resp-output-buffer",
        "64KiB",
        "--resp-query-buffer",
        "256KiB",
    ];
    let group = RedisGroup::start(&options);
    let mut bystander = group.connect(1);
    let value = "v".repeat(60_000);
    bystander.send(&["SET", "k", &value]);
    assert_eq!(bystander.reply(), "+OK");
    let mut slow = TcpStream::connect(group.address(1)).expect("a connection");
    slow.set_write_timeout(Some(std::time::Duration::from_millis(300)))
        .expect("a timeout");
    // It sends requests until the replica accepts no more.
    let requests = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(2_000);
    let mut sent = 0_usize;
    while let Ok(count) = slow.write(&requests) {
        sent += count;
        assert!(sent < 256 << 20, "the replica takes everything");
    }
    wait_for("the disconnection", || {
        (counter(&mut bystander, "slow_readers_disconnected") == 1).then_some(())
    });
    assert_eq!(bystander.ask("STRLEN k"), ":60000");
    let mut rest = Vec::new();
    // The replies that were written arrive. Then the connection ends, one way or the other.
    let _ = slow.read_to_end(&mut rest);
}

/// A pipeline arrives at once, and its first replies exceed the output buffer. The connection then handles no more of
/// it until they are written. The replies were written in the same turn, and the connection got no further turn,
/// because its socket had no new event. The rest of the pipeline was never answered.
#[test]
fn a_pipeline_goes_on_when_its_replies_were_more_than_the_output_buffer_holds() {
    let group = RedisGroup::start(&["--resp-output-buffer", "1KiB"]);
    let mut wire = group.connect(1);
    let text = "e".repeat(2_000);
    let mut requests = Vec::new();
    for _ in 0..64 {
        requests.extend_from_slice(format!("*2\r\n$4\r\nECHO\r\n$2000\r\n{text}\r\n").as_bytes());
    }
    wire.send_bytes(&requests);
    for _ in 0..64 {
        assert_eq!(wire.reply(), format!("\"{text}\""));
    }
}

#[test]
fn more_clients_than_allowed_are_turned_away_in_words() {
    let group = RedisGroup::start(&["--resp-max-clients", "3"]);
    let mut admitted: Vec<Wire> = (0..3).map(|_| group.connect(1)).collect();
    assert!(admitted.iter_mut().all(|wire| wire.ask("PING") == "+PONG"));
    let mut fourth = group.connect(1);
    assert_eq!(fourth.reply(), "-ERR max number of clients reached");
    assert_eq!(fourth.try_reply(), None);
    assert_eq!(counter(&mut admitted[0], "rejected_connections"), 1);
    admitted.pop();
    wait_for("room", || {
        let mut wire = group.connect(1);
        wire.send(&["PING"]);
        (wire.try_reply()? == "+PONG").then_some(())
    });
}

#[test]
fn the_password_is_asked_for() {
    let group = RedisGroup::start(&["--resp-password", "secret"]);
    let mut wire = group.connect(1);
    assert_eq!(wire.ask("GET k"), "-NOAUTH Authentication required.");
    assert!(wire.ask("AUTH wrong").starts_with("-WRONGPASS"));
    assert_eq!(wire.ask("AUTH secret"), "+OK");
    assert_eq!(wire.ask("SET k v"), "+OK");
    // Unauthenticated clients may not make the replica wait for large requests.
    let mut stranger = group.connect(1);
    stranger.send_bytes(b"*1\r\n$100000\r\n");
    assert_eq!(
        stranger.reply(),
        "-ERR Protocol error: unauthenticated bulk length"
    );
}

/// `trine up` took the password from the environment and relied on its replicas to find it there. But they are started
/// without the variables of their parent, so every client was let in.
#[test]
fn a_password_from_the_environment_is_asked_for_by_every_replica_of_up() {
    let base = crate::common::tcp_ports(3);
    let udp = free_addresses(3).expect("free ports")[0].port().to_string();
    let resp = base.to_string();
    let mut command = crate::common::command(&["up", "--base-port", &udp, "--resp", &resp], "");
    command.env("TRINE_RESP_PASSWORD", "swordfish");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut up = command.spawn().expect("started");
    for port in base..base + 3 {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        wait_for("the port", || TcpStream::connect(address).ok());
        let mut wire = Wire::connect(address);
        assert_eq!(wire.ask("GET k"), "-NOAUTH Authentication required.");
        assert_eq!(wire.ask("AUTH swordfish"), "+OK");
    }
    let replicas = crate::common::children_of(up.id());
    assert_eq!(replicas.len(), 3);
    for replica in replicas {
        let line = std::fs::read(format!("/proc/{replica}/cmdline")).expect("alive");
        assert!(!String::from_utf8_lossy(&line).contains("swordfish"));
    }
    crate::common::signal(up.id(), "INT");
    up.wait().expect("ends");
}
