//! Master for tests: it runs in the test's own process, and heartbeats while it waits.

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

/// Returns the Hadoop version to test with. All tests pass with every version of the test bed.
pub fn version() -> Version {
    match std::env::var("HADOOP_VERSION") {
        Ok(name) => name.parse().unwrap_or_else(|failure| panic!("HADOOP_VERSION: {failure}")),
        Err(_) => Version::NEWEST,
    }
}

/// Serialises the tests that start their own cluster: one such cluster at a time in a process.
pub async fn cluster_lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::const_new(());
    LOCK.lock().await
}

/// Returns the options for a cluster with three nodes and no HDFS.
pub fn options() -> Options {
    Options { nodes: 3, hdfs: Hdfs::None, ..Options::new(version()) }
}

pub fn small() -> Resource {
    Resource::new(128, 1)
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Creates a directory for a test's files, which is removed with the cluster.
pub fn scratch(cluster: &Cluster, name: &str) -> PathBuf {
    let path = cluster.directory().join("scratch").join(name);
    std::fs::create_dir_all(&path).expect("a directory");
    path
}

/// Returns a command that creates a file of its own, waits for `file`, and exits with a code.
pub fn wait_then_exit(file: &Path, code: i32) -> LaunchContext {
    let directory = file.parent().expect("a directory").display();
    let file = file.display();
    // It also ends when the cluster's directory is removed: a busy test may take long, and a failed
    // test must leave nothing behind.
    LaunchContext::command(format!(
        "touch {file}.$CONTAINER_ID; while test -d {directory}; do test -e {file} && exit {code}; sleep 0.1; done; \
         exit 99"
    ))
}

/// Waits until the process of [`wait_then_exit`] runs. Its node reports the container as running
/// before that, and a signal would have no effect.
pub async fn process_started(file: &Path, id: ContainerId) {
    let (path, deadline) = (format!("{}.{id}", file.display()), soon());
    while !Path::new(&path).exists() {
        assert!(Instant::now() < deadline, "timed out waiting for {path}");
        sleep(Duration::from_millis(50)).await;
    }
}

pub struct Master {
    pub client: Client,
    pub scheduler: AmRmClient,
    pub nodes: NmClient,
    pub id: ApplicationId,
    pub registered: RegisterResponse,
    /// Token that the attempt started with.
    pub token: Token,
    /// Granted containers that [`Master::obtain`] has not returned yet.
    pub granted: Vec<Container>,
    /// Ended containers.
    pub ended: BTreeMap<ContainerId, ContainerStatus>,
    /// All responses.
    pub answers: Vec<AllocateResponse>,
    /// Number of registrations.
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
            // The token is available until the master registers.
            let token = client.master_token(id, deadline).await.expect("a report");
            match token {
                Some(token) => break token,
                None => assert!(Instant::now() < deadline, "no token came"),
            }
            sleep(Duration::from_millis(20)).await;
        };
        Self::with_token(cluster, client, id, token).await
    }

    /// Registers a master with the token of its attempt.
    pub async fn with_token(
        cluster: &Cluster,
        client: Client,
        id: ApplicationId,
        token: Token,
    ) -> Self {
        let scheduler = scheduler_client(cluster, token.clone());
        let nodes = NmClient::new(NmClientOptions::default());
        Self::register(client, scheduler, nodes, id, token).await
    }

    /// Registers a master with these clients.
    pub async fn register(
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

    /// Sends one heartbeat. If the master has to register again, `request` is not sent.
    pub async fn heartbeat(&mut self, request: AllocateRequest) -> Result<(), SchedulerError> {
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
            // After a restart of the ResourceManager an end may be reported twice.
            self.ended.entry(status.id).or_insert_with(|| status.clone());
        }
        self.answers.push(answer);
        Ok(())
    }

    /// Heartbeats until a condition is met.
    pub async fn until<T>(&mut self, what: &str, condition: impl Fn(&mut Self) -> Option<T>) -> T {
        let deadline = soon();
        loop {
            if let Some(value) = condition(self) {
                return value;
            }
            assert!(Instant::now() < deadline, "timed out waiting for {what}");
            sleep(Duration::from_millis(50)).await;
            self.heartbeat(AllocateRequest::default()).await.expect("a heartbeat");
        }
    }

    /// Returns an unused request id.
    pub fn fresh_id(&mut self) -> i64 {
        self.next_request += 1;
        self.next_request
    }

    /// Obtains containers anywhere.
    pub async fn obtain(&mut self, count: u32, resource: Resource) -> Vec<Container> {
        let id = self.fresh_id();
        self.obtain_by(vec![Ask::anywhere(id, resource, count)], count).await
    }

    /// Obtains a container on a host and nowhere else.
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

    /// Obtains the containers of asks that share one request id.
    pub async fn obtain_by(&mut self, asks: Vec<Ask>, count: u32) -> Vec<Container> {
        let id = asks[0].request_id;
        let request = AllocateRequest { asks, ..AllocateRequest::default() };
        self.heartbeat(request).await.expect("a heartbeat");
        self.of_request(id, count as usize).await
    }

    /// Waits for the containers of a request.
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

    /// Waits for the end of a container.
    pub async fn end_of(&mut self, id: ContainerId) -> ContainerStatus {
        self.until(&format!("the end of {id}"), |master| master.ended.get(&id).cloned()).await
    }

    /// Runs a command in a new container and returns its end.
    pub async fn run(&mut self, launch: &LaunchContext) -> ContainerStatus {
        let container = self.obtain(1, small()).await.remove(0);
        self.start(&container, launch).await;
        self.end_of(container.id).await
    }

    /// Waits until the node reports a container as running: its process has started or is about to.
    pub async fn until_running(&self, container: &Container) {
        self.until_node_reports(container, ContainerState::Running).await;
    }

    /// Waits until the node reports a state. Without an active ResourceManager only the node can.
    pub async fn until_node_reports(&self, container: &Container, state: ContainerState) {
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

    /// Releases containers and waits for their ends.
    pub async fn release(&mut self, containers: &[Container]) {
        let request = AllocateRequest {
            releases: containers.iter().map(|container| container.id).collect(),
            ..AllocateRequest::default()
        };
        self.heartbeat(request).await.expect("a heartbeat");
        for container in containers {
            self.end_of(container.id).await;
        }
    }

    /// Returns the status of a container from its node.
    pub async fn status(&self, node: &NodeId, id: ContainerId) -> ContainerStatus {
        let each = self.nodes.status(node, &[id], soon()).await;
        let (_, status) = each.expect("an answer").remove(0);
        status.expect("a status")
    }

    /// Waits for the final report; the ResourceManager writes it a moment after the end.
    pub async fn report_when_over(&self) -> ApplicationReport {
        end_of(&self.client, self.id).await
    }

    pub async fn finish(&mut self) {
        let finish =
            Finish { diagnostics: "all is well".into(), ..Finish::new(FinalStatus::Succeeded) };
        self.scheduler.finish(&finish, soon()).await.expect("finished");
    }
}

/// Waits for the final report of an application.
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

/// Creates a scheduler client for the holder of a token.
pub fn scheduler_client(cluster: &Cluster, token: Token) -> AmRmClient {
    let addresses = cluster.resource_managers().iter().map(|rm| rm.scheduler);
    let addresses = addresses.map(|at| Address::new(at.ip().to_string(), at.port()));
    let options = rpc::Options::default();
    AmRmClient::new(addresses.collect(), token, options).expect("a client")
}

pub fn registration() -> Registration {
    Registration {
        port: Some(1234),
        tracking_url: "http://127.0.0.1:1/".into(),
        ..Registration::new("127.0.0.1")
    }
}
