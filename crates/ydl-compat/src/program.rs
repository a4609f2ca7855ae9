//! Command of the program, and the files that it names.

use super::{
    JobFileBuilder,
    parser::ParsedArgs,
    text::{file_name, shell_quoted},
};
use std::{
    fs,
    path::{Path, PathBuf},
};
use ydl_jobfile::{Location, split_words};
use ydl_os::report::Report;

/// Programs of nodes: their absolute paths are kept and they are not shipped.
const INTERPRETERS: [&str; 9] =
    ["python", "bash", "sh", "java", "Rscript", "R", "perl", "julia", "env"];

/// Splits a shell line into words. A line with shell syntax is run by a shell, with further arguments appended.
pub(crate) fn split_line(args: &ParsedArgs, line: &str) -> Result<Vec<String>, Report> {
    match split_words(line) {
        Ok(words) => Ok(words),
        // Without a hint it is not a valid line of a shell, either.
        Err((what, hint)) if hint.is_empty() => Err(args.error(what)),
        Err(_) => {
            let script = format!("{line} \"$@\"");
            let shell = ["/bin/bash", "-c", &script, &args.name];
            Ok(shell.map(str::to_owned).to_vec())
        }
    }
}

/// Returns the words of the command as the older systems' shells read them: a command in one word is split, and leading
/// assignments set variables.
pub(crate) fn normalized(args: &ParsedArgs) -> Result<Vec<String>, Report> {
    let words = &args.command;
    if let [line] = &words[..]
        && line.trim().contains(char::is_whitespace)
        && fs::metadata(line).is_err()
    {
        return split_line(args, line);
    }
    let mut words = words.clone();
    if words.first().is_some_and(|word| is_assignment(word)) {
        words.insert(0, "env".to_owned());
    }
    Ok(words)
}

pub(crate) fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.is_some_and(|name| !name.is_empty() && name.chars().all(in_name))
}

/// Interpreters whose first argument is a script.
const SCRIPT_INTERPRETERS: [&str; 6] = ["python", "bash", "sh", "Rscript", "perl", "julia"];
/// Flags of interpreters that may precede the script.
const SWITCHES: [&str; 8] = ["-u", "-B", "-E", "-I", "-O", "-OO", "-s", "-S"];

/// Returns the program of a command if it is certainly a file: a path, the script of an interpreter, or, if `python` is true,
/// a Python script in front.
pub(crate) fn program_file(words: &[String], python: bool) -> Option<&str> {
    let mut words = words.iter().map(String::as_str);
    let mut first = words.next()?;
    if file_name(first) == "env" {
        first = words.find(|word| !is_assignment(word))?;
    }
    if SCRIPT_INTERPRETERS.contains(&unversioned(first)) {
        let script = words.find(|word| !SWITCHES.contains(word))?;
        return (!script.starts_with('-')).then_some(script);
    }
    let is_path = first.contains('/') || (python && first.ends_with(".py"));
    is_path.then_some(first)
}

/// Returns the script of a command, and the directory in which it looks for modules. `python` is true if the first word may be
/// a Python script.
pub(crate) fn script(words: &[String], python: bool) -> Option<(String, PathBuf)> {
    if let Some(program) = program_file(words, python) {
        let path = Path::new(program);
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let is_script = program.ends_with(".py") && path.is_file();
        return is_script.then(|| (program.to_owned(), dir.unwrap_or(Path::new(".")).to_owned()));
    }
    // `python -m package.module` looks for it in the current directory.
    let flag = words.iter().position(|word| word == "-m")?;
    let is_python = words[..flag].iter().any(|word| unversioned(word) == "python");
    let module = words.get(flag + 1).filter(|_| is_python)?;
    let top = module.split('.').next()?;
    let exists = Path::new(top).is_dir() || Path::new(&format!("{top}.py")).is_file();
    exists.then(|| (format!("python -m {module}"), PathBuf::from(".")))
}

/// Returns true if a program may exist in the task: on this machine, at an absolute path of nodes, among shipped files, or in
/// an archive or mount.
pub(crate) fn available_in_task(
    builder: &JobFileBuilder,
    args: &ParsedArgs,
    program: &str,
) -> bool {
    let relative = program.trim_start_matches("./");
    let top = relative.split('/').next().unwrap_or(relative);
    let sets_files = args.all("--set").any(|arg| arg.value.starts_with("files"));
    fs::metadata(program).is_ok()
        || program.starts_with('/')
        || program.contains(['$', ' '])
        || builder.has_file(top)
        || builder.has_unknown_files()
        || sets_files
}

/// Returns a command whose program, if it is a file in the current directory, has a path: dmlc-core found such a program first.
pub(crate) fn with_path(mut words: Vec<String>) -> Vec<String> {
    if let Some(program) = words.first_mut()
        && !program.contains('/')
        && Path::new(program).is_file()
    {
        program.insert_str(0, "./");
    }
    words
}

/// Ships files named in the command, and replaces their paths by those in a task's directory.
pub(crate) fn ship_files(builder: &mut JobFileBuilder, words: &[String]) -> Vec<String> {
    let mut rewritten = Vec::new();
    for word in words {
        let Ok(metadata) = fs::metadata(word) else {
            rewritten.push(word.clone());
            continue;
        };
        if metadata.is_dir() || is_interpreter(word) {
            rewritten.push(word.clone());
        } else {
            builder.file(word, None, Location::Whole);
            rewritten.push(format!("./{}", file_name(word)));
        }
    }
    rewritten
}

/// Adds notes about directories in the command that are not shipped.
pub(crate) fn note_directories(builder: &mut JobFileBuilder, words: &[String]) {
    for word in words.iter().filter(|word| Path::new(word).is_dir()) {
        let name = file_name(word);
        if !matches!(name, "." | "..") && !builder.has_file(name) {
            builder.notes.push(format!(
                "the directory `{word}` is not shipped; add `--files {}` to ship it",
                shell_quoted(word)
            ));
        }
    }
}

/// Returns true for the absolute path of an interpreter, which is one of the nodes.
pub(crate) fn is_interpreter(word: &str) -> bool {
    Path::new(word).is_absolute() && INTERPRETERS.contains(&unversioned(word))
}

/// Returns the name of a program without its version.
pub(crate) fn unversioned(word: &str) -> &str {
    file_name(word).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

/// Adds files given as `path`, `path#name`, or several paths separated by `#`.
pub(crate) fn add_files(builder: &mut JobFileBuilder, value: &str, at: &Location) {
    for (path, name) in named_files(value) {
        builder.file(path, name, at.clone());
    }
}

/// Parses files with their names in a task, if given.
pub(crate) fn named_files(value: &str) -> Vec<(&str, Option<&str>)> {
    let exists = |path: &str| path.contains("://") || Path::new(path).exists();
    let parts: Vec<_> = value.split('#').collect();
    match parts[..] {
        _ if exists(value) => vec![(value, None)],
        [path, name] if exists(path) && !exists(name) => vec![(path, Some(name))],
        _ => parts.iter().map(|path| (*path, None)).collect(),
    }
}
