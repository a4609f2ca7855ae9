//! Lazily connected file systems.

use super::{
    connect::Hdfs,
    error::{HdfsError, Kind},
};
use std::collections::{BTreeMap, BTreeSet};
use tokio::{sync::Mutex, time::Instant};
use yarn_native::{config::Config, security::Identity};
use ydl_core::{JobSpec, spec::Environment};

/// Maximum number of cached file systems.
const FILE_SYSTEMS_MAX: usize = 16;

/// Lazily connected file systems. They belong to the runtime that first used them.
#[derive(Debug)]
pub struct FileSystems {
    config: Config,
    identity: Identity,
    known: Mutex<BTreeMap<String, Hdfs>>,
}

impl FileSystems {
    /// Creates the cache for a configuration and a user.
    pub fn new(config: Config, identity: Identity) -> FileSystems {
        FileSystems { config, identity, known: Mutex::default() }
    }

    /// Creates the cache for the user that the configuration names.
    pub fn of(config: Config) -> Result<FileSystems, HdfsError> {
        let identity = Identity::from_config(&config)
            .map_err(|error| HdfsError::new(Kind::BadInput, error.to_string()))?;
        Ok(FileSystems::new(config, identity))
    }

    /// Returns the file system of a URL.
    pub async fn to(&self, url: &str, deadline: Instant) -> Result<Hdfs, HdfsError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            let what = format!("`{url}` is not the URL of a file");
            return Err(HdfsError::new(Kind::BadInput, what));
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let root = format!("{scheme}://{authority}");
        let mut known = self.known.lock().await;
        if let Some(hdfs) = known.get(&root) {
            return Ok(hdfs.clone());
        }
        // `hdfs:///` is the default one, whichever that is.
        let named = (!authority.is_empty()).then_some(root.as_str());
        let hdfs = Hdfs::connect(&self.config, named, &self.identity, deadline).await?;
        if known.len() < FILE_SYSTEMS_MAX {
            known.insert(root, hdfs.clone());
        }
        Ok(hdfs)
    }
}

/// The path of a URL in HDFS, or the text itself.
pub fn url_path(url: &str) -> &str {
    match url.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => url,
    }
}

/// Returns all file systems that a job uses: of its staging directory, files, inputs, outputs and environment.
pub fn job_file_systems(spec: &JobSpec, staging: &str) -> Vec<String> {
    let mut all = BTreeSet::new();
    let mut add = |url: &str| {
        if let Some(rest) = url.strip_prefix("hdfs://") {
            let name = rest.split('/').next().unwrap_or_default();
            if !name.is_empty() {
                all.insert(format!("hdfs://{name}"));
            }
        }
    };
    add(staging);
    spec.cluster_options.file_systems.iter().for_each(|url| add(url));
    spec.files.iter().for_each(|file| add(&file.source));
    spec.inputs.iter().for_each(|input| add(&input.source));
    spec.outputs.iter().for_each(|output| add(&output.to));
    spec.cluster_options.checkpoint.iter().for_each(|url| add(url));
    match &spec.environment {
        Environment::Archive(url) => add(url),
        // They are on the submitter's machine, or fetched by the nodes as themselves.
        Environment::System
        | Environment::Directory(_)
        | Environment::Requirements(_)
        | Environment::Pex(_)
        | Environment::Image(_) => {}
    }
    all.into_iter().collect()
}
