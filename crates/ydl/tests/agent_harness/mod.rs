//! Harness of one real agent: the test plays its master.

#![allow(dead_code, reason = "each test uses a part of it")]

use hyper::StatusCode;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::{sleep, timeout},
};
use yarn_native::credentials::{Credentials, Format};
use ydl::{
    agent::bootstrap::BOOTSTRAP_SECRET, agent::bootstrap::Bootstrap,
    agent::bootstrap::BootstrapSecret,
};
use ydl_core::{
    AttemptRun, Cluster, ContainerId, Order, ProgramExit, Span, TaskId, Time,
    spec::{Environment, JobSpecBuilder, Output},
};
use ydl_jobfile as jobfile;
use ydl_net::{
    request::{Head, Reply, Request},
    secret::{Scope, Secret, Token},
    server::{Limits, listen, serve},
    tls::Identity,
};
use ydl_proto::{
    files::{
        HadoopConfig, JobDir, JobTarget, LocalResources, StagedFile, StagedFiles, SubmittedJob,
    },
    messages::{AgentReport, NumberedRequest, Sync, SyncReply},
    version::{to_json, write_json},
};

/// Timeout of each wait, far more than any of them takes.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Sync request of the agent that waits for its response.
pub struct PendingSync {
    pub sync: Sync,
    /// Time for which a master without news holds the request.
    pub hold: Duration,
    respond: oneshot::Sender<Reply>,
}

impl PendingSync {
    pub fn send_requests(self, requests: &[NumberedRequest]) {
        self.respond(Reply { status: StatusCode::ACCEPTED, ..Reply::json(requests) });
    }

    pub fn respond(self, reply: Reply) {
        // The agent may have sent a new request meanwhile and dropped the receiver of this response.
        drop(self.respond.send(reply));
    }

    pub fn order(self, number: u64, order: &Order) {
        let order = order.clone();
        self.respond(Reply::json(&SyncReply { number, order, tokens: 0, env: BTreeMap::new() }));
    }
}

/// Settings of an agent in a container of a cluster.
pub struct ClusterSetup {
    /// Directory of the job in HDFS.
    pub dir: String,
    /// Home directory of the user.
    pub home: String,
    /// Hadoop's configuration.
    pub config: BTreeMap<String, String>,
    pub user: String,
    /// Outputs and their destinations.
    pub outputs: Vec<(String, String)>,
}

impl ClusterSetup {
    /// Returns settings with an unreachable file system: port 1 has no listener.
    pub fn unreachable() -> ClusterSetup {
        let root = "hdfs://127.0.0.1:1";
        ClusterSetup {
            dir: format!("{root}/user/me/.ydl/jobs/t-aaaaaa"),
            home: format!("{root}/user/me"),
            config: BTreeMap::from([("fs.defaultFS".to_owned(), root.to_owned())]),
            user: "me".to_owned(),
            outputs: Vec::new(),
        }
    }
}

/// Agent of a job with one task, and the endpoints of its master.
pub struct AgentHarness {
    pub dir: TempDir,
    pub agent: Child,
    pub syncs: mpsc::Receiver<PendingSync>,
    /// Log replies of the agent.
    pub log_replies: mpsc::Receiver<Request>,
    server: MasterServer,
    master: AbortHandle,
}

/// Master API that passes requests to the test.
#[derive(Clone)]
struct MasterServer {
    syncs_tx: mpsc::Sender<PendingSync>,
    log_replies: mpsc::Sender<Request>,
    tls: Arc<rustls::ServerConfig>,
    secret: Arc<Secret>,
}

impl AgentHarness {
    /// Starts an agent as the local backend does. `script` is the program of the task; `more` is added to the job file.
    pub fn new(script: &str, more: &str) -> AgentHarness {
        AgentHarness::at(script, more, None)
    }

    /// Starts an agent as a NodeManager does.
    pub fn in_container(script: &str, more: &str, store: ClusterSetup) -> AgentHarness {
        AgentHarness::at(script, more, Some(store))
    }

