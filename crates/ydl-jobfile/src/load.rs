//! Loads job files.

use super::{
    diagnostic::{Diagnostic, Diagnostics, Location},
    overrides,
    printer::print_tree,
    read,
    tree::{self, Node, Value},
};
use std::{
    env,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};
use ydl_core::JobSpec;
use ydl_os::reason;

/// Maximum size of a job file.
const BYTES_MAX: u64 = 1 << 20;

/// Source of a job: a file or flags, with overrides.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name of the file as given; empty without a file.
    file: String,
    /// Base of relative paths; absolute.
    base: PathBuf,
    /// Default name of the job.
    name: String,
    root: Node,
    diagnostics: Vec<Diagnostic>,
    cluster: bool,
    /// Notes for the user, if the job was translated from another format.
    notes: Option<Vec<String>>,
}

impl Source {
    /// Creates a job without a file: paths are relative to the working directory.
    pub fn of_flags(
        root: Node,
        name: String,
        diagnostics: Vec<Diagnostic>,
    ) -> Result<Source, Diagnostics> {
        Ok(Source {
            file: String::new(),
            base: working_directory()?,
            name,
            root,
            diagnostics,
            cluster: false,
            notes: None,
        })
    }

    /// Returns the tree.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// Replaces the tree by its translation, with notes and diagnostics.
    #[must_use]
    pub fn with_translation(
        mut self,
        root: Node,
        notes: Vec<String>,
        diagnostics: Vec<Diagnostic>,
    ) -> Source {
        self.root = root;
        self.notes = Some(notes);
        self.diagnostics.extend(diagnostics);
        self
    }

    /// Returns the notes of a translated job.
    pub fn notes(&self) -> &[String] {
        self.notes.as_deref().unwrap_or_default()
    }

    /// Renders the job file of a translated job.
    pub fn page(&self) -> Option<String> {
        let notes = self.notes.as_ref()?.iter();
        let notes: String = notes.map(|note| format!("# note: {note}\n")).collect();
        Some(format!("# {}\n{notes}{}", self.file, print_tree(&self.root)))
    }

    /// Allows what only a cluster supports.
    pub fn for_cluster(&mut self) {
        self.cluster = true;
    }

    /// Returns the base of relative paths.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Applies an override such as `roles.worker.instances=4`. [`Source::job`] returns its errors.
    pub fn set(&mut self, assignment: &str) {
        if let Err(diagnostic) = overrides::set(&mut self.root, assignment, &mut self.diagnostics) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Returns the job, or all diagnostics.
    pub fn job(self) -> Result<JobSpec, Diagnostics> {
        let Some(base) = self.base.to_str() else {
            let what = format!("the path `{}` is not UTF-8", self.base.display());
            return Err(Diagnostics::of_file(self.file, what, "move the job to another directory"));
        };
        let mut diagnostics = self.diagnostics;
        if self.notes.is_some() && !diagnostics.is_empty() {
            // Untranslated parts are missing in the tree: report them once.
            return Err(Diagnostics::new(self.file, diagnostics));
        }
        match read::job(&self.root, base, &self.name, self.cluster) {
            Ok(spec) if diagnostics.is_empty() => return Ok(spec),
            Ok(_) => {}
            Err(more) => diagnostics.extend(more),
        }
        Err(Diagnostics::new(self.file, diagnostics))
    }
}

/// Loads a job file; `-` is stdin.
pub fn load(path: &Path) -> Result<Source, Diagnostics> {
    let stdin = path == Path::new("-");
    let file = if stdin { "stdin".to_string() } else { path.display().to_string() };
    let unreadable = |what: String, hint: &str| Diagnostics::of_file(file.clone(), what, hint);
    let bytes = if stdin { read_limited(io::stdin().lock()) } else { read_file(path) };
    let bytes = bytes.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => unreadable(
            "no such file".into(),
            "`ydl submit -- COMMAND` runs a command without a job file",
        ),
        io::ErrorKind::IsADirectory => unreadable(
            "is a directory, not a job file".into(),
            "use a file in it, such as `job.yaml`",
        ),
        io::ErrorKind::FileTooLarge => unreadable(
            "larger than 1 MiB, the maximum of a job file".into(),
            "use a YAML file that describes the job",
        ),
        _ => unreadable(format!("the job file cannot be read: {}", reason(&error)), ""),
    })?;
    let text = text_of(bytes).map_err(|what| unreadable(what.into(), "a job file is YAML text"))?;
    let mut diagnostics = Vec::new();
    let location = |line, column| Location::File { line, column };
    let parsed = tree::parse(&text, location, &mut diagnostics);
    let is_map = matches!(&parsed, Ok(Some(Node { value: Value::Map(_), .. })));
    if !is_map && let Some(command) = command_of_program(path) {
        let hint = format!("`ydl submit -- {command}` runs it without a job file");
        return Err(unreadable("is a program, not a job file".into(), &hint));
    }
    let root = parsed
        .map_err(|diagnostic| Diagnostics::new(file.clone(), vec![diagnostic]))?
        .ok_or_else(|| {
            unreadable(
                "the job file is empty".into(),
                "the minimum is `roles: {worker: {run: COMMAND}}`",
            )
        })?;
    let here = working_directory()?;
    let base = match path.parent() {
        Some(parent) if !stdin => here.join(parent).components().collect(),
        _ => here,
    };
    let name = default_name(if stdin { None } else { path.file_stem() }, &base);
    Ok(Source { file, base, name, root, diagnostics, cluster: false, notes: None })
}

/// Returns the command that runs a program, if the file's name ends as one.
fn command_of_program(path: &Path) -> Option<String> {
    let interpreter = match path.extension()?.to_str()? {
        "py" => "python",
        "sh" => "sh",
        _ => return None,
    };
    Some(format!("{interpreter} {}", path.display()))
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    read_limited(file)
}

/// Reads up to the limit, whatever the length of the file.
fn read_limited(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

fn text_of(bytes: Vec<u8>) -> Result<String, &'static str> {
    if bytes.contains(&0) {
        return Err("is a binary file, not a job file");
    }
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8 text")?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text))
}

fn working_directory() -> Result<PathBuf, Diagnostics> {
    env::current_dir().map_err(|error| {
        Diagnostics::of_file(
            "",
            format!("the working directory cannot be found: {}", reason(&error)),
            "",
        )
    })
}

/// Derives a name from the file, or from its directory for `job.yaml`.
fn default_name(stem: Option<&std::ffi::OsStr>, base: &Path) -> String {
    let stem = stem.filter(|stem| *stem != "job").or(base.file_name());
    valid_name(&stem.map(|stem| stem.to_string_lossy()).unwrap_or_default())
}

/// Replaces characters that are not allowed in a name.
pub fn valid_name(text: &str) -> String {
    let replace = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }
    };
    let name: String = text.chars().map(replace).take(64).collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.is_empty() { "job".to_string() } else { name.to_string() }
}
