//! Randomness that replays: a seeded integer generator and exact ratios.
//!
//! Everything random in the core comes in as `&mut Prng`, so that one seed fixes a whole run. No
//! floating point takes part in a decision: rounding may differ between machines, integers do not.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A seeded pseudo-random generator (xoshiro256++). Not for secrets.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

/// A probability as an exact fraction between 0 and 1.
///
/// Parses `5%`, `0.1%`, `0.05`, `1e-4` and `3/100`.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Ratio {
    numerator: u32,
    denominator: u32,
}

/// The text is not a probability between 0 and 1 that a [`Ratio`] can hold exactly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseRatioError {
    text: String,
}

impl Prng {
    /// A generator whose whole output follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut expander = seed;
        let mut next = || {
            // splitmix64, the expansion that xoshiro's authors recommend: never all zero.
            expander = expander.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = expander;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        };
        Self {
            state: [next(), next(), next(), next()],
        }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let output = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        output
    }

    /// A uniform number in `0..bound`. `bound` must not be zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound != 0, "a number below zero does not exist");
        // Lemire's multiplication: the high word is uniform once biased low words are rejected.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// A uniform number of the range, both ends included.
    pub fn in_range(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (start, end) = range.into_inner();
        assert!(start <= end, "the range {start}..={end} is empty");
        match (end - start).checked_add(1) {
            Some(width) => start + self.below(width),
            None => self.next_u64(),
        }
    }

    /// True with probability `ratio`. Draws one number also when the answer is certain, so that
    /// changing a probability does not shift every later decision.
    #[inline]
    pub fn chance(&mut self, ratio: Ratio) -> bool {
        self.below(u64::from(ratio.denominator)) < u64::from(ratio.numerator)
    }

    /// A new generator, independent of this one from here on.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// Puts `items` into a uniformly drawn order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for unplaced in (2..=items.len()).rev() {
            let chosen = self.below(unplaced as u64) as usize;
            items.swap(unplaced - 1, chosen);
        }
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

impl Ratio {
    /// Never.
    pub const ZERO: Self = Self {
        numerator: 0,
        denominator: 1,
    };
    /// Always.
    pub const ONE: Self = Self {
        numerator: 1,
        denominator: 1,
    };

    /// The fraction `numerator / denominator` in lowest terms, or `None` if it is above one or
    /// divides by zero.
    #[must_use]
    pub const fn new(numerator: u32, denominator: u32) -> Option<Self> {
        if denominator == 0 || numerator > denominator {
            return None;
        }
        let (mut a, mut b) = (numerator, denominator);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Some(Self {
            numerator: numerator / a,
            denominator: denominator / a,
        })
    }

    /// `percent` hundredths; more than 100 is an error in the program.
    #[must_use]
    pub const fn percent(percent: u32) -> Self {
        Self::new(percent, 100).expect("a probability is at most 100 %")
    }

    /// The upper part of the fraction.
    #[must_use]
    pub const fn numerator(self) -> u32 {
        self.numerator
    }

    /// The lower part of the fraction, never zero.
    #[must_use]
    pub const fn denominator(self) -> u32 {
        self.denominator
    }

    /// True if the chance is exactly nil.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.numerator == 0
    }

    /// The ratio as a floating-point number, for display and statistics only.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.numerator) / f64::from(self.denominator)
    }

    fn reduced(numerator: u128, denominator: u128) -> Option<Self> {
        if denominator == 0 {
            return None;
        }
        let (mut a, mut b) = (numerator, denominator);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let numerator = u32::try_from(numerator / a).ok()?;
        let denominator = u32::try_from(denominator / a).ok()?;
        Self::new(numerator, denominator)
    }
}

impl Default for Ratio {
    fn default() -> Self {
        Self::ZERO
    }
}

impl FromStr for Ratio {
    type Err = ParseRatioError;

    fn from_str(text: &str) -> Result<Self, ParseRatioError> {
        parse_ratio(text.trim()).ok_or_else(|| ParseRatioError {
            text: text.to_owned(),
        })
    }
}

