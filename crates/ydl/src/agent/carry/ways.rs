//! The file systems an agent writes to, connected to when they are needed.

use crate::{
    hdfs::{self, Hdfs, HdfsError, Kind},
    jobs::JobDir,
};
use std::collections::BTreeMap;
use tokio::{sync::Mutex, time::Instant};
use yarn_native::{
    config::{Config, Environment},
    security::Identity,
};

/// More file systems than any sensible job writes to.
const WAYS_MAX: usize = 16;
/// The largest configuration that is read.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// Ways to file systems.
#[derive(Debug)]
pub(in crate::agent) struct Ways {
    job: JobDir,
    known: Mutex<BTreeMap<String, Hdfs>>,
}

impl Ways {
    pub(in crate::agent) fn new(job: JobDir) -> Ways {
        let known = Mutex::default();
        Ways { job, known }
    }

    /// The file system that a URL is in.
    pub(in crate::agent) async fn to(
        &self,
        url: &str,
        deadline: Instant,
    ) -> Result<Hdfs, HdfsError> {
        let root = match url.split_once("://") {
            Some((scheme, rest)) => {
                let authority = rest.split('/').next().unwrap_or_default();
                format!("{scheme}://{authority}")
            }
            None => return Err(bad(format!("`{url}` is not the URL of a file"))),
        };
        let mut known = self.known.lock().await;
        if let Some(hdfs) = known.get(&root) {
            return Ok(hdfs.clone());
        }
        let config = self.config()?;
        let identity = Identity::from_config(&config).map_err(|e| bad(e.to_string()))?;
        // `hdfs:///` is the default one, whichever that is.
        let named = (!root.ends_with("://")).then_some(root.as_str());
        let hdfs = Hdfs::connect(&config, named, &identity, deadline).await?;
        if known.len() < WAYS_MAX {
            known.insert(root, hdfs.clone());
        }
        Ok(hdfs)
    }

    /// The configuration that came with the job: the node's own may say something else.
    fn config(&self) -> Result<Config, HdfsError> {
        let file = self.job.path().join("hadoop.json");
        let cannot =
            |e: &dyn std::fmt::Display| bad(format!("cannot read `{}`: {e}", file.display()));
        let bytes = file.metadata().map_err(|e| cannot(&e))?.len();
        if bytes > CONFIG_BYTES_MAX {
            return Err(cannot(&"it is too large"));
        }
        let text = std::fs::read(&file).map_err(|e| cannot(&e))?;
        let pairs: BTreeMap<String, String> =
            serde_json::from_slice(&text).map_err(|e| cannot(&e))?;
        Ok(hdfs::config(&pairs, Environment::of_process()))
    }
}

fn bad(what: String) -> HdfsError {
    HdfsError {
        kind: Kind::BadInput,
        what,
        hint: None,
    }
}
