//! Files of one source: a file, a directory, or the matches of a pattern.

use super::{
    listing::ListedFile,
    pattern::{fits, is_pattern},
};
use crate::{
    hdfs::{Entry, FileSystems, Hdfs, HdfsError, url_path},
    store::hdfs_of,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};
use tokio::time::Instant;
use ydl_os::{reason, report::Report};

/// Maximum number of files and directories of one input.
const FILES_MAX: usize = 100_000;
/// Deeper than any sensible directory.
const DEPTH_MAX: usize = 64;

/// Error of a link that leads to itself.
const LOOP: i32 = rustix::io::Errno::LOOP.raw_os_error();

/// Files of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFiles {
    /// True if the source is a single file.
    pub single: bool,
    /// Its files, sorted by name.
    pub files: Vec<ListedFile>,
    /// True if the source exists, or the directory that a pattern searches.
    pub there: bool,
    /// Notes for the user, a sentence each.
    pub notes: Vec<String>,
}

/// File or directory found during the walk.
struct WalkEntry {
    /// Below the source's directory.
    name: String,
    place: String,
    directory: bool,
    bytes: u64,
    modified_ms: u64,
}

/// A file system as far as it is walked through.
enum SourceStore {
    Local,
    Hdfs(Hdfs, Instant),
}

/// Walks through a source: a path on this machine, or a URL, which needs `file_systems`. Nothing is there, nothing is
/// found.
pub async fn list_source(
    source: &str,
    file_systems: Option<&FileSystems>,
    deadline: Instant,
) -> Result<SourceFiles, Report> {
    let store = match hdfs_of(source, file_systems, deadline).await? {
        Some(hdfs) => SourceStore::Hdfs(hdfs, deadline),
        None => SourceStore::Local,
    };
    list_within(source, store, FILES_MAX, DEPTH_MAX).await
}

async fn list_within(
    source: &str,
    store: SourceStore,
    files_max: usize,
    depth_max: usize,
) -> Result<SourceFiles, Report> {
    let path = url_path(source);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let fixed = parts.iter().take_while(|part| !is_pattern(part)).count();
    let mut root = format!("/{}", parts[..fixed].join("/"));
    let mut links = Links::default();
    if let SourceStore::Local = store {
        // Resolve `..` so that file names do not contain it.
        if let (true, Ok(real)) = (root.contains("/.."), fs::canonicalize(&root)) {
            root = real.to_string_lossy().into_owned();
        }
        links.root = fs::canonicalize(&root).unwrap_or_default();
    }
    let Some(found) = store.stat(&root).await? else {
        return Ok(SourceFiles::default());
    };
    if fixed == parts.len() && !found.directory {
        let name = parts.last().copied().unwrap_or_default().to_owned();
        let files = vec![found.file(name)];
        return Ok(SourceFiles { single: true, files, there: true, notes: Vec::new() });
    }
    let mut level = vec![WalkEntry { name: String::new(), ..found }];
    for part in &parts[fixed..] {
        let mut next = Vec::new();
        for dir in level.into_iter().filter(|found| found.directory) {
            if is_pattern(part) {
                let inside = store.list(&dir, &mut links).await?.into_iter();
                next.extend(inside.filter(|found| fits(part.as_bytes(), found.last().as_bytes())));
            } else if let Some(found) = store.stat(&format!("{}/{part}", dir.place)).await? {
                let name = below(&dir.name, part);
                next.push(WalkEntry { name, ..found });
            }
        }
        level = next;
    }
    let mut files = Vec::new();
    let mut waiting: Vec<(WalkEntry, usize)> = level.into_iter().map(|found| (found, 0)).collect();
    // Directories count, too: links among them may lead round and round.
    let mut seen = 0;
    while let Some((found, depth)) = waiting.pop() {
        seen += 1;
        if seen > files_max {
            let what = format!("`{source}` has more than {files_max} files and directories");
            return Err(Report::bad_input(what).hint("pack them into fewer, larger ones"));
        }
        if !found.directory {
            let name = found.name.clone();
            files.push(found.file(name));
            continue;
        }
        if depth > depth_max {
            let what = format!("`{}` is nested too deep", found.place);
            let hint = "check for a link to a directory that contains it";
            return Err(Report::bad_input(what).hint(hint));
        }
        let inside = store.list(&found, &mut links).await?.into_iter();
        waiting.extend(inside.map(|found| (found, depth + 1)));
    }
    files.sort_by(|one, two| one.name.cmp(&two.name));
    Ok(SourceFiles { single: false, files, there: true, notes: links.notes(source) })
}

