//! Event loop with a slow or failing journal: no effect may precede the durability of its cause.

mod harness;

use super::*;
use crate::master::{
    inbox::{DurableFlag, JobChange, MasterRequest, MasterResponse, inbox},
    kv::Op,
    kv_service::KvRequest,
    recovered::Replay,
};
pub(in crate::master) use harness::job_spec;
use harness::{container, exited, grant_all, ready, sync};
use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};
use tokio::sync::oneshot::{self, Receiver};
use ydl_core::{ContainerExit, Order};
use ydl_proto::messages::{AgentReport, SyncReply};

/// Recorded calls and upcoming events.
#[derive(Debug, Default)]
struct FakeCluster {
    calls: Vec<String>,
    events: VecDeque<Event>,
    journaled: Vec<JournalRecord>,
    /// Number of flushes that succeed; later ones block.
    flushes: usize,
    /// The master dies at the last flush, after it is durable.
    dies_at_last_flush: bool,
    /// Containers, and whether they were launched.
    live: BTreeMap<ContainerId, bool>,
    granted: u32,
    /// Reported progress.
    progress: Vec<f32>,
    /// Released containers do not end: their node is unreachable.
    node_is_lost: bool,
}

type SharedCluster = Rc<RefCell<FakeCluster>>;

#[derive(Debug)]
struct FakeBackend(SharedCluster);

impl Backend for FakeBackend {
    fn set_asks(&mut self, asks: Asks) {
        let mut cluster = self.0.borrow_mut();
        let count: u32 = asks.asks.iter().map(|ask| ask.count).sum();
        cluster.calls.push(format!("want {count}"));
        let grants = grant_all(asks, &mut cluster.granted);
        for grant in &grants {
            cluster.live.insert(grant.container.clone(), false);
        }
        if !grants.is_empty() {
            cluster.events.push_back(Event::Granted { grants });
        }
    }

    fn launch(&mut self, container: ContainerId, _: Launch) {
        let mut cluster = self.0.borrow_mut();
        cluster.calls.push(format!("launch {container}"));
        cluster.live.insert(container.clone(), true);
        cluster.events.push_back(Event::Launched { container });
    }

    fn release(&mut self, container: ContainerId) {
        let mut cluster = self.0.borrow_mut();
        cluster.calls.push(format!("release {container}"));
        cluster.live.remove(&container);
        if !cluster.node_is_lost {
            let containers = vec![(container, ContainerExit::Released)];
            cluster.events.push_back(Event::Ended { containers });
        }
    }

    fn set_progress(&mut self, progress: f32) {
        self.0.borrow_mut().progress.push(progress);
    }

    async fn next(&mut self) -> Result<Event, Fenced> {
        std::future::poll_fn(|_| match self.0.borrow_mut().events.pop_front() {
            Some(event) => std::task::Poll::Ready(Ok(event)),
            None => std::task::Poll::Pending,
        })
        .await
    }

    async fn close(&mut self, _: &Outcome) {}
}

#[derive(Debug)]
struct SlowJournal {
    cluster: SharedCluster,
    batch: Vec<JournalRecord>,
}

impl Journal for SlowJournal {
    fn append(&mut self, record: &JournalRecord) {
        self.batch.push(record.clone());
    }

    fn pending_bytes(&self) -> usize {
        0
    }

    async fn flush(&mut self) -> Result<(), Fenced> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let (flushes, dies_at_last_flush) = {
            let cluster = self.cluster.borrow();
            (cluster.flushes, cluster.dies_at_last_flush)
        };
        match flushes {
            0 if dies_at_last_flush => {
                // As if the master died just after the last byte was durable.
                self.cluster.borrow_mut().journaled.append(&mut self.batch);
                let why = "it is dead".to_owned();
                Err(Fenced { why })
            }
            0 => std::future::pending().await,
            _ => {
                let mut cluster = self.cluster.borrow_mut();
                cluster.flushes -= 1;
                cluster.journaled.append(&mut self.batch);
                Ok(())
            }
        }
    }
}

struct MasterHarness {
    folder: tempfile::TempDir,
    cluster: SharedCluster,
    requests: mpsc::Sender<Envelope>,
    inbox: mpsc::Receiver<Envelope>,
    master: Master<FakeBackend, SlowJournal>,
}

