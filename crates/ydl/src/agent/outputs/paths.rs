//! Path arithmetic on text: normalisation and relative paths.

use std::path::{Component, Path, PathBuf};

/// Canonicalizes the nearest existing ancestor and appends the rest.
pub(super) fn nearest_real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let path = normal(&path);
    for ancestor in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return real.join(rest);
        }
    }
    path
}

/// Removes `.` and `..`, without access to the file system.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// Returns the relative path from the directory `dir` to `path`, both absolute and normal.
pub(super) fn relative(dir: &Path, path: &Path) -> PathBuf {
    let shared =
        dir.components().zip(path.components()).take_while(|(one, two)| one == two).count();
    let up = dir.components().skip(shared).map(|_| Component::ParentDir);
    let way: PathBuf = up.chain(path.components().skip(shared)).collect();
    if way.as_os_str().is_empty() { PathBuf::from(".") } else { way }
}
