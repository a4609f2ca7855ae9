//! Inputs of an environment built from a list of packages: the list, and the local files that it names. The environment is
//! rebuilt when any of them changes.

use super::{
    local::is_not_imported,
    plan::{OutsideLinks, Plan, ends, read_error},
    stable_file::FileStamp,
};
use std::{fs, io::Read, path::Path};
use ydl_os::report::Report;

/// Maximum number of nested lists.
const LISTS_MAX: usize = 50;
/// Maximum size of a project description that is read.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;
/// Files in which a project declares its dependencies.
const DESCRIPTIONS: [&str; 3] = ["pyproject.toml", "setup.cfg", "setup.py"];

/// Local file named by a line of a list.
#[derive(Debug, PartialEq, Eq)]
enum LocalRef<'a> {
    /// Another list.
    List(&'a str),
    /// Editable install: not copied, but its dependencies are installed.
    Editable(&'a str),
    /// Package that is copied.
    Package(&'a str),
}

/// Reads a list of packages or a project's `pyproject.toml`, with the lists and the metadata of the local files that it names.
pub(super) fn read_inputs(path: &Path) -> Result<Vec<u8>, Report> {
    let mut inputs = Vec::new();
    let mut lists = vec![path.to_path_buf()];
    let mut at = 0;
    while let Some(list) = lists.get(at).cloned() {
        at += 1;
        let dir = list.parent().unwrap_or(Path::new("/"));
        let text = fs::read(&list).map_err(|error| read_error(&list, &error))?;
        if ends(&list, ".toml") {
            inputs.extend(dependencies(dir));
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
                Some(LocalRef::Editable(path)) => inputs.extend(dependencies(&dir.join(path))),
                Some(LocalRef::Package(path)) => inputs.extend(fingerprint(&dir.join(path))),
                None => {}
            }
        }
        inputs.extend(text);
    }
    Ok(inputs)
}

fn parse_line(line: &str) -> Option<LocalRef<'_>> {
    let line = line.trim();
    let options = [
        (["-r", "--requirement"], LocalRef::List as fn(_) -> _),
        (["-c", "--constraint"], LocalRef::List),
        (["-e", "--editable"], LocalRef::Editable),
    ];
    for ([short, long], kind) in options {
        let rest = match line.strip_prefix(long) {
            Some(rest) => rest.strip_prefix(['=', ' ']),
            // A short option may be followed by its value without a space.
            None => line.strip_prefix(short).filter(|_| !line.starts_with("--")),
        };
        if let Some(rest) = rest {
            let rest = rest.trim_start_matches(['=', ' ']);
            return local_path(rest).map(kind).or_else(|| match kind("") {
                LocalRef::List(_) => Some(LocalRef::List(word(rest)?)),
                LocalRef::Editable(_) | LocalRef::Package(_) => None,
            });
        }
    }
    // `name @ file:///where`, or the path alone.
    let rest = match line.split_once('@') {
        Some((_, rest)) if rest.trim_start().starts_with("file:") => rest.trim_start(),
        _ => line,
    };
    local_path(rest).map(LocalRef::Package)
}

/// Returns the first word, without pip's options after it.
fn word(text: &str) -> Option<&str> {
    let word = text.split([' ', ';', '#', '\t']).next()?;
    (!word.is_empty()).then_some(word)
}

/// Returns the path in a requirement, if it has one.
fn local_path(text: &str) -> Option<&str> {
    let word = word(text)?.split('[').next()?;
    let path = match word.strip_prefix("file:") {
        Some(path) => path.strip_prefix("//localhost").or(path.strip_prefix("//")).unwrap_or(path),
        None => word,
    };
    let is_relative_or_absolute = ["./", "../", "/"].iter().any(|start| path.starts_with(start));
    let is_path =
        word.starts_with("file:") || is_relative_or_absolute || matches!(path, "." | "..");
    is_path.then_some(path)
}

