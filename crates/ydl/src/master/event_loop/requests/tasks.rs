//! Requests that programs and clients make about the job and its tasks.

use super::super::Master;
use crate::{
    backend::Backend,
    master::{
        inbox::{JobChange, MasterResponse},
        journal::{Journal, JournalRecord},
        kv::Op,
        kv_service::KvRequest,
        progress::JobProgress,
    },
};
use tokio::sync::oneshot;
use ydl_core::{Cause, ContainerId, Event, Outcome, RoleName, TaskId, spec::SpecIssue};
use ydl_net::request::Reply;
use ydl_proto::{
    messages::{AddedTask, EndRequest, RequestedOutcome, TaskAddition},
    transaction::{OwnerUse, Transaction},
};

/// Maximum length of a reported reason.
const REASON_CHARS_MAX: usize = 4096;

impl<B: Backend, D: Journal> Master<B, D> {
    /// Changes the job. A program of an attempt that is over cannot: its node may have been unreachable since.
    pub(super) fn on_change(&mut self, by: Option<&ContainerId>, change: JobChange) -> Reply {
        if let Some(container) = by.filter(|by| self.job.task_in_container(by).is_none()) {
            let what = format!("container `{container}` has ended and cannot change the job");
            return Reply::error(410, what, None);
        }
        match change {
            JobChange::AddTask(addition) => self.on_add_task(addition),
            JobChange::StopTask(task) => self.on_stop_task(task),
            JobChange::End(end) => self.on_end(end),
            JobChange::Progress(progress) => {
                self.advance(JobProgress::from_fraction(progress));
                Reply::empty()
            }
        }
    }

    fn on_add_task(&mut self, addition: TaskAddition) -> Reply {
        let TaskAddition { role, env } = addition;
        let role = RoleName::from(role);
        if let Some(reply) = self.ending() {
            return reply;
        }
        if let Err(issues) = self.job.check_task_add(&role, &env) {
            return rejection(issues);
        }
        let index = self.job.next_index(&role).unwrap_or_default();
        self.handle_event(Event::TaskAddRequested { role: role.clone(), env });
        Reply::json(&AddedTask { task: TaskId { role, index } })
    }

    fn on_stop_task(&mut self, task: TaskId) -> Reply {
        if let Some(reply) = self.ending() {
            return reply;
        }
        match self.job.check_task_stop(&task) {
            Ok(()) => {
                self.handle_event(Event::TaskStopRequested { task });
                Reply::empty()
            }
            Err(issue) => rejection(vec![issue]),
        }
    }

    fn on_end(&mut self, end: EndRequest) -> Reply {
        let reason = end.reason.chars().filter(|c| !c.is_control() || *c == '\n');
        let reason: String = reason.take(REASON_CHARS_MAX).collect();
        let or =
            |default: &str| if reason.is_empty() { default.to_owned() } else { reason.clone() };
        let outcome = match end.outcome {
            RequestedOutcome::Succeeded => Outcome::Succeeded,
            RequestedOutcome::Failed => {
                Outcome::Failed(Cause::Requested { reason: or("ended on request") })
            }
            RequestedOutcome::Killed => Outcome::Killed { by: or("request") },
        };
        self.handle_event(Event::EndRequested { outcome });
        Reply::empty()
    }

    /// Applies a transaction after replacing tasks by their containers.
    pub(super) fn on_transaction(
        &mut self,
        mut transaction: Transaction,
        respond_to: oneshot::Sender<MasterResponse>,
    ) {
        let job = &self.job;
        let container = |owner: &str, usage: OwnerUse| {
            let task = owner.parse::<TaskId>();
            let task = task.map_err(|_| format!("`{owner}` is not a task, so it owns no key"))?;
            match (job.container_of(&task), usage) {
                (Some(container), _) => Ok(container.to_string()),
                // No container has this name.
                (None, OwnerUse::Compared) => Ok(task.to_string()),
                (None, OwnerUse::Assigned) => {
                    Err(format!("`{task}` has no container, so it cannot own a key"))
                }
            }
        };
        if let Err(what) = transaction.map_owners(container) {
            self.outbox.respond(respond_to, Reply::error(400, what, None));
            return;
        }
        let request = KvRequest::Apply(Op::Transact(transaction));
        if let Some(op) = self.kv.handle(request, respond_to, &mut self.outbox) {
            self.journal.append(&JournalRecord::Kv(op));
        }
    }

    /// Rejects a change of a job that is ending.
    pub(super) fn ending(&self) -> Option<Reply> {
        let ending = self.job.outcome().is_some();
        ending.then(|| Reply::error(400, "the job is ending", None))
    }
}

/// Rejects a request that does not fit the job.
pub(super) fn rejection(issues: Vec<SpecIssue>) -> Reply {
    let what: Vec<_> = issues.iter().map(|issue| issue.message.clone()).collect();
    let hint = issues.into_iter().find_map(|issue| issue.hint);
    Reply::error(400, what.join("; "), hint)
}
