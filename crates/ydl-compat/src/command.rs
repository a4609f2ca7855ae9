//! The program's words, and the files among them.

use super::{
    flags::Typed,
    sheet::{Sheet, last_of, quoted},
};
use std::{fs, path::Path};
use ydl_jobfile::{Location, words as words_of};
use ydl_os::report::Report;

/// Programs that a node has itself: they are called by their place there and do not travel.
const INTERPRETERS: [&str; 9] =
    ["python", "bash", "sh", "java", "Rscript", "R", "perl", "julia", "env"];

/// A line of a shell in words. What only a shell understands is left to one, which gets further arguments behind it.
pub fn split(typed: &Typed, line: &str) -> Result<Vec<String>, Report> {
    match words_of(line) {
        Ok(words) => Ok(words),
        // Without a remedy it is a line that no shell takes, either.
        Err((what, hint)) if hint.is_empty() => Err(typed.wrong(what)),
        Err(_) => {
            let script = format!("{line} \"$@\"");
            let shell = ["/bin/bash", "-c", &script, &typed.door];
            Ok(shell.map(str::to_owned).to_vec())
        }
    }
}

/// The words of a command as they were meant where all of them were one line in the end: a command in one word is a line, and
/// assignments in front of a program are variables of it.
pub fn meant(typed: &Typed) -> Result<Vec<String>, Report> {
    let words = &typed.command;
    if let [line] = &words[..]
        && line.trim().contains(char::is_whitespace)
        && fs::metadata(line).is_err()
    {
        return split(typed, line);
    }
    let mut words = words.clone();
    if words.first().is_some_and(|word| assigns(word)) {
        words.insert(0, "env".to_owned());
    }
    Ok(words)
}

fn assigns(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.is_some_and(|name| !name.is_empty() && name.chars().all(letter))
}

/// Interpreters that are given a script.
const OF_SCRIPTS: [&str; 6] = ["python", "bash", "sh", "Rscript", "perl", "julia"];
/// Flags of theirs behind which it still follows.
const SWITCHES: [&str; 8] = ["-u", "-B", "-E", "-I", "-O", "-OO", "-s", "-S"];

/// The program among the words, where it is surely a file: what an interpreter is given, a path, or, in front, a script of
/// Python's where `python` says so.
pub fn program(words: &[String], python: bool) -> Option<&str> {
    let mut words = words.iter().map(String::as_str);
    let mut first = words.next()?;
    if last_of(first) == "env" {
        first = words.find(|word| !assigns(word))?;
    }
    if OF_SCRIPTS.contains(&base_of(first)) {
        let script = words.find(|word| !SWITCHES.contains(word))?;
        return (!script.starts_with('-')).then_some(script);
    }
    let is_path = first.contains('/') || (python && first.ends_with(".py"));
    is_path.then_some(first)
}

/// Returns true if a program will exist in the task: here, and so it travels; on every node, by its whole path; among
/// what travels; or perhaps in what is unpacked or mounted there.
pub fn will_be_there(sheet: &Sheet, typed: &Typed, program: &str) -> bool {
    let near = program.trim_start_matches("./");
    let top = near.split('/').next().unwrap_or(near);
    let more = typed.all("--set").any(|said| said.value.starts_with("files"));
    fs::metadata(program).is_ok()
        || program.starts_with('/')
        || program.contains(['$', ' '])
        || sheet.has_file(top)
        || sheet.unpacks()
        || more
}

/// Ships the files of this machine among the words, and calls each by the name that it has in a task's directory.
pub fn shipped(sheet: &mut Sheet, words: &[String]) -> Vec<String> {
    let mut rewritten = Vec::new();
    for word in words {
        let Ok(found) = fs::metadata(word) else {
            rewritten.push(word.clone());
            continue;
        };
        if found.is_dir() {
            if !matches!(last_of(word), "." | "..") {
                let note = format!(
                    "the directory `{word}` stays here; `--files {}` takes it along",
                    quoted(word)
                );
                sheet.notes.push(note);
            }
            rewritten.push(word.clone());
        } else if is_interpreter(word) {
            rewritten.push(word.clone());
        } else {
            sheet.file(word, None, Location::Whole);
            rewritten.push(format!("./{}", last_of(word)));
        }
    }
    rewritten
}

fn is_interpreter(word: &str) -> bool {
    Path::new(word).is_absolute() && INTERPRETERS.contains(&base_of(word))
}

/// A program's name without its version.
fn base_of(word: &str) -> &str {
    last_of(word).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

/// Files that were named: `path`, `path#name`, or several with `#` between them.
pub fn files(sheet: &mut Sheet, value: &str, at: &Location) {
    let is_there = |path: &str| path.contains("://") || Path::new(path).exists();
    let parts: Vec<_> = value.split('#').collect();
    match parts[..] {
        _ if is_there(value) => sheet.file(value, None, at.clone()),
        [path, name] if is_there(path) && !is_there(name) => {
            sheet.file(path, Some(name), at.clone());
        }
        _ => parts.iter().for_each(|path| sheet.file(path, None, at.clone())),
    }
}
