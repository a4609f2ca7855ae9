//! Python environment of a job on a cluster.

use super::{
    JobFileBuilder,
    caller::CallerEnv,
    parser::ParsedArgs,
    program::{is_assignment, is_interpreter, unversioned},
    text::file_name,
};
use std::{fs::File, io::Read, path::PathBuf};

/// Ships the active virtual environment, unless the command line selects another one or the program needs none. Returns the
/// command, in which programs of that environment have no path.
pub(crate) fn ship_environment(
    builder: &mut JobFileBuilder,
    args: &ParsedArgs,
    caller: &CallerEnv,
    words: Vec<String>,
) -> Vec<String> {
    let is_native = args.last("--native").is_some_and(|arg| arg.value != "python");
    let is_selected =
        args.has("--environment") || builder.get(&["environment"]).is_some() || args.has("--label");
    if builder.is_local() || is_native || is_selected {
        return words;
    }
    let active = caller.variable("VIRTUAL_ENV");
    let bin = active.map(|active| format!("{}/bin/", active.trim_end_matches('/')));
    let relative = |word: String| {
        let name = bin.as_deref().and_then(|bin| word.strip_prefix(bin));
        name.filter(|name| !name.contains('/')).map(str::to_owned).unwrap_or(word)
    };
    let words: Vec<_> = words.into_iter().map(relative).collect();
    match (active, python_use(&words, caller)) {
        (_, PythonUse::None) => {}
        (Some(active), _) => builder.put_default(&["environment"], active),
        (None, PythonUse::Certain) => builder.notes.push(
            "no virtual environment is active, so tasks use the `python` of their nodes; add `--environment ./venv` to ship one"
                .to_owned(),
        ),
        (None, PythonUse::Possible) => {}
    }
    words
}

/// Use of Python by a command.
enum PythonUse {
    None,
    /// By a script of another kind.
    Possible,
    Certain,
}

fn python_use(words: &[String], caller: &CallerEnv) -> PythonUse {
    let is_prefix = |word: &&String| file_name(word) == "env" || is_assignment(word);
    let Some(program) = words.iter().find(|word| !is_prefix(word)) else {
        return PythonUse::None;
    };
    // An absolute path is one of the nodes.
    if is_interpreter(program) {
        return PythonUse::None;
    }
    match unversioned(program) {
        "python" => PythonUse::Certain,
        "bash" | "sh" => PythonUse::Possible,
        _ if program.ends_with(".py") => PythonUse::Certain,
        _ if is_script(program, caller) => PythonUse::Possible,
        _ => PythonUse::None,
    }
}

/// Returns true if a program, found as a shell does, is a script.
fn is_script(program: &str, caller: &CallerEnv) -> bool {
    let path = caller.variable("PATH").unwrap_or_default();
    let candidates: Vec<PathBuf> = match program.contains('/') {
        true => vec![program.into()],
        false => path.split(':').map(|dir| PathBuf::from(dir).join(program)).collect(),
    };
    let found = candidates.iter().find(|path| path.is_file());
    let mut begin = [0; 2];
    let read = found.and_then(|path| File::open(path).ok()?.read_exact(&mut begin).ok());
    read.is_some() && &begin == b"#!"
}
