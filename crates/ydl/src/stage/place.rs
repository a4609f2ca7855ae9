//! Where a user's jobs are kept.

use crate::{
    hdfs::{Hdfs, HdfsError, JobPlace, Layout, layout::PRIVATE},
    report::Report,
};
use tokio::time::Instant;
use yarn_native::{config::Config, security::Identity};

/// Where a user's jobs are kept.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file system.
    pub hdfs: Hdfs,
    /// The names in it.
    pub layout: Layout,
    /// The user's home directory, as a URL.
    pub home: String,
}

impl Place {
    /// The directory that `staging` names, or the one in the user's home directory.
    pub async fn find(
        config: &Config,
        identity: &Identity,
        staging: Option<&str>,
        deadline: Instant,
    ) -> Result<Place, HdfsError> {
        let elsewhere = staging.filter(|text| text.contains("://"));
        let hdfs = Hdfs::connect(config, elsewhere, identity, deadline).await?;
        let home = hdfs.home(deadline).await?;
        let layout = match staging {
            None => Layout::in_home(&home),
            Some(path) if path.contains("://") || path.starts_with('/') => {
                Layout::at(hdfs.url(path))
            }
            Some(path) => Layout::at(format!("{home}/{path}")),
        };
        Ok(Place { hdfs, layout, home })
    }

    /// A job's own directory.
    pub fn job(&self, id: &str) -> JobPlace {
        self.layout.job(id)
    }

    /// Whether the directory is there. One that others could put something into is refused.
    pub(super) async fn is_made(&self, deadline: Instant) -> Result<bool, Report> {
        let (hdfs, layout) = (&self.hdfs, &self.layout);
        let Some(entry) = hdfs.stat(layout.root(), deadline).await? else {
            return Ok(false);
        };
        let user = hdfs.user(deadline).await?;
        let why = if !entry.directory {
            "is not a directory".to_owned()
        } else if entry.owner != user {
            format!("belongs to `{}`, not to `{user}`", entry.owner)
        } else if entry.permission & 0o022 != 0 {
            format!("can be written by others ({:o})", entry.permission)
        } else {
            return Ok(true);
        };
        // Whoever can write there decides what the job's containers run.
        let what = format!("`{}` {why}", layout.root());
        let hint = "name another directory with `staging:`, or set its owner and permission right";
        Err(Report::bad_input(what).hint(hint))
    }

    /// Whether a job's files could be put there: makes the directory where there is none, writes a small file into it,
    /// reads it and removes it.
    pub async fn try_out(&self, deadline: Instant) -> Result<(), Report> {
        const WORDS: &[u8] = b"a job's files would be here";
        if !self.is_made(deadline).await? {
            self.make(deadline).await?;
        }
        let probe = self.layout.probe()?;
        self.hdfs
            .write_whole(&probe, WORDS, PRIVATE, deadline)
            .await?;
        let read = self.hdfs.read_whole(&probe, 1 << 10, deadline).await;
        self.hdfs.delete(&probe, deadline).await?;
        if &*read? != WORDS {
            let what = format!("`{probe}` was not read as it was written");
            return Err(Report::trouble(what));
        }
        Ok(())
    }

    /// Makes the directory, closed to everybody else.
    pub(super) async fn make(&self, deadline: Instant) -> Result<(), HdfsError> {
        let (hdfs, root) = (&self.hdfs, self.layout.root());
        hdfs.mkdirs(root, 0o700, deadline).await?;
        hdfs.set_permission(root, 0o700, deadline).await
    }
}
