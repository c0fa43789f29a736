//! The processor's time-stamp counter as a clock: half the cost of asking the operating system, right to a millisecond
//! after a suspend.
//!
//! The counter gives the time between two readings of `CLOCK_BOOTTIME`, which are a millisecond apart (`RESYNC`). It is
//! trusted only where the processor says that it ticks at one rate in all power states (CPUID: invariant TSC) and the
//! kernel keeps time by it. The latter means that the kernel has found the counters of all processors in step. A
//! virtual machine on a host that hides the counter, or another architecture, gets `CLOCK_BOOTTIME` itself.
//!
//! **Where it may be used.** The counter may stop, or restart from zero, while the machine is suspended. This clock
//! learns of that only when it next reads `CLOCK_BOOTTIME`. For up to that long of running time afterwards it lies in
//! the past. A session's timers, RTT samples and pacing bear that: they run out a millisecond late. A leader's lease
//! does not: a read in that millisecond would be answered under a lease that ended during the suspend. So whatever
//! decides over leases or group time (`trine serve`) takes [`MonotonicClock`], and this one is for clients, for servers
//! without a group, and for measurements.
#![allow(unsafe_code)]

use std::cell::Cell;

use trine_transport::backend::MonotonicClock;
use trine_transport::time::{Clock, Duration, Instant};

/// Longest time between two readings of the operating system's clock.
const RESYNC: Duration = Duration::from_millis(1);
/// How long the counter is watched before its rate is believed. A reading is right to about 100 ns, so the rate is then
/// known to one part in 10,000; it becomes better with each reading.
const CALIBRATION: Duration = Duration::from_millis(1);
/// A clock that is off by more has slept, or was moved to another machine: the rate is measured again.
const DRIFT_MAX: Duration = Duration::from_micros(10);
/// Nanoseconds a tick are kept as a fraction of so many bits.
const RATE_BITS: u32 = 32;
/// A clock that is ahead runs slower by one part in 2^this until it is not.
const SLOWER_BITS: u32 = 10;
/// No two machines' counters differ by this factor: such a rate was measured over a suspend.
const RATE_CHANGE_MAX: u128 = 8;
/// Attempts at a reading that nothing interrupts.
const READINGS_MAX: u32 = 4;
/// Ticks that a reading takes at most if nothing interrupts it: some hundred nanoseconds.
const READING_TICKS: u64 = 1_000;

/// The counter between two readings of the operating system's clock; for one thread.
#[derive(Clone, Debug)]
pub struct TscClock {
    /// None where the counter cannot be trusted.
    counter: Option<Counter>,
}

/// The meaning of the counter. Everything that it answers grows.
#[derive(Clone, Debug)]
struct Counter {
    /// Ticks and time that are counted on from.
    base: Cell<Reading>,
    /// The start point of the measurement of the rate.
    origin: Cell<Reading>,
    /// The last reading was off, and the rate is measured from there: a suspend leaves the rate as it was, a move to
    /// another machine does not.
    suspected: Cell<bool>,
    /// Nanoseconds a tick, times 2^[`RATE_BITS`], as measured.
    rate: Cell<u64>,
    /// The same, as used until the next reading.
    pace: Cell<u64>,
    /// Ticks from one reading to the next.
    span: Cell<u64>,
    /// The last answer.
    last: Cell<Instant>,
}

/// The counter and the operating system's clock at one moment.
#[derive(Copy, Clone, Debug)]
struct Reading {
    ticks: u64,
    time: Instant,
}

impl TscClock {
    /// Checks whether the counter can be trusted, and measures its rate, which takes a millisecond.
    #[must_use]
    pub fn new() -> Self {
        Self {
            counter: trusted().then(Counter::calibrated),
        }
    }

    /// Whether the counter is used, and not the operating system's clock each time.
    #[must_use]
    pub fn is_counting(&self) -> bool {
        self.counter.is_some()
    }
}

impl Default for TscClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TscClock {
    #[inline]
    fn now(&self) -> Instant {
        match &self.counter {
            Some(counter) => counter.now(ticks(), read),
            None => MonotonicClock.now(),
        }
    }
}

impl Counter {
    fn calibrated() -> Self {
        let first = read();
        loop {
            let second = read();
            if second.time.saturating_since(first.time) >= CALIBRATION {
                return Self::between(first, second);
            }
        }
    }

