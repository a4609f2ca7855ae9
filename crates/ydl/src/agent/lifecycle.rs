//! Lifecycle of an agent: it asks the master for its order, compares it with the current state, and acts on the
//! difference.
//!
//! One loop owns all state. Slow work (starting or stopping a program, copying outputs) runs outside the loop, so that
//! the heartbeat continues.

mod execution;
mod forward;
mod master_link;
mod readiness;
mod requests;
mod startup;
mod tokens;
mod upload;

use super::{
    bootstrap::Bootstrap,
    devices::Devices,
    exec::ExecError,
    inputs::InputFetch,
    ports::PortReservation,
    program::{Program, StartError},
    shipping::HdfsWorker,
    task_env::TaskEnv,
};
use crate::agent::measure::Meter;
use execution::{RunningProgram, StartingProgram};
use hyper::{Method, StatusCode};
use master_link::MasterLink;
use readiness::Readiness;
use requests::RequestPermits;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokens::TokenRefresh;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep_until, timeout_at},
};
use upload::Uploads;
use ydl_core::{Order, TaskId};
use ydl_net::client::{CallError, Payload};
use ydl_proto::{
    files::SubmittedJob,
    messages::{AgentReport, NOT_DURABLE, NumberedRequest, Sync, SyncReply, heartbeat_interval},
    usage::Usage,
};
use ydl_storage::{data::DataError, hdfs::JobLayout};

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
    setting: Bootstrap,
    submitted: SubmittedJob,
    surroundings: TaskEnv,
    reach: MasterLink,
    /// The job's directory in HDFS, and the worker that writes to it.
    staging: Option<JobLayout>,
    carrier: Option<Arc<HdfsWorker>>,
    /// Limits concurrent log and port-forward requests.
    turns: RequestPermits,
    tokens: TokenRefresh,
    order: Option<Order>,
    /// Variables that the master sets for programs.
    told: BTreeMap<String, String>,
    seen: u64,
    /// Number of the newest log or port-forward request.
    last_request: u64,
    reports: Vec<AgentReport>,
    /// Inputs being fetched.
    fetch: Option<InputFetch>,
    /// Task and round of the latest fetch, and whether its inputs are complete.
    tried: Option<(TaskId, u32)>,
    fetched: bool,
    hold: Option<PortReservation>,
    ready: Option<Readiness>,
    /// Never together with `running`.
    starting: Option<StartingProgram>,
    running: Option<RunningProgram>,
    /// Newest round whose program has run here.
    ran: u32,
    saving: Option<oneshot::Receiver<Option<String>>>,
    saved: bool,
    /// Restore in progress with its round, and the newest round that was restored.
    filling: Option<JoinHandle<(u32, Result<(), String>)>>,
    filled: Option<u32>,
    /// Continuous uploads of running programs.
    keeping: Uploads,
    /// Deadline of the exit, once the agent was told to leave.
    leaves: Option<Instant>,
    /// The container was told to end: by a NodeManager, or because the master died.
    signalled: bool,
    /// Exits because the master was unreachable: the end of its program is its own doing, and not reported.
    cut_off: bool,
    devices: Devices,
    /// Reason why no program of the job can run here.
    unfit: Option<String>,
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

/// Reply of the master to a sync.
enum MasterReply {
    NoChange,
    Order(SyncReply),
    Requests(Vec<NumberedRequest>),
}

enum Wakeup {
    Replied {
        /// Time of the request.
        asked: Instant,
        answer: Result<MasterReply, CallError>,
    },
    Started(Result<Program, StartError>),
    Exited(super::shim_protocol::ShimExit),
    KillIsDue,
    InputsFetched(Result<(), DataError>),
    Restored(Option<(u32, Result<(), String>)>),
    CheckpointsSaved,
    OutputsSaved(Option<String>),
    MasterMoved(String),
    TokensFetched(bool),
    Terminated,
    CutOff,
}

