//! Requests to agents: delivery, replies, limits.

use super::logs::READS_PER_AGENT_MAX;
use super::*;
use crate::master::agents::AgentVersions;
use crate::master::event_loop::tests::job_spec;
use tokio::sync::oneshot::Receiver;
use ydl_core::{Event, Grant, NodeName, Time};
use ydl_proto::messages::{ForwardRequest, LogRequest};

struct AgentRequestsHarness {
    job: Job,
    agents: Agents,
    agent_requests: AgentRequests,
}

impl AgentRequestsHarness {
    /// Creates a job with its only task in the container `c0`, and an agent there.
    fn new() -> AgentRequestsHarness {
        let (mut job, _) = Job::new(job_spec(1), Time(0));
        let ask = job.asks().asks[0].clone();
        let grant = Grant {
            container: c0(),
            role: ask.role,
            node: NodeName::from("here"),
            resources: ask.resources,
        };
        let grants = vec![grant];
        job.handle(Time(1), Event::Granted { grants });
        let mut agents = Agents::new(0, []);
        agents.on_heartbeat(&c0(), None);
        let agent_requests = AgentRequests::default();
        AgentRequestsHarness { job, agents, agent_requests }
    }

    fn submit(&mut self, task: &str) -> Receiver<MasterResponse> {
        let (respond_to, response) = oneshot::channel();
        let AgentRequestsHarness { job, agents, agent_requests } = self;
        let task = task.parse().expect("a task");
        agent_requests.submit_log(task, LogRequest::List, respond_to, job, agents);
        response
    }

    fn forward(&mut self, task: &str) -> Receiver<MasterResponse> {
        let (respond_to, response) = oneshot::channel();
        let AgentRequestsHarness { job, agents, agent_requests } = self;
        let (task, request) = (task.parse().expect("a task"), ForwardRequest { port: None });
        agent_requests.submit_forward(task, request, respond_to, job, agents);
        response
    }

    /// Polls as an agent that knows its order and `last_request`.
    fn listen(&mut self, last_request: u64) -> Receiver<MasterResponse> {
        let (first, mut order) = oneshot::channel();
        self.agents.hold_sync(&c0(), AgentVersions::default(), first, &self.job);
        let seen = match order.try_recv() {
            Ok(MasterResponse::Order(synced)) => synced.number,
            other => panic!("{other:?}"),
        };
        let (respond_to, response) = oneshot::channel();
        let seen = AgentVersions { order: seen, last_request, ..AgentVersions::default() };
        self.agents.hold_sync(&c0(), seen, respond_to, &self.job);
        self.agent_requests.on_poll(&c0(), last_request, &mut self.agents);
        response
    }
}

fn c0() -> ContainerId {
    ContainerId::from("c0")
}

fn ids(sent: &mut Receiver<MasterResponse>) -> Vec<u64> {
    match sent.try_recv() {
        Ok(MasterResponse::Requests(pending)) => pending.iter().map(|it| it.id).collect(),
        Ok(other) => panic!("{other:?}"),
        Err(_) => Vec::new(),
    }
}

