//! Patterns of names and keys, as Redis takes them: `*`, `?`, `[abc]`, `[^a-c]` and backslashes.

/// Whether `A` fits `a`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Case {
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
pub(crate) fn fits(pattern: &[u8], name: &[u8], case: Case) -> bool {
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
    match pattern {
        [b'?', behind @ ..] => Some(behind),
        [b'[', behind @ ..] => class(behind, byte, case),
        [b'\\', literal, behind @ ..] | [literal, behind @ ..] => {
            (case.of(*literal) == case.of(byte)).then_some(behind)
        }
        [] => None,
    }
}

/// The pattern behind a class, if the byte is in it. A class that is not closed ends with the pattern.
fn class(pattern: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    let (mut rest, negated) = match pattern {
        [b'^', rest @ ..] => (rest, true),
        rest => (rest, false),
    };
    let byte = case.of(byte);
    let mut found = false;
    loop {
        let (low, high, behind) = match rest {
            [] => break,
            [b']', behind @ ..] => {
                rest = behind;
                break;
            }
            [b'\\', literal, behind @ ..] => (*literal, *literal, behind),
            [low, b'-', high, behind @ ..] => (*low, *high, behind),
            [literal, behind @ ..] => (*literal, *literal, behind),
        };
        let (low, high) = (case.of(low), case.of(high));
        found |= (low.min(high)..=low.max(high)).contains(&byte);
        rest = behind;
    }
    (found != negated).then_some(rest)
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
