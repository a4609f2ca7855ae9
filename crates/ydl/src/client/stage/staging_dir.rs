//! A user's staging directory.

use std::time::Duration;
use tokio::time::Instant;
use yarn_native::{config::Config, security::Identity};
use ydl_os::report::{Exit, Report};
use ydl_storage::hdfs::{Hdfs, HdfsError, JobLayout, Kind, StagingLayout, layout::PRIVATE};

/// Maximum time for a NameNode to respond after a failed write.
const PROBE_MAX: Duration = Duration::from_secs(10);

/// A user's staging directory.
#[derive(Clone, Debug)]
pub struct StagingDir {
    /// File system.
    pub hdfs: Hdfs,
    /// Paths in the directory.
    pub layout: StagingLayout,
    /// Home directory of the user, as a URL.
    pub home: String,
}

impl StagingDir {
    /// Returns the directory named by `staging`, or the default one in the user's home directory.
    pub async fn find(
        config: &Config,
        identity: &Identity,
        staging: Option<&str>,
        deadline: Instant,
    ) -> Result<StagingDir, HdfsError> {
        let url = staging.filter(|text| text.contains("://"));
        let hdfs = Hdfs::connect(config, url, identity, deadline).await?;
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

    /// Returns the paths of a job's files.
    pub fn job(&self, id: &str) -> JobLayout {
        self.layout.job(id)
    }

    /// Returns whether the directory exists. Fails if another user can write to it.
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
            format!("is writable by other users ({:o})", entry.permission)
        } else {
            return Ok(true);
        };
        // A user who can write there controls what the job's containers run.
        let what = format!("`{}` {why}", layout.root());
        let hint = "name another directory with `staging:`, or correct its owner and permissions";
        Err(Report::bad_input(what).hint(hint))
    }

    /// Checks that files can be written and read: creates the directory if necessary, then writes, reads and deletes a
    /// small file.
    pub(crate) async fn check_write(&self, deadline: Instant) -> Result<(), Report> {
        const PROBE_CONTENT: &[u8] = b"ydl doctor";
        if !self.exists(deadline).await? {
            self.create(deadline).await?;
        }
        let probe = self.layout.probe()?;
        let written = self.hdfs.write_atomic(&probe, PROBE_CONTENT, PRIVATE, deadline).await;
        if let Err(error) = written {
            let why = self.explain(error).await;
            // Report the write error; a file that cannot be deleted either is unused.
            let _ = self.hdfs.delete(&probe, Instant::now() + PROBE_MAX).await;
            return Err(why);
        }
        let read = self.hdfs.read_file(&probe, 1 << 10, deadline).await;
        self.hdfs.delete(&probe, deadline.max(Instant::now() + PROBE_MAX)).await?;
        match read {
            Ok(read) if *read == *PROBE_CONTENT => Ok(()),
            Ok(_) => {
                let what = format!("the content of `{probe}` differs from what was written");
                Err(Report::internal(what))
            }
            Err(error) => Err(self.explain(error).await),
        }
    }

    /// Checks that the directory exists or can be created. Creates and deletes a directory next to it to find out.
    pub(crate) async fn check_creatable(&self, deadline: Instant) -> Result<(), Report> {
        if self.exists(deadline).await? {
            return Ok(());
        }
        let mut ancestor = self.layout.root();
        while let Some((parent, _)) =
            ancestor.rsplit_once('/').filter(|(parent, _)| !parent.ends_with('/'))
        {
            ancestor = parent;
            if self.hdfs.stat(ancestor, deadline).await?.is_some() {
                break;
            }
        }
        let probe = StagingLayout::at(ancestor).probe()?;
        self.hdfs.mkdirs(&probe, 0o700, deadline).await?;
        self.hdfs.delete(&probe, deadline).await?;
        Ok(())
    }

    /// Converts a read or write error to a report. If the NameNode still responds, the DataNodes are unreachable.
    async fn explain(&self, error: HdfsError) -> Report {
        let deadline = Instant::now() + PROBE_MAX;
        let root = self.layout.root();
        let is_specific = error.kind != Kind::Unreachable || error.what.contains("DataNode");
        if is_specific || self.hdfs.stat(root, deadline).await.is_err() {
            return error.into();
        }
        let what = format!("no DataNode of `{root}` responds; its NameNode does");
        Report::new(Exit::Unreachable, what)
            .hint("check that DataNodes run (`hdfs dfsadmin -report`) and that this machine can connect to them")
    }

    /// Creates the directory, accessible to its owner only.
    pub(super) async fn create(&self, deadline: Instant) -> Result<(), HdfsError> {
        let (hdfs, root) = (&self.hdfs, self.layout.root());
        hdfs.mkdirs(root, 0o700, deadline).await?;
        hdfs.set_permission(root, 0o700, deadline).await
    }
}
