//! The life of an agent: it asks the master what it should be doing, compares that with what it does, and acts on
//! the difference.
//!
//! One loop, one owner. Everything slow (a program that stops, outputs that are copied) goes on beside the loop, so
//! that the agent keeps beating.

use super::{
    outputs,
    ports::{Hold, Need, Slot},
    program::{Program, StartError},
    setting::{self, Setting},
    surroundings::Surroundings,
};
use crate::{
    agent::measure::{Meter, Usage},
    jobs::Submitted,
    talk::{AgentReport, BEAT_MS, Sync, Synced},
    wire::{
        client::{CallError, Client, Payload},
        secret::Token,
        tls::Pin,
    },
};
use hyper::{Method, StatusCode};
use std::{path::PathBuf, time::Duration};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
    time::{Instant, sleep_until},
};
use ydl_core::{Endpoint, Exit, Order, Run, Span};

/// How long one question to the master may take, beyond the beat it is held for.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Between two tries to reach a master that does not answer, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Reports that wait for a master. An agent has no more than a handful to say in its life.
const REPORTS_MAX: usize = 64;

/// An agent in its container.
#[derive(Debug)]
pub(super) struct Agent {
    setting: Setting,
    submitted: Submitted,
    surroundings: Surroundings,
    client: Client,
    order: Option<Order>,
    seen: u64,
    reports: Vec<AgentReport>,
    hold: Option<Hold>,
    ready: Option<Readiness>,
    running: Option<Running>,
    /// The newest round whose program has run here.
    ran: u32,
    saving: Option<oneshot::Receiver<Option<String>>>,
    saved: bool,
    /// The container was told to end: by a NodeManager, or because the master died.
    signalled: bool,
    meter: Meter,
    usage: Option<Usage>,
}

/// What the agent was last made ready for.
#[derive(Debug, PartialEq, Eq)]
struct Readiness {
    round: u32,
    ports: Vec<(String, bool)>,
    slot: (u32, u32),
}

#[derive(Debug)]
struct Running {
    program: Program,
    round: u32,
    since: Instant,
    /// When SIGTERM is followed by SIGKILL.
    kill_at: Option<Instant>,
}

enum Woken {
    Answered(Result<Option<Synced>, CallError>),
    Exited(super::program::Exit),
    KillIsDue,
    Saved(Option<String>),
    Signalled,
}

impl Agent {
    pub(super) fn new(dir: PathBuf) -> Result<Agent, String> {
        let told = |what: &str, why: &dyn std::fmt::Display| format!("cannot read {what}: {why}");
        let setting = Setting::read(&dir).map_err(|e| told("the agent's setting", &e))?;
        let job = crate::jobs::JobDir::at(&setting.job);
        let submitted = std::fs::read(job.submitted_file()).map_err(|e| told("the job", &e))?;
        let submitted: Submitted =
            serde_json::from_slice(&submitted).map_err(|e| told("the job", &e))?;
        let pem = std::fs::read(job.certificate_file()).map_err(|e| told("the certificate", &e))?;
        let pin = Pin::of_pem(&pem).ok_or("the master's certificate is malformed")?;
        let token =
            Token::read(&dir.join(setting::AGENT_TOKEN)).map_err(|e| told("the token", &e))?;
        let client = Client::new(setting.master.clone(), pin, &token).map_err(|e| e.to_string())?;
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        Ok(Agent {
            surroundings: Surroundings::new(dir, job),
            meter: Meter::new(std::process::id(), visible.as_deref()),
            setting,
            submitted,
            client,
            order: None,
            seen: 0,
            reports: Vec::new(),
            hold: None,
            ready: None,
            running: None,
            ran: 0,
            saving: None,
            saved: false,
            signalled: false,
            usage: None,
        })
    }