impl Agent {
    /// Runs until nothing is left to do.
    pub(super) async fn live(mut self) -> Result<AgentEnd, String> {
        let mut term = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
        let deadlines = &self.submitted.spec.timeouts;
        let silence = Duration::from_millis(deadlines.heartbeat.0);
        // Before the first reply nothing runs here, and on a machine where a thousand agents start at once it may take
        // a while.
        let mut patience = silence.max(Duration::from_millis(deadlines.join.0));
        let mut heard = Instant::now();
        let mut retry = RETRY.0;
        let mut not_before = Instant::now();
        let mut left = AgentEnd::Done;
        loop {
            match self.wake(&mut term, not_before, heard + patience).await {
                Wakeup::Replied { asked, answer: Ok(told) } => {
                    // The master counts from the arrival of the request, which was after it was sent and perhaps long
                    // before the reply.
                    heard = asked;
                    self.reach.heard(self.beat());
                    patience = silence;
                    retry = RETRY.0;
                    let news = self.on_answer(told);
                    // The reply acknowledges all reports, including the saved outputs.
                    if self.saved {
                        return Ok(AgentEnd::Done);
                    }
                    // A master without news holds the request for a heartbeat interval. If it replies early, the next
                    // request is delayed.
                    not_before = match news {
                        true => Instant::now(),
                        false => asked + self.beat().min(RETRY.1),
                    };
                }
                Wakeup::Replied { asked, answer: Err(error) } => {
                    match &error {
                        CallError::Refused { status, error, .. } if *status < 500 => {
                            tracing::warn!("rejected by the master: {error}");
                            self.end();
                        }
                        CallError::Version { .. } => {
                            tracing::error!("{error}");
                            self.end();
                        }
                        CallError::Refused { status, .. } if *status == NOT_DURABLE => {
                            heard = asked
                        }
                        _ => {}
                    }
                    if !matches!(error, CallError::Refused { .. }) {
                        self.reach.missed();
                    }
                    tracing::debug!("no reply from the master: {error}");
                    not_before = Instant::now() + retry;
                    retry = (retry * 2).min(RETRY.1);
                }
                Wakeup::Started(started) => {
                    self.on_started(started);
                    not_before = Instant::now();
                }
                Wakeup::Exited(exit) => {
                    self.on_exited(exit);
                    not_before = Instant::now();
                }
                Wakeup::KillIsDue => self.on_kill_due(),
                Wakeup::InputsFetched(brought) => {
                    self.on_brought(brought);
                    not_before = Instant::now();
                }
                Wakeup::Restored(filled) => {
                    self.on_filled(filled);
                    not_before = Instant::now();
                }
                Wakeup::CheckpointsSaved => {}
                Wakeup::OutputsSaved(error) => {
                    self.saving = None;
                    self.saved = true;
                    self.report(AgentReport::OutputsUploaded { error });
                    not_before = Instant::now();
                }
                Wakeup::MasterMoved(address) => {
                    tracing::info!("the master has moved to `{address}`");
                    self.reach.go(address.clone())?;
                    self.setting.master = address;
                    // The new master numbers its own requests.
                    self.last_request = 0;
                    if let Err(error) = self.setting.tell_master(self.surroundings.dir()) {
                        // Running programs keep using the previous address.
                        tracing::warn!("cannot write the master's address: {error}");
                    }
                    retry = RETRY.0;
                    not_before = Instant::now();
                }
                Wakeup::TokensFetched(fetched) => self.on_fetched(fetched),
                Wakeup::Terminated => {
                    tracing::info!("termination signal received");
                    left = AgentEnd::Terminated;
                    self.end();
                }
                Wakeup::CutOff => {
                    tracing::warn!("no master for {patience:?}; leaving");
                    self.end();
                    self.cut_off = true;
                }
            }
            self.reconcile();
            if self.signalled && !self.is_busy() {
                let deadline = self.leave_by();
                let logs = self.finish_logs(LEAVE_MAX);
                let kept = self.keeping.finish(deadline, deadline);
                let saving = self.saving.take();
                let saved = async {
                    if let Some(saving) = saving {
                        // Uploads that miss the deadline are lost with the container.
                        let _ = timeout_at(deadline, saving).await;
                    }
                };
                tokio::join!(self.say_last_words(), logs, kept, saved);
                return match self.cut_off {
                    true => Err("cut off from its master".to_owned()),
                    false => Ok(left),
                };
            }
        }
    }

    /// Prepares to exit. Time may be short: ships the newest output first.
    fn end(&mut self) {
        if !self.signalled {
            self.leaves = None;
            self.leave_by();
        }
        self.signalled = true;
        if let Some(carrier) = &self.carrier {
            carrier.hurry();
        }
    }

    /// Sends the remaining reports once: the master may be gone.
    async fn say_last_words(&mut self) {
        let last = self.sync();
        if let Some(last) = last.filter(|_| !self.reports.is_empty()) {
            let path = "/v1/sync?wait_ms=0";
            let call = self.reach.client.call(Method::POST, path, last, CALL_MAX / 10);
            if let Err(error) = call.await {
                tracing::debug!("cannot send the last reports: {error}");
            }
        }
    }

