//! A page that is one self-contained HTML file: no script, no font, no network.

use std::fmt::Write;

use super::svg::escape;

const STYLE: &str = "\
:root{--ink:#1d2430;--soft:#5b6678;--line:#d9dee7;--back:#fff;--a:#2563eb;--b:#d9480f;--c:#2b8a3e;--d:#9c36b5;--e:#0b7285;--f:#a61e4d;--g:#5f3dc4;--h:#e67700}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf2;--soft:#9aa6b8;--line:#323b4a;--back:#151a22;--a:#74a9ff;--b:#ff9b66;--c:#69db7c;--d:#da77f2;--e:#66d9e8;--f:#faa2c1;--g:#b197fc;--h:#ffc078}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:820px;margin:2em auto;padding:0 1em}
h1{font-size:1.5em;margin-bottom:0}h2{font-size:1.15em;margin-top:2em}p.sub,footer{color:var(--soft)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th,td{padding:.25em .6em;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}th{color:var(--soft);font-weight:600}
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--soft)}svg .grid{stroke:var(--line)}svg .mark{stroke:var(--soft);stroke-dasharray:2 3}svg .open{opacity:.45}svg .words{fill:var(--ink)}svg polyline{fill:none;stroke-width:1.8}
.legend span{margin-right:1.2em;font-size:.9em}.legend i{display:inline-block;width:1.1em;height:.25em;margin-right:.4em;vertical-align:middle}
.c0{stroke:var(--a)}.c1{stroke:var(--b)}.c2{stroke:var(--c)}.c3{stroke:var(--d)}.c4{stroke:var(--e)}.c5{stroke:var(--f)}.c6{stroke:var(--g)}.c7{stroke:var(--h)}
.dashed{stroke-dasharray:5 4}.legend svg{width:28px;height:8px;margin-right:.4em;vertical-align:middle}.legend line{stroke-width:1.8}
.b0{background:var(--a)}.b1{background:var(--b)}.b2{background:var(--c)}.b3{background:var(--d)}.b4{background:var(--e)}.b5{background:var(--f)}.b6{background:var(--g)}.b7{background:var(--h)}
.f0{fill:var(--a)}.f1{fill:var(--b)}.f2{fill:var(--c)}.f3{fill:var(--d)}.f4{fill:var(--e)}.f5{fill:var(--f)}.f6{fill:var(--g)}.f7{fill:var(--h)}
.note{border-left:3px solid var(--b);padding-left:.8em}";

/// A page that is being written.
pub struct Page(String);

impl Page {
    /// Begins a page.
    pub fn new(title: &str, below: &str) -> Self {
        let (title, below) = (escape(title), escape(below));
        Self(format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width\"/>\
             <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p class=\"sub\">{below}</p>\n"
        ))
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) {
        self.push(&format!("\n<h2>{}</h2>\n", escape(text)));
    }

    /// Adds HTML unchanged.
    pub fn push(&mut self, html: &str) {
        self.0.push_str(html);
    }

    /// Returns the whole page.
    pub fn finish(mut self) -> String {
        self.push("</body></html>\n");
        self.0
    }
}

/// A table of text.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = String::new();
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = String>| {
        cells
            .map(|cell| format!("<{tag}>{}</{tag}>", escape(&cell)))
            .collect::<String>()
    };
    // Writing to a string cannot fail.
    let _ = write!(
        table,
        "<table><tr>{}</tr>",
        cells("th", &mut header.iter().map(ToString::to_string))
    );
    for row in rows {
        let _ = write!(table, "<tr>{}</tr>", cells("td", &mut row.into_iter()));
    }
    table.push_str("</table>\n");
    table
}
