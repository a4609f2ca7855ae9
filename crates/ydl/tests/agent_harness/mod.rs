//! One real agent, and a master that a test plays.

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
    Cluster, ContainerId, Order, ProgramExit, Run, Span, TaskId, Time,
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

/// Far more than anything here takes; reached only when something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A question of the agent, and where its answer goes.
pub struct Asked {
    pub sync: Sync,
    /// Time for which a master without news holds the request.
    pub hold: Duration,
    answer: oneshot::Sender<Reply>,
}

impl Asked {
    pub fn wish(self, wishes: &[NumberedRequest]) {
        self.answer(Reply { status: StatusCode::ACCEPTED, ..Reply::json(wishes) });
    }

    pub fn answer(self, reply: Reply) {
        // The agent may have sent a new request meanwhile and dropped the receiver of this response.
        drop(self.answer.send(reply));
    }

    pub fn order(self, number: u64, order: &Order) {
        let order = order.clone();
        self.answer(Reply::json(&SyncReply { number, order, tokens: 0, env: BTreeMap::new() }));
    }
}

/// A file system for an agent in a container of a cluster.
pub struct Store {
    /// The job's directory.
    pub dir: String,
    /// The user's.
    pub home: String,
    /// Hadoop's configuration.
    pub config: BTreeMap<String, String>,
    pub user: String,
    /// Outputs and their destinations.
    pub outputs: Vec<(String, String)>,
}

impl Store {
    /// Returns a file system that is unreachable: port 1 has no listener.
    pub fn none() -> Store {
        let root = "hdfs://127.0.0.1:1";
        Store {
            dir: format!("{root}/user/me/.ydl/jobs/t-aaaaaa"),
            home: format!("{root}/user/me"),
            config: BTreeMap::from([("fs.defaultFS".to_owned(), root.to_owned())]),
            user: "me".to_owned(),
            outputs: Vec::new(),
        }
    }
}

/// An agent of a job of one task that runs this script.
pub struct Scene {
    pub dir: TempDir,
    pub agent: Child,
    pub questions: mpsc::Receiver<Asked>,
    /// Results of log searches by the agent.
    pub logged: mpsc::Receiver<Request>,
    doors: Doors,
    master: AbortHandle,
}

/// Where a master hands on what it is asked.
#[derive(Clone)]
struct Doors {
    ask: mpsc::Sender<Asked>,
    logged: mpsc::Sender<Request>,
    tls: Arc<rustls::ServerConfig>,
    secret: Arc<Secret>,
}

impl Scene {
    /// On this machine.
    pub fn new(script: &str, more: &str) -> Scene {
        Scene::at(script, more, None)
    }

    /// As a NodeManager starts it.
    pub fn in_container(script: &str, more: &str, store: Store) -> Scene {
        Scene::at(script, more, Some(store))
    }

    fn at(script: &str, more: &str, store: Option<Store>) -> Scene {
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
            target: place(store.as_ref()),
        };
        write_json(&job.submitted_file(), &submitted).expect("job.json");

