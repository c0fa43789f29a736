//! `cargo bench -p trine-replica [NAME...]`: a replicated write in one process, beside what it can be at best.

mod chain;
mod count;
mod group;
mod leader_alone;
mod scans;
mod udp;
mod watches;

use std::time::Instant;

use mimalloc::MiMalloc;

use trine_report::{Pairs, Report};

use group::{PIPELINE, Writes};
use watches::Watching;

/// What `trine` runs on: raft-rs allocates, and glibc's allocator doubles what that costs.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// As in the paper: 16-byte keys, 64-byte values.
const KEY: usize = 16;
const VALUE: usize = 64;
const PAIRS: usize = 8;
/// Commands in flight in the throughput runs: what one logical client may pipeline.
const BATCH: usize = 64;

/// Measures what its name says.
type Measurement = fn(&mut Report, &str);

fn main() {
    if let Some(job) = std::env::args().skip_while(|arg| arg != count::JOB).nth(1) {
        return counted_job(&job);
    }
    // Cargo passes `--bench`; everything else selects measurements by a part of their name.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut report = Report::new("replica");
    let measurements: [(&str, Measurement); 17] = [
        ("put_latency_udp", latency_udp),
        ("put_rate_udp_window_256", rate_udp),
        ("put_latency_ring_one_thread", latency_ring),
        ("put_rate_ring_one_thread_window_64", rate_ring),
        ("put_instructions_leader_batch_64", instructions_leader),
        ("put_instructions_client_batch_64", instructions_client),
        ("put_instructions_group_pipelines", instructions_pipelines),
        (
            "ordered_overwrite_instructions_leader",
            instructions_ordered,
        ),
        (
            "ordered_overwrite_pinned_instructions_leader",
            instructions_pinned,
        ),
        (
            "ordered_overwrite_history_instructions_leader",
            instructions_history,
        ),
        (
            "ordered_overwrite_watchers_30_instructions_group",
            instructions_watched,
        ),
        ("watched_put_rate_udp", watched_rate),
        ("watched_put_p99_udp", watched_p99),
        ("scan_stream_ring_copy", scan_against_copy),
        ("scan_stream_ring_transport", scan_against_transport),
        ("ordered_new_key_instructions_leader", instructions_ordered),
        ("ordered_delete_instructions_leader", instructions_ordered),
    ];
    for (name, measure) in measurements {
        if is_wanted(name) {
            measure(&mut report, name);
        }
    }
    report.finish();
}

/// One client, one write in flight; client and replicas each in a thread, as is every hop of the bare chain.
fn latency_udp(report: &mut Report, name: &str) {
    const ROUNDS: usize = 4_000;
    let trine = || {
        let cluster = udp::Cluster::start();
        let mut client = cluster.client();
        udp::put_latency_us(&mut client, ROUNDS / 4);
        udp::put_latency_us(&mut client, ROUNDS)
    };
    let bare = || {
        let chain = chain::Chain::start();
        chain.latency_us(ROUNDS / 4);
        chain.latency_us(ROUNDS)
    };
    let pairs = Pairs::run(PAIRS, trine, bare);
    report.pairs(name, "us", "bare UDP chain", &pairs);
}

/// Four logical clients in one thread, each with 64 writes in flight.
fn rate_udp(report: &mut Report, name: &str) {
    let run = |_| {
        let cluster = udp::Cluster::start();
        udp::put_rate(&cluster, 4, 1_000)
    };
    let rate = trine_report::median((0..PAIRS).map(run));
    report.value(name, rate, "/s");
}

/// What the code alone costs: no system calls, one thread does the work of all four.
fn latency_ring(report: &mut Report, name: &str) {
    const WRITES: u64 = 50_000;
    let mut group = group::Group::start();
    group.write(WRITES / 10, 1);
    let run = |_| {
        let start = Instant::now();
        group.write(WRITES, 1);
        start.elapsed().as_secs_f64() / WRITES as f64 * 1e6
    };
    let latency = trine_report::median((0..PAIRS).map(run));
    report.value(name, latency, "us");
}

fn rate_ring(report: &mut Report, name: &str) {
    const WRITES: u64 = 500_000;
    let mut group = group::Group::start();
    group.write(WRITES / 10, BATCH);
    let run = |_| {
        let start = Instant::now();
        group.write(WRITES, BATCH);
        WRITES as f64 / start.elapsed().as_secs_f64()
    };
    let rate = trine_report::median((0..PAIRS).map(run));
    report.value(name, rate, "/s");
}

/// A scan of all items at one position against a loop that copies them.
fn scan_against_copy(report: &mut Report, name: &str) {
    let mut rates = scans::Rates::new();
    let mut streams = Vec::new();
    let mut copies = Vec::new();
    for _ in 0..PAIRS {
        streams.push(rates.stream() / 1e6);
        copies.push(rates.copy() / 1e6);
    }
    report_medians(
        report,
        name,
        streams,
        "a loop that copies the items",
        copies,
    );
}

