//! What makes a cluster start sooner: prepared once per version, used where it is there.
//!
//! Most of a daemon's start is Java reading, checking and linking some ten thousand classes. An
//! archive of these classes, as they are in memory after that, saves a third of it. The classes are
//! found by running a small cluster once. The same run leaves an empty file system, which saves
//! formatting one.

use crate::{
    cache, cluster::Cluster, failure::Failure, jars::Jars, java::Java, options::Options, tool,
    version::Version, watcher::Watcher,
};
use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(300);

/// Change it when what is prepared changes.
const RECIPE: u32 = 1;

/// How a cluster of this kind begins.
#[derive(Clone, Debug)]
pub(crate) enum Headstart {
    /// From nothing.
    None,
    /// With what is in this directory.
    From(PathBuf),
    /// From nothing, writing down which classes are loaded, into this directory.
    Record(PathBuf),
}

fn place(jars: &Jars, java: &Java) -> (PathBuf, String) {
    let shelf = jars.home.parent().unwrap_or(&jars.home).to_path_buf();
    let name = jars.home.file_name().unwrap_or_default().to_string_lossy();
    (shelf, format!("{name}-start{RECIPE}-{}", java.build))
}

impl Headstart {
    /// What there is; looking costs nothing.
    pub(crate) fn find(jars: &Jars, java: &Java) -> Headstart {
        let (shelf, name) = place(jars, java);
        let entry = shelf.join(name);
        if cache::is_whole(&entry) { Headstart::From(entry) } else { Headstart::None }
    }

    /// Prepares it unless it is there.
    pub(crate) fn make(version: Version, progress: &mut dyn FnMut(&str)) -> Result<(), Failure> {
        let java = Java::find()?;
        let jars = Jars::fetch(version, progress)?;
        let (shelf, name) = place(&jars, &java);
        cache::entry(&shelf, &name, progress, |place, progress| {
            progress("running a small cluster to see which classes it needs");
            record(version, place, progress)?;
            progress("archiving these classes");
            archive(&java, &jars, place)
        })?;
        Ok(())
    }

    /// What Java is told.
    pub(crate) fn flags(&self, name: &str) -> Vec<String> {
        match self {
            Headstart::None => Vec::new(),
            Headstart::From(entry) => {
                let archive = entry.join("classes.jsa");
                // An archive that does not fit is passed over, and nobody need be warned.
                vec![format!("-XX:SharedArchiveFile={}", archive.display()), "-Xlog:disable".into()]
            }
            Headstart::Record(place) => {
                let list = place.join(format!("{name}.classes"));
                vec![format!("-XX:DumpLoadedClassList={}", list.display())]
            }
        }
    }

    /// The empty file system, if there is one.
    pub(crate) fn file_system(&self) -> Option<PathBuf> {
        match self {
            Headstart::From(entry) => Some(entry.join("name")),
            Headstart::None | Headstart::Record(_) => None,
        }
    }
}

fn record(version: Version, place: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), Failure> {
    let start = Headstart::Record(place.to_path_buf());
    let cluster = Cluster::start_from(Options::new(version), Some(start), progress)?;
    cluster.rm_admin(&["-getGroups"])?;
    // Java completes its list when it ends in order.
    for daemon in cluster.daemons() {
        cluster.stop(daemon)?;
    }
    Ok(())
}

fn archive(java: &Java, jars: &Jars, place: &Path) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    let mut classes = String::new();
    for list in fs::read_dir(place).map_err(Failure::at("read", place))? {
        let list = list.map_err(Failure::at("read", place))?.path();
        if list.extension().is_none_or(|ending| ending != "classes") {
            continue;
        }
        let text = fs::read_to_string(&list).map_err(Failure::at("read", &list))?;
        for line in text.lines().filter(|line| seen.insert(line.to_string())) {
            classes += line;
            classes.push('\n');
        }
        fs::remove_file(&list).map_err(Failure::at("remove", &list))?;
    }
    let list = place.join("classes.list");
    fs::write(&list, classes).map_err(Failure::at("write", &list))?;
    let mut command = java.command(1024);
    command
        .args(["-Xshare:dump", "-Xlog:disable", "-Xlog:all=error"])
        .arg(format!("-XX:SharedClassListFile={}", list.display()))
        .arg(format!("-XX:SharedArchiveFile={}", place.join("classes.jsa").display()))
        .arg("-cp")
        .arg(jars.paths()?.join(":"));
    let _watcher = Watcher::over(&mut command)?;
    tool::must(&mut command, "", PATIENCE).map(drop)
}