    /// Runs until there is nothing left to do here.
    pub(super) async fn live(mut self) -> Result<(), String> {
        let mut term = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
        let mut heard = Instant::now();
        let mut retry = RETRY.0;
        let mut not_before = Instant::now();
        loop {
            match self.wake(&mut term, not_before).await {
                Woken::Answered(Ok(synced)) => {
                    heard = Instant::now();
                    retry = RETRY.0;
                    not_before = heard;
                    self.on_answer(synced);
                    if self.saved && self.reports.is_empty() {
                        return Ok(());
                    }
                }
                Woken::Answered(Err(CallError::Refused { error, .. })) => {
                    tracing::warn!("the master does not want this agent: {error}");
                    self.signalled = true;
                }
                Woken::Answered(Err(error)) => {
                    tracing::debug!("no answer: {error}");
                    not_before = Instant::now() + retry;
                    retry = (retry * 2).min(RETRY.1);
                }
                Woken::Exited(exit) => self.on_exited(exit),
                Woken::KillIsDue => {
                    if let Some(running) = &mut self.running {
                        running.program.kill();
                        running.kill_at = None;
                    }
                }
                Woken::Saved(error) => {
                    self.saving = None;
                    self.saved = true;
                    self.report(AgentReport::Saved { error });
                    not_before = Instant::now();
                }
                Woken::Signalled => {
                    tracing::info!("told to end");
                    self.signalled = true;
                }
            }
            let silence = Duration::from_millis(self.submitted.spec.deadlines.silence.0);
            if heard.elapsed() > silence && !self.signalled {
                tracing::warn!("no master for {silence:?}; leaving");
                self.signalled = true;
            }
            self.reconcile().await;
            if self.signalled && self.running.is_none() {
                // The last words are said once: there may be nobody left to hear them.
                let last = self.sync();
                if let Some(last) = last.filter(|_| !self.reports.is_empty()) {
                    let call = self
                        .client
                        .call(Method::POST, "/v1/sync", last, CALL_MAX / 10);
                    if let Err(error) = call.await {
                        tracing::debug!("nobody hears the last words: {error}");
                    }
                }
                return Ok(());
            }
        }
    }

    async fn wake(&mut self, term: &mut Signal, not_before: Instant) -> Woken {
        let question = self.sync();
        let client = &self.client;
        let ask = async {
            sleep_until(not_before).await;
            let Some(question) = question else {
                return std::future::pending().await;
            };
            let deadline = Duration::from_millis(BEAT_MS) + CALL_MAX;
            match client
                .call(Method::POST, "/v1/sync", question, deadline)
                .await
            {
                Ok(answer) if answer.status == StatusCode::NO_CONTENT => Woken::Answered(Ok(None)),
                Ok(answer) => Woken::Answered(answer.json().map(Some)),
                Err(error) => Woken::Answered(Err(error)),
            }
        };
        let kill_at = self.running.as_ref().and_then(|running| running.kill_at);
        let exit = async {
            match &mut self.running {
                Some(running) => running.program.wait().await,
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
        tokio::select! {
            exit = exit => Woken::Exited(exit),
            () = kill => Woken::KillIsDue,
            saved = saved => Woken::Saved(saved.unwrap_or_else(|_| Some("copying them failed".into()))),
            Some(()) = term.recv() => Woken::Signalled,
            woken = ask => woken,
        }
    }

    fn sync(&mut self) -> Option<Payload> {
        if self.running.is_some() {
            self.usage = self.meter.sample().ok();
        }
        let reports = self.reports.clone();
        let usage = self.usage.take();
        Payload::json(&Sync {
            reports,
            seen: self.seen,
            usage,
        })
        .ok()
    }

    fn report(&mut self, report: AgentReport) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push(report);
        }
    }

    fn on_answer(&mut self, synced: Option<Synced>) {
        // An answer of any kind means that everything said was heard.
        self.reports.clear();
        if let Some(Synced { number, order }) = synced {
            self.seen = number;
            self.order = Some(order);
        }
    }

    fn on_exited(&mut self, exit: super::program::Exit) {
        let Some(running) = self.running.take() else {
            return;
        };
        let mib = (exit.peak_memory_bytes.max(self.meter.peak_bytes()) >> 20).max(1);
        let exit = Exit {
            code: exit.code,
            signal: exit.signal,
            not_started: None,
            container_signalled: self.signalled,
            peak_memory_mib: mib,
            ran: Span(running.since.elapsed().as_millis() as u64),
            stderr_tail: exit.stderr_tail,
        };
        self.report(AgentReport::Exited {
            round: running.round,
            exit,
        });
    }

