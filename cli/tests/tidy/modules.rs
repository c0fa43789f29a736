//! The modules of a crate: the names that each declares, and the file that defines the item of a path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use syn::{Attribute, Ident, Item, Meta, UseTree};

/// An import may refer to another import. Longer chains are loops.
const IMPORTS_IN_A_CHAIN_MAX: usize = 16;

/// The files of a crate that are compiled without `cfg(test)`, as a tree of modules.
pub(crate) struct Modules {
    pub(crate) files: Vec<File>,
    modules: Vec<Module>,
    /// Paths of the omitted modules, without `.rs`.
    for_tests: Vec<PathBuf>,
}

pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) items: Vec<Item>,
    /// The file's own module.
    pub(crate) module: usize,
    /// The file that declares this module; `None` for the crate's root.
    pub(crate) parent: Option<usize>,
}

struct Module {
    file: usize,
    parent: Option<usize>,
    /// The directory with the files of its own modules.
    directory: PathBuf,
    names: BTreeMap<String, Vec<Meaning>>,
    /// The paths before `::*` in `use` lines.
    globs: Vec<Vec<String>>,
}

/// The declaration of a name in a module. One name can be a module and a function at once.
enum Meaning {
    Module(usize),
    Item,
    Import(Vec<String>),
}

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Module(usize),
    /// Any item but a module: its name, or that of the type that it belongs to.
    Item {
        file: usize,
        name: String,
    },
}

impl Modules {
    /// Reads the crate whose root is the file `root`.
    pub(crate) fn read(root: &str, text_of: &dyn Fn(&Path) -> Option<String>) -> Self {
        let mut modules = Self {
            files: Vec::new(),
            modules: Vec::new(),
            for_tests: Vec::new(),
        };
        let text = text_of(Path::new(root)).expect("the crate's root");
        modules.add_file(Path::new(root), &text, None, text_of);
        modules
    }

    pub(crate) fn file_of(&self, module: usize) -> usize {
        self.modules[module].file
    }

    /// Whether the file was read, or left out because it is for tests alone.
    pub(crate) fn knows(&self, path: &str) -> bool {
        let stem = Path::new(path).with_extension("");
        self.files.iter().any(|file| file.path == path)
            || self.for_tests.iter().any(|test| stem.starts_with(test))
    }

    /// The module `name { ... }` in the text of `module`.
    pub(crate) fn inline(&self, module: usize, name: &Ident) -> Option<usize> {
        let meanings = self.modules[module].names.get(&name.to_string())?;
        meanings.iter().find_map(|meaning| match meaning {
            Meaning::Module(inner) if self.file_of(*inner) == self.file_of(module) => Some(*inner),
            _ => None,
        })
    }

    /// The meaning of `path` in the text of `from`. Empty if it leads out of the crate.
    pub(crate) fn resolve(&self, from: usize, path: &[String]) -> Vec<Place> {
        self.resolve_within(from, path, IMPORTS_IN_A_CHAIN_MAX)
    }

    fn resolve_within(&self, from: usize, path: &[String], imports: usize) -> Vec<Place> {
        let mut module = from;
        for (at, name) in path.iter().enumerate() {
            let after = &path[at + 1..];
            match name.as_str() {
                "crate" => module = 0,
                "self" => {}
                "super" => match self.modules[module].parent {
                    Some(parent) => module = parent,
                    None => return Vec::new(),
                },
                _ => return self.resolve_names(module, name, after, imports),
            }
        }
        vec![Place::Module(module)]
    }

