//! Reads the files and the environment of a job.

use super::{
    fields::{Map, Reader, boolean, choice},
    image,
    tree::{Node, Value},
    units::Rejection,
};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};
use ydl_core::spec::{self, Environment, Interpreter, PackedEnvironment};
use ydl_os::reason;

/// Suffixes of archives that a NodeManager unpacks.
const ARCHIVES: [&str; 4] = [".tar.gz", ".tgz", ".tar", ".zip"];

/// Values of `interpreter`.
pub const INTERPRETERS: [(&str, Interpreter); 3] =
    [("auto", Interpreter::Auto), ("bundle", Interpreter::Bundle), ("node", Interpreter::Node)];

impl Reader {
    pub fn environment(&mut self, map: &Map, base: &str) -> Environment {
        let Some(node) = map.find("environment") else {
            return Environment::System;
        };
        let cluster = self.cluster;
        let read = |text: &str| environment(text, base, cluster);
        let Value::Map(_) = &node.value else {
            let read = self.value_of(node, "environment", read);
            return read.unwrap_or(Environment::System);
        };
        let map = self.map(node, "environment", "environment");
        if let Some(image) = self.image(node, &map) {
            return image;
        }
        let Some(path) = map.find("path") else {
            if !self.reported.iter().any(|key| key.starts_with("environment.")) {
                let what = "missing `path` or image";
                let hint = "set `path`, or an image: `{docker: registry/image:tag}`";
                self.reject(&node.at, "environment", what, hint);
            }
            return Environment::System;
        };
        let mut found = self.value_of(path, &map.key("path"), read);
        let interpreter = self.value(&map, "interpreter", choice(&INTERPRETERS));
        match (&mut found, interpreter) {
            (_, None) | (None, _) => {}
            (
                Some(
                    Environment::Directory(from)
                    | Environment::Requirements(from)
                    | Environment::Pex(from),
                ),
                Some(interpreter),
            ) => from.interpreter = interpreter,
            (
                Some(Environment::System | Environment::Archive(_) | Environment::Image(_)),
                Some(_),
            ) => {
                let what = "`interpreter` applies to packed environments only";
                self.reject(&node.at, &map.key("interpreter"), what, "remove it");
            }
        }
        found.unwrap_or(Environment::System)
    }

    pub fn files(&mut self, map: &Map, base: &str) -> Vec<spec::File> {
        let Some(node) = map.find("files") else {
            return Vec::new();
        };
        let mut files = Vec::new();
        if let Value::Map(entries) = &node.value {
            for (name, source) in entries {
                files.extend(self.named_file(&name.name, source, base));
            }
            return files;
        }
        for item in self.list(map, "files") {
            match &item.value {
                Value::Map(entries) => {
                    for (name, source) in entries {
                        files.extend(self.named_file(&name.name, source, base));
                    }
                }
                _ => files.extend(self.plain_file(item, base)),
            }
        }
        files
    }

    /// Reads `name: path`, or `name: {source: path, unpack: true}`.
    fn named_file(&mut self, name: &str, node: &Node, base: &str) -> Option<spec::File> {
        let cluster = self.cluster;
        let read = |path: &str| source_of(path, base, cluster);
        let Value::Map(_) = &node.value else {
            let source = self.value_of(node, "files", read)?;
            return Some(spec::File { name: name.to_string(), source, unpack: false });
        };
        let path = format!("files.{name}");
        let map = self.map(node, &path, "files.*");
        let Some(written) = map.find("source") else {
            if !self.reported.contains(&map.key("source")) {
                let what = "missing `source`";
                self.reject(&node.at, &path, what, "add the source");
            }
            return None;
        };
        let source = self.value_of(written, &map.key("source"), read);
        let unpack = self.value(&map, "unpack", boolean).unwrap_or(false);
        let source = source?;
        if unpack && !is_archive(&source) {
            let what = format!("`{}` is not a supported archive", last_of(&source));
            self.reject(&written.at, &map.key("unpack"), what, archives_hint());
        } else if unpack && !cluster {
            let what = "archives are unpacked on a cluster only";
            let hint = "unpack it, and use the directory";
            self.reject(&written.at, &map.key("unpack"), what, hint);
        }
        Some(spec::File { name: name.to_string(), source, unpack })
    }

