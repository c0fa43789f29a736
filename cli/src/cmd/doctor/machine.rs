//! Reads the machine's properties from its files.

use std::path::{Path, PathBuf};

use trine_base::placement::{self, MemoryLimit};

/// A root directory with `proc`, `sys` and `dev` in it.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    root: PathBuf,
}

impl Machine {
    pub(super) fn at(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
        }
    }

    /// A file's text without the line end; `None` if it does not exist or may not be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// A file that holds one number.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The names in a directory, sorted; empty if it does not exist.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.root.join(path)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// The number after a name in a file of `name: number` lines, such as `/proc/meminfo`.
    pub(super) fn entry(&self, path: &str, name: &str) -> Option<u64> {
        let text = self.text(path)?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// The memory limit of this process's control group.
    pub(super) fn memory_limit(&self) -> Option<MemoryLimit> {
        placement::memory_limit(&self.root)
    }

    /// The soft limit in `/proc/self/limits`; none means unlimited or unknown.
    pub(super) fn soft_limit(&self, name: &str) -> Limit {
        let text = self.text("proc/self/limits").unwrap_or_default();
        let Some(rest) = text.lines().find_map(|line| line.strip_prefix(name)) else {
            return Limit::Unknown;
        };
        match rest.split_whitespace().next() {
            Some("unlimited") => Limit::None,
            Some(number) => number.parse().map_or(Limit::Unknown, Limit::At),
            None => Limit::Unknown,
        }
    }
}

/// A limit on a process's resources.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    At(u64),
    None,
    Unknown,
}
