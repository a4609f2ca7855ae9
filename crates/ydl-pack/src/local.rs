//! The user's own code: editable packages, or packages installed from a directory of this machine.
//!
//! Nothing is edited on a node, so an editable package becomes an ordinary one, or a directory next to the others with a `.pth`
//! file that leads to it from wherever the environment is.

use super::plan::{EntryKind, OutsideLinks, Plan, ends, relative};
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
/// Longer than any list of paths.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// The user's own code in an environment.
#[derive(Debug, Default)]
pub(super) struct LocalCode {
    /// Directories and files elsewhere, by their name in the environment.
    from: BTreeMap<PathBuf, PathBuf>,
    /// Files that are rewritten.
    written: BTreeMap<PathBuf, Vec<u8>>,
    /// Files of the user's packages, moved unchanged.
    own: BTreeSet<PathBuf>,
    /// Files without use on a node.
    gone: BTreeSet<PathBuf>,
}

impl LocalCode {
    /// Finds it in the `site` directory of an environment.
    pub fn of(root: &Path, site: &Path, all: &Plan) -> Result<LocalCode, Report> {
        let mut local = LocalCode::default();
        let inside = |name: &&PathBuf| name.parent() == Some(site);
        for name in all.entries.keys().filter(inside) {
            if ends(name, ".dist-info") {
                local.add_package(root, site, name);
            } else if ends(name, ".pth") {
                local.add_path_file(root, site, name, all)?;
            } else if ends(name, ".egg-link") {
                local.gone.insert(name.clone());
            }
        }
        Ok(local)
    }

    /// Moves the user's own code from `all` into a plan of its own.
    pub fn split(&self, all: &mut Plan) -> Result<Plan, Report> {
        let mut plan = Plan::default();
        let names: Vec<PathBuf> = all.entries.keys().cloned().collect();
        for name in names {
            let source = source_of(&name);
            let is = |set: &BTreeSet<PathBuf>| {
                set.contains(&name) || source.as_ref().is_some_and(|source| set.contains(source))
            };
            if is(&self.gone) || self.written.contains_key(&name) {
                all.entries.remove(&name);
            } else if is(&self.own)
                && let Some(entry) = all.entries.remove(&name)
            {
                match entry.what {
                    // May contain third-party packages, too.
                    EntryKind::Directory => drop(all.entries.insert(name, entry)),
                    what => plan.put(name, entry.mode, what),
                }
            }
        }
        for (name, from) in &self.from {
            let about = fs::metadata(from).map_err(|error| super::plan::unread(from, &error))?;
            if about.is_dir() {
                plan.add_tree(from, name, OutsideLinks::Leave, &|_, path| is_aside(path))?;
            } else {
                let (from, was) = (from.clone(), super::same::FileStamp::of(&about));
                plan.put(name.clone(), 0o644, EntryKind::File { from, was });
            }
        }
        for (name, bytes) in &self.written {
            plan.put(name.clone(), 0o644, EntryKind::Bytes(bytes.clone()));
        }
        Ok(plan)
    }

    /// Handles a package that was installed from a directory of this machine.
    fn add_package(&mut self, root: &Path, site: &Path, info: &Path) {
        let Some(said) = read(&root.join(info).join("direct_url.json")) else {
            return;
        };
        let said: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
        let here = said["url"].as_str().is_some_and(|url| url.starts_with("file:"));
        if !here || said["dir_info"].is_null() {
            return;
        }
        self.own.extend(record(root, site, info));
        // Editable metadata has no meaning on a node.
        self.own.insert(info.join("RECORD"));
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
            let words = line.trim_end();
            if words.starts_with("import ") || words.starts_with("import\t") {
                match self.add_import_line(root, site, words, all)? {
                    true => changed = true,
                    false => lines.push(words.to_owned()),
                }
                continue;
            }
            if words.is_empty() || words.starts_with('#') {
                continue;
            }
            let Ok(path) = real.join(site).join(words).canonicalize() else {
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
            changed |= Path::new(words).is_absolute();
            lines.push(relative(site, &name).to_string_lossy().into_owned());
        }
        if changed {
            match lines.is_empty() {
                true => drop(self.gone.insert(name.to_path_buf())),
                false => {
                    let text = lines.join("\n") + "\n";
                    self.written.insert(name.to_path_buf(), text.into_bytes());
                }
            }
        }
        Ok(())
    }

    /// Includes a directory next to the packages.
    fn include(&mut self, path: &Path) -> PathBuf {
        if let Some((name, _)) = self.from.iter().find(|(_, from)| from.as_path() == path) {
            return name.clone();
        }
        let own = path.file_name().unwrap_or_default().to_string_lossy();
        let name = Path::new("local").join(format!("{}-{own}", self.from.len()));
        self.from.insert(name.clone(), path.to_path_buf());
        name
    }

    /// Handles a line that runs code at startup. Returns whether it can be dropped, since what it finds is put in the import path.
    fn add_import_line(
        &mut self,
        root: &Path,
        site: &Path,
        line: &str,
        all: &Plan,
    ) -> Result<bool, Report> {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let module = line["import".len()..].trim_start();
        let module = module.split(|c| !word(c)).next().unwrap_or_default();
        let file = site.join(format!("{module}.py"));
        if !module.contains("editable") || !all.entries.contains_key(&file) {
            return Ok(false);
        }
        let code = read(&root.join(&file)).unwrap_or_default();
        let Some(mapping) = mapping(&code) else {
            let what = format!(
                "the environment `{}` cannot be packed: `{module}` finds an editable package by paths of this machine",
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
                self.from.insert(name, path);
            } else if path.is_file() {
                let ending = path.extension().unwrap_or_default();
                self.from.insert(name.with_extension(ending), path);
            } else if module.is_file() {
                self.from.insert(name.with_extension("py"), module);
            }
        }
        self.gone.insert(file);
        Ok(true)
    }
}

/// Files of a package according to its `RECORD`.
pub(super) fn record(root: &Path, site: &Path, info: &Path) -> Vec<PathBuf> {
    let said = read(&root.join(info).join("RECORD")).unwrap_or_default();
    let name = |line: &str| match line.strip_prefix('"') {
        Some(quoted) => normal(&site.join(quoted.split('"').next()?)),
        None => normal(&site.join(line.split(',').next()?)),
    };
    said.lines().filter_map(name).collect()
}

/// Returns whether a directory of a project is not imported: history, editor files, other environments.
pub(super) fn is_aside(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    NOT_IMPORTED.iter().any(|aside| name == *aside) || path.join("pyvenv.cfg").is_file()
}

/// Source of any byte code.
pub(super) fn source_of(name: &Path) -> Option<PathBuf> {
    let dir = name.parent().filter(|dir| dir.ends_with("__pycache__"))?;
    let stem = name.file_name()?.to_str()?.split(".cpython-").next()?;
    Some(dir.parent()?.join(format!("{stem}.py")))
}

/// Normalizes `..` and `.`; `None` if the path leads out.
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
    let about = fs::metadata(path).ok()?;
    if about.len() > TEXT_BYTES_MAX {
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
    let mut found = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => match letters.next()?.1 {
                'n' => found.push('\n'),
                't' => found.push('\t'),
                short @ ('x' | 'u' | 'U') => {
                    let digits = match short {
                        'x' => 2,
                        'u' => 4,
                        _ => 8,
                    };
                    let digits: String = letters.by_ref().take(digits).map(|(_, c)| c).collect();
                    found.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                }
                other => found.push(other),
            },
            letter if letter == quote => return Some((found, text.get(at + 1..)?)),
            letter => found.push(letter),
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
