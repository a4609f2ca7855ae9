//! What a master on YARN knows when it begins.

use std::{collections::BTreeMap, fmt, sync::Arc};
use tokio::sync::watch;
use yarn_native::{Token, config::Config, security::Identity};
use ydl_core::{ContainerId, JobSpec};
use ydl_net::secret::Secret;
use ydl_proto::files::{Content, Staged};
use ydl_storage::hdfs::Fresh;

/// What the backend of a job on YARN needs to know.
pub struct YarnSetting {
    /// The cluster's configuration.
    pub config: Config,
    /// The token of this attempt, of the kind `YARN_AM_RM_TOKEN`.
    pub token: Token,
    /// As whom the ResourceManager is asked about its nodes: by its delegation token where there is security. Nodes
    /// are a hint; without them containers come a little later on clusters that grant with the beats of nodes.
    pub identity: Option<Identity>,
    /// What to run.
    pub spec: JobSpec,
    /// What of the job lies in HDFS.
    pub staged: Staged,
    /// Files of the job's own directory that every container gets, by the name they have there: `job.json`,
    /// `certificate.pem`, `hadoop.json`.
    pub own: BTreeMap<String, Content>,
    /// From which the tokens of agents and programs are made.
    pub secret: Arc<Secret>,
    /// Tokens of file systems, for the agents, which may change. Nothing else of the master's credentials reaches them.
    pub agent_credentials: watch::Receiver<Fresh>,
    /// Where agents and clients reach the master: `host:port`.
    pub address: String,
    /// The master's page; empty for none.
    pub tracking_url: String,
    /// Containers that an earlier master held, as the journal says. The ResourceManager may need a while to know
    /// again which of them live, and is waited for.
    pub held: Vec<ContainerId>,
}

impl fmt::Debug for YarnSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("YarnSetting")
            .field("staged", &self.staged.dir)
            .field("address", &self.address)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}
