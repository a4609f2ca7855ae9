//! Lifecycle of an agent: it asks the master for its order, compares it with the current state, and acts on the
//! difference (`Agent::reconcile`).
//!
//! One loop owns all state. Slow work (starting or stopping a program, copying outputs) runs outside the loop, so that
//! the heartbeat continues.
//!
//! * `startup`: the start of an agent. `events`: what the loop waits for, and its requests to the master (sync).
//!   `master_connection`: the address of the master, which may move.
//! * `readiness`: inputs and ports for a round. `execution`: start, stop and end of programs.
//! * `upload`: checkpoints and outputs. `tokens`: new tokens.
//! * `requests`: requests of clients. `read_log`: for logs. `forward`: for connections to ports.

mod events;
mod execution;
mod forward;
mod master_connection;
mod read_log;
mod readiness;
mod requests;
mod startup;
mod tokens;
mod upload;

use super::{
    bootstrap::Bootstrap, devices::Devices, inputs::InputFetch, ports::PortReservation,
    shipping::HdfsWorker, task_env::TaskEnv,
};
use crate::agent::measure::Meter;
use events::{AgentEvent, MasterReply};
use execution::{RunningProgram, StartingProgram};
use hyper::Method;
use master_connection::MasterConnection;
use readiness::Readiness;
use requests::RequestPermits;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokens::TokenRefresh;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use upload::Uploads;
use ydl_core::{Order, TaskId};
use ydl_net::client::{CallError, Payload};
use ydl_proto::{
    files::SubmittedJob,
    messages::{AgentReport, NOT_DURABLE, Sync, SyncReply, heartbeat_interval},
    usage::Usage,
};
use ydl_storage::hdfs::JobLayout;

/// Timeout of one call to the master, in addition to the long poll.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Minimum and maximum pause between retries to reach the master.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Timeout for the last logs and reports of an agent that must exit.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// Maximum number of buffered reports. An agent sends a handful in its life.
const REPORTS_MAX: usize = 64;

/// An agent in its container.
#[derive(Debug)]
pub(super) struct Agent {
    bootstrap: Bootstrap,
    submitted: SubmittedJob,
    task_env: TaskEnv,
    master: MasterConnection,
    /// The job's directory in HDFS, and the worker that writes to it.
    staging: Option<JobLayout>,
    hdfs_worker: Option<Arc<HdfsWorker>>,
    /// Permits of concurrent requests of clients.
    request_permits: RequestPermits,
    tokens: TokenRefresh,
    order: Option<Order>,
    /// Variables that the master sets for programs.
    program_env: BTreeMap<String, String>,
    order_number: u64,
    /// Number of the newest request of a client.
    last_request: u64,
    reports: Vec<AgentReport>,
    /// Inputs being fetched.
    fetch: Option<InputFetch>,
    /// Task and round of the latest fetch, and whether its inputs are complete.
    latest_fetch: Option<(TaskId, u32)>,
    inputs_complete: bool,
    port_reservation: Option<PortReservation>,
    ready: Option<Readiness>,
    /// Never together with `running`.
    starting: Option<StartingProgram>,
    running: Option<RunningProgram>,
    /// Newest round whose start was attempted here.
    last_round: u32,
    /// Last logs, checkpoints and outputs being saved before the exit, and whether that is done.
    finishing: Option<oneshot::Receiver<Option<String>>>,
    finished: bool,
    /// Restore in progress with its round, and the newest round that was restored.
    restore: Option<JoinHandle<(u32, Result<(), String>)>>,
    restored_round: Option<u32>,
    /// Continuous uploads of running programs.
    uploads: Uploads,
    /// Deadline of the exit, once the agent was told to leave.
    exits_at: Option<Instant>,
    /// The container was told to end: by a NodeManager, or because the master died.
    is_terminating: bool,
    /// Exits because the master was unreachable: the end of its program is its own doing, and not reported.
    cut_off: bool,
    devices: Devices,
    /// Reason why no program of the job can run here.
    unfit_reason: Option<String>,
    meter: Meter,
    usage: Option<Usage>,
}

/// Reason why an agent has exited.
pub(super) enum AgentEnd {
    /// Nothing is left to do.
    Done,
    /// The owner of the container terminated it.
    Terminated,
}

