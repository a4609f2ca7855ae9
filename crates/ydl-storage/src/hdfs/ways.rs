//! Lazily connected file systems.

use super::{
    connect::Hdfs,
    error::{HdfsError, Kind},
};
use std::collections::BTreeMap;
use tokio::{sync::Mutex, time::Instant};
use yarn_native::{config::Config, security::Identity};

/// Maximum number of cached file systems.
const WAYS_MAX: usize = 16;

/// Lazily connected file systems. They belong to the runtime that first used them.
#[derive(Debug)]
pub struct Ways {
    config: Config,
    identity: Identity,
    known: Mutex<BTreeMap<String, Hdfs>>,
}

impl Ways {
    /// Creates the cache for a configuration and a user.
    pub fn new(config: Config, identity: Identity) -> Ways {
        Ways { config, identity, known: Mutex::default() }
    }

    /// Creates the cache for the user that the configuration names.
    pub fn of(config: Config) -> Result<Ways, HdfsError> {
        let identity = Identity::from_config(&config)
            .map_err(|error| HdfsError::new(Kind::BadInput, error.to_string()))?;
        Ok(Ways::new(config, identity))
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
        if known.len() < WAYS_MAX {
            known.insert(root, hdfs.clone());
        }
        Ok(hdfs)
    }
}

/// The path of a URL in HDFS, or the text itself.
pub fn path_of(url: &str) -> &str {
    match url.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => url,
    }
}
