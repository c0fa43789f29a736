//! `cargo bench -p trine-transport [NAME...]`: see `BENCHMARKS.md`.

mod count;
mod paper;
mod raw;
mod rpc;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rpc::Setup;
use trine_report::pin;
use trine_report::{PAIRS_MIN, Pairs, Report};
use trine_seal::{
    COOKIE_PROOF_BYTES, CookieKey, Csprng, Initiator, MESSAGE_OVERHEAD, Psk, Responder,
};
use trine_transport::CongestionControl;
use trine_transport::backend::{Direction, Faults, MonotonicClock, RingBackend};
use trine_transport::prng::Ratio;
use trine_transport::time::{Clock, Duration as Span};

/// Header of a wire packet: what an RPC carries beyond its 32 bytes, and the baseline too.
const HEADER_BYTES: usize = 24;
const SMALL: usize = 32;
const PAIRS: usize = 10;

/// Measures what its name says.
type Measurement = fn(&mut Report, &str, Cores);

/// Ours, and that of the other side.
type Cores = (usize, usize);

fn main() {
    if let Some(job) = std::env::args().skip_while(|arg| arg != count::JOB).nth(1) {
        return ring_job(&job);
    }
    // Cargo passes `--bench`; everything else selects measurements by a part of their name.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut report = Report::new("transport");
    let measurements: [(&str, Measurement); 27] = [
        ("rpc_latency_udp_32b", latency_udp),
        ("rpc_rate_udp_32b_window_64", rate_udp),
        ("rpc_rate_udp_20000_sessions", many_sessions),
        ("transfer_8mb_udp", transfer),
        (
            "transfer_8mb_udp_header_checksums",
            transfer_header_checksums,
        ),
        ("transfer_8mb_udp_loss_1e-4", transfer_with_loss),
        ("transfer_8mb_udp_loss_1e-3", transfer_with_more_loss),
        ("rpc_rate_ring_32b_b3_window_60", rate_ring),
        ("rpc_instructions_ring_32b", instructions_ring),
        (
            "rpc_congestion_control_instructions",
            instructions_congestion_control,
        ),
        ("cpu_time_transfer_8mb_udp", cpu_time_transfer),
        ("cpu_time_stream_8mb_messages_udp", cpu_time_stream),
        (
            "cpu_time_transfer_8mb_udp_header_checksums",
            cpu_time_transfer_header_checksums,
        ),
        ("cpu_time_rpc_udp_20000_sessions", cpu_time_many_sessions),
        ("factor_analysis", factor_analysis),
        ("factor_copies", paper::copies),
        ("factor_instructions", paper::copies_counted),
        ("rpc_time_udp_window_64", paper::session_percentiles),
        ("transfer_udp_one_under_way", paper::transfers_by_size),
        ("sealed_rpc_latency_udp_32b", sealed_latency_udp),
        ("sealed_rpc_rate_udp_32b_window_64", sealed_rate_udp),
        (
            "sealed_rpc_rate_udp_32b_window_64_tag_per_packet",
            sealed_rate_udp_tag_per_packet,
        ),
        ("sealed_transfer_8mb_udp", sealed_transfer),
        ("sealed_cpu_time_transfer_8mb_udp", sealed_cpu_time_transfer),
        ("sealed_rpc_instructions_ring_32b", sealed_instructions_ring),
        (
            "sealed_rpc_instructions_ring_32b_tag_per_packet",
            sealed_instructions_ring_tag_per_packet,
        ),
        ("sealed_handshakes", sealed_handshakes),
    ];
    let cores = pin::two_cores();
    pin::pin(cores.0);
    for (name, measure) in measurements {
        if is_wanted(name) {
            measure(&mut report, name, cores);
        }
    }
    report.finish();
}

fn latency_udp(report: &mut Report, name: &str, (_, theirs): Cores) {
    const ROUNDS: usize = 20_000;
    // One server runs at a time, so that neither disturbs the other's core.
    let rpc = || {
        let setup = Setup::default();
        let server = rpc::Server::start(theirs, &setup);
        let mut client = rpc::connect(server.address, 1, &setup);
        rpc::ping_pong(&mut client, SMALL, ROUNDS / 10);
        rpc::ping_pong(&mut client, SMALL, ROUNDS) / 1e3
    };
    let bare = || {
        let server = raw::Server::start(theirs, raw::echo_one_by_one);
        raw::ping_pong(server.address, SMALL + HEADER_BYTES, ROUNDS / 10);
        raw::ping_pong(server.address, SMALL + HEADER_BYTES, ROUNDS) / 1e3
    };
    let pairs = Pairs::run(PAIRS, rpc, bare);
    report.pairs(name, "us", "UDP socket ping-pong", &pairs);
}