    fn at(script: &str, more: &str, store: Option<ClusterSetup>) -> AgentHarness {
        let dir = tempfile::tempdir().expect("a directory");
        let job = JobDir::at(dir.path());
        let file = dir.path().join("job.yaml");
        let script = serde_json::to_string(script).expect("a string");
        let yaml = format!("name: t\nroles: {{worker: {{shell: {script}}}}}\n{more}\n");
        std::fs::write(&file, yaml).expect("a job file");
        let job_file = jobfile::load(&file).and_then(|file| file.job());
        let mut draft = JobSpecBuilder::from(job_file.expect("a job"));
        if let Some(store) = &store {
            let output = |(from, to): &(String, String)| Output::new(from, to);
            draft.outputs = store.outputs.iter().map(output).collect();
            draft.environment = Environment::Archive("env.tar.gz".to_owned());
            std::fs::create_dir_all(dir.path().join("environment/venv/bin")).expect("a directory");
        }
        let submitted = SubmittedJob {
            id: "t-aaaaaa".to_owned(),
            at: Time(0),
            from: dir.path().to_owned(),
            spec: draft.build().expect("a job"),
            target: job_target(store.as_ref()),
        };
        write_json(&job.submitted_file(), &submitted).expect("job.json");

        let (identity, secret) = (Identity::generate().unwrap(), Secret::random().unwrap());
        std::fs::write(job.certificate_file(), identity.certificate_pem()).unwrap();
        let (tls, secret) = (identity.server().unwrap(), Arc::new(secret));
        let (syncs_tx, syncs) = mpsc::channel::<PendingSync>(16);
        let (log_replies_tx, log_replies) = mpsc::channel(16);
        let server = MasterServer {
            syncs_tx,
            log_replies: log_replies_tx,
            tls,
            secret: Arc::clone(&secret),
        };
        let (address, master) = server.clone().open();
        let container = ContainerId::from("container_1");
        let container_dir = job.container(&container);
        let bootstrap = Bootstrap {
            job: dir.path().to_owned(),
            container,
            master: address,
            host: "127.0.0.1".to_owned(),
            staging: None,
            gpus: None,
        };
        let log = std::fs::File::create(dir.path().join("agent.log")).expect("a log");
        let mut agent = Command::new(ydl_testkit::ydl());
        agent.arg("agent").stdin(Stdio::null()).stderr(log);
        match store {
            None => {
                let token = |scope: Scope| secret.token(&scope);
                bootstrap.write(&container_dir, token).expect("a directory");
                agent.arg(&container_dir);
            }
            Some(store) => {
                let tokens = dir.path().join("container_tokens");
                agent
                    .current_dir(dir.path())
                    .env("HADOOP_TOKEN_FILE_LOCATION", tokens)
                    .env("NM_HOST", "127.0.0.1")
                    .env("USER", &store.user)
                    .env("CUDA_VISIBLE_DEVICES", "3,5");
                write_credentials(dir.path(), bootstrap, store, &secret);
            }
        }
        let agent = agent.spawn().expect("an agent");
        AgentHarness { dir, agent, syncs, log_replies, server, master }
    }

    /// Replaces the master by another one. Returns its address.
    pub fn replace_master(&mut self) -> String {
        self.master.abort();
        let (address, master) = self.server.clone().open();
        self.master = master;
        address
    }

    /// Returns the log of the agent.
    pub fn agent_log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("agent.log")).unwrap_or_default()
    }

    /// Orders the program to run. The next report is its start or already its exit.
    pub async fn start(&mut self) {
        self.next_sync().await.order(1, &wait(1));
        self.next_report().await.order(2, &run(1));
    }

    /// Answers syncs without news until `done`.
    pub async fn wait_until(
        &mut self,
        what: &str,
        mut done: impl AsyncFnMut(&mut AgentHarness) -> bool,
    ) {
        let deadline = Instant::now() + 2 * TIMEOUT;
        while !done(self).await {
            assert!(Instant::now() < deadline, "no {what}; {}", self.agent_log());
            if let Ok(Some(pending)) = timeout(Duration::from_millis(50), self.syncs.recv()).await {
                pending.respond(Reply::empty());
            }
        }
    }

    /// Waits for the program's exit, then orders the agent to upload outputs and stop. Returns the exit and the upload
    /// error.
    pub async fn finish(&mut self) -> (ProgramExit, Option<String>) {
        let exited = |it: &AgentReport| match it {
            AgentReport::Exited { exit, .. } => Some(exit.clone()),
            _ => None,
        };
        let deadline = Instant::now() + 2 * TIMEOUT;
        let exit = loop {
            assert!(Instant::now() < deadline, "the program did not exit; {}", self.agent_log());
            let pending = self.next_report().await;
            let exit = pending.sync.reports.iter().find_map(exited);
            match exit {
                Some(exit) => {
                    pending.order(9, &stop());
                    break exit;
                }
                None => pending.respond(Reply::empty()),
            }
        };
        let saved = |it: &AgentReport| match it {
            AgentReport::Stopped { upload_error } => Some(upload_error.clone()),
            _ => None,
        };
        loop {
            let pending = self.next_report().await;
            let error = pending.sync.reports.iter().find_map(saved);
            pending.respond(Reply::empty());
            if let Some(error) = error {
                return (exit, error);
            }
        }
    }

    pub async fn next_sync(&mut self) -> PendingSync {
        let sync = timeout(TIMEOUT, self.syncs.recv()).await;
        sync.expect("a sync request").expect("the server lives")
    }

    /// Returns the next sync with reports. Answers others without news.
    pub async fn next_report(&mut self) -> PendingSync {
        let deadline = Instant::now() + 2 * TIMEOUT;
        loop {
            assert!(Instant::now() < deadline, "the agent sent no report; {}", self.agent_log());
            let pending = self.next_sync().await;
            if !pending.sync.reports.is_empty() {
                return pending;
            }
            pending.respond(Reply::empty());
        }
    }

    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            // Drop pending requests without a response.
            while self.syncs.try_recv().is_ok() {}
            if let Some(status) = self.agent.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the agent does not exit");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the agent's next log reply: number of the request, query, body.
    pub async fn next_log_reply(&mut self) -> (u64, BTreeMap<String, String>, Vec<u8>) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            assert!(Instant::now() < deadline, "the agent sent no log reply; {}", self.agent_log());
            tokio::select! {
                Some(request) = self.log_replies.recv() => {
                    let query = request.head.query;
                    return (query["request"].parse().expect("a number"), query, request.body);
                }
                Some(pending) = self.syncs.recv() => pending.respond(Reply::empty()),
                () = sleep(Duration::from_millis(100)) => {}
            }
        }
    }

    pub fn log(&self) -> PathBuf {
        self.dir.path().join("logs/worker/0/1/stdout.0")
    }
}

