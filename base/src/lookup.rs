//! Lookups of names, in threads of their own: a resolver may hang, and its caller has other things to do.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::{CLIENT_LOOK, LOOKUP_GRACE, LOOKUP_LIMIT, LOOKUPS_MAX};
use crate::failure::Failure;
use crate::interrupt;

/// The addresses of a `host:port`, at least one; or why there is none.
pub type LookupResult = Result<Vec<SocketAddr>, String>;

/// One `host:port` to look up, under the caller's number for it.
struct LookupJob {
    number: usize,
    item: String,
}

/// At most `LOOKUPS_MAX` lookups at a time. One that hangs keeps its thread, and the process may end all the same.
pub struct Lookups {
    jobs: Sender<LookupJob>,
    found: Receiver<(usize, LookupResult)>,
}

impl Lookups {
    /// Threads for `count` names. They run where the calling thread may run.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(count: usize) -> io::Result<Self> {
        let (jobs, waiting) = channel::<LookupJob>();
        let (tell, found) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..count.clamp(1, LOOKUPS_MAX) {
            let (waiting, tell) = (Arc::clone(&waiting), tell.clone());
            std::thread::Builder::new()
                .name("names".into())
                .spawn(move || work(&waiting, &tell))?;
        }
        Ok(Self { jobs, found })
    }

    /// Begins a lookup, as soon as a thread is free.
    pub fn begin(&self, number: usize, item: &str) {
        let item = item.to_owned();
        // The threads end after this value, never before it.
        drop(self.jobs.send(LookupJob { number, item }));
    }

    /// The next lookup that has ended, if one does within `limit`.
    pub fn next(&self, limit: Duration) -> Option<(usize, LookupResult)> {
        self.found.recv_timeout(limit).ok()
    }
}

/// Looks names up until the [`Lookups`] are dropped.
fn work(waiting: &Mutex<Receiver<LookupJob>>, tell: &Sender<(usize, LookupResult)>) {
    loop {
        let next = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(LookupJob { number, item }) = next else {
            return;
        };
        if tell.send((number, of(&item))).is_err() {
            return;
        }
    }
}

/// Waits for the addresses of all `items`: for all of them, or for a moment more once one is known. Numbers cost nothing.
///
/// # Errors
/// Ctrl-C, or no thread for a lookup.
pub fn of_all(items: &[&str]) -> Result<Vec<LookupResult>, Failure> {
    let mut found: Vec<Option<LookupResult>> = items
        .iter()
        .map(|item| item.parse().ok().map(|number| Ok(vec![number])))
        .collect();
    let names = found.iter().filter(|found| found.is_none()).count();
    if names > 0 {
        wait_for(items, &mut found, names)?;
    }
    let late = || Err("no answer from the name service".to_owned());
    Ok(found
        .into_iter()
        .map(|found| found.unwrap_or_else(late))
        .collect())
}

/// One address of a `host:port`; the inner error says why there is none.
///
/// # Errors
/// Ctrl-C, or no thread for the lookup.
pub fn first_of(item: &str) -> Result<Result<SocketAddr, String>, Failure> {
    let found = of_all(&[item])?.swap_remove(0);
    Ok(found.map(|found| found[0]))
}

fn wait_for(
    items: &[&str],
    found: &mut [Option<LookupResult>],
    names: usize,
) -> Result<(), Failure> {
    let lookups = Lookups::start(names)
        .map_err(|error| Failure::usage(format!("cannot start a thread: {error}"), ""))?;
    for (number, item) in items.iter().enumerate() {
        if found[number].is_none() {
            lookups.begin(number, item);
        }
    }
    let mut until = Instant::now() + LOOKUP_LIMIT;
    let mut some = false;
    while found.iter().any(Option::is_none) {
        if !some && found.iter().flatten().any(Result::is_ok) {
            some = true;
            until = until.min(Instant::now() + LOOKUP_GRACE);
        }
        if Instant::now() >= until {
            break;
        }
        interrupt::check()?;
        if let Some((number, answer)) = lookups.next(CLIENT_LOOK) {
            found[number] = Some(answer);
        }
    }
    Ok(())
}

/// The addresses of one `host:port`, without those that nobody could send to.
fn of(item: &str) -> LookupResult {
    let all = item.to_socket_addrs().map_err(|error| error.to_string())?;
    let (fit, unfit): (Vec<_>, Vec<_>) = all.partition(|address| names_one_host(address.ip()));
    match (fit.is_empty(), unfit.first()) {
        (false, _) => Ok(fit),
        (true, Some(unfit)) => Err(format!(
            "it resolves to {}, which is not the address of a host",
            unfit.ip()
        )),
        (true, None) => Err("the name has no address".to_owned()),
    }
}

/// Whether packets to this address go to one host.
fn names_one_host(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || broadcast)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_no_lookup_and_names_that_fail_keep_no_other_from_its_address() {
        let items = ["127.0.0.1:7", "localhost:8", "no-such-name.invalid:9"];
        let found = of_all(&items).expect("threads");
        assert_eq!(
            found[0],
            Ok(vec!["127.0.0.1:7".parse().expect("an address")])
        );
        let local = found[1].as_ref().expect("every host knows its own name");
        assert!(
            local
                .iter()
                .all(|at| at.ip().is_loopback() && at.port() == 8)
        );
        found[2]
            .as_ref()
            .expect_err("it is reserved for not existing");
    }

    /// A resolver that answers with such an address would have a replica send to every host, or to itself.
    #[test]
    fn addresses_of_no_single_host_do_not_count() {
        for unfit in [
            "0.0.0.0:7",
            "[::]:7",
            "224.0.0.1:7",
            "255.255.255.255:7",
            "[ff02::1]:7",
        ] {
            let why = of(unfit).expect_err(unfit);
            assert!(why.contains("not the address of a host"), "{why}");
        }
        of("10.0.0.1:7").expect("a host");
    }

    #[test]
    fn more_names_than_threads_are_all_looked_up() {
        let lookups = Lookups::start(1).expect("a thread");
        for number in 0..9 {
            lookups.begin(number, &format!("127.0.0.1:{}", 7000 + number));
        }
        for number in 0..9 {
            let (which, found) = lookups.next(LOOKUP_LIMIT).expect("an answer");
            assert_eq!(which, number);
            assert_eq!(found.expect("an address")[0].port(), 7000 + number as u16);
        }
    }
}
