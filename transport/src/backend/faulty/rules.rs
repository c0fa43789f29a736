//! The faults and their rates: the rules, their text form, and the handle that changes them.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::Route;
use crate::prng::Ratio;
use crate::time::Duration;

/// Faults on the wire packets of a link, each drawn independently for each packet.
///
/// Written and parsed as `loss=5%,dup=1%,reorder=2%,corrupt=0.1%,delay=1ms..5ms`; faults that are
/// not named do not happen. `delay=2ms` delays every packet by two milliseconds, `blocked` alone is
/// [`Faults::CUT`].
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// The packet disappears.
    pub loss: Ratio,
    /// The packet arrives twice.
    pub duplicate: Ratio,
    /// The packet is held back until the next one of its link has passed it, or for
    /// [`REORDER_HOLD`] if none comes.
    pub reorder: Ratio,
    /// One bit of the packet is inverted.
    pub corrupt: Ratio,
    /// The packet takes longer by a time drawn uniformly between the two.
    pub delay: Option<(Duration, Duration)>,
}

/// How long a reordered packet waits for another one to pass it.
pub const REORDER_HOLD: Duration = Duration::from_millis(2);

/// Which way a packet goes, as this endpoint sees it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From this endpoint to the peer.
    Outbound,
    /// From the peer to this endpoint.
    Inbound,
}

/// How often each fault has fired, and how many packets were examined.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct FaultCounts {
    /// Wire packets that passed a link with faults, whatever became of them.
    pub packets: u64,
    /// Packets lost on purpose.
    pub lost: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets held back to be overtaken.
    pub reordered: u64,
    /// Packets with a bit inverted.
    pub corrupted: u64,
    /// Packets delayed.
    pub delayed: u64,
    /// Packets lost because there was no memory or room to hold them back.
    pub overflowed: u64,
}

/// Changes the faults of a running [`Faulty`](super::Faulty) from any thread, and reads what fired.
#[derive(Clone)]
pub struct FaultHandle<R> {
    shared: Arc<FaultControl<R>>,
}

pub(super) struct FaultControl<R> {
    rules: Mutex<Rules<R>>,
    /// Counts changes of the rules, so that the backend reads them only when they have changed.
    version: AtomicU64,
    counters: [FaultCounters; 2],
}

/// The rules of one endpoint. A link's own rule takes precedence over the general one.
#[derive(Clone, Debug)]
pub(super) struct Rules<R> {
    general: [Faults; 2],
    links: HashMap<R, [Option<Faults>; 2]>,
}

#[derive(Default)]
pub(super) struct FaultCounters {
    pub(super) packets: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) duplicated: AtomicU64,
    pub(super) reordered: AtomicU64,
    pub(super) corrupted: AtomicU64,
    pub(super) delayed: AtomicU64,
    pub(super) overflowed: AtomicU64,
}

/// The text does not describe faults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseFaultsError {
    part: String,
    reason: String,
}

impl Direction {
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Outbound => 0,
            Self::Inbound => 1,
        }
    }
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        loss: Ratio::ZERO,
        duplicate: Ratio::ZERO,
        reorder: Ratio::ZERO,
        corrupt: Ratio::ZERO,
        delay: None,
    };
    /// The link is cut.
    pub const CUT: Self = Self {
        loss: Ratio::ONE,
        ..Self::NONE
    };

    /// Packets are lost with this probability, nothing else goes wrong.
    #[must_use]
    pub const fn loss(loss: Ratio) -> Self {
        Self { loss, ..Self::NONE }
    }

    /// True if nothing can go wrong.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.named().next().is_none()
    }

    /// The faults with a rate, by their names.
    fn ratios(&self) -> [(&'static str, Ratio); 4] {
        [
            ("loss", self.loss),
            ("dup", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ]
    }

    /// The names of the faults that can happen.
    pub fn named(&self) -> impl Iterator<Item = &'static str> {
        let ratios = self.ratios().into_iter();
        let rated = ratios
            .filter(|(_, ratio)| !ratio.is_zero())
            .map(|(name, _)| name);
        rated.chain(self.delay.map(|_| "delay"))
    }
}

