//! Agents as the master sees them: last contact, last order, and the pending response.

use super::inbox::Answer;
use std::collections::BTreeMap;
use tokio::{sync::oneshot, time::Instant};
use ydl_core::{ContainerId, Job, Order, TaskId};
use ydl_proto::{
    messages::{NumberedRequest, SyncReply, heartbeat_interval},
    usage::Usage,
};

/// Heartbeats that an agent may miss before it is reported.
const MISSED: u32 = 3;

#[derive(Debug)]
pub(super) struct Agents {
    agents: BTreeMap<ContainerId, Known>,
    first: u64,
    /// Number of the current tokens; 0 if the tokens from the launch are current.
    tokens: u64,
    /// Environment variables for programs.
    pub(super) env: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Known {
    heard: Instant,
    quiet: bool,
    usage: Option<Usage>,
    /// Current order, and its number, which changes with it.
    order: Option<Order>,
    number: u64,
    /// Response to the pending sync request, if there is one.
    waiting: Option<(Seen, oneshot::Sender<Answer>)>,
}

/// Numbers of what an agent has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) order: u64,
    pub(super) tokens: u64,
    pub(super) wished: u64,
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
            all.known(container).quiet = true;
        }
        all
    }

    /// Records a request of an agent. Returns true if heartbeats had been missed.
    pub(super) fn heard(&mut self, container: &ContainerId, usage: Option<Usage>) -> bool {
        let known = self.known(container);
        known.heard = Instant::now();
        if usage.is_some() {
            known.usage = usage;
        }
        std::mem::take(&mut known.quiet)
    }

    /// Sets the current tokens and notifies waiting agents.
    pub(super) fn renew(&mut self, tokens: u64, job: &Job) {
        self.tokens = tokens;
        let all: Vec<_> = self.agents.keys().cloned().collect();
        for container in all {
            self.tell(&container, job);
        }
    }

    /// Answers an agent at once if its order or its tokens are outdated, otherwise when they change.
    pub(super) fn answer(
        &mut self,
        container: &ContainerId,
        seen: Seen,
        answer: oneshot::Sender<Answer>,
        job: &Job,
    ) {
        if job.task_in_container(container).is_none() {
            // An unknown container, or one of the past. It is not stored: unknown agents must not fill the
            // memory.
            let order = job.order(container);
            drop(answer.send(Answer::Order(SyncReply {
                number: u64::MAX,
                order,
                tokens: 0,
                env: BTreeMap::new(),
            })));
            return;
        }
        self.known(container).waiting = Some((seen, answer));
        self.tell(container, job);
    }

    /// Answers a waiting agent if its order or its tokens are outdated.
    pub(super) fn tell(&mut self, container: &ContainerId, job: &Job) {
        let Some(known) = self.agents.get_mut(container) else {
            return;
        };
        let order = job.order(container);
        if known.order.as_ref() != Some(&order) {
            known.number += 1;
            known.order = Some(order);
        }
        let tokens = self.tokens;
        let stale = known.waiting.as_ref().is_some_and(|(seen, _)| {
            seen.order != known.number || (tokens != 0 && seen.tokens != tokens)
        });
        if stale && let (Some((_, answer)), Some(order)) = (known.waiting.take(), &known.order) {
            let synced = SyncReply {
                number: known.number,
                order: order.clone(),
                tokens,
                env: self.env.clone(),
            };
            // The agent asks again if this is lost.
            let _ = answer.send(Answer::Order(synced));
        }
    }

    /// Returns true if the agent sends heartbeats.
    pub(super) fn is_live(&self, container: &ContainerId) -> bool {
        self.agents.get(container).is_some_and(|known| !known.quiet)
    }

    /// Sends requests to a waiting agent. Returns false if it does not wait.
    pub(super) fn wish(&mut self, container: &ContainerId, wishes: Vec<NumberedRequest>) -> bool {
        let known = self.agents.get_mut(container);
        let Some((_, answer)) = known.and_then(|known| known.waiting.take()) else {
            return false;
        };
        answer.send(Answer::Wishes(wishes)).is_ok()
    }

    pub(super) fn forget(&mut self, container: &ContainerId) {
        self.agents.remove(container);
    }

    /// Returns agents that have just exceeded the allowed missed heartbeats.
    pub(super) fn quieted(&mut self, job: &Job) -> Vec<ContainerId> {
        self.agents.retain(|container, _| job.task_in_container(container).is_some());
        let patience = heartbeat_interval(job.spec().timeouts.heartbeat) * MISSED;
        let mut quieted = Vec::new();
        for (container, known) in &mut self.agents {
            if !known.quiet && known.heard.elapsed() > patience {
                known.quiet = true;
                quieted.push(container.clone());
            }
        }
        quieted
    }

    /// Returns the last reported resource usage per task.
    pub(super) fn usage(&self, job: &Job) -> BTreeMap<TaskId, Usage> {
        let each = self.agents.iter().filter_map(|(container, known)| {
            Some((job.task_in_container(container)?, known.usage.clone()?))
        });
        each.collect()
    }

    fn known(&mut self, container: &ContainerId) -> &mut Known {
        let number = self.first;
        self.agents.entry(container.clone()).or_insert_with(|| Known {
            heard: Instant::now(),
            quiet: false,
            usage: None,
            order: None,
            number,
            waiting: None,
        })
    }
}
