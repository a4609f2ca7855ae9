//! A thousand agents on real sockets with TLS: how long until all have joined, run and been released, and what the
//! master's memory is while they wait.
//!
//! The master is the real one, in a process of its own so that its memory can be told from the agents'. Its backend
//! grants containers and starts nothing; the agents are tasks of this process that speak the real protocol.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::Barrier, task::JoinSet};
use ydl::{
    backend::Backend, backend::Fenced, backend::Launch, master::event_loop::Master,
    master::inbox::inbox, master::journal::FileJournal, master::recovered::Recovered,
    master::serve,
};
use ydl_core::{
    Asks, ContainerId, Endpoint, Event, Grant, JobSpec, JobSpecBuilder, NodeName, Order, Outcome,
    ProgramExit, RoleName,
    spec::{Command as Run, Gang, Resources, Restart, RestartScope, RoleSpec},
    time::Span,
};
use ydl_net::{
    client::{Client, Payload},
    secret::{Scope, Secret},
    server,
    tls::{Identity, Pin},
};
use ydl_proto::{
    files::JobDir,
    messages::{AgentReport, Sync, SyncReply},
};

/// Grants everything at once and starts nothing.
#[derive(Debug, Default)]
struct Paper {
    happened: VecDeque<Event>,
    granted: u32,
}

impl Backend for Paper {
    fn set_asks(&mut self, asks: Asks) {
        let mut grants = Vec::new();
        for ask in asks.asks {
            for _ in 0..ask.count {
                grants.push(Grant {
                    container: container(self.granted),
                    role: ask.role.clone(),
                    node: NodeName::from("paper"),
                    resources: ask.resources.clone(),
                });
                self.granted += 1;
            }
        }
        self.happened.push_back(Event::Granted { grants });
    }

    fn launch(&mut self, container: ContainerId, _: Launch) {
        self.happened.push_back(Event::Launched { container });
    }

    fn release(&mut self, _: ContainerId) {}

    async fn next(&mut self) -> Result<Event, Fenced> {
        match self.happened.pop_front() {
            Some(event) => Ok(event),
            None => std::future::pending().await,
        }
    }

    async fn close(&mut self, _: &Outcome) {}
}

fn container(n: u32) -> ContainerId {
    ContainerId::from(format!("container_{n:06}"))
}