/// The names of the counts; those of faults are the faults' own.
const COUNT_NAMES: [&str; 7] = [
    "packets", "loss", "dup", "reorder", "corrupt", "delay", "overflow",
];

impl FaultCounts {
    fn values(&self) -> [u64; 7] {
        [
            self.packets,
            self.lost,
            self.duplicated,
            self.reordered,
            self.corrupted,
            self.delayed,
            self.overflowed,
        ]
    }

    fn values_mut(&mut self) -> [&mut u64; 7] {
        [
            &mut self.packets,
            &mut self.lost,
            &mut self.duplicated,
            &mut self.reordered,
            &mut self.corrupted,
            &mut self.delayed,
            &mut self.overflowed,
        ]
    }

    /// All counts by name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COUNT_NAMES.into_iter().zip(self.values())
    }

    /// The counts with these names; other names are ignored, and what is not named is zero.
    #[must_use]
    pub fn from_named<'a>(named: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        let mut counts = Self::default();
        for (name, count) in named {
            let mut all = COUNT_NAMES.into_iter().zip(counts.values_mut());
            if let Some((_, value)) = all.find(|(known, _)| *known == name) {
                *value = count;
            }
        }
        counts
    }

    /// The counts of those faults that were asked for, by the names of the faults.
    pub fn of(&self, faults: &Faults) -> impl Iterator<Item = (&'static str, u64)> {
        let asked: Vec<&str> = faults.named().collect();
        self.named().filter(move |(name, _)| asked.contains(name))
    }

    /// How often any fault fired.
    #[must_use]
    pub fn damaged(&self) -> u64 {
        self.lost + self.duplicated + self.reordered + self.corrupted + self.delayed
    }

    /// Adds the counts of another endpoint.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.values_mut().into_iter().zip(other.values()) {
            *sum += count;
        }
    }
}

