//! What the user wrote: packages that are installed so that they can be edited, or from a directory of this machine.
//!
//! On a node nothing is edited. So an editable package becomes an ordinary one, or a directory beside the others with a
//! `.pth` file that leads there from wherever the environment lies.

use super::plan::{Outside, Plan, What, ends, relative};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};
use ydl_os::report::Report;

/// Names in a project that no program imports.
const ASIDE: [&str; 12] = [
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

/// What is the user's own in an environment.
#[derive(Debug, Default)]
pub(super) struct Local {
    /// Directories and files elsewhere, by the name they get.
    from: BTreeMap<PathBuf, PathBuf>,
    /// Files that are written anew.
    written: BTreeMap<PathBuf, Vec<u8>>,
    /// What belongs to the user's packages, and moves as it is.
    own: BTreeSet<PathBuf>,
    /// What has no use on a node.
    gone: BTreeSet<PathBuf>,
}

impl Local {
    /// Looks for it in what an environment has in its `site`.
    pub fn of(root: &Path, site: &Path, all: &Plan) -> Result<Local, Report> {
        let mut local = Local::default();
        let inside = |name: &&PathBuf| name.parent() == Some(site);
        for name in all.entries.keys().filter(inside) {
            if ends(name, ".dist-info") {
                local.see_package(root, site, name);
            } else if ends(name, ".pth") {
                local.see_paths(root, site, name, all)?;
            } else if ends(name, ".egg-link") {
                local.gone.insert(name.clone());
            }
        }
        Ok(local)
    }

    /// Takes what is the user's own out of `all` and into a plan of its own.
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
                    // The packages of others may be in it, too.
                    What::Directory => drop(all.entries.insert(name, entry)),
                    what => plan.put(name, entry.mode, what),
                }
            }
        }
        for (name, from) in &self.from {
            let about = fs::metadata(from).map_err(|error| super::plan::unread(from, &error))?;
            if about.is_dir() {
                plan.add_tree(from, name, Outside::Leave, &|_, path| is_aside(path))?;
            } else {
                let (from, was) = (from.clone(), super::same::Stamp::of(&about));
                plan.put(name.clone(), 0o644, What::File { from, was });
            }
        }
        for (name, bytes) in &self.written {
            plan.put(name.clone(), 0o644, What::Bytes(bytes.clone()));
        }
        Ok(plan)
    }

    /// A package that was installed from a directory of this machine.
    fn see_package(&mut self, root: &Path, site: &Path, info: &Path) {
        let Some(said) = read(&root.join(info).join("direct_url.json")) else {
            return;
        };
        let said: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
        let here = said["url"].as_str().is_some_and(|url| url.starts_with("file:"));
        if !here || said["dir_info"].is_null() {
            return;
        }
        self.own.extend(record(root, site, info));
        // That it could be edited there is said to nobody here.
        self.own.insert(info.join("RECORD"));
    }

    /// A file of paths: what leads out of the environment is brought along.
    fn see_paths(
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
                match self.see_import(root, site, words, all)? {
                    true => changed = true,
                    false => lines.push(words.to_owned()),
                }
                continue;
            }
            if words.is_empty() || words.starts_with('#') {
                continue;
            }
            let Ok(path) = real.join(site).join(words).canonicalize() else {
                // It leads nowhere, here and there.
                continue;
            };
            let name = match path.strip_prefix(&real) {
                Ok(inside) => inside.to_path_buf(),
                Err(_) => {
                    changed = true;
                    self.bring(&path)
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

    /// A directory that goes beside the packages.
    fn bring(&mut self, path: &Path) -> PathBuf {
        if let Some((name, _)) = self.from.iter().find(|(_, from)| from.as_path() == path) {
            return name.clone();
        }
        let own = path.file_name().unwrap_or_default().to_string_lossy();
        let name = Path::new("local").join(format!("{}-{own}", self.from.len()));
        self.from.insert(name.clone(), path.to_path_buf());
        name
    }

    /// A line that runs code at every start. Whether it is gone, because what it finds is put where Python looks anyway.
    fn see_import(
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
            let hint =
                "install that package without `-e` (`--editable`), then it travels like any other";
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

/// What belongs to a package, as it says itself.
pub(super) fn record(root: &Path, site: &Path, info: &Path) -> Vec<PathBuf> {
    let said = read(&root.join(info).join("RECORD")).unwrap_or_default();
    let name = |line: &str| match line.strip_prefix('"') {
        Some(quoted) => normal(&site.join(quoted.split('"').next()?)),
        None => normal(&site.join(line.split(',').next()?)),
    };
    said.lines().filter_map(name).collect()
}

/// What in a project is not imported: the past, the editor's, other environments.
pub(super) fn is_aside(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    ASIDE.iter().any(|aside| name == *aside) || path.join("pyvenv.cfg").is_file()
}

/// Whose byte code that is, whatever wrote it.
pub(super) fn source_of(name: &Path) -> Option<PathBuf> {
    let dir = name.parent().filter(|dir| dir.ends_with("__pycache__"))?;
    let stem = name.file_name()?.to_str()?.split(".cpython-").next()?;
    Some(dir.parent()?.join(format!("{stem}.py")))
}

/// A path without `..` and `.`, if it stays where it is.
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

/// `MAPPING: dict[str, str] = {'package': '/where/it/is', …}`, as setuptools writes it.
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

/// A string as Python prints it, and what follows.
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
    fn what_setuptools_writes_is_read() {
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
    fn a_record_cannot_lead_out() {
        let site = Path::new("lib/python3.11/site-packages");
        assert_eq!(normal(&site.join("../../../bin/x")), Some("bin/x".into()));
        assert_eq!(normal(&site.join("../../../../x")), None);
        assert_eq!(normal(Path::new("/etc/passwd")), None);
    }
}
