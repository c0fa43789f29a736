//! Measurements of the eRPC paper that are tables and not ratios: messages that are copied (table 3), round trips on many
//! sessions (section 6.3), transfers by size (figure 6).

use trine_report::{PAIRS_MIN, Pairs, Report};
use trine_transport::time::Duration as Span;

use super::rpc::{self, Setup};
use super::{Cores, JOB_PLAIN, SMALL, instructions, window_rate};

/// The job whose handler copies each request before it reads it.
pub(crate) const JOB_COPIED_REQUESTS: &str = "copied-requests";
/// The job whose handler builds each response in other memory.
pub(crate) const JOB_COPIED_RESPONSES: &str = "copied-responses";

/// Switches one of the two off.
type Switch = fn(&mut Setup);

/// Zero-copy reception, and responses that are built in place: each switched off, against both on.
pub(crate) fn copies(report: &mut Report, name: &str, (_, theirs): Cores) {
    let rows: [(&str, Switch); 2] = [
        ("zero_copy_reception", |setup| setup.copies.requests = true),
        ("responses_in_place", |setup| setup.copies.responses = true),
    ];
    for (optimization, switch_off) in rows {
        let without = Setup::with(switch_off);
        let pairs = Pairs::run(
            PAIRS_MIN,
            || window_rate(theirs, &without),
            || window_rate(theirs, &Setup::default()),
        );
        let row = format!("{name}_rate_without_{optimization}");
        report.pairs(&row, "/s", "all on", &pairs);
    }
}

/// The same in instructions, which need no quiet machine.
pub(crate) fn copies_counted(report: &mut Report, name: &str, _: Cores) {
    for (optimization, job) in [
        ("zero_copy_reception", JOB_COPIED_REQUESTS),
        ("responses_in_place", JOB_COPIED_RESPONSES),
    ] {
        let row = format!("{name}_without_{optimization}");
        match (instructions(job), instructions(JOB_PLAIN)) {
            (Some(off), Some(on)) => report.ratio(&row, off, "instructions", "all on", on),
            _ => eprintln!("{row}: left out, valgrind is not installed"),
        }
    }
}

/// Round trips with 64 requests under way, on few sessions and on many. Each session has one request at a time.
pub(crate) fn session_percentiles(report: &mut Report, name: &str, (_, theirs): Cores) {
    const SPAN_MS: u64 = 3_000;
    for sessions in [64, 1_000, 20_000] {
        let setup = Setup::with(|setup| {
            setup.config.sessions = sessions;
            setup.config.credits = 1;
            setup.config.overcommit = true;
        });
        let server = rpc::Server::start(theirs, &setup);
        let mut client = rpc::connect(server.address, sessions, &setup);
        client.app_mut().watch();
        rpc::rate(&mut client, SMALL, 64, Span::from_millis(SPAN_MS));
        let mut times = client.app_mut().watched();
        times.sort_unstable();
        for (percentile, share) in [("p50", 0.5), ("p99", 0.99), ("p99_99", 0.9999)] {
            let place = (times.len() - 1) as f64 * share;
            let time = f64::from(times[place as usize]) / 1e3;
            report.value(
                &format!("{name}_{sessions}_sessions_{percentile}"),
                time,
                "us",
            );
        }
    }
}

/// Requests of a size, one under way, with 32 credits.
pub(crate) fn transfers_by_size(report: &mut Report, name: &str, (_, theirs): Cores) {
    const SPAN_MS: u64 = 500;
    let setup = Setup::with(|setup| setup.config.credits = 32);
    for shift in [9, 11, 13, 15, 17, 19, 21, 23] {
        let bytes = 1_usize << shift;
        let run = || {
            let server = rpc::Server::start(theirs, &setup);
            let mut client = rpc::connect(server.address, 1, &setup);
            rpc::rate(&mut client, bytes, 1, Span::from_millis(SPAN_MS)) * bytes as f64
        };
        let rate = trine_report::median((0..PAIRS_MIN).map(|_| run()));
        report.value(&format!("{name}_{bytes}_b"), rate, "B/s");
    }
}
