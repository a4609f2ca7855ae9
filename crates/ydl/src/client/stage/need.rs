//! Files that a job needs: local ones to upload, and ones already in HDFS.

use super::{plan::StageRequest, source::Source};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::time::Instant;
use ydl_core::{JobSpec, spec::Environment};
use ydl_os::report::Report;
use ydl_pack::{self as pack, Cache, manifest::ENVIRONMENT};
use ydl_proto::files::StagedFile;
use ydl_storage::hdfs::{Entry, Hdfs};

/// Extensions of archives that NodeManagers can unpack.
const ARCHIVE_EXTENSIONS: [&str; 5] = ["tar.gz", "tgz", "tar", "zip", "jar"];

/// Purpose of a file in the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Binary,
    File(String),
    /// Part of the environment, by the name it has in a container.
    Environment(String),
    /// A file of its inputs, by its place among those of this machine.
    Input(usize),
}

pub(super) struct Need {
    pub purpose: Purpose,
    pub ending: &'static str,
    pub unpack: bool,
    pub source: Arc<Source>,
}

/// Lists the local files to upload, and notes for the user.
pub(super) fn needs(
    spec: &JobSpec,
    binary: &Path,
    inputs: &[PathBuf],
    progress: fn(String),
) -> Result<(Vec<Need>, Vec<String>), Report> {
    let mut notes = Vec::new();
    let mut needs = vec![Need::new(Purpose::Binary, binary, false)?];
    for file in &spec.files {
        if !file.source.contains("://") {
            let purpose = Purpose::File(file.name.clone());
            needs.push(Need::new(purpose, Path::new(&file.source), file.unpack)?);
        }
    }
    for (at, path) in inputs.iter().enumerate() {
        needs.push(Need::new(Purpose::Input(at), path, false)?);
    }
    match &spec.environment {
        Environment::Archive(path) if !path.contains("://") => {
            let purpose = Purpose::Environment(ENVIRONMENT.to_owned());
            needs.push(Need::new(purpose, Path::new(path), true)?);
        }
        Environment::System | Environment::Archive(_) | Environment::Image(_) => {}
        Environment::Directory(_) | Environment::Requirements(_) | Environment::Pex(_) => {
            let packed = pack::pack(&spec.environment, &Cache::of_user()?.with_progress(progress))?;
            for layer in &packed.layers {
                needs.push(Need {
                    purpose: Purpose::Environment(format!("{ENVIRONMENT}/{}", layer.name)),
                    ending: "tar.gz",
                    // By the agents, sooner than a node would: see `agent::environment`.
                    unpack: false,
                    source: Arc::new(Source::packed(layer)?),
                });
            }
            notes.extend(packed.notes);
        }
    }
    for need in &needs {
        if let Source::Directory(plan) = &*need.source {
            notes.extend_from_slice(plan.notes());
        }
    }
    Ok((needs, notes))
}

impl Need {
    fn new(purpose: Purpose, path: &Path, unpack: bool) -> Result<Need, Report> {
        let source = Source::of(path)?;
        let (ending, unpack) = match &source {
            Source::Directory(_) => ("tar", true),
            Source::File { .. } if unpack => (archive(&path.to_string_lossy())?, true),
            Source::File { .. } => ("file", false),
        };
        Ok(Need { purpose, ending, unpack, source: Arc::new(source) })
    }
}

/// The ending by which a NodeManager knows how to unpack a file.
fn archive(path: &str) -> Result<&'static str, Report> {
    let lower = path.to_lowercase();
    let matches = |ending: &&&str| lower.ends_with(&format!(".{ending}"));
    ARCHIVE_EXTENSIONS.iter().find(matches).copied().ok_or_else(|| {
        let what = format!("`{path}` is not an archive that nodes can unpack");
        Report::bad_input(what).hint("name a .tar.gz, .tgz, .tar, .zip or .jar file")
    })
}

/// Looks up files already in HDFS, which stay in place.
pub(super) async fn remote(
    request: &StageRequest<'_>,
    deadline: Instant,
) -> Result<Vec<(Purpose, StagedFile)>, Report> {
    let spec = request.spec;
    let files = spec.files.iter().map(|file| {
        let purpose = Purpose::File(file.name.clone());
        (purpose, &file.source, file.unpack)
    });
    let environment = match &spec.environment {
        Environment::Archive(path) => Some(path),
        Environment::System
        | Environment::Directory(_)
        | Environment::Requirements(_)
        | Environment::Pex(_)
        | Environment::Image(_) => None,
    };
    let purpose = Purpose::Environment(ENVIRONMENT.to_owned());
    let environment = environment.map(|path| (purpose, path, true));
    let mut contents = Vec::new();
    let mut systems: BTreeMap<String, Hdfs> = BTreeMap::new();
    for (purpose, url, unpack) in files.chain(environment) {
        let Some((scheme, rest)) = url.split_once("://") else {
            continue;
        };
        if unpack {
            archive(url)?;
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let hdfs = match systems.get(authority) {
            Some(hdfs) => hdfs.clone(),
            None => {
                let named = format!("{scheme}://{authority}");
                let named = (!authority.is_empty()).then_some(named.as_str());
                let hdfs = Hdfs::connect(request.config, named, request.identity, deadline).await?;
                systems.insert(authority.to_owned(), hdfs.clone());
                hdfs
            }
        };
        let whole = hdfs.url(path);
        let Some(entry) = hdfs.stat(&whole, deadline).await? else {
            let what = format!("there is no `{url}`, which the job file names");
            return Err(Report::bad_input(what));
        };
        if entry.directory {
            let what = format!("`{url}` is a directory");
            let hint = "pack it into an archive and say `unpack: true`, or let the programs read it from HDFS themselves";
            return Err(Report::bad_input(what).hint(hint));
        }
        contents.push((purpose, content(&entry, unpack)));
    }
    Ok(contents)
}

pub(super) fn content(entry: &Entry, unpack: bool) -> StagedFile {
    StagedFile {
        url: entry.url.clone(),
        bytes: entry.bytes,
        modified_ms: entry.modified_ms,
        unpack,
        own: false,
    }
}
