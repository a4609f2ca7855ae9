//! Containers of a Hadoop cluster.
//!
//! * `mod.rs` (here): interface between the master's event loop and the background tasks.
//! * `setup`: inputs of the backend.
//! * `register`: registration and recovery of an earlier master's containers.
//! * `rm_client`: heartbeats to the ResourceManager.
//! * `heartbeat`: their interval.
//! * `error`: duration of errors.
//! * `asks`: requests to the scheduler.
//! * `hosts`: hosts to name in them.
//! * `size`: container sizes.
//! * `gpus`: GPUs.
//! * `completions`: exits of containers.
//! * `launch`: starting agents on nodes.

mod asks;
mod completions;
mod error;
mod gpus;
mod heartbeat;
mod hosts;
mod launch;
mod local_resource;
mod register;
mod rm_client;
mod runtime;
mod setup;
mod size;

pub(crate) use completions::exec_failure_reason;
pub use local_resource::local_resource;
pub use runtime::image_hint;
pub use setup::YarnSetup;

use super::{Backend, Fenced, Launch};
use gpus::GpuAsks;
use launch::{LaunchRequest, Launcher};
use rm_client::{Command, RmClient, RmClientEnd};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        watch,
    },
    task::JoinHandle,
    time::timeout,
};
use yarn_native::{
    ledger::ReplyCount,
    scheduler::Finish,
    types::{Container, FinalStatus},
};
use ydl_core::{Asks, ContainerId, Event, Outcome};

/// Time limit for unregistering: the limits of the client plus a margin.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(240);
/// Longest description of a job's outcome on the ResourceManager's page.
const DIAGNOSTICS_MAX: usize = 4096;

/// Event from a background task.
#[derive(Debug)]
enum BackendEvent {
    /// Result of a heartbeat.
    Heartbeat { reply: ReplyCount, granted: Vec<Container>, events: Vec<Event> },
    /// Result of a container launch.
    Launch(Event),
}

/// YARN backend of one job. Heartbeats and launches run in their own tasks. The number of requested containers
/// bounds both channels.
#[derive(Debug)]
pub struct YarnBackend {
    commands: UnboundedSender<Command>,
    launches: UnboundedSender<LaunchRequest>,
    backend_events: UnboundedReceiver<BackendEvent>,
    /// Task of the RM client; none once it has stopped.
    rm_client: Option<JoinHandle<RmClientEnd>>,
    /// Task that starts agents on nodes.
    launcher: JoinHandle<()>,
    /// Events of the last heartbeat that [`Backend::next`] has not returned yet.
    events: VecDeque<Event>,
    /// Last heartbeat received.
    reply: ReplyCount,
    /// Last heartbeat of which every event was returned.
    seen: ReplyCount,
    /// Granted containers that are neither launched nor released.
    granted: BTreeMap<ContainerId, Container>,
    asks: Asks,
    /// Last heartbeat seen when a grant was used or released, if `next` must send the asks again. The RM client already
    /// subtracted these grants. Send the asks again, even if unchanged, or it would ask for too few.
    resend_asks: Option<ReplyCount>,
    gpus: GpuAsks,
    logs: String,
    final_tracking_url: String,
    /// Priority of the application, from the last heartbeat.
    priority: watch::Receiver<Option<i32>>,
}

impl YarnBackend {
    fn begin(
        rm_client: RmClient,
        launcher: Launcher,
        backend_events: UnboundedReceiver<BackendEvent>,
        setup: &YarnSetup,
        priority: watch::Receiver<Option<i32>>,
    ) -> YarnBackend {
        let (commands, command_rx) = unbounded_channel();
        let (launches, launch_rx) = unbounded_channel();
        YarnBackend {
            commands,
            launches,
            backend_events,
            rm_client: Some(tokio::spawn(rm_client.run(command_rx))),
            launcher: tokio::spawn(launcher.run(launch_rx)),
            events: VecDeque::new(),
            reply: ReplyCount(0),
            seen: ReplyCount(0),
            granted: BTreeMap::new(),
            asks: Asks::default(),
            resend_asks: None,
            gpus: GpuAsks::of(&setup.spec),
            logs: format!("{}/logs", setup.staged.dir),
            final_tracking_url: setup.final_tracking_url.clone(),
            priority,
        }
    }

    fn command(&self, command: Command) {
        // `next` reports a client that stopped.
        let _ = self.commands.send(command);
    }

