//! The memory limit of the control group that this process is in: what a container may have, whatever its machine has.
//!
//! The kernel tells the group in `/proc/self/cgroup`, and where its files are in `/proc/self/mountinfo`. A group may have
//! no more than each of the groups above it. Version 1 has a tree for memory alone, version 2 one for everything. A
//! machine can have both.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Version 1 writes a number of this size, and not "max", where nothing is limited.
const NO_LIMIT: u64 = 1 << 62;

/// The least limit that counts for this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLimit {
    /// Most bytes that the processes of the group may use together. Beyond it the kernel ends one of them.
    pub bytes: u64,
    /// The file that says so.
    pub file: PathBuf,
}

/// A tree of control groups.
struct Tree {
    /// Where it is mounted.
    mount: PathBuf,
    /// The group that is shown there: in a container it is that of the container.
    shown: PathBuf,
    /// The group of this process.
    own: PathBuf,
    /// The file with the limit.
    file: &'static str,
}

/// The limit, if there is one. `root` is the directory that has `proc` in it.
#[must_use]
pub fn memory_limit(root: &Path) -> Option<MemoryLimit> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let trees = mounts.lines().filter_map(|line| tree(line, &groups));
    let limits = trees.filter_map(|tree| tree.limit(root));
    limits.min_by_key(|limit| limit.bytes)
}

