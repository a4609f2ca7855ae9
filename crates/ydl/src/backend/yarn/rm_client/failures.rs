//! Failed heartbeats: rejections, outages, and the end of the application or of this attempt.

use super::{HEARTBEAT_TIMEOUT, QUERY_TIMEOUT, RmClient, RmClientEnd};
use crate::backend::yarn::{completions, error::RmErrorKind, size::MaxAllocation};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, sleep};
use yarn_native::{
    rpc::RpcError,
    scheduler::{RegisterResponse, SchedulerError},
};
use ydl_core::{ContainerExit, Event};

/// Time after which a rejected token is permanent.
const TOKEN_REJECTED_MAX: Duration = Duration::from_secs(300);
/// Time to retry a request after a rejection that may be transient.
const REQUEST_REJECTED_MAX: Duration = Duration::from_secs(30);

impl RmClient {
    /// Registers again with a ResourceManager that has lost this master, for example by a restart.
    pub(super) async fn register_again(&mut self) -> Option<RmClientEnd> {
        tracing::warn!("the ResourceManager does not know this master; registering again");
        let deadline = Instant::now() + HEARTBEAT_TIMEOUT;
        match self.scheduler.register(&self.registration, deadline).await {
            Ok(registered) => self.on_registered(&registered),
            // The response to an earlier try was lost.
            Err(SchedulerError::AlreadyRegistered { .. }) => {
                self.interval.send_soon(Instant::now())
            }
            Err(SchedulerError::AttemptEnded { reason }) => {
                return Some(self.on_attempt_ended(&reason).await);
            }
            Err(error) => {
                tracing::warn!("cannot register: {error}");
                self.interval.on_failure(Instant::now());
            }
        }
        None
    }

    fn on_registered(&mut self, registered: &RegisterResponse) {
        self.nm_client.add_tokens(registered.node_tokens.iter().cloned());
        self.max_allocation = MaxAllocation::of(registered);
        self.on_recovered(&registered.recovered);
        self.interval.send_soon(Instant::now());
    }

    pub(super) fn on_no_response(&mut self, error: &RpcError, now: Instant) -> Option<RmClientEnd> {
        let kind = match error {
            RpcError::Security { .. } => RmErrorKind::TokenRejected,
            _ => RmErrorKind::NoResponse,
        };
        let lasted = self.error_since.record(kind, now);
        if lasted.is_zero() {
            tracing::warn!("the ResourceManager does not answer: {error}");
        }
        if kind == RmErrorKind::TokenRejected && lasted > TOKEN_REJECTED_MAX {
            return Some(RmClientEnd::Fenced(error.to_string()));
        }
        self.interval.on_failure(now);
        None
    }

    /// Treats some rejections as permanent. Others may be transient errors of the ResourceManager.
    pub(super) fn on_rejection(&mut self, error: &SchedulerError, now: Instant) {
        let lasted = self.error_since.record(RmErrorKind::RequestRejected, now);
        let certain = match error {
            SchedulerError::ConstraintsUnsupported { .. } | SchedulerError::TooLong { .. } => true,
            SchedulerError::Rejected { exception } => {
                let class = exception.short_class();
                class.starts_with("Invalid") && class.contains("ResourceRequest")
            }
            _ => false,
        };
        tracing::warn!("{error}");
        if certain || lasted > REQUEST_REJECTED_MAX {
            self.error_since.clear();
            self.ledger.set_wants(BTreeMap::new(), self.ledger.reply_count());
            self.ledger.set_constrained_wants(BTreeMap::new(), self.ledger.reply_count());
            let why = match error.hint() {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            };
            let why = completions::truncate(&why);
            self.send_event(Event::RequestUnsatisfiable { reason: why });
        }
    }

    /// Handles the end of this attempt: the application ended, or another attempt replaced it.
    pub(super) async fn on_attempt_ended(&mut self, reason: &str) -> RmClientEnd {
        let Some(ended) = self.application_diagnostics().await else {
            return RmClientEnd::Fenced(reason.to_owned());
        };
        let held = std::mem::take(&mut self.held);
        let gone = held.into_keys().map(|id| (id.to_string().into(), ContainerExit::Released));
        let by = format!("the cluster: {ended}");
        self.send_event(Event::KillRequested { by, immediate: true });
        self.send_event(Event::Ended { containers: gone.collect() });
        RmClientEnd::ApplicationEnded
    }

    /// Returns the diagnostics of an application that the cluster ended. Returns nothing if another attempt
    /// continues it, or on an error.
    async fn application_diagnostics(&self) -> Option<String> {
        let (client, attempt) = (self.query_client.as_ref()?, self.attempt?);
        let deadline = Instant::now() + QUERY_TIMEOUT;
        loop {
            let report = client.application(attempt.application, deadline).await.ok()?;
            if report.state.is_over() {
                let diagnostics = completions::summary_line(&report.diagnostics);
                return Some(
                    diagnostics.unwrap_or_else(|| format!("the application is {}", report.state)),
                );
            }
            let replaced = report.attempt.is_some_and(|current| current != attempt);
            if replaced || Instant::now() > deadline {
                return None;
            }
            // The attempt ends before the application's final state is visible.
            sleep(Duration::from_millis(100)).await;
        }
    }
}