    fn on_backend_event(&mut self, event: BackendEvent) {
        match event {
            BackendEvent::Heartbeat { reply, granted, events: new } => {
                self.reply = reply;
                self.events.extend(new);
                let granted = granted.into_iter();
                self.granted.extend(granted.map(|one| (one.id.to_string().into(), one)));
            }
            BackendEvent::Launch(event) => self.events.push_back(event),
        }
    }

    /// Removes a container from the unused grants.
    fn take_granted(&mut self, container: &ContainerId) -> Option<Container> {
        let granted = self.granted.remove(container)?;
        self.resend_asks = Some(self.seen);
        Some(granted)
    }
}

impl Backend for YarnBackend {
    fn set_asks(&mut self, asks: Asks) {
        self.resend_asks = None;
        let asks = self.gpus.filter(asks);
        self.asks = asks.clone();
        self.command(Command::SetAsks(asks, self.seen));
    }

    fn launch(&mut self, container: ContainerId, launch: Launch) {
        tracing::debug!(%container, task = %launch.task, size = %launch.resources, "launch");
        if let Some(granted) = self.take_granted(&container) {
            let gpus = self.gpus.for_role(&launch.task.role);
            // The launcher lives as long as this backend.
            let _ = self.launches.send(LaunchRequest {
                container: granted,
                role: launch.task.role,
                gpus,
            });
        }
    }

    fn release(&mut self, container: ContainerId) {
        self.take_granted(&container);
        if let Ok(container) = container.as_str().parse() {
            self.command(Command::Release(container));
        }
    }

    fn set_progress(&mut self, progress: f32) {
        self.command(Command::SetProgress(progress));
    }

    fn priority(&self) -> Option<i32> {
        *self.priority.borrow()
    }

    fn expect_exit(&mut self) {
        self.command(Command::ExpectExit);
    }

    async fn next(&mut self) -> Result<Event, Fenced> {
        if let Some(seen) = self.resend_asks.take() {
            self.command(Command::SetAsks(self.asks.clone(), seen));
        }
        loop {
            if let Some(event) = self.events.pop_front() {
                if self.events.is_empty() {
                    self.seen = self.reply;
                }
                return Ok(event);
            }
            let Some(rm_client) = &mut self.rm_client else {
                return std::future::pending().await;
            };
            tokio::select! {
                biased;
                Some(event) = self.backend_events.recv() => self.on_backend_event(event),
                ended = rm_client => {
                    self.rm_client = None;
                    match ended {
                        Ok(RmClientEnd::Fenced(why)) => return Err(Fenced { why }),
                        Ok(RmClientEnd::Finished | RmClientEnd::ApplicationEnded) => {}
                        Err(error) => {
                            let why = format!("the ResourceManager client failed: {error}");
                            return Err(Fenced { why });
                        }
                    }
                }
            }
        }
    }

    async fn close(&mut self, outcome: &Outcome) {
        let status = match outcome {
            Outcome::Succeeded => FinalStatus::Succeeded,
            Outcome::Failed(_) => FinalStatus::Failed,
            Outcome::Killed { .. } => FinalStatus::Killed,
        };
        let summary = format!("{}; logs are in `{}`", outcome.sentence(), self.logs);
        let diagnostics = summary.chars().take(DIAGNOSTICS_MAX).collect();
        let tracking_url = self.final_tracking_url.clone();
        let finish = Finish { diagnostics, tracking_url, ..Finish::new(status) };
        self.command(Command::Close(finish));
        self.launcher.abort();
        let Some(rm_client) = &mut self.rm_client else {
            return;
        };
        match timeout(CLOSE_TIMEOUT, rm_client).await {
            Ok(Ok(RmClientEnd::Finished | RmClientEnd::ApplicationEnded)) => {}
            Ok(Ok(RmClientEnd::Fenced(why))) => tracing::error!("{why}"),
            Ok(Err(error)) => tracing::error!("the ResourceManager client failed: {error}"),
            Err(_) => {
                tracing::error!("timed out reporting the job's outcome to the ResourceManager")
            }
        }
        self.rm_client = None;
    }
}

impl Drop for YarnBackend {
    fn drop(&mut self) {
        self.launcher.abort();
        if let Some(rm_client) = &self.rm_client {
            rm_client.abort();
        }
    }
}
