//! Following a job until it is over, or until the person has had enough.

mod events;
mod remote_output;
mod signals;

pub use remote_output::RemoteOutput;
pub use signals::InterruptSignals;

use super::{
    log_tails::LogTails,
    renderer::{OutputClosed, Renderer},
};
use crate::client::{
    jobs::{JobHandle, JobStatus, RemoteEnd},
    master_client::{MasterClient, signal_master},
};
use events::{JobEvent, watch_facts, watch_views};
use remote_output::came;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use ydl_core::{HistoryEvent, TaskId, history::HistoryKind, view::JobPhase};
use ydl_net::client::CallError;
use ydl_os::report::{Exit, Report};
use ydl_proto::{files::HISTORY_BYTES_MAX, messages::JobSnapshot, version::from_json};

/// Refresh interval of a job without events: resource usage changes all the time.
const LOOK: Duration = Duration::from_secs(1);
/// After so long a person is told why nothing comes.
const NOTICE_DELAY: Duration = Duration::from_secs(3);

/// Reason why following ended.
#[derive(Debug)]
pub enum FollowEnd {
    /// The job is over.
    Over(Box<JobSnapshot>),
    /// The job's master died.
    Lost,
    /// The job is over, and the cluster's words are all there is.
    Ended(RemoteEnd),
    /// The person left; the job is being stopped.
    Interrupted,
    /// Stdout is closed.
    Gone,
}

/// Effect of termination signals on the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInterrupt {
    /// The first asks the job to stop, the second leaves.
    StopJob,
    /// The first leaves.
    Leave,
}

/// Client side of a followed job.
#[derive(Debug)]
pub struct Follower {
    pub job: Arc<JobHandle>,
    pub master: Arc<MasterClient>,
    pub renderer: Renderer,
    pub tails: LogTails,
    pub on_interrupt: OnInterrupt,
    /// The most memory each task was seen to use, in MiB.
    pub peaks: BTreeMap<TaskId, u64>,
    /// Keep following after stdout is closed.
    pub deaf: bool,
    /// The number of the next fact to come.
    pub next: u64,
    pub signals: InterruptSignals,
    /// Copies of a remote job's output.
    pub mirror: Option<RemoteOutput>,
}

/// Prints the resources that a job waits for, where no table shows them.
#[derive(Debug, Default)]
struct WaitReason {
    said: Option<(Instant, String)>,
}

impl WaitReason {
    fn tell(&mut self, viewed: &JobSnapshot, renderer: &mut Renderer) {
        let view = &viewed.view;
        if renderer.is_live() || view.phase != JobPhase::Pending {
            return;
        }
        let (when, what) = self.said.get_or_insert_with(|| (Instant::now(), String::new()));
        if when.elapsed() > NOTICE_DELAY && *what != view.why {
            let (mut all, mut missing) = (0, 0);
            for role in &view.roles {
                all += role.instances;
                missing += role.waiting;
            }
            let have = all.saturating_sub(missing);
            renderer.note(&format!("{have} of {all} containers allocated; {}", view.why));
            self.said = Some((Instant::now(), view.why.clone()));
        }
    }
}

impl Follower {
    /// One who has not heard anything yet, and who stops the job when he is interrupted.
    pub fn new(
        job: Arc<JobHandle>,
        master: Arc<MasterClient>,
        renderer: Renderer,
        tails: LogTails,
        signals: InterruptSignals,
    ) -> Follower {
        Follower {
            job,
            master,
            renderer,
            tails,
            on_interrupt: OnInterrupt::StopJob,
            peaks: BTreeMap::new(),
            deaf: false,
            next: 0,
            signals,
            mirror: None,
        }
    }

