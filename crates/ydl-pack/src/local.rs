//! The user's own code: editable packages, or packages installed from a directory of this machine.
//!
//! Nothing is edited on a node, so an editable package becomes an ordinary one, or a directory next to the others with a `.pth`
//! file that leads to it from wherever the environment is.

use super::{
    plan::{EntryKind, OutsideLinks, Plan, ends, relative},
    stable_file::FileStamp,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};
use ydl_os::report::Report;

/// Project directories that no program imports.
const NOT_IMPORTED: [&str; 12] = [
    ".git",
    ".hg",
    ".svn",
    ".tox",
    ".nox",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".idea",
    ".vscode",
    ".ipynb_checkpoints",
    "node_modules",
];
/// Maximum size of a file that is read.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// The user's own code in an environment.
#[derive(Debug, Default)]
pub(super) struct LocalCode {
    /// Directories and files outside the environment, by their new name in it.
    included: BTreeMap<PathBuf, PathBuf>,
    /// Files with new content.
    rewritten: BTreeMap<PathBuf, Vec<u8>>,
    /// Files of the user's packages, moved unchanged.
    moved: BTreeSet<PathBuf>,
    /// Files that a node does not need.
    dropped: BTreeSet<PathBuf>,
}

impl LocalCode {
    /// Finds the user's own code in the `site` directory of an environment.
    pub(crate) fn of(root: &Path, site: &Path, all: &Plan) -> Result<LocalCode, Report> {
        let mut local = LocalCode::default();
        let inside = |name: &&PathBuf| name.parent() == Some(site);
        for name in all.entries.keys().filter(inside) {
            if ends(name, ".dist-info") {
                local.add_package(root, site, name);
            } else if ends(name, ".pth") {
                local.add_path_file(root, site, name, all)?;
            } else if ends(name, ".egg-link") {
                local.dropped.insert(name.clone());
            }
        }
        Ok(local)
    }

    /// Moves the user's own code from `all` into a plan of its own.
    pub(crate) fn split(&self, all: &mut Plan) -> Result<Plan, Report> {
        let mut plan = Plan::default();
        let names: Vec<PathBuf> = all.entries.keys().cloned().collect();
        for name in names {
            let source = source_of(&name);
            let is_in = |set: &BTreeSet<PathBuf>| {
                set.contains(&name) || source.as_ref().is_some_and(|source| set.contains(source))
            };
            if is_in(&self.dropped) || self.rewritten.contains_key(&name) {
                all.entries.remove(&name);
            } else if is_in(&self.moved)
                && let Some(entry) = all.entries.remove(&name)
            {
                match entry.kind {
                    // May contain third-party packages too.
                    EntryKind::Directory => drop(all.entries.insert(name, entry)),
                    kind => plan.put(name, entry.mode, kind),
                }
            }
        }
        for (name, from) in &self.included {
            let metadata =
                fs::metadata(from).map_err(|error| super::plan::read_error(from, &error))?;
            if metadata.is_dir() {
                plan.add_tree(from, name, OutsideLinks::Skip, &|_, path| is_not_imported(path))?;
            } else {
                let (from, stamp) = (from.clone(), FileStamp::of(&metadata));
                plan.put(name.clone(), 0o644, EntryKind::File { from, stamp });
            }
        }
        for (name, bytes) in &self.rewritten {
            plan.put(name.clone(), 0o644, EntryKind::Bytes(bytes.clone()));
        }
        Ok(plan)
    }

    /// Handles a package that was installed from a directory of this machine.
    fn add_package(&mut self, root: &Path, site: &Path, info: &Path) {
        let Some(text) = read(&root.join(info).join("direct_url.json")) else {
            return;
        };
        let origin: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let is_local = origin["url"].as_str().is_some_and(|url| url.starts_with("file:"));
        if !is_local || origin["dir_info"].is_null() {
            return;
        }
        self.moved.extend(record(root, site, info));
        // Editable metadata has no meaning on a node.
        self.moved.insert(info.join("RECORD"));
    }

