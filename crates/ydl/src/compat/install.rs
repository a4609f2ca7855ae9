//! `ydl compat`: lists the command lines of older systems and installs them as commands.
//!
//! A command is a link to this program, which reads the name of its process. Commands that end in `.py` are also called as
//! `python launch.py`, so each of them is a small script for a shell and for Python 2 and 3.

use super::all;
use crate::{
    cli::{self, GlobalArgs},
    terminal,
};
use std::{
    env, fs,
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, symlink},
    path::Path,
};
use ydl_os::{
    reason,
    report::{Exit, Report},
};

/// Lists the command lines, or installs them as commands.
pub(crate) fn run(args: cli::CompatArgs, global: GlobalArgs) -> Result<Exit, Report> {
    let Some(dir) = args.install else {
        for command in all() {
            match global.json {
                true => {
                    terminal::print_json(
                        &serde_json::json!({ "names": command.names, "about": command.about }),
                    )?;
                }
                false => terminal::print(format!(
                    "{}\n    {}\n",
                    command.names.join(", "),
                    command.about
                ))?,
            }
        }
        return Ok(Exit::Success);
    };
    let failure = |what: &str, path: &Path, error: io::Error| {
        Report::internal(format!("cannot {what} `{}`: {}", path.display(), reason(&error)))
    };
    let own = env::current_exe().map_err(|error| {
        Report::internal(format!("cannot find the path of this program: {error}"))
    })?;
    // Check everything before creating anything.
    let mut missing = Vec::new();
    for name in all().flat_map(|command| command.names) {
        let path = dir.join(name);
        let script = match name.ends_with(".py") {
            true => Some(script(&own, name)?),
            false => None,
        };
        let is_link = fs::read_link(&path).is_ok_and(|target| target == own);
        let is_installed = match &script {
            None => is_link,
            Some(script) => fs::read_to_string(&path).is_ok_and(|text| text == *script),
        };
        if is_installed {
            continue;
        }
        // Keep other programs of that name.
        if !is_link && fs::symlink_metadata(&path).is_ok() {
            return Err(taken(&path));
        }
        missing.push((path, script, is_link));
    }
    fs::create_dir_all(&dir).map_err(|error| failure("create", &dir, error))?;
    for (path, script, is_link) in missing {
        let created = match script {
            None => symlink(&own, &path),
            // Earlier versions made a link of that name.
            Some(script) if is_link => {
                fs::remove_file(&path).and_then(|()| write_script(&path, &script))
            }
            Some(script) => write_script(&path, &script),
        };
        created.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => taken(&path),
            _ => failure("create", &path, error),
        })?;
        terminal::message(format!("{} -> {}", path.display(), own.display()));
    }
    Ok(Exit::Success)
}

fn taken(path: &Path) -> Report {
    let what = format!("`{}` exists already", path.display());
    Report::bad_input(what).hint("remove it, or choose another directory")
}

/// Builds a file that is both a shell script and a Python script.
fn script(own: &Path, name: &str) -> Result<String, Report> {
    let path = own.to_str().filter(|path| !path.contains(['\'', '"', '\\', '$', '`', '\n']));
    let path = path.ok_or_else(|| {
        let what = format!("path `{}` cannot be quoted in a script", own.display());
        Report::internal(what)
            .hint("install ydl at a path without quotes, `\\`, `$` and line breaks")
    })?;
    Ok(format!(
        "#!/bin/sh\n\
         # -*- coding: utf-8 -*-\n\
         '''exec' \"{path}\" {name} \"$@\"\n\
         '''\n\
         import os, sys\n\
         os.execv(\"{path}\", [\"ydl\", \"{name}\"] + sys.argv[1:])\n"
    ))
}

/// Creates an executable file.
fn write_script(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path)?;
    file.write_all(text.as_bytes())
}