fn status(response: &mut Receiver<MasterResponse>) -> Option<u16> {
    match response.try_recv().ok()? {
        MasterResponse::Http(reply) => Some(reply.status.as_u16()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_request_reaches_its_agent_once_and_the_reply_its_client() {
    let mut harness = AgentRequestsHarness::new();
    let mut early = harness.submit("worker:0");
    let mut sent = harness.listen(0);
    assert_eq!(ids(&mut sent), [1]);
    let mut sent = harness.listen(1);
    assert!(ids(&mut sent).is_empty());
    let mut late = harness.submit("worker:0");
    assert_eq!(ids(&mut sent), [2]);
    let found = harness.agent_requests.on_log_reply(&c0(), 1, AgentLogReply::List(b"[]".to_vec()));
    assert_eq!(found.status, 204);
    assert_eq!((status(&mut early), status(&mut late)), (Some(200), None));
    harness.agent_requests.on_log_reply(&c0(), 2, AgentLogReply::NotFound);
    assert_eq!(status(&mut late), Some(404));
    let again = harness.agent_requests.on_log_reply(&c0(), 2, AgentLogReply::NotFound);
    assert_eq!(again.status, 404);
}

#[tokio::test]
async fn a_request_lost_on_the_way_to_the_agent_is_sent_again() {
    let mut harness = AgentRequestsHarness::new();
    let _early = harness.submit("worker:0");
    assert_eq!(ids(&mut harness.listen(0)), [1]);
    // The agent dropped the response because it had something to report.
    let _late = harness.submit("worker:0");
    assert_eq!(ids(&mut harness.listen(0)), [1, 2]);
    assert_eq!(ids(&mut harness.listen(1)), [2]);
    assert!(ids(&mut harness.listen(2)).is_empty());
}

#[tokio::test]
async fn only_the_requested_agent_replies_and_requests_to_lost_agents_fail() {
    let mut harness = AgentRequestsHarness::new();
    let mut response = harness.submit("worker:0");
    let other = ContainerId::from("c9");
    let found = harness.agent_requests.on_log_reply(&other, 1, AgentLogReply::List(b"[]".to_vec()));
    assert_eq!(found.status, 404);
    assert_eq!(status(&mut response), None);
    assert_eq!(status(&mut harness.submit("worker:5")), Some(404));
    harness.agents.forget(&c0());
    harness.agent_requests.sweep(&harness.agents, Instant::now());
    assert_eq!(status(&mut response), Some(404));
    assert_eq!(status(&mut harness.submit("worker:0")), Some(404));
}

#[tokio::test]
async fn requests_are_limited_and_expire() {
    let mut harness = AgentRequestsHarness::new();
    let mut waiting: Vec<_> =
        (0..READS_PER_AGENT_MAX).map(|_| harness.submit("worker:0")).collect();
    assert_eq!(status(&mut harness.submit("worker:0")), Some(503));
    waiting.pop();
    harness.agent_requests.sweep(&harness.agents, Instant::now());
    assert_eq!(harness.agent_requests.pending.len(), READS_PER_AGENT_MAX - 1);
    let later = Instant::now() + REPLY_MAX + Duration::from_secs(1);
    harness.agent_requests.sweep(&harness.agents, later);
    assert!(harness.agent_requests.pending.is_empty());
}

#[tokio::test]
async fn pending_requests_for_logs_leave_room_for_port_forwards() {
    let mut harness = AgentRequestsHarness::new();
    let mut reads: Vec<_> = (0..READS_PER_AGENT_MAX).map(|_| harness.submit("worker:0")).collect();
    assert_eq!(status(&mut harness.submit("worker:0")), Some(503));
    let mut forwards = Vec::new();
    let refused = loop {
        let mut response = harness.forward("worker:0");
        match status(&mut response) {
            None => forwards.push(response),
            refused => break refused,
        }
    };
    assert_eq!((refused, forwards.is_empty()), (Some(503), false));
    let sent = ids(&mut harness.listen(0));
    assert_eq!(sent.len(), reads.len() + forwards.len());
    // Requests for logs expire silently, and clients repeat them. Port-forwards fail.
    let later = Instant::now() + REPLY_MAX + Duration::from_secs(1);
    harness.agent_requests.sweep(&harness.agents, later);
    assert_eq!((status(&mut reads[0]), status(&mut forwards[0])), (None, Some(503)));
}

#[tokio::test]
async fn a_reply_of_another_kind_is_rejected() {
    let mut harness = AgentRequestsHarness::new();
    let (mut read, mut forward) = (harness.submit("worker:0"), harness.forward("worker:0"));
    assert_eq!(ids(&mut harness.listen(0)), [1, 2]);
    let rejected = harness.agent_requests.on_log_reply(&c0(), 2, AgentLogReply::NotFound);
    assert_eq!(rejected.status, 404);
    let rejected = harness.agent_requests.on_forward_reply(&c0(), 1, None);
    assert_eq!(rejected.status, 404);
    assert_eq!((status(&mut read), status(&mut forward)), (None, None));
    let accepted = harness.agent_requests.on_forward_reply(&c0(), 2, None);
    assert_eq!((accepted.status.as_u16(), status(&mut forward)), (101, Some(101)));
    harness.agent_requests.on_log_reply(&c0(), 1, AgentLogReply::NotFound);
    assert_eq!(status(&mut read), Some(404));
}
