//! Inputs of an environment built from a list of packages: the list, and the local files that it names. The environment is
//! rebuilt when any of them changes.

use super::{
    local::is_aside,
    plan::{OutsideLinks, Plan, ends, unread},
    same::FileStamp,
};
use std::{fs, io::Read, path::Path};
use ydl_os::report::Report;

/// Maximum number of nested lists.
const LISTS_MAX: usize = 50;
/// Longer than any project description.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;
/// Files in which a project declares its dependencies.
const DESCRIPTIONS: [&str; 3] = ["pyproject.toml", "setup.cfg", "setup.py"];

/// Local file named by a line of a list.
#[derive(Debug, PartialEq, Eq)]
enum LocalRef<'a> {
    /// Another list.
    List(&'a str),
    /// Editable install: not copied, but its dependencies are installed.
    Edited(&'a str),
    /// Package that is copied.
    Copied(&'a str),
}

/// Content of a list of packages or of a project's `pyproject.toml`, with the lists it names and the metadata of the local
/// files it names.
pub(super) fn said(path: &Path) -> Result<Vec<u8>, Report> {
    let mut said = Vec::new();
    let mut lists = vec![path.to_path_buf()];
    let mut at = 0;
    while let Some(list) = lists.get(at).cloned() {
        at += 1;
        let dir = list.parent().unwrap_or(Path::new("/"));
        let text = fs::read(&list).map_err(|error| unread(&list, &error))?;
        if ends(&list, ".toml") {
            said.extend(declared(dir));
            continue;
        }
        for line in String::from_utf8_lossy(&text).lines() {
            match parse_line(line) {
                Some(LocalRef::List(name)) => {
                    let other = dir.join(name);
                    if other.is_file() && !lists.contains(&other) && lists.len() < LISTS_MAX {
                        lists.push(other);
                    }
                }
                Some(LocalRef::Edited(path)) => said.extend(declared(&dir.join(path))),
                Some(LocalRef::Copied(path)) => said.extend(fingerprint(&dir.join(path))),
                None => {}
            }
        }
        said.extend(text);
    }
    Ok(said)
}

fn parse_line(line: &str) -> Option<LocalRef<'_>> {
    let line = line.trim();
    let words = [
        (["-r", "--requirement"], LocalRef::List as fn(_) -> _),
        (["-c", "--constraint"], LocalRef::List),
        (["-e", "--editable"], LocalRef::Edited),
    ];
    for ([short, long], is) in words {
        let rest = match line.strip_prefix(long) {
            Some(rest) => rest.strip_prefix(['=', ' ']),
            // A short option may be followed by its value without a space.
            None => line.strip_prefix(short).filter(|_| !line.starts_with("--")),
        };
        if let Some(rest) = rest {
            let rest = rest.trim_start_matches(['=', ' ']);
            return local_path(rest).map(is).or_else(|| match is("") {
                LocalRef::List(_) => Some(LocalRef::List(word(rest)?)),
                LocalRef::Edited(_) | LocalRef::Copied(_) => None,
            });
        }
    }
    // `name @ file:///where`, or the path alone.
    let rest = match line.split_once('@') {
        Some((_, rest)) if rest.trim_start().starts_with("file:") => rest.trim_start(),
        _ => line,
    };
    local_path(rest).map(LocalRef::Copied)
}

/// First word, without options of pip behind it.
fn word(text: &str) -> Option<&str> {
    let word = text.split([' ', ';', '#', '\t']).next()?;
    (!word.is_empty()).then_some(word)
}

/// Path in a requirement, if it is one.
fn local_path(text: &str) -> Option<&str> {
    let word = word(text)?.split('[').next()?;
    let path = match word.strip_prefix("file:") {
        Some(path) => path.strip_prefix("//localhost").or(path.strip_prefix("//")).unwrap_or(path),
        None => word,
    };
    let begins = ["./", "../", "/"].iter().any(|it| path.starts_with(it));
    let is_path = word.starts_with("file:") || begins || matches!(path, "." | "..");
    is_path.then_some(path)
}

/// Dependencies that a project declares. Other files that it names, such as lists of packages or neighbouring projects, are
/// covered as far as they appear as quoted paths.
fn declared(dir: &Path) -> Vec<u8> {
    let mut said = Vec::new();
    for name in DESCRIPTIONS {
        let mut text = Vec::new();
        // Missing or unreadable files are reported by the installer.
        let _ = fs::File::open(dir.join(name))
            .and_then(|file| file.take(DESCRIPTION_BYTES_MAX).read_to_end(&mut text));
        let quoted = String::from_utf8_lossy(&text).into_owned();
        for part in quoted.split(['"', '\'']).skip(1).step_by(2) {
            let other = dir.join(part);
            let is_list = ends(&other, ".txt") && other.is_file();
            let is_copied = ends(&other, ".whl") || is_project(&other);
            if !part.is_empty() && part != "." && (is_list || is_copied) {
                said.extend(fingerprint(&other));
            }
        }
        said.extend(text);
    }
    said
}

fn is_project(dir: &Path) -> bool {
    DESCRIPTIONS.iter().any(|name| dir.join(name).is_file())
}

/// Fingerprint of a project or a wheel, without build products. Missing or unreadable files are reported by the installer.
fn fingerprint(path: &Path) -> Vec<u8> {
    if let Ok(about) = fs::metadata(path)
        && about.is_file()
    {
        return FileStamp::of(&about).known_by().to_vec();
    }
    let left = |_: &Path, path: &Path| {
        let name = path.file_name().unwrap_or_default();
        let built = ["build", "dist", "__pycache__"].iter().any(|it| name == *it);
        built || ends(path, ".egg-info") || is_aside(path)
    };
    let mut plan = Plan::default();
    let looked = plan.add_tree(path, Path::new(""), OutsideLinks::Leave, &left);
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
    fn nested_lists_are_part_of_the_inputs() {
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
    fn local_references_are_parsed_in_every_form() {
        for (line, is) in [
            ("-r more.txt", Some(LocalRef::List("more.txt"))),
            ("-rmore.txt # all", Some(LocalRef::List("more.txt"))),
            ("--requirement=a.txt", Some(LocalRef::List("a.txt"))),
            ("-c/x/pins.txt", Some(LocalRef::List("/x/pins.txt"))),
            ("-e ./mine", Some(LocalRef::Edited("./mine"))),
            ("-e.", Some(LocalRef::Edited("."))),
            ("--editable=../a[fast]", Some(LocalRef::Edited("../a"))),
            ("-e git+https://x/y", None),
            ("file:///x/a.whl", Some(LocalRef::Copied("/x/a.whl"))),
            ("a @ file:///x/a.whl ; extra", Some(LocalRef::Copied("/x/a.whl"))),
            ("a@ file:x/a.whl", Some(LocalRef::Copied("x/a.whl"))),
            ("a @ https://x/a.whl", None),
            ("./mine[fast] ; python_version > '3'", Some(LocalRef::Copied("./mine"))),
            (".", Some(LocalRef::Copied("."))),
            ("numpy==1", None),
            ("--extra-index-url https://x", None),
            ("# ./mine", None),
            ("", None),
        ] {
            assert_eq!(parse_line(line), is, "{line}");
        }
    }

    #[test]
    fn local_files_are_part_of_the_inputs() {
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
    fn editable_projects_count_by_their_dependencies_not_their_code() {
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
