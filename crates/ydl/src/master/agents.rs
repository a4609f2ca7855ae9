//! The agents as the master sees them: when each was last heard, which order it knows, and whether it waits.

use super::inbox::Answer;
use std::collections::BTreeMap;
use tokio::{sync::oneshot, time::Instant};
use ydl_core::{ContainerId, Job, Order, TaskId};
use ydl_proto::{
    messages::{NumberedRequest, SyncReply, heartbeat_interval},
    usage::Usage,
};

/// So many beats may be missed before an agent counts as quiet.
const MISSED: u32 = 3;

#[derive(Debug)]
pub(super) struct Agents {
    agents: BTreeMap<ContainerId, Known>,
    first: u64,
    /// The number of the tokens that all should have; 0 where the ones they were started with will do.
    tokens: u64,
    /// Variables for their programs.
    pub(super) env: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Known {
    heard: Instant,
    quiet: bool,
    usage: Option<Usage>,
    /// The order it should have, and its number, which changes with it.
    order: Option<Order>,
    number: u64,
    /// Where the next order goes, if it listens.
    waiting: Option<(Seen, oneshot::Sender<Answer>)>,
}

/// What an agent has, by its numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) order: u64,
    pub(super) tokens: u64,
    pub(super) wished: u64,
}

impl Agents {
    /// Orders are numbered from `first` on, which no other master of this job may have done: an agent that has seen
    /// the order of that number from another would never be told of ours.
    ///
    /// The core takes those whose containers an earlier master has left for quiet until they are heard.
    pub(super) fn new<'a>(first: u64, left: impl IntoIterator<Item = &'a ContainerId>) -> Agents {
        let agents = BTreeMap::new();
        let mut all = Agents { agents, first, tokens: 0, env: BTreeMap::new() };
        for container in left {
            all.known(container).quiet = true;
        }
        all
    }

    /// An agent has spoken. True if it had been quiet.
    pub(super) fn heard(&mut self, container: &ContainerId, usage: Option<Usage>) -> bool {
        let known = self.known(container);
        known.heard = Instant::now();
        if usage.is_some() {
            known.usage = usage;
        }
        std::mem::take(&mut known.quiet)
    }

    /// From now on all should have these tokens.
    pub(super) fn renew(&mut self, tokens: u64, job: &Job) {
        self.tokens = tokens;
        let all: Vec<_> = self.agents.keys().cloned().collect();
        for container in all {
            self.tell(&container, job);
        }
    }

    /// Answers an agent now if its order is another than the one it has seen, or its tokens are old, otherwise when that
    /// changes.
    pub(super) fn answer(
        &mut self,
        container: &ContainerId,
        seen: Seen,
        answer: oneshot::Sender<Answer>,
        job: &Job,
    ) {
        if job.task_in_container(container).is_none() {
            // A stranger, or somebody from the past. It is not remembered, or strangers could fill our memory.
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

    /// Answers an agent that waits, if something is new to it.
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
            // It asks again if this does not reach it.
            let _ = answer.send(Answer::Order(synced));
        }
    }

    /// Whether an agent is there and answers.
    pub(super) fn is_live(&self, container: &ContainerId) -> bool {
        self.agents.get(container).is_some_and(|known| !known.quiet)
    }

    /// Tells an agent that waits what is wished of it; false if it does not wait.
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

    /// Agents that have just become quiet.
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

    /// What each task uses, as far as its agent has said.
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
