//! Files that belong to one job.

use super::staging_dir::StagingDir;
use bytes::Bytes;
use std::{collections::BTreeMap, fmt};
use tokio::time::Instant;
use yarn_native::config::Config;
use ydl_os::report::Report;
use ydl_proto::{
    files::{HadoopConfig, StagedFile, SubmittedJob},
    inline_files::{self, INLINE_FILE_NAMES},
    version::to_json,
};
use ydl_storage::hdfs::{Grant, Hdfs, HdfsError, JobLayout, Kind, layout, pairs};

/// Files written for a job before its submission.
#[derive(Clone, Copy)]
pub struct JobFiles<'a> {
    /// The submission.
    pub submitted: &'a SubmittedJob,
    /// Certificate of the job's masters, as PEM.
    pub certificate: &'a str,
    /// Owner's token for the masters.
    pub client_token: &'a str,
    /// Viewers' token for the masters.
    pub viewer_token: &'a str,
    /// Hadoop configuration of the submitter.
    pub config: &'a Config,
    /// Listing of the inputs, if the job has any.
    pub inputs: Option<&'a [u8]>,
}

impl JobFiles<'_> {
    /// Packs the files that every container needs, if small enough for the credentials; otherwise they are downloaded.
    pub fn inline_files(&self) -> Result<Option<Vec<u8>>, Report> {
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes);
            text.map_err(|_| Report::internal("JSON that is not text"))
        };
        let submitted = text(json(self.submitted)?.into())?;
        let hadoop = text(json(&HadoopConfig { properties: pairs(self.config) })?.into())?;
        let inputs = self.inputs.map(|bytes| text(bytes.to_vec())).transpose()?;
        let texts = [
            Some(submitted.as_str()),
            Some(self.certificate),
            Some(hadoop.as_str()),
            inputs.as_deref(),
        ];
        let files = INLINE_FILE_NAMES.into_iter().zip(texts);
        let files = files.filter_map(|(name, text)| Some((name, text?)));
        Ok(inline_files::pack(files.collect()))
    }
}

impl fmt::Debug for JobFiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobFiles({})", self.submitted.id)
    }
}

/// Writes the job's files to its directory in HDFS. Returns notes about failures that do not prevent the job.
pub async fn write_job(
    staging_dir: &StagingDir,
    files: JobFiles<'_>,
    deadline: Instant,
) -> Result<Vec<String>, Report> {
    let hdfs = &staging_dir.hdfs;
    let job = staging_dir.job(&files.submitted.id);
    let on_cluster = &files.submitted.spec.cluster_options;
    let parse = |list: &Option<String>| list.as_deref().map(Grant::parse).unwrap_or_default();
    let (viewers, modifiers) = (parse(&on_cluster.viewers), parse(&on_cluster.modifiers));
    let grant_access = grant_access(staging_dir, &job, &viewers, &modifiers, deadline).await;
    let submitted = json(files.submitted)?;
    let hadoop = json(&HadoopConfig { properties: pairs(files.config) })?;
    // Boxed: five such futures in one are too large for a small stack.
    let write = |path: String, bytes: Bytes, permission: u32| {
        Box::pin(async move { hdfs.write_atomic(&path, bytes, permission, deadline).await })
    };
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let inputs = async {
        match files.inputs {
            Some(inputs) => {
                let inputs = Bytes::copy_from_slice(inputs);
                write(job.inputs(), inputs, layout::FILE).await
            }
            None => Ok(()),
        }
    };
    let (one, two, three, four, five) = tokio::join!(
        write(job.submitted(), submitted, layout::FILE),
        write(job.hadoop(), hadoop, layout::FILE),
        write(job.certificate(), bytes(files.certificate), layout::FILE),
        write(job.token(), bytes(files.client_token), layout::PRIVATE),
        inputs,
    );
    for written in [one, two, three, four, five] {
        written?;
    }
    let mut notes = Vec::new();
    let grant_access = match grant_access {
        Ok(()) => write_tokens(hdfs, &job, &files, &viewers, &modifiers, deadline).await,
        Err(error) => Err(error),
    };
    match grant_access {
        Ok(()) => {}
        Err(error) if matches!(error.kind, Kind::Unreachable | Kind::Unauthenticated) => {
            return Err(error.into());
        }
        // The cluster may not support ACLs; the job itself does not need them.
        Err(error) => notes.push(format!(
            "viewers and modifiers can see the job in YARN, but not its files: {error}"
        )),
    }
    Ok(notes)
}

/// Writes the owner's token for users who may change the job, and the viewers' token for users who may look.
async fn write_tokens(
    hdfs: &Hdfs,
    job: &JobLayout,
    files: &JobFiles<'_>,
    viewers: &[Grant],
    modifiers: &[Grant],
    deadline: Instant,
) -> Result<(), HdfsError> {
    if !viewers.is_empty() {
        let token = Bytes::copy_from_slice(files.viewer_token.as_bytes());
        let path = job.viewer_token();
        hdfs.write_atomic(&path, token, layout::PRIVATE, deadline).await?;
        hdfs.grant_file_read(&path, viewers, deadline).await?;
    }
    hdfs.grant_file_read(&job.token(), modifiers, deadline).await
}

async fn grant_access(
    staging_dir: &StagingDir,
    job: &JobLayout,
    viewers: &[Grant],
    modifiers: &[Grant],
    deadline: Instant,
) -> Result<(), HdfsError> {
    let all: Vec<Grant> = viewers.iter().chain(modifiers).cloned().collect();
    if all.is_empty() {
        return Ok(());
    }
    let hdfs = &staging_dir.hdfs;
    hdfs.grant_traverse(staging_dir.layout.root(), &all, deadline).await?;
    hdfs.grant_traverse(&staging_dir.layout.jobs(), &all, deadline).await?;
    hdfs.grant_read(job.dir(), &all, deadline).await
}

/// Returns the files in the job's directory that its containers need, by name. They are used when the files are too large
/// for the credentials.
pub async fn own_files(
    hdfs: &Hdfs,
    job: &JobLayout,
    deadline: Instant,
) -> Result<BTreeMap<String, StagedFile>, HdfsError> {
    let mut contents = BTreeMap::new();
    for entry in hdfs.list(job.dir(), deadline).await? {
        if INLINE_FILE_NAMES.contains(&entry.name()) {
            let content = StagedFile {
                url: entry.url.clone(),
                bytes: entry.bytes,
                modified_ms: entry.modified_ms,
                unpack: false,
                own: true,
            };
            contents.insert(entry.name().to_owned(), content);
        }
    }
    Ok(contents)
}

fn json(value: &impl serde::Serialize) -> Result<Bytes, Report> {
    let bytes = to_json(value);
    let bytes = bytes.map_err(|error| Report::internal(format!("cannot write JSON: {error}")))?;
    Ok(bytes.into())
}