    /// Follows to the end.
    pub async fn run(&mut self) -> Result<FollowEnd, Report> {
        let (tell, mut news) = mpsc::channel(16);
        tokio::spawn(watch_facts(self.job.clone(), self.master.clone(), tell.clone()));
        // A cluster may grant containers slowly; print how many there are.
        if self.renderer.is_live() || self.job.remote.is_some() {
            tokio::spawn(watch_views(self.master.clone(), tell.clone()));
        }
        drop(tell);
        let mut asked = None;
        let mut gathering = WaitReason::default();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let by = tokio::select! {
                told = news.recv() => match told {
                    Some(JobEvent::History(facts)) => {
                        self.next = facts.next;
                        for fact in &facts.events {
                            if self.on_fact(fact).is_err() && self.leaves() {
                                return Ok(FollowEnd::Gone);
                            }
                        }
                        continue;
                    }
                    Some(JobEvent::View(view)) => {
                        gathering.tell(&view, &mut self.renderer);
                        self.deaf |= self.renderer.viewed(view).is_err();
                        continue;
                    }
                    Some(JobEvent::Ended(status)) => {
                        if let Some(remote_output) = &mut self.mirror {
                            for failure in remote_output.finish(&self.tails).await {
                                self.renderer.note(&format!("note: {failure}"));
                            }
                        }
                        return self.on_end(status);
                    }
                    Some(JobEvent::NoAnswer(error)) => {
                        self.renderer.note(&format!("waiting for the job's master: {error}"));
                        continue;
                    }
                    Some(JobEvent::OutOfReach(error)) => return Err(out_of_reach(&self.job, &error)),
                    None => return self.on_end(self.job.status()),
                },
                (task, attempt) = came(&mut self.mirror) => {
                    self.tails.end(&task, attempt);
                    if self.drain().is_err() && self.leaves() {
                        return Ok(FollowEnd::Gone);
                    }
                    continue;
                }
                () = self.tails.wait() => {
                    if self.drain().is_err() && self.leaves() {
                        return Ok(FollowEnd::Gone);
                    }
                    continue;
                }
                _ = look.tick() => {
                    self.tails.all_changed();
                    self.deaf |= self.renderer.redraw().is_err();
                    continue;
                }
                by = self.signals.next() => by,
            };
            if asked.is_some() || self.on_interrupt == OnInterrupt::Leave {
                if let Some(asking) = asked {
                    // `timeout` signals twice in one moment: the job must hear of it all the same.
                    let _ = timeout(NOTICE_DELAY, asking).await;
                }
                self.renderer.close();
                return Ok(FollowEnd::Interrupted);
            }
            asked = Some(self.stop_job(by));
        }
    }

    fn stop_job(&mut self, by: &'static str) -> JoinHandle<()> {
        self.renderer.note(&format!("{by}: stopping the job ({by} again to leave at once)"));
        let (job, master) = (self.job.clone(), self.master.clone());
        let mirror = self.mirror.as_ref().map(|remote_output| remote_output.mirror.clone());
        tokio::spawn(async move {
            let Err(_) = master.kill(by, false).await else {
                return;
            };
            // A master that cannot be reached is reported by those who watch it.
            match (mirror, job.status()) {
                (Some(mirror), JobStatus::Live(_) | JobStatus::Starting) => {
                    let _ = mirror.kill(by).await;
                }
                (None, JobStatus::Live(place)) => {
                    let _ = signal_master(&place, false);
                }
                _ => {}
            }
        })
    }

    /// Returns whether to stop following now that stdout is closed.
    fn leaves(&mut self) -> bool {
        self.deaf = true;
        self.on_interrupt == OnInterrupt::Leave
    }

    fn on_fact(&mut self, fact: &HistoryEvent) -> Result<(), OutputClosed> {
        if let (HistoryKind::AttemptStarted { task, attempt, .. }, Some(_)) =
            (&fact.kind, &self.mirror)
        {
            // What is not there cannot be watched. Without it, all are looked at once a second.
            let _ = fs::create_dir_all(self.job.dir.attempt_logs(task, *attempt));
        }
        match &fact.kind {
            HistoryKind::AttemptStarted { task, attempt, .. } => {
                self.tails.add_newer(task, *attempt);
                if let Some(remote_output) = &mut self.mirror {
                    remote_output.follow(task, *attempt, &self.tails, &self.master);
                }
                let role = self.job.submitted.spec.role(&task.role);
                if role.is_some_and(|role| role.is_sidecar() && !role.ports.is_empty()) {
                    let note = format!(
                        "{task} is reached with `ydl port-forward {} {task}`",
                        self.job.id()
                    );
                    self.renderer.note(&note);
                }
            }
            HistoryKind::AttemptEnded { task, attempt, peak_memory_mib, .. } => {
                let peak = self.peaks.entry(task.clone()).or_default();
                *peak = (*peak).max(*peak_memory_mib);
                // Its output comes before the news of its end. One that could not be started was never announced.
                self.tails.add_newer(task, *attempt);
                match &mut self.mirror {
                    // Its last lines are on their way.
                    Some(remote_output) => {
                        remote_output.follow(task, *attempt, &self.tails, &self.master)
                    }
                    None => self.tails.end(task, *attempt),
                }
                self.drain()?;
            }
            _ => {}
        }
        if self.deaf { Ok(()) } else { self.renderer.fact(fact) }
    }

    fn drain(&mut self) -> Result<(), OutputClosed> {
        let (deaf, renderer) = (self.deaf, &mut self.renderer);
        let mut take =
            |id: &_, lines: &[u8]| if deaf { Ok(()) } else { renderer.output(id, lines) };
        // What does not fit into one turn is marked as changed and comes with the next.
        self.tails.drain(&mut take)?;
        if deaf { Ok(()) } else { self.renderer.flush() }
    }

    /// Prints what is left to print.
    fn on_end(&mut self, status: JobStatus) -> Result<FollowEnd, Report> {
        // The master may have gone before it could tell the last ones.
        for fact in recorded_history(&self.job, self.next) {
            if self.on_fact(&fact).is_err() && self.leaves() {
                return Ok(FollowEnd::Gone);
            }
        }
        self.tails.scan_newer();
        if !self.deaf {
            let renderer = &mut self.renderer;
            let finished = self
                .tails
                .finish(&mut |id, lines| renderer.output(id, lines))
                .and_then(|()| self.renderer.flush());
            if finished.is_err() && self.leaves() {
                return Ok(FollowEnd::Gone);
            }
        }
        self.renderer.close();
        if let Some(trouble) = self.renderer.trouble() {
            return Err(trouble);
        }
        match status {
            JobStatus::Over(last) => Ok(FollowEnd::Over(last)),
            JobStatus::Ended(ended) => Ok(FollowEnd::Ended(ended)),
            JobStatus::Lost | JobStatus::Starting | JobStatus::Live(_) => Ok(FollowEnd::Lost),
        }
    }
}

/// The facts in the job's directory from that number on. A line that was torn by the master's death is left out.
pub fn recorded_history(job: &JobHandle, from: u64) -> impl Iterator<Item = HistoryEvent> + use<> {
    let file = File::open(job.dir.history_file()).ok();
    let lines = file.map(|file| BufReader::new(file.take(HISTORY_BYTES_MAX)).split(b'\n'));
    let lines = lines.into_iter().flatten().map_while(Result::ok);
    lines.skip(usize::try_from(from).unwrap_or(usize::MAX)).filter_map(|line| from_json(&line).ok())
}

fn out_of_reach(job: &JobHandle, error: &CallError) -> Report {
    let what = format!("the master of `{}` is out of reach: {error}", job.id());
    Report::new(Exit::Unreachable, what)
        .hint(format!("the job may go on; `ydl status {}` tells", job.id()))
}
