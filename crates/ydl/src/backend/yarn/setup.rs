//! Inputs of the YARN backend.

use std::{collections::BTreeMap, fmt, sync::Arc};
use tokio::sync::watch;
use yarn_native::{Token, config::Config, security::Identity};
use ydl_core::{ContainerId, JobSpec};
use ydl_net::secret::Secret;
use ydl_proto::files::{StagedFile, StagedFiles};
use ydl_storage::hdfs::AgentTokens;

/// Inputs of the YARN backend of a job.
pub struct YarnSetup {
    /// Configuration of the cluster.
    pub config: Config,
    /// Token of this attempt, of the kind `YARN_AM_RM_TOKEN`.
    pub token: Token,
    /// Identity for node queries: a delegation token on a secure cluster. Nodes are a hint; without them,
    /// containers come a little later on clusters that allocate on node heartbeats.
    pub identity: Option<Identity>,
    /// Specification of the job.
    pub spec: JobSpec,
    /// Files of the job in HDFS.
    pub staged: StagedFiles,
    /// Files of the job's own directory that every container gets, by name: `job.json`, `certificate.pem`,
    /// `hadoop.json`.
    pub own: BTreeMap<String, StagedFile>,
    /// Secret that tokens of agents and programs derive from.
    pub secret: Arc<Secret>,
    /// File system tokens for the agents, which may be renewed. Agents get no other credentials of the master.
    pub agent_credentials: watch::Receiver<AgentTokens>,
    /// Address of the master for agents and clients: `host:port`.
    pub address: String,
    /// URL of the job's page; empty for none.
    pub tracking_url: String,
    /// URL that shows the job after its end; empty for none.
    pub final_tracking_url: String,
    /// Progress so far, from 0 to 1.
    pub progress: f32,
    /// Containers of an earlier master, from the journal. The backend waits for the ResourceManager to recover
    /// them.
    pub held: Vec<ContainerId>,
}

impl fmt::Debug for YarnSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("YarnSetup")
            .field("staged", &self.staged.dir)
            .field("address", &self.address)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}