impl<R: Route> FaultHandle<R> {
    pub(super) fn new() -> Self {
        let rules = Rules {
            general: [Faults::NONE; 2],
            links: HashMap::new(),
        };
        let shared = FaultControl {
            rules: Mutex::new(rules),
            version: AtomicU64::new(0),
            counters: Default::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    pub(super) fn shared(&self) -> &FaultControl<R> {
        &self.shared
    }

    /// Sets the faults of every link in one direction, except for links with a rule of their own.
    pub fn set(&self, direction: Direction, faults: Faults) {
        self.change(|rules| rules.general[direction.index()] = faults);
    }

    /// Sets the faults of the link with `peer` in one direction.
    pub fn set_link(&self, peer: R, direction: Direction, faults: Faults) {
        self.change(|rules| rules.links.entry(peer).or_default()[direction.index()] = Some(faults));
    }

    /// Removes the link's own rules; the general ones apply again.
    pub fn clear_link(&self, peer: R) {
        self.change(|rules| {
            rules.links.remove(&peer);
        });
    }

    /// Replaces all rules at once: the general ones by direction (outbound, inbound), and the links' own.
    /// Packets held back still arrive.
    pub fn replace(
        &self,
        general: [Faults; 2],
        links: impl IntoIterator<Item = (R, [Option<Faults>; 2])>,
    ) {
        let links = links.into_iter().collect();
        self.change(|rules| *rules = Rules { general, links });
    }

    /// Removes all rules. Packets held back still arrive.
    pub fn clear(&self) {
        self.change(|rules| {
            *rules = Rules {
                general: [Faults::NONE; 2],
                links: HashMap::new(),
            }
        });
    }

    /// The faults that fired in one direction so far.
    #[must_use]
    pub fn counts(&self, direction: Direction) -> FaultCounts {
        self.shared.counters[direction.index()].snapshot()
    }

    /// The faults that fired in both directions so far.
    #[must_use]
    pub fn total(&self) -> FaultCounts {
        let mut total = self.counts(Direction::Outbound);
        total.add(&self.counts(Direction::Inbound));
        total
    }

    fn change(&self, change: impl FnOnce(&mut Rules<R>)) {
        change(&mut self.shared.lock());
        self.shared.version.fetch_add(1, Ordering::Release);
    }
}

impl<R: Route> FaultControl<R> {
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn rules(&self) -> Rules<R> {
        self.lock().clone()
    }

    pub(super) fn counters(&self, direction: Direction) -> &FaultCounters {
        &self.counters[direction.index()]
    }

    fn lock(&self) -> MutexGuard<'_, Rules<R>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Route> Rules<R> {
    pub(super) fn of(&self, peer: R, direction: Direction) -> Faults {
        let own = self
            .links
            .get(&peer)
            .and_then(|link| link[direction.index()]);
        own.unwrap_or(self.general[direction.index()])
    }

    /// True if no link has faults in this direction.
    pub(super) fn are_none(&self, direction: Direction) -> bool {
        let place = direction.index();
        self.general[place].is_none()
            && self
                .links
                .values()
                .all(|link| link[place].is_none_or(|faults| faults.is_none()))
    }
}

impl FaultCounters {
    /// Only the backend's own thread counts, others read.
    pub(super) fn count(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn snapshot(&self) -> FaultCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FaultCounts {
            packets: read(&self.packets),
            lost: read(&self.lost),
            duplicated: read(&self.duplicated),
            reordered: read(&self.reordered),
            corrupted: read(&self.corrupted),
            delayed: read(&self.delayed),
            overflowed: read(&self.overflowed),
        }
    }
}

impl<R> fmt::Debug for FaultHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultHandle")
    }
}

impl FromStr for Faults {
    type Err = ParseFaultsError;

    fn from_str(text: &str) -> Result<Self, ParseFaultsError> {
        let mut faults = Self::NONE;
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let refuse = |reason: String| ParseFaultsError {
                part: part.to_owned(),
                reason,
            };
            if part == "blocked" {
                faults.loss = Ratio::ONE;
                continue;
            }
            let Some((name, value)) = part.split_once('=') else {
                return Err(refuse(
                    "a fault is written name=value, or blocked".to_owned(),
                ));
            };
            let ratio = || {
                value
                    .parse::<Ratio>()
                    .map_err(|error| refuse(error.to_string()))
            };
            match name.trim() {
                "loss" => faults.loss = ratio()?,
                "dup" | "duplicate" => faults.duplicate = ratio()?,
                "reorder" => faults.reorder = ratio()?,
                "corrupt" => faults.corrupt = ratio()?,
                "delay" => {
                    let span = parse_delay(value);
                    faults.delay =
                        Some(span.ok_or_else(|| refuse("write 2ms or 100us..5ms".to_owned()))?);
                }
                _ => {
                    return Err(refuse(
                        "known are loss, dup, reorder, corrupt, delay and blocked".to_owned(),
                    ));
                }
            }
        }
        Ok(faults)
    }
}

fn parse_delay(text: &str) -> Option<(Duration, Duration)> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let span = (parse_duration(least)?, parse_duration(most)?);
    (span.0 <= span.1).then_some(span)
}

fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let value: u64 = text[..digits].parse().ok()?;
    let nanos = match &text[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    value.checked_mul(nanos).map(Duration::from_nanos)
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, ratio) in self
            .ratios()
            .into_iter()
            .filter(|(_, ratio)| !ratio.is_zero())
        {
            write!(f, "{separator}{name}={ratio}")?;
            separator = ",";
        }
        if let Some((least, most)) = self.delay {
            let (least, most) = (Span(least), Span(most));
            write!(f, "{separator}delay={least}")?;
            if least != most {
                write!(f, "..{most}")?;
            }
        }
        Ok(())
    }
}

