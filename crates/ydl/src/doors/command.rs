//! The program's words, and the files among them.

use super::sheet::{Sheet, last_of, quoted};
use crate::jobfile::Place;
use std::{fs, path::Path};

/// Programs that a node has itself: they are called by their place there and do not travel.
const INTERPRETERS: [&str; 9] = [
    "python", "bash", "sh", "java", "Rscript", "R", "perl", "julia", "env",
];

/// Ships the files of this machine among the words, and calls each by the name that it has in a task's directory.
pub fn shipped(sheet: &mut Sheet, words: &[String]) -> Vec<String> {
    let mut rewritten = Vec::new();
    for (number, word) in words.iter().enumerate() {
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
        } else if number == 0 && is_interpreter(word) {
            rewritten.push(word.clone());
        } else {
            sheet.file(word, None, Place::Whole);
            rewritten.push(format!("./{}", last_of(word)));
        }
    }
    rewritten
}

fn is_interpreter(word: &str) -> bool {
    let name = last_of(word);
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    Path::new(word).is_absolute() && INTERPRETERS.contains(&base)
}

/// Files that were named: `path`, `path#name`, or several with `#` between them.
pub fn files(sheet: &mut Sheet, value: &str, at: &Place) {
    let is_there = |path: &str| path.contains("://") || Path::new(path).exists();
    let parts: Vec<_> = value.split('#').collect();
    match parts[..] {
        _ if is_there(value) => sheet.file(value, None, at.clone()),
        [path, name] if is_there(path) && !is_there(name) => {
            sheet.file(path, Some(name), at.clone());
        }
        _ => parts
            .iter()
            .for_each(|path| sheet.file(path, None, at.clone())),
    }
}