    /// Handles a `.pth` file: directories outside the environment are included.
    fn add_path_file(
        &mut self,
        root: &Path,
        site: &Path,
        name: &Path,
        all: &Plan,
    ) -> Result<(), Report> {
        let Some(text) = read(&root.join(name)) else {
            return Ok(());
        };
        let real = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
        let mut lines = Vec::new();
        let mut changed = false;
        for line in text.lines() {
            let line = line.trim_end();
            if line.starts_with("import ") || line.starts_with("import\t") {
                match self.add_import_line(root, site, line, all)? {
                    true => changed = true,
                    false => lines.push(line.to_owned()),
                }
                continue;
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Ok(path) = real.join(site).join(line).canonicalize() else {
                // Dangling on this machine and on the node.
                continue;
            };
            let name = match path.strip_prefix(&real) {
                Ok(inside) => inside.to_path_buf(),
                Err(_) => {
                    changed = true;
                    self.include(&path)
                }
            };
            changed |= Path::new(line).is_absolute();
            lines.push(relative(site, &name).to_string_lossy().into_owned());
        }
        if changed {
            match lines.is_empty() {
                true => drop(self.dropped.insert(name.to_path_buf())),
                false => {
                    let text = lines.join("\n") + "\n";
                    self.rewritten.insert(name.to_path_buf(), text.into_bytes());
                }
            }
        }
        Ok(())
    }

    /// Includes a directory next to the packages.
    fn include(&mut self, path: &Path) -> PathBuf {
        if let Some((name, _)) = self.included.iter().find(|(_, from)| from.as_path() == path) {
            return name.clone();
        }
        let own = path.file_name().unwrap_or_default().to_string_lossy();
        let name = Path::new("local").join(format!("{}-{own}", self.included.len()));
        self.included.insert(name.clone(), path.to_path_buf());
        name
    }

    /// Handles a line that runs code at startup. Returns true if the line can be dropped because the packages that it finds were
    /// included.
    fn add_import_line(
        &mut self,
        root: &Path,
        site: &Path,
        line: &str,
        all: &Plan,
    ) -> Result<bool, Report> {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let module = line["import".len()..].trim_start();
        let module = module.split(|c| !is_name(c)).next().unwrap_or_default();
        let file = site.join(format!("{module}.py"));
        if !module.contains("editable") || !all.entries.contains_key(&file) {
            return Ok(false);
        }
        let code = read(&root.join(&file)).unwrap_or_default();
        let Some(mapping) = mapping(&code) else {
            let what = format!(
                "the environment `{}` cannot be packed: `{module}` imports an editable package from paths of this machine",
                root.display()
            );
            let hint = "install that package without `-e` (`--editable`)";
            return Err(Report::bad_input(what).hint(hint));
        };
        for (package, path) in mapping {
            let name = site.join(package.replace('.', "/"));
            let path = PathBuf::from(path);
            let module = path.with_extension("py");
            if path.is_dir() {
                self.included.insert(name, path);
            } else if path.is_file() {
                let extension = path.extension().unwrap_or_default();
                self.included.insert(name.with_extension(extension), path);
            } else if module.is_file() {
                self.included.insert(name.with_extension("py"), module);
            }
        }
        self.dropped.insert(file);
        Ok(true)
    }
}

/// Returns the files of a package according to its `RECORD`.
pub(super) fn record(root: &Path, site: &Path, info: &Path) -> Vec<PathBuf> {
    let text = read(&root.join(info).join("RECORD")).unwrap_or_default();
    let name = |line: &str| match line.strip_prefix('"') {
        Some(quoted) => normal(&site.join(quoted.split('"').next()?)),
        None => normal(&site.join(line.split(',').next()?)),
    };
    text.lines().filter_map(name).collect()
}

/// Returns whether a directory of a project is not imported: history, editor files, other environments.
pub(super) fn is_not_imported(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    NOT_IMPORTED.iter().any(|excluded| name == *excluded) || path.join("pyvenv.cfg").is_file()
}

/// Returns the source of byte code of any interpreter.
pub(super) fn source_of(name: &Path) -> Option<PathBuf> {
    let dir = name.parent().filter(|dir| dir.ends_with("__pycache__"))?;
    let stem = name.file_name()?.to_str()?.split(".cpython-").next()?;
    Some(dir.parent()?.join(format!("{stem}.py")))
}

/// Normalizes `..` and `.`. Returns `None` if the path escapes.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => parts.push(part),
            Component::ParentDir => drop(parts.pop()?),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.iter().collect())
}

pub(super) fn read(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    if metadata.len() > TEXT_BYTES_MAX {
        return None;
    }
    String::from_utf8(fs::read(path).ok()?).ok()
}

/// Parses `MAPPING: dict[str, str] = {…}` as written by setuptools.
fn mapping(code: &str) -> Option<Vec<(String, String)>> {
    let line = code.lines().find(|line| line.starts_with("MAPPING"))?;
    let mut rest = line.split_once('{')?.1.trim_start();
    let mut pairs = Vec::new();
    while !rest.starts_with('}') {
        let (key, after) = literal(rest)?;
        let (value, after) = literal(after.trim_start().strip_prefix(':')?.trim_start())?;
        pairs.push((key, value));
        rest = after.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    Some(pairs)
}

/// Parses a Python string literal; returns it with the rest.
fn literal(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                escape @ ('x' | 'u' | 'U') => {
                    let digits = match escape {
                        'x' => 2,
                        'u' => 4,
                        _ => 8,
                    };
                    let digits: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
                    value.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                }
                other => value.push(other),
            },
            c if c == quote => return Some((value, text.get(at + 1..)?)),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_of_setuptools_is_parsed() {
        let code = "import sys\nMAPPING: dict[str, str] = {'a': '/x/it\\'s a', \"b.c\": '/y\\\\z/\\u00fc',}\n";
        let expected = vec![
            ("a".to_owned(), "/x/it's a".to_owned()),
            ("b.c".to_owned(), "/y\\z/ü".to_owned()),
        ];
        assert_eq!(mapping(code), Some(expected));
        assert_eq!(mapping("MAPPING = {}\n"), Some(Vec::new()));
        assert_eq!(mapping("MAPPING = {'a'\n"), None);
        assert_eq!(mapping("OTHER = {}\n"), None);
    }

    #[test]
    fn a_record_cannot_escape_the_environment() {
        let site = Path::new("lib/python3.11/site-packages");
        assert_eq!(normal(&site.join("../../../bin/x")), Some("bin/x".into()));
        assert_eq!(normal(&site.join("../../../../x")), None);
        assert_eq!(normal(Path::new("/etc/passwd")), None);
    }
}
