//! Agents as the master sees them: last contact, last order, and the pending response.

use super::inbox::MasterResponse;
use std::collections::BTreeMap;
use tokio::{sync::oneshot, time::Instant};
use ydl_core::{ContainerId, Job, Order, TaskId};
use ydl_proto::{
    messages::{NumberedRequest, SyncReply, heartbeat_interval},
    usage::Usage,
};

/// Heartbeats that an agent may miss before it is reported.
const MISSED_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct Agents {
    agents: BTreeMap<ContainerId, AgentState>,
    first: u64,
    /// Number of the current tokens; 0 if the tokens from the launch are current.
    tokens: u64,
    /// Environment variables for programs.
    pub(super) env: BTreeMap<String, String>,
}

#[derive(Debug)]
struct AgentState {
    last_heartbeat: Instant,
    missed: bool,
    usage: Option<Usage>,
    /// Current order, and its number, which changes with it.
    order: Option<Order>,
    number: u64,
    /// Channel for the response to the pending sync request, if there is one.
    waiting: Option<(AgentVersions, oneshot::Sender<MasterResponse>)>,
}

/// Numbers of what an agent has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentVersions {
    pub(super) order: u64,
    pub(super) tokens: u64,
    pub(super) last_request: u64,
}

impl Agents {
    /// Numbers orders from `first` on. No other master of this job may have used these numbers: an agent with
    /// an order of the same number from another master would never receive ours.
    ///
    /// The core treats agents of containers from an earlier master as missing heartbeats until they report.
    pub(super) fn new<'a>(first: u64, left: impl IntoIterator<Item = &'a ContainerId>) -> Agents {
        let agents = BTreeMap::new();
        let mut all = Agents { agents, first, tokens: 0, env: BTreeMap::new() };
        for container in left {
            all.state_mut(container).missed = true;
        }
        all
    }

    /// Records a request of an agent. Returns true if heartbeats had been missed.
    pub(super) fn on_heartbeat(&mut self, container: &ContainerId, usage: Option<Usage>) -> bool {
        let state = self.state_mut(container);
        state.last_heartbeat = Instant::now();
        if usage.is_some() {
            state.usage = usage;
        }
        std::mem::take(&mut state.missed)
    }

    /// Sets the current tokens and notifies waiting agents.
    pub(super) fn set_tokens(&mut self, tokens: u64, job: &Job) {
        self.tokens = tokens;
        let all: Vec<_> = self.agents.keys().cloned().collect();
        for container in all {
            self.notify(&container, job);
        }
    }

    /// Holds a sync until the agent's order or tokens change, or a client has a request for the agent. Answers it at
    /// once if what the agent has is outdated.
    pub(super) fn hold_sync(
        &mut self,
        container: &ContainerId,
        seen: AgentVersions,
        respond_to: oneshot::Sender<MasterResponse>,
        job: &Job,
    ) {
        if job.task_in_container(container).is_none() {
            // An unknown container, or one of the past. It is not stored: unknown agents must not fill the
            // memory.
            let order = job.order(container);
            drop(respond_to.send(MasterResponse::Order(SyncReply {
                number: u64::MAX,
                order,
                tokens: 0,
                env: BTreeMap::new(),
            })));
            return;
        }
        self.state_mut(container).waiting = Some((seen, respond_to));
        self.notify(container, job);
    }

    /// Answers the held sync of an agent if its order or its tokens are outdated.
    pub(super) fn notify(&mut self, container: &ContainerId, job: &Job) {
        let Some(state) = self.agents.get_mut(container) else {
            return;
        };
        let order = job.order(container);
        if state.order.as_ref() != Some(&order) {
            state.number += 1;
            state.order = Some(order);
        }
        let tokens = self.tokens;
        let stale = state.waiting.as_ref().is_some_and(|(seen, _)| {
            seen.order != state.number || (tokens != 0 && seen.tokens != tokens)
        });
        if stale && let (Some((_, respond_to)), Some(order)) = (state.waiting.take(), &state.order)
        {
            let synced = SyncReply {
                number: state.number,
                order: order.clone(),
                tokens,
                env: self.env.clone(),
            };
            // The agent asks again if this is lost.
            let _ = respond_to.send(MasterResponse::Order(synced));
        }
    }

    /// Returns true if the agent sends heartbeats.
    pub(super) fn is_live(&self, container: &ContainerId) -> bool {
        self.agents.get(container).is_some_and(|state| !state.missed)
    }

    /// Answers a waiting agent's sync with requests of clients. Returns false if no sync is held.
    pub(super) fn send_requests(
        &mut self,
        container: &ContainerId,
        requests: Vec<NumberedRequest>,
    ) -> bool {
        let state = self.agents.get_mut(container);
        let Some((_, respond_to)) = state.and_then(|state| state.waiting.take()) else {
            return false;
        };
        respond_to.send(MasterResponse::Requests(requests)).is_ok()
    }

    pub(super) fn forget(&mut self, container: &ContainerId) {
        self.agents.remove(container);
    }

    /// Returns agents that have just exceeded the allowed missed heartbeats.
    pub(super) fn newly_missed(&mut self, job: &Job) -> Vec<ContainerId> {
        self.agents.retain(|container, _| job.task_in_container(container).is_some());
        let timeout = heartbeat_interval(job.spec().timeouts.heartbeat) * MISSED_MAX;
        let mut newly_missed = Vec::new();
        for (container, state) in &mut self.agents {
            if !state.missed && state.last_heartbeat.elapsed() > timeout {
                state.missed = true;
                newly_missed.push(container.clone());
            }
        }
        newly_missed
    }

    /// Returns the last reported resource usage per task.
    pub(super) fn usage(&self, job: &Job) -> BTreeMap<TaskId, Usage> {
        let each = self.agents.iter().filter_map(|(container, state)| {
            Some((job.task_in_container(container)?, state.usage.clone()?))
        });
        each.collect()
    }

    fn state_mut(&mut self, container: &ContainerId) -> &mut AgentState {
        let number = self.first;
        self.agents.entry(container.clone()).or_insert_with(|| AgentState {
            last_heartbeat: Instant::now(),
            missed: false,
            usage: None,
            order: None,
            number,
            waiting: None,
        })
    }
}
