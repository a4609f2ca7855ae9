//! Optional start-up cache: a class data archive and a formatted file system, created once per version.
//!
//! A daemon spends most of its start loading, verifying and linking about ten thousand classes. A
//! class data sharing (CDS) archive saves a third of that time. A small cluster runs once to record
//! the list of classes. The same run leaves a formatted file system, which saves formatting one.

use crate::{
    cache, cluster::Cluster, error::Error, jars::Jars, java::Java, options::Options, tool,
    version::Version, watcher::Watcher,
};
use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const TIMEOUT: Duration = Duration::from_secs(300);

/// Version of the cache's content; part of the cache key.
const RECIPE: u32 = 1;

/// Use of the start-up cache by a cluster.
#[derive(Clone, Debug)]
pub(crate) enum WarmStart {
    /// Cold start.
    None,
    /// Start with the cache in this directory.
    Use(PathBuf),
    /// Cold start that records the loaded classes into this directory.
    Record(PathBuf),
}

fn location(jars: &Jars, java: &Java) -> (PathBuf, String) {
    let folder = jars.home.parent().unwrap_or(&jars.home).to_path_buf();
    let name = jars.home.file_name().unwrap_or_default().to_string_lossy();
    (folder, format!("{name}-start{RECIPE}-{}", java.build))
}

impl WarmStart {
    /// Returns the cache if it exists. Never creates it.
    pub(crate) fn find(jars: &Jars, java: &Java) -> WarmStart {
        let (folder, name) = location(jars, java);
        let entry = folder.join(name);
        if cache::is_complete(&entry) { WarmStart::Use(entry) } else { WarmStart::None }
    }

    /// Creates the cache if it is missing.
    pub(crate) fn make(version: Version, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let java = Java::find()?;
        let jars = Jars::fetch(version, progress)?;
        let (folder, name) = location(&jars, &java);
        cache::entry(&folder, &name, progress, |directory, progress| {
            progress("running a small cluster to record the classes it loads");
            record(version, directory, progress)?;
            progress("creating the class data archive");
            archive(&java, &jars, directory)
        })?;
        Ok(())
    }

    /// Returns the JVM flags for a program.
    pub(crate) fn flags(&self, name: &str) -> Vec<String> {
        match self {
            WarmStart::None => Vec::new(),
            WarmStart::Use(entry) => {
                let archive = entry.join("classes.jsa");
                // The JVM ignores an archive that does not match; the warning is suppressed.
                vec![format!("-XX:SharedArchiveFile={}", archive.display()), "-Xlog:disable".into()]
            }
            WarmStart::Record(directory) => {
                let list = directory.join(format!("{name}.classes"));
                vec![format!("-XX:DumpLoadedClassList={}", list.display())]
            }
        }
    }

    /// Returns the formatted file system, if there is one.
    pub(crate) fn file_system(&self) -> Option<PathBuf> {
        match self {
            WarmStart::Use(entry) => Some(entry.join("name")),
            WarmStart::None | WarmStart::Record(_) => None,
        }
    }
}

fn record(version: Version, directory: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let start = WarmStart::Record(directory.to_path_buf());
    let cluster = Cluster::start_with(Options::new(version), Some(start), progress)?;
    cluster.rm_admin(&["-getGroups"])?;
    // Java completes the list on a regular exit.
    for daemon in cluster.daemons() {
        cluster.stop(daemon)?;
    }
    Ok(())
}

fn archive(java: &Java, jars: &Jars, directory: &Path) -> Result<(), Error> {
    let mut seen = HashSet::new();
    let mut classes = String::new();
    for list in fs::read_dir(directory).map_err(Error::at("read", directory))? {
        let list = list.map_err(Error::at("read", directory))?.path();
        if list.extension().is_none_or(|ending| ending != "classes") {
            continue;
        }
        let text = fs::read_to_string(&list).map_err(Error::at("read", &list))?;
        for line in text.lines().filter(|line| seen.insert(line.to_string())) {
            classes += line;
            classes.push('\n');
        }
        fs::remove_file(&list).map_err(Error::at("remove", &list))?;
    }
    let list = directory.join("classes.list");
    fs::write(&list, classes).map_err(Error::at("write", &list))?;
    let mut command = java.command(1024);
    command
        .args(["-Xshare:dump", "-Xlog:disable", "-Xlog:all=error"])
        .arg(format!("-XX:SharedClassListFile={}", list.display()))
        .arg(format!("-XX:SharedArchiveFile={}", directory.join("classes.jsa").display()))
        .arg("-cp")
        .arg(jars.paths()?.join(":"));
    let _watcher = Watcher::guard(&mut command)?;
    tool::run_checked(&mut command, "", TIMEOUT).map(drop)
}
