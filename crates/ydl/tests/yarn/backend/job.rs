//! Harness of the YARN backend: the test plays the master's event loop, and a script replaces the agent.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use testbed::Cluster;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use yarn_native::{
    Token,
    client::{Client, Submission},
    config::{Config, Environment},
    security::Identity,
    types::{ApplicationId, ApplicationReport},
};
use ydl::{
    backend::Backend, backend::Launch, backend::yarn::YarnBackend, backend::yarn::YarnSetup,
};
use ydl_core::{
    Ask, Asks, ContainerExit, ContainerId, Event, Grant, JobSpec, JobSpecBuilder, NodeName,
    Outcome, RoleName, TaskId,
    spec::{ClusterOptions, Command, Gang, Placement, Resources, Restart, RoleSpec},
    time::Span,
};
use ydl_net::secret::Secret;
use ydl_proto::files::{StagedFile, StagedFiles};
use ydl_storage::hdfs::AgentTokens;

pub const WAIT: Duration = Duration::from_secs(60);

pub fn soon() -> Instant {
    Instant::now() + WAIT
}

/// Replacement of the agent: runs the file named after its container once it exists.
/// Exits when the directory of the cluster is removed.
const SCRIPT: &str = "#!/bin/bash\nwhile test -d SCRATCH; do\n\
    test -e SCRATCH/$CONTAINER_ID && . SCRATCH/$CONTAINER_ID\nsleep 0.05\ndone\nexit 99\n";

pub struct Job {
    pub yarn: YarnBackend,
    pub client: Client,
    pub id: ApplicationId,
    pub secret: Arc<Secret>,
    scratch: PathBuf,
    /// All events so far.
    pub events: Vec<Event>,
    /// Outstanding containers, by role and size.
    wanted: BTreeMap<(RoleName, Resources), u32>,
    avoid: Vec<NodeName>,
    /// Asks sent last.
    sent_asks: Asks,
    /// Grants that the test has not taken yet.
    granted: Vec<Grant>,
}

