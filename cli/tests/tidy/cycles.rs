//! Finds circles of imports between the files of a crate.
//!
//! A parent module and those below it may use each other, also in a larger circle within that parent. The parent is
//! where they are put together. The test reports the other circles: those between modules of which none contains the
//! others. They leave no order in which a reader could take the files.

use crate::edges::EDGES;
use crate::imports::{Imports, imports};
use crate::modules::{File, Modules};
use crate::{report, repository, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The crates' directories.
fn crates() -> impl Iterator<Item = &'static str> {
    let members = EDGES.iter().map(|(directory, _)| *directory);
    members.chain(["transport/dpdk-sys"])
}

fn read(root: &str) -> Option<Modules> {
    let text_of = |path: &Path| fs::read_to_string(repository().join(path)).ok();
    text_of(Path::new(root))?;
    Some(Modules::read(root, &text_of))
}

/// The module trees of the workspace: of each library and of each program.
pub(crate) fn trees() -> Vec<Modules> {
    let roots = crates()
        .flat_map(|directory| ["lib.rs", "main.rs"].map(|name| format!("{directory}/src/{name}")));
    roots.filter_map(|root| read(&root)).collect()
}

#[test]
fn files_do_not_import_each_other_in_circles() {
    let mut complaints = Vec::new();
    for modules in trees() {
        let imports = imports(&modules);
        for circle in circles(&modules.files, &imports) {
            complaints.push(describe(&circle, &modules.files, &imports));
        }
    }
    report(
        "circles of imports (move what ties them to a file of its own below both)",
        complaints,
    );
}

fn describe(circle: &BTreeSet<usize>, files: &[File], imports: &Imports) -> String {
    let mut text = format!("{} files:", circle.len());
    for file in circle {
        text += &format!("\n    {}", files[*file].path);
    }
    for ((from, to), names) in imports {
        if circle.contains(from) && circle.contains(to) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let (from, to) = (&files[*from].path, &files[*to].path);
            text += &format!("\n    {from} -> {to}: {}", names.join(", "));
        }
    }
    text
}

/// The sets of files that import each other in circles outside of any common parent. Each set is as large as possible.
fn circles(files: &[File], imports: &Imports) -> Vec<BTreeSet<usize>> {
    let mut found: Vec<BTreeSet<usize>> = Vec::new();
    // Parents come before their children, and so larger circles come before the smaller ones in them.
    for parent in 0..files.len() {
        let mut inside: BTreeSet<usize> = (0..files.len())
            .filter(|file| child_above(files, parent, *file).is_some())
            .collect();
        let reached: BTreeMap<usize, BTreeSet<usize>> = inside
            .iter()
            .map(|file| (*file, reach(*file, &inside, imports)))
            .collect();
        while let Some(start) = inside.first().copied() {
            let mut circle = reached[&start].clone();
            circle.retain(|file| reached[file].contains(&start));
            let children: BTreeSet<_> = circle
                .iter()
                .map(|file| child_above(files, parent, *file))
                .collect();
            inside.retain(|file| !circle.contains(file));
            if children.len() > 1 && !found.iter().any(|larger| circle.is_subset(larger)) {
                found.push(circle);
            }
        }
    }
    found
}

/// The child of `parent` that is `file` or contains it.
fn child_above(files: &[File], parent: usize, file: usize) -> Option<usize> {
    let mut child = file;
    loop {
        let above = files[child].parent?;
        if above == parent {
            return Some(child);
        }
        child = above;
    }
}

/// `start` and its direct and indirect imports, all of them in `inside`.
fn reach(start: usize, inside: &BTreeSet<usize>, imports: &Imports) -> BTreeSet<usize> {
    let mut reached = BTreeSet::from([start]);
    let mut open = vec![start];
    while let Some(from) = open.pop() {
        for (_, to) in imports
            .range((from, 0)..(from + 1, 0))
            .map(|(edge, _)| edge)
        {
            if inside.contains(to) && reached.insert(*to) {
                open.push(*to);
            }
        }
    }
    reached
}

#[test]
fn the_reader_of_imports_finds_every_source_file() {
    let trees = trees();
    let in_a_crate = |path: &str| crates().any(|name| path.starts_with(&format!("{name}/src/")));
    let missed = sources()
        .into_iter()
        .filter(|source| !source.is_test() && in_a_crate(&source.path))
        .map(|source| source.path)
        .filter(|path| !trees.iter().any(|modules| modules.knows(path)));
    report("files of no module", missed.collect());
}

/// A crate with these files, and its imports as `from -> to: names`.
fn crate_of(texts: &[(&str, &str)]) -> (Modules, Vec<String>) {
    let text_of = |path: &Path| {
        let found = texts.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| (*text).to_owned())
    };
    let modules = Modules::read("lib.rs", &text_of);
    let path = |file: usize| modules.files[file].path.trim_end_matches(".rs");
    let lines = imports(&modules)
        .into_iter()
        .map(|((from, to), names)| {
            let names: Vec<String> = names.into_iter().collect();
            format!("{} -> {}: {}", path(from), path(to), names.join(", "))
        })
        .collect();
    (modules, lines)
}

