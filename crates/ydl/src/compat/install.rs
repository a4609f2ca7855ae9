//! `ydl compat`: what doors there are, and commands of their names.
//!
//! A command is a link to this program, whose name decides. What ends in `.py` is also called as `python launch.py`,
//! and a link to a program is no Python: so it is a small script, for a shell and for Python, old or new.

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

/// Lists the doors, or makes commands of their names.
pub fn run(args: cli::CompatArgs, global: GlobalArgs) -> Result<Exit, Report> {
    let Some(dir) = args.install else {
        for door in all() {
            match global.json {
                true => {
                    terminal::print_json(
                        &serde_json::json!({ "names": door.names, "about": door.about }),
                    )?;
                }
                false => {
                    terminal::print(format!("{}\n    {}\n", door.names.join(", "), door.about))?
                }
            }
        }
        return Ok(Exit::Success);
    };
    let trouble = |what: &str, path: &Path, error: io::Error| {
        Report::trouble(format!("cannot {what} `{}`: {}", path.display(), reason(&error)))
    };
    let own = env::current_exe()
        .map_err(|error| Report::trouble(format!("cannot find this very program: {error}")))?;
    // Everything is looked at before anything is made.
    let mut missing = Vec::new();
    for name in all().flat_map(|door| door.names) {
        let place = dir.join(name);
        let script = match name.ends_with(".py") {
            true => Some(script(&own, name)?),
            false => None,
        };
        let is_link = fs::read_link(&place).is_ok_and(|leads| leads == own);
        let is_ours = match &script {
            None => is_link,
            Some(script) => fs::read_to_string(&place).is_ok_and(|text| text == *script),
        };
        if is_ours {
            continue;
        }
        // Another's program of that name stays.
        if !is_link && fs::symlink_metadata(&place).is_ok() {
            return Err(taken(&place));
        }
        missing.push((place, script, is_link));
    }
    fs::create_dir_all(&dir).map_err(|error| trouble("make", &dir, error))?;
    for (place, script, is_link) in missing {
        let made = match script {
            None => symlink(&own, &place),
            // A link of ours of that name was made by an earlier version.
            Some(script) if is_link => {
                fs::remove_file(&place).and_then(|()| written(&place, &script))
            }
            Some(script) => written(&place, &script),
        };
        made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => taken(&place),
            _ => trouble("make", &place, error),
        })?;
        terminal::message(format!("{} -> {}", place.display(), own.display()));
    }
    Ok(Exit::Success)
}

fn taken(place: &Path) -> Report {
    let what = format!("`{}` is there already", place.display());
    Report::bad_input(what).hint("remove it, or choose another directory")
}

/// Builds a file that is both a shell script and a Python script.
fn script(own: &Path, name: &str) -> Result<String, Report> {
    let path = own.to_str().filter(|path| !path.contains(['\'', '"', '\\', '$', '`', '\n']));
    let path = path.ok_or_else(|| {
        let what = format!("`{}` cannot stand in a script", own.display());
        Report::trouble(what).hint("put ydl where its path has no quotes and no signs of a shell")
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

/// A new file that may be run.
fn written(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path)?;
    file.write_all(text.as_bytes())
}
