//! Handshakes of TLS: how long a client may take, and how many go on in one turn. What is under way to the group, too: each
//! connection has its part. The time is the tests' own.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::net::TcpStream as Socket;
use std::os::unix::fs::PermissionsExt;

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use trine_kvstore::{Command, Limits as StoreLimits, Position, Store};

use super::*;
use crate::tls::TlsArguments;

/// The limit of a test for what needs no time of its own.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A server with TLS and no group behind it, and the time that it is told.
struct Front {
    server: Server,
    trusted: Arc<ClientConfig>,
    now: Instant,
}

impl Front {
    fn start(name: &str) -> Self {
        let (tls, certificate) = tls(name);
        Self::with(Some(tls), certificate)
    }

    fn with(tls: Option<Tls>, certificate: CertificateDer<'static>) -> Self {
        let options = Options {
            limits: Limits::default(),
            password: None,
            requires_auth: false,
            ring: Arc::default(),
            passwords: None,
            tls,
            clients_max: 100,
            notify: Classes::default(),
            slow_reader: Duration::from_secs(30),
            memory: 64 << 20,
        };
        let address = "127.0.0.1:0".parse().expect("an address");
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a root");
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        Self {
            server: Server::open(address, options).expect("a free port"),
            trusted: Arc::new(builder.with_no_client_auth()),
            now: Instant::ZERO + Duration::from_secs(100),
        }
    }

    fn connect(&self) -> Socket {
        Socket::connect(self.server.address()).expect("a connection")
    }

    /// A client that has sent nothing yet.
    fn caller(&self) -> Caller {
        let name = "localhost".try_into().expect("a name");
        let tls = ClientConnection::new(Arc::clone(&self.trusted), name).expect("a client");
        let socket = self.connect();
        socket.set_nonblocking(true).expect("set");
        Caller {
            tls,
            socket,
            heard: String::new(),
        }
    }

    fn turn(&mut self) {
        self.server.poll(self.now);
        self.server.work(self.now, &mut |_, _| {
            Err(CallFailure::NotApplied("there is no group".to_owned()))
        });
    }

    /// Turns of server and clients, without time, until the condition holds.
    fn turns_until(&mut self, callers: &mut [Caller], holds: impl Fn(&Server, &[Caller]) -> bool) {
        let until = std::time::Instant::now() + PATIENCE;
        while !holds(&self.server, callers) {
            assert!(std::time::Instant::now() < until, "it does not happen");
            self.turn();
            callers.iter_mut().for_each(Caller::go_on);
        }
    }

    /// Takes connections without giving any of them a turn.
    fn takes(&mut self, count: usize) {
        let until = std::time::Instant::now() + PATIENCE;
        while self.server.stats.connected < count {
            assert!(std::time::Instant::now() < until, "a connection is missing");
            self.server.poll(self.now);
        }
    }
}

