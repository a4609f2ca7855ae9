//! Scripts and files that use skein. Tasks find ydl's `skein` first in Python's path, unless a script replaces that path:
//! then they would find the original, which cannot connect to this master.

use super::{
    context::{Context, text_of},
    files::ServiceFile,
    role::Role,
};
use std::{fs, io::Read, path::Path};

/// Maximum size of a program that is searched.
const PROGRAM_BYTES_MAX: u64 = 1 << 20;
/// Endings of programs that are searched.
const PROGRAMS: [&str; 3] = [".py", ".sh", ".bash"];

/// Reads a program of this machine. Other files are not read.
pub fn read_program(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    if !PROGRAMS.iter().any(|end| name.ends_with(end)) || !path.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(PROGRAM_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Rejects services that use skein and hide ydl's replacement of it.
pub fn check(
    context: &mut Context,
    roles: &[Role],
    files: &[ServiceFile],
    read: &dyn Fn(&str) -> Option<String>,
) {
    for role in roles {
        let Some((written, script)) = role.script() else {
            continue;
        };
        let shipped = files.iter().filter(|file| file.role == role.name);
        let programs: Vec<(String, String)> = shipped
            .filter_map(|file| {
                let path = text_of(&file.source)?;
                Some((format!("file `{path}`"), read(path)?))
            })
            .collect();
        let own = ("the script".to_owned(), script.to_owned());
        let all = || std::iter::once(&own).chain(&programs);
        let user = all().find(|(_, text)| uses_skein(text));
        let hider = all().find_map(|(name, text)| Some((name, hides_path(text)?)));
        if let (Some((user, _)), Some((hider, line))) = (user, hider) {
            let what = format!(
                "`{}`: {user} uses skein, and {hider} replaces `PYTHONPATH` (`{line}`): Python would find the original skein, \
                 which cannot connect to this master",
                role.service
            );
            let hint = "keep the earlier path, as in `export PYTHONPATH=mine:$PYTHONPATH`, and leave out `python -E` and `-I`";
            context.error(&written.at, what, hint);
        }
    }
}

fn uses_skein(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == "skein")
}

/// Returns the line that hides `PYTHONPATH` from Python.
fn hides_path(text: &str) -> Option<&str> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let mut lines = lines.filter(|line| {
        let words: Vec<&str> = line.split([' ', '\t', ';', '&', '(']).collect();
        let mut words = words.iter().enumerate();
        let replaces = |word: &str| {
            let value = word.strip_prefix("PYTHONPATH=");
            value.is_some_and(|_| !line.contains("$PYTHONPATH") && !line.contains("${PYTHONPATH"))
        };
        words.any(|(at, word)| {
            let next = line.split([' ', '\t', ';', '&', '(']).nth(at + 1).unwrap_or_default();
            let is_python = word.rsplit('/').next().is_some_and(|name| {
                name.strip_prefix("python")
                    .is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
            });
            let isolates = |flags: &str| {
                flags.starts_with('-')
                    && !flags.starts_with("--")
                    && !flags.starts_with("-m")
                    && !flags.starts_with("-c")
                    && flags.contains(['E', 'I'])
            };
            replaces(word)
                || (*word == "unset" && next == "PYTHONPATH")
                || (*word == "env" && (next == "-i" || next == "-"))
                || (is_python && isolates(next))
        })
    });
    lines.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_hide_the_path_are_found() {
        for script in [
            "export PYTHONPATH=lib",
            "PYTHONPATH=lib python train.py",
            "unset PYTHONPATH",
            "python -E train.py",
            "cd x; environment/bin/python3.8 -Ic 'import skein'",
            "env -i python train.py",
        ] {
            assert!(hides_path(script).is_some(), "{script}");
        }
        for script in [
            "export PYTHONPATH=lib:$PYTHONPATH",
            "PYTHONPATH=\"lib${PYTHONPATH:+:$PYTHONPATH}\" python train.py",
            "python -m skein.recipes.jupyter_notebook --Error",
            "# unset PYTHONPATH",
            "python -u train.py -E",
        ] {
            assert_eq!(hides_path(script), None, "{script}");
        }
    }

    #[test]
    fn uses_of_skein_are_words() {
        assert!(uses_skein("import skein") && uses_skein("skein kv put current"));
        assert!(!uses_skein("from skeins import x"));
    }
}