impl MasterHarness {
    fn new(
        flushes: usize,
        state: impl FnOnce(std::fs::File) -> Recovered,
        cluster: FakeCluster,
    ) -> MasterHarness {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Rc::new(RefCell::new(FakeCluster { flushes, ..cluster }));
        let (requests, inbox) = inbox();
        let journal = SlowJournal { cluster: cluster.clone(), batch: Vec::new() };
        let dir = JobDir::at(folder.path());
        let events = std::fs::File::create(dir.history_file()).unwrap();
        let master = Master::new(state(events), dir, FakeBackend(cluster.clone()), journal);
        MasterHarness { folder, cluster, requests, inbox, master }
    }

    fn new_job(flushes: usize) -> MasterHarness {
        let state = |events| Recovered::new_job(job_spec(1), Some(events));
        MasterHarness::new(flushes, state, FakeCluster::default())
    }

    /// Recovers a new master after this one has died.
    fn successor(&self) -> MasterHarness {
        let cluster = FakeCluster {
            granted: self.cluster.borrow().granted,
            journaled: self.cluster.borrow().journaled.clone(),
            live: self.cluster.borrow().live.clone(),
            ..FakeCluster::default()
        };
        let records = cluster.journaled.clone();
        let state = |events| {
            let mut replay = Replay::new(job_spec(1), Some(events));
            records.into_iter().for_each(|record| replay.apply(record));
            replay.finish()
        };
        let live = cluster.live.keys().cloned().collect();
        let mut successor = MasterHarness::new(usize::MAX, state, cluster);
        successor.master.recover(live);
        successor
    }

    /// Runs the master until it blocks.
    async fn run(&mut self) -> Option<Result<Outcome, Fenced>> {
        let mut running = std::pin::pin!(self.master.run(&mut self.inbox));
        // The master waits for this test only, so a few polls suffice.
        for _ in 0..50 {
            tokio::select! {
                biased;
                ended = &mut running => return Some(ended),
                () = tokio::task::yield_now() => {}
            }
        }
        None
    }

    async fn sync(
        &self,
        container: &ContainerId,
        report: Option<AgentReport>,
        order: u64,
    ) -> (Receiver<MasterResponse>, DurableFlag) {
        let sync = sync(report.into_iter().collect(), order);
        let (respond_to, response) = oneshot::channel();
        let durable = DurableFlag::default();
        let envelope = Envelope {
            request: MasterRequest::Sync(container.clone(), sync),
            respond_to,
            durable: durable.clone(),
        };
        self.requests.send(envelope).await.unwrap();
        (response, durable)
    }

    async fn request(&self, request: MasterRequest) -> Receiver<MasterResponse> {
        let (respond_to, response) = oneshot::channel();
        let envelope = Envelope { request, respond_to, durable: DurableFlag::default() };
        self.requests.send(envelope).await.unwrap();
        response
    }

    fn calls(&self) -> String {
        self.cluster.borrow_mut().calls.drain(..).collect::<Vec<_>>().join(", ")
    }

    fn history(&self) -> String {
        let dir = JobDir::at(self.folder.path());
        std::fs::read_to_string(dir.history_file()).unwrap()
    }

    fn grant_flushes(&self, flushes: usize) {
        self.cluster.borrow_mut().flushes = flushes;
    }
}

fn order(response: &mut Receiver<MasterResponse>) -> Option<Order> {
    match response.try_recv().ok()? {
        MasterResponse::Order(SyncReply { order, .. }) => Some(order),
        MasterResponse::Http(_) | MasterResponse::Requests(_) => None,
    }
}

#[tokio::test]
async fn no_effect_precedes_the_journal() {
    let mut harness = MasterHarness::new_job(0);
    assert_eq!(harness.run().await, None);
    assert_eq!((harness.calls(), harness.history()), (String::new(), String::new()));

    harness.grant_flushes(1);
    harness.run().await;
    assert_eq!(harness.calls(), "want 1");
    assert!(harness.history().contains("job-started"), "{}", harness.history());

    harness.grant_flushes(1);
    harness.run().await;
    assert_eq!(harness.calls(), "launch c0, want 0");
}

#[tokio::test]
async fn reports_are_acknowledged_only_after_they_are_durable() {
    let mut harness = MasterHarness::new_job(usize::MAX);
    harness.run().await;
    harness.grant_flushes(0);
    let (mut response, durable) = harness.sync(&container(0), Some(ready(1)), 0).await;
    harness.run().await;
    assert!(!durable.is_set());
    assert_eq!(order(&mut response), None);

    harness.grant_flushes(usize::MAX);
    harness.run().await;
    assert!(durable.is_set());
    assert!(matches!(order(&mut response), Some(Order::Run(_))));
}

