//! Columns that fit the width of a terminal: some are left out, and what is still too long ends with `…`. A figure without its
//! first digit is another figure.

use std::borrow::Cow;

use ratatui::layout::Constraint;

/// How a table shares out its width.
pub(super) struct TableLayout<'a> {
    /// Each column's share, where all have enough.
    pub(super) shares: &'a [u16],
    /// The columns that are left out where not all fit, the first one first.
    pub(super) drops: &'a [usize],
}

/// Some columns of a table.
pub(super) struct Columns {
    /// The columns that are shown, and how wide they may be.
    kept: Vec<(usize, u16)>,
    /// The shares of the width, if it suffices for everything.
    shares: Option<Vec<u16>>,
}

impl Columns {
    /// What of these cells fits in a width; a blank separates columns.
    pub(super) fn fit<'a>(
        header: &[&str],
        rows: impl Iterator<Item = &'a [&'a str]>,
        shape: &TableLayout<'_>,
        width: u16,
    ) -> Self {
        let count = shape.shares.len();
        let mut needs: Vec<u16> = (0..count)
            .map(|column| header.get(column).map_or(0, |text| width_of(text)))
            .collect();
        for row in rows {
            for (need, cell) in needs.iter_mut().zip(row) {
                *need = width_of(cell).max(*need);
            }
        }
        let mut kept: Vec<(usize, u16)> = needs.iter().copied().enumerate().collect();
        let has_room = |kept: &[(usize, u16)]| sum(kept) <= room(width, kept.len());
        let all: u32 = shape.shares.iter().map(|share| u32::from(*share)).sum();
        let share = |share: u16| u32::from(room(width, count)) * u32::from(share) / all.max(1);
        let is_wide = needs
            .iter()
            .zip(shape.shares)
            .all(|(need, part)| u32::from(*need) <= share(*part));
        if is_wide {
            let shares = Some(shape.shares.to_vec());
            return Self { kept, shares };
        }
        for dropped in shape.drops {
            if !has_room(&kept) {
                kept.retain(|(column, _)| column != dropped);
            }
        }
        while !has_room(&kept) {
            let widest = kept.iter_mut().max_by_key(|(_, width)| *width);
            match widest {
                Some((_, width)) if *width > 1 => *width -= 1,
                _ => break,
            }
        }
        share_out(
            room(width, kept.len()).saturating_sub(sum(&kept)),
            &mut kept,
        );
        Self { kept, shares: None }
    }

    /// The columns that are shown.
    pub(super) fn kept(&self) -> impl Iterator<Item = usize> + '_ {
        self.kept.iter().map(|(column, _)| *column)
    }

    pub(super) fn constraints(&self) -> Vec<Constraint> {
        match &self.shares {
            Some(shares) => shares.iter().copied().map(Constraint::Fill).collect(),
            None => self
                .kept
                .iter()
                .map(|(_, width)| Constraint::Length(*width))
                .collect(),
        }
    }

    /// The cells of a row that are shown.
    pub(super) fn of<'a>(&self, cells: &[&'a str]) -> Vec<Cow<'a, str>> {
        let shown = |&(column, width): &(usize, u16)| {
            let cell = cells.get(column).copied().unwrap_or_default();
            shortened_cow(cell, width)
        };
        self.kept.iter().map(shown).collect()
    }
}

/// Gives the room that is left to all columns alike.
fn share_out(spare: u16, kept: &mut [(usize, u16)]) {
    let count = u16::try_from(kept.len()).unwrap_or(u16::MAX).max(1);
    for (column, (_, width)) in (0..).zip(kept.iter_mut()) {
        *width += spare / count + u16::from(column < spare % count);
    }
}

fn sum(kept: &[(usize, u16)]) -> u16 {
    let widths = kept.iter().map(|(_, width)| *width);
    widths.fold(0, u16::saturating_add)
}

/// The width without the blanks between so many columns.
fn room(width: u16, columns: usize) -> u16 {
    let blanks = u16::try_from(columns.saturating_sub(1)).unwrap_or(u16::MAX);
    width.saturating_sub(blanks)
}

fn width_of(text: &str) -> u16 {
    u16::try_from(text.chars().count()).unwrap_or(u16::MAX)
}

/// The text, or as much of it as fits before a `…`.
pub(super) fn shortened(text: &str, width: u16) -> String {
    shortened_cow(text, width).into_owned()
}

fn shortened_cow(text: &str, width: u16) -> Cow<'_, str> {
    if width_of(text) <= width {
        return text.into();
    }
    let Some(room) = usize::from(width).checked_sub(1) else {
        return "".into();
    };
    let begin = text.chars().take(room);
    begin.chain(Some('…')).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: TableLayout<'_> = TableLayout {
        shares: &[1, 4, 2],
        drops: &[2],
    };

    fn fit(width: u16) -> Vec<Vec<String>> {
        let rows = [
            vec!["1", "127.100.100.101:17471", "123"],
            vec!["2", "h:1", "4"],
        ];
        let cells = || rows.iter().map(Vec::as_slice);
        let columns = Columns::fit(&["id", "address", "lag"], cells(), &SHAPE, width);
        let shown = |row: &[&str]| columns.of(row).iter().map(ToString::to_string).collect();
        cells().map(shown).collect()
    }

    /// At 40 columns `127.100.100.101:17471` was `127.100.100.101:174`, and figures lost their first digits.
    #[test]
    fn nothing_is_cut_without_a_word() {
        let whole = ["1", "127.100.100.101:17471", "123"];
        assert_eq!(fit(60)[0], whole);
        assert_eq!(fit(28)[0], whole);
        assert_eq!(fit(27)[0], whole[..2]);
        assert_eq!(fit(24)[0], whole[..2]);
        assert_eq!(fit(20)[0], ["1", "127.100.100.101:…"]);
        assert_eq!(fit(20)[1], ["2", "h:1"]);
        for width in 0..80 {
            let columns = fit(width);
            assert!(columns.iter().all(|row| !row.is_empty()), "{width}");
        }
    }
}
