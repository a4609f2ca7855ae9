//! Follows a job until it is over or the user interrupts.

mod events;
mod remote_output;
mod signals;

pub(crate) use remote_output::RemoteOutput;
pub(crate) use signals::InterruptSignals;

use super::{
    log_tails::LogTails,
    renderer::{OutputClosed, Renderer},
};
use crate::client::{
    jobs::{JobHandle, JobStatus, RemoteEnd},
    master_client::{MasterClient, signal_master},
};
use events::{JobEvent, watch_history, watch_views};
use remote_output::next_copied;
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
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Delay of the notice that explains why nothing happens.
const NOTICE_DELAY: Duration = Duration::from_secs(3);

/// Reason why following ended.
#[derive(Debug)]
pub(crate) enum FollowEnd {
    /// The job is over.
    Finished(Box<JobSnapshot>),
    /// The job's master died.
    Lost,
    /// The job ended without a result; only the cluster's report exists.
    NoResult(RemoteEnd),
    /// The user interrupted twice; the job is being stopped.
    Interrupted,
    /// Stdout is closed.
    OutputClosed,
}

/// Effect of termination signals on the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnInterrupt {
    /// The first signal stops the job, the second detaches.
    StopJob,
    /// The first signal detaches.
    Detach,
}

/// Client side of a followed job.
#[derive(Debug)]
pub(crate) struct Follower {
    pub job: Arc<JobHandle>,
    pub master: Arc<MasterClient>,
    pub renderer: Renderer,
    pub tails: LogTails,
    pub on_interrupt: OnInterrupt,
    /// Peak memory of each task, in MiB.
    pub peaks: BTreeMap<TaskId, u64>,
    /// Stdout is closed.
    pub output_closed: bool,
    /// Number of the next event.
    pub next: u64,
    pub signals: InterruptSignals,
    /// Copies of a remote job's output.
    pub remote_output: Option<RemoteOutput>,
}

/// Prints the resources that a job waits for unless a table shows them.
#[derive(Debug, Default)]
struct WaitReason {
    reported: Option<(Instant, String)>,
}

impl WaitReason {
    fn print(&mut self, snapshot: &JobSnapshot, renderer: &mut Renderer) {
        let view = &snapshot.view;
        // Between the end of the last program and the end of the job, no task waits to run.
        let waits = view.roles.iter().any(|role| role.waiting + role.preparing > 0);
        if renderer.is_live() || view.phase != JobPhase::Pending || !waits {
            return;
        }
        let (when, reason) = self.reported.get_or_insert_with(|| (Instant::now(), String::new()));
        if when.elapsed() > NOTICE_DELAY && *reason != view.reason {
            let (mut all, mut missing) = (0, 0);
            for role in &view.roles {
                all += role.instances;
                missing += role.waiting;
            }
            let allocated = all.saturating_sub(missing);
            renderer.note(&format!("{allocated} of {all} containers allocated; {}", view.reason));
            self.reported = Some((Instant::now(), view.reason.clone()));
        }
    }
}