/// Symbolic links found during the walk.
#[derive(Default)]
struct Links {
    /// The source's directory, without links.
    root: PathBuf,
    outward: Vec<(PathBuf, PathBuf)>,
    dangling: Vec<PathBuf>,
}

impl Links {
    /// Looks at a link, if it is one. One that leads round is refused: there would be no end.
    fn look(&mut self, path: &Path) -> Result<(), Report> {
        let is_link = path.symlink_metadata().is_ok_and(|about| about.is_symlink());
        if !is_link {
            return Ok(());
        }
        let Ok(real) = path.canonicalize() else {
            // A link that leads to itself counts as dangling, too.
            self.dangling.push(path.to_owned());
            return Ok(());
        };
        let dir = path.parent().and_then(|dir| dir.canonicalize().ok());
        if dir.is_some_and(|dir| dir.starts_with(&real)) {
            let what = format!("`{}` is a link to a directory that contains it", path.display());
            return Err(
                Report::bad_input(what).hint("remove the link, or name the files that are needed")
            );
        }
        if !real.starts_with(&self.root) {
            self.outward.push((path.to_owned(), real));
        }
        Ok(())
    }

    fn notes(&self, source: &str) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some((link, real)) = self.outward.first() {
            let (link, real) = (link.display(), real.display());
            let more = more(self.outward.len());
            notes.push(format!(
                "`{link}`{more} is a link that leads out of `{source}`; what is there, at `{real}`, is taken along"
            ));
        }
        if let Some(link) = self.dangling.first() {
            let more = more(self.dangling.len());
            notes.push(format!(
                "`{}`{more} is a link that leads nowhere, and is left out",
                link.display()
            ));
        }
        notes
    }
}

/// Formats the number of further items.
fn more(all: usize) -> String {
    match all {
        0 | 1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    }
}

impl WalkEntry {
    fn last(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    fn file(self, name: String) -> ListedFile {
        ListedFile { name, url: self.place, bytes: self.bytes, modified_ms: self.modified_ms }
    }

    fn of(entry: Entry, dir: &str) -> WalkEntry {
        WalkEntry {
            name: below(dir, entry.name()),
            directory: entry.directory,
            bytes: entry.bytes,
            modified_ms: entry.modified_ms,
            place: entry.url,
        }
    }
}

fn below(dir: &str, name: &str) -> String {
    match dir {
        "" => name.to_owned(),
        _ => format!("{dir}/{name}"),
    }
}

impl SourceStore {
    async fn stat(&self, path: &str) -> Result<Option<WalkEntry>, Report> {
        match self {
            SourceStore::Hdfs(hdfs, deadline) => {
                let place = hdfs.url(url_path(path));
                let entry = hdfs.stat(&place, *deadline).await?;
                Ok(entry.map(|entry| WalkEntry { place, ..WalkEntry::of(entry, "") }))
            }
            SourceStore::Local => match look_at(Path::new(path)) {
                Ok(found) => Ok(Some(found)),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    Ok(None)
                }
                Err(error) => Err(unread(Path::new(path), &error)),
            },
        }
    }

