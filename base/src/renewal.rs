//! Names that are looked up again by commands that run for long: replicas move, and a name follows them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::config::LOOKUP_AGAIN;
use crate::lookup::Lookups;
use crate::peers;

/// The names of a list of peers, looked up again while no replica answers.
pub struct Renewal {
    /// Those that are no numbers, each with whether its lookup is under way.
    names: Vec<(String, bool)>,
    /// Of the family of the socket that is open.
    is_v4: bool,
    /// Their threads, from the first lookup on.
    lookups: Option<Lookups>,
    next_at: Instant,
}

impl Renewal {
    /// For a list that stood for these addresses.
    #[must_use]
    pub fn of(list: &str, known: &[SocketAddr]) -> Self {
        let items = peers::items(list).unwrap_or_default();
        let names = items
            .into_iter()
            .filter(|item| item.parse::<SocketAddr>().is_err());
        Self {
            names: names.map(|name| (name.to_owned(), false)).collect(),
            is_v4: known.iter().all(SocketAddr::is_ipv4),
            lookups: None,
            next_at: Instant::now(),
        }
    }

    /// The addresses that have been found since the last call. It begins lookups, at most one a name every five seconds, and
    /// waits for none. Call it while no replica answers.
    pub fn poll(&mut self) -> Vec<SocketAddr> {
        if self.names.is_empty() {
            return Vec::new();
        }
        if self.lookups.is_none() {
            // Without a thread the known addresses have to do.
            self.lookups = Lookups::start(self.names.len()).ok();
        }
        let Some(lookups) = &self.lookups else {
            return Vec::new();
        };
        if Instant::now() >= self.next_at {
            self.next_at = Instant::now() + LOOKUP_AGAIN;
            for (number, (name, is_asked)) in self.names.iter_mut().enumerate() {
                // One that hangs is not asked again.
                if !std::mem::replace(is_asked, true) {
                    lookups.begin(number, name);
                }
            }
        }
        let mut addresses = Vec::new();
        while let Some((number, found)) = lookups.next(Duration::ZERO) {
            self.names[number].1 = false;
            let found = found.unwrap_or_default();
            addresses.extend(found.into_iter().find(|at| at.is_ipv4() == self.is_v4));
        }
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_again_and_numbers_are_not() {
        let known = ["127.0.0.1:7".parse().expect("an address")];
        let mut numbers = Renewal::of("127.0.0.1:7,127.0.0.1:8", &known);
        assert_eq!(numbers.poll(), []);
        assert!(numbers.lookups.is_none());
        let mut names = Renewal::of("localhost:7,no-such-name.invalid:9,127.0.0.1:8", &known);
        let (mut found, begun) = (Vec::new(), Instant::now());
        while found.is_empty() && begun.elapsed() < Duration::from_secs(15) {
            found = names.poll();
            std::thread::yield_now();
        }
        assert_eq!(found, known);
    }
}