#[tokio::test]
async fn ready_events_are_journaled_in_one_flush() {
    let mut harness = MasterHarness::new_job(usize::MAX);
    harness.run().await;
    harness.sync(&container(0), Some(ready(1)), 0).await;
    let started = AgentReport::Started { round: 1 };
    harness.sync(&container(0), Some(started), 0).await;
    harness.sync(&container(0), Some(exited(1)), 0).await;
    harness.grant_flushes(1);
    harness.run().await;
    assert_eq!(harness.cluster.borrow().flushes, 0);
    let durable = harness.cluster.borrow().journaled.len();
    harness.grant_flushes(1);
    harness.run().await;
    assert_eq!(harness.cluster.borrow().journaled.len(), durable, "actions were left over");
}

#[tokio::test]
async fn progress_never_decreases_and_survives_the_master() {
    let mut harness = MasterHarness::new_job(usize::MAX);
    harness.run().await;
    harness.sync(&container(0), Some(ready(1)), 0).await;
    harness.sync(&container(0), Some(AgentReport::Started { round: 1 }), 0).await;
    for value in ["0.5", "0.25"] {
        let json = format!(r#"{{"metrics":[{{"name":"progress","value":{value},"at":0}}]}}"#);
        let report = serde_json::from_str(&json).unwrap();
        let request = MasterRequest::Metrics { container: container(0), report };
        drop(harness.request(request).await);
        harness.run().await;
        harness.master.update_status();
        harness.run().await;
    }
    assert_eq!(harness.cluster.borrow().progress, [0.5]);
    let mut successor = harness.successor();
    successor.run().await;
    assert_eq!(successor.cluster.borrow().progress, [0.5]);
}

fn try_reply(mut response: Receiver<MasterResponse>) -> ydl_net::request::Reply {
    match response.try_recv() {
        Ok(MasterResponse::Http(reply)) => reply,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_program_of_an_ended_container_changes_nothing() {
    let changes = || {
        let end = r#"{"outcome": "failed", "reason": "an old program"}"#;
        [
            JobChange::Progress(0.9),
            JobChange::AddTask(serde_json::from_str(r#"{"role": "worker"}"#).unwrap()),
            JobChange::StopTask("worker:0".parse().unwrap()),
            JobChange::End(serde_json::from_str(end).unwrap()),
        ]
    };
    let mut harness = MasterHarness::new_job(usize::MAX);
    harness.run().await;
    for change in changes() {
        let by = Some(ContainerId::from("old"));
        let response = harness.request(MasterRequest::Change { by, change }).await;
        assert_eq!(harness.run().await, None);
        assert_eq!(try_reply(response).status, 410);
    }
    assert!(!harness.history().contains("job-ending"), "{}", harness.history());
    harness.master.update_status();
    assert!(harness.cluster.borrow().progress.is_empty());
    for by in [Some(container(0)), None] {
        let change = JobChange::Progress(0.5);
        let response = harness.request(MasterRequest::Change { by, change }).await;
        harness.run().await;
        assert!(try_reply(response).status.is_success());
    }
}

#[tokio::test]
async fn operations_without_a_change_are_not_journaled() {
    let mut harness = MasterHarness::new_job(usize::MAX);
    harness.run().await;
    let before = harness.cluster.borrow().journaled.len();
    let apply = |json: &str| {
        let op = Op::Transact(serde_json::from_str(json).unwrap());
        MasterRequest::Kv { by: None, request: KvRequest::Apply(op) }
    };
    let unmet =
        r#"{"if": [{"exists": {"key": "a"}}], "then": [{"delete": {"keys": {"key": "a"}}}]}"#;
    let set = r#"{"then": [{"put": {"key": "a", "value": {"text": "1"}}}]}"#;
    for (json, records) in [(unmet, 0), (set, 1), (unmet, 2), (unmet, 2)] {
        let response = harness.request(apply(json)).await;
        harness.run().await;
        assert!(try_reply(response).status.is_success());
        assert_eq!(harness.cluster.borrow().journaled.len() - before, records, "{json}");
    }
}

#[tokio::test]
async fn an_agent_released_between_two_polls_is_told_to_stop() {
    let mut harness = MasterHarness::new_job(usize::MAX);
    harness.run().await;
    let (mut response, _) = harness.sync(&container(0), Some(ready(1)), 0).await;
    harness.run().await;
    let Ok(MasterResponse::Order(synced)) = response.try_recv() else { panic!("no order") };
    assert!(matches!(synced.order, Order::Run(_)), "{:?}", synced.order);

    let lost = Event::Ended { containers: vec![(container(0), ContainerExit::NodeLost)] };
    let missed = Event::HeartbeatMissed { container: container(0) };
    harness.cluster.borrow_mut().node_is_lost = true;
    harness.cluster.borrow_mut().events.extend([missed, lost]);
    harness.run().await;
    assert!(harness.calls().contains("release c0"));
    let (mut response, _) = harness.sync(&container(0), None, synced.number).await;
    harness.run().await;
    assert!(matches!(order(&mut response), Some(Order::Stop { .. })));
}

/// Agent that follows its orders and repeats reports until they are acknowledged.
#[derive(Debug)]
struct FakeAgent {
    container: ContainerId,
    order: u64,
    report: Option<AgentReport>,
    pending: Option<(Receiver<MasterResponse>, DurableFlag)>,
}

impl FakeAgent {
    fn on_order(&mut self, synced: SyncReply) {
        self.order = synced.number;
        self.report = match synced.order {
            Order::Wait { round, .. } => Some(ready(round)),
            Order::Run(run) => Some(exited(run.round)),
            Order::Stop { .. } => Some(AgentReport::Stopped { upload_error: None }),
        };
    }

    /// Handles a response, if there is one, and polls again.
    async fn poll(&mut self, harness: &MasterHarness) {
        if let Some((response, durable)) = &mut self.pending {
            if durable.is_set() {
                self.report = None;
            }
            match response.try_recv() {
                Ok(MasterResponse::Order(synced)) => self.on_order(synced),
                Ok(MasterResponse::Http(_) | MasterResponse::Requests(_))
                | Err(oneshot::error::TryRecvError::Closed) => {}
                Err(oneshot::error::TryRecvError::Empty) => return,
            }
        }
        let pending = harness.sync(&self.container, self.report.clone(), self.order);
        self.pending = Some(pending.await);
    }
}

#[tokio::test]
async fn no_request_waits_for_a_master_whose_job_is_over() {
    let mut harness = MasterHarness::new_job(usize::MAX);
    harness.run().await;
    let started = AgentReport::Started { round: 1 };
    for report in [ready(1), started, exited(1), AgentReport::Stopped { upload_error: None }] {
        assert!(!harness.requests.is_closed());
        drop(harness.sync(&container(0), Some(report), 0).await);
        if let Some(ended) = harness.run().await {
            ended.unwrap();
            break;
        }
    }
    assert!(harness.requests.is_closed(), "{}", harness.history());
}

/// Runs a whole job. The master dies after that many flushes and another recovers.
async fn run_with_failover_after(flushes: usize) -> (bool, String) {
    let mut harness = MasterHarness::new_job(flushes);
    harness.cluster.borrow_mut().dies_at_last_flush = true;
    let mut agents: Vec<FakeAgent> = Vec::new();
    let mut died = false;
    for _ in 0..40 {
        match harness.run().await {
            Some(Ok(outcome)) => {
                assert_eq!(outcome, Outcome::Succeeded);
                return (died, harness.history());
            }
            Some(Err(_)) => {
                died = true;
                let before = harness.history();
                harness = harness.successor();
                let after = harness.history();
                assert!(after.starts_with(&before), "{after} is not {before} and more");
            }
            None => {}
        }
        let launched = harness.cluster.borrow().live.clone();
        agents.retain(|agent| launched.get(&agent.container) == Some(&true));
        for (container, launched) in launched {
            if launched && !agents.iter().any(|agent| agent.container == container) {
                agents.push(FakeAgent { container, order: 0, report: None, pending: None });
            }
        }
        for agent in &mut agents {
            agent.poll(&harness).await;
        }
    }
    panic!("the job did not end: {}", harness.history());
}

#[tokio::test]
async fn a_successor_finishes_the_job_wherever_the_master_died() {
    for flushes in 0.. {
        let (died, history) = run_with_failover_after(flushes).await;
        assert!(history.contains("job-finished"), "{flushes}: {history}");
        if !died {
            assert!(flushes > 3, "{flushes}");
            return;
        }
    }
}
