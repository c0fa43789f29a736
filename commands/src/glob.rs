//! Patterns of names and keys, as Redis takes them: `*`, `?`, `[abc]`, `[^a-c]` and backslashes.

/// Whether `A` fits `a`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// It does: for names of commands and settings.
    Ignored,
    /// It does not: for keys.
    Counts,
}

impl Case {
    fn of(self, byte: u8) -> u8 {
        match self {
            Self::Ignored => byte.to_ascii_lowercase(),
            Self::Counts => byte,
        }
    }
}

/// Whether a name fits a pattern. Bounded work: a star is tried again only from the last one.
pub fn fits(pattern: &[u8], name: &[u8], case: Case) -> bool {
    let (mut rest, mut left) = (pattern, name);
    // Where the last star was, and what it has not taken yet.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', behind @ ..] = rest {
            star = Some((behind, left));
            rest = behind;
            continue;
        }
        match left.split_first() {
            None if rest.is_empty() => return true,
            None => return false,
            Some((&byte, behind)) => {
                if let Some(then) = one(rest, byte, case) {
                    (rest, left) = (then, behind);
                    continue;
                }
            }
        }
        // The last star takes one byte more.
        let Some((behind_star, [_, after @ ..])) = star else {
            return false;
        };
        star = Some((behind_star, after));
        (rest, left) = (behind_star, after);
    }
}

/// The pattern behind its first element, if that fits the byte.
fn one(pattern: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    let (fits, behind) = first(pattern, byte, case)?;
    fits.then_some(behind)
}

/// Whether the first element of a pattern, which is no star, fits the byte, and the pattern behind it.
fn first(pattern: &[u8], byte: u8, case: Case) -> Option<(bool, &[u8])> {
    match pattern {
        [b'?', behind @ ..] => Some((true, behind)),
        [b'[', behind @ ..] => Some(class(behind, byte, case)),
        [b'\\', literal, behind @ ..] | [literal, behind @ ..] => {
            Some((case.of(*literal) == case.of(byte), behind))
        }
        [] => None,
    }
}

/// Whether the byte is in a class, and the pattern behind that. A class that is not closed ends with the pattern.
fn class(pattern: &[u8], byte: u8, case: Case) -> (bool, &[u8]) {
    let byte = case.of(byte);
    let mut found = false;
    let (negated, behind) = each_range(pattern, |low, high| {
        let (low, high) = (case.of(low), case.of(high));
        found |= (low.min(high)..=low.max(high)).contains(&byte);
    });
    (found != negated, behind)
}

/// Tells the ends of each range in a class, in either order. Returns whether the class is of all other bytes, and the pattern
/// behind it.
fn each_range(pattern: &[u8], mut each: impl FnMut(u8, u8)) -> (bool, &[u8]) {
    let (mut rest, negated) = match pattern {
        [b'^', rest @ ..] => (rest, true),
        rest => (rest, false),
    };
    loop {
        let (low, high, behind) = match rest {
            [] => return (negated, rest),
            [b']', behind @ ..] => return (negated, behind),
            [b'\\', literal, behind @ ..] => (*literal, *literal, behind),
            [low, b'-', high, behind @ ..] => (*low, *high, behind),
            [literal, behind @ ..] => (*literal, *literal, behind),
        };
        each(low, high);
        rest = behind;
    }
}

/// A pattern that is compared with many names. A comparison takes a step for each byte of the name and each 64 elements of the
/// pattern, whatever they are. That of [`fits`] can take one for each byte and each element.
///
/// Bit `n` of its state says that the name so far fits the first `n` elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob {
    /// Words of the state.
    words: usize,
    /// For each byte, which elements it fits.
    fits: Box<[u64]>,
    /// Before which elements there is a star: there a byte more changes nothing.
    stays: Box<[u64]>,
    /// The number of elements.
    elements: usize,
}

/// Words of the longest state.
const WORDS_MAX: usize = (crate::limits::PATTERN_BYTES_MAX + 1).div_ceil(64);

impl Glob {
    /// Of a pattern of at most [`crate::limits::PATTERN_BYTES_MAX`] bytes.
    pub fn new(pattern: &[u8], case: Case) -> Self {
        let words = (pattern.len() + 1).div_ceil(64);
        assert!(words <= WORDS_MAX, "the caller has a limit");
        let mut glob = Self {
            words,
            fits: vec![0; 256 * words].into_boxed_slice(),
            stays: vec![0; words].into_boxed_slice(),
            elements: 0,
        };
        // Elements that fit all bytes but those that are noted.
        let mut others = [0_u64; WORDS_MAX];
        let mut rest = pattern;
        while !rest.is_empty() {
            let (word, bit) = (glob.elements / 64, 1 << (glob.elements % 64));
            if let [b'*', behind @ ..] = rest {
                glob.stays[word] |= bit;
                rest = behind;
                continue;
            }
            let (negated, behind) = glob.note_members(rest, case);
            others[word] |= if negated { bit } else { 0 };
            glob.elements += 1;
            rest = behind;
        }
        for row in glob.fits.chunks_exact_mut(words) {
            row.iter_mut()
                .zip(&others)
                .for_each(|(fits, others)| *fits ^= others);
        }
        glob
    }

