//! Containers of a Hadoop cluster.
//!
//! * `mod.rs` (here): the door between the master's loop and what runs beside it.
//! * `setting`: what a master knows when it begins. * `register`: its first words, and what an earlier one has left.
//! * `line`: beat after beat with the ResourceManager. * `pace`: how often. * `trouble`: what is wrong.
//! * `wants`, `constrained`: what is asked for. * `hosts`: where. * `size`: how large. * `gpus`: whose they are.
//! * `ends`: how containers ended. * `launch`: agents on their nodes.

mod constrained;
mod ends;
mod gpus;
mod hosts;
mod launch;
mod line;
mod pace;
mod register;
mod runtime;
mod setting;
mod size;
mod trouble;
mod wants;

pub(crate) use ends::inexecutable;
pub use runtime::remedy;
pub use setting::YarnSetting;

use super::{Backend, Deposed, Launch};
use gpus::Gpus;
use launch::{Launcher, Start};
use line::{Command, Line, Verdict};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::timeout,
};
use yarn_native::{
    ledger::ReplyCount,
    scheduler::Finish,
    types::{Container, FinalStatus},
};
use ydl_core::{Asks, ContainerId, Event, Outcome};

/// The longest that leaving may take: what the line allows itself, and a little more.
const CLOSE_MAX: Duration = Duration::from_secs(240);
/// The most of a job's end that is told in the ResourceManager's page.
const DIAGNOSTICS_MAX: usize = 4096;

/// What happened beside the master's loop.
#[derive(Debug)]
enum News {
    /// A beat brought this.
    Heard { beat: ReplyCount, granted: Vec<Container>, events: Vec<Event> },
    /// A launch came to this.
    Launch(Event),
}

/// The backend of one job on YARN. Its beats and launches run in tasks of their own; neither channel can hold more
/// than the containers that were asked for give reason to.
#[derive(Debug)]
pub struct Yarn {
    commands: UnboundedSender<Command>,
    launches: UnboundedSender<Start>,
    news: UnboundedReceiver<News>,
    line: Option<JoinHandle<Verdict>>,
    launcher: JoinHandle<()>,
    /// What has happened and was not told yet, all of one beat.
    happened: VecDeque<Event>,
    beat: ReplyCount,
    /// The last beat of which everything was told.
    seen: ReplyCount,
    /// Containers that were granted, and neither launched nor given back yet.
    granted: BTreeMap<ContainerId, Container>,
    wanted: Asks,
    /// A grant was dealt with, and what is wanted was not said since: what the master knew then. The line has counted
    /// the grant; that as many are wanted as before has to be said again.
    unsaid: Option<ReplyCount>,
    gpus: Gpus,
    logs: String,
}

impl Yarn {
    fn begin(
        line: Line,
        launcher: Launcher,
        news: UnboundedReceiver<News>,
        gpus: Gpus,
        logs: String,
    ) -> Yarn {
        let (commands, obeyed) = unbounded_channel();
        let (launches, orders) = unbounded_channel();
        Yarn {
            commands,
            launches,
            news,
            line: Some(tokio::spawn(line.run(obeyed))),
            launcher: tokio::spawn(launcher.run(orders)),
            happened: VecDeque::new(),
            beat: ReplyCount(0),
            seen: ReplyCount(0),
            granted: BTreeMap::new(),
            wanted: Asks::default(),
            unsaid: None,
            gpus,
            logs,
        }
    }

    fn command(&self, command: Command) {
        // A line that has ended is told of by `next`.
        let _ = self.commands.send(command);
    }

    fn take_in(&mut self, news: News) {
        match news {
            News::Heard { beat, granted, events } => {
                self.beat = beat;
                self.happened.extend(events);
                let granted = granted.into_iter();
                self.granted.extend(granted.map(|one| (one.id.to_string().into(), one)));
            }
            News::Launch(event) => self.happened.push_back(event),
        }
    }

    /// One of the containers that were granted goes its way.
    fn dispose(&mut self, container: &ContainerId) -> Option<Container> {
        let granted = self.granted.remove(container)?;
        self.unsaid = Some(self.seen);
        Some(granted)
    }
}

impl Backend for Yarn {
    fn want(&mut self, asks: Asks) {
        self.unsaid = None;
        let asks = self.gpus.asked(asks);
        self.wanted = asks.clone();
        self.command(Command::Want(asks, self.seen));
    }

    fn launch(&mut self, container: ContainerId, launch: Launch) {
        tracing::debug!(%container, task = %launch.task, size = %launch.resources, "launch");
        if let Some(granted) = self.dispose(&container) {
            let gpus = self.gpus.of_role(&launch.task.role);
            // The launcher ends only with this.
            let _ = self.launches.send(Start { container: granted, role: launch.task.role, gpus });
        }
    }

    fn release(&mut self, container: ContainerId) {
        self.dispose(&container);
        if let Ok(container) = container.as_str().parse() {
            self.command(Command::Release(container));
        }
    }

    fn stir(&mut self) {
        self.command(Command::Stir);
    }

    async fn next(&mut self) -> Result<Event, Deposed> {
        if let Some(seen) = self.unsaid.take() {
            self.command(Command::Want(self.wanted.clone(), seen));
        }
        loop {
            if let Some(event) = self.happened.pop_front() {
                if self.happened.is_empty() {
                    self.seen = self.beat;
                }
                return Ok(event);
            }
            let Some(line) = &mut self.line else {
                return std::future::pending().await;
            };
            tokio::select! {
                biased;
                Some(news) = self.news.recv() => self.take_in(news),
                ended = line => {
                    self.line = None;
                    match ended {
                        Ok(Verdict::Deposed(why)) => return Err(Deposed { why }),
                        Ok(Verdict::Finished | Verdict::Ended) => {}
                        Err(error) => {
                            let why = format!("the line to the ResourceManager broke: {error}");
                            return Err(Deposed { why });
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
        let sentence = format!("{}; logs are in `{}`", outcome.sentence(), self.logs);
        let diagnostics = sentence.chars().take(DIAGNOSTICS_MAX).collect();
        self.command(Command::Close(Finish { diagnostics, ..Finish::new(status) }));
        self.launcher.abort();
        let Some(line) = &mut self.line else {
            return;
        };
        match timeout(CLOSE_MAX, line).await {
            Ok(Ok(Verdict::Finished | Verdict::Ended)) => {}
            Ok(Ok(Verdict::Deposed(why))) => tracing::error!("{why}"),
            Ok(Err(error)) => tracing::error!("the line to the ResourceManager broke: {error}"),
            Err(_) => tracing::error!("the ResourceManager was not told of the job's end in time"),
        }
        self.line = None;
    }
}

impl Drop for Yarn {
    fn drop(&mut self) {
        self.launcher.abort();
        if let Some(line) = &self.line {
            line.abort();
        }
    }
}