impl Agent {
    /// Runs until nothing is left to do.
    pub(super) async fn run(mut self) -> Result<AgentEnd, String> {
        let mut term = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
        let timeouts = &self.submitted.spec.timeouts;
        let heartbeat_timeout = Duration::from_millis(timeouts.heartbeat.0);
        // Before the first reply nothing runs here, and on a machine where a thousand agents start at once it may take
        // a while.
        let mut timeout = heartbeat_timeout.max(Duration::from_millis(timeouts.join.0));
        let mut last_reply = Instant::now();
        let mut retry = RETRY.0;
        let mut next_sync = Instant::now();
        let mut end = AgentEnd::Done;
        loop {
            match self.next_event(&mut term, next_sync, last_reply + timeout).await {
                AgentEvent::Replied { sent_at, reply: Ok(reply) } => {
                    // The master counts from the arrival of the request, which was after it was sent and perhaps long
                    // before the reply.
                    last_reply = sent_at;
                    self.master.on_reply(self.heartbeat_interval());
                    timeout = heartbeat_timeout;
                    retry = RETRY.0;
                    let news = self.on_reply(reply);
                    // The reply acknowledges all reports, including the saved outputs.
                    if self.finished {
                        return Ok(AgentEnd::Done);
                    }
                    // A master without news holds the request for a heartbeat interval. If it replies early, the next
                    // request is delayed.
                    next_sync = match news {
                        true => Instant::now(),
                        false => sent_at + self.heartbeat_interval().min(RETRY.1),
                    };
                }
                AgentEvent::Replied { sent_at, reply: Err(error) } => {
                    match &error {
                        CallError::Refused { status, error, .. } if *status < 500 => {
                            tracing::warn!("rejected by the master: {error}");
                            self.begin_exit();
                        }
                        CallError::Version { .. } => {
                            tracing::error!("{error}");
                            self.begin_exit();
                        }
                        CallError::Refused { status, .. } if *status == NOT_DURABLE => {
                            last_reply = sent_at
                        }
                        _ => {}
                    }
                    if !matches!(error, CallError::Refused { .. }) {
                        self.master.on_error();
                    }
                    tracing::debug!("no reply from the master: {error}");
                    next_sync = Instant::now() + retry;
                    retry = (retry * 2).min(RETRY.1);
                }
                AgentEvent::Started(started) => {
                    self.on_started(started);
                    next_sync = Instant::now();
                }
                AgentEvent::Exited(exit) => {
                    self.on_exited(exit);
                    next_sync = Instant::now();
                }
                AgentEvent::KillIsDue => self.on_kill_due(),
                AgentEvent::InputsFetched(fetched) => {
                    self.on_inputs_fetched(fetched);
                    next_sync = Instant::now();
                }
                AgentEvent::Restored(restored) => {
                    self.on_restored(restored);
                    next_sync = Instant::now();
                }
                AgentEvent::CheckpointsSaved => {}
                AgentEvent::Finished(upload_error) => {
                    self.finishing = None;
                    self.finished = true;
                    self.report(AgentReport::Stopped { upload_error });
                    next_sync = Instant::now();
                }
                AgentEvent::MasterMoved(address) => {
                    tracing::info!("the master has moved to `{address}`");
                    self.master.connect_to(address.clone())?;
                    self.bootstrap.master = address;
                    // The new master numbers its own requests.
                    self.last_request = 0;
                    if let Err(error) = self.bootstrap.write_master_address(self.task_env.dir()) {
                        // Running programs keep using the previous address.
                        tracing::warn!("cannot write the master's address: {error}");
                    }
                    retry = RETRY.0;
                    next_sync = Instant::now();
                }
                AgentEvent::TokensFetched(fetched) => self.on_tokens_fetched(fetched),
                AgentEvent::Terminated => {
                    tracing::info!("termination signal received");
                    end = AgentEnd::Terminated;
                    self.begin_exit();
                }
                AgentEvent::CutOff => {
                    tracing::warn!("no master for {timeout:?}; leaving");
                    self.begin_exit();
                    self.cut_off = true;
                }
            }
            self.reconcile();
            if self.is_terminating && !self.is_busy() {
                let deadline = self.exit_deadline();
                let logs = self.finish_logs(LEAVE_MAX);
                let uploads = self.uploads.finish(deadline, deadline);
                let finishing = self.finishing.take();
                let finished = async {
                    if let Some(finishing) = finishing {
                        // Uploads that miss the deadline are lost with the container.
                        let _ = timeout_at(deadline, finishing).await;
                    }
                };
                tokio::join!(self.send_last_reports(), logs, uploads, finished);
                return match self.cut_off {
                    true => Err("cut off from its master".to_owned()),
                    false => Ok(end),
                };
            }
        }
    }

