//! The classes of events that subscribers are told, in the letters of `notify-keyspace-events`.

/// The classes of events that are told, and where.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Classes {
    /// Bits in the order of [`LETTERS`].
    bits: u16,
}

/// The letters that Redis has, but for `A`, `m` and `n`.
const LETTERS: &[u8; 11] = b"g$lshzxetKE";
const D: u16 = 1 << 11;
const ALL: u16 = ((1 << 9) - 1) | D;

impl Classes {
    /// To `__keyspace@0__:KEY`.
    pub(super) const KEYSPACE: Self = Self { bits: 1 << 9 };
    /// To `__keyevent@0__:EVENT`.
    pub(super) const KEYEVENT: Self = Self { bits: 1 << 10 };
    /// Commands of any type of value, such as DEL and EXPIRE.
    pub(super) const GENERIC: Self = Self { bits: 1 };
    /// Commands of strings.
    pub(super) const STRING: Self = Self { bits: 1 << 1 };
    /// Keys that have expired.
    pub(super) const EXPIRED: Self = Self { bits: 1 << 6 };

    /// Reads the letters of the setting. Classes of types that the store does not have are taken, and nothing comes of
    /// them.
    ///
    /// # Errors
    /// Which letter is not taken, in words.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut classes = Self::default();
        for letter in text {
            classes.bits |= match letter {
                b'A' => ALL,
                b'd' => D,
                b'm' | b'n' => {
                    let letter = char::from(*letter);
                    return Err(format!(
                        "events of class '{letter}' are not told: misses and new keys are not in the stream of changes"
                    ));
                }
                other => match LETTERS.iter().position(|letter| letter == other) {
                    Some(place) => 1 << place,
                    None => {
                        return Err(
                            "Invalid event class character. Use 'Ag$lshzxeKEtd'.".to_owned()
                        );
                    }
                },
            };
        }
        Ok(classes)
    }

    /// Whether all of these are among them.
    pub(super) fn has(self, other: Self) -> bool {
        self.bits & other.bits == other.bits
    }
}

impl std::fmt::Display for Classes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_all = self.bits & ALL == ALL;
        if is_all {
            f.write_str("A")?;
        }
        for (place, letter) in LETTERS.iter().enumerate() {
            // As in Redis, K and E come last.
            if place == 9 && !is_all && self.bits & D != 0 {
                f.write_str("d")?;
            }
            if self.bits & (1 << place) != 0 && !(is_all && place < 9) {
                write!(f, "{}", char::from(*letter))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_and_written_as_redis_does() {
        for (text, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("AKE", "AKE"),
            ("Kg", "gK"),
            ("E$xg", "g$xE"),
            ("Kdt", "tdK"),
            ("g$lshzxetd", "A"),
        ] {
            let classes = Classes::parse(text.as_bytes()).expect(text);
            assert_eq!(classes.to_string(), shown, "{text}");
        }
        let refused = |text: &str| Classes::parse(text.as_bytes()).expect_err("refused");
        assert_eq!(
            refused("KEq"),
            "Invalid event class character. Use 'Ag$lshzxeKEtd'."
        );
        for letter in ["m", "n"] {
            assert!(refused(&format!("KE{letter}")).contains("not told"));
        }
    }

    #[test]
    fn all_events_are_those_of_each_type() {
        let all = Classes::parse(b"A").expect("fine");
        assert!(all.has(Classes::GENERIC) && all.has(Classes::STRING) && all.has(Classes::EXPIRED));
        assert!(!all.has(Classes::KEYSPACE) && !all.has(Classes::KEYEVENT));
    }
}