fn circles_of(texts: &[(&str, &str)]) -> Vec<Vec<String>> {
    let (modules, _) = crate_of(texts);
    let path = |file: usize| modules.files[file].path.clone();
    circles(&modules.files, &imports(&modules))
        .into_iter()
        .map(|circle| circle.into_iter().map(path).collect())
        .collect()
}

#[test]
fn imports_are_seen_in_every_form() {
    let (_, lines) = crate_of(&[
        (
            "lib.rs",
            "mod a; mod b; mod c; mod d; mod e; mod f; pub use b::Handed;",
        ),
        (
            "a.rs",
            "use crate::b::{self, c::{D, e as f}, Enum::*};\nfn x() { b::late(); }",
        ),
        (
            "b/mod.rs",
            "pub mod c;\npub use self::c::Deep;\nuse super::Handed as Other; pub struct Handed; pub enum Enum { A } pub fn late() {}",
        ),
        (
            "b/c.rs",
            "pub struct D; pub fn e() {} pub struct Deep; pub mod inline { use super::super::Enum; }",
        ),
        (
            "c.rs",
            "fn x(_: &crate::b::Deep) -> super::Handed { assert!(crate::b::c::e() == 1, \"crate::d::N\"); }",
        ),
        (
            "d.rs",
            "#[cfg(test)]\nuse crate::a::x;\n#[cfg(test)]\nmod tests { use crate::b::late; }\nstruct S;\nimpl S { #[cfg(test)] fn t() { crate::c::x() } }\n#[cfg(all(test, unix))] fn u() { crate::c::x() }\n#[cfg(any(test, unix))] fn v() { crate::c::x() }",
        ),
        (
            "e.rs",
            "fn x() { use crate::b::c as inner; inner::e(); } #[derive(X)] #[x(by = crate::d::S)] struct E; pub(in crate::a) fn f() { std::mem::take(crate::f::made_by_a_macro()); }",
        ),
        (
            "f.rs",
            "use crate::b::*; use crate::c; use std::fs; fn x() { fs::read(); late() }",
        ),
    ]);
    let expected = [
        "lib -> b/mod: Handed",
        "a -> b/mod: Enum, late",
        "a -> b/c: D, e",
        "b/mod -> lib: Handed",
        "b/mod -> b/c: Deep",
        "b/c -> b/mod: Enum",
        "c -> lib: Handed",
        "c -> b/mod: Deep, Handed",
        "c -> b/c: Deep, e",
        "d -> c: x",
        "e -> b/c: e",
        "e -> d: S",
        "e -> f: made_by_a_macro",
        "f -> b/mod: *, late",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_circle_through_a_re_export_counts() {
    let root = ("lib.rs", "mod a; mod p;");
    let defines = ("p/x.rs", "pub struct P;");
    let handed_on = [
        root,
        ("a.rs", "use crate::p::P; pub struct A;"),
        ("p.rs", "mod x; pub use self::x::P; use crate::a::A;"),
        defines,
    ];
    assert_eq!(circles_of(&handed_on), [["a.rs", "p.rs"]]);
    let from_its_file = [
        root,
        ("a.rs", "use crate::p::x::P; pub struct A;"),
        ("p.rs", "pub mod x; pub use self::x::P; use crate::a::A;"),
        defines,
    ];
    assert_eq!(circles_of(&from_its_file), [[""; 0]; 0]);
}

#[test]
fn circles_count_unless_a_parent_holds_them_together() {
    let two = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::a::A; pub struct B;"),
    ];
    assert_eq!(circles_of(&two), [["a.rs", "b.rs"]]);

    let child = "use super::P; use super::y::Y; pub struct X;";
    let family = [
        ("lib.rs", "mod p;"),
        ("p.rs", "mod x; mod y; use x::X; pub struct P;"),
        ("p/x.rs", child),
        ("p/y.rs", "use super::P; pub struct Y;"),
    ];
    assert_eq!(circles_of(&family), [[""; 0]; 0]);

    let with_a_stranger = [
        ("lib.rs", "mod p; mod q;"),
        ("p.rs", "mod x; use x::X; pub struct P;"),
        ("p/x.rs", "use crate::q::Q; pub struct X;"),
        ("q.rs", "use crate::p::P; pub struct Q;"),
    ];
    assert_eq!(circles_of(&with_a_stranger), [["p.rs", "p/x.rs", "q.rs"]]);

    let below_a_parent = [
        ("lib.rs", "mod p;"),
        ("p.rs", "mod x; mod y; pub struct P;"),
        ("p/x.rs", "use super::y::Y; pub struct X;"),
        ("p/y.rs", "use super::x::X; pub struct Y;"),
    ];
    assert_eq!(circles_of(&below_a_parent), [["p/x.rs", "p/y.rs"]]);
}
