//! Environment of a master in its container.

use super::tokens::TokenRenewer;
use crate::master::page::application_url;
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::Instant};
use yarn_native::{
    Token,
    config::{Authentication, Config, Environment},
    credentials::Credentials,
    scheduler::{AmRmClient, Finish, Registration},
    security::Identity,
    types::{ContainerId, FinalStatus},
};
use ydl_net::{
    secret::{self, Secret},
    tls,
};
use ydl_os::{env, private, report::Report};
use ydl_proto::{
    files::{HadoopConfig, JobDir, JobTarget, StagedFile, StagedFiles, SubmittedJob},
    inline_files::{self, INLINE_FILES},
    version::from_json,
};
use ydl_storage::hdfs::{self, AgentTokens, Hdfs, HdfsError, JobLayout};

/// Kind of the master's token for the ResourceManager.
const MASTER_TOKEN: &str = "YARN_AM_RM_TOKEN";
/// Kind of the owner's delegation token for the ResourceManager.
const RM_TOKEN: &str = "RM_DELEGATION_TOKEN";
/// Name of the MLflow credentials.
const TRACKING_SECRET: &str = "mlflow.secret";
/// Name of the keytab in the credentials.
const KEYTAB: &str = "ydl.keytab";
/// File with the submitter's Hadoop configuration.
const HADOOP: &str = "hadoop.json";
/// Maximum size of a file.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Timeout for reporting a failure to the ResourceManager.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// Environment of a master in its container.
pub(super) struct MasterBootstrap {
    pub(super) dir: JobDir,
    pub(super) submitted: SubmittedJob,
    pub(super) staged: StagedFiles,
    /// Directory of the job in HDFS.
    pub(super) layout: JobLayout,
    pub(super) config: Config,
    /// Host name of this node.
    pub(super) host: Option<String>,
    /// Number of this master's attempt, from 1.
    pub(super) attempt: u32,
    pub(super) token: Token,
    /// Identity for queries to the ResourceManager.
    pub(super) rm_identity: Option<Identity>,
    pub(super) hdfs_identity: Identity,
    /// Tokens for the agents, without the master's own.
    pub(super) agent_credentials: watch::Receiver<AgentTokens>,
    /// True if the credentials contain the job's own files.
    pub(super) inline_files: bool,
    pub(super) secret: Arc<Secret>,
    pub(super) identity: tls::Identity,
    /// Credentials for MLflow's server, if needed.
    pub(super) tracking_secret: Option<Vec<u8>>,
    /// Renews tokens, if there is a keytab.
    pub(super) tokens: Option<TokenRenewer>,
}

impl MasterBootstrap {
    /// Reads the environment of this container.
    pub(super) fn from_env() -> Result<MasterBootstrap, Report> {
        let missing = |name: &str| {
            let what = format!("not in a container of a cluster: `{name}` is not set");
            Report::bad_input(what).hint("a master on this machine is given its job's directory")
        };
        let variable = |name| std::env::var(name).map_err(|_| missing(name));
        let cwd = std::env::current_dir()
            .map_err(|e| Report::internal(format!("cannot get the current directory: {e}")))?;
        let container = variable(env::CONTAINER_ID)?;
        let file = variable(env::HADOOP_TOKEN_FILE_LOCATION)?;
        let file = PathBuf::from(file);
        private::close(&file);
        let credentials = Credentials::read(&file);
        let credentials = credentials.map_err(|e| Report::internal(e.to_string()))?;
        let user = std::env::var(env::USER).ok();
        let host = std::env::var(env::NM_HOST).ok();
        MasterBootstrap::read(JobDir::at(cwd), &container, credentials, file, user, host)
    }

