//! Reads and prints the files of a job.

use super::{
    fields::{Map, Reader},
    formats::{Context, Scalar, text_of},
    keys::FILE,
    printer::{YamlValue, text},
    tree::{Node, Value},
    units::Rejection,
};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};
use ydl_core::{JobSpecBuilder, spec};
use ydl_os::reason;

/// Suffixes of archives that a NodeManager unpacks.
const ARCHIVES: [&str; 4] = [".tar.gz", ".tgz", ".tar", ".zip"];

/// Directory of this machine in which programs run.
pub(crate) const DIRECTORY: Scalar<String> =
    Scalar { python: "PathLike", ..text_of("path", directory_of) };
/// Source of a file.
pub(crate) const FILE_SOURCE: Scalar<String> = text_of("path", source_of);

impl Reader {
    pub(crate) fn files(&mut self, map: &Map, job: &mut JobSpecBuilder) {
        let Some(node) = map.find("files") else {
            return;
        };
        if let Value::Map(_) = &node.value {
            return self.named_files(node, job);
        }
        for item in self.list(node, "files") {
            match &item.value {
                Value::Map(_) => self.named_files(item, job),
                _ => job.files.extend(self.plain_file(item)),
            }
        }
    }

    fn named_files(&mut self, node: &Node, job: &mut JobSpecBuilder) {
        for (name, source) in self.entries(node, "files") {
            job.files.extend(self.named_file(&name.name, source));
        }
    }

    /// Reads `name: path`, or `name: {source: path, unpack: true, ignore: […]}`.
    fn named_file(&mut self, name: &str, node: &Node) -> Option<spec::File> {
        let mut file = spec::File { name: name.to_string(), ..spec::File::default() };
        let Value::Map(_) = &node.value else {
            file.source = FILE_SOURCE.value(self, node, "files")?;
            return Some(file);
        };
        let path = format!("files.{name}");
        let map = self.map(node, &path, FILE.path());
        let Some(written) = map.find("source") else {
            if !self.reported.contains(&map.key("source")) {
                let what = "missing `source`";
                self.reject(&node.at, &path, what, "add the source");
            }
            return None;
        };
        self.section(&map, &FILE, &mut file);
        if self.reported.contains(&map.key("source")) {
            return None;
        }
        if file.unpack && !is_archive(&file.source) {
            let what = format!("`{}` is not a supported archive", last_of(&file.source));
            self.reject(&written.at, &map.key("unpack"), what, archives_hint());
        } else if file.unpack && !self.context.cluster {
            let what = "archives are unpacked on a cluster only";
            let hint = "unpack it, and use the directory";
            self.reject(&written.at, &map.key("unpack"), what, hint);
        } else if !file.ignore.is_empty()
            && (is_url(&file.source) || !Path::new(&file.source).is_dir())
        {
            let what = format!("`{}` is not a directory", last_of(&file.source));
            self.reject(&written.at, &map.key("ignore"), what, "leave it out");
        }
        Some(file)
    }

    fn plain_file(&mut self, node: &Node) -> Option<spec::File> {
        let context = self.context.clone();
        self.value_of(node, "files", |path| {
            let source = source_of(path, &context)?;
            match Path::new(path.trim_end_matches('/')).file_name() {
                Some(name) if name != ".." => Ok(spec::File {
                    name: name.to_string_lossy().into_owned(),
                    source,
                    ..spec::File::default()
                }),
                _ => {
                    let what = format!("`{path}` has no file name");
                    Err((what, format!("set a name: `files: [{{data: {path}}}]`")))
                }
            }
        })
    }
}

/// Resolves a path against `base`, without `./`. A trailing slash is kept: it has a meaning in outputs.
pub(crate) fn absolute(path: &str, base: &str) -> String {
    if path.is_empty() {
        return String::new();
    }
    let joined = PathBuf::from(base).join(path);
    let mut text = joined.components().collect::<PathBuf>().to_string_lossy().into_owned();
    if path.ends_with('/') && !text.ends_with('/') {
        text.push('/');
    }
    text
}

