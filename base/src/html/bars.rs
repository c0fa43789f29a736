//! Rows of bars over time, as inline SVG: a row for each actor, a bar for each action.

use std::fmt::Write;

use super::svg::{COLOURS, escape};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 30.0;
/// The height of a row, of a row whose bars carry text, and of the bar in it.
const ROW: f64 = 16.0;
const ROW_WITH_WORDS: f64 = 38.0;
const BAR: f64 = 10.0;
/// A bar is at least this wide, so that it can be seen.
const BAR_WIDTH_LEAST: f64 = 1.2;

/// Something that lasted.
#[derive(Clone, Debug)]
pub struct Bar {
    /// When it began, on the drawing's axis.
    pub from: f64,
    /// Nothing if it has no end, such as an operation without an answer.
    pub to: Option<f64>,
    /// The index of its colour.
    pub colour: usize,
    /// The text that a browser shows when the pointer is over the bar.
    pub title: String,
    /// Text above it.
    pub words: String,
}

/// The bars of one actor.
#[derive(Clone, Debug)]
pub struct Row {
    /// Who it is.
    pub name: String,
    /// What it did.
    pub bars: Vec<Bar>,
}

/// A drawing.
pub struct Bars<'a> {
    /// A description, for readers who cannot see the drawing.
    pub about: &'a str,
    /// From top to bottom.
    pub rows: &'a [Row],
    /// Upright lines: when, and what happened.
    pub marks: &'a [(f64, String)],
    /// The start and the end of the axis.
    pub span: (f64, f64),
    /// Formats a point on the axis.
    pub show_x: fn(f64) -> String,
}

impl Bars<'_> {
    /// The drawing as an `<svg>` element.
    pub fn draw(&self) -> String {
        let rows = self.rows.iter();
        let height = TOP + BOTTOM + rows.map(row_height).sum::<f64>();
        // Writing to a string cannot fail.
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
            escape(self.about)
        );
        self.draw_axis(height, &mut svg);
        let mut y = TOP;
        for row in self.rows {
            self.draw_row(row, y, &mut svg);
            y += row_height(row);
        }
        for (at, what) in self.marks {
            let x = self.x_at(*at);
            let _ = write!(
                svg,
                "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"><title>{}</title></line>",
                height - BOTTOM,
                escape(what)
            );
        }
        svg.push_str("</svg>");
        svg
    }

    fn draw_axis(&self, height: f64, svg: &mut String) {
        let (from, to) = self.span;
        for step in 0..=5 {
            let at = from + (to - from) * f64::from(step) / 5.0;
            let x = self.x_at(at);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{}\">{}</text>",
                height - BOTTOM,
                height - BOTTOM + 16.0,
                if step == 5 { "end" } else { "middle" },
                escape(&(self.show_x)(at - from))
            );
        }
    }

    fn draw_row(&self, row: &Row, y: f64, svg: &mut String) {
        let middle = y + row_height(row) - ROW / 2.0;
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>",
            LEFT - 8.0,
            middle + 4.0,
            escape(&row.name),
            WIDTH - RIGHT
        );
        for bar in &row.bars {
            self.draw_bar(bar, middle, svg);
        }
    }

    fn draw_bar(&self, bar: &Bar, middle: f64, svg: &mut String) {
        let x = self.x_at(bar.from);
        let width = self.x_at(bar.to.unwrap_or(self.span.1)) - x;
        let open = if bar.to.is_none() { " open" } else { "" };
        let _ = write!(
            svg,
            "<rect class=\"f{}{open}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\"><title>{}</title></rect>",
            bar.colour % COLOURS,
            middle - BAR / 2.0,
            width.max(BAR_WIDTH_LEAST),
            escape(&bar.title)
        );
        if bar.words.is_empty() {
            return;
        }
        // Text that begins in the right half ends where the bar ends, so that it stays inside.
        let (at, anchor) = match x < LEFT + (WIDTH - LEFT - RIGHT) / 2.0 {
            true => (x, "start"),
            false => ((x + width).max(x), "end"),
        };
        let _ = write!(
            svg,
            "<text class=\"words\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            middle - BAR,
            escape(&bar.words)
        );
    }

    fn x_at(&self, at: f64) -> f64 {
        let (from, to) = self.span;
        let share = match to > from {
            true => ((at - from) / (to - from)).clamp(0.0, 1.0),
            false => 0.0,
        };
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }
}

fn row_height(row: &Row) -> f64 {
    match row.bars.iter().any(|bar| !bar.words.is_empty()) {
        true => ROW_WITH_WORDS,
        false => ROW,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stay_inside_whatever_they_are() {
        let bar = |from, to| Bar {
            from,
            to,
            colour: 11,
            title: "<a> & b".into(),
            words: "x".into(),
        };
        let rows = [Row {
            name: "<row>".into(),
            bars: vec![bar(-5.0, Some(2.0)), bar(3.0, None), bar(9.0, Some(1e9))],
        }];
        for span in [(0.0, 10.0), (0.0, 0.0)] {
            let bars = Bars {
                about: "a \"test\"",
                rows: &rows,
                marks: &[(4.0, "m < n".into())],
                span,
                show_x: |x| format!("{x}"),
            };
            let svg = bars.draw();
            assert!(!svg.contains("NaN") && !svg.contains("<a>") && !svg.contains("<row>"));
            for rect in svg.split("<rect ").skip(1) {
                let number = |name: &str| -> f64 {
                    let rest = rect.split(&format!("{name}=\"")).nth(1).expect(name);
                    rest.split('"')
                        .next()
                        .expect("an end")
                        .parse()
                        .expect("a number")
                };
                assert!(number(" x") >= LEFT && number("width") >= BAR_WIDTH_LEAST);
                assert!(number(" x") + number("width") <= WIDTH, "{rect}");
            }
        }
    }
}