    /// The meaning of `name::after`, with `name` resolved in `module`.
    fn resolve_names(
        &self,
        module: usize,
        name: &str,
        after: &[String],
        imports: usize,
    ) -> Vec<Place> {
        let places = self.look_up(module, name, imports);
        let Some((next, rest)) = after.split_first() else {
            return places;
        };
        let inner = places.iter().filter_map(|place| match place {
            Place::Module(inner) => Some(*inner),
            Place::Item { .. } => None,
        });
        let inner: Vec<usize> = inner.collect();
        if inner.is_empty() {
            return places;
        }
        let mut found = Vec::new();
        for module in inner {
            let deeper = self.resolve_names(module, next, rest, imports);
            if deeper.is_empty() {
                // A macro has made it, and its text is at least in this file.
                found.push(self.item(module, next));
            }
            found.extend(deeper);
        }
        found
    }

    /// The meaning of one name in the text of `module`.
    fn look_up(&self, module: usize, name: &str, imports: usize) -> Vec<Place> {
        let mut places = Vec::new();
        let Some(imports) = imports.checked_sub(1) else {
            return places;
        };
        let declared = self.modules[module].names.get(name);
        for meaning in declared.into_iter().flatten() {
            match meaning {
                Meaning::Module(inner) => places.push(Place::Module(*inner)),
                Meaning::Item => places.push(self.item(module, name)),
                Meaning::Import(path) => {
                    let origin = self.resolve_within(module, path, imports);
                    // A name from another crate counts for this file, and so does one that it hands on.
                    if !origin.iter().any(|place| matches!(place, Place::Module(_))) {
                        places.push(self.item(module, name));
                    }
                    places.extend(origin);
                }
            }
        }
        if declared.is_none() {
            for glob in &self.modules[module].globs {
                for place in self.resolve_within(module, glob, imports) {
                    if let Place::Module(inner) = place
                        && inner != module
                    {
                        places.extend(self.look_up(inner, name, imports));
                    }
                }
            }
        }
        places
    }

    fn item(&self, module: usize, name: &str) -> Place {
        Place::Item {
            file: self.file_of(module),
            name: name.to_owned(),
        }
    }

    fn add_file(
        &mut self,
        path: &Path,
        text: &str,
        parent: Option<usize>,
        text_of: &dyn Fn(&Path) -> Option<String>,
    ) -> usize {
        let items = match syn::parse_file(text) {
            Ok(syntax) => syntax.items,
            Err(error) => panic!("{} is not Rust: {error}", path.display()),
        };
        let named_after_directory =
            parent.is_none() || path.file_name().is_some_and(|name| name == "mod.rs");
        let directory = if named_after_directory {
            path.parent().expect("a file's directory").to_path_buf()
        } else {
            path.with_extension("")
        };
        let file = self.files.len();
        let module = self.add_module(file, parent, directory);
        // This file takes its index before the modules inside of it.
        self.files.push(File {
            path: path.display().to_string(),
            items: Vec::new(),
            module,
            parent: parent.map(|parent| self.file_of(parent)),
        });
        self.declare_all(module, &items, text_of);
        self.files[file].items = items;
        module
    }

    fn add_module(&mut self, file: usize, parent: Option<usize>, directory: PathBuf) -> usize {
        self.modules.push(Module {
            file,
            parent,
            directory,
            names: BTreeMap::new(),
            globs: Vec::new(),
        });
        self.modules.len() - 1
    }

    fn declare_all(
        &mut self,
        module: usize,
        items: &[Item],
        text_of: &dyn Fn(&Path) -> Option<String>,
    ) {
        for item in items {
            match item {
                Item::Mod(inner) if for_tests_alone(&inner.attrs) => {
                    let path = self.modules[module].directory.join(inner.ident.to_string());
                    self.for_tests.push(path);
                }
                Item::Mod(inner) => {
                    let id = self.add_inner(module, inner, text_of);
                    self.declare(module, &inner.ident, Meaning::Module(id));
                }
                Item::Use(import) if !for_tests_alone(&import.attrs) => {
                    for import in imports_of(&import.tree) {
                        match import.name {
                            Some(name) => self.add_name(module, name, Meaning::Import(import.path)),
                            None => self.modules[module].globs.push(import.path),
                        }
                    }
                }
                Item::Const(item) => self.declare(module, &item.ident, Meaning::Item),
                Item::Enum(item) => self.declare(module, &item.ident, Meaning::Item),
                Item::Fn(item) => self.declare(module, &item.sig.ident, Meaning::Item),
                Item::Macro(item) => {
                    if let Some(name) = &item.ident {
                        self.declare(module, name, Meaning::Item);
                    }
                }
                Item::Static(item) => self.declare(module, &item.ident, Meaning::Item),
                Item::Struct(item) => self.declare(module, &item.ident, Meaning::Item),
                Item::Trait(item) => self.declare(module, &item.ident, Meaning::Item),
                Item::Type(item) => self.declare(module, &item.ident, Meaning::Item),
                Item::Union(item) => self.declare(module, &item.ident, Meaning::Item),
                _ => {}
            }
        }
    }