/// The same against responses of 256 KiB by the transport.
fn scan_against_transport(report: &mut Report, name: &str) {
    let mut rates = scans::Rates::new();
    let mut streams = Vec::new();
    let mut responses = Vec::new();
    for _ in 0..PAIRS {
        streams.push(rates.stream() / 1e6);
        responses.push(rates.bare() / 1e6);
    }
    report_medians(report, name, streams, "responses of 256 KiB", responses);
}

fn report_medians(report: &mut Report, name: &str, ours: Vec<f64>, beside: &str, others: Vec<f64>) {
    let (ours, others) = (
        trine_report::median(ours.into_iter()),
        trine_report::median(others.into_iter()),
    );
    report.ratio(name, ours, "MB/s", beside, others);
}

/// Writes a second while 10,000 watches on distinct keys wait, against none. One write in ten has an event. And what a write
/// costs the replicas alone, without the watchers.
fn watched_rate(report: &mut Report, name: &str) {
    let times = [(); 2].map(|()| std::cell::RefCell::new(Vec::new()));
    let note = |at: usize, written: udp::Written| {
        times[at].borrow_mut().push(written.group_ns);
        written.rate
    };
    let watched = || {
        let cluster = udp::Cluster::start_sleeping();
        let watching = Watching::of_keys(&cluster);
        let written = udp::put(&cluster, 4, 1_000);
        assert!(watching.seen().0 > 0, "no watcher has seen a write");
        note(0, written)
    };
    let unwatched = || note(1, udp::put(&udp::Cluster::start_sleeping(), 4, 1_000));
    let pairs = Pairs::run(PAIRS, watched, unwatched);
    report.pairs(name, "/s", "without watches", &pairs);
    let [watched, unwatched] =
        times.map(|times| trine_report::median(times.into_inner().into_iter()));
    let name = format!("{name}_group_time");
    report.ratio(&name, watched, "ns a write", "without watches", unwatched);
}

/// The p99 of 1,000 writes a second that 240 endpoints see all of, against none; and what they see.
fn watched_p99(report: &mut Report, name: &str) {
    const ROUNDS: u64 = 3_000;
    let (mut events, mut bytes) = (Vec::new(), Vec::new());
    let watched = || {
        let cluster = udp::Cluster::start_sleeping();
        let mut client = cluster.client();
        udp::put_p99_us(&mut client, ROUNDS / 4);
        let watching = Watching::of_all(&cluster);
        let ((events_before, bytes_before), begun) = (watching.seen(), Instant::now());
        let p99 = udp::put_p99_us(&mut client, ROUNDS);
        let ((events_after, bytes_after), span) = (watching.seen(), begun.elapsed());
        events.push((events_after - events_before) as f64 / span.as_secs_f64());
        bytes.push((bytes_after - bytes_before) as f64 / span.as_secs_f64() / 1e6);
        p99
    };
    let unwatched = || {
        let cluster = udp::Cluster::start_sleeping();
        let mut client = cluster.client();
        udp::put_p99_us(&mut client, ROUNDS / 4);
        udp::put_p99_us(&mut client, ROUNDS)
    };
    let pairs = Pairs::run(PAIRS, watched, unwatched);
    report.pairs(name, "us", "without watchers", &pairs);
    let median = |values: Vec<f64>| trine_report::median(values.into_iter());
    report.value(&format!("{name}_events"), median(events), "/s");
    report.value(&format!("{name}_bytes"), median(bytes), "MB/s");
}

const JOB_GROUP: &str = "group";
const JOB_RAFT: &str = "raft";
/// Rounds of [`BATCH`] writes that a counted job makes beyond its preparation.
const COUNTED_ROUNDS: u64 = 2_000;

const JOB_PIPELINES: &str = "pipelines";
/// Commands of [`PIPELINE`] writes.
const COUNTED_PIPELINES: u64 = 4_000;

/// What a child process does while its instructions are counted: only those of the leader's turns.
fn counted_job(job: &str) {
    match job {
        JOB_GROUP => {
            let mut group = group::Group::start();
            group.write_counted(COUNTED_ROUNDS * BATCH as u64, BATCH);
        }
        JOB_PIPELINES => {
            let mut group = group::Group::start();
            group.count_all();
            group.go_on_with(Writes::Pipelines(KEYS_IN_ORDER));
            group.write(KEYS_IN_ORDER / PIPELINE, BATCH);
            group.write_counted(COUNTED_PIPELINES, BATCH);
        }
        JOB_RAFT => leader_alone::run_counted(COUNTED_ROUNDS, BATCH, KEY + VALUE),
        other => counted_writes(other),
    }
}

/// Keys of the jobs that compare a group that has an index of its keys with one that has none.
const KEYS_IN_ORDER: u64 = 30_000;
const JOB_ORDERED: &str = "ordered_";
const JOB_UNORDERED: &str = "unordered_";