/// A certificate for localhost that nobody else has signed, as the server has it and as clients trust it.
fn tls(name: &str) -> (Tls, CertificateDer<'static>) {
    let directory =
        std::env::temp_dir().join(format!("trine-handshake-{}-{name}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let cert = params.self_signed(&key).expect("signed");
    let (cert_file, key_file) = (directory.join("cert"), directory.join("key"));
    fs::write(&cert_file, cert.pem()).expect("written");
    fs::write(&key_file, key.serialize_pem()).expect("written");
    fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).expect("changed");
    let arguments = TlsArguments {
        tls_cert: Some(cert_file),
        tls_key: Some(key_file),
        tls_client_ca: None,
    };
    let tls = Tls::open(&arguments).expect("usable").expect("it is on");
    let _ = fs::remove_dir_all(&directory);
    (tls, cert.der().clone())
}

struct Caller {
    tls: ClientConnection,
    socket: Socket,
    heard: String,
}

impl Caller {
    fn say(&mut self, text: &str) {
        self.tls
            .writer()
            .write_all(text.as_bytes())
            .expect("buffered");
        self.go_on();
    }

    /// Sends and reads what it can, without waiting.
    fn go_on(&mut self) {
        while self
            .tls
            .read_tls(&mut self.socket)
            .is_ok_and(|read| read > 0)
        {
            self.tls.process_new_packets().expect("TLS");
        }
        let mut text = Vec::new();
        // Without more to read it would wait, and says so.
        let _ = self.tls.reader().read_to_end(&mut text);
        self.heard.push_str(&String::from_utf8_lossy(&text));
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Whether the other end has ended a connection.
fn has_ended(mut socket: &Socket) -> bool {
    socket.set_nonblocking(false).expect("set");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let waited = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
    let read = socket.read_to_end(&mut Vec::new());
    !read.is_err_and(|error| waited.contains(&error.kind()))
}

#[test]
fn a_client_has_ten_seconds_to_agree_on_keys() {
    let mut front = Front::start("deadline");
    let mut known = [front.caller()];
    front.turns_until(&mut known, |server, callers| {
        !callers[0].tls.is_handshaking() && server.next_timeout(Instant::ZERO).is_none()
    });
    let (silent, mut slow) = (front.connect(), front.caller());
    front.takes(3);
    let mut hello = Vec::new();
    slow.tls.write_tls(&mut hello).expect("a hello");
    let begun = front.now;
    for second in 0..10 {
        front.now = begun + Duration::from_secs(second);
        let byte = second as usize;
        slow.socket
            .write_all(&hello[byte..=byte])
            .expect("a byte more");
        front.turn();
        assert_eq!(front.server.stats.connected, 3, "after {second} s");
        let due = front.server.next_timeout(front.now);
        assert!(due.is_some_and(|due| due <= front.now + CHECK_EVERY));
    }
    assert_eq!(front.server.stats.tls_failures, 0);
    front.now = begun + HANDSHAKE_TIME;
    front.turn();
    assert_eq!(front.server.stats.connected, 1);
    assert_eq!(front.server.stats.tls_failures, 2);
    assert!(has_ended(&silent) && has_ended(&slow.socket));
    assert_eq!(HANDSHAKE_TIME, Duration::from_secs(10));

    // Who has agreed on keys may be silent for as long as he likes.
    front.now += Duration::from_secs(3_600);
    known[0].say("PING\r\n");
    front.turns_until(&mut known, |_, callers| callers[0].heard == "+PONG\r\n");
}

/// Those beyond the fourth had no other turn, and were disconnected ten seconds later.
#[test]
fn four_handshakes_go_on_in_a_turn_and_the_others_in_the_next() {
    let mut front = Front::start("turns");
    let mut known = [front.caller()];
    front.turns_until(&mut known, |_, callers| !callers[0].tls.is_handshaking());
    front.turn();
    let mut new: Vec<Caller> = (0..10).map(|_| front.caller()).collect();
    new.iter_mut().for_each(Caller::go_on);
    front.takes(11);
    known[0].say("PING\r\n");
    let marks = |server: &Server| {
        let clients = server.seats.iter().map(|(_, client)| client);
        clients.filter(|client| client.queued).count()
    };
    front.turn();
    assert_eq!(marks(&front.server), 6);
    assert!(front.server.has_work(), "the next turn does not wait");
    // Clients that are known do not wait for those.
    front.turns_until(&mut known, |_, callers| callers[0].heard == "+PONG\r\n");

    new.iter_mut().for_each(|caller| caller.say("PING\r\n"));
    front.turns_until(&mut new, |_, callers| {
        callers.iter().all(|caller| caller.heard == "+PONG\r\n")
    });
    assert_eq!(front.server.stats.tls_failures, 0);
}

/// A pipeline of one connection has no more under way to the group than a single command of another one. So what the group
/// grants this front is divided among its connections, however much each of them asks for.
#[test]
fn each_connection_has_one_call_under_way() {
    let (_, certificate) = tls("calls");
    let mut front = Front::with(None, certificate);
    let mut greedy: Vec<Socket> = (0..3).map(|_| front.connect()).collect();
    let mut modest = front.connect();
    let value = "x".repeat(200);
    for (number, socket) in greedy.iter_mut().enumerate() {
        let pipeline = format!("SET {number} {value}\r\n").repeat(2_000);
        socket.set_nonblocking(true).expect("set");
        // As much as the kernel takes.
        let _ = socket.write(pipeline.as_bytes()).expect("written");
    }
    modest.write_all(b"GET k\r\n").expect("written");
    front.takes(4);
    let mut store = Store::new(StoreLimits::default(), [1, 2]);
    let mut rounds = 0;
    let mut answered = None;
    while answered.is_none() {
        rounds += 1;
        let mut begun: Vec<(u64, Vec<u8>)> = Vec::new();
        front.server.poll(front.now);
        front.server.work(front.now, &mut |tag, task| {
            let Task::Call(call) = task else {
                panic!("nobody asks for a session")
            };
            let mut bytes = Vec::new();
            call.command.encode(&mut bytes);
            begun.push((tag, bytes));
            Ok(())
        });
        let tags: BTreeSet<u64> = begun.iter().map(|(tag, _)| *tag).collect();
        assert_eq!(tags.len(), begun.len(), "one call each");
        assert!(begun.iter().all(|(_, bytes)| bytes.len() < 300 * 1024));
        for (at, (tag, bytes)) in (1..).zip(&begun) {
            let command = Command::decode(bytes).expect("a command");
            let position = Position::new(rounds * 10 + at, 0);
            let response = store.apply(position, &command);
            if matches!(command, Command::Get { .. }) {
                answered = Some(rounds);
            }
            front.server.on_answer(*tag, Position::ZERO, Ok(response));
        }
        assert!(rounds < 100, "the modest client waits for {rounds} rounds");
    }
    // It waits for nobody's pipeline.
    assert!(answered <= Some(2), "{answered:?}");
    front.turn();
    let mut reply = [0; 5];
    modest.read_exact(&mut reply).expect("a reply");
    assert_eq!(&reply, b"$-1\r\n");
}

/// The limit counted at the end of a turn alone, and the replies of all connections in one turn were far beyond it.
#[test]
fn the_limit_of_memory_counts_within_a_turn() {
    const LIMIT: usize = 16 << 20;
    let (_, certificate) = tls("memory");
    let mut front = Front::with(None, certificate);
    front.server.options.memory = LIMIT;
    let mut greedy: Vec<Socket> = (0..12).map(|_| front.connect()).collect();
    let mut asker = front.connect();
    front.takes(13);
    front.turn();
    // Replies of three megabytes, more of them than the kernel takes.
    asker
        .write_all(b"COMMAND DOCS client\r\n")
        .expect("written");
    front.turn();
    let mut reply = [0; 8_192];
    let once = asker.read(&mut reply).expect("a reply");
    let names = " client".repeat((3 << 20) / once);
    let request = format!("COMMAND DOCS{names}\r\n").repeat(6);
    for client in &mut greedy {
        client.write_all(request.as_bytes()).expect("written");
    }
    // Its turn comes behind theirs.
    asker.write_all(b"CLIENT LIST\r\n").expect("written");
    front.turn();
    asker.set_read_timeout(Some(PATIENCE)).expect("set");
    let count = asker.read(&mut reply).expect("a reply");
    let text = String::from_utf8_lossy(&reply[..count]);
    let held = |line: &str| {
        let (_, behind) = line.split_once(" tot-mem=")?;
        behind.split(' ').next()?.parse::<usize>().ok()
    };
    let all: usize = text.lines().filter_map(held).sum();
    assert!(all > 1 << 20, "they hold something: {text}");
    // One of them may be beyond it for a moment, with a reply and room for it to grow.
    assert!(all < LIMIT + LIMIT / 16 + (8 << 20), "{all} bytes: {text}");
    assert!(front.server.stats.evicted > 0);
}
