//! A master for tests: it lives in the test's own process, and beats while it waits for facts.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testbed::{Cluster, Hdfs, Options, Version};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};
use yarn_native::Token;
use yarn_native::client::{Client, Submission};
use yarn_native::node::{NmClient, NmClientOptions, Start, StartOutcome};
use yarn_native::rpc::{self, Address};
use yarn_native::scheduler::{
    AllocateRequest, AllocateResponse, AmRmClient, Ask, Finish, Locality, RegisterResponse,
    Registration, SchedulerError,
};
use yarn_native::security::Identity;
use yarn_native::types::{
    ApplicationId, ApplicationReport, Container, ContainerId, ContainerState, ContainerStatus,
    FinalStatus, LaunchContext, NodeId, Resource,
};

/// The Hadoop to test with: all tests pass on every one the test bed has.
pub fn version() -> Version {
    match std::env::var("HADOOP_VERSION") {
        Ok(name) => name.parse().unwrap_or_else(|failure| panic!("HADOOP_VERSION: {failure}")),
        Err(_) => Version::NEWEST,
    }
}

/// A turn for a test that has a cluster of its own: one of those is enough at a time.
pub async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// Three nodes and no HDFS.
pub fn options() -> Options {
    Options { nodes: 3, hdfs: Hdfs::None, ..Options::new(version()) }
}