    fn declare(&mut self, module: usize, name: &Ident, meaning: Meaning) {
        self.add_name(module, name.to_string(), meaning);
    }

    fn add_name(&mut self, module: usize, name: String, meaning: Meaning) {
        let names = &mut self.modules[module].names;
        names.entry(name).or_default().push(meaning);
    }

    /// The module that `mod name;` or `mod name { ... }` declares.
    fn add_inner(
        &mut self,
        parent: usize,
        declaration: &syn::ItemMod,
        text_of: &dyn Fn(&Path) -> Option<String>,
    ) -> usize {
        let name = declaration.ident.to_string();
        let directory = self.modules[parent].directory.join(&name);
        if let Some((_, items)) = &declaration.content {
            let module = self.add_module(self.file_of(parent), Some(parent), directory);
            self.declare_all(module, items, text_of);
            return module;
        }
        let beside = directory.with_extension("rs");
        let inside = directory.join("mod.rs");
        let found = [beside, inside]
            .into_iter()
            .find_map(|path| Some((text_of(&path)?, path)));
        let Some((text, path)) = found else {
            panic!("no file for {}", directory.display());
        };
        self.add_file(&path, &text, Some(parent), text_of)
    }
}

/// One name that a `use` line brings.
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    /// Its name from there on; `None` if the line ends in `*`.
    pub(crate) name: Option<String>,
}

pub(crate) fn imports_of(tree: &UseTree) -> Vec<Import> {
    let mut imports = Vec::new();
    add_imports(tree, &mut Vec::new(), &mut imports);
    imports
}

fn add_imports(tree: &UseTree, before: &mut Vec<String>, imports: &mut Vec<Import>) {
    let mut add = |last: Option<&Ident>, name: Option<&Ident>| {
        let mut path = before.clone();
        // `a::{self}` is `a`.
        path.extend(last.filter(|last| *last != "self").map(Ident::to_string));
        let own = path.last().cloned();
        let name = name.filter(|name| *name != "self").map(Ident::to_string);
        imports.push(Import {
            path,
            name: last.and(name.or(own)),
        });
    };
    match tree {
        UseTree::Name(leaf) => add(Some(&leaf.ident), Some(&leaf.ident)),
        UseTree::Rename(leaf) => add(Some(&leaf.ident), Some(&leaf.rename)),
        UseTree::Glob(_) => add(None, None),
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            add_imports(&path.tree, before, imports);
            before.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                add_imports(tree, before, imports);
            }
        }
    }
}

/// Whether the item with these attributes is compiled into tests and nothing else.
pub(crate) fn for_tests_alone(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = attribute.path().is_ident("cfg");
        condition
            && attribute
                .parse_args::<Meta>()
                .is_ok_and(|cfg| needs_test(&cfg))
    })
}

fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::NameValue(_) => false,
        Meta::List(list) => {
            let parts = list.parse_args_with(
                syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated,
            );
            let parts = parts.expect("conditions in a `cfg`");
            if list.path.is_ident("all") {
                parts.iter().any(needs_test)
            } else {
                list.path.is_ident("any") && parts.iter().all(needs_test)
            }
        }
    }
}
