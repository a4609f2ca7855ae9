//! Program and files of a command of dmlc-core: shipped to a cluster, or used in place on this machine.

use super::{
    JobFileBuilder, caller::CallerEnv, dmlc::job_variable, neighbours, parser::ParsedArgs, program,
    python, text::file_name,
};
use std::path::Path;
use ydl_os::report::Report;

/// Returns the program's command. On this machine it runs in the current directory. On a cluster, ships the files that it
/// names and modules beside its script, unless `flag` disables that, and the active environment. `is_python` is true if the
/// first word may be a Python script.
pub(crate) fn command(
    builder: &mut JobFileBuilder,
    args: &ParsedArgs,
    caller: &CallerEnv,
    flag: &str,
    is_python: bool,
) -> Result<Vec<String>, Report> {
    if args.command.is_empty() {
        return Err(args
            .error("the command to run is missing")
            .hint(format!("write `{} … python train.py`", args.name)));
    }
    let arg = args.last(flag);
    let ship = match arg.map(|arg| arg.value.to_lowercase()).as_deref() {
        None | Some("1" | "true" | "yes" | "on") => true,
        Some("0" | "false" | "no" | "off") => false,
        Some(_) => {
            let written = arg.map_or(flag, |arg| arg.written.as_str());
            let what = format!("{written}: expected `true` or `false`");
            return Err(Report::bad_input(what));
        }
    };
    if builder.is_local() {
        run_here(builder, args);
    }
    let mut words = program::normalized(args)?;
    if builder.is_local() {
        words = program::with_path(words);
    }
    let words = python::ship_environment(builder, args, caller, words);
    if !ship {
        return Ok(words);
    }
    if let Some(program) = program::program_file(&words, is_python)
        && !program::available_in_task(builder, args, program)
    {
        let what = format!("program `{program}` not found on this machine");
        let hint = match builder.is_local() {
            true => "paths are relative to the current directory, in which tasks run",
            false => {
                "name a file on this machine, which is shipped, or the absolute path of a program on the nodes"
            }
        };
        return Err(args.error(what).hint(hint));
    }
    if builder.is_local() {
        return Ok(words);
    }
    let rewritten = program::ship_files(builder, &words);
    if let Some((script, dir)) = program::script(&words, is_python) {
        neighbours::ship(builder, &script, &dir, caller.variable("HOME"));
    }
    program::note_directories(builder, &words);
    Ok(rewritten)
}

/// Runs tasks as the older systems did on one machine: in the current directory, with no limits unless a flag sets some.
fn run_here(builder: &mut JobFileBuilder, args: &ParsedArgs) {
    builder.put_default(&["local", "directory"], ".");
    if !args.has("--resources") {
        builder.put_default(&["local", "oversubscribe"], true);
    }
}

/// Ships files, archives and a C++ library.
pub(crate) fn ship(builder: &mut JobFileBuilder, args: &ParsedArgs) {
    if builder.is_local() {
        return note_unshipped(builder, args);
    }
    for arg in args.all("--files") {
        program::add_files(builder, &arg.value, &arg.location());
    }
    let mut names = Vec::new();
    for arg in args.all("--archives") {
        names.push(file_name(&arg.value).to_owned());
        if let Err(what) = builder.archive(&arg.value, arg.location()) {
            builder.error(arg, what, "unpack it, and name the files with `--files`");
        }
    }
    if !names.is_empty() {
        job_variable(builder, "DMLC_JOB_ARCHIVES", &names.join(":"));
    }
    if let Some(arg) = args.last("--ship-libcxx") {
        let path = format!("{}/libstdc++.so.6", arg.value.trim_end_matches('/'));
        builder.file(&path, None, arg.location());
        builder.add_step("export LD_LIBRARY_PATH=.:$LD_LIBRARY_PATH".to_owned());
    }
}

/// Adds notes about files that tasks in the current directory do not find at the names that they have on a cluster.
fn note_unshipped(builder: &mut JobFileBuilder, args: &ParsedArgs) {
    let mut unshipped = Vec::new();
    for arg in args.all("--files") {
        for (path, name) in program::named_files(&arg.value) {
            let name = name.unwrap_or(file_name(path));
            if !Path::new(name).exists() {
                unshipped.push(("--files", name));
            }
        }
    }
    for flag in ["--archives", "--ship-libcxx"] {
        unshipped.extend(args.all(flag).map(|arg| (flag, arg.value.as_str())));
    }
    for (flag, value) in unshipped {
        builder.notes.push(format!(
            "`{flag} {value}` has no effect: on this machine tasks run in the current directory"
        ));
    }
}
