//! The names that each file of a crate takes from other files. Reads `use` lines and paths in the code, also in
//! macros' arguments.
//!
//! A name from a re-export counts for the file that defines it and for the one that re-exports it. A module's name alone
//! takes nothing; a name inside of the module does. Methods are not counted, because they are not imported. Code for tests alone is left out.

use crate::modules::{Modules, Place, for_tests_alone, imports_of};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// The names that the first file takes from the second.
pub(crate) type Imports = BTreeMap<(usize, usize), BTreeSet<String>>;

pub(crate) fn imports(modules: &Modules) -> Imports {
    let mut imports = Imports::new();
    for file in &modules.files {
        let mut reader = Reader {
            modules,
            module: file.module,
            blocks: Vec::new(),
            imports: &mut imports,
        };
        for item in &file.items {
            reader.visit_item(item);
        }
    }
    imports
}

struct Reader<'a> {
    modules: &'a Modules,
    /// The module whose text is being read.
    module: usize,
    /// The names from `use` lines inside of functions and their paths, the innermost block last.
    blocks: Vec<BTreeMap<String, Vec<String>>>,
    imports: &'a mut Imports,
}

impl Reader<'_> {
    fn take(&mut self, path: &[String]) {
        for place in self.resolve(path) {
            if let Place::Item { file, name } = place {
                self.add(file, name);
            }
        }
    }

    /// Takes everything inside of `path`, which is a module or an enum.
    fn take_all(&mut self, path: &[String]) {
        for place in self.resolve(path) {
            match place {
                Place::Module(module) => self.add(self.modules.file_of(module), "*".to_owned()),
                Place::Item { file, name } => self.add(file, name),
            }
        }
    }

    fn resolve(&self, path: &[String]) -> Vec<Place> {
        let Some((first, rest)) = path.split_first() else {
            return Vec::new();
        };
        let block = self.blocks.iter().rev().find_map(|block| block.get(first));
        match block {
            // `use a::b::a;` in a block: the block's own name is not resolved there again.
            Some(import) => {
                let path: Vec<String> = import.iter().chain(rest).cloned().collect();
                self.modules.resolve(self.module, &path)
            }
            None => self.modules.resolve(self.module, path),
        }
    }

    fn add(&mut self, file: usize, name: String) {
        let own = self.modules.file_of(self.module);
        if file != own {
            self.imports.entry((own, file)).or_default().insert(name);
        }
    }

    /// In the arguments of macros and attributes, every chain of names with `::` between them is a path.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.take(&std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => colons += 1,
                other => {
                    self.take(&std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.read_tokens(group.stream());
                    }
                }
            }
        }
        self.take(&path);
    }
}

/// Visits code that is not for tests alone.
macro_rules! unless_for_tests_alone {
    ($($visit:ident($node:ident))*) => {$(
        fn $visit(&mut self, node: &'ast syn::$node) {
            if !for_tests_alone(&node.attrs) {
                visit::$visit(self, node);
            }
        }
    )*};
}

impl<'ast> Visit<'ast> for Reader<'_> {
    unless_for_tests_alone! {
        visit_item_const(ItemConst) visit_item_enum(ItemEnum) visit_item_fn(ItemFn) visit_item_impl(ItemImpl)
        visit_item_macro(ItemMacro) visit_item_static(ItemStatic) visit_item_struct(ItemStruct)
        visit_item_trait(ItemTrait) visit_item_type(ItemType) visit_item_union(ItemUnion)
        visit_impl_item_const(ImplItemConst) visit_impl_item_fn(ImplItemFn) visit_impl_item_macro(ImplItemMacro)
        visit_impl_item_type(ImplItemType) visit_trait_item_const(TraitItemConst) visit_trait_item_fn(TraitItemFn)
        visit_field(Field) visit_field_value(FieldValue) visit_variant(Variant) visit_arm(Arm) visit_local(Local)
        visit_expr_block(ExprBlock) visit_expr_if(ExprIf) visit_expr_call(ExprCall)
        visit_expr_method_call(ExprMethodCall) visit_stmt_macro(StmtMacro)
    }

    fn visit_item_mod(&mut self, declaration: &'ast syn::ItemMod) {
        let Some(inner) = self.modules.inline(self.module, &declaration.ident) else {
            return;
        };
        let outer = std::mem::replace(&mut self.module, inner);
        visit::visit_item_mod(self, declaration);
        self.module = outer;
    }

    fn visit_item_use(&mut self, line: &'ast syn::ItemUse) {
        if for_tests_alone(&line.attrs) || line.leading_colon.is_some() {
            return;
        }
        for import in imports_of(&line.tree) {
            // The path is resolved in the module, not in the block, because the block knows the name from this line.
            let blocks = std::mem::take(&mut self.blocks);
            match import.name {
                Some(_) => self.take(&import.path),
                None => self.take_all(&import.path),
            }
            self.blocks = blocks;
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let uses = block.stmts.iter().filter_map(|statement| match statement {
            syn::Stmt::Item(syn::Item::Use(line)) => Some(imports_of(&line.tree)),
            _ => None,
        });
        let names = uses
            .flatten()
            .filter_map(|import| Some((import.name?, import.path)));
        self.blocks.push(names.collect());
        visit::visit_block(self, block);
        self.blocks.pop();
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
            self.take(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.read_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.read_tokens(list.tokens.clone());
        }
    }

    // `pub(in a::b)` takes nothing from there.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}
