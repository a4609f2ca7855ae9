//! Routes log and port-forward requests from clients to agents.
//!
//! Agents accept no connections: they poll. So a request waits here until the agent asks for its order, is
//! sent as the response, and the agent's reply is passed on to the client. Requests expire; clients repeat
//! them.

use super::{agents::Agents, inbox::MasterResponse};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::Instant,
};
use ydl_core::{ContainerId, Job, TaskId};
use ydl_net::{forward::upgrade_pair, request::Reply};
use ydl_proto::messages::{AgentRequest, ENDED_HEADER, LENGTH_HEADER, NumberedRequest};

/// Maximum number of pending requests, in total and per agent.
const REQUESTS_MAX: usize = 256;
const PER_AGENT_MAX: usize = 32;
/// Maximum number of forwarded connections: each uses two of the server's, and some memory.
const FORWARDS_MAX: usize = 256;
/// Time an agent may take beyond the requested wait.
pub(super) const GRACE: Duration = Duration::from_secs(8);

/// Pending requests.
#[derive(Debug)]
pub(super) struct AgentRequests {
    pending: BTreeMap<u64, PendingAgentRequest>,
    next: u64,
    /// Permits for forwarded connections.
    permits: Arc<Semaphore>,
}

impl Default for AgentRequests {
    fn default() -> AgentRequests {
        AgentRequests {
            pending: BTreeMap::new(),
            next: 0,
            permits: Arc::new(Semaphore::new(FORWARDS_MAX)),
        }
    }
}

#[derive(Debug)]
struct PendingAgentRequest {
    container: ContainerId,
    numbered: NumberedRequest,
    /// True if the agent received the request.
    sent: bool,
    due: Instant,
    respond_to: oneshot::Sender<MasterResponse>,
    /// Permit of a port-forward request.
    permit: Option<OwnedSemaphorePermit>,
}

/// Reply of an agent to a log request.
#[derive(Debug)]
pub enum LogReply {
    /// No such log.
    NotFound,
    /// List of files, as JSON.
    List(Vec<u8>),
    /// Part of a file.
    Chunk {
        /// Content.
        bytes: Vec<u8>,
        /// Length of the file.
        length: u64,
        /// True if the length is final.
        ended: bool,
    },
}

impl AgentRequests {
    /// Queues a request and sends it if the agent is waiting. Fails without a live agent of the task.
    pub(super) fn submit(
        &mut self,
        task: TaskId,
        request: AgentRequest,
        respond_to: oneshot::Sender<MasterResponse>,
        job: &Job,
        agents: &mut Agents,
    ) {
        let mut live = job.containers().filter(|it| agents.is_live(it));
        let container = live.find(|it| job.task_in_container(it).as_ref() == Some(&task));
        let Some(container) = container.cloned() else {
            let what = match request {
                AgentRequest::Forward { .. } => format!("`{task}` is not running"),
                AgentRequest::ListLogs | AgentRequest::ReadLog { .. } => {
                    format!("no agent of `{task}` is connected")
                }
            };
            return fail(respond_to, 404, &what);
        };
        let of_agent = |it: &&PendingAgentRequest| it.container == container;
        if self.pending.len() >= REQUESTS_MAX
            || self.pending.values().filter(of_agent).count() >= PER_AGENT_MAX
        {
            return fail(respond_to, 503, "too many pending log requests");
        }
        let (wait_ms, permit) = match &request {
            AgentRequest::ListLogs => (0, None),
            AgentRequest::ReadLog { wait_ms, .. } => (*wait_ms, None),
            AgentRequest::Forward { .. } => match Arc::clone(&self.permits).try_acquire_owned() {
                Ok(permit) => (0, Some(permit)),
                Err(_) => return fail(respond_to, 503, "too many connections to ports at once"),
            },
        };
        self.next += 1;
        let id = self.next;
        let waiting = PendingAgentRequest {
            container: container.clone(),
            numbered: NumberedRequest { id, task, request },
            sent: false,
            due: Instant::now() + Duration::from_millis(wait_ms) + GRACE,
            respond_to,
            permit,
        };
        self.pending.insert(id, waiting);
        self.deliver(&container, agents);
    }

