//! Files of a job: local ones to upload, and ones already in HDFS.

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
    /// Part of the environment, with its name in a container.
    Environment(String),
    /// Local file of the inputs, with its index among them.
    Input(usize),
}

/// Local file or directory to upload.
pub(super) struct StageItem {
    pub purpose: Purpose,
    pub extension: &'static str,
    pub unpack: bool,
    pub source: Arc<Source>,
}

/// Lists the local files to upload, and notes for the user.
pub(super) fn local_items(
    spec: &JobSpec,
    binary: &Path,
    inputs: &[PathBuf],
    progress: fn(String),
) -> Result<(Vec<StageItem>, Vec<String>), Report> {
    let mut notes = Vec::new();
    let mut items = vec![StageItem::new(Purpose::Binary, binary, false)?];
    for file in &spec.files {
        if !file.source.contains("://") {
            let purpose = Purpose::File(file.name.clone());
            let source = Source::of(Path::new(&file.source), &file.ignore)?;
            items.push(StageItem::from_source(purpose, &file.source, source, file.unpack)?);
        }
    }
    for (at, path) in inputs.iter().enumerate() {
        items.push(StageItem::new(Purpose::Input(at), path, false)?);
    }
    match &spec.environment {
        Environment::Archive(path) if !path.contains("://") => {
            let purpose = Purpose::Environment(ENVIRONMENT.to_owned());
            items.push(StageItem::new(purpose, Path::new(path), true)?);
        }
        Environment::System | Environment::Archive(_) | Environment::Image(_) => {}
        Environment::Directory(_) | Environment::Requirements(_) | Environment::Pex(_) => {
            let packed = pack::pack(&spec.environment, &Cache::of_user()?.with_progress(progress))?;
            for layer in &packed.layers {
                items.push(StageItem {
                    purpose: Purpose::Environment(format!("{ENVIRONMENT}/{}", layer.name)),
                    extension: "tar.gz",
                    // Unpacked by the agents, which is faster: see `agent::environment`.
                    unpack: false,
                    source: Arc::new(Source::of_layer(layer)?),
                });
            }
            notes.extend(packed.notes);
        }
    }
    for item in &items {
        if let Source::Directory(plan) = &*item.source {
            notes.extend_from_slice(plan.notes());
        }
    }
    Ok((items, notes))
}

impl StageItem {
    fn new(purpose: Purpose, path: &Path, unpack: bool) -> Result<StageItem, Report> {
        let source = Source::of(path, &[])?;
        StageItem::from_source(purpose, &path.to_string_lossy(), source, unpack)
    }

    fn from_source(
        purpose: Purpose,
        path: &str,
        source: Source,
        unpack: bool,
    ) -> Result<StageItem, Report> {
        let (extension, unpack) = match &source {
            Source::Directory(_) => ("tar", true),
            Source::File { .. } if unpack => (archive_extension(path)?, true),
            Source::File { .. } => ("file", false),
        };
        Ok(StageItem { purpose, extension, unpack, source: Arc::new(source) })
    }
}

/// Returns the extension of an archive, by which NodeManagers choose how to unpack it.
fn archive_extension(path: &str) -> Result<&'static str, Report> {
    let lower = path.to_lowercase();
    let matches = |extension: &&&str| lower.ends_with(&format!(".{extension}"));
    ARCHIVE_EXTENSIONS.iter().find(matches).copied().ok_or_else(|| {
        let what = format!("`{path}` is not an archive that nodes can unpack");
        Report::bad_input(what).hint("name a .tar.gz, .tgz, .tar, .zip or .jar file")
    })
}

/// Looks up the job's files that are already in HDFS.
pub(super) async fn remote_files(
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
            archive_extension(url)?;
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let hdfs = match systems.get(authority) {
            Some(hdfs) => hdfs.clone(),
            None => {
                let root = format!("{scheme}://{authority}");
                let root = (!authority.is_empty()).then_some(root.as_str());
                let hdfs = Hdfs::connect(request.config, root, request.identity, deadline).await?;
                systems.insert(authority.to_owned(), hdfs.clone());
                hdfs
            }
        };
        let Some(entry) = hdfs.stat(&hdfs.url(path), deadline).await? else {
            let what = format!("`{url}` does not exist, and the job file names it");
            return Err(Report::bad_input(what).hint("check `files` and `environment`"));
        };
        if entry.directory {
            let what = format!("`{url}` is a directory");
            let hint = "pack it into an archive and set `unpack: true`, or let the programs read it from HDFS themselves";
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
