//! Status of the job: views for clients, the final result, the progress for the cluster, and the job's page.

use super::{Master, view::snapshot};
use crate::{
    backend::Backend,
    master::{
        journal::{Journal, JournalRecord},
        links::RendezvousLinks,
        page::PageState,
        progress::{self, JobProgress},
        result,
    },
};
use tokio::sync::watch;
use ydl_core::Outcome;
use ydl_proto::messages::JobSnapshot;

impl<B: Backend, D: Journal> Master<B, D> {
    /// Publishes the state of the job on its page from now on.
    pub(in crate::master) fn show_page(&mut self, page: watch::Sender<PageState>) {
        self.page = Some(page);
        self.update_page();
    }

    /// Follows what has changed since the last call: events, reported progress, priority.
    pub(super) fn update_status(&mut self) {
        let priority = self.backend.priority();
        if priority != self.priority {
            if let (Some(before), Some(now)) = (self.priority, priority) {
                tracing::info!("the priority of the job changed from {before} to {now}");
            }
            self.priority = priority;
            self.watchers.changed();
        }
        let job = &self.job;
        let reported = self.metrics.values(progress::METRIC, |task| job.current_attempt(task));
        let number = self.watchers.number();
        if number == self.status_number && reported.is_empty() {
            return;
        }
        let estimated = JobProgress::estimate(job.spec(), &job.view(), &reported);
        self.advance(estimated);
        let number = self.watchers.number();
        if number != self.status_number {
            self.status_number = number;
            self.update_page();
        }
    }

    /// Writes and shows the final snapshot.
    pub(in crate::master) fn write_result(&mut self) {
        let now = self.clock.now();
        let mut last =
            snapshot(u64::MAX, &self.job, &self.agents, &RendezvousLinks::default(), None, now);
        last.metrics = self.metrics.latest(|task| self.job.current_attempt(task));
        self.finish_status();
        (last.progress, last.priority) = (self.progress.fraction(), self.priority);
        if let Err(error) = result::write(&self.dir, &last) {
            tracing::error!("cannot write the result: {error}");
        }
        self.show();
    }

    /// Responds to clients that wait for a new view.
    pub(super) fn show(&mut self) {
        let (job, agents, links, now) = (&self.job, &self.agents, &self.links, self.clock.now());
        let metrics = &self.metrics;
        let shortage = self.backend.shortage();
        let (progress, priority) = (self.progress.fraction(), self.priority);
        self.watchers.show(|number| JobSnapshot {
            metrics: metrics.latest(|task| job.current_attempt(task)),
            progress,
            priority,
            ..snapshot(number, job, agents, links, shortage.as_deref(), now)
        });
    }

    /// Publishes the final status.
    fn finish_status(&mut self) {
        if let Some(Outcome::Succeeded) = self.job.outcome() {
            self.advance(JobProgress::DONE);
        }
        self.update_page();
    }

    /// Raises the progress. A restarted task does not lower it, and neither does another master.
    pub(super) fn advance(&mut self, progress: JobProgress) {
        if progress <= self.progress {
            return;
        }
        if progress.percent() > self.progress.percent() {
            self.journal.append(&JournalRecord::Progress(progress));
        }
        self.progress = progress;
        self.watchers.changed();
    }

    fn update_page(&self) {
        if let Some(page) = &self.page {
            let now = self.clock.now();
            let shortage = self.backend.shortage();
            let shortage = shortage.as_deref();
            let view = snapshot(0, &self.job, &self.agents, &self.links, shortage, now).view;
            page.send_replace(PageState::of(view, self.progress, self.priority));
        }
    }
}