    /// Handles an agent's poll. `last_request` is the newest request that the agent received: later ones were
    /// lost.
    pub(super) fn on_poll(
        &mut self,
        container: &ContainerId,
        last_request: u64,
        agents: &mut Agents,
    ) {
        let lost = |it: &&mut PendingAgentRequest| {
            it.container == *container && it.numbered.id > last_request
        };
        let lost = self.pending.values_mut().filter(lost);
        lost.for_each(|it| it.sent = false);
        self.deliver(container, agents);
    }

    /// Sends new requests to the agent, if it is waiting.
    fn deliver(&mut self, container: &ContainerId, agents: &mut Agents) {
        let new = |it: &&mut PendingAgentRequest| !it.sent && it.container == *container;
        let mut new: Vec<_> = self.pending.values_mut().filter(new).collect();
        if new.is_empty() {
            return;
        }
        let pending = new.iter().map(|it| it.numbered.clone()).collect();
        if agents.send_requests(container, pending) {
            new.iter_mut().for_each(|it| it.sent = true);
        }
    }

    /// Passes an agent's reply on. Ignores replies that were not requested from that agent.
    pub(super) fn on_log_reply(
        &mut self,
        container: &ContainerId,
        id: u64,
        found: LogReply,
    ) -> Reply {
        let Some(waiting) = self.take(container, id, false) else {
            return Reply::error(404, "this request is no longer pending", None);
        };
        let reply = match found {
            LogReply::NotFound => {
                let task = &waiting.numbered.task;
                Reply::error(404, format!("`{task}` has no such log"), None)
            }
            LogReply::List(json) => Reply::new("application/json", json),
            LogReply::Chunk { bytes, length, ended } => {
                Reply::new("application/octet-stream", bytes)
                    .with_header(LENGTH_HEADER, &length.to_string())
                    .with_header(ENDED_HEADER, &u8::from(ended).to_string())
            }
        };
        // The client may have disconnected.
        let _ = waiting.respond_to.send(reply.into());
        Reply::empty()
    }

    /// Connects the client to the port that the agent is connected to, or passes the error on.
    pub(super) fn on_forward_reply(
        &mut self,
        container: &ContainerId,
        id: u64,
        failed: Option<String>,
    ) -> Reply {
        let Some(mut waiting) = self.take(container, id, true) else {
            return Reply::error(404, "this request is no longer pending", None);
        };
        match (failed, waiting.permit.take()) {
            (None, Some(permit)) if !waiting.respond_to.is_closed() => {
                let (goes, waits) = upgrade_pair(permit);
                // If the client disconnected in the meantime, the agent's end times out.
                let _ = waiting.respond_to.send(Reply::upgrade(goes).into());
                Reply::upgrade(waits)
            }
            (None, _) => Reply::error(404, "this request is no longer pending", None),
            (Some(why), _) => {
                fail(waiting.respond_to, 502, &why);
                Reply::empty()
            }
        }
    }

    /// Removes a pending request of that agent, of the given kind.
    fn take(
        &mut self,
        container: &ContainerId,
        id: u64,
        port: bool,
    ) -> Option<PendingAgentRequest> {
        let own =
            |it: &PendingAgentRequest| it.container == *container && it.permit.is_some() == port;
        match self.pending.get(&id).is_some_and(own) {
            true => self.pending.remove(&id),
            false => None,
        }
    }

    /// Drops expired requests, and fails those to agents that are gone.
    pub(super) fn sweep(&mut self, agents: &Agents, now: Instant) {
        let over = |it: &PendingAgentRequest| {
            it.due < now || it.respond_to.is_closed() || !agents.is_live(&it.container)
        };
        for (_, waiting) in self.pending.extract_if(.., |_, it| over(it)) {
            if !agents.is_live(&waiting.container) {
                let what = format!("the agent of `{}` is not connected", waiting.numbered.task);
                fail(waiting.respond_to, 404, &what);
            } else if waiting.permit.is_some() {
                let what =
                    format!("the agent of `{}` did not respond in time", waiting.numbered.task);
                fail(waiting.respond_to, 503, &what);
            }
        }
    }
}

