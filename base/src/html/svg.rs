//! Line plots as inline SVG.

use std::fmt::Write;

/// Colours of the style sheet.
pub(super) const COLOURS: usize = 8;
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// A named line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points, from left to right. One whose height is no number interrupts the line.
    pub points: Vec<(f64, f64)>,
    /// Lines of one colour belong together.
    pub colour: usize,
    /// Whether the line is dashed.
    pub dashed: bool,
}

impl Line {
    fn class(&self) -> &'static str {
        if self.dashed { " dashed" } else { "" }
    }
}

/// How the vertical axis counts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero.
    Linear,
    /// By powers of ten.
    Logarithmic,
}

/// Six marks of an axis that counts seconds from 0 to `last`.
pub fn seconds_marks(last: f64) -> Vec<(f64, String)> {
    let marks = (0..=5).map(|step| last * f64::from(step) / 5.0);
    marks.map(|at| (at, format!("{at:.1}"))).collect()
}

/// The contents of a plot.
pub struct Plot<'a> {
    /// The name of the horizontal axis.
    pub x_name: &'a str,
    /// The name of the vertical axis.
    pub y_name: &'a str,
    /// The scale of the vertical axis.
    pub scale: Scale,
    /// The lines of the plot.
    pub lines: &'a [Line],
    /// The marks of the horizontal axis, and their text.
    pub x_marks: Vec<(f64, String)>,
    /// Formats a value of the vertical axis.
    pub show_y: fn(f64) -> String,
}

impl Plot<'_> {
    /// The plot as an `<svg>` element, with its legend below.
    pub fn draw(&self) -> String {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let (x_min, x_max) = range(
            all()
                .map(|point| point.0)
                .chain(self.x_marks.iter().map(|mark| mark.0)),
        );
        let marks = self.y_marks(all().map(|point| point.1));
        let (y_min, y_max) = range(marks.iter().map(|mark| self.scaled(*mark)));
        let x_at = |x: f64| LEFT + (x - x_min) / (x_max - x_min) * (WIDTH - LEFT - RIGHT);
        let y_at = |y: f64| {
            HEIGHT
                - BOTTOM
                - (self.scaled(y).clamp(y_min, y_max) - y_min) / (y_max - y_min)
                    * (HEIGHT - TOP - BOTTOM)
        };
        // Writing to a string cannot fail.
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} by {}\">",
            escape(self.y_name),
            escape(self.x_name)
        );
        for mark in &marks {
            let y = y_at(*mark);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                WIDTH - RIGHT
            );
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                escape(&(self.show_y)(*mark))
            );
        }
        self.draw_x_axis(x_at, &mut svg);
        for line in self.lines {
            for points in line.points.split(|(_, y)| y.is_nan()) {
                let points = points.iter();
                let points = points.map(|(x, y)| format!("{:.1},{:.1}", x_at(*x), y_at(*y)));
                let _ = write!(
                    svg,
                    "<polyline class=\"c{}{}\" points=\"{}\"/>",
                    line.colour % COLOURS,
                    line.class(),
                    points.collect::<Vec<_>>().join(" ")
                );
            }
        }
        svg.push_str("</svg>");
        self.draw_legend(&mut svg);
        svg
    }

    fn draw_x_axis(&self, x_at: impl Fn(f64) -> f64, svg: &mut String) {
        for (mark, text) in &self.x_marks {
            let x = x_at(*mark);
            let _ = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - BOTTOM + 18.0,
                escape(text)
            );
        }
        let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
        let _ = write!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 6.0,
            escape(self.x_name)
        );
    }

    fn draw_legend(&self, svg: &mut String) {
        svg.push_str("<p class=\"legend\">");
        for line in self.lines {
            let _ = write!(
                svg,
                "<span><svg viewBox=\"0 0 28 8\" aria-hidden=\"true\"><line class=\"c{}{}\" x1=\"0\" x2=\"28\" y1=\"4\" y2=\"4\"/></svg>{}</span> ",
                line.colour % COLOURS,
                line.class(),
                escape(&line.name)
            );
        }
        svg.push_str("</p>");
    }

    fn scaled(&self, y: f64) -> f64 {
        match self.scale {
            Scale::Linear => y,
            Scale::Logarithmic => y.max(1e-9).log10(),
        }
    }

    /// The marks of the vertical axis: round numbers that enclose the values.
    fn y_marks(&self, values: impl Iterator<Item = f64>) -> Vec<f64> {
        let (least, most) = range(values);
        match self.scale {
            Scale::Linear => {
                let step = round_step(most.max(1e-9) / 5.0);
                (0..=6)
                    .map(|index| f64::from(index) * step)
                    .take_while(|mark| *mark < most + step)
                    .collect()
            }
            Scale::Logarithmic => {
                let (from, to) = (
                    least.max(1.0).log10().floor(),
                    most.max(10.0).log10().ceil(),
                );
                let decades = (to - from).max(1.0) as i32;
                (0..=decades)
                    .map(|index| 10_f64.powf(from + f64::from(index)))
                    .collect()
            }
        }
    }
}

