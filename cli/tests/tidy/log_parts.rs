//! Parts of the log: an operator chooses lines by part, so each part that a replica logs under is documented.
//!
//! A line without a part of its own has the path of its module. The reload of TLS had one that no document named.

use super::{Source, report, sources};

/// The document that lists them.
const DOCUMENT: &str = "docs/monitoring.md";
/// The part of what is announced; a JSON log has it, and no level chooses it.
const ANNOUNCED: &str = "trine";

#[test]
fn the_parts_of_the_log_are_documented() {
    let document = super::repository().join(DOCUMENT);
    let document = std::fs::read_to_string(document).expect("it is there");
    let sources = sources();
    let mut found = 0;
    let mut complaints = Vec::new();
    for source in sources
        .iter()
        .filter(|source| source.path.starts_with("server/src/"))
    {
        for part in parts(source, &sources) {
            found += 1;
            let is_told = part == ANNOUNCED || document.contains(&format!("`{part}`"));
            if !is_told {
                complaints.push(format!("{}: `{part}` is not in {DOCUMENT}", source.path));
            }
        }
    }
    assert!(
        found > 10,
        "{found} lines with a part: the reader sees none"
    );
    report("parts of the log without a word on them", complaints);
}

/// What stands behind each `target:` of a file: a text, or a constant of some file.
fn parts(source: &Source, all: &[Source]) -> Vec<String> {
    let mut parts = Vec::new();
    for behind in source.text.split("target: ").skip(1) {
        let end = behind.find([',', ')']).unwrap_or(behind.len());
        let name = behind[..end].trim();
        if let Some(text) = name
            .strip_prefix('"')
            .and_then(|name| name.strip_suffix('"'))
        {
            parts.push(text.to_owned());
        } else if name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
            let is_it = format!("const {name}: &str = \"");
            // A file's own constant comes first: others may have the name for something else.
            let files = std::iter::once(source).chain(all);
            let mut files = files.filter(|file| file.path.starts_with("server/src/"));
            let value = files.find_map(|file| file.text.split_once(&is_it));
            let value = value.and_then(|(_, rest)| rest.split_once('"'));
            parts.push(value.map_or_else(|| name.to_owned(), |(value, _)| value.to_owned()));
        }
    }
    parts
}

#[test]
fn parts_are_seen_as_texts_and_as_constants() {
    let file = |text: &str| Source {
        path: "server/src/x.rs".to_owned(),
        text: text.to_owned(),
    };
    let constants = file("pub const ROLE: &str = \"role\";");
    let lines = file("info!(target: ROLE, \"a\"); warn!(target: \"raft\", level);");
    let found = parts(&lines, &[constants]);
    assert_eq!(found, ["role", "raft"]);
}
