//! A thousand agents on real sockets with TLS: time until all have joined, run and been released, and the master's
//! memory while they wait.
//!
//! The real master runs in a separate process, so that its memory is separate from the agents'. Its backend grants
//! containers and starts nothing; the agents are tasks of this process that use the real protocol.

#[path = "../src/master/event_loop/tests/harness.rs"]
mod harness;

use harness::{container, exited, grant_all, job_spec, ready, sync};
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
use ydl_core::{Asks, ContainerId, Event, Order, Outcome};
use ydl_net::{
    client::{Client, Payload},
    secret::{Scope, Secret},
    server,
    tls::{Identity, Pin},
};
use ydl_proto::{
    files::JobDir,
    messages::{AgentReport, SyncReply},
};

/// Grants everything at once and starts nothing.
#[derive(Debug, Default)]
struct GrantingBackend {
    events: VecDeque<Event>,
    granted: u32,
}

impl Backend for GrantingBackend {
    fn set_asks(&mut self, asks: Asks) {
        let grants = grant_all(asks, &mut self.granted);
        self.events.push_back(Event::Granted { grants });
    }

    fn launch(&mut self, container: ContainerId, _: Launch) {
        self.events.push_back(Event::Launched { container });
    }

    fn release(&mut self, _: ContainerId) {}

    async fn next(&mut self) -> Result<Event, Fenced> {
        match self.events.pop_front() {
            Some(event) => Ok(event),
            None => std::future::pending().await,
        }
    }

    async fn close(&mut self, _: &Outcome) {}
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs the master: prints its address, pin and secret, and runs the job to its end.
fn master(agents: u32, dir: PathBuf) {
    runtime().block_on(async {
        let secret = Arc::new(Secret::random().expect("random bytes"));
        let identity = Identity::generate().expect("a certificate");
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = server::listen(any).expect("a port");
        let address = listener.local_addr().expect("an address");
        println!("{address} {} {}", identity.pin(), secret.to_hex());
        let (requests, mut inbox) = inbox();
        let tls = identity.server().expect("TLS");
        let serving = tokio::spawn(serve(listener, tls, secret, requests, std::future::pending()));
        let state = Recovered::new_job(job_spec(agents), None);
        let backend = GrantingBackend::default();
        let mut master = Master::new(state, JobDir::at(dir), backend, None::<FileJournal>);
        let outcome = master.run(&mut inbox).await.expect("there is no other master");
        master.close(&outcome).await;
        serving.abort();
        let peak = status_kib(std::process::id(), "VmHWM:") as f64 / 1024.0;
        println!("        the job {outcome}; the master's largest memory was {peak:.1} MiB");
    });
}

struct Barriers {
    /// All agents have joined and wait for an order: the master's memory is measured now.
    joined: Barrier,
    measured: Barrier,
}

async fn agent(client: Client, barriers: Arc<Barriers>) {
    let mut reports = Vec::new();
    let mut seen = 0;
    let mut round = 0;
    let ran = &mut false;
    loop {
        let message = sync(std::mem::take(&mut reports), seen);
        let payload = Payload::json(&message).expect("JSON");
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
                    barriers.joined.wait().await;
                    barriers.measured.wait().await;
                }
                round = wanted;
                reports.push(ready(round));
            }
            Order::Wait { .. } => {}
            Order::Run(run) => {
                if !std::mem::replace(ran, true) {
                    reports.push(AgentReport::Started { round: run.round });
                    reports.push(exited(run.round));
                }
            }
            Order::Stop { .. } => {
                let uploaded = AgentReport::Stopped { upload_error: None };
                let message = sync(vec![uploaded], seen);
                let payload = Payload::json(&message).expect("JSON");
                // The master may end before it has answered the last agent.
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
        let barriers = Arc::new(Barriers {
            joined: Barrier::new(agents as usize + 1),
            measured: Barrier::new(agents as usize + 1),
        });
        let mut all = JoinSet::new();
        for n in 0..agents {
            let token = secret.token(&Scope::Agent(container(n).to_string())).expect("a token");
            let client = Client::new(address.clone(), pin, &token).expect("a client");
            all.spawn(agent(client, barriers.clone()));
        }
        barriers.joined.wait().await;
        let joined = start.elapsed();
        let waiting = status_kib(child.id(), "VmRSS:");
        let go = Instant::now();
        barriers.measured.wait().await;
        while let Some(done) = all.join_next().await {
            done.expect("an agent");
        }
        (joined, go.elapsed(), waiting)
    });
    let mut last = String::new();
    stdout.read_to_string(&mut last).expect("the master's output");
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
