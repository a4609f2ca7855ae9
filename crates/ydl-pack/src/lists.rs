//! Lists of packages: what is said in them, and of what they name on this machine. An environment made from a list is made
//! anew when any of that changes.

use super::{
    local::is_aside,
    plan::{Outside, Plan, ends, unread},
    same::Stamp,
};
use std::{fs, io::Read, path::Path};
use ydl_os::report::Report;

/// Lists that name lists that name lists: no more of them.
const LISTS_MAX: usize = 50;
/// Longer than any description of a project.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;
/// Where a project says what it needs.
const DESCRIPTIONS: [&str; 3] = ["pyproject.toml", "setup.cfg", "setup.py"];

/// What a line of a list names on this machine.
#[derive(Debug, PartialEq, Eq)]
enum Named<'a> {
    /// Another list.
    List(&'a str),
    /// What is installed so that it can be edited: it is not copied, but what it needs is installed.
    Edited(&'a str),
    /// What is copied.
    Copied(&'a str),
}

/// What a list of packages, or a project's `pyproject.toml`, says, with the lists it names, and how what it names on this
/// machine looks from outside.
pub(super) fn said(path: &Path) -> Result<Vec<u8>, Report> {
    let mut said = Vec::new();
    let mut lists = vec![path.to_path_buf()];
    let mut at = 0;
    while let Some(list) = lists.get(at).cloned() {
        at += 1;
        let dir = list.parent().unwrap_or(Path::new("/"));
        let text = fs::read(&list).map_err(|error| unread(&list, &error))?;
        if ends(&list, ".toml") {
            said.extend(described(dir));
            continue;
        }
        for line in String::from_utf8_lossy(&text).lines() {
            match named(line) {
                Some(Named::List(name)) => {
                    let other = dir.join(name);
                    if other.is_file() && !lists.contains(&other) && lists.len() < LISTS_MAX {
                        lists.push(other);
                    }
                }
                Some(Named::Edited(path)) => said.extend(described(&dir.join(path))),
                Some(Named::Copied(path)) => said.extend(looks(&dir.join(path))),
                None => {}
            }
        }
        said.extend(text);
    }
    Ok(said)
}

fn named(line: &str) -> Option<Named<'_>> {
    let line = line.trim();
    let words = [
        (["-r", "--requirement"], Named::List as fn(_) -> _),
        (["-c", "--constraint"], Named::List),
        (["-e", "--editable"], Named::Edited),
    ];
    for ([short, long], is) in words {
        let rest = match line.strip_prefix(long) {
            Some(rest) => rest.strip_prefix(['=', ' ']),
            // Of short words the rest may follow at once.
            None => line.strip_prefix(short).filter(|_| !line.starts_with("--")),
        };
        if let Some(rest) = rest {
            let rest = rest.trim_start_matches(['=', ' ']);
            return place(rest).map(is).or_else(|| match is("") {
                Named::List(_) => Some(Named::List(word(rest)?)),
                Named::Edited(_) | Named::Copied(_) => None,
            });
        }
    }
    // `name @ file:///where`, or the place alone.
    let rest = match line.split_once('@') {
        Some((_, rest)) if rest.trim_start().starts_with("file:") => rest.trim_start(),
        _ => line,
    };
    place(rest).map(Named::Copied)
}

/// The first word of something, without what pip may be told after it.
fn word(text: &str) -> Option<&str> {
    let word = text.split([' ', ';', '#', '\t']).next()?;
    (!word.is_empty()).then_some(word)
}

/// The path that something is, if it is one.
fn place(text: &str) -> Option<&str> {
    let word = word(text)?.split('[').next()?;
    let path = match word.strip_prefix("file:") {
        Some(path) => path.strip_prefix("//localhost").or(path.strip_prefix("//")).unwrap_or(path),
        None => word,
    };
    let begins = ["./", "../", "/"].iter().any(|it| path.starts_with(it));
    let is_path = word.starts_with("file:") || begins || matches!(path, "." | "..");
    is_path.then_some(path)
}

/// What a project says that it needs. Of other files that it names, as lists of packages or projects beside it, so much as can be
/// seen: each text in quotes that is a path.
fn described(dir: &Path) -> Vec<u8> {
    let mut said = Vec::new();
    for name in DESCRIPTIONS {
        let mut text = Vec::new();
        // What is not there or cannot be read is found out about by whoever installs it.
        let _ = fs::File::open(dir.join(name))
            .and_then(|file| file.take(DESCRIPTION_BYTES_MAX).read_to_end(&mut text));
        let quoted = String::from_utf8_lossy(&text).into_owned();
        for part in quoted.split(['"', '\'']).skip(1).step_by(2) {
            let other = dir.join(part);
            let is_list = ends(&other, ".txt") && other.is_file();
            let is_copied = ends(&other, ".whl") || is_project(&other);
            if !part.is_empty() && part != "." && (is_list || is_copied) {
                said.extend(looks(&other));
            }
        }
        said.extend(text);
    }
    said
}

fn is_project(dir: &Path) -> bool {
    DESCRIPTIONS.iter().any(|name| dir.join(name).is_file())
}

/// How a project or a wheel looks from outside; what building leaves in it does not count. What cannot be read is found out
/// about by whoever installs it.
fn looks(path: &Path) -> Vec<u8> {
    if let Ok(about) = fs::metadata(path)
        && about.is_file()
    {
        return Stamp::of(&about).known_by().to_vec();
    }
    let left = |_: &Path, path: &Path| {
        let name = path.file_name().unwrap_or_default();
        let built = ["build", "dist", "__pycache__"].iter().any(|it| name == *it);
        built || ends(path, ".egg-info") || is_aside(path)
    };
    let mut plan = Plan::default();
    let looked = plan.add_tree(path, Path::new(""), Outside::Leave, &left);
    looked.map_or_else(|_| Vec::new(), |()| plan.key("").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str, text: &str) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    }

    #[test]
    fn a_list_counts_with_the_lists_it_names() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| write(dir.path(), name, text);
        write("requirements.txt", "-rmore.txt\n--constraint=pins.txt\nnumpy\n-r nowhere.txt\n");
        write("more.txt", "-r requirements.txt\nidna\n");
        write("pins.txt", "numpy==1\n");
        let said = said(&dir.path().join("requirements.txt")).expect("lists");
        let said = String::from_utf8(said).expect("text");
        assert!(said.ends_with("idna\nnumpy==1\n"), "{said}");
    }

    #[test]
    fn what_a_line_names_is_known_in_every_form() {
        for (line, is) in [
            ("-r more.txt", Some(Named::List("more.txt"))),
            ("-rmore.txt # all", Some(Named::List("more.txt"))),
            ("--requirement=a.txt", Some(Named::List("a.txt"))),
            ("-c/x/pins.txt", Some(Named::List("/x/pins.txt"))),
            ("-e ./mine", Some(Named::Edited("./mine"))),
            ("-e.", Some(Named::Edited("."))),
            ("--editable=../a[fast]", Some(Named::Edited("../a"))),
            ("-e git+https://x/y", None),
            ("file:///x/a.whl", Some(Named::Copied("/x/a.whl"))),
            ("a @ file:///x/a.whl ; extra", Some(Named::Copied("/x/a.whl"))),
            ("a@ file:x/a.whl", Some(Named::Copied("x/a.whl"))),
            ("a @ https://x/a.whl", None),
            ("./mine[fast] ; python_version > '3'", Some(Named::Copied("./mine"))),
            (".", Some(Named::Copied("."))),
            ("numpy==1", None),
            ("--extra-index-url https://x", None),
            ("# ./mine", None),
            ("", None),
        ] {
            assert_eq!(named(line), is, "{line}");
        }
    }

    #[test]
    fn what_a_list_names_on_this_machine_counts_as_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| write(dir.path(), name, text);
        write("requirements.txt", "./mine[fast]\nnumpy\n");
        write("mine/mine.py", "word = 1\n");
        let said = || said(&dir.path().join("requirements.txt")).expect("a list");
        let before = said();
        write("mine/build/lib/mine.py", "built");
        write("mine/mine.egg-info/PKG-INFO", "built");
        assert_eq!(said(), before);
        write("mine/mine.py", "word = 22\n");
        assert_ne!(said(), before);
    }

    #[test]
    fn of_what_can_be_edited_its_needs_count_and_its_code_does_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| write(dir.path(), name, text);
        write("requirements.txt", "-e ./mine\n");
        write("mine/pyproject.toml", "dependencies = {file = ['needs.txt']}\n");
        write("mine/needs.txt", "numpy\n");
        write("mine/mine.py", "word = 1\n");
        for list in ["requirements.txt", "mine/pyproject.toml"] {
            let said = || said(&dir.path().join(list)).expect("a list");
            let before = said();
            write("mine/mine.py", &format!("of = '{list}'\n"));
            assert_eq!(said(), before);
            write("mine/needs.txt", &format!("numpy\n# {list}\n"));
            assert_ne!(said(), before);
            let before = said();
            write("mine/setup.py", &format!("# {list}\n"));
            assert_ne!(said(), before);
        }
    }
}
