//! Handlers of requests.

mod tasks;

use super::{Master, view::snapshot};
use crate::{
    backend::Backend,
    master::{
        agents::AgentVersions,
        inbox::{DurableFlag, Envelope, MasterRequest, MasterResponse},
        journal::{Journal, JournalRecord},
        kv::Op,
        kv_service::KvRequest,
        links::SessionId,
        outbox::Effect,
    },
};
use tokio::{sync::oneshot, time::Instant};
use yarn_native::credentials::Format;
use ydl_core::{ContainerId, Event, JobView, RoleName};
use ydl_net::request::Reply;
use ydl_proto::messages::{AgentReport, JobSnapshot, MetricsReport, Sync, TaskList};
use ydl_rendezvous::ClientFrame;

impl<B: Backend, D: Journal> Master<B, D> {
    pub(super) fn on_request(&mut self, envelope: Envelope) {
        let Envelope { request, respond_to, durable } = envelope;
        match request {
            MasterRequest::Sync(container, sync) => {
                self.on_sync(container, sync, respond_to, durable)
            }
            MasterRequest::Tokens(container) => {
                let reply = self.tokens_for(&container);
                self.outbox.respond(respond_to, reply);
            }
            MasterRequest::Disconnected => self.backend.expect_exit(),
            MasterRequest::View { seen } => self.watchers.view(seen, respond_to),
            MasterRequest::Snapshot => {
                let (job, links, now) = (&self.job, &self.links, self.clock.now());
                let shortage = self.backend.shortage();
                let all = JobSnapshot {
                    metrics: self.metrics.all(),
                    progress: self.progress.fraction(),
                    priority: self.priority,
                    ..snapshot(0, job, &self.agents, links, shortage.as_deref(), now)
                };
                // This response has no effects, so it need not wait for the journal.
                drop(respond_to.send(Reply::json(&all).into()));
            }
            MasterRequest::History { after } => self.watchers.history(after, respond_to),
            MasterRequest::Kill(kill) => {
                let by = kill.by.chars().filter(|c| !c.is_control()).take(200).collect();
                self.handle_event(Event::KillRequested { by, immediate: kill.immediate });
                self.outbox.respond(respond_to, Reply::empty());
            }
            MasterRequest::Scale { role, instances } => self.on_scale(role, instances, respond_to),
            MasterRequest::Metrics { container, report } => {
                let reply = self.on_metrics(&container, report);
                self.outbox.respond(respond_to, reply);
            }
            MasterRequest::Kv { by: Some(container), request: KvRequest::Apply(_) }
                if self.job.task_in_container(&container).is_none() =>
            {
                let what = format!("container `{container}` has ended and cannot change keys");
                self.outbox.respond(respond_to, Reply::error(410, what, None));
            }
            MasterRequest::Logs { task, request } => {
                let (job, agents) = (&self.job, &mut self.agents);
                self.agent_requests.submit_log(task, request, respond_to, job, agents);
            }
            MasterRequest::Forward { task, request } => {
                let (job, agents) = (&self.job, &mut self.agents);
                self.agent_requests.submit_forward(task, request, respond_to, job, agents);
            }
            MasterRequest::ForwardReply { container, id, failed } => {
                let reply = self.agent_requests.on_forward_reply(&container, id, failed);
                self.outbox.respond(respond_to, reply);
            }
            MasterRequest::Links { container, session, frames } => {
                self.on_links(&container, session, frames, respond_to)
            }
            MasterRequest::ListenLinks { container, session } => {
                let listening = self.links.listen(&self.job, &container, session, respond_to);
                if let Err((respond_to, rejected)) = listening {
                    self.outbox.respond(respond_to, rejected);
                }
            }
            MasterRequest::LogReply { container, id, reply: found } => {
                let reply = self.agent_requests.on_log_reply(&container, id, found);
                self.outbox.respond(respond_to, reply);
            }
            MasterRequest::Spec => self.outbox.respond(respond_to, Reply::json(self.job.spec())),
            MasterRequest::Tasks => {
                let JobView { roles, tasks, .. } = self.job.view();
                let stopped = self.job.stopped_tasks();
                self.outbox.respond(respond_to, Reply::json(&TaskList { roles, tasks, stopped }));
            }
            MasterRequest::Change { by, change } => {
                let reply = self.on_change(by.as_ref(), change);
                self.outbox.respond(respond_to, reply);
            }
            MasterRequest::Kv { request: KvRequest::Apply(Op::Transact(transaction)), .. } => {
                self.on_transaction(transaction, respond_to);
            }
            MasterRequest::Kv { request, .. } => {
                if let Some(op) = self.kv.handle(request, respond_to, &mut self.outbox) {
                    self.journal.append(&JournalRecord::Kv(op));
                }
            }
        }
    }