impl Follower {
    /// Creates a follower that stops the job when interrupted.
    pub(crate) fn new(
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
            output_closed: false,
            next: 0,
            signals,
            remote_output: None,
        }
    }

    /// Follows the job to its end.
    pub(crate) async fn run(&mut self) -> Result<FollowEnd, Report> {
        let (sender, mut events_in) = mpsc::channel(16);
        tokio::spawn(watch_history(self.job.clone(), self.master.clone(), sender.clone()));
        // A table needs snapshots at once. Without one they explain why a job waits for containers, so short jobs of
        // this machine do without.
        let immediate = self.renderer.is_live() || self.job.remote.is_some();
        let delay = if immediate { Duration::ZERO } else { NOTICE_DELAY };
        tokio::spawn(watch_views(self.master.clone(), sender.clone(), delay));
        drop(sender);
        let mut stopping = None;
        let mut wait_reason = WaitReason::default();
        let mut refresh = interval(REFRESH_INTERVAL);
        refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let by = tokio::select! {
                job_event = events_in.recv() => match job_event {
                    Some(JobEvent::History(history)) => {
                        self.next = history.next;
                        for event in &history.events {
                            if self.on_event(event).is_err() && self.detaches() {
                                return Ok(FollowEnd::OutputClosed);
                            }
                        }
                        continue;
                    }
                    Some(JobEvent::View(view)) => {
                        wait_reason.print(&view, &mut self.renderer);
                        self.output_closed |= self.renderer.update(view).is_err();
                        continue;
                    }
                    Some(JobEvent::Ended(status)) => {
                        if let Some(remote_output) = &mut self.remote_output {
                            for failure in remote_output.finish(&self.tails).await {
                                self.renderer.note(&format!("note: {failure}"));
                            }
                        }
                        return self.on_end(status);
                    }
                    Some(JobEvent::NotResponding(error)) => {
                        self.renderer.note(&format!("waiting for the job's master: {error}"));
                        continue;
                    }
                    Some(JobEvent::Unreachable(error)) => return Err(unreachable_report(&self.job, &error)),
                    None => return self.on_end(self.job.status()),
                },
                (task, attempt) = next_copied(&mut self.remote_output) => {
                    self.tails.end(&task, attempt);
                    if self.drain().is_err() && self.detaches() {
                        return Ok(FollowEnd::OutputClosed);
                    }
                    continue;
                }
                () = self.tails.wait() => {
                    if self.drain().is_err() && self.detaches() {
                        return Ok(FollowEnd::OutputClosed);
                    }
                    continue;
                }
                _ = refresh.tick() => {
                    self.tails.all_changed();
                    self.output_closed |= self.renderer.redraw().is_err();
                    continue;
                }
                by = self.signals.next() => by,
            };
            if stopping.is_some() || self.on_interrupt == OnInterrupt::Detach {
                if let Some(stop_request) = stopping {
                    // `timeout(1)` sends two signals at once: the request to stop must still reach the job.
                    let _ = timeout(NOTICE_DELAY, stop_request).await;
                }
                self.renderer.close();
                return Ok(FollowEnd::Interrupted);
            }
            stopping = Some(self.stop_job(by));
        }
    }

    fn stop_job(&mut self, by: &'static str) -> JoinHandle<()> {
        self.renderer.note(&format!("{by}: stopping the job ({by} again to detach)"));
        let (job, master) = (self.job.clone(), self.master.clone());
        let mirror = self.remote_output.as_ref().map(|remote_output| remote_output.mirror.clone());
        tokio::spawn(async move {
            let Err(_) = master.kill(by, false).await else {
                return;
            };
            // The history watcher reports an unreachable master.
            match (mirror, job.status()) {
                (Some(mirror), JobStatus::Running(_) | JobStatus::Starting) => {
                    let _ = mirror.kill(by).await;
                }
                (None, JobStatus::Running(address)) => {
                    let _ = signal_master(&address, false);
                }
                _ => {}
            }
        })
    }

    /// Returns whether to stop following now that stdout is closed.
    fn detaches(&mut self) -> bool {
        self.output_closed = true;
        self.on_interrupt == OnInterrupt::Detach
    }

    fn on_event(&mut self, event: &HistoryEvent) -> Result<(), OutputClosed> {
        if let (HistoryKind::AttemptStarted { task, attempt, .. }, Some(_)) =
            (&event.kind, &self.remote_output)
        {
            // Only an existing directory can be watched. Without it, this attempt would be read once a second only.
            let _ = fs::create_dir_all(self.job.dir.attempt_logs(task, *attempt));
        }
        match &event.kind {
            HistoryKind::AttemptStarted { task, attempt, .. } => {
                self.tails.add_newer(task, *attempt);
                if let Some(remote_output) = &mut self.remote_output {
                    remote_output.follow(task, *attempt, &self.tails, &self.master);
                }
                let role = self.job.submitted.spec.role(&task.role);
                if role.is_some_and(|role| role.is_sidecar() && !role.ports.is_empty()) {
                    let note = format!(
                        "{task} is available with `ydl port-forward {} {task}`",
                        self.job.id()
                    );
                    self.renderer.note(&note);
                }
            }
            HistoryKind::AttemptEnded { task, attempt, peak_memory_mib, .. } => {
                let peak = self.peaks.entry(task.clone()).or_default();
                *peak = (*peak).max(*peak_memory_mib);
                // Print the attempt's output before its end. An attempt that failed to start is not followed yet.
                self.tails.add_newer(task, *attempt);
                match &mut self.remote_output {
                    // The last lines are still being copied.
                    Some(remote_output) => {
                        remote_output.follow(task, *attempt, &self.tails, &self.master);
                        remote_output.end(task, *attempt);
                    }
                    None => self.tails.end(task, *attempt),
                }
                self.drain()?;
            }
            _ => {}
        }
        if self.output_closed { Ok(()) } else { self.renderer.event(event) }
    }

    fn drain(&mut self) -> Result<(), OutputClosed> {
        let (output_closed, renderer) = (self.output_closed, &mut self.renderer);
        let mut write =
            |id: &_, lines: &[u8]| if output_closed { Ok(()) } else { renderer.output(id, lines) };
        // A stream with more data than one pass reads stays marked as changed.
        self.tails.drain(&mut write)?;
        if output_closed { Ok(()) } else { self.renderer.flush() }
    }

    /// Prints the remaining events and output.
    fn on_end(&mut self, status: JobStatus) -> Result<FollowEnd, Report> {
        // The master may have exited before it sent the last events.
        for event in recorded_history(&self.job, self.next) {
            if self.on_event(&event).is_err() && self.detaches() {
                return Ok(FollowEnd::OutputClosed);
            }
        }
        self.tails.scan_newer();
        if !self.output_closed {
            let renderer = &mut self.renderer;
            let finished = self
                .tails
                .finish(&mut |id, lines| renderer.output(id, lines))
                .and_then(|()| self.renderer.flush());
            if finished.is_err() && self.detaches() {
                return Ok(FollowEnd::OutputClosed);
            }
        }
        self.renderer.close();
        if let Some(error) = self.renderer.error() {
            return Err(error);
        }
        match status {
            JobStatus::Finished(last) => Ok(FollowEnd::Finished(last)),
            JobStatus::NoResult(ended) => Ok(FollowEnd::NoResult(ended)),
            JobStatus::Lost | JobStatus::Starting | JobStatus::Running(_) => Ok(FollowEnd::Lost),
        }
    }
}

/// Returns the events recorded in the job's directory, starting at number `from`. Skips a line that the master's death
/// left incomplete.
pub(crate) fn recorded_history(
    job: &JobHandle,
    from: u64,
) -> impl Iterator<Item = HistoryEvent> + use<> {
    let file = File::open(job.dir.history_file()).ok();
    let lines = file.map(|file| BufReader::new(file.take(HISTORY_BYTES_MAX)).split(b'\n'));
    let lines = lines.into_iter().flatten().map_while(Result::ok);
    lines.skip(usize::try_from(from).unwrap_or(usize::MAX)).filter_map(|line| from_json(&line).ok())
}

fn unreachable_report(job: &JobHandle, error: &CallError) -> Report {
    let what = format!("cannot reach the master of `{}`: {error}", job.id());
    Report::new(Exit::Unreachable, what)
        .hint(format!("the job may still be running: see `ydl status {}`", job.id()))
}