    fn between(first: Reading, second: Reading) -> Self {
        let counter = Self {
            base: Cell::new(second),
            origin: Cell::new(first),
            suspected: Cell::new(false),
            rate: Cell::new(0),
            pace: Cell::new(0),
            span: Cell::new(0),
            last: Cell::new(second.time),
        };
        counter.measure(second);
        counter.pace.set(counter.rate.get());
        counter
    }

    #[inline]
    fn now(&self, ticks: u64, read: impl FnOnce() -> Reading) -> Instant {
        let base = self.base.get();
        let passed = ticks.wrapping_sub(base.ticks);
        // Also where the counter went backwards: that much seems to have passed.
        if passed >= self.span.get() {
            return self.resync(read());
        }
        let answer = base.time + Duration::from_nanos(scaled(passed, self.pace.get()));
        self.last.set(answer);
        answer
    }

    /// Time is the operating system's, but never earlier than the last answer.
    #[cold]
    fn resync(&self, read: Reading) -> Instant {
        let base = self.base.get();
        let passed = read.ticks.wrapping_sub(base.ticks);
        let expected = base
            .time
            .saturating_add(Duration::from_nanos(scaled(passed, self.pace.get())));
        let (late, early) = (read.time.max(expected), read.time.min(expected));
        let is_off = late.saturating_since(early) > DRIFT_MAX;
        if is_off && !self.suspected.get() {
            self.origin.set(read);
            self.suspected.set(true);
        } else {
            self.measure(read);
            self.suspected.set(false);
        }
        let (rate, last) = (self.rate.get(), self.last.get());
        let is_ahead = last > read.time;
        self.pace.set(if is_ahead {
            rate - (rate >> SLOWER_BITS)
        } else {
            rate
        });
        let answer = read.time.max(last);
        self.base.set(Reading {
            time: answer,
            ..read
        });
        self.last.set(answer);
        answer
    }

    /// The rate since the origin, if that is long enough ago.
    fn measure(&self, read: Reading) {
        let origin = self.origin.get();
        let passed = read.time.saturating_since(origin.time);
        let ticks = read.ticks.wrapping_sub(origin.ticks);
        if passed < CALIBRATION || ticks == 0 {
            return;
        }
        let rate = (u128::from(passed.as_nanos()) << RATE_BITS) / u128::from(ticks);
        let before = u128::from(self.rate.get());
        let is_plausible = rate < before * RATE_CHANGE_MAX && before < rate * RATE_CHANGE_MAX;
        if before == 0 || is_plausible {
            let span = (u128::from(RESYNC.as_nanos()) << RATE_BITS) / rate.max(1);
            self.rate.set(u64::try_from(rate).unwrap_or(u64::MAX));
            self.span.set(u64::try_from(span).unwrap_or(u64::MAX));
        }
    }
}

/// Nanoseconds of so many ticks.
#[inline]
fn scaled(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> RATE_BITS) as u64
}