    fn read(
        dir: JobDir,
        container: &str,
        mut credentials: Credentials,
        file: PathBuf,
        user: Option<String>,
        host: Option<String>,
    ) -> Result<MasterBootstrap, Report> {
        let failed = |what: String| Report::internal(what);
        let container: ContainerId =
            container.parse().map_err(|e: yarn_native::types::BadId| failed(e.to_string()))?;
        let attempt = u32::try_from(container.attempt.number).unwrap_or(1);

        let inline_files = match credentials.secret(INLINE_FILES) {
            Some(files) => {
                inline_files::unpack(files.expose(), dir.path()).map_err(|e| {
                    failed(format!("cannot unpack the files in the credentials: {e}"))
                })?;
                true
            }
            None => false,
        };
        let submitted: SubmittedJob = read_json(&dir.submitted_file())?;
        let JobTarget::Yarn(staged) = submitted.target.clone() else {
            let what = format!("`{}` is not a job of a cluster", submitted.id);
            return Err(failed(what));
        };
        let hadoop: HadoopConfig = read_json(&dir.path().join(HADOOP))?;
        let config = hdfs::config(&hadoop.properties, Environment::of_process());

        let mut take = |name: &str| {
            credentials
                .take_secret(name)
                .ok_or_else(|| failed(format!("the container's credentials lack `{name}`")))
        };
        // The content of a secret must not appear in an error.
        let malformed = |name: &str| failed(format!("`{name}` in the credentials is malformed"));
        let name = secret::CREDENTIAL;
        let secret = take(name)?;
        let secret = std::str::from_utf8(secret.expose()).ok();
        let secret = secret.and_then(|hex| Secret::from_hex(hex.trim()));
        let secret = Arc::new(secret.ok_or_else(|| malformed(name))?);
        let name = tls::CREDENTIAL;
        let identity = tls::Identity::from_pem(take(name)?.expose());
        let identity = identity.ok_or_else(|| malformed(name))?;
        // Agents must not see it.
        let keytab = credentials.take_secret(KEYTAB);
        let tracking_secret = credentials.take_secret(TRACKING_SECRET);
        let tracking_secret = tracking_secret.map(|secret| secret.expose().to_vec());

        let token = credentials.of_kind(MASTER_TOKEN).cloned();
        let token = token
            .ok_or_else(|| failed(format!("the container's credentials lack `{MASTER_TOKEN}`")))?;
        let secure = config.authentication().ok() == Some(Authentication::Kerberos);
        let user = match user {
            Some(user) => user,
            None => config.user().map_err(|e| failed(e.to_string()))?,
        };
        // On a cluster without authentication a container acts as the job's submitter, whatever system user
        // runs it.
        let simple = || Identity::simple(user.clone());
        let by_token = |kind: &str| credentials.of_kind(kind).cloned().map(Identity::token);
        let hdfs_identity = by_token("HDFS_DELEGATION_TOKEN").filter(|_| secure);
        let hdfs_identity = hdfs_identity.unwrap_or_else(simple);
        let rm_token = by_token(RM_TOKEN);
        credentials.remove_kind(MASTER_TOKEN);
        credentials.remove_kind(RM_TOKEN);
        let number = 0;
        let (current_tokens, agent_credentials) =
            watch::channel(AgentTokens { number, credentials });
        let tokens = match keytab.filter(|_| secure) {
            Some(keytab) => {
                let (spec, staging) = (&submitted.spec, staged.dir.as_str());
                TokenRenewer::new(&keytab, spec, staging, &config, &dir, file, current_tokens)?
            }
            None => None,
        };
        // The ResourceManager's token expires, too.
        let with_keytab = tokens.as_ref().map(|tokens| tokens.identity.clone());
        let rm_identity = match secure {
            true => with_keytab.or(rm_token),
            false => Some(simple()),
        };
        Ok(MasterBootstrap {
            layout: JobLayout::at(staged.dir.clone()),
            inline_files,
            dir,
            submitted,
            staged,
            config,
            host,
            attempt,
            token,
            rm_identity,
            hdfs_identity,
            agent_credentials,
            secret,
            identity,
            tracking_secret,
            tokens,
        })
    }

    /// Describes the job's own files for a NodeManager.
    pub(super) async fn own_files(
        &self,
        hdfs: &Hdfs,
        deadline: Instant,
    ) -> Result<BTreeMap<String, StagedFile>, HdfsError> {
        let mut own = BTreeMap::new();
        if self.inline_files {
            return Ok(own);
        }
        for name in inline_files::INLINE_FILE_NAMES {
            let url = format!("{}/{name}", self.layout.dir());
            // A missing file is reported by the process that needs it.
            if let Some(entry) = hdfs.stat(&url, deadline).await? {
                let content = StagedFile {
                    url,
                    bytes: entry.bytes,
                    modified_ms: entry.modified_ms,
                    unpack: false,
                    own: true,
                };
                own.insert(name.to_owned(), content);
            }
        }
        Ok(own)
    }

    /// Reports the failure to the ResourceManager, so that no other master is started.
    pub(super) async fn report_failure(&self, why: &str) {
        let page = application_url(&self.config, &self.submitted.id);
        report_failure(&self.config, self.token.clone(), self.host.clone(), page, why).await;
    }
}

/// Reports a failure with what is available, if the environment is incomplete.
pub(super) async fn report_failure_from_env(why: &str) {
    let found = || {
        let file = std::env::var_os(env::HADOOP_TOKEN_FILE_LOCATION)?;
        let credentials = Credentials::read(Path::new(&file)).ok()?;
        let token = credentials.of_kind(MASTER_TOKEN)?.clone();
        let hadoop: HadoopConfig = read_json(Path::new(HADOOP)).ok()?;
        Some((hdfs::config(&hadoop.properties, Environment::of_process()), token))
    };
    if let Some((config, token)) = found() {
        let container = std::env::var(env::CONTAINER_ID).unwrap_or_default();
        let container = container.parse::<ContainerId>().ok();
        let page =
            container.and_then(|id| application_url(&config, &id.attempt.application.to_string()));
        report_failure(&config, token, std::env::var(env::NM_HOST).ok(), page, why).await;
    }
}

async fn report_failure(
    config: &Config,
    token: Token,
    host: Option<String>,
    page: Option<String>,
    why: &str,
) {
    let deadline = Instant::now() + REPORT_TIMEOUT;
    let reported = async {
        let mut scheduler = AmRmClient::from_config(config, token).map_err(|e| e.to_string())?;
        let registration = Registration::new(host.unwrap_or_default());
        let registered = scheduler.register(&registration, deadline).await;
        registered.map_err(|e| e.to_string())?;
        let finish = Finish {
            diagnostics: why.to_owned(),
            tracking_url: page.unwrap_or_default(),
            ..Finish::new(FinalStatus::Failed)
        };
        let finished = scheduler.finish(&finish, deadline).await;
        finished.map_err(|e| e.to_string())
    };
    if let Err(error) = reported.await {
        tracing::error!("cannot report the failure to the ResourceManager: {error}");
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Report> {
    let failed = |why: &dyn std::fmt::Display| {
        Report::internal(format!("cannot read `{}`: {why}", path.display()))
    };
    let file = File::open(path).map_err(|e| failed(&e))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| failed(&e))?;
    from_json(&bytes).map_err(|e| Report { hint: e.hint().map(str::to_owned), ..failed(&e) })
}
