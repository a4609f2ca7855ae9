//! Starting agents: many at once, one call a node, each within its time.

use super::{News, ends, runtime::Runtimes, setting::YarnSetting};
use crate::agent::setting::{DELIVERED, Delivered, FindGpus, Setting};
use crate::jobs::local_resource;
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
    credentials::Format,
    node::{self, ContainerErrorKind, NmClient, NodeError},
    types::{Access, Container, ContainerId, LaunchContext, NodeId},
};
use ydl_core::{Event, RoleName};
use ydl_net::secret::{Scope, Secret};
use ydl_os::report::Report;
use ydl_proto::files::Content;
use ydl_storage::hdfs::Fresh;

/// What a container runs. `<LOG_DIR>` is put in by its node. Of a container that fails, nodes tell the end of the file
/// whose name has `stderr` in it.
const COMMAND: &str = "exec ./ydl agent 1><LOG_DIR>/agent.stdout 2><LOG_DIR>/agent.stderr";
/// Containers in one call to a node: a call is short, and a node that is slow with it is not blamed for all.
const TOGETHER_MAX: usize = 64;
/// The longest that a node is tried. One that is being started again needs some seconds.
const START_MAX: Duration = Duration::from_secs(60);
/// Pause before a node is tried again that did not take what it was shown.
const PAUSE: Duration = Duration::from_millis(500);

/// An agent that is to be started.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) container: Container,
    /// The role of its task.
    pub(super) role: RoleName,
    /// GPUs of its task.
    pub(super) gpus: FindGpus,
}

/// What all agents of a job have in common.
pub(super) struct Launcher {
    nodes: NmClient,
    news: UnboundedSender<News>,
    common: LaunchContext,
    runtimes: Runtimes,
    credentials: watch::Receiver<Fresh>,
    secret: Arc<Secret>,
    master: String,
    staging: String,
    within: Duration,
}

impl Launcher {
    pub(super) fn new(
        setting: &YarnSetting,
        nodes: NmClient,
        news: UnboundedSender<News>,
    ) -> Result<Launcher, Report> {
        let launch = Duration::from_millis(setting.spec.timeouts.launch.0);
        Ok(Launcher {
            nodes,
            news,
            common: common(setting)?,
            runtimes: Runtimes::of(&setting.spec),
            credentials: setting.agent_credentials.clone(),
            secret: setting.secret.clone(),
            master: setting.address.clone(),
            staging: setting.staged.dir.clone(),
            within: launch.min(START_MAX),
        })
    }

