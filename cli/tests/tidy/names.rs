//! Counts type names that several files of production code define.
//!
//! A reader who meets `State` for the fifth time has to look up which one it is. A name may be right in several places,
//! as `Header` and `Event` are, so this is a limit and not a ban.

use crate::cycles::trees;
use crate::modules::for_tests_alone;
use crate::report;
use std::collections::{BTreeMap, BTreeSet};
use syn::Item;

/// A name in more files than these counts.
const FILES_MAX: usize = 3;
/// As many names as that may be in more than [`FILES_MAX`] files. Lower it when there are fewer.
const NAMES_MAX: usize = 4;

/// The types, traits and type aliases that `items` define, those in modules inside the file included, those that only
/// tests contain left out.
fn types(items: &[Item], found: &mut BTreeSet<String>) {
    for item in items {
        let (name, attributes) = match item {
            Item::Struct(item) => (&item.ident, &item.attrs),
            Item::Enum(item) => (&item.ident, &item.attrs),
            Item::Union(item) => (&item.ident, &item.attrs),
            Item::Trait(item) => (&item.ident, &item.attrs),
            Item::Type(item) => (&item.ident, &item.attrs),
            Item::Mod(item) => {
                if let Some((_, items)) = &item.content
                    && !for_tests_alone(&item.attrs)
                {
                    types(items, found);
                }
                continue;
            }
            _ => continue,
        };
        if !for_tests_alone(attributes) {
            found.insert(name.to_string());
        }
    }
}

/// The names that more than [`FILES_MAX`] files define, with the files.
fn ambiguous<'a>(
    files: impl Iterator<Item = (&'a str, &'a [Item])>,
) -> BTreeMap<String, BTreeSet<&'a str>> {
    let mut files_of: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (path, items) in files {
        let mut found = BTreeSet::new();
        types(items, &mut found);
        for name in found {
            files_of.entry(name).or_default().insert(path);
        }
    }
    files_of.retain(|_, files| files.len() > FILES_MAX);
    files_of
}

#[test]
fn few_type_names_are_defined_in_many_files() {
    let trees = trees();
    // What serves fuzz targets is no production code.
    let files = trees.iter().flat_map(|tree| &tree.files);
    let files = files.filter(|file| !file.path.starts_with("fuzz/"));
    let found = ambiguous(files.map(|file| (file.path.as_str(), file.items.as_slice())));
    if found.len() <= NAMES_MAX {
        return;
    }
    let mut complaints: Vec<(usize, String)> = found
        .iter()
        .map(|(name, files)| {
            let files: Vec<&str> = files.iter().copied().collect();
            (files.len(), format!("{name}: {}", files.join(", ")))
        })
        .collect();
    complaints.sort_by(|a, b| b.cmp(a));
    report(
        &format!(
            "{} type names are defined in more than {FILES_MAX} files, {NAMES_MAX} may be (rename by what the value is)",
            found.len()
        ),
        complaints.into_iter().map(|(_, text)| text).collect(),
    );
}

#[test]
fn a_name_counts_once_for_each_file_that_defines_it() {
    let parse = |text: &str| syn::parse_file(text).expect("Rust").items;
    let defining = parse("mod inner { enum State { A } struct State; } type Alias = u8;");
    let using = parse(
        "use other::State; fn f(_: State) {} mod elsewhere; #[cfg(test)] mod tests { struct State; }",
    );
    let files = |defining_files: usize| {
        let names = ["a.rs", "b.rs", "c.rs", "d.rs", "e.rs"];
        let of = |(at, name): (usize, &'static str)| {
            let items = if at < defining_files {
                &defining
            } else {
                &using
            };
            (name, items.as_slice())
        };
        let files: Vec<(&str, &[Item])> = names.into_iter().enumerate().map(of).collect();
        files
    };
    assert!(ambiguous(files(FILES_MAX).into_iter()).is_empty());
    let found = ambiguous(files(FILES_MAX + 1).into_iter());
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["Alias", "State"]);
    assert_eq!(found["State"].len(), FILES_MAX + 1);
}
