//! Sizes, counts and times: read from the command line, and shown to people.

use std::time::{Duration, SystemTime};

/// Reads "64", "64k", "64KiB", "1.5MiB"-like sizes; the letters mean powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => {
            return Err(format!(
                "{text:?} is not a size; write for example 64KiB, 512MiB or 4GiB"
            ));
        }
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} does not begin with a whole number"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text:?} is too large"))
}

/// The smallest sensible store of a group.
const STORE_BYTES_MIN: u64 = 1 << 20;

/// Reads the size of a store.
pub fn parse_store_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes < STORE_BYTES_MIN => Err("it must be at least 1MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Reads "20s", "500ms", "1m 30s". A number without a unit is in seconds: "5", "0.5".
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match any_duration(text)? {
        duration if duration > DURATION_MAX => Err("it must be at most a year".to_owned()),
        duration => Ok(duration),
    }
}

fn any_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(duration) => Ok(duration),
        None => humantime::parse_duration(text)
            .map_err(|error| format!("{error}; write for example 500ms, 20s or 2m")),
    }
}

/// Moments count nanoseconds from a start in 64 bits, so a sum with a far greater duration would overflow.
const DURATION_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Reads a duration that must not be zero.
pub fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("it must be longer than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// Reads how long a key lives, in nanoseconds of group time: longer than zero, and at most 500 years.
pub fn parse_time_to_live(text: &str) -> Result<u64, String> {
    match u64::try_from(any_duration(text)?.as_nanos()) {
        Ok(0) => Err("it must be longer than zero".to_owned()),
        Ok(nanoseconds) if nanoseconds <= TIME_TO_LIVE_MAX_NS => Ok(nanoseconds),
        _ => Err("it must be at most 500 years; without it the key does not expire".to_owned()),
    }
}

/// 500 years. Group time counts nanoseconds in 64 bits, which is 584 years.
const TIME_TO_LIVE_MAX_NS: u64 = 182_625 * 86_400 * 1_000_000_000;

/// Reads a share of whole percents, in the forms of every share: "50%" or "0.5". Returns the percents, at most `most`.
pub fn parse_percents(text: &str, most: u32) -> Result<u32, String> {
    let (number, factor) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 1.0),
        None => (text, 100.0),
    };
    let percents = number
        .parse::<f64>()
        .map_or(f64::NAN, |number| number * factor);
    let whole = percents.round();
    match (0.0..=f64::from(most)).contains(&whole) && (percents - whole).abs() < 1e-6 {
        true => Ok(whole as u32),
        false => Err(format!(
            "write a share in whole percent up to {most}%, for example 50% or 0.5"
        )),
    }
}

/// Reads the time between two polls: at least 100 ms, at most a day.
pub fn parse_poll_interval(text: &str) -> Result<Duration, String> {
    let (least, most) = (Duration::from_millis(100), Duration::from_secs(86_400));
    match parse_duration(text)? {
        time if (least..=most).contains(&time) => Ok(time),
        _ => Err("it must be from 100ms to 1day".to_owned()),
    }
}

/// Shows a size with a fitting unit: "512 B", "1.5 KiB".
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Shows a time with a fitting unit and three significant digits: "843 ns", "12.3 us", "1.20 s".
pub fn show_ns(ns: u64) -> String {
    const UNITS: [(&str, f64); 4] = [("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)];
    let value = ns as f64;
    let (unit, scale) = UNITS
        .into_iter()
        .find(|(_, scale)| value >= *scale)
        .unwrap_or(("ns", 1.0));
    let scaled = value / scale;
    if unit == "ns" || scaled >= 100.0 {
        format!("{scaled:.0} {unit}")
    } else if scaled >= 10.0 {
        format!("{scaled:.1} {unit}")
    } else {
        format!("{scaled:.2} {unit}")
    }
}

/// The same for a duration of the standard library.
pub fn show_duration(duration: Duration) -> String {
    show_ns(trine_transport::time::Duration::from(duration).as_nanos())
}

/// Shows a whole number in groups of three: "1,234,567".
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Shows a count in at most `width` characters, at least 5: in full if it fits, else as "12.3M".
pub fn show_count_within(count: u64, width: usize) -> String {
    let full = show_count(count);
    if full.len() <= width {
        return full;
    }
    let (mut value, mut unit) = (count as f64, "");
    for next in ["k", "M", "G", "T", "P", "E"] {
        // Rounding to three digits would make 1000 of it.
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1e3, next);
    }
    let decimals = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{unit}")
}

/// "1 key", "2 keys".
pub fn plural(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", show_count(count))
}

/// A date with its time, to the second: `2026-01-02T03:04:05Z`.
pub fn show_date(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The screen of `top` cut the leading digits of numbers that were wider than their column: 100,005 was 00,005.
    #[test]
    fn a_count_that_does_not_fit_is_rounded_and_never_cut() {
        assert_eq!(show_count_within(99_999, 6), "99,999");
        assert_eq!(show_count_within(100_005, 6), "100k");
        assert_eq!(show_count_within(999_600, 6), "1.00M");
        assert_eq!(show_count_within(12_345_678, 6), "12.3M");
        assert_eq!(show_count_within(u64::MAX, 5), "18.4E");
        for digits in 0..64 {
            for count in [1_u64 << digits, (1 << digits) - 1, (1 << digits) / 10 * 10] {
                assert!(show_count_within(count, 5).len() <= 5, "{count}");
            }
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_bytes("64"), Ok(64));
        assert_eq!(parse_bytes("64k"), Ok(65_536));
        assert_eq!(parse_bytes("2GiB"), Ok(2 << 30));
        assert!(parse_bytes("GiB").is_err());
        assert!(parse_bytes("1.5MiB").is_err());
        assert!(parse_bytes("99999999999999T").is_err());
    }

    #[test]
    fn what_people_read_has_three_digits() {
        assert_eq!(show_ns(843), "843 ns");
        assert_eq!(show_ns(12_345), "12.3 us");
        assert_eq!(show_ns(1_204_000_000), "1.20 s");
        assert_eq!(show_bytes(1536), "1.5 KiB");
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_count(999), "999");
        assert_eq!(plural(1, "key"), "1 key");
    }

    #[test]
    fn a_share_has_the_same_two_forms_everywhere() {
        for (text, percents) in [
            ("1%", 1),
            ("0.5", 50),
            ("50 %", 50),
            ("1", 100),
            ("0.07", 7),
        ] {
            assert_eq!(parse_percents(text, 100), Ok(percents), "{text}");
        }
        for wrong in ["", "%", "20", "101%", "-1%", "0.005", "nan", "x"] {
            assert!(parse_percents(wrong, 100).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_duration_without_a_unit_is_in_seconds_and_some_must_not_be_zero() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("20"), Ok(Duration::from_secs(20)));
        assert_eq!(parse_duration("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["-1", "nan", "inf", "1e300", "", "5 parsecs"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert!(parse_positive_duration("0s").is_err());
        assert_eq!(parse_time_to_live("1ns"), Ok(1));
        assert_eq!(parse_time_to_live("100y").map(|ns| ns >> 61), Ok(1));
        assert!(parse_time_to_live("500y").is_ok());
        for wrong in ["0", "501y", "600y", "-1"] {
            assert!(parse_time_to_live(wrong).is_err(), "{wrong}");
        }
    }
}