    /// Notes which bytes the first element of a pattern names. Returns whether it fits all others instead, and the pattern
    /// behind it. A step for each byte that is named, so that a pattern of plain bytes is made as quickly as it is read.
    fn note_members<'p>(&mut self, pattern: &'p [u8], case: Case) -> (bool, &'p [u8]) {
        let (word, bit) = (self.elements / 64, 1 << (self.elements % 64));
        let (fits, words) = (&mut self.fits, self.words);
        let mut note = |low: u8, high: u8| {
            let (low, high) = (case.of(low), case.of(high));
            for folded in low.min(high)..=low.max(high) {
                for byte in [folded, folded.to_ascii_uppercase()] {
                    if case.of(byte) == folded {
                        fits[usize::from(byte) * words + word] |= bit;
                    }
                }
            }
        };
        match pattern {
            [b'?', behind @ ..] => (true, behind),
            [b'[', behind @ ..] => each_range(behind, note),
            [b'\\', literal, behind @ ..] | [literal, behind @ ..] => {
                note(*literal, *literal);
                (false, behind)
            }
            [] => (false, pattern),
        }
    }

    /// Whether a name fits.
    pub fn fits(&self, name: &[u8]) -> bool {
        let mut state = [0_u64; WORDS_MAX];
        state[0] = 1;
        let (word, bit) = (self.elements / 64, 1 << (self.elements % 64));
        for &byte in name {
            if state[word] & self.stays[word] & bit != 0 {
                // A star at the end takes the rest.
                return true;
            }
            let row = &self.fits[usize::from(byte) * self.words..][..self.words];
            let (mut carry, mut alive) = (0, 0);
            for ((state, fits), stays) in state.iter_mut().zip(row).zip(&self.stays) {
                let moved = *state & fits;
                *state = moved << 1 | carry | *state & stays;
                carry = moved >> 63;
                alive |= *state;
            }
            if alive == 0 {
                return false;
            }
        }
        state[word] & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_redis() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "get", true),
            ("", "get", false),
            ("GET", "get", true),
            ("g?t", "get", true),
            ("g?t", "gt", false),
            ("get*", "getset", true),
            ("*set*x", "psetex", true),
            ("*set*x", "psete", false),
            ("[gs]et", "set", true),
            ("[^g]et", "get", false),
            ("[a-h]et", "get", true),
            ("[h-a]et", "get", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[g", "g", true),
            ("a*b*c*d", "axbxcxd", true),
            ("a\\", "a\\", true),
        ] {
            assert_eq!(
                fits(pattern.as_bytes(), name.as_bytes(), Case::Ignored),
                expected,
                "{pattern} {name}"
            );
        }
        let many = "*a".repeat(40);
        assert!(
            !fits(many.as_bytes(), &[b'b'; 10_000], Case::Ignored),
            "and soon"
        );
    }

    /// Patterns and names of few bytes, so that many fit; some patterns need more than one word.
    #[test]
    fn a_pattern_for_many_names_fits_the_same_ones() {
        let mut prng = numbers(7);
        let (mut fitting, mut all) = (0, 0);
        for round in 0..3_000_usize {
            let longest = if round % 5 == 0 { 150 } else { 12 };
            let mut text = |letters: &[u8], longest: usize| -> Vec<u8> {
                let length = prng() as usize % (longest + 1);
                (0..length)
                    .map(|_| letters[prng() as usize % letters.len()])
                    .collect()
            };
            let pattern = text(b"aabb**?[]^-\\Ab", longest);
            let globs = [Case::Ignored, Case::Counts].map(|case| (case, Glob::new(&pattern, case)));
            for _ in 0..20 {
                let name = text(b"aaabbAB-]", longest);
                for (case, glob) in &globs {
                    let expected = fits(&pattern, &name, *case);
                    assert_eq!(glob.fits(&name), expected, "{pattern:?} {name:?} {case:?}");
                    fitting += u32::from(expected);
                    all += 1;
                }
            }
        }
        assert!((all / 50..all).contains(&fitting), "{fitting} of {all}");
        // Whole patterns of 512 bytes, with something in each word.
        for size in [63, 64, 65, 127, 128, 511, 512] {
            let mut pattern = b"ab".repeat(size / 2);
            pattern.resize(size, b'?');
            let glob = Glob::new(&pattern, Case::Counts);
            assert!(
                glob.fits(&[b"ab".repeat(size / 2), vec![b'x'; size % 2]].concat()),
                "{size}"
            );
            assert!(!glob.fits(&pattern[1..]), "{size}");
            pattern[0] = b'*';
            let glob = Glob::new(&pattern, Case::Counts);
            let long = [vec![b'a'; 64 * 1024], pattern[1..].to_vec()].concat();
            assert!(glob.fits(&long), "{size}");
            assert!(!glob.fits(&vec![b'b'; 64 * 1024]), "{size}");
        }
    }

    /// A sequence of numbers that a seed decides (the steps of SplitMix64).
    fn numbers(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let number = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            number ^ number >> 31
        }
    }

    #[test]
    fn the_case_of_keys_counts() {
        for (pattern, key, expected) in [
            ("GET", "get", false),
            ("g?T", "gET", true),
            ("[a-c]*", "Cx", false),
            ("[a-c]*", "cX", true),
            ("*X", "aaX", true),
            ("*X", "aax", false),
        ] {
            let fits = fits(pattern.as_bytes(), key.as_bytes(), Case::Counts);
            assert_eq!(fits, expected, "{pattern} {key}");
        }
    }
}
