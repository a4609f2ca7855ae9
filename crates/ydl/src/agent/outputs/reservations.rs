//! Which destinations and names a job and its tasks may call their own.

use super::collect::OutputFiles;
use crate::agent::shipping::HdfsClients;
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;
use ydl_core::spec::ExistingPolicy;
use ydl_storage::data::{Book, Names, Trouble, claim, release};

/// How long looking at it may take on this machine, where nobody is waited for.
const HERE_MAX: Duration = Duration::from_secs(60);
/// How long writing down that there was nothing to send may take.
const NOTE_MAX: Duration = Duration::from_secs(20);
/// Files up to here are compared with those of others: the same text from every task is no conflict.
const COMPARED_BYTES_MAX: u64 = 1 << 20;

/// Where a job writes down what is its own.
#[derive(Clone, Debug)]
pub(in crate::agent) enum ReservationStore {
    /// In a directory of this machine.
    Local(PathBuf),
    /// In one in HDFS, by its URL.
    Hdfs(String),
}

/// What a task may call its own.
#[derive(Clone, Debug)]
pub(in crate::agent) struct Reservations {
    pub(in crate::agent) ledger: ReservationStore,
    /// The job's id.
    pub(in crate::agent) job: String,
    /// The task, for people.
    pub(in crate::agent) task: String,
}

impl Reservations {
    /// Where on this machine something goes that should go to `to`.
    pub(in crate::agent) async fn here(
        &self,
        existing: ExistingPolicy,
        to: &Path,
    ) -> Result<PathBuf, String> {
        let ReservationStore::Local(dir) = &self.ledger else {
            return Ok(to.to_owned());
        };
        let (book, to) = (Book::Here(dir.clone()), to.to_string_lossy());
        let deadline = Instant::now() + HERE_MAX;
        let taken = claim(&book, None, existing, &to, &self.job, deadline).await;
        taken.map(PathBuf::from).map_err(|trouble| trouble.sentence())
    }

    /// What was to be put there is there.
    pub(in crate::agent) async fn placed_here(&self, existing: ExistingPolicy, taken: &Path) {
        if let (ReservationStore::Local(_), false) =
            (&self.ledger, existing == ExistingPolicy::Overwrite)
        {
            release(None, &taken.to_string_lossy(), Instant::now() + HERE_MAX).await;
        }
    }

    /// The same in HDFS.
    pub(in crate::agent) async fn afar(
        &self,
        ways: &HdfsClients,
        existing: ExistingPolicy,
        to: &str,
        deadline: Instant,
    ) -> Result<String, Trouble> {
        if existing == ExistingPolicy::Overwrite {
            return Ok(to.to_owned());
        }
        let ground = ways.to(to, deadline).await?;
        let book = self.book(Some(ways), deadline).await?;
        claim(&book, Some(&ground), existing, to, &self.job, deadline).await
    }

    /// What was to be put there is there.
    pub(in crate::agent) async fn placed_afar(
        &self,
        ways: &HdfsClients,
        existing: ExistingPolicy,
        taken: &str,
        deadline: Instant,
    ) {
        if existing == ExistingPolicy::Overwrite {
            return;
        }
        if let Ok(ground) = ways.to(taken, deadline).await {
            release(Some(&ground), taken, deadline).await;
        }
    }

    async fn book(&self, ways: Option<&HdfsClients>, deadline: Instant) -> Result<Book, Trouble> {
        match (&self.ledger, ways) {
            (ReservationStore::Local(dir), _) => Ok(Book::Here(dir.clone())),
            (ReservationStore::Hdfs(dir), Some(ways)) => {
                Ok(Book::Afar(ways.to(dir, deadline).await?, dir.clone()))
            }
            (ReservationStore::Hdfs(_), None) => {
                Err(Trouble::lasting("there is no way to HDFS from here"))
            }
        }
    }

    /// Names that others of the job send to the same destination with another content, and who they are.
    pub(in crate::agent) async fn names(
        &self,
        ways: Option<&HdfsClients>,
        from: &str,
        to: &str,
        files: BTreeMap<String, Option<String>>,
        deadline: Instant,
    ) -> Result<BTreeMap<String, String>, Trouble> {
        // On a node's own disk nobody else's files are looked at.
        if let (ReservationStore::Hdfs(_), None) = (&self.ledger, ways) {
            return Ok(BTreeMap::new());
        }
        let book = self.book(ways, deadline).await?;
        let who = format!("`{from}` of {}", self.task);
        book.announce(to, &Names { who, files }, deadline).await
    }

    /// Notes which outputs the task had nothing of, for whoever looks at the job when it is over. An earlier attempt may have
    /// said something else.
    pub(in crate::agent) async fn note(
        &self,
        ways: Option<&HdfsClients>,
        outputs: &[String],
        absent: &[String],
    ) {
        let deadline = Instant::now() + NOTE_MAX;
        if outputs.is_empty() {
            return;
        }
        let noted = async {
            let book = self.book(ways, deadline).await?;
            for output in outputs {
                let absent = absent.contains(output);
                let noted = book.note_absent(output, &self.task, absent, deadline);
                noted.await?;
            }
            Ok::<_, Trouble>(())
        };
        if let Err(trouble) = noted.await {
            tracing::warn!("it is not noted what was not there: {}", trouble.what);
        }
    }
}

/// The files of an output as others are told of them: small ones by what is in them.
pub(super) fn contents(found: &OutputFiles) -> BTreeMap<String, Option<String>> {
    let each = found.files.iter();
    each.map(|item| (item.name.clone(), content(&item.from))).collect()
}

/// What tells a small file from another.
pub(super) fn content(path: &Path) -> Option<String> {
    let bytes = fs::metadata(path).ok()?.len();
    if bytes > COMPARED_BYTES_MAX {
        return None;
    }
    let read = fs::read(path).ok()?;
    Some(hex::encode(&digest(&SHA256, &read).as_ref()[..16]))
}

/// Why a name is not written a second time.
pub(super) fn theirs(who: &str) -> String {
    format!(
        "{who} has written that name with another content, which stays (put `{{index}}` into the destination, or take the output from one task with `from:`)"
    )
}