    /// Prepares to exit. Time may be short: ships the newest output first.
    fn begin_exit(&mut self) {
        if !self.is_terminating {
            self.exits_at = None;
            self.exit_deadline();
        }
        self.is_terminating = true;
        if let Some(worker) = &self.hdfs_worker {
            worker.hurry();
        }
    }

    /// Sends the remaining reports once: the master may be gone.
    async fn send_last_reports(&mut self) {
        let last = self.build_sync();
        if let Some(last) = last.filter(|_| !self.reports.is_empty()) {
            let path = "/v1/sync?wait_ms=0";
            let call = self.master.client.call(Method::POST, path, last, CALL_MAX / 10);
            if let Err(error) = call.await {
                tracing::debug!("cannot send the last reports: {error}");
            }
        }
    }

    fn heartbeat_interval(&self) -> Duration {
        heartbeat_interval(self.submitted.spec.timeouts.heartbeat)
    }

    /// Builds the next sync from the reports so far and the current usage.
    fn build_sync(&mut self) -> Option<Payload> {
        if self.running.is_some() {
            self.usage = self.meter.sample().ok();
        }
        if let Some(fetch) = &self.fetch {
            let mut usage = self.meter.sample().unwrap_or_default();
            usage.download = Some(fetch.progress());
            self.usage = Some(usage);
        }
        let reports = self.reports.clone();
        let usage = self.usage.take();
        Payload::json(&Sync {
            reports,
            order: self.order_number,
            tokens: self.tokens.number,
            last_request: self.last_request,
            usage,
        })
        .ok()
    }

    fn report(&mut self, report: AgentReport) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push(report);
        }
    }

    /// Handles a reply. Returns true if it contained news.
    fn on_reply(&mut self, reply: MasterReply) -> bool {
        // Any reply acknowledges all reports sent.
        self.reports.clear();
        match reply {
            MasterReply::NoChange => false,
            MasterReply::Order(SyncReply { number, order, tokens, env }) => {
                self.program_env = env;
                self.on_tokens(tokens);
                self.order = Some(order);
                std::mem::replace(&mut self.order_number, number) != number
            }
            MasterReply::Requests(requests) => {
                let newest = requests.iter().map(|request| request.id).max();
                self.last_request = newest.unwrap_or(self.last_request);
                self.serve(requests);
                newest.is_some()
            }
        }
    }

    /// Acts on the difference between the order and the current state.
    fn reconcile(&mut self) {
        if self.is_terminating {
            self.fetch = None;
            let grace = self.submitted.spec.timeouts.grace;
            self.stop_program(grace);
            return;
        }
        let Some(order) = self.order.clone() else {
            return;
        };
        match order {
            Order::Wait { round, task, ports, slot, grace } => {
                if self.is_busy() {
                    self.stop_program(grace);
                } else if self.has_inputs(&task, round) && self.uploads.is_saved() {
                    // A task finds what all others have saved, so none is ready before all uploads are done.
                    self.prepare_round(round, ports, slot);
                }
            }
            Order::Run(run) => {
                if self.is_busy() && self.last_round != run.round {
                    self.stop_program(self.submitted.spec.timeouts.grace);
                } else if !self.is_busy()
                    && self.last_round < run.round
                    && self.has_checkpoint(&run)
                {
                    self.start(run);
                }
            }
            Order::Stop { grace, upload } => {
                self.exit_deadline();
                self.fetch = None;
                if self.is_busy() {
                    self.stop_program(grace);
                } else if self.finishing.is_none() && !self.finished {
                    self.finish(upload);
                }
            }
        }
    }
}