    fn plain_file(&mut self, node: &Node, base: &str) -> Option<spec::File> {
        let cluster = self.cluster;
        self.value_of(node, "files", |path| {
            let source = source_of(path, base, cluster)?;
            match Path::new(path.trim_end_matches('/')).file_name() {
                Some(name) if name != ".." => Ok(spec::File {
                    name: name.to_string_lossy().into_owned(),
                    source,
                    unpack: false,
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
pub fn absolute(path: &str, base: &str) -> String {
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

fn is_url(text: &str) -> bool {
    text.contains("://")
}

fn is_archive(text: &str) -> bool {
    ARCHIVES.iter().any(|end| text.ends_with(end))
}

fn archives_hint() -> &'static str {
    "supported are `.tar.gz`, `.tgz`, `.tar` or `.zip`"
}

fn last_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Parses `hdfs://namenode/path`, or `hdfs:///path` on the default file system of the cluster.
pub fn hdfs_url(text: &str) -> Result<String, Rejection> {
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

/// Parses an environment given outside a job file, relative to the working directory.
pub fn named_environment(text: &str, interpreter: &str) -> Result<Environment, Rejection> {
    let here = std::env::current_dir().unwrap_or_default();
    let interpreter = choice(&INTERPRETERS)(interpreter)?;
    let mut found = environment(text, &here.to_string_lossy(), true)?;
    match &mut found {
        Environment::Directory(from) | Environment::Requirements(from) | Environment::Pex(from) => {
            from.interpreter = interpreter;
            Ok(found)
        }
        Environment::System | Environment::Archive(_) | Environment::Image(_) => Err((
            format!("`{text}` cannot be packed"),
            "use a virtual environment, a `requirements.txt`, a `pyproject.toml` or a `.pex`"
                .into(),
        )),
    }
}

/// Determines the type of an environment by its name and content.
fn environment(text: &str, base: &str, cluster: bool) -> Result<Environment, Rejection> {
    let packed = |path: String| PackedEnvironment { path, interpreter: Interpreter::Auto };
    let file = |text: &str| source_of(text, base, cluster).map(packed);
    if let Some(image) = image::named(text, cluster) {
        return image;
    }
    match text {
        "system" => Ok(Environment::System),
        _ if is_url(text) || is_archive(text) => archive(text, base, cluster),
        _ if text.ends_with(".txt") || last_of(text) == "pyproject.toml" => {
            file(text).map(Environment::Requirements)
        }
        _ if text.ends_with(".pex") => file(text).map(Environment::Pex),
        _ => directory_with_bin(text, base).map(packed).map(Environment::Directory),
    }
}

fn archive(text: &str, base: &str, cluster: bool) -> Result<Environment, Rejection> {
    if !cluster {
        let what = format!("archive `{text}` is supported on a cluster only");
        return Err((what, "unpack it, and use the directory that contains `bin`".into()));
    }
    if !is_archive(text) {
        let what = format!("`{text}` is not a supported archive");
        return Err((what, archives_hint().into()));
    }
    let source = source_of(text, base, cluster)?;
    if !is_url(&source) && Path::new(&source).is_dir() {
        let path = directory_with_bin(text, base)?;
        let interpreter = Interpreter::Auto;
        return Ok(Environment::Directory(PackedEnvironment { path, interpreter }));
    }
    Ok(Environment::Archive(source))
}

/// Checks that a virtual environment has an interpreter, and returns reason and hint if not. Without this check tasks
/// would silently run another interpreter.
fn interpreter(venv: &Path) -> Result<(), (String, &'static str)> {
    let create_again = "create it again, with an installed interpreter";
    let mut names = ["bin/python", "bin/python3"].into_iter();
    let is_there = |name: &&str| venv.join(name).symlink_metadata().is_ok();
    let Some(name) = names.find(is_there) else {
        return Err(("it has no `bin/python`".to_owned(), create_again));
    };
    let link = venv.join(name);
    fs::metadata(&link).map(drop).map_err(|error| {
        let leads = fs::read_link(&link).unwrap_or(link);
        let its = format!("its interpreter `{}`", leads.display());
        match error.kind() {
            io::ErrorKind::NotFound => (format!("{its} does not exist"), create_again),
            _ => (
                format!("{its} cannot be accessed: {}", reason(&error)),
                "ask its owner for access, or use another interpreter",
            ),
        }
    })
}

fn directory_with_bin(text: &str, base: &str) -> Result<String, Rejection> {
    let path = absolute(text.trim_end_matches('/'), base);
    let hint = "create one with `python3 -m venv venv`, or use `system`".to_string();
    let inside = Path::new(&path);
    match fs::metadata(&path) {
        Ok(found) if !found.is_dir() => {
            Err((format!("`{text}` is a file, not the directory of an environment"), hint))
        }
        Ok(_) if !inside.join("bin").is_dir() => {
            let mut lists = ["pyproject.toml", "requirements.txt"].into_iter();
            let list = lists.find(|name| inside.join(name).is_file());
            let text = text.trim_end_matches('/');
            Err((
                format!("`{text}` is not an environment: it has no `bin`"),
                list.map_or(hint, |name| {
                    format!("to build one from its requirements, use `{text}/{name}`")
                }),
            ))
        }
        Ok(_) if inside.join("pyvenv.cfg").is_file() => match interpreter(inside) {
            Ok(()) => Ok(path),
            Err((why, hint)) => Err((
                format!("the virtual environment `{text}` cannot be used: {why}"),
                hint.to_owned(),
            )),
        },
        Ok(_) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err((format!("`{text}` does not exist"), hint))
        }
        Err(error) => {
            Err((format!("`{text}` cannot be accessed: {}", reason(&error)), String::new()))
        }
    }
}

/// Parses the source of a file: a local path, which must be readable, or one in HDFS, which is checked at submit.
fn source_of(text: &str, base: &str, cluster: bool) -> Result<String, Rejection> {
    match text.split_once("://") {
        Some(("hdfs", _)) if cluster => return hdfs_url(text),
        Some((scheme, _)) if cluster => {
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