    async fn list(&self, dir: &WalkEntry, links: &mut Links) -> Result<Vec<WalkEntry>, Report> {
        match self {
            SourceStore::Hdfs(hdfs, deadline) => {
                let entries: Result<_, HdfsError> = hdfs.list(&dir.place, *deadline).await;
                let entries = entries?.into_iter();
                Ok(entries.map(|entry| WalkEntry::of(entry, &dir.name)).collect())
            }
            SourceStore::Local => list(dir, links),
        }
    }
}

fn list(dir: &WalkEntry, links: &mut Links) -> Result<Vec<WalkEntry>, Report> {
    let path = Path::new(&dir.place);
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| unread(path, &error))? {
        let path = entry.map_err(|error| unread(path, &error))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            let what = format!("the name of `{}` is not UTF-8", path.display());
            return Err(Report::bad_input(what).hint("rename it"));
        };
        let name = below(&dir.name, name);
        links.look(&path)?;
        match look_at(&path) {
            Ok(one) => found.push(WalkEntry { name, ..one }),
            // Dangling links, sockets and pipes are not data.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.raw_os_error() == Some(LOOP) => {}
            Err(error) => return Err(unread(&path, &error)),
        }
    }
    Ok(found)
}

fn look_at(path: &Path) -> io::Result<WalkEntry> {
    let about = fs::metadata(path)?;
    if !about.is_dir() && !about.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    if about.is_file() {
        fs::File::open(path)?;
    }
    let modified = about.modified()?.duration_since(UNIX_EPOCH);
    Ok(WalkEntry {
        name: String::new(),
        place: PathBuf::from(path).to_string_lossy().into_owned(),
        directory: about.is_dir(),
        bytes: about.len(),
        modified_ms: modified.unwrap_or_default().as_millis() as u64,
    })
}

fn unread(path: &Path, error: &io::Error) -> Report {
    let what = format!("cannot read `{}`: {}", path.display(), reason(error));
    let report = Report::bad_input(what);
    match error.kind() {
        io::ErrorKind::PermissionDenied => report.hint("change its permissions, or leave it out"),
        _ => report,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_has_an_end_wherever_links_lead() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        for name in ["a/1", "a/2", "b"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let source = dir.path().to_string_lossy().into_owned();
        let within =
            |files, depth| runtime.block_on(list_within(&source, SourceStore::Local, files, depth));
        // Itself, a directory, three files.
        assert_eq!(within(5, 1).unwrap().files.len(), 3);
        let many = within(4, 1).unwrap_err();
        assert!(many.what.ends_with("has more than 4 files and directories"), "{many:?}");
        let deep = within(5, 0).unwrap_err();
        assert!(deep.what.ends_with("/a` is nested too deep"), "{deep:?}");
        std::os::unix::fs::symlink(".", dir.path().join("round")).unwrap();
        let round = within(1000, 8).unwrap_err();
        assert!(round.what.ends_with("round` is a link to a directory that contains it"));
        assert!(round.hint.is_some());
    }

    #[test]
    fn links_are_followed_and_those_that_lead_out_or_nowhere_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("in/a")).unwrap();
        fs::create_dir_all(at("out")).unwrap();
        for name in ["in/a/1", "out/2"] {
            fs::write(at(name), name).unwrap();
        }
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, at(name)).unwrap();
        link("a/1", "in/same");
        link("../out", "in/other");
        link("nowhere", "in/dangling");
        link("itself", "in/itself");
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let source = at("in").to_string_lossy().into_owned();
        let walked = list_within(&source, SourceStore::Local, 100, 8);
        let walked = runtime.unwrap().block_on(walked).unwrap();
        let names: Vec<_> = walked.files.iter().map(|file| &*file.name).collect();
        assert_eq!(names, ["a/1", "other/2", "same"]);
        let [outward, dangling] = &walked.notes[..] else {
            panic!("{:?}", walked.notes);
        };
        assert!(outward.contains("in/other` is a link that leads out of `"));
        assert!(dangling.contains("(and 1 more) is a link that leads nowhere"));
    }
}
