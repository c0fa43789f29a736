//! A capture of a whole session, read back by Wireshark's own command line with the dissector.
//! Without tshark there is nothing to test against: the test says so and passes, unless TRINE_NEED_TSHARK=1.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;

use trine_transport::backend::{
    Capture, CaptureAddress, MonotonicClock, Pcap, RingBackend, RingConfig, RingRoute,
};
use trine_transport::time::{Clock, Duration};
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, Event, EventLoop, Identity, Reply, Request,
    SessionId,
};

const KIND: u8 = 42;
/// Three packets at the default MTU.
const REQUEST_BYTES: usize = 4_000;

#[derive(Default)]
struct Peer {
    session: Option<SessionId>,
    completed: usize,
}

impl App<RingRoute> for Peer {
    fn on_request(&mut self, cx: &mut Cx<'_, RingRoute>, request: Request<'_>) -> Reply {
        let mut response = cx.alloc(request.data.len()).unwrap();
        response.copy_from_slice(request.data);
        Reply::Now(response)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, RingRoute>, _: u64, completion: Completion) {
        completion.result.unwrap();
        self.completed += 1;
    }

    fn on_event(&mut self, _: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
        if let Event::Connected { session, .. } = event {
            self.session = Some(session);
        }
    }
}

/// Connects, makes one request of three packets with a deadline, disconnects; captured at the client.
///
/// Time stands still meanwhile: on a busy machine the thread can wait longer than the retransmission timeout, and the capture
/// then holds packets twice.
fn capture_session(path: &Path) {
    let clock = MonotonicClock.now();
    let (client, server) = RingBackend::pair(RingConfig::default());
    let local = client.route().capture_address();
    let file = BufWriter::new(File::create(path).unwrap());
    let capture = Capture::new(file, 1 << 20, Duration::ZERO).unwrap();
    let client = Pcap::new(client, clock, local, capture);
    let identity = |incarnation| Identity {
        cluster: 0xc1,
        incarnation,
    };
    let config = Config::default;
    let mut client =
        EventLoop::new(client, clock, Peer::default(), config(), identity(1), 1).unwrap();
    let mut server =
        EventLoop::new(server, clock, Peer::default(), config(), identity(2), 2).unwrap();
    client
        .with(|_, cx| cx.connect(RingRoute(1), ConnectParams::default()))
        .unwrap();
    while client.app().session.is_none() {
        client.turn().unwrap();
        server.turn().unwrap();
    }
    client.with(|peer, cx| {
        let (request, response) = cx
            .alloc(REQUEST_BYTES)
            .zip(cx.alloc(REQUEST_BYTES))
            .unwrap();
        let deadline = clock.now() + Duration::from_secs(10);
        let session = peer.session.unwrap();
        cx.enqueue_request(session, KIND, request, response, 0, Some(deadline))
            .unwrap();
    });
    while client.app().completed == 0 {
        client.turn().unwrap();
        server.turn().unwrap();
    }
    client.with(|peer, cx| cx.disconnect(peer.session.unwrap()));
    for _ in 0..10 {
        client.turn().unwrap();
        server.turn().unwrap();
    }
    client.into_backend().into_writer();
}

/// Runs tshark with the dissector; `None` where it is not installed.
fn tshark(capture: &Path, arguments: &[&str]) -> Option<String> {
    let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/trine.lua");
    let output = match Command::new("tshark")
        .arg("-X")
        .arg(script)
        .arg("-r")
        .arg(capture)
        .args(arguments)
        .output()
    {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("tshark: {error}"),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !errors.contains("Lua"),
        "{errors}"
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn wireshark_reads_a_captured_session() {
    let path = std::env::temp_dir().join(format!("trine-pcap-test-{}.pcapng", std::process::id()));
    capture_session(&path);
    let fields = |filter: &str, names: &[&str]| {
        let mut arguments = vec!["-Y", filter, "-T", "fields"];
        names.iter().for_each(|name| arguments.extend(["-e", name]));
        tshark(&path, &arguments)
    };
    let Some(types) = fields("trine", &["trine.type"]) else {
        let is_needed = std::env::var("TRINE_NEED_TSHARK").is_ok_and(|value| value == "1");
        assert!(
            !is_needed,
            "tshark is not installed, but TRINE_NEED_TSHARK=1"
        );
        eprintln!("skipped: tshark is not installed");
        return std::fs::remove_file(&path).unwrap();
    };
    for kind in ["8", "9", "10", "1", "2", "3", "4", "12", "13"] {
        let mut seen = types.split([',', '\n']);
        assert!(
            seen.any(|line| line == kind),
            "no packet of type {kind} in:\n{types}"
        );
    }
    let requests = fields(
        "trine.type == 1",
        &["trine.kind", "trine.message_bytes", "trine.number"],
    )
    .unwrap();
    assert_eq!(requests, "42\t4000\t0\n42\t4000\t1\n42\t4000\t2\n");
    let first = fields(
        "trine.deadline_us",
        &["trine.slot", "trine.sequence", "ip.src", "udp.port"],
    )
    .unwrap();
    assert_eq!(first, "0\t1\t10.0.0.0\t7471,7471\n");
    let accept = fields(
        "trine.type == 10",
        &["trine.credits", "trine.slots", "trine.cluster"],
    )
    .unwrap();
    assert_eq!(accept, "32\t8\t0x00000000000000c1\n");
    let broken = fields(
        "_ws.malformed || trine.malformed || ip.checksum.status == 0",
        &["frame.number"],
    )
    .unwrap();
    assert_eq!(broken, "", "malformed packets");
    std::fs::remove_file(&path).unwrap();
}