const RATE_SPAN_MS: u64 = 400;

/// RPCs a second on 8 sessions with 8 requests under way each.
fn window_rate(theirs: usize, setup: &Setup) -> f64 {
    let server = rpc::Server::start(theirs, setup);
    let mut client = rpc::connect(server.address, 8, setup);
    rpc::rate(&mut client, SMALL, 64, Span::from_millis(RATE_SPAN_MS / 10));
    rpc::rate(&mut client, SMALL, 64, Span::from_millis(RATE_SPAN_MS))
}

fn rate_udp(report: &mut Report, name: &str, (_, theirs): Cores) {
    let rpc = || window_rate(theirs, &Setup::default());
    let bare = || {
        let server = raw::Server::start(theirs, raw::echo_batches);
        raw::echo_rate(
            server.address,
            SMALL + HEADER_BYTES,
            64,
            Duration::from_millis(RATE_SPAN_MS),
        )
    };
    let pairs = Pairs::run(PAIRS, rpc, bare);
    report.pairs(name, "/s", "sendmmsg/recvmmsg echo", &pairs);
}

/// Bytes of a large request; its response is empty.
const LARGE: usize = 8 << 20;
const TRANSFER_SPAN_MS: u64 = 1_000;

/// Received bytes a second of requests of 8 MB, two under way, at this loss of outbound packets.
fn transfer_rate(theirs: usize, loss: Ratio, setup: &Setup) -> f64 {
    let server = rpc::Server::start(theirs, setup);
    let mut client = rpc::connect(server.address, 1, setup);
    client
        .backend()
        .handle()
        .set(Direction::Outbound, Faults::loss(loss));
    rpc::rate(&mut client, LARGE, 2, Span::from_millis(TRANSFER_SPAN_MS)) * LARGE as f64
}

/// C = 256: transfers need more packets under way than small RPCs.
fn transfer_setup() -> Setup {
    Setup::with(|setup| setup.config.credits = 256)
}

/// The same with the packets' headers alone in their checksums, as in the paper's eRPC.
fn header_checksums_setup() -> Setup {
    let mut setup = transfer_setup();
    setup.config.data_checksums = false;
    setup
}

fn transfer(report: &mut Report, name: &str, cores: Cores) {
    transfer_with(report, name, cores, &transfer_setup());
}

fn transfer_header_checksums(report: &mut Report, name: &str, cores: Cores) {
    transfer_with(report, name, cores, &header_checksums_setup());
}

fn transfer_with(report: &mut Report, name: &str, (_, theirs): Cores, setup: &Setup) {
    let bare = || {
        let received = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&received);
        let server = raw::Server::start(theirs, move |socket, stop| {
            raw::sink(socket, stop, &counter)
        });
        raw::stream_rate(
            server.address,
            1472,
            &received,
            Duration::from_millis(TRANSFER_SPAN_MS),
        )
    };
    let pairs = Pairs::run(PAIRS, || transfer_rate(theirs, Ratio::ZERO, setup), bare);
    report.pairs(name, "B/s", "UDP stream with GSO and GRO", &pairs);
}

fn transfer_with_loss(report: &mut Report, name: &str, cores: Cores) {
    transfer_at(report, name, cores, Ratio::new(1, 10_000).expect("a ratio"));
}

fn transfer_with_more_loss(report: &mut Report, name: &str, cores: Cores) {
    transfer_at(report, name, cores, Ratio::new(1, 1_000).expect("a ratio"));
}

fn transfer_at(report: &mut Report, name: &str, (_, theirs): Cores, loss: Ratio) {
    let rate = |loss| transfer_rate(theirs, loss, &transfer_setup());
    let pairs = Pairs::run(PAIRS, || rate(loss), || rate(Ratio::ZERO));
    report.pairs(name, "B/s", "without loss", &pairs);
}

fn many_sessions(report: &mut Report, name: &str, (_, theirs): Cores) {
    let rate = |sessions, credits| {
        let setup = Setup::with(|setup| {
            setup.config.sessions = sessions;
            setup.config.credits = credits;
            setup.config.overcommit = true;
        });
        let server = rpc::Server::start(theirs, &setup);
        let mut client = rpc::connect(server.address, sessions, &setup);
        rpc::rate(&mut client, SMALL, 64, Span::from_millis(500))
    };
    let pairs = Pairs::run(PAIRS, || rate(20_000, 1), || rate(8, 32));
    report.pairs(name, "/s", "8 sessions", &pairs);
}