impl Drop for AgentHarness {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn job_target(store: Option<&ClusterSetup>) -> JobTarget {
    let Some(store) = store else {
        return JobTarget::Local(LocalResources { memory_mib: 1024, vcores: 1, gpus: Vec::new() });
    };
    let binary = StagedFile {
        url: format!("{}/ydl", store.home),
        bytes: 1,
        modified_ms: 1,
        unpack: false,
        own: false,
    };
    JobTarget::Yarn(StagedFiles {
        dir: store.dir.clone(),
        home: store.home.clone(),
        binary,
        files: BTreeMap::new(),
        environment: BTreeMap::new(),
    })
}

/// Writes the files of an agent on a cluster: credentials with its bootstrap secret, and the client's configuration.
fn write_credentials(dir: &Path, bootstrap: Bootstrap, store: ClusterSetup, secret: &Secret) {
    let name = bootstrap.container.as_str().to_owned();
    let token = |scope: Scope| secret.token(&scope).expect("a token").as_str().to_owned();
    let delivered = BootstrapSecret {
        agent_token: token(Scope::Agent(name.clone())),
        program_token: token(Scope::Program(name)),
        bootstrap: Bootstrap {
            job: PathBuf::new(),
            host: String::new(),
            staging: Some(store.dir),
            ..bootstrap
        },
    };
    let mut credentials = Credentials::default();
    let json = to_json(&delivered).expect("json");
    credentials.set_secret(BOOTSTRAP_SECRET, json);
    let file = dir.join("container_tokens");
    credentials.write(&file, Format::Writable).expect("a file");
    let config = HadoopConfig { properties: store.config };
    write_json(&dir.join("hadoop.json"), &config).expect("a configuration");
}

impl MasterServer {
    /// Serves the API at a new address. The test answers syncs.
    fn open(self) -> (String, AbortHandle) {
        let listener = listen("127.0.0.1:0".parse().unwrap()).expect("a socket");
        let address = listener.local_addr().unwrap().to_string();
        let secret = self.secret;
        let admit = move |head: &Head| {
            let bearer = head.bearer.as_ref().map_or("", Token::as_str);
            secret.verify(bearer).ok_or_else(Reply::empty)
        };
        let respond = move |_: Scope, request: Request| {
            let (syncs_tx, log_replies) = (self.syncs_tx.clone(), self.log_replies.clone());
            async move {
                if request.head.path() == ["v1", "log-reply"] {
                    // The test may be over.
                    let _ = log_replies.send(request).await;
                    return Reply::empty();
                }
                let sync = serde_json::from_slice(&request.body).expect("a sync");
                let hold = request.head.query["wait_ms"].parse().expect("a number");
                let hold = Duration::from_millis(hold);
                let (respond, response) = oneshot::channel();
                let _ = syncs_tx.send(PendingSync { sync, hold, respond }).await;
                match response.await {
                    Ok(reply) => reply,
                    // Dropped by the test: the request gets no response.
                    Err(_) => std::future::pending().await,
                }
            }
        };
        let never = std::future::pending();
        let limits = Limits::default();
        let serving = tokio::spawn(serve(listener, Some(self.tls), limits, never, admit, respond));
        (address, serving.abort_handle())
    }
}

pub fn wait(round: u32) -> Order {
    Order::Wait { round, task: task(), ports: Vec::new(), slot: (0, 1), grace: Span::seconds(1) }
}

pub fn run(round: u32) -> Order {
    Order::Run(AttemptRun {
        task: task(),
        round,
        attempt: 1,
        cluster: Arc::new(Cluster::default()),
        env: Default::default(),
    })
}

pub fn stop() -> Order {
    Order::Stop { grace: Span::seconds(1), upload: true }
}

pub fn task() -> TaskId {
    "worker:0".parse().expect("a task")
}