/// Options of a test job.
pub struct JobOptions {
    pub name: &'static str,
    pub queue: &'static str,
    pub roles: Vec<(&'static str, Placement)>,
    pub cluster_options: ClusterOptions,
    pub script: Option<&'static str>,
    pub files: BTreeMap<String, StagedFile>,
}

impl JobOptions {
    pub fn new(name: &'static str) -> JobOptions {
        JobOptions {
            name,
            queue: "default",
            roles: vec![("worker", Placement::default())],
            cluster_options: ClusterOptions::default(),
            script: None,
            files: BTreeMap::new(),
        }
    }
}

pub fn size(memory_mib: u64) -> Resources {
    Resources { memory_mib, vcores: 1, ..Resources::default() }
}

pub fn small() -> Resources {
    size(64)
}

fn job_spec(options: &JobOptions) -> JobSpec {
    let role = |(name, placement): &(&str, Placement)| RoleSpec {
        name: RoleName::from(*name),
        resources: small(),
        command: Command::Program(vec!["true".to_owned()]),
        placement: placement.clone(),
        ..RoleSpec::default()
    };
    let draft = JobSpecBuilder {
        name: options.name.to_owned(),
        roles: options.roles.iter().map(role).collect(),
        gang: Gang {
            retries: 0,
            backoff: Restart::default().backoff,
            settle: Span::seconds(2),
            ..Gang::default()
        },
        cluster_options: options.cluster_options.clone(),
        ..JobSpecBuilder::default()
    };
    draft.build().expect("a valid job")
}

pub fn content(path: &Path) -> StagedFile {
    let metadata = fs::metadata(path).expect("a file");
    let modified = metadata.mtime() * 1000 + metadata.mtime_nsec() / 1_000_000;
    StagedFile {
        url: format!("file://{}", path.display()),
        bytes: metadata.len(),
        modified_ms: modified as u64,
        unpack: false,
        own: true,
    }
}

pub fn client(cluster: &Cluster) -> (Config, Client) {
    let directory = [cluster.configuration()];
    let config = Config::from_directories(&directory, Environment::of_process());
    let config = config.expect("a configuration");
    let client = Client::from_config(&config, Identity::simple(cluster.own_user()));
    (config, client.expect("a client"))
}

async fn submit(client: &Client, options: &JobOptions) -> (ApplicationId, Token) {
    let id = client.new_application(soon()).await.expect("an id").id;
    let submission = Submission {
        unmanaged: true,
        keep_containers: true,
        queue: options.queue.into(),
        ..Submission::new(id, options.name)
    };
    client.submit(&submission, soon()).await.expect("submitted");
    let deadline = soon();
    loop {
        // The token is available until the master registers.
        if let Some(token) = client.master_token(id, deadline).await.expect("a report") {
            return (id, token);
        }
        assert!(Instant::now() < deadline, "timed out waiting for the token");
        sleep(Duration::from_millis(20)).await;
    }
}

/// State of a submitted job, from which its application can register again.
pub struct SubmittedJob {
    config: Config,
    pub client: Client,
    pub id: ApplicationId,
    token: Token,
    user: String,
    spec: JobSpec,
    staged: StagedFiles,
    secret: Arc<Secret>,
    scratch: PathBuf,
}

impl SubmittedJob {
    pub async fn new(cluster: &Cluster, options: JobOptions) -> SubmittedJob {
        let scratch = cluster.directory().join("scratch").join(options.name);
        fs::create_dir_all(&scratch).expect("a directory");
        let binary = scratch.join("ydl");
        let script = options.script.unwrap_or(SCRIPT);
        let script = script.replace("SCRATCH", &scratch.display().to_string());
        fs::write(&binary, script).expect("a script");
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).expect("a mode");
        fs::write(scratch.join("job.json"), "{}").expect("a file");
        let (config, client) = client(cluster);
        let (id, token) = submit(&client, &options).await;
        SubmittedJob {
            config,
            client,
            id,
            token,
            user: cluster.own_user(),
            spec: job_spec(&options),
            staged: StagedFiles {
                dir: format!("hdfs://nowhere/jobs/{id}"),
                home: "hdfs://nowhere/".to_owned(),
                binary: content(&binary),
                files: options.files,
                environment: BTreeMap::new(),
            },
            secret: Arc::new(Secret::random().expect("random bytes")),
            scratch,
        }
    }

    /// Registers a master with these held containers. Returns those that the cluster reports as live.
    pub async fn register(&self, held: Vec<ContainerId>) -> (Job, Vec<ContainerId>) {
        let job_file = self.scratch.join("job.json");
        let setup = YarnSetup {
            config: self.config.clone(),
            token: self.token.clone(),
            identity: Some(Identity::simple(self.user.clone())),
            spec: self.spec.clone(),
            staged: self.staged.clone(),
            own: BTreeMap::from([("job.json".to_owned(), content(&job_file))]),
            secret: self.secret.clone(),
            agent_credentials: watch::channel(AgentTokens::default()).1,
            address: "127.0.0.1:4711".to_owned(),
            tracking_url: String::new(),
            final_tracking_url: String::new(),
            progress: 0.0,
            held,
        };
        let (yarn, live) = YarnBackend::register(setup).await.expect("registered");
        let job = Job {
            yarn,
            client: self.client.clone(),
            id: self.id,
            secret: self.secret.clone(),
            scratch: self.scratch.clone(),
            events: Vec::new(),
            wanted: BTreeMap::new(),
            avoid: Vec::new(),
            sent_asks: Asks::default(),
            granted: Vec::new(),
        };
        (job, live)
    }
}

impl Job {
    pub async fn new(cluster: &Cluster, options: JobOptions) -> Job {
        let begin = SubmittedJob::new(cluster, options).await;
        begin.register(Vec::new()).await.0
    }

    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    fn send_asks(&mut self) {
        let asks = self.wanted.iter().filter(|(_, count)| **count > 0);
        let ask = |((role, resources), count): (&(RoleName, Resources), &u32)| Ask {
            role: role.clone(),
            resources: resources.clone(),
            count: *count,
        };
        let asks = Asks { asks: asks.map(ask).collect(), avoid: self.avoid.clone() };
        // Like a master, sends asks only when they have changed.
        if asks != self.sent_asks {
            self.sent_asks = asks.clone();
            self.yarn.set_asks(asks);
        }
    }