    /// Acts on the difference between what should be and what is.
    async fn reconcile(&mut self) {
        if self.signalled {
            let grace = self.submitted.spec.deadlines.grace;
            self.stop_program(grace);
            return;
        }
        let Some(order) = self.order.clone() else {
            return;
        };
        match order {
            Order::Wait {
                round,
                ports,
                slot,
                grace,
                ..
            } => {
                if self.running.is_some() {
                    self.stop_program(grace);
                } else {
                    self.get_ready(round, ports, slot);
                }
            }
            Order::Run(run) => {
                let other = self
                    .running
                    .as_ref()
                    .is_some_and(|running| running.round != run.round);
                if other {
                    self.stop_program(self.submitted.spec.deadlines.grace);
                } else if self.running.is_none() && self.ran < run.round {
                    self.start(run).await;
                }
            }
            Order::Stop { grace, save } => {
                if self.running.is_some() {
                    self.stop_program(grace);
                } else if self.saving.is_none() && !self.saved {
                    self.save(save);
                }
            }
        }
    }

    fn stop_program(&mut self, grace: Span) {
        if let Some(running) = &mut self.running
            && running.kill_at.is_none()
        {
            running.program.terminate();
            running.kill_at = Some(Instant::now() + Duration::from_millis(grace.0));
        }
    }

    fn get_ready(&mut self, round: u32, ports: Vec<(String, bool)>, slot: (u32, u32)) {
        let ready = Readiness { round, ports, slot };
        if self.ready.as_ref() == Some(&ready) {
            return;
        }
        let held = self
            .ready
            .as_ref()
            .is_some_and(|old| old.ports == ready.ports && old.slot == slot);
        let report = match self.take_ports(&ready.ports, slot, held) {
            Ok(endpoint) => AgentReport::Ready { round, endpoint },
            Err(why) => AgentReport::Unready { why },
        };
        // Said once for this round, whichever it is; the master decides what follows.
        self.ready = Some(ready);
        self.report(report);
    }

    fn take_ports(
        &mut self,
        ports: &[(String, bool)],
        slot: (u32, u32),
        same: bool,
    ) -> Result<Endpoint, String> {
        let host = self.setting.host.clone();
        let ip = host
            .parse()
            .map_err(|_| format!("`{host}` is not an address"))?;
        let range = self.submitted.spec.ports;
        match &mut self.hold {
            Some(hold) if same => hold.retake().map_err(|e| e.to_string())?,
            _ => {
                self.hold = None;
                let need = |(name, keep): &(String, bool)| Need {
                    name: name.clone(),
                    keep: *keep,
                };
                let needs: Vec<_> = ports.iter().map(need).collect();
                let slot = Slot {
                    index: slot.0,
                    of: slot.1,
                };
                let hold = Hold::take(ip, &needs, range.first..=range.last, slot);
                self.hold = Some(hold.map_err(|e| e.to_string())?);
            }
        }
        let ports = self.hold.as_ref().map(Hold::ports).unwrap_or_default();
        Ok(Endpoint { host, ports })
    }

    async fn start(&mut self, run: Run) {
        self.ran = run.round;
        let round = run.round;
        let prepared = self
            .surroundings
            .prepare(&self.setting, &self.submitted, &run);
        let prepared = prepared.map_err(|why| StartError::Program(super::exec::Refusal::of(why)));
        let started = match prepared {
            Ok((program, output)) => {
                if let Some(hold) = &mut self.hold {
                    hold.release_for_start();
                }
                Program::start(program, output).await
            }
            Err(error) => Err(error),
        };
        match started {
            Ok(program) => {
                let since = Instant::now();
                self.running = Some(Running {
                    program,
                    round,
                    since,
                    kill_at: None,
                });
                self.report(AgentReport::Started { round });
            }
            Err(error) => {
                let hint = error
                    .hint()
                    .map(|hint| format!(" ({hint})"))
                    .unwrap_or_default();
                let why = format!("{error}{hint}");
                let exit = Exit {
                    not_started: Some(why),
                    ..Exit::default()
                };
                self.report(AgentReport::Exited { round, exit });
            }
        }
    }

    /// Copies the outputs beside the loop: it may take minutes, and the agent must go on beating.
    fn save(&mut self, wanted: bool) {
        let (done, saving) = oneshot::channel();
        self.saving = Some(saving);
        let outputs = match (&self.order, wanted) {
            (Some(_), true) => self.surroundings.outputs(&self.submitted),
            _ => Vec::new(),
        };
        if outputs.is_empty() {
            // The receiver is in our hands.
            let _ = done.send(None);
            return;
        }
        let work = self.surroundings.work();
        tokio::task::spawn_blocking(move || {
            let copied = outputs::copy(&work, &outputs);
            let error = copied.err().map(|error| error.to_string());
            // Nobody listens only when the agent is ending anyway.
            let _ = done.send(error);
        });
    }
}
