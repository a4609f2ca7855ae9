//! Hints for modules and files that a program did not find, from the end of its stderr.

use std::path::{Path, PathBuf};
use ydl_core::JobSpec;

/// Something that a program did not find.
#[derive(Debug, PartialEq, Eq)]
enum Missing<'a> {
    /// Python module, by its full name.
    Module(&'a str),
    /// Program or script.
    Script(&'a str),
    /// File that a program opens; it may be missing on purpose.
    File(&'a str),
}

/// Returns a hint that names the key and the flag which ship what a program did not find. `from` is the directory in which
/// the job was submitted. `in_place` is true if programs run there, or in another directory of this machine.
pub(crate) fn missing_file_hint(
    stderr: &str,
    spec: &JobSpec,
    from: &Path,
    in_place: bool,
) -> Option<String> {
    let missing = stderr.lines().rev().find_map(missing_in)?;
    if in_place {
        return match missing {
            Missing::Module(name) => Some(format!(
                "module `{name}` is not in the environment of the program: install it there, or name an environment that has \
                 it with `environment` (`--environment ./venv` on a command line)"
            )),
            Missing::Script(_) | Missing::File(_) => None,
        };
    }
    let (name, mut candidates) = match missing {
        Missing::Module(name) => (name, candidates(name)),
        Missing::Script(name) | Missing::File(name) => (name, vec![relative(name)]),
    };
    // A shipped file is missing for another reason, such as the directory in which the program looks for it.
    let all = candidates.len();
    candidates.retain(|path| !spec.files.iter().any(|file| path.starts_with(&file.name)));
    let is_shipped = candidates.len() < all;
    let sources = spec.files.iter().filter(|file| !file.source.contains("://"));
    let parents = sources.filter_map(|file| Path::new(&file.source).parent());
    let mut places = std::iter::once(from).chain(parents);
    let found = places.find_map(|dir| {
        let found = candidates.iter().find(|path| dir.join(path).exists())?;
        Some(if dir == from { found.clone() } else { dir.join(found) })
    });
    match (found, missing) {
        (Some(path), _) => Some(format!(
            "`{0}` was not shipped with the job: add it to `files` of the job file, or add `--files {0}` to the command line",
            path.display()
        )),
        (None, _) if is_shipped => None,
        (None, Missing::Module(_)) => Some(format!(
            "module `{name}` is neither among the shipped files nor in the environment of the job: ship a module with `files` \
             (`--files PATH` on a command line), or an environment that has it with `environment` (`--environment ./venv`)"
        )),
        (None, Missing::Script(_)) => Some(format!(
            "`{}` is not among the shipped files: ship it with `files` (`--files PATH` on a command line)",
            relative(name).display()
        )),
        (None, Missing::File(_)) => None,
    }
}

/// Returns the paths of a module: of itself, then of its packages, outermost last.
fn candidates(module: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut name = Some(module);
    while let Some(part) = name {
        let path = part.replace('.', "/");
        paths.extend([PathBuf::from(format!("{path}.py")), PathBuf::from(path)]);
        name = part.rsplit_once('.').map(|(package, _)| package);
    }
    paths
}

/// Returns a path relative to the task's directory: interpreters print it in full.
fn relative(path: &str) -> PathBuf {
    match path.rsplit_once("/work/") {
        Some((_, below)) => below.into(),
        None => path.trim_start_matches("./").into(),
    }
}

/// Finds what is missing according to one line of output.
fn missing_in(line: &str) -> Option<Missing<'_>> {
    let line = line.trim();
    let quoted = |text: &'_ str| -> Option<usize> { text.strip_prefix('\'')?.find('\'') };
    let inside = |text: &'static str| line.split_once(text).map(|(_, rest)| rest);
    let named = |name: &&str| !relative(name).as_os_str().is_empty();
    let valid = |name: &&str| {
        let mut parts = name.split('.');
        parts.all(|part| !part.is_empty() && !part.contains(char::is_whitespace))
    };
    if let Some(rest) = inside("ModuleNotFoundError: No module named ") {
        let name = &rest[1..=quoted(rest)?];
        return Some(name).filter(valid).map(Missing::Module);
    }
    // Python 2.
    if let Some(rest) = line.strip_prefix("ImportError: No module named ") {
        return Some(rest).filter(valid).map(Missing::Module);
    }
    if let Some(rest) = inside(": can't open file ") {
        return Some(&rest[1..=quoted(rest)?]).filter(named).map(Missing::Script);
    }
    if let Some(rest) = inside("FileNotFoundError: [Errno 2] No such file or directory: ") {
        return Some(&rest[1..=quoted(rest)?]).filter(named).map(Missing::File);
    }
    // dash and bash.
    if let Some(rest) = inside("sh: 0: cannot open ") {
        return rest.split(": ").next().filter(named).map(Missing::Script);
    }
    let name = inside("bash: ")?.strip_suffix(": No such file or directory")?;
    Some(name).filter(named).filter(|name| !name.contains(": ")).map(Missing::Script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use ydl_core::spec::{Command, File, JobSpecBuilder, RoleSpec};

    fn job(files: Vec<File>) -> JobSpec {
        let run = Command::Program(vec!["true".to_owned()]);
        let role = RoleSpec { name: "worker".into(), command: run, ..RoleSpec::default() };
        let name = "train".to_owned();
        JobSpecBuilder { name, roles: vec![role], files, ..JobSpecBuilder::default() }
            .build()
            .unwrap()
    }

    #[test]
    fn missing_modules_and_scripts_are_found_in_output() {
        for (line, expected) in [
            ("ModuleNotFoundError: No module named 'common'", Some(Missing::Module("common"))),
            (
                "ModuleNotFoundError: No module named 'a.b'; 'a' is not",
                Some(Missing::Module("a.b")),
            ),
            ("ImportError: No module named common.fit", Some(Missing::Module("common.fit"))),
            (
                "/usr/bin/python3: can't open file '/j/work/x.py': [Errno 2] No such file or directory",
                Some(Missing::Script("/j/work/x.py")),
            ),
            ("/bin/bash: run.sh: No such file or directory", Some(Missing::Script("run.sh"))),
            ("sh: 0: cannot open run.sh: No such file", Some(Missing::Script("run.sh"))),
            (
                "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'",
                Some(Missing::File("data/x.csv")),
            ),
            ("ModuleNotFoundError: No module named ", None),
            ("ModuleNotFoundError: No module named '", None),
            ("ModuleNotFoundError: No module named ''", None),
            ("ModuleNotFoundError: No module named '.fit'", None),
            ("python: can't open file '': [Errno 2] No such file or directory", None),
            ("python: can't open file '/j/c/work/': [Errno 2] No such file or directory", None),
            ("FileNotFoundError: [Errno 2] No such file or directory: ''", None),
            ("/bin/bash: : No such file or directory", None),
            ("sh: 0: cannot open : No such file", None),
            ("bash: line 1: foo: command not found", None),
            ("", None),
        ] {
            assert_eq!(missing_in(line), expected, "{line}");
        }
    }

    #[test]
    fn hints_name_the_flag_that_ships_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let (from, beside) = (dir.path().join("launch"), dir.path().join("scripts"));
        fs::create_dir_all(from.join("common")).unwrap();
        fs::create_dir_all(&beside).unwrap();
        fs::write(beside.join("model.py"), "").unwrap();
        let source = beside.join("train.py").display().to_string();
        let file = File { name: "train.py".to_owned(), source, ..File::default() };
        let spec = job(vec![file]);
        let hint = |stderr: &str| missing_file_hint(stderr, &spec, &from, false);
        let module =
            |name: &str| format!("Traceback\nModuleNotFoundError: No module named '{name}'\n");
        assert!(hint(&module("common.fit")).unwrap().contains("`--files common`"));
        let path = beside.join("model.py").display().to_string();
        assert!(hint(&module("model")).unwrap().contains(&format!("`--files {path}`")));
        let unknown = hint(&module("torch")).unwrap();
        assert!(unknown.contains("`--environment ./venv`") && unknown.contains("`--files PATH`"));
        let script =
            "python: can't open file '/j/c/work/x.py': [Errno 2] No such file or directory";
        assert!(hint(script).unwrap().contains("`--files PATH`"));
        assert_eq!(hint("FileNotFoundError: [Errno 2] No such file or directory: 'out.csv'"), None);
        assert_eq!(hint("ValueError: No module named 'x'"), None);
        let local = missing_file_hint(&module("torch"), &spec, &from, true).unwrap();
        assert!(local.contains("`--environment ./venv`") && !local.contains("--files"));
    }
    #[test]
    fn shipped_files_are_not_named_in_hints() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path();
        fs::create_dir(from.join("common")).unwrap();
        fs::create_dir(from.join("model")).unwrap();
        for name in ["common/fit.py", "model.py", "train.py"] {
            fs::write(from.join(name), "").unwrap();
        }
        let shipped = |name: &str| {
            let source = from.join(name).display().to_string();
            File { name: name.to_owned(), source, ..File::default() }
        };
        let spec = job(vec![shipped("common"), shipped("model"), shipped("train.py")]);
        let hint = |stderr: &str| missing_file_hint(stderr, &spec, from, false);
        for stderr in [
            "ModuleNotFoundError: No module named 'common'",
            "ModuleNotFoundError: No module named 'common.fit'",
            "python: can't open file '/j/c/work/train.py': [Errno 2] No such file or directory",
            "FileNotFoundError: [Errno 2] No such file or directory: 'common/fit.py'",
        ] {
            assert_eq!(hint(stderr), None, "{stderr}");
        }
        // A directory of data has the name of a module, which is not shipped.
        let named = hint("ModuleNotFoundError: No module named 'model'").unwrap();
        assert!(named.contains("`--files model.py`"), "{named}");
    }
}