/// The tree of a line of `mountinfo`, if it has limits of memory.
fn tree(line: &str, groups: &str) -> Option<Tree> {
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let (name, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
    let is_of_memory = |list: &str| list.split(',').any(|word| word == "memory");
    let (own, file) = match name {
        "cgroup2" => (own_group(groups, str::is_empty)?, "memory.max"),
        "cgroup" if is_of_memory(options) => {
            (own_group(groups, is_of_memory)?, "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let mut place = place.split(' ').skip(3);
    Some(Tree {
        shown: unescaped(place.next()?),
        mount: unescaped(place.next()?),
        own: own.into(),
        file,
    })
}

/// The path behind the controllers that are meant, in lines like `4:memory:/path`.
fn own_group(groups: &str, is_meant: impl Fn(&str) -> bool) -> Option<&str> {
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        is_meant(controllers).then_some(path)
    })
}

impl Tree {
    fn limit(&self, root: &Path) -> Option<MemoryLimit> {
        // A group that cannot be seen from here is looked at where its tree begins. So is one outside of it, whose path
        // goes up first.
        let below = self.own.strip_prefix(&self.shown).unwrap_or(Path::new(""));
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        let below = match below.components().all(is_plain) {
            true => below,
            false => Path::new(""),
        };
        let limits = below.ancestors().filter_map(|group| {
            let file = self.mount.join(group).join(self.file);
            let text = fs::read_to_string(root.join(relative(&file))).ok()?;
            let bytes = text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT)?;
            Some(MemoryLimit { bytes, file })
        });
        limits.min_by_key(|limit| limit.bytes)
    }
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// The kernel writes blanks and backslashes of a path as three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..3).filter(|digits| !digits.starts_with('+'));
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte.into());
                path.push_str(&part[3..]);
            }
            None => {
                path.push('\\');
                path.push_str(part);
            }
        }
    }
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str =
        "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const OF_MEMORY: &str =
        "36 31 0:31 / /sys/fs/cgroup/memory rw shared:16 - cgroup cgroup rw,memory\n";
    const OF_CPU: &str =
        "35 31 0:30 / /sys/fs/cgroup/cpu rw shared:15 - cgroup cgroup rw,cpu,cpuacct\n";

    /// A machine's files, in a directory that goes with this.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root =
                std::env::temp_dir().join(format!("trine-group-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().expect("a directory")).expect("made");
                fs::write(path, text).expect("written");
            }
            Self(root)
        }

        fn limit(&self) -> Option<(u64, String)> {
            let limit = memory_limit(&self.0)?;
            Some((limit.bytes, limit.file.display().to_string()))
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Containers were started with stores larger than they may be, without a word, and were ended once those had filled.
    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_counts() {
        let files = Files::new(
            "unified",
            &[
                ("proc/self/cgroup", "0::/a b/c\n"),
                ("proc/self/mountinfo", UNIFIED),
                ("sys/fs/cgroup/a b/memory.max", "1000\n"),
                ("sys/fs/cgroup/a b/c/memory.max", "max\n"),
            ],
        );
        let above = "/sys/fs/cgroup/a b/memory.max".to_owned();
        assert_eq!(files.limit(), Some((1000, above)));
        fs::write(files.0.join("sys/fs/cgroup/a b/c/memory.max"), "999\n").expect("written");
        let own = "/sys/fs/cgroup/a b/c/memory.max".to_owned();
        assert_eq!(files.limit(), Some((999, own)));
    }

    #[test]
    fn version_1_has_a_tree_for_memory() {
        let files = Files::new(
            "first",
            &[
                ("proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/c\n0::/u\n"),
                (
                    "proc/self/mountinfo",
                    &[UNIFIED, OF_CPU, OF_MEMORY].concat(),
                ),
                (
                    "sys/fs/cgroup/memory/memory.limit_in_bytes",
                    "9223372036854771712\n",
                ),
                (
                    "sys/fs/cgroup/memory/m/memory.limit_in_bytes",
                    "314572800\n",
                ),
                ("sys/fs/cgroup/cpu/c/memory.limit_in_bytes", "1\n"),
            ],
        );
        let file = "/sys/fs/cgroup/memory/m/memory.limit_in_bytes".to_owned();
        assert_eq!(files.limit(), Some((300 << 20, file)));
    }

    /// A container shows its own group where the tree of the machine would be.
    #[test]
    fn a_container_finds_its_limit_where_its_own_tree_begins() {
        let mount =
            |shown: &str| format!("1 2 0:26 {shown} /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
        for (name, own, shown) in [
            ("namespace", "0::/\n", "/"),
            ("bound", "0::/docker/x\n", "/docker/x"),
            ("above", "0::/../y\n", "/"),
            ("elsewhere", "0::/docker/x\n", "/docker/y"),
        ] {
            let files = Files::new(
                name,
                &[
                    ("proc/self/cgroup", own),
                    ("proc/self/mountinfo", &mount(shown)),
                    ("sys/fs/cgroup/memory.max", "77\n"),
                    ("sys/fs/y/memory.max", "1\n"),
                ],
            );
            let file = "/sys/fs/cgroup/memory.max".to_owned();
            assert_eq!(files.limit(), Some((77, file)), "{name}");
        }
    }

    #[test]
    fn without_a_limit_there_is_none() {
        for (name, files) in [
            ("nothing", &[][..]),
            ("no-mount", &[("proc/self/cgroup", "0::/\n")][..]),
            (
                "unlimited",
                &[
                    ("proc/self/cgroup", "0::/a\n"),
                    ("proc/self/mountinfo", UNIFIED),
                    ("sys/fs/cgroup/a/memory.max", "max\n"),
                ][..],
            ),
            (
                "broken",
                &[
                    ("proc/self/cgroup", ":::\n\n0::\n"),
                    (
                        "proc/self/mountinfo",
                        "x - cgroup2\n - \n1 2 3 - cgroup2 a b\n",
                    ),
                ][..],
            ),
        ] {
            assert_eq!(Files::new(name, files).limit(), None, "{name}");
        }
    }

    #[test]
    fn paths_are_read_as_the_kernel_writes_them() {
        for (text, path) in [
            ("/a\\040b", "/a b"),
            ("/a\\134", "/a\\"),
            ("/a\\9", "/a\\9"),
            ("/plain", "/plain"),
        ] {
            assert_eq!(unescaped(text), Path::new(path));
        }
    }
}
