//! Agent launches: batched per node, concurrent, each with a timeout.

use super::{BackendEvent, completions, runtime::ImageRuntimes, setup::YarnSetup};
use crate::agent::bootstrap::{BOOTSTRAP_SECRET, Bootstrap, BootstrapSecret, GpuRequest};
use crate::backend::yarn::local_resource;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender},
        watch,
    },
    task::JoinSet,
    time::{Instant, sleep},
};
use yarn_native::{
    config::Config,
    credentials::Format,
    node::{self, ContainerErrorKind, NmClient, NodeError},
    types::{Access, Container, ContainerId, LaunchContext, NodeId},
};
use ydl_core::{Event, RoleName, spec::ClusterOptions};
use ydl_net::secret::{Scope, Secret};
use ydl_os::report::Report;
use ydl_proto::{files::StagedFile, version::to_json_line};
use ydl_storage::hdfs::AgentTokens;

/// Command of every container. The node substitutes `<LOG_DIR>`, shows the files in it and aggregates them. When a
/// container fails, its diagnostics include the end of the newest file with `stderr` in its name.
const COMMAND: &str = "exec ./ydl agent 1><LOG_DIR>/agent.stdout 2><LOG_DIR>/agent.stderr";
/// Argument with which the output of programs is in the same directory.
const CONTAINER_LOGS: &str = " --container-logs <LOG_DIR>";
/// Maximum number of containers per call. Short calls keep a slow node from failing all of them.
const BATCH_MAX: usize = 64;
/// Time to retry a launch. A restarting node needs a few seconds.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Delay before a rejected launch is retried.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Agent to launch.
#[derive(Debug)]
pub(super) struct LaunchRequest {
    pub(super) container: Container,
    /// Role of its task.
    pub(super) role: RoleName,
    /// GPUs of its task.
    pub(super) gpus: GpuRequest,
}

/// Starts all agents of a job.
pub(super) struct Launcher {
    nm_client: NmClient,
    backend_events: UnboundedSender<BackendEvent>,
    common: LaunchContext,
    runtimes: ImageRuntimes,
    credentials: watch::Receiver<AgentTokens>,
    secret: Arc<Secret>,
    master: String,
    staging: String,
    timeout: Duration,
}

impl Launcher {
    pub(super) fn new(
        setup: &YarnSetup,
        nm_client: NmClient,
        backend_events: UnboundedSender<BackendEvent>,
    ) -> Result<Launcher, Report> {
        let launch = Duration::from_millis(setup.spec.timeouts.launch.0);
        Ok(Launcher {
            nm_client,
            backend_events,
            common: common(setup)?,
            runtimes: ImageRuntimes::of(&setup.spec),
            credentials: setup.agent_credentials.clone(),
            secret: setup.secret.clone(),
            master: setup.address.clone(),
            staging: setup.staged.dir.clone(),
            timeout: launch.min(START_TIMEOUT),
        })
    }