    /// Starts agents in containers until nobody can ask for more.
    pub(super) async fn run(self, mut orders: UnboundedReceiver<Start>) {
        let this = Arc::new(self);
        let mut calls = JoinSet::new();
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                some = orders.recv_many(&mut batch, 4096) => if some == 0 {
                    return;
                },
                Some(ended) = calls.join_next() => if let Err(error) = ended {
                    // The core does not wait for ever for a container to start.
                    tracing::error!("a launch broke off: {error}");
                },
            }
            let mut by_node: BTreeMap<NodeId, Vec<Start>> = BTreeMap::new();
            for start in batch.drain(..) {
                let on_node = by_node.entry(start.container.node.clone()).or_default();
                on_node.push(start);
            }
            for (node, starts) in by_node {
                let mut starts = starts.into_iter().peekable();
                while starts.peek().is_some() {
                    let some: Vec<_> = starts.by_ref().take(TOGETHER_MAX).collect();
                    calls.spawn(this.clone().start(node.clone(), some));
                }
            }
        }
    }

    /// Starts agents on one node; each is told of.
    async fn start(self: Arc<Self>, node: NodeId, starts: Vec<Start>) {
        let deadline = Instant::now() + self.within;
        let mut waiting = Vec::new();
        for Start { container, role, gpus } in starts {
            match self.context(&container, &role, gpus) {
                Some(context) => waiting.push((container, context)),
                None => self.failed(container.id, "it cannot have a token".to_owned()),
            }
        }
        while !waiting.is_empty() {
            let starts =
                waiting.iter().map(|(container, launch)| node::Start { container, launch });
            let starts: Vec<_> = starts.collect();
            let again = Instant::now() + PAUSE < deadline;
            match self.nodes.start(&node, &starts, deadline).await {
                Ok(outcome) => {
                    let mut later = BTreeSet::new();
                    for id in outcome.started {
                        self.launched(id);
                    }
                    for (id, refusal) in outcome.failed {
                        match refusal.kind {
                            ContainerErrorKind::AlreadyStarted => self.launched(id),
                            ContainerErrorKind::NotReady | ContainerErrorKind::PermissionDenied
                                if again =>
                            {
                                later.insert(id);
                            }
                            _ => self
                                .failed(id, format!("node `{node}` does not start it: {refusal}")),
                        }
                    }
                    waiting.retain(|(container, _)| later.contains(&container.id));
                }
                // A newer token may come with a beat.
                Err(NodeError::NoToken { .. } | NodeError::Untrusted { .. }) if again => {}
                Err(error) => {
                    for (container, _) in waiting.drain(..) {
                        self.failed(container.id, error.to_string());
                    }
                }
            }
            if !waiting.is_empty() {
                sleep(PAUSE).await;
            }
        }
    }

    fn launched(&self, id: ContainerId) {
        let container = id.to_string().into();
        self.tell(Event::Launched { container });
    }

    fn failed(&self, id: ContainerId, why: String) {
        let container = id.to_string().into();
        let why = ends::short(&why);
        self.tell(Event::LaunchFailed { container, why });
    }

    fn tell(&self, event: Event) {
        // Nobody listens once the job is over.
        let _ = self.news.send(News::Launch(event));
    }

    /// What is started in one container: the same everywhere but for what its agent alone may know.
    fn context(
        &self,
        container: &Container,
        role: &RoleName,
        gpus: FindGpus,
    ) -> Option<LaunchContext> {
        let id = container.id.to_string();
        let token = |scope| Some(self.secret.token(&scope)?.as_str().to_owned());
        let delivered = Delivered {
            agent_token: token(Scope::Agent(id.clone()))?,
            program_token: token(Scope::Program(id.clone()))?,
            setting: Setting {
                job: PathBuf::new(),
                container: id.into(),
                master: self.master.clone(),
                host: container.node.host.clone(),
                staging: Some(self.staging.clone()),
                gpus: Some(gpus),
            },
        };
        let mut credentials = self.credentials.borrow().credentials.clone();
        credentials.set_secret(DELIVERED, serde_json::to_vec(&delivered).ok()?);
        Some(LaunchContext {
            credentials: Some(credentials.to_bytes(Format::Writable).to_vec().into()),
            environment: self.runtimes.of_role(role),
            ..self.common.clone()
        })
    }
}

/// The files and the command of every agent.
fn common(setting: &YarnSetting) -> Result<LaunchContext, Report> {
    let staged = &setting.staged;
    let mut launch = LaunchContext::command(COMMAND);
    let mut add = |name: String, content: &Content| {
        launch.resources.insert(name, local_resource(content)?);
        Ok::<(), Report>(())
    };
    add("ydl".to_owned(), &staged.binary)?;
    for (name, content) in &setting.own {
        add(name.clone(), content)?;
    }
    for (name, content) in &staged.files {
        add(format!("files/{name}"), content)?;
    }
    for (name, content) in &staged.environment {
        add(name.clone(), content)?;
    }
    // Nodes show a container's logs to those whom its own lists name.
    let cluster = &setting.spec.cluster_options;
    let lists = [(Access::View, &cluster.viewers), (Access::Modify, &cluster.modifiers)];
    for (access, list) in lists {
        if let Some(list) = list {
            launch.access.insert(access, list.clone());
        }
    }
    Ok(launch)
}
