//! Routes log and port-forward requests from clients to agents.
//!
//! Agents accept no connections: they poll. So a request waits here until the agent asks for its order, is
//! sent as the response, and the agent's reply is passed on to the client. Requests expire; clients repeat
//! them.

use super::{agents::Agents, inbox::Answer};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::Instant,
};
use ydl_core::{ContainerId, Job, TaskId};
use ydl_net::{forward::upgrade_pair, request::Reply};
use ydl_proto::messages::{AgentRequest, ENDED_HEADER, LENGTH_HEADER, NumberedRequest};

/// Maximum number of pending requests, in total and per agent.
const WISHES_MAX: usize = 256;
const PER_AGENT_MAX: usize = 32;
/// Maximum number of forwarded connections: each uses two of the server's, and some memory.
const OPEN_MAX: usize = 256;
/// Time an agent may take beyond the requested wait.
pub(super) const GRACE: Duration = Duration::from_secs(8);

/// Pending requests.
#[derive(Debug)]
pub(super) struct Relay {
    wishes: BTreeMap<u64, Waiting>,
    next: u64,
    /// Permits for forwarded connections.
    places: Arc<Semaphore>,
}

impl Default for Relay {
    fn default() -> Relay {
        Relay { wishes: BTreeMap::new(), next: 0, places: Arc::new(Semaphore::new(OPEN_MAX)) }
    }
}

#[derive(Debug)]
struct Waiting {
    container: ContainerId,
    wish: NumberedRequest,
    /// True if the agent received the request.
    told: bool,
    due: Instant,
    answer: oneshot::Sender<Answer>,
    /// Permit of a port-forward request.
    place: Option<OwnedSemaphorePermit>,
}

/// Reply of an agent to a log request.
#[derive(Debug)]
pub enum Logged {
    /// No such log.
    Absent,
    /// List of files, as JSON.
    List(Vec<u8>),
    /// Part of a file.
    Piece {
        /// Content.
        bytes: Vec<u8>,
        /// Length of the file.
        length: u64,
        /// True if the length is final.
        ended: bool,
    },
}

impl Relay {
    /// Queues a request and sends it if the agent is waiting. Fails without a live agent of the task.
    pub(super) fn wish(
        &mut self,
        task: TaskId,
        want: AgentRequest,
        answer: oneshot::Sender<Answer>,
        job: &Job,
        agents: &mut Agents,
    ) {
        let mut live = job.containers().filter(|it| agents.is_live(it));
        let container = live.find(|it| job.task_in_container(it).as_ref() == Some(&task));
        let Some(container) = container.cloned() else {
            let what = match want {
                AgentRequest::Forward { .. } => format!("`{task}` does not run now"),
                AgentRequest::ListLogs | AgentRequest::ReadLog { .. } => {
                    format!("no live agent has the logs of `{task}`")
                }
            };
            return refuse(answer, 404, &what);
        };
        let of_agent = |it: &&Waiting| it.container == container;
        if self.wishes.len() >= WISHES_MAX
            || self.wishes.values().filter(of_agent).count() >= PER_AGENT_MAX
        {
            return refuse(answer, 503, "too many look at logs at once");
        }
        let (wait_ms, place) = match &want {
            AgentRequest::ListLogs => (0, None),
            AgentRequest::ReadLog { wait_ms, .. } => (*wait_ms, None),
            AgentRequest::Forward { .. } => match Arc::clone(&self.places).try_acquire_owned() {
                Ok(place) => (0, Some(place)),
                Err(_) => return refuse(answer, 503, "too many connections to ports at once"),
            },
        };
        self.next += 1;
        let id = self.next;
        let waiting = Waiting {
            container: container.clone(),
            wish: NumberedRequest { id, task, request: want },
            told: false,
            due: Instant::now() + Duration::from_millis(wait_ms) + GRACE,
            answer,
            place,
        };
        self.wishes.insert(id, waiting);
        self.hand(&container, agents);
    }

    /// Handles an agent's poll. `last_request` is the newest request that the agent received: later ones were
    /// lost.
    pub(super) fn asked(&mut self, container: &ContainerId, wished: u64, agents: &mut Agents) {
        let unheard = |it: &&mut Waiting| it.container == *container && it.wish.id > wished;
        let unheard = self.wishes.values_mut().filter(unheard);
        unheard.for_each(|it| it.told = false);
        self.hand(container, agents);
    }