    async fn wake(&mut self, term: &mut Signal, not_before: Instant, cut_off: Instant) -> Wakeup {
        let question = self.sync();
        let beat = self.beat();
        let path = format!("/v1/sync?wait_ms={}", beat.as_millis());
        let (client, mut moved) = self.reach.split();
        let ask = async {
            sleep_until(not_before).await;
            let Some(question) = question else {
                return std::future::pending().await;
            };
            let asked = Instant::now();
            let call = client.call(Method::POST, &path, question, beat + CALL_MAX);
            let answer = match call.await {
                Ok(answer) if answer.status == StatusCode::NO_CONTENT => Ok(MasterReply::NoChange),
                Ok(answer) if answer.status == StatusCode::ACCEPTED => {
                    answer.json().map(MasterReply::Requests)
                }
                Ok(answer) => answer.json().map(MasterReply::Order),
                Err(error) => Err(error),
            };
            Wakeup::Replied { asked, answer }
        };
        let give_up_at = self.starting.as_ref().and_then(|it| it.give_up_at);
        let kill_at = self.running.as_ref().and_then(|it| it.kill_at);
        let kill_at = kill_at.or(give_up_at);
        let start = async {
            match &mut self.starting {
                Some(starting) => (&mut starting.program).await,
                None => std::future::pending().await,
            }
        };
        // After a termination signal there may be no master: on one machine there is no successor.
        let patience = match self.signalled {
            true => LEAVE_MAX,
            false => Duration::from_millis(self.submitted.spec.timeouts.heartbeat.0),
        };
        let exit = async {
            match &mut self.running {
                Some(running) => running.over(patience).await,
                None => std::future::pending().await,
            }
        };
        let kill = async {
            match kill_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let saved = async {
            match &mut self.saving {
                Some(saving) => saving.await,
                None => std::future::pending().await,
            }
        };
        let fetched = async {
            match &mut self.tokens.fetching {
                Some(fetching) => fetching.await.unwrap_or(false),
                None => std::future::pending().await,
            }
        };
        let brought = async {
            match &mut self.fetch {
                Some(fetch) => fetch.wait().await,
                None => std::future::pending().await,
            }
        };
        let filled = async {
            match &mut self.filling {
                Some(filling) => filling.await.ok(),
                None => std::future::pending().await,
            }
        };
        let waits = matches!(self.order, Some(Order::Wait { .. }));
        let saving = waits && !self.keeping.is_saved();
        let lost = |_| Err(StartError::Program(ExecError::of("starting it failed".into())));
        tokio::select! {
            started = start => Wakeup::Started(started.unwrap_or_else(lost)),
            exit = exit => Wakeup::Exited(exit),
            () = kill => Wakeup::KillIsDue,
            brought = brought => Wakeup::InputsFetched(brought),
            filled = filled => Wakeup::Restored(filled),
            () = self.keeping.saved(), if saving => Wakeup::CheckpointsSaved,
            saved = saved => Wakeup::OutputsSaved(saved.unwrap_or_else(|_| Some("copying them failed".into()))),
            Some(()) = term.recv() => Wakeup::Terminated,
            () = sleep_until(cut_off), if !self.signalled => Wakeup::CutOff,
            fetched = fetched => Wakeup::TokensFetched(fetched),
            address = MasterLink::moved(&mut moved) => Wakeup::MasterMoved(address),
            woken = ask => woken,
        }
    }

    fn beat(&self) -> Duration {
        heartbeat_interval(self.submitted.spec.timeouts.heartbeat)
    }

    fn sync(&mut self) -> Option<Payload> {
        if self.running.is_some() {
            self.usage = self.meter.sample().ok();
            self.end_if_halted();
        }
        if let Some(fetch) = &self.fetch {
            let mut usage = self.meter.sample().unwrap_or_default();
            usage.download = Some(fetch.so_far());
            self.usage = Some(usage);
        }
        let reports = self.reports.clone();
        let usage = self.usage.take();
        Payload::json(&Sync {
            reports,
            order: self.seen,
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
    fn on_answer(&mut self, told: MasterReply) -> bool {
        // Any reply acknowledges all reports sent.
        self.reports.clear();
        match told {
            MasterReply::NoChange => false,
            MasterReply::Order(SyncReply { number, order, tokens, env }) => {
                self.told = env;
                self.on_tokens(tokens);
                self.order = Some(order);
                std::mem::replace(&mut self.seen, number) != number
            }
            MasterReply::Requests(wishes) => {
                let newest = wishes.iter().map(|wish| wish.id).max();
                self.last_request = newest.unwrap_or(self.last_request);
                self.grant(wishes);
                newest.is_some()
            }
        }
    }

    /// Acts on the difference between the order and the current state.
    fn reconcile(&mut self) {
        if self.signalled {
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
                } else if self.has_inputs(&task, round) && self.keeping.is_saved() {
                    // A task finds what all others have saved, so none is ready before all uploads are done.
                    self.get_ready(round, ports, slot);
                }
            }
            Order::Run(run) => {
                if self.is_busy() && self.ran != run.round {
                    self.stop_program(self.submitted.spec.timeouts.grace);
                } else if !self.is_busy() && self.ran < run.round && self.has_checkpoint(&run) {
                    self.start(run);
                }
            }
            Order::Stop { grace, upload: save } => {
                self.leave_by();
                self.fetch = None;
                if self.is_busy() {
                    self.stop_program(grace);
                } else if self.saving.is_none() && !self.saved {
                    self.save(save);
                }
            }
        }
    }
}