/// Processor time of `work` on this thread over `units`, in nanoseconds.
fn cpu_time_per(units: u64, work: impl FnOnce()) -> f64 {
    let before = pin::cpu_time_ns();
    work();
    (pin::cpu_time_ns() - before) / units as f64
}

/// Both ends of a transfer on one thread: the cost of a byte, however busy the machine is.
fn cpu_time_transfer(report: &mut Report, name: &str, _: Cores) {
    cpu_time_transfer_with(report, name, &transfer_setup());
}

fn cpu_time_transfer_header_checksums(report: &mut Report, name: &str, _: Cores) {
    cpu_time_transfer_with(report, name, &header_checksums_setup());
}

fn cpu_time_transfer_with(report: &mut Report, name: &str, setup: &Setup) {
    const TRANSFERS: u64 = 30;
    let bytes = TRANSFERS * LARGE as u64;
    let mut joined = rpc::joined_by_udp(setup, 1, 2, LARGE);
    let rpc = || cpu_time_per(bytes, || joined.complete(TRANSFERS));
    let bare = || cpu_time_per(bytes, || raw::stream_to_self(1472, bytes));
    let pairs = Pairs::run(PAIRS, rpc, bare);
    report.pairs(name, "ns/B", "UDP stream with GSO and GRO", &pairs);
}

/// The cost, without any RPC, of messages that do not stay in the cache.
fn cpu_time_stream(report: &mut Report, name: &str, _: Cores) {
    let bytes = 30 * LARGE as u64;
    let messages = || cpu_time_per(bytes, || raw::messages_to_self(1472, LARGE, bytes));
    let bare = || cpu_time_per(bytes, || raw::stream_to_self(1472, bytes));
    let pairs = Pairs::run(PAIRS, messages, bare);
    report.pairs(name, "ns/B", "UDP stream with GSO and GRO", &pairs);
}

/// Both ends of 64 RPCs under way on one thread, wandering over many sessions or few.
fn cpu_time_many_sessions(report: &mut Report, name: &str, _: Cores) {
    const RPCS: u64 = 200_000;
    let joined = |sessions, credits| {
        let setup = Setup::with(|setup| {
            setup.config.sessions = sessions;
            setup.config.credits = credits;
            setup.config.overcommit = true;
        });
        rpc::joined_by_udp(&setup, sessions, 64, SMALL)
    };
    let (mut many, mut few) = (joined(20_000, 1), joined(8, 32));
    let pairs = Pairs::run(
        PAIRS,
        || cpu_time_per(RPCS, || many.complete(RPCS)),
        || cpu_time_per(RPCS, || few.complete(RPCS)),
    );
    report.pairs(name, "ns", "8 sessions", &pairs);
}

fn ring<C: Clock + Default>(setup: &Setup) -> rpc::Joined<RingBackend, C> {
    rpc::joined_by_ring(setup, 8, 60, 3, SMALL)
}

/// One core issues and serves; the paper's section 6.2 has each thread do both as well.
fn rate_ring(report: &mut Report, name: &str, _: Cores) {
    const RPCS: u64 = 1_000_000;
    let mut ring = ring::<MonotonicClock>(&Setup::default());
    ring.complete(RPCS / 10);
    let run = |_| {
        let start = Instant::now();
        ring.complete(RPCS);
        RPCS as f64 / start.elapsed().as_secs_f64()
    };
    let rate = trine_report::median((0..PAIRS).map(run));
    report.value(name, rate, "/s");
}

const JOB_PLAIN: &str = "plain";
const JOB_SEALED: &str = "sealed";
const JOB_TAG_PER_PACKET: &str = "tag-per-packet";
const JOB_CONGESTION: &str = "congestion";
const JOB_DELAY: &str = "delay";
const JOB_NO_TIMELY_BYPASS: &str = "no-timely-bypass";
const JOB_NO_LIMITER_BYPASS: &str = "no-limiter-bypass";