/// A job is the name of its row behind one of the two prefixes.
fn counted_writes(job: &str) {
    let ordered = job.starts_with(JOB_ORDERED);
    let history = !job.contains(JOB_FORGETFUL);
    let mut group = match job.split_once(JOB_WATCHED) {
        Some((_, rest)) => {
            let (watchers, _) = rest.split_once('_').expect("a number and more words");
            group::Group::start_watched(watchers.parse().expect("a number"))
        }
        None => group::Group::start_with(ordered, history),
    };
    let writes = if job.contains("overwrite") {
        Writes::Overwrite(KEYS_IN_ORDER)
    } else if job.contains("delete") {
        Writes::Deletions
    } else {
        Writes::NewKeys
    };
    if writes != Writes::NewKeys {
        group.go_on_with(Writes::Overwrite(KEYS_IN_ORDER));
        group.write(KEYS_IN_ORDER, BATCH);
    }
    group.go_on_with(writes);
    // Each write is then the first one of its key since the pin, so each leaves a block behind.
    let pin = job.contains(JOB_PINNED).then(|| group.pin());
    group.write_counted(KEYS_IN_ORDER, BATCH);
    if let Some(pin) = pin {
        group.unpin(pin);
    }
}

const JOB_WATCHED: &str = "watchers_";
const JOB_PINNED: &str = "pinned_";
const JOB_HISTORY: &str = "history_";
const JOB_FORGETFUL: &str = "forgetful_";

/// The same keys in a group that has the index, with a pin and without one.
fn instructions_pinned(report: &mut Report, name: &str) {
    instructions_beside(report, name, (JOB_PINNED, ""), "without a pin");
}

/// The same keys in a group that keeps the latest changes for watches, of which there is none, and in one that does not.
fn instructions_history(report: &mut Report, name: &str) {
    let jobs = (JOB_HISTORY, JOB_FORGETFUL);
    instructions_beside(report, name, jobs, "without a history");
}

/// Thirty watchers of 100 keys each: one write in ten is of a watched key. All replicas, with all their turns, against the
/// same without watchers.
fn instructions_watched(report: &mut Report, name: &str) {
    let jobs = ("watchers_30", "watchers_0");
    instructions_beside(report, name, jobs, "without watches");
}

/// A job beside the one with another word in its name.
fn instructions_beside(report: &mut Report, name: &str, (word, other): (&str, &str), beside: &str) {
    let per_write = |job: &str| {
        count::in_function(job, group::COUNTED).map(|count| count as f64 / KEYS_IN_ORDER as f64)
    };
    match (per_write(name), per_write(&name.replacen(word, other, 1))) {
        (Ok(with), Ok(without)) => report.ratio(name, with, "instructions", beside, without),
        (Err(reason), _) | (_, Err(reason)) => eprintln!("{name}: skipped, {reason}"),
    }
}

/// Random keys of 16 bytes.
fn instructions_ordered(report: &mut Report, name: &str) {
    let jobs = (JOB_ORDERED, JOB_UNORDERED);
    instructions_beside(report, name, jobs, "without the index");
}

/// Instructions inside `function`, for each of the writes of `job`.
fn counted(job: &str, function: &str) -> Result<f64, String> {
    let writes = (COUNTED_ROUNDS * BATCH as u64) as f64;
    count::in_function(job, function).map(|instructions| instructions as f64 / writes)
}

/// The whole leader, transport and store included, against raft's leader alone, which gets its proposals and answers
/// as values and keeps its log in a vector.
fn instructions_leader(report: &mut Report, name: &str) {
    match (
        counted(JOB_GROUP, group::COUNTED),
        counted(JOB_RAFT, leader_alone::COUNTED),
    ) {
        (Ok(ours), Ok(raft)) => {
            report.ratio(name, ours, "instructions", "raft-rs leader alone", raft)
        }
        (Err(reason), _) | (_, Err(reason)) => eprintln!("{name}: skipped, {reason}"),
    }
}

/// All replicas, for each PUT of commands that have sixteen of them, as the Redis front makes of a pipeline.
fn instructions_pipelines(report: &mut Report, name: &str) {
    match count::in_function(JOB_PIPELINES, group::COUNTED) {
        Ok(count) => {
            let puts = (COUNTED_PIPELINES * PIPELINE) as f64;
            report.value(name, count as f64 / puts, "instructions");
        }
        Err(reason) => eprintln!("{name}: skipped, {reason}"),
    }
}

/// The client's turns, transport included; encoding the command is its caller's.
fn instructions_client(report: &mut Report, name: &str) {
    match counted(JOB_GROUP, group::COUNTED_CLIENT) {
        Ok(ours) => report.value(name, ours, "instructions"),
        Err(reason) => eprintln!("{name}: skipped, {reason}"),
    }
}
