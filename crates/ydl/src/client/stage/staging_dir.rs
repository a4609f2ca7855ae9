//! A user's staging directory.

use std::time::Duration;
use tokio::time::Instant;
use yarn_native::{config::Config, security::Identity};
use ydl_os::report::{Exit, Report};
use ydl_storage::hdfs::{Hdfs, HdfsError, JobLayout, Kind, StagingLayout, layout::PRIVATE};

/// Maximum time for a NameNode to answer when a DataNode does not.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// A user's staging directory.
#[derive(Clone, Debug)]
pub struct StagingDir {
    /// The file system.
    pub hdfs: Hdfs,
    /// The names in it.
    pub layout: StagingLayout,
    /// The user's home directory, as a URL.
    pub home: String,
}

impl StagingDir {
    /// The directory that `staging` names, or the one in the user's home directory.
    pub async fn find(
        config: &Config,
        identity: &Identity,
        staging: Option<&str>,
        deadline: Instant,
    ) -> Result<StagingDir, HdfsError> {
        let elsewhere = staging.filter(|text| text.contains("://"));
        let hdfs = Hdfs::connect(config, elsewhere, identity, deadline).await?;
        let home = hdfs.home(deadline).await?;
        let layout = match staging {
            None => StagingLayout::in_home(&home),
            Some(path) if path.contains("://") || path.starts_with('/') => {
                StagingLayout::at(hdfs.url(path))
            }
            Some(path) => StagingLayout::at(format!("{home}/{path}")),
        };
        Ok(StagingDir { hdfs, layout, home })
    }

    /// A job's own directory.
    pub fn job(&self, id: &str) -> JobLayout {
        self.layout.job(id)
    }

    /// Returns whether the directory is there. One that others could put something into is refused.
    pub(super) async fn exists(&self, deadline: Instant) -> Result<bool, Report> {
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
        // A user who can write there controls what the job's containers run.
        let what = format!("`{}` {why}", layout.root());
        let hint = "name another directory with `staging:`, or set its owner and permission right";
        Err(Report::bad_input(what).hint(hint))
    }

    /// Returns whether a job's files could be put there: makes the directory where there is none, writes a small file
    /// into it, reads it and removes it.
    pub async fn check_write(&self, deadline: Instant) -> Result<(), Report> {
        const PROBE_CONTENT: &[u8] = b"a job's files would be here";
        if !self.exists(deadline).await? {
            self.create(deadline).await?;
        }
        let probe = self.layout.probe()?;
        let written = self.hdfs.write_atomic(&probe, PROBE_CONTENT, PRIVATE, deadline).await;
        if let Err(error) = written {
            let why = self.explain(error).await;
            // The rest is an unused file; the write error explains more than the removal error.
            let _ = self.hdfs.delete(&probe, Instant::now() + LOOK_MAX).await;
            return Err(why);
        }
        let read = self.hdfs.read_file(&probe, 1 << 10, deadline).await;
        self.hdfs.delete(&probe, deadline.max(Instant::now() + LOOK_MAX)).await?;
        match read {
            Ok(read) if *read == *PROBE_CONTENT => Ok(()),
            Ok(_) => {
                let what = format!("`{probe}` was not read as it was written");
                Err(Report::internal(what))
            }
            Err(error) => Err(self.explain(error).await),
        }
    }

    /// Returns whether the directory is there, or could be made, which is tried beside it: nothing of that stays.
    pub async fn check_creatable(&self, deadline: Instant) -> Result<(), Report> {
        if self.exists(deadline).await? {
            return Ok(());
        }
        let mut above = self.layout.root();
        while let Some((parent, _)) = above.rsplit_once('/').filter(|(it, _)| !it.ends_with('/')) {
            above = parent;
            if self.hdfs.stat(above, deadline).await?.is_some() {
                break;
            }
        }
        let probe = StagingLayout::at(above).probe()?;
        self.hdfs.mkdirs(&probe, 0o700, deadline).await?;
        self.hdfs.delete(&probe, deadline).await?;
        Ok(())
    }

    /// Why bytes do not come or go. Where the NameNode still answers, it is the DataNodes who do not.
    async fn explain(&self, error: HdfsError) -> Report {
        let deadline_of_probe = Instant::now() + LOOK_MAX;
        let root = self.layout.root();
        let named = error.kind != Kind::Unreachable || error.what.contains("DataNode");
        if named || self.hdfs.stat(root, deadline_of_probe).await.is_err() {
            return error.into();
        }
        let what = format!("the NameNode of `{root}` answers, and no DataNode does");
        Report::new(Exit::Unreachable, what)
            .hint("they may have ended, or this machine may not connect to them: `hdfs dfsadmin -report` tells")
    }

    /// Makes the directory, accessible to its owner only.
    pub(super) async fn create(&self, deadline: Instant) -> Result<(), HdfsError> {
        let (hdfs, root) = (&self.hdfs, self.layout.root());
        hdfs.mkdirs(root, 0o700, deadline).await?;
        hdfs.set_permission(root, 0o700, deadline).await
    }
}