pub(crate) fn is_url(text: &str) -> bool {
    text.contains("://")
}

pub(crate) fn is_archive(text: &str) -> bool {
    ARCHIVES.iter().any(|end| text.ends_with(end))
}

pub(crate) fn archives_hint() -> &'static str {
    "supported are `.tar.gz`, `.tgz`, `.tar` or `.zip`"
}

pub(crate) fn last_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Parses `hdfs://namenode/path`, or `hdfs:///path` on the default file system of the cluster.
pub(crate) fn hdfs_url(text: &str) -> Result<String, Rejection> {
    let path = text.strip_prefix("hdfs://").and_then(|rest| rest.find('/').map(|at| &rest[at..]));
    match path {
        Some(path) if path.split('/').any(|part| part == "..") => {
            Err((format!("`{text}` contains `..`"), String::new()))
        }
        Some(_) => Ok(text.to_string()),
        None => Err((
            format!("`{text}` is not a path in HDFS"),
            "write it as `hdfs:///user/me/data` or `hdfs://namenode:8020/user/me/data`".into(),
        )),
    }
}

/// Parses the source of a file: a local path, which must be readable, or one in HDFS, which is checked at submit.
pub(crate) fn source_of(text: &str, context: &Context) -> Result<String, Rejection> {
    let Context { base, cluster } = context;
    match text.split_once("://") {
        Some(("hdfs", _)) if *cluster => return hdfs_url(text),
        Some((scheme, _)) if *cluster => {
            let what = format!("files from `{scheme}://` are not supported");
            return Err((what, "use a local path, or one in HDFS".to_string()));
        }
        Some((scheme, _)) => {
            let what = format!("files from `{scheme}://` are not supported on one machine");
            return Err((what, "copy it to this machine first".to_string()));
        }
        None => {}
    }
    let path = absolute(text.trim_end_matches('/'), base);
    let seen_from = || format!("paths are relative to `{base}`");
    let cannot =
        |error: io::Error| (format!("`{text}` cannot be read: {}", reason(&error)), String::new());
    let found = match fs::metadata(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let hint = if Path::new(text).is_absolute() { String::new() } else { seen_from() };
            return Err((format!("`{text}` does not exist"), hint));
        }
        Err(error) => return Err(cannot(error)),
    };
    if found.is_dir() {
        fs::read_dir(&path).map_err(cannot)?;
    } else if found.is_file() {
        File::open(&path).map_err(cannot)?;
        if text.ends_with('/') {
            return Err((format!("`{text}` is a file, not a directory"), String::new()));
        }
    } else {
        return Err((format!("`{text}` is neither a file nor a directory"), String::new()));
    }
    Ok(path)
}

/// Parses a directory for programs. On a cluster it is not used, and may not exist.
fn directory_of(text: &str, context: &Context) -> Result<String, Rejection> {
    let path = absolute(text, &context.base);
    match fs::metadata(&path) {
        Ok(found) if found.is_dir() => Ok(path),
        _ if context.cluster => Ok(path),
        Ok(_) => Err((format!("`{text}` is not a directory"), String::new())),
        Err(error) => Err((format!("`{text}` cannot be used: {}", reason(&error)), String::new())),
    }
}

/// Prints all files.
pub(crate) fn print(job: &JobSpecBuilder) -> YamlValue {
    let item = |file: &spec::File| {
        let (name, source) = (text(&file.name), text(&file.source));
        let ignore: Vec<_> = file.ignore.iter().map(|pattern| text(pattern)).collect();
        match (file.unpack, last_of(&file.source) == file.name) {
            (true, _) => format!("{name}: {{source: {source}, unpack: true}}"),
            _ if !ignore.is_empty() => {
                format!("{name}: {{source: {source}, ignore: [{}]}}", ignore.join(", "))
            }
            (false, true) => source,
            (false, false) => format!("{name}: {source}"),
        }
    };
    YamlValue::Items(job.files.iter().map(item).collect())
}
