//! The release of a program, as replicas and clients tell it each other.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bytes of a release in a message: three numbers and two reserved bytes.
pub const RELEASE_SIZE: usize = 8;

/// The number of a release, in JSON as people write it (`"0.1.0"`). Says which program somebody runs, and nothing about what it
/// understands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Release {
    /// The first number.
    pub major: u16,
    /// The second.
    pub minor: u16,
    /// The third.
    pub patch: u16,
}

impl Release {
    /// The release of this program.
    pub const THIS: Self = Self {
        major: number(env!("CARGO_PKG_VERSION_MAJOR")),
        minor: number(env!("CARGO_PKG_VERSION_MINOR")),
        patch: number(env!("CARGO_PKG_VERSION_PATCH")),
    };

    pub(crate) fn to_bytes(self) -> [u8; RELEASE_SIZE] {
        let [major, minor, patch] = [self.major, self.minor, self.patch].map(u16::to_le_bytes);
        [
            major[0], major[1], minor[0], minor[1], patch[0], patch[1], 0, 0,
        ]
    }

    pub(crate) fn from_bytes(bytes: [u8; RELEASE_SIZE]) -> Self {
        let at = |index: usize| u16::from_le_bytes([bytes[index], bytes[index + 1]]);
        Self {
            major: at(0),
            minor: at(2),
            patch: at(4),
        }
    }
}

const fn number(text: &str) -> u16 {
    match u16::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("cargo checks that a version is numbers"),
    }
}

impl From<Release> for String {
    fn from(release: Release) -> Self {
        release.to_string()
    }
}

impl TryFrom<String> for Release {
    type Error = BadRelease;

    fn try_from(text: String) -> Result<Self, BadRelease> {
        let digits = |part: &str| match part.bytes().all(|byte| byte.is_ascii_digit()) {
            true => part.parse::<u16>().ok(),
            false => None,
        };
        let mut numbers = text.split('.').map(digits);
        match [
            numbers.next(),
            numbers.next(),
            numbers.next(),
            numbers.next(),
        ] {
            [
                Some(Some(major)),
                Some(Some(minor)),
                Some(Some(patch)),
                None,
            ] => Ok(Self {
                major,
                minor,
                patch,
            }),
            _ => Err(BadRelease { text }),
        }
    }
}

/// A text that is no release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadRelease {
    text: String,
}

impl fmt::Display for BadRelease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "'{}' is no release: it has three numbers, as 1.2.3",
            self.text
        )
    }
}

impl std::error::Error for BadRelease {}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_what_cargo_says_and_survives() {
        assert_eq!(Release::THIS.to_string(), env!("CARGO_PKG_VERSION"));
        let release = Release {
            major: 1,
            minor: 258,
            patch: 3,
        };
        assert_eq!(release.to_bytes(), [1, 0, 2, 1, 3, 0, 0, 0]);
        assert_eq!(Release::from_bytes(release.to_bytes()), release);
        let json = serde_json::to_string(&release).expect("JSON");
        assert_eq!(json, "\"1.258.3\"");
        assert_eq!(serde_json::from_str::<Release>(&json).expect("it"), release);
        for bad in ["", "1.2", "1.2.3.4", "1.2.x", "1.2.70000", "+1.2.3"] {
            assert!(Release::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