pub fn small() -> Resource {
    Resource::new(128, 1)
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A directory of its own for a test's files, which end with the cluster.
pub fn scratch(cluster: &Cluster, name: &str) -> PathBuf {
    let path = cluster.directory().join("scratch").join(name);
    std::fs::create_dir_all(&path).expect("a directory");
    path
}

/// A command that waits for a file and then ends with a code. Before, it makes a file of its own.
pub fn wait_then_exit(file: &Path, code: i32) -> LaunchContext {
    let directory = file.parent().expect("a directory").display();
    let file = file.display();
    // It goes with the cluster, whose directory that is: a busy test may take long, and one that fails leaves nothing.
    LaunchContext::command(format!(
        "touch {file}.$CONTAINER_ID; while test -d {directory}; do test -e {file} && exit {code}; sleep 0.1; done; \
         exit 99"
    ))
}

/// Until the process of [`wait_then_exit`] lives. Its node says that a container runs before that, and
/// nobody would hear a signal.
pub async fn begun(file: &Path, id: ContainerId) {
    let (path, deadline) = (format!("{}.{id}", file.display()), soon());
    while !Path::new(&path).exists() {
        assert!(Instant::now() < deadline, "waited in vain for {path}");
        sleep(Duration::from_millis(50)).await;
    }
}

pub struct Master {
    pub client: Client,
    pub scheduler: AmRmClient,
    pub nodes: NmClient,
    pub id: ApplicationId,
    pub registered: RegisterResponse,
    /// The token with which the attempt began.
    pub token: Token,
    /// Containers that were granted and not yet handed out by [`Master::obtain`].
    pub granted: Vec<Container>,
    /// Ends, by container, in the order in which they came.
    pub ended: BTreeMap<ContainerId, ContainerStatus>,
    /// All other news, one answer after the other.
    pub answers: Vec<AllocateResponse>,
    /// How often the master has registered.
    pub registrations: u32,
    next_request: i64,
}

pub fn client(cluster: &Cluster) -> Client {
    let addresses = cluster.resource_managers().iter();
    let addresses = addresses.map(|rm| Address::new(rm.client.ip().to_string(), rm.client.port()));
    let identity = Identity::simple(cluster.own_user());
    Client::new(addresses.collect(), identity, rpc::Options::default()).expect("a client")
}

impl Master {
    pub async fn new(cluster: &Cluster, name: &str) -> Self {
        Self::submit(cluster, |id| Submission::new(id, name)).await
    }

    pub async fn submit(
        cluster: &Cluster,
        submission: impl FnOnce(ApplicationId) -> Submission,
    ) -> Self {
        let client = client(cluster);
        let id = client.new_application(soon()).await.expect("an id").id;
        let submission = Submission { unmanaged: true, ..submission(id) };
        client.submit(&submission, soon()).await.expect("submitted");
        let deadline = soon();
        let token = loop {
            // It is there until the master registers.
            let token = client.master_token(id, deadline).await.expect("a report");
            match token {
                Some(token) => break token,
                None => assert!(Instant::now() < deadline, "no token came"),
            }
            sleep(Duration::from_millis(20)).await;
        };
        Self::with_token(cluster, client, id, token).await
    }

    /// A master that is registered with the token of its attempt.
    pub async fn with_token(
        cluster: &Cluster,
        client: Client,
        id: ApplicationId,
        token: Token,
    ) -> Self {
        let scheduler = line(cluster, token.clone());
        let nodes = NmClient::new(NmClientOptions::default());
        Self::on(client, scheduler, nodes, id, token).await
    }

    /// A master on the lines it is given, as it is once it has registered.
    pub async fn on(
        client: Client,
        mut scheduler: AmRmClient,
        nodes: NmClient,
        id: ApplicationId,
        token: Token,
    ) -> Self {
        let registered = scheduler.register(&registration(), soon()).await;
        Self {
            client,
            scheduler,
            nodes,
            id,
            registered: registered.expect("registered"),
            token,
            granted: Vec::new(),
            ended: BTreeMap::new(),
            answers: Vec::new(),
            registrations: 1,
            next_request: 1,
        }
    }

    /// One exchange; registers again where that is called for, and then says nothing of `request`.
    pub async fn beat(&mut self, request: AllocateRequest) -> Result<(), SchedulerError> {
        let mut answer = match self.scheduler.allocate(|| request, soon()).await {
            Err(SchedulerError::NotRegistered) => {
                let registered = self.scheduler.register(&registration(), soon()).await?;
                self.nodes.add_tokens(registered.node_tokens.iter().cloned());
                self.registered = registered;
                self.registrations += 1;
                return Ok(());
            }
            other => other?,
        };
        self.nodes.add_tokens(answer.node_tokens.iter().cloned());
        self.granted.append(&mut answer.granted);
        for status in &answer.completed {
            // After a restart of the ResourceManager an end may be told twice.
            self.ended.entry(status.id).or_insert_with(|| status.clone());
        }
        self.answers.push(answer);
        Ok(())
    }

    /// Beats until something is true.
    pub async fn until<T>(&mut self, what: &str, fact: impl Fn(&mut Self) -> Option<T>) -> T {
        let deadline = soon();
        loop {
            if let Some(value) = fact(self) {
                return value;
            }
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            sleep(Duration::from_millis(50)).await;
            self.beat(AllocateRequest::default()).await.expect("a beat");
        }
    }

    /// A request id that no ask has had before.
    pub fn fresh_id(&mut self) -> i64 {
        self.next_request += 1;
        self.next_request
    }

    /// Containers anywhere.
    pub async fn obtain(&mut self, count: u32, resource: Resource) -> Vec<Container> {
        let id = self.fresh_id();
        self.obtain_by(vec![Ask::anywhere(id, resource, count)], count).await
    }

    /// A container on a certain host, and nowhere else.
    pub async fn obtain_on(&mut self, host: &str) -> Container {
        let id = self.fresh_id();
        let row = |place: &str, relax_locality| Ask {
            locality: Locality::from(place),
            relax_locality,
            ..Ask::anywhere(id, small(), 1)
        };
        let rows = vec![row(host, true), row("/default-rack", false), row("*", false)];
        self.obtain_by(rows, 1).await.remove(0)
    }

    /// As many containers as the asks, all of one request id, want.
    pub async fn obtain_by(&mut self, asks: Vec<Ask>, count: u32) -> Vec<Container> {
        let id = asks[0].request_id;
        let request = AllocateRequest { asks, ..AllocateRequest::default() };
        self.beat(request).await.expect("a beat");
        self.of_request(id, count as usize).await
    }

    /// The containers of a request, once there are enough.
    pub async fn of_request(&mut self, id: i64, count: usize) -> Vec<Container> {
        self.until("containers", |master| {
            let found = master.granted.iter().filter(|c| c.request_id == id);
            (found.count() >= count).then_some(())
        })
        .await;
        let (found, others) = std::mem::take(&mut self.granted)
            .into_iter()
            .partition(|container| container.request_id == id);
        self.granted = others;
        found
    }

    pub async fn try_start(&self, container: &Container, launch: &LaunchContext) -> StartOutcome {
        let start = [Start { container, launch }];
        let started = self.nodes.start(&container.node, &start, soon()).await;
        started.expect("an answer")
    }

    pub async fn start(&self, container: &Container, launch: &LaunchContext) {
        let outcome = self.try_start(container, launch).await;
        assert_eq!(outcome.started, [container.id], "{outcome:?}");
    }

    /// How a container ended, once it has.
    pub async fn end_of(&mut self, id: ContainerId) -> ContainerStatus {
        self.until(&format!("the end of {id}"), |master| master.ended.get(&id).cloned()).await
    }

    /// Starts a command in a container of its own; how it ended.
    pub async fn run(&mut self, launch: &LaunchContext) -> ContainerStatus {
        let container = self.obtain(1, small()).await.remove(0);
        self.start(&container, launch).await;
        self.end_of(container.id).await
    }

    /// Until a node says that a container runs: its process will, or does.
    pub async fn until_running(&self, container: &Container) {
        self.until_node_says(container, ContainerState::Running).await;
    }

    /// Until a container's node says so: without an active ResourceManager nobody else can.
    pub async fn until_node_says(&self, container: &Container, state: ContainerState) {
        let deadline = soon();
        loop {
            let status = self.status(&container.node, container.id).await;
            if status.state == state {
                return;
            }
            assert!(Instant::now() < deadline, "{status:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Gives containers back, and waits for their ends.
    pub async fn release(&mut self, containers: &[Container]) {
        let request = AllocateRequest {
            releases: containers.iter().map(|container| container.id).collect(),
            ..AllocateRequest::default()
        };
        self.beat(request).await.expect("a beat");
        for container in containers {
            self.end_of(container.id).await;
        }
    }

    /// What a node says of a container.
    pub async fn status(&self, node: &NodeId, id: ContainerId) -> ContainerStatus {
        let each = self.nodes.status(node, &[id], soon()).await;
        let (_, status) = each.expect("an answer").remove(0);
        status.expect("a status")
    }

    /// What the ResourceManager tells in the end; it writes an end down a moment after it is made.
    pub async fn report_when_over(&self) -> ApplicationReport {
        end_of(&self.client, self.id).await
    }

    pub async fn finish(&mut self) {
        let finish =
            Finish { diagnostics: "all is well".into(), ..Finish::new(FinalStatus::Succeeded) };
        self.scheduler.finish(&finish, soon()).await.expect("the end");
    }
}

/// What the ResourceManager tells of an application, once it is over.
pub async fn end_of(client: &Client, id: ApplicationId) -> ApplicationReport {
    let deadline = soon();
    loop {
        let report = client.application(id, deadline).await;
        let report = report.expect("a report");
        if report.state.is_over() {
            return report;
        }
        assert!(Instant::now() < deadline, "{report:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// A line to the scheduler for whoever holds the token.
pub fn line(cluster: &Cluster, token: Token) -> AmRmClient {
    let addresses = cluster.resource_managers().iter().map(|rm| rm.scheduler);
    let addresses = addresses.map(|at| Address::new(at.ip().to_string(), at.port()));
    let options = rpc::Options::default();
    AmRmClient::new(addresses.collect(), token, options).expect("a line")
}

pub fn registration() -> Registration {
    Registration {
        port: Some(1234),
        tracking_url: "http://127.0.0.1:1/".into(),
        ..Registration::new("127.0.0.1")
    }
}