    /// Sends new requests to the agent, if it is waiting.
    fn hand(&mut self, container: &ContainerId, agents: &mut Agents) {
        let new = |it: &&mut Waiting| !it.told && it.container == *container;
        let mut new: Vec<_> = self.wishes.values_mut().filter(new).collect();
        if new.is_empty() {
            return;
        }
        let wishes = new.iter().map(|it| it.wish.clone()).collect();
        if agents.wish(container, wishes) {
            new.iter_mut().for_each(|it| it.told = true);
        }
    }

    /// Passes an agent's reply on. Ignores replies that were not requested from that agent.
    pub(super) fn logged(&mut self, container: &ContainerId, id: u64, found: Logged) -> Reply {
        let Some(waiting) = self.take(container, id, false) else {
            return Reply::error(404, "nobody waits for this any more", None);
        };
        let reply = match found {
            Logged::Absent => {
                let task = &waiting.wish.task;
                Reply::error(404, format!("the agent of `{task}` has no such log"), None)
            }
            Logged::List(json) => Reply::new("application/json", json),
            Logged::Piece { bytes, length, ended } => Reply::new("application/octet-stream", bytes)
                .with_header(LENGTH_HEADER, &length.to_string())
                .with_header(ENDED_HEADER, &u8::from(ended).to_string()),
        };
        // The client may have disconnected.
        let _ = waiting.answer.send(reply.into());
        Reply::empty()
    }

    /// Connects the client to the port that the agent is connected to, or passes the error on.
    pub(super) fn opened(
        &mut self,
        container: &ContainerId,
        id: u64,
        refused: Option<String>,
    ) -> Reply {
        let Some(mut waiting) = self.take(container, id, true) else {
            return Reply::error(404, "nobody waits for this any more", None);
        };
        match (refused, waiting.place.take()) {
            (None, Some(place)) if !waiting.answer.is_closed() => {
                let (goes, waits) = upgrade_pair(place);
                // If the client disconnected in the meantime, the agent's end times out.
                let _ = waiting.answer.send(Reply::upgrade(goes).into());
                Reply::upgrade(waits)
            }
            (None, _) => Reply::error(404, "nobody waits for this any more", None),
            (Some(why), _) => {
                refuse(waiting.answer, 502, &why);
                Reply::empty()
            }
        }
    }

    /// Removes a pending request of that agent, of the given kind.
    fn take(&mut self, container: &ContainerId, id: u64, port: bool) -> Option<Waiting> {
        let own = |it: &Waiting| it.container == *container && it.place.is_some() == port;
        match self.wishes.get(&id).is_some_and(own) {
            true => self.wishes.remove(&id),
            false => None,
        }
    }

    /// Drops expired requests, and fails those to agents that are gone.
    pub(super) fn sweep(&mut self, agents: &Agents, now: Instant) {
        let over =
            |it: &Waiting| it.due < now || it.answer.is_closed() || !agents.is_live(&it.container);
        for (_, waiting) in self.wishes.extract_if(.., |_, it| over(it)) {
            if !agents.is_live(&waiting.container) {
                let what = format!("the agent of `{}` is gone", waiting.wish.task);
                refuse(waiting.answer, 404, &what);
            } else if waiting.place.is_some() {
                let what = format!("the agent of `{}` did not answer in time", waiting.wish.task);
                refuse(waiting.answer, 503, &what);
            }
        }
    }
}