/// The least and the greatest value; the two always differ.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = values.filter(|value| value.is_finite()).fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), value| (least.min(value), most.max(value)),
    );
    match least < most {
        true => (least, most),
        false if least.is_finite() => (least, least + 1.0),
        false => (0.0, 1.0),
    }
}

/// 1, 2 or 5 times a power of ten, at least `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(power * 10.0)
}

/// Escapes the characters of `text` that have a meaning in HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_interrupted_where_there_is_no_number() {
        let points = [(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 4.0)];
        let lines = [Line {
            name: "a".into(),
            colour: 0,
            dashed: false,
            points: points.to_vec(),
        }];
        let svg = Plot {
            x_name: "x",
            y_name: "y",
            scale: Scale::Logarithmic,
            lines: &lines,
            x_marks: Vec::new(),
            show_y: |y| y.to_string(),
        }
        .draw();
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn points_lie_inside_of_the_plot_whatever_they_are() {
        let line = |points: &[(f64, f64)]| Line {
            name: "<a>".into(),
            points: points.to_vec(),
            colour: 9,
            dashed: true,
        };
        for lines in [
            vec![],
            vec![line(&[])],
            vec![line(&[(0.0, 0.0)])],
            vec![
                line(&[(1.0, 3.0), (2.0, 3.0)]),
                line(&[(0.0, 1e9), (9.0, 1.0)]),
            ],
        ] {
            for scale in [Scale::Linear, Scale::Logarithmic] {
                let plot = Plot {
                    x_name: "x & more",
                    y_name: "y",
                    scale,
                    lines: &lines,
                    x_marks: vec![(0.0, "0".into())],
                    show_y: |y| format!("{y}"),
                };
                let svg = plot.draw();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                assert!(!svg.contains("<a>") && !svg.contains("x & more"), "{svg}");
                for points in svg.split("points=\"").skip(1) {
                    let points = points.split('"').next().expect("an end");
                    for point in points.split(' ').filter(|point| !point.is_empty()) {
                        let (x, y) = point.split_once(',').expect("two numbers");
                        let (x, y): (f64, f64) = (x.parse().expect("x"), y.parse().expect("y"));
                        assert!(
                            (0.0..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y),
                            "{point}"
                        );
                    }
                }
            }
        }
    }

    /// A legend showed a dashed line as a block of a paler colour.
    #[test]
    fn the_legend_draws_each_line_as_the_plot_does() {
        let line = |colour, dashed| Line {
            name: "name".into(),
            points: vec![(0.0, 1.0), (1.0, 2.0)],
            colour,
            dashed,
        };
        let plot = Plot {
            x_name: "x",
            y_name: "y",
            scale: Scale::Linear,
            lines: &[line(0, false), line(1, true)],
            x_marks: Vec::new(),
            show_y: |y| format!("{y}"),
        };
        let svg = plot.draw();
        let (plot, legend) = svg.split_once("<p class=\"legend\">").expect("a legend");
        for class in ["class=\"c0\"", "class=\"c1 dashed\""] {
            assert!(plot.contains(&format!("<polyline {class}")), "{plot}");
            assert!(legend.contains(&format!("<line {class}")), "{legend}");
        }
    }

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!(round_step(0.3), 0.5);
        assert_eq!(round_step(1_300.0), 2_000.0);
        assert_eq!(round_step(100.0), 100.0);
    }
}