/// A span in the largest unit of which it is a whole number.
#[derive(PartialEq)]
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        let fits = units.into_iter().find(|(unit, _)| ns.is_multiple_of(*unit));
        let (unit, name) = fits.unwrap_or((1, "ns"));
        write!(f, "{}{name}", ns / unit)
    }
}

impl fmt::Display for ParseFaultsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` describes no fault: {}", self.part, self.reason)
    }
}

impl std::error::Error for ParseFaultsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_written_as_text() {
        let text = "loss=5%, dup=1%,reorder=2%,corrupt=1e-3,delay=100us..5ms";
        let faults: Faults = text.parse().unwrap();
        assert_eq!(faults.loss, Ratio::percent(5));
        assert_eq!(
            faults.delay,
            Some((Duration::from_micros(100), Duration::from_millis(5)))
        );
        assert_eq!(faults.to_string().parse::<Faults>().unwrap(), faults);
        assert_eq!("".parse::<Faults>().unwrap(), Faults::NONE);
        assert_eq!(
            faults.to_string(),
            "loss=5%,dup=1%,reorder=2%,corrupt=0.1%,delay=100us..5ms"
        );
        assert_eq!("blocked".parse::<Faults>().unwrap(), Faults::CUT);
        assert_eq!("loss=100%".parse::<Faults>().unwrap(), Faults::CUT);
        let fixed: Faults = "delay=2ms".parse().unwrap();
        assert_eq!(
            fixed.delay,
            Some((Duration::from_millis(2), Duration::from_millis(2)))
        );
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for (text, hint) in [
            ("loss", "name=value"),
            ("loss=150%", "5%"),
            ("gremlins=1%", "known are"),
            ("delay=5", "2ms"),
            ("delay=5ms..1ms", "2ms"),
        ] {
            let error = text.parse::<Faults>().unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn counts_have_the_names_of_their_faults() {
        let faults: Faults = "loss=5%,reorder=1%,delay=1ms".parse().unwrap();
        let mut counts = FaultCounts::from_named([("loss", 3), ("dup", 9), ("unknown", 1)]);
        let asked: Vec<_> = counts.of(&faults).collect();
        assert_eq!(asked, [("loss", 3), ("reorder", 0), ("delay", 0)]);
        assert_eq!(FaultCounts::from_named(counts.named()), counts);
        counts.add(&counts.clone());
        assert_eq!((counts.lost, counts.damaged()), (6, 24));
    }

    #[test]
    fn a_links_own_rule_takes_precedence() {
        let handle = FaultHandle::new();
        handle.set(Direction::Outbound, Faults::loss(Ratio::percent(5)));
        handle.set_link(7u8, Direction::Outbound, Faults::CUT);
        let rules = handle.shared().rules();
        assert_eq!(rules.of(7, Direction::Outbound), Faults::CUT);
        assert_eq!(rules.of(7, Direction::Inbound), Faults::NONE);
        assert_eq!(
            rules.of(8, Direction::Outbound),
            Faults::loss(Ratio::percent(5))
        );
        assert!(rules.are_none(Direction::Inbound) && !rules.are_none(Direction::Outbound));
        handle.clear_link(7);
        assert_eq!(
            handle.shared().rules().of(7, Direction::Outbound),
            Faults::loss(Ratio::percent(5))
        );
        let slow = "delay=1ms".parse().unwrap();
        handle.replace([Faults::NONE, Faults::CUT], [(9, [Some(slow), None])]);
        let rules = handle.shared().rules();
        assert_eq!(rules.of(7, Direction::Outbound), Faults::NONE);
        assert_eq!(rules.of(9, Direction::Outbound), slow);
        assert_eq!(rules.of(9, Direction::Inbound), Faults::CUT);
        handle.clear();
        assert!(handle.shared().rules().are_none(Direction::Outbound));
    }
}