    /// Starts agents until the backend is dropped.
    pub(super) async fn run(self, mut requests: UnboundedReceiver<LaunchRequest>) {
        let this = Arc::new(self);
        let mut calls = JoinSet::new();
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                count = requests.recv_many(&mut batch, 4096) => if count == 0 {
                    return;
                },
                Some(ended) = calls.join_next() => if let Err(error) = ended {
                    // The core has a timeout for container launches.
                    tracing::error!("a launch task failed: {error}");
                },
            }
            let mut by_node: BTreeMap<NodeId, Vec<LaunchRequest>> = BTreeMap::new();
            for request in batch.drain(..) {
                let on_node = by_node.entry(request.container.node.clone()).or_default();
                on_node.push(request);
            }
            for (node, starts) in by_node {
                let mut starts = starts.into_iter().peekable();
                while starts.peek().is_some() {
                    let some: Vec<_> = starts.by_ref().take(BATCH_MAX).collect();
                    calls.spawn(this.clone().start(node.clone(), some));
                }
            }
        }
    }

    /// Starts agents on one node and reports each result.
    async fn start(self: Arc<Self>, node: NodeId, starts: Vec<LaunchRequest>) {
        let deadline = Instant::now() + self.timeout;
        let mut waiting = Vec::new();
        for LaunchRequest { container, role, gpus } in starts {
            match self.context(&container, &role, gpus) {
                Some(context) => waiting.push((container, context)),
                None => self.failed(container.id, "cannot create its token".to_owned()),
            }
        }
        while !waiting.is_empty() {
            let starts =
                waiting.iter().map(|(container, launch)| node::Start { container, launch });
            let starts: Vec<_> = starts.collect();
            let can_retry = Instant::now() + RETRY_DELAY < deadline;
            match self.nm_client.start(&node, &starts, deadline).await {
                Ok(outcome) => {
                    let mut retry = BTreeSet::new();
                    for id in outcome.started {
                        self.launched(id);
                    }
                    for (id, error) in outcome.failed {
                        match error.kind {
                            ContainerErrorKind::AlreadyStarted => self.launched(id),
                            ContainerErrorKind::NotReady | ContainerErrorKind::PermissionDenied
                                if can_retry =>
                            {
                                retry.insert(id);
                            }
                            _ => self.failed(
                                id,
                                format!("node `{node}` rejected the container launch: {error}"),
                            ),
                        }
                    }
                    waiting.retain(|(container, _)| retry.contains(&container.id));
                }
                // The next heartbeat may bring a newer token.
                Err(NodeError::NoToken { .. } | NodeError::Untrusted { .. }) if can_retry => {}
                Err(error) => {
                    for (container, _) in waiting.drain(..) {
                        self.failed(container.id, error.to_string());
                    }
                }
            }
            if !waiting.is_empty() {
                sleep(RETRY_DELAY).await;
            }
        }
    }

    fn launched(&self, id: ContainerId) {
        let container = id.to_string().into();
        self.send_event(Event::Launched { container });
    }

    fn failed(&self, id: ContainerId, why: String) {
        let container = id.to_string().into();
        let why = completions::truncate(&why);
        self.send_event(Event::LaunchFailed { container, reason: why });
    }

    fn send_event(&self, event: Event) {
        // The receiver is gone once the job is over.
        let _ = self.backend_events.send(BackendEvent::Launch(event));
    }

    /// Returns the launch context of one container: the common one plus the secrets of its agent.
    fn context(
        &self,
        container: &Container,
        role: &RoleName,
        gpus: GpuRequest,
    ) -> Option<LaunchContext> {
        let id = container.id.to_string();
        let token = |scope| Some(self.secret.token(&scope)?.as_str().to_owned());
        let delivered = BootstrapSecret {
            agent_token: token(Scope::Agent(id.clone()))?,
            program_token: token(Scope::Program(id.clone()))?,
            bootstrap: Bootstrap {
                job: PathBuf::new(),
                container: id.into(),
                master: self.master.clone(),
                host: container.node.host.clone(),
                staging: Some(self.staging.clone()),
                gpus: Some(gpus),
            },
        };
        let mut credentials = self.credentials.borrow().credentials.clone();
        credentials.set_secret(BOOTSTRAP_SECRET, to_json_line(&delivered).ok()?);
        Some(LaunchContext {
            credentials: Some(credentials.to_bytes(Format::Writable).to_vec().into()),
            environment: self.runtimes.for_role(role),
            ..self.common.clone()
        })
    }
}

/// Returns false if the job limits its viewers, but the pages of nodes do not check users.
fn may_show_output(options: &ClusterOptions, config: &Config) -> bool {
    let has_lists = options.viewers.is_some() || options.modifiers.is_some();
    !has_lists || config.access_lists().ok() == Some(true)
}

/// Returns the files and the command that all agents share.
fn common(setup: &YarnSetup) -> Result<LaunchContext, Report> {
    let staged = &setup.staged;
    let mut command = COMMAND.to_owned();
    if may_show_output(&setup.spec.cluster_options, &setup.config) {
        command.push_str(CONTAINER_LOGS);
    }
    let mut launch = LaunchContext::command(command);
    let mut add = |name: String, content: &StagedFile| {
        launch.resources.insert(name, local_resource(content)?);
        Ok::<(), Report>(())
    };
    add("ydl".to_owned(), &staged.binary)?;
    for (name, content) in &setup.own {
        add(name.clone(), content)?;
    }
    for (name, content) in &staged.files {
        add(format!("files/{name}"), content)?;
    }
    for (name, content) in &staged.environment {
        add(name.clone(), content)?;
    }
    // Nodes show a container's logs to users on the container's own access lists.
    let cluster = &setup.spec.cluster_options;
    let lists = [(Access::View, &cluster.viewers), (Access::Modify, &cluster.modifiers)];
    for (access, list) in lists {
        if let Some(list) = list {
            launch.access.insert(access, list.clone());
        }
    }
    Ok(launch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use yarn_native::config::Environment;

    #[test]
    fn output_of_a_job_with_viewers_is_shown_only_by_nodes_that_check_users() {
        let mut config = Config::defaults(Environment::default());
        let mut options = ClusterOptions::default();
        assert!(may_show_output(&options, &config));
        options.viewers = Some("alice".to_owned());
        assert!(!may_show_output(&options, &config));
        config.set("yarn.acl.enable", "true", "a test");
        assert!(may_show_output(&options, &config));
    }
}