/// The work of a child process while its instructions are counted: the part after the colon is the
/// number of RPCs.
fn ring_job(job: &str) {
    let (kind, rpcs) = job.split_once(':').expect("kind:count");
    let mut setup = Setup {
        is_sealed: [JOB_SEALED, JOB_TAG_PER_PACKET].contains(&kind),
        ..Setup::default()
    };
    setup.config.tag_per_run = kind != JOB_TAG_PER_PACKET;
    setup.copies.requests = kind == paper::JOB_COPIED_REQUESTS;
    setup.copies.responses = kind == paper::JOB_COPIED_RESPONSES;
    let congestion = &mut setup.config.congestion;
    let without_control = [
        JOB_PLAIN,
        JOB_SEALED,
        JOB_TAG_PER_PACKET,
        paper::JOB_COPIED_REQUESTS,
        paper::JOB_COPIED_RESPONSES,
    ];
    congestion.control = if without_control.contains(&kind) {
        CongestionControl::Off
    } else if kind == JOB_DELAY {
        CongestionControl::Delay
    } else {
        CongestionControl::TimelyEcn
    };
    congestion.timely_bypass = kind != JOB_NO_TIMELY_BYPASS;
    congestion.rate_limiter_bypass = kind != JOB_NO_LIMITER_BYPASS;
    ring::<rpc::SteadyClock>(&setup).complete(rpcs.parse().expect("a number"));
}

/// User-space instructions of one RPC, both sides together, by the difference of two runs.
fn instructions(kind: &str) -> Option<f64> {
    const RPCS: u64 = 20_000;
    let few = count::instructions(&format!("{kind}:{RPCS}"))?;
    let many = count::instructions(&format!("{kind}:{}", 3 * RPCS))?;
    Some((many - few) as f64 / (2 * RPCS) as f64)
}

fn instructions_ring(report: &mut Report, name: &str, _: Cores) {
    match instructions(JOB_PLAIN) {
        Some(count) => report.value(name, count, "instructions"),
        None => eprintln!("{name}: left out, valgrind is not installed"),
    }
}

fn sealed_instructions_ring(report: &mut Report, name: &str, _: Cores) {
    sealed_instructions(report, name, JOB_SEALED);
}

fn sealed_instructions_ring_tag_per_packet(report: &mut Report, name: &str, _: Cores) {
    sealed_instructions(report, name, JOB_TAG_PER_PACKET);
}

fn sealed_instructions(report: &mut Report, name: &str, job: &str) {
    match (instructions(job), instructions(JOB_PLAIN)) {
        (Some(on), Some(off)) => report.ratio(name, on, "instructions", "unsealed", off),
        _ => eprintln!("{name}: left out, valgrind is not installed"),
    }
}

/// The same setup, sealed.
fn sealed(setup: Setup) -> Setup {
    Setup {
        is_sealed: true,
        ..setup
    }
}

fn sealed_latency_udp(report: &mut Report, name: &str, (_, theirs): Cores) {
    const ROUNDS: usize = 20_000;
    let latency = |setup: &Setup| {
        let server = rpc::Server::start(theirs, setup);
        let mut client = rpc::connect(server.address, 1, setup);
        rpc::ping_pong(&mut client, SMALL, ROUNDS / 10);
        rpc::ping_pong(&mut client, SMALL, ROUNDS) / 1e3
    };
    let (on, off) = (sealed(Setup::default()), Setup::default());
    let pairs = Pairs::run(PAIRS, || latency(&on), || latency(&off));
    report.pairs(name, "us", "unsealed", &pairs);
}

fn sealed_rate_udp(report: &mut Report, name: &str, cores: Cores) {
    sealed_rate(report, name, cores, &sealed(Setup::default()));
}

fn sealed_rate_udp_tag_per_packet(report: &mut Report, name: &str, cores: Cores) {
    let on = sealed(Setup::with(|setup| setup.config.tag_per_run = false));
    sealed_rate(report, name, cores, &on);
}

fn sealed_rate(report: &mut Report, name: &str, (_, theirs): Cores, on: &Setup) {
    let off = Setup::default();
    let pairs = Pairs::run(
        PAIRS,
        || window_rate(theirs, on),
        || window_rate(theirs, &off),
    );
    report.pairs(name, "/s", "unsealed", &pairs);
}

fn sealed_transfer(report: &mut Report, name: &str, (_, theirs): Cores) {
    let (on, off) = (sealed(transfer_setup()), transfer_setup());
    let rate = |setup: &Setup| transfer_rate(theirs, Ratio::ZERO, setup);
    let pairs = Pairs::run(PAIRS, || rate(&on), || rate(&off));
    report.pairs(name, "B/s", "unsealed", &pairs);
}

