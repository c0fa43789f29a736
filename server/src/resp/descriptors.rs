//! How many Redis clients may be connected at a time. Each takes a descriptor, and the replica needs some itself: without one
//! it cannot begin another segment of its log, and ends.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trine_base::announce::note;
use trine_base::failure::Failure;

/// Descriptors that a replica needs beside its clients: 27 that are always open, and those of files of the log, snapshots,
/// keys and certificates, of a new process that tells of the replica's end, and of the log's spare ones.
const RESERVE: u64 = 44;
/// What the metrics endpoint needs beside that, for its own connections.
const RESERVE_OF_METRICS: u64 = 16;

/// Raises the limit of descriptors as far as the system allows, and returns how many of `wanted` clients fit below it. Says
/// so if that is fewer.
///
/// # Errors
/// None fits.
pub(super) fn clients_max(wanted: usize, has_metrics: bool) -> Result<usize, Failure> {
    let limit = raise_limit();
    let reserve = RESERVE + if has_metrics { RESERVE_OF_METRICS } else { 0 };
    let most = fit(wanted, limit, reserve)?;
    if most < wanted {
        note(format_args!(
            "serves at most {most} Redis clients at a time, not {wanted} (--resp-max-clients): this process may have {} \
             descriptors (ulimit -n), and keeps {reserve} for itself",
            limit.unwrap_or(u64::MAX)
        ));
    }
    Ok(most)
}

fn fit(wanted: usize, limit: Option<u64>, reserve: u64) -> Result<usize, Failure> {
    let Some(limit) = limit else {
        return Ok(wanted);
    };
    let left = usize::try_from(limit.saturating_sub(reserve)).unwrap_or(usize::MAX);
    match wanted.min(left) {
        0 => Err(Failure::usage(
            format!(
                "this process may have {limit} descriptors (ulimit -n), and a replica needs {reserve} for itself: none is \
                 left for a Redis client"
            ),
            "raise the limit (`ulimit -n 65536`; systemd: LimitNOFILE=65536), or leave --resp out",
        )),
        most => Ok(most),
    }
}

/// The limit after it was raised; none if there is none.
fn raise_limit() -> Option<u64> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    // If it stays lower, fewer clients fit.
    let _ = setrlimit(Resource::Nofile, wanted);
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About 4,000 idle clients took every descriptor of a replica, whose log could open no file any more.
    #[test]
    fn clients_leave_the_descriptors_of_the_replica_alone() {
        assert_eq!(fit(10_000, None, 44).ok(), Some(10_000));
        assert_eq!(fit(10_000, Some(65_536), 44).ok(), Some(10_000));
        assert_eq!(fit(10_000, Some(4_096), 44).ok(), Some(4_052));
        assert_eq!(fit(10, Some(60), 44).ok(), Some(10));
        assert_eq!(fit(10_000, Some(45), 44).ok(), Some(1));
        for limit in [0, 43, 44] {
            let failure = fit(10_000, Some(limit), 44).expect_err("none is left");
            let said = failure.message();
            assert!(
                said.contains(&format!("may have {limit} descriptors")),
                "{said}"
            );
        }
    }
}
