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
pub(crate) fn check(
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
        let mut programs =
            vec![Program { label: "the script".to_owned(), is_python: false, text: script.into() }];
        programs.extend(shipped.filter_map(|file| {
            let path = text_of(&file.source)?;
            let (label, is_python) = (format!("file `{path}`"), path.ends_with(".py"));
            Some(Program { label, is_python, text: read(path)? })
        }));
        // Of equal ones the last is chosen, which is the first program.
        let uses = programs.iter().rev().map(|program| (program.skein_use(), program));
        let Some((skein_use, user)) = uses.max_by_key(|(found, _)| *found) else {
            continue;
        };
        if skein_use == SkeinUse::None {
            continue;
        }
        let mut hiders = programs.iter().filter_map(|it| Some((&it.label, hides_path(&it.text)?)));
        let Some((hider, line)) = hiders.next() else {
            continue;
        };
        let hidden = format!("{hider} replaces `PYTHONPATH` (`{line}`)");
        let (service, user) = (&role.service, &user.label);
        if skein_use == SkeinUse::Certain {
            let what = format!(
                "`{service}`: {user} uses skein, and {hidden}: Python would find the original skein, which cannot connect to \
                 this master"
            );
            let hint = "keep the earlier path, as in `export PYTHONPATH=mine:$PYTHONPATH`, and leave out `python -E` and `-I`";
            context.error(&written.at, what, hint);
        } else {
            let what = format!(
                "`{service}`: {user} mentions skein, and {hidden}: a program that imports skein would find the original, which \
                 cannot connect to this master"
            );
            context.note_at(&written.at, &what);
        }
    }
}

/// Program of a service: its script, or one of its files.
struct Program {
    label: String,
    is_python: bool,
    text: String,
}

/// Certainty with which a program uses skein.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SkeinUse {
    None,
    /// The word occurs, such as in a comment or in a path.
    Mentioned,
    Certain,
}

impl Program {
    fn skein_use(&self) -> SkeinUse {
        let mut words = self.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if !words.any(|word| word == "skein") {
            return SkeinUse::None;
        }
        let lines = || self.text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        // A script may have a program in Python, as in `python -c 'import skein'`.
        let is_certain = lines().any(imports_skein) || !self.is_python && lines().any(runs_skein);
        if is_certain { SkeinUse::Certain } else { SkeinUse::Mentioned }
    }
}

/// Returns true for a line with a statement of Python that imports skein.
fn imports_skein(line: &str) -> bool {
    let is_skein = |module: &str| {
        let name = module.split_whitespace().next().unwrap_or_default();
        name == "skein" || name.starts_with("skein.")
    };
    let line = line.split(" #").next().unwrap_or_default();
    line.split([';', ':', '\'', '"']).any(|statement| {
        let statement = statement.trim_start();
        let modules = statement.strip_prefix("import ");
        modules.is_some_and(|modules| modules.split(',').any(is_skein))
            || statement.strip_prefix("from ").is_some_and(is_skein)
    })
}

/// Returns true for a line of a shell script that runs skein as a command or as a module.
fn runs_skein(line: &str) -> bool {
    const KEYWORDS: [&str; 13] = [
        "!", "{", "do", "else", "env", "exec", "if", "nohup", "then", "time", "until", "while",
        "elif",
    ];
    let line = line.split(" #").next().unwrap_or_default();
    let mut commands = line.split([';', '&', '|', '(', ')', '`']);
    commands.any(|command| {
        let words: Vec<&str> = command.split_whitespace().collect();
        let mut pairs = words.iter().zip(words.iter().skip(1));
        let is_module = |word: &str| word == "skein" || word.starts_with("skein.");
        // Variables and keywords precede a command.
        let mut named = words.iter().filter(|word| !word.contains('=') && !KEYWORDS.contains(word));
        named.next().is_some_and(|word| word.rsplit('/').next() == Some("skein"))
            || pairs.any(|(word, next)| *word == "-m" && is_module(next))
    })
}

/// Returns the line that hides `PYTHONPATH` from Python.
fn hides_path(text: &str) -> Option<&str> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let mut lines = lines.filter(|line| {
        let all: Vec<&str> = line.split([' ', '\t', ';', '&', '(']).collect();
        let mut words = all.iter().enumerate();
        let replaces = |word: &str| {
            let value = word.strip_prefix("PYTHONPATH=");
            value.is_some_and(|_| !line.contains("$PYTHONPATH") && !line.contains("${PYTHONPATH"))
        };
        words.any(|(at, word)| {
            let next = all.get(at + 1).copied().unwrap_or_default();
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
    fn uses_of_skein_are_imports_and_commands() {
        let found = |is_python: bool, text: &str| {
            let label = String::new();
            Program { label, is_python, text: text.to_owned() }.skein_use()
        };
        for text in [
            "import skein",
            "import os, skein.kv as kv  # the store",
            "try: import skein\nexcept ImportError: pass",
            "def f():\n    from skein.exceptions import SkeinError",
        ] {
            assert_eq!(found(true, text), SkeinUse::Certain, "{text}");
        }
        for text in [
            "skein kv put current",
            "cd x && exec /opt/env/bin/skein kv ls",
            "ADDRESS=$(A=1 skein kv get current)",
            "if ! skein kv exists; then exit; fi",
            "python -m skein.recipes.jupyter_notebook",
            "python -c 'import skein'",
            "python - <<END\nimport skein\nEND",
        ] {
            assert_eq!(found(false, text), SkeinUse::Certain, "{text}");
        }
        for text in ["# import skein", "cd /data/skein", "python x.py --launcher skein # skein kv"]
        {
            assert_eq!(found(false, text), SkeinUse::Mentioned, "{text}");
        }
        for text in
            ["# replaces skein", "path = '/data/skein'", "import pyskein, skein_tools.skein"]
        {
            assert_eq!(found(true, text), SkeinUse::Mentioned, "{text}");
        }
        assert_eq!(found(true, "from skeins import x"), SkeinUse::None);
    }

    #[test]
    fn a_line_of_many_words_takes_little_time() {
        let line = "python x ".repeat(100_000);
        assert_eq!(hides_path(&line), None);
    }
}