fn sealed_cpu_time_transfer(report: &mut Report, name: &str, _: Cores) {
    const TRANSFERS: u64 = 30;
    let bytes = TRANSFERS * LARGE as u64;
    let joined = |setup| rpc::joined_by_udp(&setup, 1, 2, LARGE);
    let (mut on, mut off) = (joined(sealed(transfer_setup())), joined(transfer_setup()));
    let pairs = Pairs::run(
        PAIRS,
        || cpu_time_per(bytes, || on.complete(TRANSFERS)),
        || cpu_time_per(bytes, || off.complete(TRANSFERS)),
    );
    report.pairs(name, "ns/B", "unsealed", &pairs);
}

/// What a sealed handshake costs its server, and what a stranger's wrong proof of a cookie does.
fn sealed_handshakes(report: &mut Report, name: &str, _: Cores) {
    const HANDSHAKES: u64 = 2_000;
    let psk = Psk::new([7; 32]);
    let prologue = [0; 64];
    let (mut theirs, mut ours) = (Csprng::new([1; 32]), Csprng::new([2; 32]));
    let mut first = [0; 8 + MESSAGE_OVERHEAD];
    Initiator::begin(&psk, &prologue, &mut theirs, &[0; 8], &mut first);
    let run = |_| {
        cpu_time_per(HANDSHAKES, || {
            for _ in 0..HANDSHAKES {
                let (mut payload, mut second) =
                    ([0; 8 + MESSAGE_OVERHEAD], [0; 24 + MESSAGE_OVERHEAD]);
                let read = Responder::read(&psk, &prologue, &mut ours, &first, &mut payload);
                let (responder, _) = read.expect("the same key");
                let (keys, _) = responder.answer(&[0; 24], &mut second).expect("a point");
                std::hint::black_box((keys.sealer(), keys.opener()));
            }
        })
    };
    let cost = trine_report::median((0..PAIRS).map(run));
    report.value(name, 1e9 / cost, "/s");
    let wrong = |_| {
        cpu_time_per(HANDSHAKES, || {
            for _ in 0..HANDSHAKES {
                let is_good = CookieKey::of(&psk).is_good(&first, &[0; COOKIE_PROOF_BYTES]);
                assert!(!is_good, "a proof of nothing");
            }
        })
    };
    let cost = trine_report::median((0..PAIRS).map(wrong));
    report.value(&format!("{name}_wrong_proof"), cost, "ns");
}

fn instructions_congestion_control(report: &mut Report, name: &str, _: Cores) {
    for (name, job) in [
        (name, JOB_CONGESTION),
        (&format!("{name}_delay"), JOB_DELAY),
    ] {
        match (instructions(job), instructions(JOB_PLAIN)) {
            (Some(on), Some(off)) => report.ratio(name, on, "instructions", "switched off", off),
            _ => eprintln!("{name}: left out, valgrind is not installed"),
        }
    }
}

/// Switches one optimization off.
type Switch = fn(&mut Setup);

/// The paper's table 3 for what applies here: each optimization switched off, against all on.
fn factor_analysis(report: &mut Report, name: &str, (_, theirs): Cores) {
    let rate = |setup: &Setup| window_rate(theirs, setup);
    let rows: [(&str, Switch); 4] = [
        ("coalescing", |setup| setup.udp.coalesce = false),
        ("offload", |setup| setup.udp.offload = false),
        ("cumulative_credits", |setup| {
            setup.config.cumulative_credits = Some(false)
        }),
        ("batched_timestamps", |setup| {
            setup.config.congestion.batched_timestamps = false;
        }),
    ];
    for (optimization, switch_off) in rows {
        let without = Setup::with(switch_off);
        let pairs = Pairs::run(PAIRS_MIN, || rate(&without), || rate(&Setup::default()));
        report.pairs(
            &format!("{name}_rate_without_{optimization}"),
            "/s",
            "all on",
            &pairs,
        );
        let mut without = transfer_setup();
        switch_off(&mut without);
        let transfer = |setup: &Setup| transfer_rate(theirs, Ratio::ZERO, setup);
        let pairs = Pairs::run(
            PAIRS_MIN,
            || transfer(&without),
            || transfer(&transfer_setup()),
        );
        report.pairs(
            &format!("{name}_transfer_without_{optimization}"),
            "B/s",
            "all on",
            &pairs,
        );
    }
    for (optimization, job) in [
        ("timely_bypass", JOB_NO_TIMELY_BYPASS),
        ("rate_limiter_bypass", JOB_NO_LIMITER_BYPASS),
    ] {
        if let (Some(off), Some(on)) = (instructions(job), instructions(JOB_CONGESTION)) {
            let row = format!("{name}_instructions_without_{optimization}");
            report.ratio(&row, off, "instructions", "all on", on);
        }
    }
}
