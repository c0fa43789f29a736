//! Which of the two text formats of metrics a caller wants.

/// A format that `/metrics` can answer in.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// What every scraper reads, and what a person gets.
    Plain,
    /// OpenMetrics.
    Open,
}

impl Format {
    /// The one that an `Accept` header prefers. Without one, with equal preferences and where neither will do it is plain
    /// text: numbers in a format that was not asked for are of more use than none.
    pub(super) fn preferred(accept: Option<&str>) -> Self {
        let quality = |format: Self| accept.map_or(0, |list| format.quality(list));
        match quality(Self::Open) > quality(Self::Plain) {
            true => Self::Open,
            false => Self::Plain,
        }
    }

    /// Media type and version.
    fn name(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Plain => ("text", "plain", "0.0.4"),
            Self::Open => ("application", "openmetrics-text", "1.0.0"),
        }
    }

    pub(super) fn content_type(self) -> String {
        let (kind, subtype, version) = self.name();
        format!("{kind}/{subtype}; version={version}; charset=utf-8")
    }

    /// How much a list of media ranges wants this format, in thousandths. The most specific range that fits says it.
    fn quality(self, list: &str) -> u16 {
        let fitting = list.split(',').filter_map(|range| self.fit(range));
        fitting.max().map_or(0, |(_, quality)| quality)
    }

    /// How specific a range that fits is, and its quality.
    fn fit(self, range: &str) -> Option<(u8, u16)> {
        let (kind, subtype, version) = self.name();
        let mut parts = range.split(';').map(str::trim);
        let (wanted_kind, wanted_subtype) = parts.next()?.split_once('/')?;
        let is = |wanted: &str, own| wanted.eq_ignore_ascii_case(own);
        let mut specific = match (wanted_kind, wanted_subtype) {
            ("*", "*") => 0,
            (wanted, "*") if is(wanted, kind) => 1,
            (wanted, below) if is(wanted, kind) && is(below, subtype) => 2,
            _ => return None,
        };
        let mut quality = 1000;
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => quality = thousandths(value)?,
                "version" if value == version => specific = 3,
                "version" => return None,
                "charset" if !is(value, "utf-8") => return None,
                // How names are escaped, for example; these have nothing to escape.
                _ => {}
            }
        }
        Some((specific, quality))
    }
}

/// A quality from `0` to `1` with three digits at most; none for other text.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    let part: u16 = format!("{part:0<3}").parse().ok().filter(|_| is_number)?;
    match whole {
        "0" => Some(part),
        "1" if part == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scraper that reads the plain format alone was sent OpenMetrics.
    #[test]
    fn the_format_is_the_one_that_the_caller_prefers() {
        use Format::{Open, Plain};
        let both = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                    text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let newest = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.5,\
                      text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (both, Open),
            (newest, Open),
            ("application/openmetrics-text", Open),
            (
                "Application/OpenMetrics-Text; Version=\"1.0.0\" ; Q=0.5",
                Open,
            ),
            ("application/openmetrics-text; charset=UTF-8", Open),
            (
                "text/plain;q=0.4, application/openmetrics-text;q=0.401",
                Open,
            ),
            ("text/*;q=0.1, */*", Open),
            ("text/plain;version=0.0.4;q=0, */*;q=0.1", Open),
            ("application/*", Open),
            (
                "*/*;q=0.1,text/plain;q=x,application/openmetrics-text;q=0.2",
                Open,
            ),
            ("text/plain;version=0.0.4", Plain),
            ("text/plain", Plain),
            ("*/*", Plain),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                Plain,
            ),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4",
                Plain,
            ),
            ("application/openmetrics-text,text/plain", Plain),
            ("application/openmetrics-text;q=0", Plain),
            ("application/openmetrics-text;q=0,*/*", Plain),
            ("application/openmetrics-text;version=0.0.1", Plain),
            ("application/openmetrics-text;charset=latin1", Plain),
            ("application/openmetrics-text;q=1.5", Plain),
            ("application/json", Plain),
            ("nonsense", Plain),
            ("", Plain),
        ] {
            assert_eq!(Format::preferred(Some(accept)), format, "{accept}");
        }
        assert_eq!(Format::preferred(None), Plain);
    }

    #[test]
    fn qualities_are_from_nought_to_one() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("0.5", Some(500)),
            ("0.", Some(0)),
            ("0.125", Some(125)),
            ("1.000", Some(1000)),
            ("1.001", None),
            ("0.1234", None),
            ("-0", None),
            ("0.+1", None),
            ("", None),
        ] {
            assert_eq!(thousandths(text), expected, "{text}");
        }
    }
}
