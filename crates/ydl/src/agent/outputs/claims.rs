//! Which destinations a job may call its own.

use crate::agent::carry::Ways;
use crate::data::{Book, Trouble, claim};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;
use ydl_core::spec::Existing;

/// How long looking at it may take on this machine, where nobody is waited for.
const HERE_MAX: Duration = Duration::from_secs(60);

/// Where a job writes down which destinations are its own.
#[derive(Clone, Debug)]
pub(in crate::agent) enum Claims {
    /// In a directory of this machine.
    Here(PathBuf),
    /// In one in HDFS, by its URL.
    Hdfs(String),
}

impl Claims {
    /// Where on this machine something goes that should go to `to`.
    pub(in crate::agent) async fn here(
        &self,
        existing: Existing,
        to: &Path,
    ) -> Result<PathBuf, String> {
        let Claims::Here(dir) = self else {
            return Ok(to.to_owned());
        };
        let (book, to) = (Book::Here(dir.clone()), to.to_string_lossy());
        let taken = claim(&book, None, existing, &to, Instant::now() + HERE_MAX).await;
        taken
            .map(PathBuf::from)
            .map_err(|trouble| trouble.sentence())
    }

    /// The same in HDFS.
    pub(in crate::agent) async fn afar(
        &self,
        ways: &Ways,
        existing: Existing,
        to: &str,
        deadline: Instant,
    ) -> Result<String, Trouble> {
        if existing == Existing::Replace {
            return Ok(to.to_owned());
        }
        let ground = ways.to(to, deadline).await?;
        let book = match self {
            Claims::Here(dir) => Book::Here(dir.clone()),
            Claims::Hdfs(dir) => Book::Afar(ways.to(dir, deadline).await?, dir.clone()),
        };
        claim(&book, Some(&ground), existing, to, deadline).await
    }
}