    fn on_sync(
        &mut self,
        container: ContainerId,
        sync: Sync,
        respond_to: oneshot::Sender<MasterResponse>,
        durable: DurableFlag,
    ) {
        if self.job.task_in_container(&container).is_some() {
            let awaited = self.job.expects_first_report(&container);
            if self.agents.on_heartbeat(&container, sync.usage) || awaited {
                self.handle_event(Event::HeartbeatResumed { container: container.clone() });
            }
        }
        for report in sync.reports {
            let container = container.clone();
            self.handle_event(match report {
                AgentReport::Ready { round, endpoint } => {
                    Event::Ready { container, round, endpoint }
                }
                AgentReport::SetupFailed { reason, node_fault } => {
                    Event::SetupFailed { container, reason, node_fault }
                }
                AgentReport::Started { round } => Event::Started { container, round },
                AgentReport::Exited { round, exit } => Event::Exited { container, round, exit },
                AgentReport::Stopped { upload_error } => {
                    Event::AgentStopped { container, upload_error }
                }
            });
        }
        self.outbox.push(Effect::AnswerSync {
            container,
            versions: AgentVersions {
                order: sync.order,
                tokens: sync.tokens,
                last_request: sync.last_request,
            },
            respond_to,
            durable,
        });
    }

    fn on_links(
        &mut self,
        container: &ContainerId,
        session: SessionId,
        frames: Vec<ClientFrame>,
        respond_to: oneshot::Sender<MasterResponse>,
    ) {
        match self.links.receive(&self.job, container, session, frames) {
            Ok(output) => {
                self.append_and_queue(output);
                match self.job.task_in_container(container) {
                    Some(task) => self.outbox.push(Effect::AnswerLinksPost {
                        task,
                        number: session.number,
                        respond_to,
                    }),
                    None => self.outbox.respond(respond_to, Reply::empty()),
                }
            }
            Err(rejected) => self.outbox.respond(respond_to, rejected),
        }
    }

    fn on_metrics(&mut self, container: &ContainerId, report: MetricsReport) -> Reply {
        let job = &self.job;
        let (Some(task), Some(attempt)) =
            (job.task_in_container(container), job.attempt_in_container(container))
        else {
            let what = format!("container `{container}` has ended and cannot report metrics");
            return Reply::error(410, what, None);
        };
        match self.metrics.store(task, attempt, report, Instant::now()) {
            Ok(()) => Reply::empty(),
            Err(rejected) => rejected,
        }
    }

    fn on_scale(
        &mut self,
        role: RoleName,
        instances: u32,
        respond_to: oneshot::Sender<MasterResponse>,
    ) {
        let reply = match self.job.check_scale(&role, instances) {
            Ok(()) => self.ending().unwrap_or_else(|| {
                self.handle_event(Event::ScaleRequested { role, instances });
                Reply::empty()
            }),
            Err(errors) => tasks::rejection(errors),
        };
        self.outbox.respond(respond_to, reply);
    }

    /// Returns the current tokens, for an agent of this job.
    fn tokens_for(&self, container: &ContainerId) -> Reply {
        if self.job.task_in_container(container).is_none() {
            let what = format!("container `{container}` has ended and cannot fetch tokens");
            return Reply::error(410, what, None);
        }
        match &self.tokens {
            Some(tokens) => {
                let bytes = tokens.borrow().credentials.to_bytes(Format::Writable);
                Reply::new("application/octet-stream", bytes.to_vec())
            }
            None => Reply::error(404, "this job's tokens are not renewed", None),
        }
    }
}