/// Reads the files in which a project declares its dependencies. Other files that they name, such as lists of packages or
/// neighbouring projects, are included if they appear as quoted paths.
fn dependencies(dir: &Path) -> Vec<u8> {
    let mut inputs = Vec::new();
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
                inputs.extend(fingerprint(&other));
            }
        }
        inputs.extend(text);
    }
    inputs
}

fn is_project(dir: &Path) -> bool {
    DESCRIPTIONS.iter().any(|name| dir.join(name).is_file())
}

/// Returns a fingerprint of a project or a wheel, without build products. Missing or unreadable files are reported by the
/// installer.
fn fingerprint(path: &Path) -> Vec<u8> {
    if let Ok(metadata) = fs::metadata(path)
        && metadata.is_file()
    {
        return FileStamp::of(&metadata).fingerprint().to_vec();
    }
    let skip = |_: &Path, path: &Path| {
        let name = path.file_name().unwrap_or_default();
        let is_product = ["build", "dist", "__pycache__"].iter().any(|product| name == *product);
        is_product || ends(path, ".egg-info") || is_not_imported(path)
    };
    let mut plan = Plan::default();
    let scanned = plan.add_tree(path, Path::new(""), OutsideLinks::Skip, &skip);
    scanned.map_or_else(|_| Vec::new(), |()| plan.key("").into_bytes())
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
        let inputs = read_inputs(&dir.path().join("requirements.txt")).expect("lists");
        let inputs = String::from_utf8(inputs).expect("text");
        assert!(inputs.ends_with("idna\nnumpy==1\n"), "{inputs}");
    }

    #[test]
    fn local_references_are_parsed_in_every_form() {
        for (line, expected) in [
            ("-r more.txt", Some(LocalRef::List("more.txt"))),
            ("-rmore.txt # all", Some(LocalRef::List("more.txt"))),
            ("--requirement=a.txt", Some(LocalRef::List("a.txt"))),
            ("-c/x/pins.txt", Some(LocalRef::List("/x/pins.txt"))),
            ("-e ./mine", Some(LocalRef::Editable("./mine"))),
            ("-e.", Some(LocalRef::Editable("."))),
            ("--editable=../a[fast]", Some(LocalRef::Editable("../a"))),
            ("-e git+https://x/y", None),
            ("file:///x/a.whl", Some(LocalRef::Package("/x/a.whl"))),
            ("a @ file:///x/a.whl ; extra", Some(LocalRef::Package("/x/a.whl"))),
            ("a@ file:x/a.whl", Some(LocalRef::Package("x/a.whl"))),
            ("a @ https://x/a.whl", None),
            ("./mine[fast] ; python_version > '3'", Some(LocalRef::Package("./mine"))),
            (".", Some(LocalRef::Package("."))),
            ("numpy==1", None),
            ("--extra-index-url https://x", None),
            ("# ./mine", None),
            ("", None),
        ] {
            assert_eq!(parse_line(line), expected, "{line}");
        }
    }

    #[test]
    fn local_files_are_part_of_the_inputs() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| write(dir.path(), name, text);
        write("requirements.txt", "./mine[fast]\nnumpy\n");
        write("mine/mine.py", "word = 1\n");
        let inputs = || read_inputs(&dir.path().join("requirements.txt")).expect("a list");
        let before = inputs();
        write("mine/build/lib/mine.py", "built");
        write("mine/mine.egg-info/PKG-INFO", "built");
        assert_eq!(inputs(), before);
        write("mine/mine.py", "word = 22\n");
        assert_ne!(inputs(), before);
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
            let inputs = || read_inputs(&dir.path().join(list)).expect("a list");
            let before = inputs();
            write("mine/mine.py", &format!("of = '{list}'\n"));
            assert_eq!(inputs(), before);
            write("mine/needs.txt", &format!("numpy\n# {list}\n"));
            assert_ne!(inputs(), before);
            let before = inputs();
            write("mine/setup.py", &format!("# {list}\n"));
            assert_ne!(inputs(), before);
        }
    }
}