fn spec(agents: u32) -> JobSpec {
    let role = RoleSpec {
        name: RoleName::from("worker"),
        instances: agents,
        resources: Resources { memory_mib: 1, vcores: 1, ..Resources::default() },
        command: Run::Program(vec!["true".to_owned()]),
        restart: Restart { scope: RestartScope::Job, ..Restart::default() },
        ..RoleSpec::default()
    };
    let draft = JobSpecBuilder {
        name: "bench".to_owned(),
        roles: vec![role],
        gang: Gang {
            together: true,
            retries: 0,
            backoff: Restart::default().backoff,
            settle: Span::seconds(2),
            ..Gang::default()
        },
        ..JobSpecBuilder::default()
    };
    draft.build().expect("the draft above is valid")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The master's side: prints where it is, its pin and its secret, and runs the job to its end.
fn master(agents: u32, dir: PathBuf) {
    runtime().block_on(async {
        let secret = Arc::new(Secret::random().expect("random bytes"));
        let identity = Identity::generate().expect("a certificate");
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = server::listen(any).expect("a port");
        let address = listener.local_addr().expect("an address");
        println!("{address} {} {}", identity.pin(), secret.to_hex());
        let (letters, inbox) = inbox();
        let tls = identity.server().expect("TLS");
        let serving = tokio::spawn(serve(listener, tls, secret, letters, std::future::pending()));
        let past = Recovered::new_job(spec(agents), None);
        let master = Master::new(past, JobDir::at(dir), Paper::default(), None::<FileJournal>);
        let outcome = master.run(inbox).await.expect("nobody deposes it");
        serving.abort();
        let peak = status_kib(std::process::id(), "VmHWM:") as f64 / 1024.0;
        println!("        the job {outcome}; the master's largest memory was {peak:.1} MiB");
    });
}

struct Meeting {
    /// Everybody has joined and waits for an order: the moment to look at the master's memory.
    joined: Barrier,
    looked: Barrier,
}

async fn agent(client: Client, meeting: Arc<Meeting>) {
    let mut reports = Vec::new();
    let mut seen = 0;
    let mut round = 0;
    let ran = &mut false;
    loop {
        let sync = Sync {
            reports: std::mem::take(&mut reports),
            order: seen,
            tokens: 0,
            last_request: 0,
            usage: None,
        };
        let payload = Payload::json(&sync).expect("JSON");
        let deadline = Duration::from_secs(60);
        let answer = client.call(hyper::Method::POST, "/v1/sync", payload, deadline).await;
        let answer = answer.expect("an answer");
        if answer.status == hyper::StatusCode::NO_CONTENT {
            continue;
        }
        let SyncReply { number, order, .. } = answer.json().expect("an order");
        seen = number;
        match order {
            Order::Wait { round: wanted, .. } if wanted != round => {
                if round == 0 {
                    meeting.joined.wait().await;
                    meeting.looked.wait().await;
                }
                round = wanted;
                let endpoint = Endpoint { host: "127.0.0.1".to_owned(), ports: Default::default() };
                reports.push(AgentReport::Ready { round, endpoint });
            }
            Order::Wait { .. } => {}
            Order::Run(run) => {
                if !std::mem::replace(ran, true) {
                    let exit = ProgramExit { code: Some(0), ..ProgramExit::default() };
                    reports.push(AgentReport::Started { round: run.round });
                    reports.push(AgentReport::Exited { round: run.round, exit });
                }
            }
            Order::Stop { .. } => {
                let sync = Sync {
                    reports: vec![AgentReport::OutputsUploaded { error: None }],
                    order: seen,
                    tokens: 0,
                    last_request: 0,
                    usage: None,
                };
                let payload = Payload::json(&sync).expect("JSON");
                // The last to leave may find the master gone: it has its answer.
                drop(client.call(hyper::Method::POST, "/v1/sync", payload, deadline).await);
                return;
            }
        }
    }
}

fn status_kib(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(what));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

fn measure(agents: u32) {
    let dir = std::env::temp_dir().join(format!("ydl-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .arg("--master")
        .arg(agents.to_string())
        .arg(&dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a master");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("a line");
    let mut words = line.split_whitespace();
    let mut word = || words.next().expect("address, pin and secret").to_owned();
    let (address, pin, secret) = (word(), word(), word());
    let pin = Pin::from_hex(&pin).expect("a pin");
    let secret = Secret::from_hex(&secret).expect("a secret");
    let idle = status_kib(child.id(), "VmRSS:");

    let start = Instant::now();
    let (joined, released, waiting) = runtime().block_on(async {
        let meeting = Arc::new(Meeting {
            joined: Barrier::new(agents as usize + 1),
            looked: Barrier::new(agents as usize + 1),
        });
        let mut all = JoinSet::new();
        for n in 0..agents {
            let token = secret.token(&Scope::Agent(container(n).to_string())).expect("a token");
            let client = Client::new(address.clone(), pin, &token).expect("a client");
            all.spawn(agent(client, meeting.clone()));
        }
        meeting.joined.wait().await;
        let joined = start.elapsed();
        let waiting = status_kib(child.id(), "VmRSS:");
        let go = Instant::now();
        meeting.looked.wait().await;
        while let Some(done) = all.join_next().await {
            done.expect("an agent");
        }
        (joined, go.elapsed(), waiting)
    });
    let mut last = String::new();
    stdout.read_to_string(&mut last).expect("the master's last words");
    child.wait().expect("the master's end");
    drop(std::fs::remove_dir_all(&dir));
    println!(
        "{agents:>6} agents: joined in {:>6.0} ms; ready, run, exited and released in {:>6.0} ms; \
         master {:.1} MiB at start, {:.1} MiB with all connected",
        joined.as_secs_f64() * 1e3,
        released.as_secs_f64() * 1e3,
        idle as f64 / 1024.0,
        waiting as f64 / 1024.0,
    );
    print!("{last}");
}

fn main() {
    let words: Vec<_> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == "--master") {
        master(words[2].parse().expect("a number"), PathBuf::from(&words[3]));
        return;
    }
    for agents in [10, 100, 1000] {
        measure(agents);
    }
}
