//! HDFS clients of an agent, connected on demand.

use std::sync::Arc;
use tokio::{sync::OnceCell, time::Instant};
use yarn_native::config::Environment;
use ydl_proto::{
    files::{HadoopConfig, JobDir},
    version::from_json,
};
use ydl_storage::{
    hdfs::{self, Hdfs, HdfsError, Kind},
    store::{LocalStore, Store, is_local},
};

/// Maximum size of the configuration.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// HDFS clients that use the configuration of the job: the node's own may differ.
#[derive(Debug)]
pub(in crate::agent) struct HdfsClients {
    job: JobDir,
    file_systems: OnceCell<hdfs::FileSystems>,
}

impl HdfsClients {
    pub(in crate::agent) fn new(job: JobDir) -> HdfsClients {
        let file_systems = OnceCell::new();
        HdfsClients { job, file_systems }
    }

    /// Creates a separate set of clients.
    pub(in crate::agent) fn fresh(&self) -> Result<hdfs::FileSystems, HdfsError> {
        file_systems_of_job(&self.job)
    }

    /// Returns a client for the file system of a URL.
    pub(in crate::agent) async fn to(
        &self,
        url: &str,
        deadline: Instant,
    ) -> Result<Hdfs, HdfsError> {
        let file_systems =
            self.file_systems.get_or_try_init(async || file_systems_of_job(&self.job));
        file_systems.await?.to(url, deadline).await
    }

    /// Returns the store of a path or URL. A path needs no configuration.
    pub(in crate::agent) async fn store(
        &self,
        place: &str,
        deadline: Instant,
    ) -> Result<Store, HdfsError> {
        match is_local(place) {
            true => Ok(Arc::new(LocalStore)),
            false => Ok(Arc::new(self.to(place, deadline).await?)),
        }
    }
}

/// Creates clients from the configuration of a job.
pub(in crate::agent) fn file_systems_of_job(job: &JobDir) -> Result<hdfs::FileSystems, HdfsError> {
    let file = job.hadoop_file();
    let cannot = |e: &dyn std::fmt::Display| HdfsError {
        kind: Kind::BadInput,
        what: format!("cannot read `{}`: {e}", file.display()),
        hint: None,
    };
    let bytes = file.metadata().map_err(|e| cannot(&e))?.len();
    if bytes > CONFIG_BYTES_MAX {
        return Err(cannot(&"it is too large"));
    }
    let text = std::fs::read(&file).map_err(|e| cannot(&e))?;
    let HadoopConfig { properties } = from_json(&text).map_err(|e| cannot(&e))?;
    hdfs::FileSystems::of(hdfs::config(&properties, Environment::of_process()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hadoop_configuration_of_another_version_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::at(dir.path());
        for (text, error) in [
            (r#"{"version":2}"#, "unsupported file version 2: this `ydl` reads version 1"),
            (r#"{"fs.defaultFS":"x"}"#, "the file has no version: this `ydl` reads version 1"),
        ] {
            std::fs::write(job.hadoop_file(), text).unwrap();
            let found = file_systems_of_job(&job).unwrap_err();
            assert_eq!(
                found.what,
                format!("cannot read `{}`: {error}", job.hadoop_file().display())
            );
        }
    }
}