/// Both clocks, the counter half-way between two readings; again if something came in between.
fn read() -> Reading {
    let mut best = (
        u64::MAX,
        Reading {
            ticks: 0,
            time: Instant::ZERO,
        },
    );
    for _ in 0..READINGS_MAX {
        let before = ticks();
        let time = MonotonicClock.now();
        let took = ticks().wrapping_sub(before);
        if took < best.0 {
            let ticks = before.wrapping_add(took / 2);
            best = (took, Reading { ticks, time });
        }
        if took <= READING_TICKS {
            break;
        }
    }
    best.1
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets processes use it unless it is told otherwise
    // (PR_SET_TSC), which this program does not.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

/// One rate in all power states, and the kernel's own clock.
#[cfg(target_arch = "x86_64")]
fn trusted() -> bool {
    const POWER_MANAGEMENT: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    let leaves = std::arch::x86_64::__cpuid(0x8000_0000).eax;
    leaves >= POWER_MANAGEMENT
        && std::arch::x86_64::__cpuid(POWER_MANAGEMENT).edx & INVARIANT_TSC != 0
        && std::fs::read_to_string(CLOCK_SOURCE).is_ok_and(|source| source.trim() == "tsc")
}

#[cfg(target_arch = "x86_64")]
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

#[cfg(not(target_arch = "x86_64"))]
fn trusted() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::prng::Prng;

    const START: Instant = Instant::from_nanos(5_000_000_000);

    /// A machine of three ticks a nanosecond, whose counter and time a test moves.
    struct Machine {
        ticks: u64,
        time: Instant,
    }

    impl Machine {
        fn new() -> (Self, Counter) {
            let mut machine = Self {
                ticks: u64::MAX - 1_000_000,
                time: START,
            };
            let first = machine.read();
            machine.run(1_000_000);
            let counter = Counter::between(first, machine.read());
            (machine, counter)
        }

        fn run(&mut self, nanos: u64) {
            self.ticks = self.ticks.wrapping_add(nanos * 3);
            self.time += Duration::from_nanos(nanos);
        }

        fn read(&self) -> Reading {
            Reading {
                ticks: self.ticks,
                time: self.time,
            }
        }

        fn ask(&self, counter: &Counter) -> Instant {
            counter.now(self.ticks, || self.read())
        }
    }

    fn apart(a: Instant, b: Instant) -> u64 {
        a.as_nanos().abs_diff(b.as_nanos())
    }

    #[test]
    fn the_counter_gives_the_time_between_readings_also_over_its_end() {
        let (mut machine, counter) = Machine::new();
        for step in [1, 10, 100, 999, 10_000, 123_456, 5_000_000, 3_000_000_000] {
            for _ in 0..100 {
                machine.run(step);
                assert!(apart(machine.ask(&counter), machine.time) <= 1, "{step}");
            }
        }
    }

    #[test]
    fn a_suspend_is_noticed_after_a_millisecond_of_running() {
        let (mut machine, counter) = Machine::new();
        machine.run(100_000);
        assert!(apart(machine.ask(&counter), machine.time) <= 1);
        // The counter stops, or restarts from zero, while an hour passes.
        for restarts in [false, true] {
            machine.time += Duration::from_secs(3_600);
            if restarts {
                machine.ticks = 0;
            }
            machine.run(RESYNC.as_nanos());
            assert_eq!(machine.ask(&counter), machine.time);
            // And its rate is as before.
            for _ in 0..1_000 {
                machine.run(7_777);
                assert!(apart(machine.ask(&counter), machine.time) <= 1);
            }
        }
    }

    #[test]
    fn another_rate_is_learned() {
        let (mut machine, counter) = Machine::new();
        // Half as many ticks a nanosecond from here on, as after a move to another machine.
        for _ in 0..10_000 {
            machine.ticks = machine.ticks.wrapping_add(1_500);
            machine.time += Duration::from_nanos(1_000);
            machine.ask(&counter);
        }
        for _ in 0..10_000 {
            machine.ticks = machine.ticks.wrapping_add(1_500);
            machine.time += Duration::from_nanos(1_000);
            assert!(apart(machine.ask(&counter), machine.time) <= 100);
        }
    }

    #[test]
    fn time_never_goes_backwards_whatever_the_readings_say() {
        let (mut machine, counter) = Machine::new();
        let mut prng = Prng::new(3);
        let mut last = Instant::ZERO;
        for _ in 0..200_000 {
            machine.run(prng.below(20_000));
            // A reading is off by up to 5 us either way.
            let error = prng.below(10_000);
            let read = Reading {
                ticks: machine.ticks,
                time: machine.time + Duration::from_nanos(error) - Duration::from_nanos(5_000),
            };
            let now = counter.now(machine.ticks, || read);
            assert!(now >= last);
            assert!(
                apart(now, machine.time) < 25_000,
                "{now:?} at {:?}",
                machine.time
            );
            last = now;
        }
    }

    #[test]
    fn the_machines_own_counter_agrees_with_its_clock() {
        let clock = TscClock::new();
        let mut last = Instant::ZERO;
        for _ in 0..100_000 {
            let before = MonotonicClock.now();
            let now = clock.now();
            let after = MonotonicClock.now();
            assert!(now >= last, "backwards");
            // Not a bound on this machine's speed: only what lies between the two readings may be far off.
            let slack = Duration::from_millis(2);
            assert!(now.saturating_add(slack) >= before && now <= after.saturating_add(slack));
            last = now;
        }
    }
}