fn fail(respond_to: oneshot::Sender<MasterResponse>, status: u16, what: &str) {
    // The client may have disconnected.
    let _ = respond_to.send(Reply::error(status, what, None).into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master::agents::AgentVersions;
    use crate::master::event_loop::tests::spec;
    use tokio::sync::oneshot::Receiver;
    use ydl_core::{Event, Grant, NodeName, Time};

    struct AgentRequestsHarness {
        job: Job,
        agents: Agents,
        agent_requests: AgentRequests,
    }

    impl AgentRequestsHarness {
        /// Creates a job with its only task in the container `c0`, and an agent there.
        fn new() -> AgentRequestsHarness {
            let (mut job, _) = Job::new(spec(), Time(0));
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
            agent_requests.submit(task, AgentRequest::ListLogs, respond_to, job, agents);
            response
        }

        /// Polls as an agent that knows its order and `last_request`.
        fn listen(&mut self, last_request: u64) -> Receiver<MasterResponse> {
            let (first, mut order) = oneshot::channel();
            self.agents.respond(&c0(), AgentVersions::default(), first, &self.job);
            let seen = match order.try_recv() {
                Ok(MasterResponse::Order(synced)) => synced.number,
                other => panic!("{other:?}"),
            };
            let (respond_to, response) = oneshot::channel();
            let seen = AgentVersions { order: seen, last_request, ..AgentVersions::default() };
            self.agents.respond(&c0(), seen, respond_to, &self.job);
            self.agent_requests.on_poll(&c0(), last_request, &mut self.agents);
            response
        }
    }

    fn c0() -> ContainerId {
        ContainerId::from("c0")
    }

    fn ids(sent: &mut Receiver<MasterResponse>) -> Vec<u64> {
        match sent.try_recv() {
            Ok(MasterResponse::Requests(pending)) => pending.iter().map(|wish| wish.id).collect(),
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
        let found = harness.agent_requests.on_log_reply(&c0(), 1, LogReply::List(b"[]".to_vec()));
        assert_eq!(found.status, 204);
        assert_eq!((status(&mut early), status(&mut late)), (Some(200), None));
        harness.agent_requests.on_log_reply(&c0(), 2, LogReply::NotFound);
        assert_eq!(status(&mut late), Some(404));
        let again = harness.agent_requests.on_log_reply(&c0(), 2, LogReply::NotFound);
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
        let mut last_request = harness.submit("worker:0");
        let other = ContainerId::from("c9");
        let found = harness.agent_requests.on_log_reply(&other, 1, LogReply::List(b"[]".to_vec()));
        assert_eq!(found.status, 404);
        assert_eq!(status(&mut last_request), None);
        assert_eq!(status(&mut harness.submit("worker:5")), Some(404));
        harness.agents.forget(&c0());
        harness.agent_requests.sweep(&harness.agents, Instant::now());
        assert_eq!(status(&mut last_request), Some(404));
        assert_eq!(status(&mut harness.submit("worker:0")), Some(404));
    }

    #[tokio::test]
    async fn requests_are_limited_and_expire() {
        let mut harness = AgentRequestsHarness::new();
        let mut waiting: Vec<_> = (0..PER_AGENT_MAX).map(|_| harness.submit("worker:0")).collect();
        assert_eq!(status(&mut harness.submit("worker:0")), Some(503));
        waiting.pop();
        harness.agent_requests.sweep(&harness.agents, Instant::now());
        assert_eq!(harness.agent_requests.pending.len(), PER_AGENT_MAX - 1);
        let later = Instant::now() + GRACE + Duration::from_secs(1);
        harness.agent_requests.sweep(&harness.agents, later);
        assert!(harness.agent_requests.pending.is_empty());
    }
}