        let (identity, secret) = (Identity::generate().unwrap(), Secret::random().unwrap());
        std::fs::write(job.certificate_file(), identity.certificate_pem()).unwrap();
        let (tls, secret) = (identity.server().unwrap(), Arc::new(secret));
        let (ask, questions) = mpsc::channel::<Asked>(16);
        let (found, logged) = mpsc::channel(16);
        let doors = Doors { ask, logged: found, tls, secret: Arc::clone(&secret) };
        let (address, master) = doors.clone().open();
        let container = ContainerId::from("container_1");
        let place = job.container(&container);
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
                bootstrap.write(&place, token).expect("a directory");
                agent.arg(&place);
            }
            Some(store) => {
                let tokens = dir.path().join("container_tokens");
                agent
                    .current_dir(dir.path())
                    .env("HADOOP_TOKEN_FILE_LOCATION", tokens)
                    .env("NM_HOST", "127.0.0.1")
                    .env("USER", &store.user)
                    .env("CUDA_VISIBLE_DEVICES", "3,5");
                deliver(dir.path(), bootstrap, store, &secret);
            }
        }
        let agent = agent.spawn().expect("an agent");
        Scene { dir, agent, questions, logged, doors, master }
    }

    /// The master is gone, and another is at the address that is returned.
    pub fn another_master(&mut self) -> String {
        self.master.abort();
        let (address, master) = self.doors.clone().open();
        self.master = master;
        address
    }

    /// Returns the log of the agent.
    pub fn words(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("agent.log")).unwrap_or_default()
    }

    /// Orders the program to run. What comes of it is reported next, and may be its end already.
    pub async fn start(&mut self) {
        self.next().await.order(1, &wait(1));
        self.report().await.order(2, &run(1));
    }

    /// Keeps the agent content until `done`.
    pub async fn until(&mut self, what: &str, mut done: impl AsyncFnMut(&mut Scene) -> bool) {
        let end = Instant::now() + 2 * PATIENCE;
        while !done(self).await {
            assert!(Instant::now() < end, "no {what}; {}", self.words());
            if let Ok(Some(asked)) = timeout(Duration::from_millis(50), self.questions.recv()).await
            {
                asked.answer(Reply::empty());
            }
        }
    }

    /// Waits for the program's end, then has everything saved; what could not be is returned.
    pub async fn end(&mut self) -> (ProgramExit, Option<String>) {
        let exited = |it: &AgentReport| match it {
            AgentReport::Exited { exit, .. } => Some(exit.clone()),
            _ => None,
        };
        let patience = Instant::now() + 2 * PATIENCE;
        let exit = loop {
            assert!(Instant::now() < patience, "no end; {}", self.words());
            let asked = self.report().await;
            let exit = asked.sync.reports.iter().find_map(exited);
            match exit {
                Some(exit) => {
                    asked.order(9, &stop());
                    break exit;
                }
                None => asked.answer(Reply::empty()),
            }
        };
        let saved = |it: &AgentReport| match it {
            AgentReport::OutputsUploaded { error } => Some(error.clone()),
            _ => None,
        };
        loop {
            let asked = self.report().await;
            let error = asked.sync.reports.iter().find_map(saved);
            asked.answer(Reply::empty());
            if let Some(error) = error {
                return (exit, error);
            }
        }
    }

    pub async fn next(&mut self) -> Asked {
        let next = timeout(PATIENCE, self.questions.recv()).await;
        next.expect("the agent asks").expect("the server lives")
    }

    /// The first question that says something; others are told that nothing is new, after a while.
    pub async fn report(&mut self) -> Asked {
        let end = Instant::now() + 2 * PATIENCE;
        loop {
            assert!(Instant::now() < end, "nothing to say; {}", self.words());
            let asked = self.next().await;
            if !asked.sync.reports.is_empty() {
                return asked;
            }
            asked.answer(Reply::empty());
        }
    }

    pub async fn left(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            // Drop pending requests without a response.
            while self.questions.try_recv().is_ok() {}
            if let Some(status) = self.agent.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < end, "the agent does not leave");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the agent's next search result, with the number of its request.
    pub async fn found(&mut self) -> (u64, BTreeMap<String, String>, Vec<u8>) {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "nothing found; {}", self.words());
            tokio::select! {
                Some(request) = self.logged.recv() => {
                    let query = request.head.query;
                    return (query["request"].parse().expect("a number"), query, request.body);
                }
                Some(asked) = self.questions.recv() => asked.answer(Reply::empty()),
                () = sleep(Duration::from_millis(100)) => {}
            }
        }
    }

    pub fn log(&self) -> PathBuf {
        self.dir.path().join("logs/worker/0/1/stdout.0")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // It may have left already.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn place(store: Option<&Store>) -> JobTarget {
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
fn deliver(dir: &Path, bootstrap: Bootstrap, store: Store, secret: &Secret) {
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

impl Doors {
    /// A master at a new address, whose questions the test answers.
    fn open(self) -> (String, AbortHandle) {
        let listener = listen("127.0.0.1:0".parse().unwrap()).expect("a socket");
        let address = listener.local_addr().unwrap().to_string();
        let secret = self.secret;
        let admit = move |head: &Head| {
            let bearer = head.bearer.as_ref().map_or("", Token::as_str);
            secret.verify(bearer).ok_or_else(Reply::empty)
        };
        let answer = move |_: Scope, request: Request| {
            let (ask, logged) = (self.ask.clone(), self.logged.clone());
            async move {
                if request.head.path() == ["v1", "log-reply"] {
                    // The test may be over.
                    let _ = logged.send(request).await;
                    return Reply::empty();
                }
                let sync = serde_json::from_slice(&request.body).expect("a question");
                let hold = request.head.query["wait_ms"].parse().expect("a number");
                let hold = Duration::from_millis(hold);
                let (answer, answered) = oneshot::channel();
                let _ = ask.send(Asked { sync, hold, answer }).await;
                match answered.await {
                    Ok(reply) => reply,
                    // Thrown away: it is never answered.
                    Err(_) => std::future::pending().await,
                }
            }
        };
        let never = std::future::pending();
        let limits = Limits::default();
        let serving = tokio::spawn(serve(listener, self.tls, limits, never, admit, answer));
        (address, serving.abort_handle())
    }
}

pub fn wait(round: u32) -> Order {
    Order::Wait { round, task: task(), ports: Vec::new(), slot: (0, 1), grace: Span::seconds(1) }
}

pub fn run(round: u32) -> Order {
    Order::Run(Run { task: task(), round, attempt: 1, cluster: Arc::new(Cluster::default()) })
}

pub fn stop() -> Order {
    Order::Stop { grace: Span::seconds(1), upload: true }
}

pub fn task() -> TaskId {
    "worker:0".parse().expect("a task")
}
