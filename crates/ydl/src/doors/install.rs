//! `ydl doors`: what doors there are, and links of their names.

use super::ALL;
use crate::{
    cli::{self, Manners},
    os::reason,
    report::{Exit, Report},
    show,
};
use std::{env, fs, io, os::unix::fs::symlink, path::Path};

/// Lists the doors, or makes links to this program.
pub fn run(args: cli::Doors, manners: Manners) -> Result<Exit, Report> {
    let Some(dir) = args.install else {
        for door in ALL {
            match manners.json {
                true => {
                    show::json(&serde_json::json!({ "names": door.names, "about": door.about }))?;
                }
                false => show::print(format!("{}\n    {}\n", door.names.join(", "), door.about))?,
            }
        }
        return Ok(Exit::Success);
    };
    let trouble = |what: &str, path: &Path, error: io::Error| {
        Report::trouble(format!(
            "cannot {what} `{}`: {}",
            path.display(),
            reason(&error)
        ))
    };
    let own = env::current_exe()
        .map_err(|error| Report::trouble(format!("cannot find this very program: {error}")))?;
    fs::create_dir_all(&dir).map_err(|error| trouble("make", &dir, error))?;
    for name in ALL.iter().flat_map(|door| door.names) {
        let link = dir.join(name);
        // Another's program of that name stays.
        if fs::read_link(&link).is_ok_and(|leads| leads == own) {
            continue;
        }
        symlink(&own, &link).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let what = format!("`{}` is there already", link.display());
                Report::bad_input(what).hint("remove it, or choose another directory")
            }
            _ => trouble("make", &link, error),
        })?;
        show::tell(format!("{} -> {}", link.display(), own.display()));
    }
    Ok(Exit::Success)
}