fn parse_ratio(text: &str) -> Option<Ratio> {
    if let Some((numerator, denominator)) = text.split_once('/') {
        let numerator: u32 = numerator.trim().parse().ok()?;
        return Ratio::reduced(
            numerator.into(),
            denominator.trim().parse::<u32>().ok()?.into(),
        );
    }
    let (number, hundredths) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 2),
        None => (text, 0),
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > 18 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: u128 = digits.parse().ok()?;
    let shift = exponent
        .checked_sub(fraction.len() as i32)?
        .checked_sub(hundredths)?;
    let power = 10u128.checked_pow(shift.unsigned_abs())?;
    if shift < 0 {
        Ratio::reduced(value, power)
    } else {
        Ratio::reduced(value.checked_mul(power)?, 1)
    }
}

/// A percentage where it is exact with few digits, otherwise the fraction; parses back to the same.
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scaled = u64::from(self.numerator) * 100_000_000;
        if scaled % u64::from(self.denominator) != 0 {
            return write!(f, "{}/{}", self.numerator, self.denominator);
        }
        let millionths_of_percent = scaled / u64::from(self.denominator);
        let (whole, fraction) = (
            millionths_of_percent / 1_000_000,
            millionths_of_percent % 1_000_000,
        );
        if fraction == 0 {
            return write!(f, "{whole}%");
        }
        let digits = format!("{fraction:06}");
        write!(f, "{whole}.{}%", digits.trim_end_matches('0'))
    }
}

impl fmt::Debug for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ParseRatioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a probability: write 5%, 0.1%, 0.05, 1e-4 or 3/100",
            self.text
        )
    }
}

impl std::error::Error for ParseRatioError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_fixes_the_stream() {
        // Golden values: another stream would silently change every recorded seed.
        let mut prng = Prng::new(7);
        let first: Vec<u64> = (0..3).map(|_| prng.next_u64()).collect();
        let mut again = Prng::new(7);
        assert_eq!(first, (0..3).map(|_| again.next_u64()).collect::<Vec<_>>());
        assert_ne!(first[0], Prng::new(8).next_u64());
    }

    #[test]
    fn below_covers_the_range_evenly() {
        let mut prng = Prng::new(1);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[prng.below(10) as usize] += 1;
        }
        assert!(
            counts.iter().all(|&count| (9_500..10_500).contains(&count)),
            "{counts:?}"
        );
    }

    #[test]
    fn in_range_reaches_both_ends() {
        let mut prng = Prng::new(2);
        let drawn: Vec<u64> = (0..200).map(|_| prng.in_range(3..=5)).collect();
        assert!(drawn.iter().all(|value| (3..=5).contains(value)));
        assert!(drawn.contains(&3) && drawn.contains(&5));
        prng.in_range(0..=u64::MAX);
    }

    #[test]
    fn chance_follows_the_ratio() {
        let mut prng = Prng::new(3);
        let five_percent = Ratio::percent(5);
        let hits = (0..100_000).filter(|_| prng.chance(five_percent)).count();
        assert!((4_700..5_300).contains(&hits), "{hits}");
        assert!(!prng.chance(Ratio::ZERO));
        assert!(prng.chance(Ratio::ONE));
    }

    #[test]
    fn shuffle_keeps_the_items() {
        let mut items: Vec<u32> = (0..50).collect();
        Prng::new(4).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn ratios_parse_and_print() {
        for (text, numerator, denominator, shown) in [
            ("5%", 1, 20, "5%"),
            ("0.1%", 1, 1_000, "0.1%"),
            ("1e-4", 1, 10_000, "0.01%"),
            ("3/100", 3, 100, "3%"),
            ("0.05", 1, 20, "5%"),
            ("1/3", 1, 3, "1/3"),
            ("0", 0, 1, "0%"),
            ("100%", 1, 1, "100%"),
        ] {
            let ratio: Ratio = text.parse().unwrap();
            assert_eq!(
                (ratio.numerator(), ratio.denominator()),
                (numerator, denominator),
                "{text}"
            );
            assert_eq!(ratio.to_string(), shown);
            assert_eq!(shown.parse::<Ratio>().unwrap(), ratio);
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for text in [
            "",
            "%",
            "101%",
            "1.5",
            "-1%",
            "1/0",
            "3/2",
            "five",
            "1e400",
            "0.0000000000000000001",
        ] {
            let error = text.parse::<Ratio>().unwrap_err();
            assert!(error.to_string().contains("5%"), "{text}");
        }
    }
}