fn refuse(answer: oneshot::Sender<Answer>, status: u16, what: &str) {
    // The client may have disconnected.
    let _ = answer.send(Reply::error(status, what, None).into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master::agents::Seen;
    use crate::master::shell::tests::spec;
    use tokio::sync::oneshot::Receiver;
    use ydl_core::{Event, Grant, NodeName, Time};

    struct Scene {
        job: Job,
        agents: Agents,
        relay: Relay,
    }

    impl Scene {
        /// Creates a job with its only task in the container `c0`, and an agent there.
        fn new() -> Scene {
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
            agents.heard(&c0(), None);
            let relay = Relay::default();
            Scene { job, agents, relay }
        }

        fn wish(&mut self, task: &str) -> Receiver<Answer> {
            let (answer, answered) = oneshot::channel();
            let Scene { job, agents, relay } = self;
            let task = task.parse().expect("a task");
            relay.wish(task, AgentRequest::ListLogs, answer, job, agents);
            answered
        }

        /// Polls as an agent that knows its order and `last_request`.
        fn listen(&mut self, wished: u64) -> Receiver<Answer> {
            let (first, mut order) = oneshot::channel();
            self.agents.answer(&c0(), Seen::default(), first, &self.job);
            let seen = match order.try_recv() {
                Ok(Answer::Order(synced)) => synced.number,
                other => panic!("{other:?}"),
            };
            let (answer, answered) = oneshot::channel();
            let seen = Seen { order: seen, wished, ..Seen::default() };
            self.agents.answer(&c0(), seen, answer, &self.job);
            self.relay.asked(&c0(), wished, &mut self.agents);
            answered
        }
    }

    fn c0() -> ContainerId {
        ContainerId::from("c0")
    }

    fn ids(told: &mut Receiver<Answer>) -> Vec<u64> {
        match told.try_recv() {
            Ok(Answer::Wishes(wishes)) => wishes.iter().map(|wish| wish.id).collect(),
            Ok(other) => panic!("{other:?}"),
            Err(_) => Vec::new(),
        }
    }

    fn status(answered: &mut Receiver<Answer>) -> Option<u16> {
        match answered.try_recv().ok()? {
            Answer::Reply(reply) => Some(reply.status.as_u16()),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_wish_reaches_its_agent_once_and_its_answer_whoever_wished() {
        let mut scene = Scene::new();
        let mut early = scene.wish("worker:0");
        let mut told = scene.listen(0);
        assert_eq!(ids(&mut told), [1]);
        let mut told = scene.listen(1);
        assert!(ids(&mut told).is_empty());
        let mut late = scene.wish("worker:0");
        assert_eq!(ids(&mut told), [2]);
        let found = scene.relay.logged(&c0(), 1, Logged::List(b"[]".to_vec()));
        assert_eq!(found.status, 204);
        assert_eq!((status(&mut early), status(&mut late)), (Some(200), None));
        scene.relay.logged(&c0(), 2, Logged::Absent);
        assert_eq!(status(&mut late), Some(404));
        let again = scene.relay.logged(&c0(), 2, Logged::Absent);
        assert_eq!(again.status, 404);
    }

    #[tokio::test]
    async fn a_wish_that_its_agent_has_not_heard_of_is_told_again() {
        let mut scene = Scene::new();
        let _early = scene.wish("worker:0");
        assert_eq!(ids(&mut scene.listen(0)), [1]);
        // The agent dropped the response because it had something to report.
        let _late = scene.wish("worker:0");
        assert_eq!(ids(&mut scene.listen(0)), [1, 2]);
        assert_eq!(ids(&mut scene.listen(1)), [2]);
        assert!(ids(&mut scene.listen(2)).is_empty());
    }

    #[tokio::test]
    async fn nobody_answers_for_another_agent_and_nobody_waits_for_one_that_is_gone() {
        let mut scene = Scene::new();
        let mut wished = scene.wish("worker:0");
        let other = ContainerId::from("c9");
        let found = scene.relay.logged(&other, 1, Logged::List(b"[]".to_vec()));
        assert_eq!(found.status, 404);
        assert_eq!(status(&mut wished), None);
        assert_eq!(status(&mut scene.wish("worker:5")), Some(404));
        scene.agents.forget(&c0());
        scene.relay.sweep(&scene.agents, Instant::now());
        assert_eq!(status(&mut wished), Some(404));
        assert_eq!(status(&mut scene.wish("worker:0")), Some(404));
    }

    #[tokio::test]
    async fn wishes_are_few_and_forgotten_in_time() {
        let mut scene = Scene::new();
        let mut waiting: Vec<_> = (0..PER_AGENT_MAX).map(|_| scene.wish("worker:0")).collect();
        assert_eq!(status(&mut scene.wish("worker:0")), Some(503));
        waiting.pop();
        scene.relay.sweep(&scene.agents, Instant::now());
        assert_eq!(scene.relay.wishes.len(), PER_AGENT_MAX - 1);
        let later = Instant::now() + GRACE + Duration::from_secs(1);
        scene.relay.sweep(&scene.agents, later);
        assert!(scene.relay.wishes.is_empty());
    }
}