    pub fn set_asks(&mut self, role: &str, count: u32, size: &Resources) {
        let key = (RoleName::from(role), size.clone());
        *self.wanted.entry(key).or_default() += count;
        self.send_asks();
    }

    pub fn cancel_asks(&mut self) {
        self.wanted.clear();
        self.send_asks();
    }

    pub fn avoid(&mut self, hosts: &[&str]) {
        self.avoid = hosts.iter().map(|host| NodeName::from(*host)).collect();
        self.send_asks();
    }

    /// Returns the next event; fails after a timeout.
    pub async fn next(&mut self) -> Event {
        let event = timeout(WAIT, self.yarn.next()).await;
        let event = event.unwrap_or_else(|_| panic!("no event; before: {:?}", self.events));
        let event = event.expect("not fenced");
        if let Event::Granted { grants } = &event {
            for grant in grants {
                // Grants may be larger than what was asked.
                let mut asks = self.wanted.iter_mut();
                let ask = asks.find(|((role, size), count)| {
                    *role == grant.role
                        && size.memory_mib <= grant.resources.memory_mib
                        && **count > 0
                });
                match ask {
                    Some((_, count)) => {
                        *count -= 1;
                        self.granted.push(grant.clone());
                    }
                    None => panic!("not requested: {grant:?}; before: {:?}", self.events),
                }
            }
            self.send_asks();
        }
        self.events.push(event.clone());
        event
    }

    pub async fn wait_for<T>(&mut self, what: &str, check: impl Fn(&Job) -> Option<T>) -> T {
        let deadline = soon();
        loop {
            if let Some(value) = check(self) {
                return value;
            }
            assert!(
                Instant::now() < deadline,
                "timed out waiting for {what}; events: {:?}",
                self.events
            );
            self.next().await;
        }
    }

    /// Waits for that many grants and takes them.
    pub async fn granted(&mut self, count: usize) -> Vec<Grant> {
        self.wait_for("grants", |job| (job.granted.len() >= count).then_some(())).await;
        self.granted.drain(..count).collect()
    }

    pub async fn request(&mut self, role: &str, count: u32, size: &Resources) -> Vec<Grant> {
        self.set_asks(role, count, size);
        self.granted(count as usize).await
    }

    pub fn launch(&mut self, grant: &Grant) {
        let launch = Launch {
            task: TaskId { role: grant.role.clone(), index: 0 },
            resources: grant.resources.clone(),
        };
        self.yarn.launch(grant.container.clone(), launch);
    }

    /// Launches all containers and waits until that is reported.
    pub async fn start(&mut self, grants: &[Grant]) {
        for grant in grants {
            self.launch(grant);
        }
        for grant in grants {
            let container = grant.container.clone();
            let launched = Event::Launched { container };
            self.wait_for("launch", |job| job.events.contains(&launched).then_some(())).await;
        }
    }

    /// Writes the script that a container runs.
    pub fn run_script(&self, container: &ContainerId, script: &str) {
        let temporary = self.scratch.join("script.tmp");
        fs::write(&temporary, format!("{script}\n")).expect("a file");
        fs::rename(&temporary, self.scratch.join(container.as_str())).expect("a name");
    }

    pub fn exit_of(&self, container: &ContainerId) -> Option<ContainerExit> {
        self.events.iter().find_map(|event| match event {
            Event::Ended { containers } => {
                containers.iter().find(|(id, _)| id == container).map(|(_, end)| end.clone())
            }
            _ => None,
        })
    }

    pub async fn wait_for_exit(&mut self, container: &ContainerId) -> ContainerExit {
        self.wait_for("end", |job| job.exit_of(container)).await
    }

    pub async fn close(mut self, outcome: Outcome) -> ApplicationReport {
        self.yarn.close(&outcome).await;
        let deadline = soon();
        loop {
            let report = self.client.application(self.id, deadline).await;
            let report = report.expect("a report");
            if report.state.is_over() {
                return report;
            }
            assert!(Instant::now() < deadline, "{report:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}
