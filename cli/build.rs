//! Finds the commit that the program is built from: `TRINE_COMMIT` names it, or git does; without both it is unknown.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=TRINE_COMMIT");
    let named = std::env::var("TRINE_COMMIT").ok();
    let commit = named.filter(|text| is_commit(text)).or_else(of_git);
    println!(
        "cargo:rustc-env=TRINE_COMMIT={}",
        commit.as_deref().unwrap_or("unknown")
    );
}

/// Whatever else is in the variable would end up in the middle of a line.
fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The commit that is checked out. A tarball that was unpacked inside of another repository has none.
fn of_git() -> Option<String> {
    let root = std::fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).ok()?;
    let top = git(&root, &["rev-parse", "--show-toplevel"])?;
    if std::fs::canonicalize(top).ok()? != root {
        return None;
    }
    // A commit changes the log of HEAD; a branch that is checked out changes HEAD, too.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&root, &["rev-parse", "--git-path", name])?;
        let path: PathBuf = root.join(path);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    git(&root, &["rev-parse", "--short=12", "HEAD"]).filter(|text| is_commit(text))
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success()).then(|| text.trim().to_owned())
}
